//! Questions at the prompt.

use weir_model::FaultKind;
use weir_model::port::{AdHoc, Append, Lake, ViewTable};

use crate::support::*;

#[test]
fn tables_and_views_are_read_by_name() {
    let house = House::new();
    let rows = syslog(0, &[(at(0), "33", "a"), (at(1), "34", "b")]);
    house.runtime.block_on(async {
        let table = house.lake.table(&name("acme"), &name("bronze-syslog"), rows.schema()).await.unwrap();
        table.append(vec![Append { app: "x".into(), version: 1, rows: rows.clone() }]).await.unwrap();
    });
    let view = || {
        let rows = vec![rows.clone(), rows.clone()];
        vec![ViewTable { name: "hot".into(), schema: rows[0].schema(), rows, stands_in: false }]
    };
    let ask = |sql: &str| house.lake.query(&name("acme"), sql, view());
    let joined =
        ask("SELECT h.router_ip, count(*) FROM hot h JOIN \"bronze-syslog\" b USING (router_ip) GROUP BY 1 ORDER BY 1");
    assert_eq!(lines(&joined.unwrap()), ["203.0.113.33|2", "203.0.113.34|2"]);
    let gone = ask("SELECT 1 FROM nowhere").unwrap_err();
    assert_eq!(
        gone.to_string(),
        "nowhere: there is no table nowhere; there are bronze-syslog, hot; write one of these"
    );
    for other in ["other.hot", "some.other.hot", "information_schema.tables"] {
        let gone = ask(&format!("SELECT 1 FROM {other}")).unwrap_err();
        let table = other.rsplit('.').next().unwrap();
        let text = format!("{table}: there is no table {other}; tables have no schema before their name");
        assert_eq!((gone.to_string(), gone.kind), (text, FaultKind::Sql));
    }
    assert_eq!(
        ask("DELETE FROM hot").unwrap_err().to_string(),
        "only a SELECT is allowed, this is DELETE; write one SELECT, SHOW TABLES or DESCRIBE table"
    );
    // Another tenant's table is no table.
    assert!(house.lake.query(&name("other"), "SELECT 1 FROM \"bronze-syslog\"", vec![]).is_err());
}

#[test]
fn what_is_there_can_be_asked_for() {
    let house = House::new();
    let rows = syslog(0, &[(at(0), "33", "a")]);
    house.runtime.block_on(async {
        let table = house.lake.table(&name("acme"), &name("bronze-syslog"), rows.schema()).await.unwrap();
        table.append(vec![Append { app: "x".into(), version: 1, rows: rows.clone() }]).await.unwrap();
    });
    let view = || ViewTable { name: "hot".into(), schema: rows.schema(), rows: vec![rows.clone()], stands_in: false };
    let ask = |sql: &str| house.lake.query(&name("acme"), sql, vec![view()]);
    for sql in ["SHOW TABLES", "show tables;"] {
        let tables = ask(sql).unwrap();
        assert_eq!(tables.schema().field(0).name(), "table_name");
        assert_eq!(lines(&tables), ["bronze-syslog", "hot"], "{sql}");
    }
    let columns = lines(&ask("DESCRIBE hot").unwrap());
    assert!(columns.contains(&"collected_at|timestamp|no".to_owned()), "{columns:?}");
    assert!(columns.contains(&"_partition|int32|no".to_owned()), "{columns:?}");
    assert_eq!(columns.len(), rows.num_columns());
    for sql in ["DESC Hot", "describe hot;", "DESCRIBE \"bronze-syslog\""] {
        assert_eq!(lines(&ask(sql).unwrap()), columns, "{sql}");
    }
    let gone = ask("DESCRIBE nowhere").unwrap_err().to_string();
    assert_eq!(gone, "nowhere: there is no table nowhere; there are bronze-syslog, hot; write one of these");
    let gone = ask("DESCRIBE \"Hot\"").unwrap_err().to_string();
    assert!(gone.starts_with("Hot: there is no table Hot"), "{gone}");
    for sql in [
        "SHOW TABLES LIKE 'h%'",
        "SHOW COLUMNS FROM hot",
        "DESCRIBE other.hot",
        "DESCRIBE EXTENDED hot",
        "EXPLAIN SELECT 1",
    ] {
        let refused = ask(sql).unwrap_err();
        assert_eq!((refused.kind, refused.fix.is_some()), (FaultKind::Sql, true), "{sql}: {refused}");
    }
    // Another tenant sees nothing of it.
    assert_eq!(house.lake.query(&name("other"), "SHOW TABLES", vec![]).unwrap().num_rows(), 0);
}

/// A table that the host will make is empty until it is there, and then it is that table.
#[test]
fn a_table_that_is_not_there_yet_is_stood_in_for() {
    let house = House::new();
    let rows = syslog(0, &[(at(0), "33", "a")]);
    let view = || ViewTable { name: "later".into(), schema: rows.schema(), rows: Vec::new(), stands_in: true };
    let ask = |sql: &str| house.lake.query(&name("acme"), sql, vec![view()]).unwrap();
    let none = ask("SELECT * FROM later");
    assert_eq!((none.num_rows(), none.schema().field(0).name().as_str()), (0, "router_host"));
    assert_eq!(lines(&ask("SELECT count(*) FROM later WHERE router_ip = '203.0.113.33'")), ["0"]);
    house.runtime.block_on(async {
        let table = house.lake.table(&name("acme"), &name("later"), rows.schema()).await.unwrap();
        table.append(vec![Append { app: "x".into(), version: 1, rows: rows.clone() }]).await.unwrap();
    });
    assert_eq!(lines(&ask("SELECT router_ip FROM later")), ["203.0.113.33"]);
}
