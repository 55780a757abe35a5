//! Rows that `generate` sources make.

use weir_model::port::QueryEngine;

use crate::support::*;

#[test]
fn rows_are_a_function_of_the_tick() {
    let house = House::new();
    let schema = stream_def(SYSLOG).schema();
    let sql = "SELECT 'Edge-RouterA-' || lpad(CAST(n AS VARCHAR), 3, '0') AS router_host, $now AS collected_at,
        md5(CAST($tick + n AS VARCHAR)) AS syslog_message FROM generate_series(1, 2) AS g(n)";
    let maker = house.lake.row_maker(sql, schema.clone(), "streams/x.toml").unwrap();
    let rows = maker.rows(41, at(3)).unwrap();
    assert_eq!(rows.schema(), schema);
    // md5 of "42" and "43"; router_ip is not selected and null.
    assert_eq!(
        lines(&rows),
        [
            "Edge-RouterA-001||2026-01-01T00:03:00Z|a1d0c6e83f027327d8461063f4ac58a6",
            "Edge-RouterA-002||2026-01-01T00:03:00Z|17e62166fc8586dfa4d1bc0e1742c08b",
        ]
    );
    assert_eq!(lines(&maker.rows(41, at(3)).unwrap()), lines(&rows));
    assert_ne!(lines(&maker.rows(42, at(3)).unwrap()), lines(&rows));
}

#[test]
fn a_source_that_does_not_fit_its_schema_is_refused() {
    let house = House::new();
    let schema = stream_def(SYSLOG).schema();
    let problem = |sql: &str| house.lake.row_maker(sql, schema.clone(), "streams/x.toml").map(|_| ()).unwrap_err();
    let missing = problem("SELECT 'a' AS router_host");
    assert_eq!(
        missing.to_string(),
        "streams/x.toml: source.sql: required column collected_at is missing; select it, with AS to name it"
    );
    let extra = problem("SELECT $now AS collected_at, 1 AS hops");
    assert!(extra.message.starts_with("column hops is not in the stream's schema"), "{extra}");
    assert!(problem("SELECT $now AS collected_at, random() AS router_ip").message.contains("random"));
    assert!(problem("SELECT $now AS collected_at FROM elsewhere").message.contains("there is no table elsewhere"));
}
