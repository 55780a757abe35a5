//! A thousand rules and twenty plugins swapped while batches run: each batch runs on exactly one ruleset, and what it
//! leaves says which.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_model::alarm::AlarmChange;
use weir_model::batch::{BatchRecord, Outcome};
use weir_model::port::RuleStore;
use weir_model::service::Service;
use weir_model::{BatchId, Clock, Digest, RunKey, Severity};

use crate::support::example::{Example, Live, guest, repository};

const EDITS: usize = 1_000;
const PLUGINS: usize = 20;
/// A batch for so many edits.
const EDITS_A_BATCH: usize = 5;
/// After so many edits, 50 errors stop being critical, or start to be.
const PHASE: usize = 50;
const RULE: &str = "netops/s1-syslog/rules/1-2.json";
const PLUGIN: &str = "netops/s1-syslog/plugins/s1_syslog.wasm";
const NAP: Duration = Duration::from_millis(1);

/// The component with a custom section of its own: another digest, the same behaviour.
fn numbered(component: &[u8], n: usize) -> Vec<u8> {
    let name = b"weir-test";
    let payload = format!("{n:04}");
    let size = u8::try_from(1 + name.len() + payload.len()).unwrap();
    // Sizes below 128 are one byte of LEB128.
    assert!(size < 128);
    let mut bytes = component.to_vec();
    bytes.extend([0, size, u8::try_from(name.len()).unwrap()]);
    bytes.extend(name);
    bytes.extend(payload.as_bytes());
    bytes
}

/// Waits until the store has something else active than `before`. The clock is the batches' alone.
fn swapped(example: &Example, live: &Live, before: Digest) -> Digest {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        live.built.store.look(example.clock.now());
        assert!(live.built.store.wait(Duration::from_secs(60)), "the store does not come to rest");
        let view = live.built.store.scenario(&example.scenario()).unwrap();
        assert_eq!(view.rejected, None);
        let active = view.active.unwrap().ruleset.digest;
        if view.pending.is_none() && active != before {
            return active;
        }
        assert!(Instant::now() < deadline, "the edit does not become active: {:?}", view.pending);
        park_timeout(NAP);
    }
}

/// Ends the other thread when this one does, however it does.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Edits on this thread, batches on another one: a swap may come at any point of a batch. Answers all rulesets, in order.
fn swap_while_batches_run(example: &Example, live: &Live) -> Vec<Digest> {
    let rule = std::fs::read_to_string(example.store().join(RULE)).unwrap();
    let component = std::fs::read(guest("s1_syslog.wasm")).unwrap();
    let first = live.built.store.scenario(&example.scenario()).unwrap().active.unwrap().ruleset.digest;
    let (edited, ran, ended) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|threads| {
        let batches = threads.spawn(|| {
            while !ended.load(Ordering::Acquire) {
                if edited.load(Ordering::Acquire) >= (ran.load(Ordering::Acquire) + 1) * EDITS_A_BATCH {
                    assert_eq!(example.minute(live), 1);
                    ran.fetch_add(1, Ordering::Release);
                } else {
                    park_timeout(NAP);
                }
            }
        });
        let end = End(&ended);
        let mut rulesets = vec![first];
        for n in 1..=EDITS {
            let critical = if (n / PHASE).is_multiple_of(2) { 40 } else { 60 };
            let edit = rule.replace("\">= 50\"", &format!("\">= {critical}.{n:04}\""));
            assert_ne!(edit, rule);
            if n.is_multiple_of(EDITS / PLUGINS) {
                example.write(PLUGIN, &numbered(&component, n));
            }
            example.write(RULE, edit.as_bytes());
            rulesets.push(swapped(example, live, *rulesets.last().unwrap()));
            edited.store(n, Ordering::Release);
            // Batches keep up, so that every phase has some.
            while n > (ran.load(Ordering::Acquire) + 2) * EDITS_A_BATCH && !batches.is_finished() {
                park_timeout(NAP);
            }
        }
        drop(end);
        batches.join().unwrap();
        rulesets
    })
}

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field].as_str().unwrap_or_else(|| panic!("no {field} in {row}"))
}

fn of_its_batch(row: &Value, records: &BTreeMap<u64, BatchRecord>) {
    let batch = row["_batch_id"].as_u64().unwrap();
    assert_eq!(text(row, "_ruleset"), records[&batch].plan.ruleset.to_string(), "{row}");
}

#[test]
fn a_thousand_rules_and_twenty_plugins_are_swapped_while_batches_run() {
    // In memory: that syncs are there is another test's subject.
    let mut example = Example::new_in(tempfile::TempDir::new_in("/dev/shm").unwrap());
    example.settings = "[rule_store]\nsettle = \"0s\"\n";
    let live = example.open();
    assert_eq!(example.batches(&live), 1);
    let rulesets = swap_while_batches_run(&example, &live);
    assert_eq!(example.minute(&live), 1);

    // Every edit was active for a while, and was another ruleset.
    let distinct: BTreeSet<Digest> = rulesets.iter().copied().collect();
    assert!(distinct.len() > EDITS, "{} rulesets", distinct.len());

    let key = RunKey::live(example.scenario());
    let all = live.host.ledger(&key, None, 10_000).unwrap();
    let last = all.last().unwrap().clone();
    let ids: Vec<u64> = all.iter().map(|r| r.plan.id.0).collect();
    assert_eq!(ids, (1..=last.plan.id.0).collect::<Vec<_>>(), "no batch is missing, none is there twice");
    assert!(all.len() >= EDITS / EDITS_A_BATCH - 1, "{} batches", all.len());
    assert!(all.iter().all(|r| r.outcome == Outcome::Judged && distinct.contains(&r.plan.ruleset)));
    let used: BTreeSet<Digest> = all.iter().map(|r| r.plan.ruleset).collect();
    assert!(used.len() > all.len() / 2, "{} rulesets in {} batches", used.len(), all.len());
    assert_eq!(last.plan.ruleset, *rulesets.last().unwrap());
    let records: BTreeMap<u64, BatchRecord> = all.into_iter().map(|r| (r.plan.id.0, r)).collect();

    // Results: each row says the ruleset of its batch, and a router's minute is there once per outcome, though two batches
    // see it: what the plugin remembers outlives all swaps, those of the plugin too.
    let rows = example.rows(
        &live,
        "select cast(processing_time as varchar) as minute, router_ip, severity, _batch_id, _ruleset from s1_results",
    );
    rows.iter().for_each(|row| of_its_batch(row, &records));
    let committed: u64 =
        records.values().flat_map(|r| &r.outputs).filter(|o| o.output.as_str() == "s1_results").map(|o| o.rows).sum();
    assert_eq!(rows.len() as u64, committed);
    let outcomes: BTreeSet<_> =
        rows.iter().map(|r| (text(r, "minute"), text(r, "router_ip"), text(r, "severity"))).collect();
    assert_eq!(outcomes.len(), rows.len(), "an outcome is there twice");
    // Two minutes back for the first batch, then one more for each.
    let minutes: BTreeSet<_> = outcomes.iter().map(|(minute, ip, _)| (*minute, *ip)).collect();
    assert_eq!(minutes.len(), 2 * (records.len() + 1), "a minute is missing");

    // Alarms: one never changes, the other changes with each phase and in no other batch.
    let events = live.host.events(&BTreeMap::new(), 10_000, 0).unwrap().events;
    assert!(events.iter().all(|e| e.ruleset == records[&e.batch.0].plan.ruleset));
    let of = |n: &str| {
        let mine = events.iter().filter(|e| e.alarm.key[1].ends_with(n));
        mine.map(|e| (e.change, e.alarm.severity)).collect::<Vec<_>>()
    };
    assert_eq!(of(".33"), [(AlarmChange::Opened, Severity::Warning)]);
    let mut expected = vec![(AlarmChange::Opened, Severity::Critical)];
    for _ in 0..EDITS / PHASE / 2 {
        expected.extend([(AlarmChange::Lowered, Severity::Warning), (AlarmChange::Escalated, Severity::Critical)]);
    }
    assert_eq!(of(".34"), expected);
    let in_lake = example.rows(&live, "select _batch_id, _ruleset from alarm_events");
    in_lake.iter().for_each(|row| of_its_batch(row, &records));
    assert_eq!(in_lake.len(), events.len());
    let alarms = live.host.alarms(None, false).unwrap();
    assert!(alarms.iter().all(|a| a.count == records.len() as u64 && a.batch == last.plan.id), "{alarms:?}");
    assert_eq!(alarms.len(), 2);

    // After a restart the last ruleset goes on from there.
    drop(live);
    let live = example.open();
    example.minute(&live);
    let after = live.host.ledger(&key, Some(last.plan.id), 10).unwrap();
    assert_eq!(after.len(), 1);
    assert_eq!((after[0].plan.id, after[0].plan.ruleset), (BatchId(last.plan.id.0 + 1), last.plan.ruleset));
}

#[test]
fn a_component_built_for_the_released_interface_runs_unchanged() {
    let example = Example::new();
    let frozen = repository().join("tests/fixtures/v0_1/s1_syslog.wasm");
    example.write("netops/s1-syslog/plugins/s1_syslog.wasm", &std::fs::read(frozen).unwrap());
    let live = example.open();
    assert_eq!(example.batches(&live), 1);
    // The starter data of the spec: 50 and 10 matching messages a minute; 2 are no alarm.
    let rows =
        example.rows(&live, "select distinct router_ip ip, error_count n, severity s from s1_results order by n");
    let row = |ip: &str, n: i64, s: &str| serde_json::json!({ "ip": ip, "n": n, "s": s });
    assert_eq!(rows, [row("203.0.113.33", 10, "Warning"), row("203.0.113.34", 50, "Critical")]);
}
