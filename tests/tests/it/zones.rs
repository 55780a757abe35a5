//! A tenant's display_timezone: what rules and people get, and that windows do not move with it.

use std::time::Duration;

use serde_json::{Value, json};
use weir_model::alarm::AlarmStatus;
use weir_model::service::Service;
use weir_model::{Clock, ScenarioId, Time};
use weir_pipeline::scenario::Step;

use crate::support::example::{Example, Live};

const RULE: &str = "netops/s2-linkdown/rules/2.json";
const MINUTE: Duration = Duration::from_secs(60);
/// A rule that answers every row that it gets, as text.
const ECHO: &str = "function handler(input) { return { alarms: input.anomaly_results.map((row) => ({ router_ip: JSON.stringify(row), \
                    local_device_name: row.local_device_name, high_count: 0, low_count: 0 })) }; }";

/// S1 without a plugin and S2 with a rule that tells what it gets, for a tenant in this zone. The clock stands at `at`.
fn example(zone: &str, at: &str) -> Example {
    let mut example = Example::some(&["s1-rule-only", "s2-linkdown"]);
    example.clock = weir_model::VirtualClock::new(at.parse().unwrap());
    example.edit("netops/tenant.toml", "[limits]", &format!("display_timezone = \"{zone}\"\n[limits]"));
    let mut rule: Value = serde_json::from_slice(&std::fs::read(example.store().join(RULE)).unwrap()).unwrap();
    rule["nodes"][1]["content"] = ECHO.into();
    example.write(RULE, rule.to_string().as_bytes());
    std::fs::remove_file(example.store().join("netops/s2-linkdown/rules/2.cases.json")).unwrap();
    example
}

fn ids() -> [ScenarioId; 2] {
    ["netops/s1-rule-only", "netops/s2-linkdown"].map(|id| id.parse().unwrap())
}

fn open(example: &Example) -> Live {
    let live = example.open();
    for id in ids() {
        example.wait_for(&live, &id, "it is active", |v| v.active.is_some());
    }
    live.host.reconcile().unwrap();
    live
}

/// Runs the batch of the minute that it is of each scenario.
fn batch(live: &Live) {
    for id in ids() {
        let step = live.host.step(&id).unwrap();
        assert!(matches!(step, Step::Committed(_)), "{id}: {step:?}");
        assert!(matches!(live.host.step(&id).unwrap(), Step::NotDue(_)));
    }
}

/// What rule 2 got of a device: T of the batch, and the times as they were handed over.
fn handed(example: &Example, live: &Live) -> Vec<(Time, String)> {
    let rows = example.rows(
        live,
        "select _batch_time, router_ip from s2_results where local_device_name = 'Router-A-1' order by 1, 2",
    );
    let row = |row: &Value| {
        let got: Value = serde_json::from_str(row["router_ip"].as_str().unwrap()).unwrap();
        (row["_batch_time"].as_str().unwrap().parse().unwrap(), got["minute_kst"].as_str().unwrap().to_owned())
    };
    rows.iter().map(row).collect()
}

#[test]
fn rules_get_the_minutes_of_seoul_and_so_do_messages() {
    let example = example("Asia/Seoul", "2026-01-31T12:00:30Z");
    let live = open(&example);
    batch(&live);
    assert_eq!(live.host.settle().unwrap(), Vec::new());
    // T is 12:00, or 21:00 there: a link went down at 20:55, and its third and fourth minute are judged.
    let noon: Time = "2026-01-31T12:00:00Z".parse().unwrap();
    let minutes = ["2026-01-31T20:57:00+09:00", "2026-01-31T20:58:00+09:00"].map(|m| (noon, m.to_owned()));
    assert_eq!(handed(&example, &live), minutes);
    let alarms = live.host.alarms(Some(&ids()[0]), false).unwrap();
    let mut messages: Vec<&str> = alarms.iter().map(|a| a.message.as_str()).collect();
    messages.sort_unstable();
    assert_eq!(
        messages,
        [
            "Edge-RouterA-033 (203.0.113.33): 10 lease errors in 2026-01-31T20:59:00+09:00, Warning: Threshold >= 10",
            "Edge-RouterA-034 (203.0.113.34): 50 lease errors in 2026-01-31T20:59:00+09:00, Critical: Threshold >= 50",
        ]
    );
    // Tables and programs are in UTC, whoever reads them.
    let rows = example.rows(&live, "select max(processing_time) as m from s1_rule_only_results");
    assert_eq!(rows, [json!({"m": "2026-01-31T11:59:00Z"})]);
}

/// Two hours around the change: each batch is of the minute after the one before, sees the minutes that it should, and an
/// hour that people have twice, or not at all, makes nothing come twice or be missed.
fn over_the_change(change: &str, before: i64, after: i64) {
    let change: Time = change.parse().unwrap();
    let first = change.minus(65 * MINUTE);
    let example = example("Europe/Berlin", &first.plus(MINUTE / 2).to_string());
    let live = open(&example);
    // By the rule alone: UTC and the hours that Berlin is ahead of it at that instant.
    let local = |at: Time| {
        let hours = if at < change { before } else { after };
        let shown = at.plus(Duration::from_secs(3_600 * hours.unsigned_abs())).to_string();
        (shown.trim_end_matches('Z').to_owned(), format!("+{hours:02}:00"))
    };
    let batches = 130;
    for n in 0..batches {
        let t = first.plus(n * MINUTE);
        assert_eq!(example.clock.now().floor(MINUTE, Duration::ZERO), t);
        batch(&live);
        let alarms = live.host.alarms(Some(&ids()[0]), false).unwrap();
        let (shown, offset) = local(t.minus(MINUTE));
        let at = format!(" lease errors in {shown}{offset},");
        assert!(alarms.len() == 2 && alarms.iter().all(|a| a.message.contains(&at)), "{t}: {at} {alarms:?}");
        example.clock.advance(MINUTE);
    }

    assert_eq!(live.host.settle().unwrap(), Vec::new());

    let got = handed(&example, &live);
    let mut expected = Vec::new();
    for n in 0..batches {
        let t = first.plus(n * MINUTE);
        for minute in [t.minus(3 * MINUTE), t.minus(2 * MINUTE)] {
            let (shown, offset) = local(minute);
            expected.push((t, format!("{shown}{offset}")));
        }
    }
    // As texts they are in another order where an hour comes twice.
    let sorted = |mut all: Vec<(Time, String)>| {
        all.sort();
        all
    };
    assert_eq!(sorted(got.clone()), sorted(expected));
    let instants: std::collections::BTreeSet<Time> = got.iter().map(|(_, text)| text.parse().unwrap()).collect();
    let instants: Vec<Time> = instants.into_iter().collect();
    assert!(instants.windows(2).all(|w| w[1] == w[0].plus(MINUTE)), "no minute is missing");
    assert_eq!(instants.len(), batches as usize + 1);

    let sql = "select processing_time as m, error_count as n from s1_rule_only_results where router_ip = '203.0.113.34' \
               order by 1";
    let rows = example.rows(&live, sql);
    let minutes: Vec<Time> = rows.iter().map(|r| r["m"].as_str().unwrap().parse().unwrap()).collect();
    // The first batch sees two minutes, each later one the next.
    let expected: Vec<Time> = (0..=batches).map(|n| first.minus(2 * MINUTE).plus(n * MINUTE)).collect();
    assert_eq!(minutes, expected, "each minute is reported once");
    assert!(rows.iter().all(|r| r["n"] == 50), "{rows:?}");
    let events = example.rows(&live, "select change from alarm_events where _scenario = 'netops/s1-rule-only'");
    assert_eq!(events, [json!({"change": "opened"}), json!({"change": "opened"})]);
    let alarms = live.host.alarms(Some(&ids()[0]), true).unwrap();
    assert!(alarms.iter().all(|a| a.status == AlarmStatus::Open && a.count == u64::from(batches)), "{alarms:?}");
}

#[test]
fn the_hour_that_comes_twice_in_october_is_two_hours_of_batches() {
    over_the_change("2026-10-25T01:00:00Z", 2, 1);
}

#[test]
fn the_hour_that_is_left_out_in_march_is_no_gap() {
    over_the_change("2026-03-29T01:00:00Z", 1, 2);
}
