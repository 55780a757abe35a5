//! What is no acceptable query, and how it is said.

use weir_model::port::QueryEngine;

use crate::support::*;

const STREAM: &str = "s1_router_syslog_events";

#[test]
fn each_refused_query_says_why_and_where() {
    let house = House::new();
    let cases: &[(&str, &str)] = &[
        (
            "SELECT router_hots FROM s1_router_syslog_events",
            "q.sql: router_hots: there is no column router_hots; the columns are _offset, _partition, collected_at, \
             router_host, router_ip, syslog_message; write one of these, or add the column where the table is defined",
        ),
        (
            "SELECT 1 FROM syslog",
            "q.sql: syslog: there is no table syslog; there are s1_router_syslog_events; list the stream under inputs, \
             the reference table under tables, or the table parameter under rows",
        ),
        (
            "INSERT INTO s1_router_syslog_events VALUES (1)",
            "q.sql: q: only a SELECT is allowed, this is INSERT; write one SELECT",
        ),
        ("COPY (SELECT 1) TO 'x.csv'", "q.sql: q: only a SELECT is allowed, this is COPY; write one SELECT"),
        ("SET a = 1", "q.sql: q: only a SELECT is allowed, this is SET; write one SELECT"),
        ("EXPLAIN SELECT 1", "q.sql: q: only a SELECT is allowed, this is EXPLAIN; write one SELECT"),
        ("DROP TABLE x", "q.sql: q: only a SELECT is allowed, this is DROP; write one SELECT"),
        ("SELECT 1 AS a; SELECT 2 AS b", "q.sql: q: it holds 2 statements; write one SELECT"),
        ("  ", "q.sql: q: it is empty; write one SELECT"),
        (
            "SELECT random() AS x",
            "q.sql: random: random would answer differently each time; compute it from columns, for example with md5()",
        ),
        ("SELECT $x AS x", "q.sql: x: parameter $x is not declared; none is; declare it under params with its type"),
        ("SELECT 1 AS a, 2 AS a", ""),
        ("SELECT 1 FROM 'q.sql'", ""),
    ];
    for (sql, expected) in cases {
        let manifest = "[inputs.s1_router_syslog_events]\n[queries.q]\nfile = \"q.sql\"\n";
        let problems = house.problems(&ruleset(manifest, &[(STREAM, SYSLOG)], &[("q.sql", sql)]));
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 1, "{sql}: {texts:?}");
        assert!(texts[0].starts_with("q.sql: "), "{texts:?}");
        if !expected.is_empty() {
            assert_eq!(texts[0], *expected, "{sql}");
        }
    }
}

fn problems_of(house: &House, sql: &str) -> Vec<String> {
    let manifest = "[inputs.s1_router_syslog_events]\n[queries.q]\nfile = \"q.sql\"\n";
    let ruleset = ruleset(manifest, &[(STREAM, SYSLOG)], &[("q.sql", sql)]);
    match house.lake.plan(&ruleset) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn a_chain_too_long_to_walk_is_refused_and_a_long_list_is_not() {
    let house = House::new();
    for link in ["1+", "1=1 OR ", "1::int::", "'a'||", "1 UNION ALL SELECT "] {
        let end = if link.ends_with("::") { "int" } else { "1" };
        let found = problems_of(&house, &format!("SELECT {}{end} AS x", link.repeat(3_000)));
        assert!(found.len() == 1 && found[0].contains("400 are allowed"), "{link}: {found:?}");
    }
    let list = vec!["1"; 5_000].join(", ");
    let sql = format!("SELECT 1 AS x FROM {STREAM} WHERE _offset IN ({list}) AND {}1=1", "1=1 AND ".repeat(150));
    assert_eq!(problems_of(&house, &sql), Vec::<String>::new());
}

#[test]
fn functions_that_make_much_of_little_are_not_there() {
    let house = House::new();
    for sql in ["SELECT repeat('x', 2000000000) AS x", "SELECT array_length(array_repeat(1, 600000000)) AS x"] {
        let found = problems_of(&house, sql);
        assert!(found.len() == 1 && found[0].contains("repeat"), "{found:?}");
    }
}

#[test]
fn all_problems_of_all_queries_are_told_at_once() {
    let house = House::new();
    let manifest = "[inputs.s1_router_syslog_events]\n\
        [queries.a]\nfile = \"a.sql\"\nparams = { unused = \"text\", until = \"text\" }\n\
        bounds = { s1_router_syslog_events = [\"until\", \"nowhere\"] }\n\
        [queries.b]\nfile = \"b.sql\"\n[queries.c]\nfile = \"gone.sql\"\n[queries.d]\nfile = \"d.sql\"\n";
    let mut ruleset = ruleset(
        manifest,
        &[(STREAM, SYSLOG)],
        &[("a.sql", "SELECT 1 FROM s1_router_syslog_events"), ("b.sql", "SELEC 1"), ("d.sql", "")],
    );
    ruleset.content.insert("d.sql".to_owned(), std::sync::Arc::from([0xff_u8, 0xfe].as_slice()));
    let problems = house.problems(&ruleset);
    let found: Vec<(&str, &str, bool)> =
        problems.iter().map(|p| (p.file.as_str(), p.field.as_str(), p.may_be_partial)).collect();
    assert_eq!(
        found,
        [
            ("scenario.toml", "queries.a.bounds.s1_router_syslog_events", false),
            ("scenario.toml", "queries.a.bounds.s1_router_syslog_events", false),
            ("a.sql", "unused", false),
            ("b.sql", "b", true),
            ("scenario.toml", "queries.c.file", true),
            ("d.sql", "d", true),
        ]
    );
    assert_eq!(problems[0].message, "parameter until is text, a bound is a timestamp");
    assert_eq!(problems[2].message, "parameter $unused is declared but not used");
}
