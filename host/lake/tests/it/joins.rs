//! Larger queries over several streams and table parameters: a kept plan answers like one that was just made.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use weir_model::Scalar;
use weir_model::port::{BatchInputs, Queries};
use weir_model::stream::Chunk;

use crate::support::*;

const TRAFFIC: &str = "event_time = \"collected_at\"\n[schema]\ncollected_at = { type = \"timestamp\", required = true }\n\
    router_ip = \"text\"\ntx = \"int64\"\n";
const ALARMS: &str = "event_time = \"at\"\n[schema]\nat = { type = \"timestamp\", required = true }\n\
    olt_ip = \"text\"\nstatus = \"text\"\n";
const MANIFEST: &str = "[inputs.traffic]\n[inputs.alarms]\n[queries.big]\nfile = \"big.sql\"\n\
    params = { t0 = \"timestamp\", least = \"int64\" }\nrows = { topology = { olt_ip = \"text\", router_ip = \"text\" } }\n";
/// Alarms without a clearing event, walked over the topology, joined with per-minute traffic; devices without traffic and
/// traffic without alarm are kept.
const BIG: &str = "WITH standing AS (
        SELECT DISTINCT a.olt_ip FROM alarms a
        WHERE a.at >= $t0 - interval '5 minutes' AND a.at < $t0 AND a.status = '1'
          AND NOT EXISTS (SELECT 1 FROM alarms c WHERE c.olt_ip = a.olt_ip AND c.status = '0' AND c.at > a.at AND c.at < $t0)),
    nodes AS (SELECT t.router_ip, s.olt_ip FROM standing s JOIN topology t ON t.olt_ip = s.olt_ip),
    minutes AS (SELECT router_ip, date_trunc('minute', collected_at) AS minute, sum(tx) AS tx FROM traffic
        WHERE collected_at < $t0 GROUP BY 1, 2),
    average AS (SELECT router_ip, avg(tx) AS mean FROM minutes GROUP BY 1)
    SELECT coalesce(n.router_ip, a.router_ip) AS router, n.olt_ip, a.mean,
        a.mean > (SELECT avg(mean) FROM average) AS above
    FROM nodes n FULL OUTER JOIN average a ON n.router_ip = a.router_ip
    WHERE coalesce(a.mean, 0) >= $least
    UNION ALL SELECT 'alarms', CAST(count(*) AS VARCHAR), NULL, NULL FROM alarms";

fn traffic(rows: &[(i64, &str, i64)]) -> Chunk {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(times(rows.iter().map(|r| at(r.0)))),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.1))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.2))),
    ];
    positioned(TRAFFIC, columns, rows.len(), "collected_at")
}

fn alarms(rows: &[(i64, &str, &str)]) -> Chunk {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(times(rows.iter().map(|r| at(r.0)))),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.1))),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.2))),
    ];
    positioned(ALARMS, columns, rows.len(), "at")
}

fn positioned(def: &str, mut columns: Vec<ArrayRef>, rows: usize, event_time: &str) -> Chunk {
    let count = i64::try_from(rows).unwrap();
    columns.push(Arc::new(Int32Array::from(vec![0; rows])));
    columns.push(Arc::new(Int64Array::from_iter_values(0..count)));
    chunk(RecordBatch::try_new(stream_def(def).positioned_schema(), columns).unwrap(), event_time)
}

fn topology(rows: &[(&str, &str)]) -> RecordBatch {
    let field = |n: &str| Field::new(n, DataType::Utf8, true);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.0))),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.1))),
    ];
    RecordBatch::try_new(Arc::new(Schema::new(vec![field("olt_ip"), field("router_ip")])), columns).unwrap()
}

fn batch(minute: i64, t: Vec<Chunk>, a: Vec<Chunk>) -> BatchInputs {
    inputs(at(minute), vec![pinned("traffic", TRAFFIC, at(0), t), pinned("alarms", ALARMS, at(0), a)])
}

fn run(queries: &dyn Queries, inputs: &BatchInputs, least: i64, rows: &RecordBatch) -> RecordBatch {
    let params =
        [("t0".to_owned(), Scalar::Timestamp(inputs.time.micros())), ("least".to_owned(), Scalar::Int64(least))];
    queries.run("big", inputs, &params, &[("topology".to_owned(), rows.clone())]).unwrap()
}

#[test]
fn a_kept_plan_answers_like_a_fresh_one() {
    let house = House::new();
    let rules = ruleset(MANIFEST, &[("traffic", TRAFFIC), ("alarms", ALARMS)], &[("big.sql", BIG)]);
    let kept = house.plan(&rules);
    let two = topology(&[("o1", "r1"), ("o2", "r2"), ("o1", "r3")]);
    let one = topology(&[("o2", "r9")]);
    let busy = || vec![traffic(&[(1, "r1", 10), (1, "r1", 20), (2, "r1", 50), (2, "r2", 4)])];
    let raised = || vec![alarms(&[(3, "o1", "1"), (3, "o2", "1"), (4, "o2", "0")])];
    let series = [
        (batch(5, busy(), raised()), 0, &two),
        (batch(5, busy(), raised()), 5, &one),
        (batch(4, busy(), raised()), 0, &two),
        (batch(5, vec![], vec![]), 0, &two),
        (batch(5, busy(), raised()), 0, &two),
    ];
    // r1: minutes of 30 and 50, mean 40; r2: 4; mean of means 22. o2 was cleared in minute 4, o1 stands and leads to r1, r3.
    let first = ["alarms|3||", "r1|o1|40.0|true", "r2||4.0|false", "r3|o1||"];
    let expected: [&[&str]; 5] = [
        &first,
        &["alarms|3||", "r1||40.0|true"],
        &["alarms|3||", "r1|o1|40.0|true", "r2|o2|4.0|false", "r3|o1||"],
        &["alarms|0||"],
        &first,
    ];
    for round in 0..3 {
        for ((inputs, least, rows), expected) in series.iter().zip(expected) {
            let answer = run(kept.as_ref(), inputs, *least, rows);
            assert_eq!(lines(&answer), expected, "round {round}");
            assert_eq!(answer, run(house.plan(&rules).as_ref(), inputs, *least, rows));
        }
    }
}

#[test]
fn runs_at_the_same_time_do_not_see_each_other() {
    let house = House::new();
    let rules = ruleset(MANIFEST, &[("traffic", TRAFFIC), ("alarms", ALARMS)], &[("big.sql", BIG)]);
    let kept = house.plan(&rules);
    std::thread::scope(|scope| {
        for worker in 1..=6 {
            let kept = kept.clone();
            scope.spawn(move || {
                let rows = topology(&[("o1", "r1")]);
                for _ in 0..20 {
                    let inputs = batch(5, vec![traffic(&[(1, "r1", worker)])], vec![]);
                    let expected = vec!["alarms|0||".to_owned(), format!("r1||{worker}.0|false")];
                    assert_eq!(lines(&run(kept.as_ref(), &inputs, 0, &rows)), expected);
                }
            });
        }
    });
}

#[test]
fn recursion_is_planned_for_each_run() {
    let house = House::new();
    let sql =
        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < $top) SELECT max(i) AS i FROM n";
    let manifest = "[queries.q]\nfile = \"q.sql\"\nparams = { top = \"int64\" }\n";
    let queries = house.plan(&ruleset(manifest, &[], &[("q.sql", sql)]));
    for top in [3, 7, 2] {
        let params = [("top".to_owned(), Scalar::Int64(top))];
        let rows = queries.run("q", &inputs(at(0), vec![]), &params, &[]).unwrap();
        assert_eq!(lines(&rows), [top.to_string()]);
    }
}
