//! Bad content never replaces good content: not while the host runs, not when it starts again, and not for others.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use weir_lake::{LakeConfig, WeirLake};
use weir_model::port::{Lake, Ledger, RuleStore, ScenarioView};
use weir_model::service::Service;
use weir_model::{BatchId, Digest, NoFaults, RunKey, ScenarioId};
use weir_pipeline::scenario::Step;

use crate::support::example::{Example, Live, copy_tree, guest};
use crate::support::fakes::name;

const PLUGIN: &str = "netops/s1-syslog/plugins/s1_syslog.wasm";
const MANIFEST: &str = "netops/s1-syslog/scenario.toml";
const RULE: &str = "netops/s1-syslog/rules/1-1.json";
const QUERY: &str = "netops/s1-syslog/queries/error_counts.sql";

fn plugin() -> Vec<u8> {
    std::fs::read(guest("s1_syslog.wasm")).unwrap()
}

/// The plugin with a text that it must contain replaced by one of the same length.
fn patched(from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = plugin();
    let found: Vec<usize> =
        bytes.windows(from.len()).enumerate().filter(|(_, w)| *w == from.as_bytes()).map(|(at, _)| at).collect();
    assert!(!found.is_empty(), "the plugin does not contain {from}");
    for at in found {
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    bytes
}

/// The store holds a second scenario beside S1: the same one under another name, with a table of its own.
fn with_neighbour() -> (Example, ScenarioId) {
    let example = Example::new();
    let tenant = example.store().join("netops");
    copy_tree(&tenant.join("s1-syslog"), &tenant.join("s1-copy"));
    example.edit("netops/s1-copy/scenario.toml", "table = \"s1_results\"", "table = \"s1_copy_results\"");
    (example, "netops/s1-copy".parse().unwrap())
}

fn neighbour_ran(example: &Example, live: &Live, id: &ScenarioId) -> BatchId {
    let seen = example.wait_for(live, id, "the neighbour is active", |v| v.pending.is_none() && v.active.is_some());
    assert_eq!(seen.rejected, None);
    live.host.reconcile().unwrap();
    let mut last = None;
    loop {
        match live.host.step(id).unwrap() {
            Step::Committed(record) => last = Some(record.plan.id),
            Step::NotDue(_) => break,
            other => panic!("the neighbour: {other:?}"),
        }
    }
    last.expect("the neighbour had a batch to run")
}

fn last_ruleset(example: &Example, live: &Live, batch: u64) -> Digest {
    let head = live.built.ledger.head(&RunKey::live(example.scenario())).unwrap().expect("batches");
    assert_eq!(head.plan.id, BatchId(batch));
    head.plan.ruleset
}

fn refused(view: &ScenarioView, file: &str, words: &str) {
    let notice = view.rejected.as_ref().expect("rejected");
    assert_eq!(notice.file, file, "{notice:?}");
    let problem = &notice.problems[0];
    assert_eq!(problem.file, file);
    assert!(problem.message.contains(words), "not about {words}: {problem}");
    assert!(!problem.fix.is_empty(), "no fix: {problem}");
    assert!(notice.reason.contains(&problem.message), "{notice:?}");
}

/// Puts bad content into the running example: it is refused with `words` about `file`, the old ruleset goes on, also after
/// a restart, and the neighbour never notices.
fn refuses(file: &str, words: &str, spoil: impl FnOnce(&Example)) {
    let (example, neighbour) = with_neighbour();
    let live = example.open();
    assert_eq!(example.batches(&live), 1);
    assert_eq!(neighbour_ran(&example, &live, &neighbour), BatchId(1));
    let good = last_ruleset(&example, &live, 1);

    spoil(&example);
    let view = example.until(&live, "the bad content is rejected", |v| v.pending.is_none() && v.rejected.is_some());
    refused(&view, file, words);
    assert_eq!(view.active.as_ref().unwrap().ruleset.digest, good);
    let status = live.host.status().unwrap();
    let mine = status.scenarios.iter().find(|s| s.scenario.as_str() == "s1-syslog").unwrap();
    assert_eq!((mine.rejected.as_ref(), mine.ruleset), (view.rejected.as_ref(), Some(good)));
    assert_eq!(example.minute(&live), 1);
    assert_eq!(last_ruleset(&example, &live, 2), good);
    assert_eq!(neighbour_ran(&example, &live, &neighbour), BatchId(2));
    drop(live);

    let live = example.open();
    let view = example.until(&live, "the last good ruleset runs again", |v| v.active.is_some() && v.rejected.is_some());
    refused(&view, file, words);
    assert_eq!(view.active.unwrap().ruleset.digest, good);
    assert_eq!(example.minute(&live), 1);
    assert_eq!(last_ruleset(&example, &live, 3), good);
    assert_eq!(neighbour_ran(&example, &live, &neighbour), BatchId(3));
}

#[test]
fn a_component_cut_short() {
    let whole = plugin();
    refuses(PLUGIN, "cut short", |e| e.write(PLUGIN, &whole[..whole.len() / 2]));
}

#[test]
fn a_truncated_rule() {
    refuses(RULE, "JSON", |e| {
        let text = std::fs::read(e.store().join(RULE)).unwrap();
        e.write(RULE, &text[..text.len() - 100]);
    });
}

#[test]
fn a_rule_without_a_handler() {
    refuses(RULE, "handler", |e| e.edit(RULE, "function handler(input)", "function pattern(input)"));
}

#[test]
fn an_unknown_column() {
    refuses(QUERY, "router_hots", |e| e.edit(QUERY, "  router_host,", "  router_hots,"));
}

#[test]
fn an_import_that_is_not_granted() {
    let words = "imports wasi:http/types@0.2";
    refuses(PLUGIN, words, |e| e.write(PLUGIN, &patched("wasi:io/streams@0.2.", "wasi:http/types@0.2.")));
}

#[test]
fn an_unknown_interface_version() {
    let mut bytes = patched("weir:detect/batches@0.1.0", "weir:detect/batches@0.9.0");
    for name in ["types", "log", "plugin"] {
        let (from, to) = (format!("weir:detect/{name}@0.1.0"), format!("weir:detect/{name}@0.9.0"));
        while let Some(at) = bytes.windows(from.len()).position(|w| w == from.as_bytes()) {
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        }
    }
    refuses(PLUGIN, "unknown interface version weir:detect@0.9.0; this host knows 0.1.0", |e| e.write(PLUGIN, &bytes));
}

#[test]
fn an_output_that_does_not_fit_its_table() {
    let words =
        "output s1_results does not fit table taken: column error_count is text in the table and int64 in the rows";
    refuses(MANIFEST, words, |e| {
        let config = LakeConfig::new(e.data().join("lake"), e.runtime.handle().clone());
        let lake = WeirLake::open(config, Arc::new(NoFaults)).unwrap();
        let schema = Arc::new(Schema::new(vec![Field::new("error_count", DataType::Utf8, true)]));
        e.runtime.block_on(lake.table(&name("netops"), &name("taken"), schema)).unwrap();
        e.edit(MANIFEST, "table = \"s1_results\"", "table = \"taken\"");
    });
}

#[test]
fn a_plugin_that_traps_in_describe() {
    let bytes = std::fs::read(guest("probe_trap_describe.wasm")).unwrap();
    refuses(PLUGIN, "trapped", |e| e.write(PLUGIN, &bytes));
}

#[test]
fn a_scenario_that_was_never_good_does_not_start_and_holds_nobody_up() {
    let (example, neighbour) = with_neighbour();
    let whole = plugin();
    example.write(PLUGIN, &whole[..whole.len() / 2]);
    let live = example.open();
    let view = live.built.store.scenario(&example.scenario()).unwrap();
    assert!(view.active.is_none());
    refused(&view, PLUGIN, "cut short");
    assert_eq!(neighbour_ran(&example, &live, &neighbour), BatchId(1));
    let key = RunKey::live(example.scenario());
    assert_eq!(live.built.ledger.head(&key).unwrap().map(|h| h.plan.id), None);
    let step = live.host.step(&example.scenario()).unwrap();
    assert!(matches!(step, Step::Ended), "{step:?}");
    // Corrected, it starts, with the batch that is due.
    example.write(PLUGIN, &whole);
    example.until(&live, "the corrected content is active", |v| v.pending.is_none() && v.active.is_some());
    assert_eq!(example.batches(&live), 1);
}
