//! Named queries over hot windows.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use weir_model::port::Queries;
use weir_model::{CallError, DataError, FaultKind, Kind, Limits, Scalar, Time, Whose};

use crate::support::*;

const S1: &str = "SELECT date_trunc('minute', collected_at) AS minute, router_host, router_ip, count(*) AS err_cnt
    FROM s1_router_syslog_events
    WHERE collected_at >= $from AND collected_at < $to AND syslog_message LIKE $pattern
    GROUP BY 1, 2, 3";
const MANIFEST: &str = "[inputs.s1_router_syslog_events]\n[queries.counts]\nfile = \"queries/counts.sql\"\n\
    params = { pattern = \"text\", from = \"timestamp\", to = \"timestamp\" }\n\
    bounds = { s1_router_syslog_events = [\"from\", \"to\"] }\n";
const STREAM: &str = "s1_router_syslog_events";
const MATCH: &str = "%sapDHCPLseStatePopulateErr%";

/// The starter data of S1: each minute 50 matching messages of .34, 10 of .33, 2 of .36, and one that does not match.
fn starter(minutes: std::ops::Range<i64>) -> Vec<weir_model::stream::Chunk> {
    let mut offset = 0;
    let mut minute = |m: i64| {
        let mut rows = vec![(at(m), "34", "port up")];
        for (host, count) in [("34", 50), ("33", 10), ("36", 2)] {
            let second = |i: i64| Time(at(m).micros() + i * 1_000_000);
            rows.extend((0..count).map(|i| (second(i), host, "dhcp: sapDHCPLseStatePopulateErr on lease")));
        }
        rows.sort_by_key(|r| r.0);
        let from = offset;
        offset += i64::try_from(rows.len()).unwrap();
        chunk(syslog(from, &rows), "collected_at")
    };
    minutes.map(&mut minute).collect()
}

fn bind(pattern: &str, from: Time, to: Time) -> Vec<(String, Scalar)> {
    vec![
        ("pattern".to_owned(), Scalar::Text(pattern.to_owned())),
        ("from".to_owned(), Scalar::Timestamp(from.micros())),
        ("to".to_owned(), Scalar::Timestamp(to.micros())),
    ]
}

fn single(house: &House, sql: &str) -> Arc<dyn Queries> {
    let manifest = "[inputs.s1_router_syslog_events]\n[queries.q]\nfile = \"q.sql\"\n";
    house.plan(&ruleset(manifest, &[(STREAM, SYSLOG)], &[("q.sql", sql)]))
}

#[test]
fn s1_counts_by_minute_with_changing_parameters_over_one_plan() {
    let house = House::new();
    let queries = house.plan(&ruleset(MANIFEST, &[(STREAM, SYSLOG)], &[("queries/counts.sql", S1)]));
    let window = || inputs(at(10), vec![pinned(STREAM, SYSLOG, at(0), starter(0..10))]);
    let run = |pattern: &str, from, to| {
        lines(&queries.run("counts", &window(), &bind(pattern, at(from), at(to)), &[]).unwrap())
    };
    let minute = |m: i64| {
        [("33", 10), ("34", 50), ("36", 2)]
            .map(|(h, n)| format!("2026-01-01T00:{m:02}:00Z|Edge-RouterA-0{h}|203.0.113.{h}|{n}"))
    };
    for _ in 0..3 {
        assert_eq!(run(MATCH, 8, 10), [minute(8), minute(9)].concat());
        assert_eq!(run("port%", 3, 4), ["2026-01-01T00:03:00Z|Edge-RouterA-034|203.0.113.34|1"]);
        assert_eq!(run("nothing", 0, 10), Vec::<String>::new());
        assert_eq!(run(MATCH, 0, 1), minute(0));
    }
}

#[test]
fn now_is_the_time_of_the_batch() {
    let house = House::new();
    let queries = single(&house, "SELECT now() AS t, current_date AS d, now() - interval '1 minute' AS before, now()");
    for minutes in [0, 1_500] {
        let t = at(minutes);
        let rows = queries.run("q", &inputs(t, vec![pinned(STREAM, SYSLOG, at(0), vec![])]), &[], &[]).unwrap();
        let day = if minutes == 0 { "2026-01-01" } else { "2026-01-02" };
        let before = Time(t.micros() - MINUTE);
        assert_eq!(lines(&rows), [format!("{t}|{day}|{before}|{t}")]);
        assert_eq!(rows.schema().field(3).name(), "now");
    }
}

#[test]
fn an_answer_without_a_total_order_is_sorted() {
    let house = House::new();
    let rows = [(at(1), "36", "b"), (at(1), "33", "c"), (at(1), "34", "b"), (at(1), "33", "a")];
    let window = inputs(at(2), vec![pinned(STREAM, SYSLOG, at(0), vec![chunk(syslog(0, &rows), "collected_at")])]);
    let run = |sql: &str| lines(&single(&house, sql).run("q", &window, &[], &[]).unwrap());
    let from = "FROM s1_router_syslog_events";
    assert_eq!(
        run(&format!("SELECT router_ip, syslog_message {from}")),
        ["203.0.113.33|a", "203.0.113.33|c", "203.0.113.34|b", "203.0.113.36|b"]
    );
    assert_eq!(
        run(&format!("SELECT router_ip, syslog_message {from} ORDER BY syslog_message DESC")),
        ["203.0.113.33|c", "203.0.113.34|b", "203.0.113.36|b", "203.0.113.33|a"]
    );
    // The key of the order is not selected, and the limit falls between equals.
    assert_eq!(
        run(&format!("SELECT router_ip {from} ORDER BY collected_at LIMIT 2")),
        ["203.0.113.33", "203.0.113.33"]
    );
    assert_eq!(run(&format!("SELECT 1 AS n UNION ALL SELECT 0 {from} LIMIT 3")), ["0", "0", "1"]);
}

#[test]
fn limits_are_the_tenants_faults_and_name_the_limit() {
    let house = House::new();
    let window = inputs(at(10), vec![pinned(STREAM, SYSLOG, at(0), starter(0..10))]);
    let fault = |sql: &str, change: fn(&mut Limits)| {
        let manifest = "[inputs.s1_router_syslog_events]\n[queries.q]\nfile = \"q.sql\"\n";
        let mut ruleset = ruleset(manifest, &[(STREAM, SYSLOG)], &[("q.sql", sql)]);
        change(&mut ruleset.limits);
        match house.plan(&ruleset).run("q", &window, &[], &[]) {
            Err(CallError::Fault(fault)) => fault,
            other => panic!("{other:?}"),
        }
    };
    let all = "SELECT * FROM s1_router_syslog_events";
    let found = [
        fault(all, |l| l.sql_memory_bytes = 10_000),
        fault(all, |l| l.sql_rows = 100),
        fault("SELECT count(*) AS n FROM generate_series(1, 1000000000000)", |l| {
            l.sql_time = weir_model::Span::millis(50);
        }),
    ];
    let fields = ["sql_memory_bytes", "sql_rows", "sql_time"];
    for (fault, field) in found.iter().zip(fields) {
        assert_eq!(
            (fault.whose, fault.kind, fault.field.as_deref()),
            (Whose::Tenant, FaultKind::SqlLimit, Some(field))
        );
    }
    // A plan that failed is not used again; the next run is right.
    let queries = single(&house, "SELECT count(*) AS n FROM s1_router_syslog_events");
    assert_eq!(lines(&queries.run("q", &window, &[], &[]).unwrap()), ["630"]);
}

#[test]
fn what_depends_on_the_data_is_told_to_the_guest() {
    let house = House::new();
    let manifest = "[inputs.s1_router_syslog_events]\n[queries.q]\nfile = \"q.sql\"\nparams = { n = \"int32\" }\n";
    let queries = house.plan(&ruleset(manifest, &[(STREAM, SYSLOG)], &[("q.sql", "SELECT 10 / $n AS x")]));
    let window = inputs(at(1), vec![pinned(STREAM, SYSLOG, at(0), vec![])]);
    let run = |name: &str, params: &[(&str, Scalar)]| {
        let params: Vec<_> = params.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect();
        queries.run(name, &window, &params, &[]).map(|rows| lines(&rows))
    };
    let data = |e: DataError| Err(CallError::Data(e));
    assert_eq!(run("q", &[("n", Scalar::Int64(5))]), Ok(vec!["2".to_owned()]));
    assert_eq!(run("q", &[("n", Scalar::Int64(0))]), data(DataError::Failed("division by zero".to_owned())));
    assert_eq!(run("q", &[("n", Scalar::Null)]), Ok(vec![String::new()]));
    assert_eq!(run("q", &[("n", Scalar::Int64(1 << 40))]), data(DataError::OutOfRange));
    assert_eq!(run("q", &[("n", Scalar::Text("5".to_owned()))]), data(DataError::WrongKind(Kind::Int64)));
    assert_eq!(run("q", &[("m", Scalar::Null)]), data(DataError::Undeclared));
    assert_eq!(run("q", &[]), data(DataError::Failed("parameter n is not bound".to_owned())));
    assert_eq!(run("other", &[]), data(DataError::Undeclared));
}

#[test]
fn parameters_and_table_parameters_are_taken_exactly() {
    let house = House::new();
    let manifest = "[queries.q]\nfile = \"q.sql\"\nparams = { price = \"decimal(6,2)\", day = \"date\" }\n\
        rows = { t = { n = { type = \"int64\", required = true }, note = \"text\" } }\n";
    let sql = "SELECT $price * 2 AS price, $day AS day, n, note FROM t ORDER BY n DESC";
    let queries = house.plan(&ruleset(manifest, &[], &[("q.sql", sql)]));
    let run = |price: Scalar, day: &str, rows: &[(String, RecordBatch)]| {
        let params = [("price".to_owned(), price), ("day".to_owned(), Scalar::Text(day.to_owned()))];
        queries.run("q", &inputs(at(0), vec![]), &params, rows).map(|rows| lines(&rows))
    };
    let column =
        |name: &str, values: ArrayRef| [("t".to_owned(), RecordBatch::try_from_iter([(name, values)]).unwrap())];
    let rows = column("n", Arc::new(Int64Array::from(vec![1, 2])));
    let text = |s: &str| Scalar::Decimal(s.to_owned());
    let data = |e: DataError| Err(CallError::Data(e));
    assert_eq!(
        run(text("-12.5"), "2026-02-28", &rows),
        Ok(vec!["-25.00|2026-02-28|2|".to_owned(), "-25.00|2026-02-28|1|".to_owned()])
    );
    assert_eq!(run(Scalar::Int64(7), "2026-02-28", &rows).unwrap()[0], "14.00|2026-02-28|2|");
    assert_eq!(run(text("1.234"), "2026-02-28", &rows), data(DataError::OutOfRange));
    assert_eq!(run(text("12345.1"), "2026-02-28", &rows), data(DataError::OutOfRange));
    assert_eq!(run(text("1,2"), "2026-02-28", &rows), data(DataError::Malformed));
    assert_eq!(run(text("1"), "2026-02-30", &rows), data(DataError::Malformed));
    assert_eq!(run(text("1"), "2026-02-28", &[]), data(DataError::Failed("table parameter t is not bound".to_owned())));
    let missing = column("note", Arc::new(StringArray::from(vec!["x"])));
    assert_eq!(run(text("1"), "2026-02-28", &missing), data(DataError::RequiredNull));
    let null = column("n", Arc::new(Int64Array::from(vec![None, Some(1)])));
    assert_eq!(run(text("1"), "2026-02-28", &null), data(DataError::RequiredNull));
    let words = column("n", Arc::new(StringArray::from(vec!["five"])));
    let Err(CallError::Data(DataError::Failed(why))) = run(text("1"), "2026-02-28", &words) else { panic!("accepted") };
    assert!(why.starts_with("t.n: Cannot cast string 'five'"), "{why}");
    let undeclared = [("u".to_owned(), rows[0].1.clone())];
    assert_eq!(run(text("1"), "2026-02-28", &undeclared), data(DataError::Undeclared));
}
