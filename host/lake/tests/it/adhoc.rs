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
    let view = || vec![ViewTable { name: "hot".into(), schema: rows.schema(), rows: vec![rows.clone(), rows.clone()] }];
    let ask = |sql: &str| house.lake.query(&name("acme"), sql, view());
    let joined =
        ask("SELECT h.router_ip, count(*) FROM hot h JOIN \"bronze-syslog\" b USING (router_ip) GROUP BY 1 ORDER BY 1");
    assert_eq!(lines(&joined.unwrap()), ["203.0.113.33|2", "203.0.113.34|2"]);
    let gone = ask("SELECT 1 FROM nowhere").unwrap_err();
    assert_eq!(gone.to_string(), "nowhere: there is no table nowhere; there are bronze-syslog, hot");
    for other in ["other.hot", "some.other.hot", "information_schema.tables"] {
        let gone = ask(&format!("SELECT 1 FROM {other}")).unwrap_err();
        let table = other.rsplit('.').next().unwrap();
        let text = format!("{table}: there is no table {other}; tables have no schema before their name");
        assert_eq!((gone.to_string(), gone.kind), (text, FaultKind::Sql));
    }
    assert_eq!(ask("DELETE FROM hot").unwrap_err().kind, FaultKind::Sql);
    // Another tenant's table is no table.
    assert!(house.lake.query(&name("other"), "SELECT 1 FROM \"bronze-syslog\"", vec![]).is_err());
}
