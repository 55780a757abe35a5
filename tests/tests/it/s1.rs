//! S1 from source to Delta alarm: the spec's starter data, a rule and a plugin swapped while it runs, replays.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use weir_model::alarm::AlarmChange;
use weir_model::port::Ledger;
use weir_model::service::Service;
use weir_model::{BatchId, RunKey, Severity};

use crate::support::example::{Example, guest, repository};

const RULE: &str = "netops/s1-syslog/rules/1-2.json";

fn results(example: &Example, live: &crate::support::example::Live) -> Vec<Value> {
    example.rows(
        live,
        "select router_name, router_ip, error_count, severity, alarm_reason, cast(processing_time as varchar) as minute, \
         _batch_id from s1_results order by processing_time, router_ip, _batch_id",
    )
}

fn row(router: &str, count: i64, severity: &str, reason: &str, minute: &str, batch: i64) -> Value {
    json!({
        "router_name": format!("Edge-RouterA-0{router}"), "router_ip": format!("203.0.113.{router}"),
        "error_count": count, "severity": severity, "alarm_reason": reason,
        "minute": format!("2026-01-31T{minute}:00Z"), "_batch_id": batch,
    })
}
fn critical(minute: &str, batch: i64) -> Value {
    row("34", 50, "Critical", "Threshold >= 50", minute, batch)
}
fn warning(minute: &str, batch: i64) -> Value {
    row("33", 10, "Warning", "Threshold >= 10", minute, batch)
}

/// What Python's deltalake reads of a table, without the line about the table itself.
fn python(example: &Example, table: &str) -> Vec<Value> {
    let python = std::env::var("WEIR_PYTHON").expect("WEIR_PYTHON is not set: run the tests by `cargo xtask test`");
    let output = Command::new(python)
        .arg(repository().join("tests/python/read_delta.py"))
        .arg(example.data().join("lake/netops").join(table))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().skip(1).map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[test]
fn starter_data_gives_the_alarms_of_the_spec_and_another_reader_agrees() {
    let example = Example::new();
    let live = example.open();
    assert_eq!(example.batches(&live), 1, "fifteen minutes of history are there, so the first batch has alarms");
    assert_eq!(example.minute(&live), 1);
    // 12:00 sees 11:58 and 11:59; 12:01 sees 11:59 again and 12:00: a minute is reported once per outcome.
    let expected = vec![
        warning("11:58", 1),
        critical("11:58", 1),
        warning("11:59", 1),
        critical("11:59", 1),
        warning("12:00", 2),
        critical("12:00", 2),
    ];
    assert_eq!(results(&example, &live), expected);

    let events = live.host.events(&Default::default(), 100, 0).unwrap().events;
    let mut opened: Vec<_> =
        events.iter().map(|e| (e.alarm.key.clone(), e.change, e.alarm.severity, e.batch)).collect();
    opened.sort();
    let key = |n: &str| vec![format!("Edge-RouterA-0{n}"), format!("203.0.113.{n}")];
    assert_eq!(
        opened,
        [
            (key("33"), AlarmChange::Opened, Severity::Warning, BatchId(1)),
            (key("34"), AlarmChange::Opened, Severity::Critical, BatchId(1)),
        ]
    );
    let alarms = live.host.alarms(None, false).unwrap();
    assert_eq!(alarms.iter().map(|a| a.count).collect::<Vec<_>>(), [2, 2], "the second batch raised them again");
    let head = live.built.ledger.head(&RunKey::live(example.scenario())).unwrap().unwrap();
    assert!(alarms.iter().all(|a| a.ruleset == head.plan.ruleset));

    let read = python(&example, "s1_results");
    assert_eq!(read.len(), expected.len());
    for (router, n) in [("203.0.113.34", 50), ("203.0.113.33", 10)] {
        let mine: Vec<&Value> = read.iter().filter(|r| r["router_ip"] == router).collect();
        assert!(mine.len() == 3 && mine.iter().all(|r| r["error_count"] == n), "{mine:?}");
    }
    let changes: Vec<Value> = python(&example, "alarm_events").iter().map(|r| r["change"].clone()).collect();
    assert_eq!(changes, ["opened", "opened"]);
    let bronze = python(&example, "s1_router_syslog_events");
    for (router, n) in [("203.0.113.34", 50), ("203.0.113.33", 10), ("203.0.113.36", 2)] {
        let matching = bronze.iter().filter(|r| {
            r["router_ip"] == router
                && r["syslog_message"].as_str().unwrap().contains("sapDHCPLseStatePopulateErr")
                && r["collected_at"].as_str().unwrap().replace(' ', "T").starts_with("2026-01-31T11:59:")
        });
        assert_eq!(matching.count(), n, "{router}");
    }
}

#[test]
fn the_injector_gives_one_critical_of_60_a_minute() {
    let example = Example::new();
    example.inject("s1_router_syslog_events.toml");
    let live = example.open();
    assert_eq!(example.batches(&live) + example.minute(&live), 2);
    let sixty = |minute, batch| row("34", 60, "Critical", "Threshold >= 50", minute, batch);
    assert_eq!(results(&example, &live), [sixty("11:58", 1), sixty("11:59", 1), sixty("12:00", 2)]);
    assert_eq!(live.host.alarms(None, false).unwrap().len(), 1);
}

#[test]
fn an_edited_rule_and_a_new_plugin_are_in_the_next_batch_and_state_is_still_there() {
    let example = Example::new();
    let live = example.open();
    example.batches(&live);
    let first = live.host.status().unwrap().scenarios.remove(0);

    example.edit(RULE, ">= 50", ">= 70");
    let before = first.ruleset.unwrap();
    let view = example.until(&live, "the edited rule is active", |v| {
        v.pending.is_none() && v.active.as_ref().is_some_and(|a| a.ruleset.digest != before)
    });
    assert_eq!(view.rejected, None);
    example.minute(&live);
    let second = live.host.status().unwrap().scenarios.remove(0);
    assert_ne!(second.rules, first.rules);
    assert_eq!(second.last_batch.unwrap().ruleset, second.ruleset.unwrap());
    // 50 is a Warning now. 11:59 has another outcome than was reported, so it is reported again; 12:00 is new.
    let seen: Vec<Value> = results(&example, &live).into_iter().filter(|r| r["_batch_id"] == 2).collect();
    let lowered = |minute| row("34", 50, "Warning", "Threshold >= 10", minute, 2);
    assert_eq!(seen, [lowered("11:59"), warning("12:00", 2), lowered("12:00")]);
    let events = live.host.events(&[("netops/s1-syslog".to_owned(), BatchId(1))].into(), 100, 0).unwrap().events;
    assert_eq!(
        events.iter().map(|e| (e.change, e.alarm.severity)).collect::<Vec<_>>(),
        [(AlarmChange::Lowered, Severity::Warning)]
    );
    assert_eq!(events[0].ruleset, second.ruleset.unwrap());

    let plugin = second.plugin.unwrap();
    std::fs::copy(guest("s1_syslog+2.wasm"), example.store().join("netops/s1-syslog/plugins/s1_syslog.wasm")).unwrap();
    let before = second.ruleset.unwrap();
    example.until(&live, "the new plugin is active", |v| {
        v.pending.is_none() && v.active.as_ref().is_some_and(|a| a.ruleset.digest != before)
    });
    example.minute(&live);
    let third = live.host.status().unwrap().scenarios.remove(0);
    let swapped = third.plugin.unwrap();
    assert_ne!(swapped.digest, plugin.digest);
    assert_eq!(swapped.version, "0.1.0+2");
    // Its keyed state is still there: 12:00 is not reported again.
    let seen: Vec<Value> = results(&example, &live).into_iter().filter(|r| r["_batch_id"] == 3).collect();
    assert_eq!(seen, [warning("12:01", 3), row("34", 50, "Warning", "Threshold >= 10", "12:01", 3)]);
}

#[test]
fn a_replay_gives_the_same_rows_and_alarms_after_the_rule_was_changed() {
    let example = Example::new();
    let live = example.open();
    example.batches(&live);
    example.minute(&live);
    let key = RunKey::live(example.scenario());
    let record = live.built.ledger.record(&key, BatchId(2)).unwrap().unwrap();
    let before = record.plan.ruleset;
    example.edit(RULE, "Threshold >= 10", "Threshold of ten");
    example.until(&live, "the edited rule is active", |v| {
        v.pending.is_none() && v.active.as_ref().is_some_and(|a| a.ruleset.digest != before)
    });
    example.minute(&live);

    let side = live.host.side(&example.scenario(), record.plan.time, false).unwrap();
    assert_eq!((side.replayed, side.plan.ruleset), (Some(BatchId(2)), before));
    let sink = weir_model::SinkId { key, output: crate::support::fakes::name("s1_results") };
    let kept = live.built.ledger.outputs(&sink, Some(BatchId(1)), 1).unwrap();
    let digest = weir_pipeline::output::rows_digest(&kept[0].rows).unwrap();
    assert_eq!(side.output_digests[&sink.output], digest);
    assert_eq!(side.events, record.events);
    assert_eq!(side.raised, record.raised);

    // After a restart, and beyond the hot window, the rows come from the bronze table: the answer is the same.
    drop(live);
    example.clock.advance(Duration::from_secs(40 * 60));
    let live = example.open();
    example.batches(&live);
    let again = live.host.side(&example.scenario(), record.plan.time, false).unwrap();
    assert_eq!((again.output_digests, again.events), (side.output_digests, side.events));

    // Today's ruleset on the same T says it in the new words.
    let latest = live.host.side(&example.scenario(), record.plan.time, true).unwrap();
    let reasons: Vec<&Value> = latest.outputs[&sink.output].rows.iter().map(|r| &r["alarm_reason"]).collect();
    assert!(reasons.contains(&&json!("Threshold of ten")), "{reasons:?}");
    // A T that was never committed runs on empty state and says so.
    let other = "2026-01-31T11:50:00Z".parse().unwrap();
    let other = live.host.side(&example.scenario(), other, false).unwrap();
    assert_eq!((other.replayed, other.outputs[&sink.output].rows.len()), (None, 4));
}
