//! S2 from source to Delta alarm: the spec's starter data, the injector's, and what nulls and missing rows come to.

use serde_json::{Value, json};
use weir_model::alarm::{AlarmChange, AlarmStatus};
use weir_model::port::Ledger;
use weir_model::service::Service;
use weir_model::{BatchId, RunKey, Severity, SinkId, Time};

use crate::support::example::{Example, Live};
use crate::support::feed;

const RULE: &str = "netops/s2-linkdown/rules/2.json";
const TOPOLOGY: &str = "netops/s2-linkdown/tables/s2_device_link_topology.csv";

/// Device, counts and batch of what was reported.
fn results(example: &Example, live: &Live) -> Vec<(String, i64, i64, i64)> {
    let rows = example.rows(
        live,
        "select local_device_name, high_count, low_count, _batch_id, router_ip, created_at = _batch_time as stamped \
         from s2_results order by _batch_id, router_ip, local_device_name",
    );
    rows.iter()
        .map(|row| {
            assert_eq!((&row["router_ip"], &row["stamped"]), (&json!("203.0.113.90"), &json!(true)), "{row}");
            let number = |name: &str| row[name].as_i64().unwrap();
            let device = row["local_device_name"].as_str().unwrap().to_owned();
            (device, number("high_count"), number("low_count"), number("_batch_id"))
        })
        .collect()
}

fn row(device: &str, high: i64, low: i64, batch: i64) -> (String, i64, i64, i64) {
    (format!("Router-A-{device}"), high, low, batch)
}

#[test]
fn starter_data_gives_one_device_above_and_one_below_in_each_batch() {
    let example = Example::of("s2-linkdown");
    let live = example.open();
    assert_eq!(example.batches(&live), 1, "a quarter of an hour of history is there");
    for _ in 0..3 {
        assert_eq!(example.minute(&live), 1);
    }
    let expected: Vec<_> = (1..=4).flat_map(|batch| [row("1", 2, 0, batch), row("3", 0, 2, batch)]).collect();
    assert_eq!(results(&example, &live), expected);

    let types = "select distinct arrow_typeof(high_count) as high, arrow_typeof(low_count) as low from s2_results";
    assert_eq!(example.rows(&live, types), [json!({"high": "Int32", "low": "Int32"})]);

    let alarms = live.host.alarms(None, false).unwrap();
    let seen: Vec<_> = alarms.iter().map(|a| (a.key[1].as_str(), a.status, a.severity, a.count)).collect();
    let open = |device| (device, AlarmStatus::Open, Severity::Major, 4);
    assert_eq!(seen, [open("Router-A-1"), open("Router-A-3")]);
    assert_eq!(
        alarms[0].message,
        "Router-A-1 (203.0.113.90): traffic above the forecast in 2 minutes after a link went down at 11:58 UTC"
    );
    let events = live.host.events(&Default::default(), 100, 0).unwrap().events;
    assert_eq!(events.iter().map(|e| e.change).collect::<Vec<_>>(), [AlarmChange::Opened; 2]);
    assert!(events.iter().all(|e| e.because.len() == 2), "the two minutes of the device");
}

#[test]
fn a_replay_gives_the_same_rows_down_to_the_rules_stamp() {
    let example = Example::of("s2-linkdown");
    let live = example.open();
    example.batches(&live);
    example.minute(&live);
    let key = RunKey::live(example.scenario());
    let record = live.built.ledger.record(&key, BatchId(2)).unwrap().unwrap();
    let output = crate::support::fakes::name("s2_results");
    let kept = live.built.ledger.outputs(&SinkId { key, output: output.clone() }, Some(BatchId(1)), 1).unwrap();
    let digest = weir_pipeline::output::rows_digest(&kept[0].rows).unwrap();
    let side = live.host.side(&example.scenario(), record.plan.time, false).unwrap();
    assert_eq!((side.replayed, side.outputs[&output].rows.len()), (Some(BatchId(2)), 2));
    assert_eq!((side.output_digests[&output], side.events), (digest, record.events));
    // a T between two batches: its own minute, stamped with it
    let at: Time = "2026-01-31T12:01:17Z".parse().unwrap();
    let other = live.host.side(&example.scenario(), at, false).unwrap();
    let stamps: Vec<&Value> = other.outputs[&output].rows.iter().map(|r| &r["created_at"]).collect();
    assert_eq!((other.replayed, stamps), (None, vec![&json!("2026-01-31T12:01:17Z"); 2]));
}

#[test]
fn the_injector_gives_four_alarms_a_batch() {
    let example = Example::of("s2-linkdown");
    example.inject("s2_snmp_interface_traffic.toml");
    let live = example.open();
    assert_eq!(example.batches(&live) + example.minute(&live), 2);
    let expected: Vec<_> =
        (1..=2).flat_map(|batch| ["1", "2", "3", "4"].map(|device| row(device, 2, 0, batch))).collect();
    assert_eq!(results(&example, &live), expected);
    assert_eq!(live.host.alarms(None, false).unwrap().len(), 4);
}

#[test]
fn an_edited_rule_is_in_the_next_batch_and_what_is_no_longer_alarming_is_cleared() {
    let example = Example::of("s2-linkdown");
    let live = example.open();
    example.batches(&live);
    let before = live.host.status().unwrap().scenarios[0].ruleset.unwrap();
    let text = std::fs::read_to_string(example.store().join(RULE)).unwrap();
    example.write(RULE, text.replace("d.low_count >= 2", "d.low_count >= 3").as_bytes());
    // the sample cases say what the rule was meant to do
    let view = example.until(&live, "the edit is refused", |v| v.rejected.is_some());
    assert!(view.rejected.unwrap().reason.contains("two minutes below it too"));
    std::fs::remove_file(example.store().join("netops/s2-linkdown/rules/2.cases.json")).unwrap();
    example.until(&live, "the edit is active", |v| v.active.as_ref().is_some_and(|a| a.ruleset.digest != before));
    for _ in 0..5 {
        example.minute(&live);
    }
    let mut expected: Vec<_> = (1..=6).map(|batch| row("1", 2, 0, batch)).collect();
    expected.insert(1, row("3", 0, 2, 1));
    assert_eq!(results(&example, &live), expected);
    let alarms = live.host.alarms(None, true).unwrap();
    let seen: Vec<_> = alarms.iter().map(|a| (a.key[1].as_str(), a.status)).collect();
    assert_eq!(seen, [("Router-A-1", AlarmStatus::Open), ("Router-A-3", AlarmStatus::Cleared)], "five quiet batches");
}

/// One link of each kind down in the minute that the batch of 12:00 looks at, and devices that each show one thing, with
/// what rule 2 must get of them: (link type, device, interface, Gbps by minute as bytes / 7.5e9, bounds, flag).
fn edges(example: &Example) {
    feed::stream(
        example,
        "s2_snmp_linkdown_events",
        "event_at, router_ip, link_type",
        "('2026-01-31T11:54:59.999999Z', '203.0.113.94', 'CORE-METRO'), \
         ('2026-01-31T11:55:00Z', '203.0.113.90', 'CORE-METRO'), \
         ('2026-01-31T11:55:20Z', '203.0.113.90', 'CORE-METRO'), \
         ('2026-01-31T11:55:30Z', '203.0.113.90', 'CORE-CORE'), \
         ('2026-01-31T11:55:40Z', NULL, 'CORE-METRO'), \
         ('2026-01-31T11:55:50Z', '203.0.113.90', NULL), \
         ('2026-01-31T11:55:59.999999Z', '203.0.113.91', 'CORE-EDGE'), \
         ('2026-01-31T11:55:59.999999Z', '203.0.113.92', 'CORE-EDGE'), \
         ('2026-01-31T11:55:59.999999Z', '203.0.113.93', 'CORE-EDGE'), \
         ('2026-01-31T11:56:00Z', '203.0.113.95', 'CORE-METRO')",
    );
    let metro = |device, interface| ["CORE-METRO", device, "203.0.113.90", interface, ""];
    let edge = |router, device, interface| ["CORE-EDGE", device, router, interface, ""];
    feed::topology(
        example,
        TOPOLOGY,
        &[
            metro("both-without", "1/1"),
            metro("topology-with", "1/2.0"),
            metro("traffic-with", "1/3"),
            // a device on two interfaces, of which one is listed twice and counts twice
            metro("two", "1/4"),
            metro("two", "1/5"),
            metro("two", "1/5.0"),
            metro("no-traffic", "1/6"),
            metro("null-bytes", "1/7"),
            metro("", "1/8"),
            metro("no-interface", ""),
            metro("at-the-bound", "1/9"),
            ["CORE-EDGE", "another-kind", "203.0.113.90", "1/1", ""],
            edge("203.0.113.91", "exact", "2/1"),
            edge("203.0.113.91", "exact-with", "2/2.0"),
            edge("203.0.113.92", "no-forecast", "2/1"),
            edge("203.0.113.92", "no-forecast-too-much", "2/2"),
            edge("203.0.113.92", "neither", "2/3"),
            edge("203.0.113.93", "null-bounds", "2/1"),
        ],
    );
    feed::stream(
        example,
        "s2_snmp_interface_traffic",
        "collected_at, router_ip, if_name, rx_bytes",
        // 7,500,000,000 bytes are 1 Gbps over a minute
        "('2026-01-31T11:56:59.999999Z', '203.0.113.90', '1/1', 1), \
         ('2026-01-31T11:57:00Z', '203.0.113.90', '1/1', 375000000000), \
         ('2026-01-31T11:57:59.999999Z', '203.0.113.90', '1/1', 2500000000), \
         ('2026-01-31T11:59:00Z', '203.0.113.90', '1/1', 1), \
         ('2026-01-31T11:58:10Z', '203.0.113.90', '1/2', 487500000000), \
         ('2026-01-31T11:58:10Z', '203.0.113.90', '1/3.0', 225000000000), \
         ('2026-01-31T11:58:10Z', '203.0.113.90', '1/3.0.0', 225000000000), \
         ('2026-01-31T11:58:10Z', '203.0.113.90', '1/4', 225000000000), \
         ('2026-01-31T11:58:20Z', '203.0.113.90', '1/5', 225000000000), \
         ('2026-01-31T11:58:10Z', '203.0.113.90', '1/7', NULL), \
         ('2026-01-31T11:58:20Z', '203.0.113.90', '1/7', 300000000000), \
         ('2026-01-31T11:57:20Z', '203.0.113.90', '1/7', NULL), \
         ('2026-01-31T11:58:20Z', '203.0.113.90', NULL, 1), \
         ('2026-01-31T11:58:20Z', NULL, '1/9', 1), \
         ('2026-01-31T11:58:20Z', '203.0.113.90', '1/9', 450000000000), \
         ('2026-01-31T11:57:20Z', '203.0.113.90', '1/9', 300000000000), \
         ('2026-01-31T11:57:10Z', '203.0.113.91', '2/1.0', 1), \
         ('2026-01-31T11:57:10Z', '203.0.113.91', '2/2', 1), \
         ('2026-01-31T11:58:10Z', '203.0.113.91', '2/1', 375000000000), \
         ('2026-01-31T11:58:10Z', '203.0.113.91', '2/2.0', 450000750000), \
         ('2026-01-31T11:58:10Z', '203.0.113.92', '2/1', 7500000000000), \
         ('2026-01-31T11:58:10Z', '203.0.113.92', '2/2', 7500000000000000), \
         ('2026-01-31T11:58:10Z', '203.0.113.93', '2/1', 0)",
    );
    feed::stream(
        example,
        "s2_traffic_forecast",
        "ds, router_ip, link_type, yhat_lower, yhat_upper, phase",
        "('2026-01-31T11:56:59Z', '203.0.113.90', 'CORE-METRO', 0, 0, 'x'), \
         ('2026-01-31T11:57:00Z', '203.0.113.90', 'CORE-METRO', 20, 50, 'b'), \
         ('2026-01-31T11:57:30Z', '203.0.113.90', 'CORE-METRO', 60, 70, 'a'), \
         ('2026-01-31T11:57:40Z', '203.0.113.90', 'CORE-METRO', NULL, NULL, NULL), \
         ('2026-01-31T11:57:50Z', '203.0.113.90', 'CORE-CORE', 0, 0, 'x'), \
         ('2026-01-31T11:58:00Z', '203.0.113.90', 'CORE-METRO', 40, 60, NULL), \
         ('2026-01-31T11:58:00Z', '203.0.113.91', 'CORE-EDGE', 40, 60, 'c'), \
         ('2026-01-31T11:58:00Z', '203.0.113.93', 'CORE-EDGE', NULL, NULL, NULL), \
         ('2026-01-31T11:59:00Z', '203.0.113.90', 'CORE-METRO', 0, 0, 'x')",
    );
}

/// What rule 2 must get for [`edges`], by the spec. Minute, router and kind of link of each part: its devices.
fn expected() -> Vec<Value> {
    let mut rows = Vec::new();
    let mut part = |minute: &str, router: &str, kind: &str, phase: &str, devices: &[(&str, f64, f64, f64, &str)]| {
        for (device, gbps, lower, upper, flag) in devices {
            rows.push(json!({
                "minute_kst": format!("2026-01-31T11:{minute}:00Z"), "router_ip": format!("203.0.113.{router}"),
                "local_device_name": device, "link_type": kind, "actual_gbps": gbps, "yhat_lower_gbps": lower,
                "yhat_upper_gbps": upper, "anomaly_flag": flag, "phase": phase,
            }));
        }
    };
    // (20 + 60) / 2 and (50 + 70) / 2: a row without bounds does not count; phase is the largest
    part(
        "57",
        "90",
        "CORE-METRO",
        "b",
        &[
            ("at-the-bound", 40.0, 40.0, 60.0, "normal"),
            // 377.5e9 * 8 / 60e9 = 50.333
            ("both-without", 50.33, 40.0, 60.0, "normal"),
            ("no-interface", 0.0, 40.0, 60.0, "low_anomaly"),
            ("no-traffic", 0.0, 40.0, 60.0, "low_anomaly"),
            ("null-bytes", 0.0, 40.0, 60.0, "low_anomaly"),
            ("topology-with", 0.0, 40.0, 60.0, "low_anomaly"),
            ("traffic-with", 0.0, 40.0, 60.0, "low_anomaly"),
            ("two", 0.0, 40.0, 60.0, "low_anomaly"),
        ],
    );
    part(
        "58",
        "90",
        "CORE-METRO",
        "unknown",
        &[
            ("at-the-bound", 60.0, 40.0, 60.0, "normal"),
            ("both-without", 0.0, 40.0, 60.0, "low_anomaly"),
            ("no-interface", 0.0, 40.0, 60.0, "low_anomaly"),
            ("no-traffic", 0.0, 40.0, 60.0, "low_anomaly"),
            ("null-bytes", 40.0, 40.0, 60.0, "normal"),
            ("topology-with", 65.0, 40.0, 60.0, "high_anomaly"),
            ("traffic-with", 30.0, 40.0, 60.0, "low_anomaly"),
            ("two", 90.0, 40.0, 60.0, "high_anomaly"),
        ],
    );
    // the forecast has no minute 57, and the traffic of that minute is not of these interfaces
    part(
        "58",
        "91",
        "CORE-EDGE",
        "c",
        // 450.00075e9 bytes are 60.0001 Gbps: above, though it is shown as 60
        &[("exact", 50.0, 40.0, 60.0, "normal"), ("exact-with", 60.0, 40.0, 60.0, "high_anomaly")],
    );
    // without a bound 999999 and -999999 are the bounds, and the rule gets 0
    part(
        "58",
        "92",
        "CORE-EDGE",
        "unknown",
        &[("no-forecast", 1000.0, 0.0, 0.0, "normal"), ("no-forecast-too-much", 1_000_000.0, 0.0, 0.0, "high_anomaly")],
    );
    part("58", "93", "CORE-EDGE", "unknown", &[("null-bounds", 0.0, 0.0, 0.0, "normal")]);
    rows
}

/// A rule that answers every row that it gets, as text.
const ECHO: &str = "function handler(input) { return { alarms: input.anomaly_results.map((row) => ({ router_ip: JSON.stringify(row), \
                    local_device_name: row.local_device_name, high_count: 0, low_count: 0 })) }; }";

#[test]
fn rule_2_gets_every_minute_that_traffic_or_forecast_has_with_nulls_as_the_spec_says() {
    let example = Example::of("s2-linkdown");
    edges(&example);
    let mut rule: Value = serde_json::from_slice(&std::fs::read(example.store().join(RULE)).unwrap()).unwrap();
    rule["nodes"][1]["content"] = ECHO.into();
    example.write(RULE, rule.to_string().as_bytes());
    std::fs::remove_file(example.store().join("netops/s2-linkdown/rules/2.cases.json")).unwrap();
    let live = example.open();
    assert_eq!(example.batches(&live), 1);

    let key = |row: &Value| ["minute_kst", "router_ip", "local_device_name"].map(|name| row[name].to_string());
    let rows = example.rows(&live, "select router_ip from s2_results");
    let mut got: Vec<Value> =
        rows.iter().map(|row| serde_json::from_str(row["router_ip"].as_str().unwrap()).unwrap()).collect();
    // numbers as numbers: 40 and 40.0 are one to JSON's readers
    for row in &mut got {
        for name in ["actual_gbps", "yhat_lower_gbps", "yhat_upper_gbps"] {
            row[name] = row[name].as_f64().unwrap().into();
        }
    }
    got.sort_by_key(key);
    let mut expected = expected();
    expected.sort_by_key(key);
    assert_eq!(got, expected);
    let names: Vec<&String> = got[0].as_object().unwrap().keys().collect();
    assert_eq!(names.len(), 9, "{names:?}");
}

#[test]
fn the_same_rows_alarm_where_both_minutes_leave_the_forecast() {
    let example = Example::of("s2-linkdown");
    edges(&example);
    let live = example.open();
    assert_eq!(example.batches(&live), 1);
    let rows = example.rows(&live, "select local_device_name, high_count, low_count from s2_results order by 1");
    let seen: Vec<_> = rows
        .iter()
        .map(|r| {
            (
                r["local_device_name"].as_str().unwrap(),
                r["high_count"].as_i64().unwrap(),
                r["low_count"].as_i64().unwrap(),
            )
        })
        .collect();
    assert_eq!(seen, [("no-interface", 0, 2), ("no-traffic", 0, 2), ("traffic-with", 0, 2)]);

    // nothing went down in 11:56 but a link of a router that the topology does not have, and nothing at all later
    example.minute(&live);
    example.minute(&live);
    assert_eq!(example.rows(&live, "select * from s2_results").len(), 3);
    let dead = example.rows(&live, "select count(*) as n from s2_snmp_linkdown_events");
    assert_eq!(dead[0]["n"], 10, "no row was put aside");
}
