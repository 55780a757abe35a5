//! Reference tables under a running host: a table that Python writes is in the next batch without a restart, a file of the
//! store after its ruleset was swapped, and a replay sees what the batch saw.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use weir_model::batch::BatchRecord;
use weir_model::port::Ledger;
use weir_model::service::Service;
use weir_model::{BatchId, RunKey, Whose};
use weir_pipeline::scenario::Step;

use crate::support::example::{Example, Live, repository};
use crate::support::fakes::name;

const MANIFEST: &str = "netops/s1-syslog/scenario.toml";
const LAKE: &str =
    "[tables.watched]\nlake = \"s1_watched\"\nschema = { router_ip = { type = \"text\", required = true } }\n";

/// The example, with a query that counts routers of the table `watched` only.
fn watching(table: &str) -> Example {
    let example = Example::new();
    example.edit(MANIFEST, "[rules]", &format!("{table}\n[rules]"));
    let sql = "netops/s1-syslog/queries/error_counts.sql";
    example.edit(sql, "GROUP BY", "AND router_ip IN (SELECT router_ip FROM watched)\nGROUP BY");
    example
}

/// Writes router addresses as another system does. Answers the table's version.
fn python_writes(example: &Example, routers: &[&str], overwrite: bool) -> u64 {
    let python = std::env::var("WEIR_PYTHON").expect("WEIR_PYTHON is not set: run the tests by `cargo xtask test`");
    let table = example.data().join("lake/netops/s1_watched");
    let mut command = Command::new(python);
    command.arg(repository().join("tests/python/write_delta.py")).arg(&table);
    command.args(overwrite.then_some("--overwrite")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let rows: Vec<Value> = routers.iter().map(|r| json!({ "router_ip": r, "note": "x" })).collect();
    child.stdin.take().unwrap().write_all(json!(rows).to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// Routers with a result in a batch.
fn routers(example: &Example, live: &Live, batch: u64) -> Vec<String> {
    let sql = format!("select distinct router_ip from s1_results where _batch_id = {batch} order by router_ip");
    example.rows(live, &sql).iter().map(|r| r["router_ip"].as_str().unwrap().to_owned()).collect()
}

fn record(example: &Example, live: &Live, batch: u64) -> BatchRecord {
    live.built.ledger.record(&RunKey::live(example.scenario()), BatchId(batch)).unwrap().unwrap()
}

const R33: &str = "203.0.113.33";
const R34: &str = "203.0.113.34";

#[test]
fn a_table_that_another_system_writes_is_in_the_next_batch_and_pinned_for_a_replay() {
    let example = watching(LAKE);
    let live = example.open();

    // Not there yet: the ruleset is active, no batch begins, and the reason is shown.
    live.host.reconcile().unwrap();
    let Step::Retry(fault) = live.host.step(&example.scenario()).unwrap() else { panic!("a batch without its table") };
    assert_eq!((fault.whose, fault.stage), (Whose::External, Some(weir_model::Stage::Plan)));
    assert!(fault.message.contains("there is no table netops/s1_watched"), "{fault}");
    assert_eq!(live.built.ledger.head(&RunKey::live(example.scenario())).unwrap(), None);
    let shown = live.host.status().unwrap().scenarios.remove(0).fault;
    assert!(shown.is_some_and(|f| f.message == fault.message));

    assert_eq!(python_writes(&example, &[R34], false), 0);
    assert_eq!(example.batches(&live), 1);
    assert_eq!(routers(&example, &live, 1), [R34]);
    let first = record(&example, &live, 1);
    assert!(first.plan.tables[&name("watched")].starts_with("0@"), "{:?}", first.plan.tables);
    assert_eq!(first.plan.attempt, 1, "waiting for a table uses up no attempt");

    // Appended to between two batches, while the host runs.
    assert_eq!(python_writes(&example, &[R33], false), 1);
    assert_eq!(example.minute(&live), 1);
    assert_eq!(routers(&example, &live, 2), [R33, R34]);
    assert!(record(&example, &live, 2).plan.tables[&name("watched")].starts_with("1@"));
    assert_eq!(python_writes(&example, &[R33], true), 2);
    assert_eq!(example.minute(&live), 1);
    assert_eq!(routers(&example, &live, 3), [R33]);

    // A replay reads the version that its batch saw, also after a restart.
    drop(live);
    let live = example.open();
    for batch in [1, 2, 3] {
        let record = record(&example, &live, batch);
        let side = live.host.side(&example.scenario(), record.plan.time, false).unwrap();
        assert_eq!(side.replayed, Some(BatchId(batch)));
        assert_eq!(side.events, record.events);
        let rows = &side.outputs[&name("s1_results")].rows;
        let mut seen: Vec<&str> = rows.iter().map(|r| r["router_ip"].as_str().unwrap()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, routers(&example, &live, batch), "batch {batch}");
    }

    // Gone: batches wait, and go on when it is back.
    let (table, aside) = (example.data().join("lake/netops/s1_watched"), example.dir.path().join("aside"));
    std::fs::rename(&table, &aside).unwrap();
    example.clock.advance(std::time::Duration::from_secs(60));
    live.host.reconcile().unwrap();
    assert!(matches!(live.host.step(&example.scenario()).unwrap(), Step::Retry(_)));
    std::fs::rename(&aside, &table).unwrap();
    assert_eq!(example.batches(&live), 1);
    assert_eq!(routers(&example, &live, 4), [R33]);
}

#[test]
fn an_edited_file_is_in_the_next_batch_and_a_bad_one_changes_nothing() {
    let file = "netops/s1-syslog/tables/watched.csv";
    let example = watching("[tables.watched]\nfile = \"tables/watched.csv\"\nschema = { router_ip = \"text\" }\n");
    example.write(file, format!("router_ip,site\n{R34},Seoul\n").as_bytes());
    let live = example.open();
    assert_eq!(example.batches(&live), 1);
    assert_eq!(routers(&example, &live, 1), [R34]);

    example.write(file, b"router_ip,site\n203.0.113.33\n");
    let view = example.until(&live, "the bad file is rejected", |v| v.rejected.is_some());
    let reason = view.rejected.unwrap().reason;
    assert!(reason.contains("line 2: it has 1 cells, and the header has 2"), "{reason}");
    example.minute(&live);
    assert_eq!(routers(&example, &live, 2), [R34]);

    example.write(file, format!("router_ip,site\n{R33},Seoul\n").as_bytes());
    let before = record(&example, &live, 2).plan.ruleset;
    example.until(&live, "the mended file is active", |v| {
        v.pending.is_none() && v.active.as_ref().is_some_and(|a| a.ruleset.digest != before)
    });
    example.minute(&live);
    assert_eq!(routers(&example, &live, 3), [R33]);
    let pinned = |batch| record(&example, &live, batch).plan.tables[&name("watched")].clone();
    assert_ne!(pinned(1), pinned(3));
    let side = live.host.side(&example.scenario(), record(&example, &live, 1).plan.time, false).unwrap();
    assert_eq!(side.plan.tables[&name("watched")], pinned(1));
    assert!(!side.outputs.is_empty());
}
