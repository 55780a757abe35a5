//! S3 over its starter data: an OLT that keeps an alarm, two routers that serve it, and multicast traffic that grows
//! tenfold each minute and starts again after ten.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use s3_iptv::S3Iptv;
use serde_json::{Value, json};
use weir_sdk::testkit::{Kit, Report, Rows};
use weir_sdk::{Action, DataError, Fault, Kind::*, MINUTE, Severity, Time, Verdict};

const OLT: &str = "192.0.2.23";
const OTHER: &str = "192.0.2.24";
/// The routers that serve the OLT, and their interfaces.
const B211: (&str, &str) = ("198.51.100.211", "9/2/1");
const B212: (&str, &str) = ("198.51.100.212", "9/1/1");

fn at(minute: &str) -> Time {
    format!("2026-11-30T{minute}").parse().unwrap()
}
fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// OLT events, and the packets of an interface in a minute, as its second 10 reports them.
#[derive(Clone, Default)]
struct Network(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    /// When, OLT, rule, status.
    events: Vec<(Time, &'static str, &'static str, &'static str)>,
    traffic: BTreeMap<(&'static str, &'static str), BTreeMap<Time, i64>>,
    /// Interfaces behind an OLT.
    serving: BTreeMap<&'static str, Vec<(&'static str, &'static str)>>,
}

impl Network {
    fn event(&self, time: &str, olt: &'static str, rule: &'static str, status: &'static str) {
        self.0.borrow_mut().events.push((at(time), olt, rule, status));
    }
    fn traffic(&self, interface: (&'static str, &'static str), minute: Time, packets: i64) {
        self.0.borrow_mut().traffic.entry(interface).or_default().insert(minute, packets);
    }
    /// Minutes from 12:00 on with an OLT alarm and traffic each.
    fn minutes(&self, count: u32, packets: impl Fn(u32) -> i64) {
        for minute in 0..count {
            let time = at("12:00") + MINUTE * minute;
            self.0.borrow_mut().events.push((time + seconds(5), OLT, "R822", "1"));
            self.traffic(B211, time, packets(minute));
            self.traffic(B212, time, packets(minute));
        }
    }
    /// Minute m of the hour has 1000 * 10^(m mod 10) packets.
    fn starter(&self, count: u32) {
        self.minutes(count, |minute| 1000 * 10_i64.pow(minute % 10));
    }
    fn mean(&self, interface: (&'static str, &'static str), from: Time, to: Time) -> Option<f64> {
        let state = self.0.borrow();
        let minutes = state.traffic.get(&interface)?;
        let packets: Vec<f64> = minutes.range(from..to).map(|(_, packets)| *packets as f64).collect();
        (!packets.is_empty()).then(|| packets.iter().sum::<f64>() / packets.len() as f64)
    }
}

/// A kit whose rule 3-1 answers what the cell holds.
fn kit(config: &str) -> (Kit<S3Iptv>, Network, Rc<Cell<i64>>) {
    let (mut kit, network, n) = (Kit::new(config), Network::default(), Rc::new(Cell::new(3)));
    network.0.borrow_mut().serving.insert(OLT, vec![B211, B212]);
    let interval = n.clone();
    kit.rule("3-1", move |_| Ok(json!({"interval": interval.get()})));
    kit.rule("3-2", judge);

    let seen = network.clone();
    kit.query("persisting_alarms", move |call| {
        let (from, since, to) = (call.time("from"), call.time("since"), call.time("to"));
        assert_eq!((from + MINUTE, to.floor_minute()), (since, to));
        let state = seen.0.borrow();
        let cleared = |olt: &str, rule: &str| {
            state.events.iter().any(|(t, o, r, s)| (*o, *r, *s) == (olt, rule, "0") && since <= *t && *t < to)
        };
        let mut found: Vec<_> = state
            .events
            .iter()
            .filter(|(t, olt, rule, status)| *status != "0" && from <= *t && *t < since && !cleared(olt, rule))
            .map(|(_, olt, rule, _)| (*olt, *rule))
            .collect();
        found.sort_unstable();
        found.dedup();
        Ok(Rows::new()
            .column("olt_ip", Text, found.iter().map(|f| f.0))
            .column("rule_id", Text, found.iter().map(|f| f.1))
            .column("received_at", Timestamp, found.iter().map(|_| from)))
    });
    let seen = network.clone();
    kit.query("cleared_alarms", move |call| {
        let (from, to) = (call.time("from"), call.time("to"));
        let state = seen.0.borrow();
        let found = state.events.iter().filter(|(t, .., status)| *status == "0" && from <= *t && *t < to);
        let found: Vec<_> = found.collect();
        Ok(Rows::new().column("olt_ip", Text, found.iter().map(|f| f.1)).column(
            "rule_id",
            Text,
            found.iter().map(|f| f.2),
        ))
    });
    let seen = network.clone();
    kit.query("service_interfaces", move |call| {
        let olts = call.rows("olts").to_json();
        let state = seen.0.borrow();
        let mut rows = Vec::new();
        for olt in &olts {
            let text = |name: &str| olt[name].as_str().unwrap().to_owned();
            for interface in state.serving.get(text("olt_ip").as_str()).into_iter().flatten() {
                rows.push((*interface, text("olt_ip"), text("rule_id")));
            }
        }
        rows.sort();
        Ok(Rows::new()
            .column("olt_ip", Text, rows.iter().map(|r| r.1.as_str()))
            .column("rule_id", Text, rows.iter().map(|r| r.2.as_str()))
            .column("ser_equip_ip", Text, rows.iter().map(|r| r.0.0))
            .column("ser_phys_if_nm", Text, rows.iter().map(|r| r.0.1)))
    });
    let seen = network.clone();
    kit.query("multicast_traffic", move |call| {
        let (from, since, to) = (call.time("from"), call.time("since"), call.time("to"));
        assert_eq!(since + MINUTE, to);
        let asked = call.rows("interfaces").to_json();
        let is_asked = |i: &(&str, &str)| asked.iter().any(|r| r["ser_equip_ip"] == i.0 && r["ser_phys_if_nm"] == i.1);
        let nodes: Vec<_> = [B211, B212].into_iter().filter(is_asked).collect();
        let rows: Vec<_> = nodes.iter().map(|i| (*i, seen.mean(*i, since, to), seen.mean(*i, from, since))).collect();
        let ratio = |last: Option<f64>, before: Option<f64>| {
            let before = before.filter(|b| *b != 0.0)?;
            Some((last? - before) / before)
        };
        Ok(Rows::new()
            .column("ser_equip_ip", Text, rows.iter().map(|r| r.0.0))
            .column("ser_phys_if_nm", Text, rows.iter().map(|r| r.0.1))
            .column("last_collected_at", Timestamp, rows.iter().map(|r| r.1.map(|_| since + seconds(10))))
            .column("last_1m_tx_multicast_pkts", Float64, rows.iter().map(|r| r.1))
            .column("avg_3nm_tx_multicast_pkts", Float64, rows.iter().map(|r| r.2))
            .column("diff_ratio", Float64, rows.iter().map(|r| ratio(r.1, r.2))))
    });
    (kit, network, n)
}

/// The starter rule 3-2.
fn judge(input: &Value) -> Result<Value, String> {
    let names: Vec<&String> = input.as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        [
            "ser_equip_ip",
            "ser_phys_if_nm",
            "last_collected_at",
            "last_1m_tx_multicast_pkts",
            "avg_3nm_tx_multicast_pkts",
            "diff_ratio"
        ]
    );
    // in JavaScript Number(null) is 0
    Ok(json!({"is_alarm": input["diff_ratio"].as_f64().unwrap_or(0.0) >= 0.2}))
}

fn run(kit: &mut Kit<S3Iptv>, minute: Time) -> Report {
    kit.run(&minute.to_string()).unwrap()
}

/// Router and ratio of what was reported.
fn reported(report: &Report) -> Vec<(&str, f64)> {
    let rows = report.rows("s3_results").iter();
    rows.map(|row| (row["ser_equip_ip"].as_str().unwrap(), row["diff_ratio"].as_f64().unwrap())).collect()
}

/// Router and severity of each alarm, no severity for a clear.
fn alarms(report: &Report) -> Vec<(&str, Option<Severity>)> {
    let alarms = report.alarms.iter();
    alarms
        .map(|alarm| match alarm.action {
            Action::Raise(severity) => (alarm.key[0].as_str(), Some(severity)),
            Action::Clear => (alarm.key[0].as_str(), None),
        })
        .collect()
}

const MAJOR: Option<Severity> = Some(Severity::Major);
const RAISED: [(&str, Option<Severity>); 2] = [(B211.0, MAJOR), (B212.0, MAJOR)];

fn close(a: f64, b: f64, within: f64) -> bool {
    (a - b).abs() <= within
}

#[test]
fn the_starter_data_gives_one_alarm_per_interface_in_ten_minutes() {
    let (mut kit, network, _) = kit("{}");
    network.starter(40);
    let mut seen = Vec::new();
    for minute in 20..40 {
        let report = run(&mut kit, at("12:00") + MINUTE * minute);
        assert_eq!(report.verdict, Verdict::Judged);
        for row in report.rows("s3_results") {
            assert_eq!(
                (&row["last_1m_val"], &row["avg_3nm_val"]),
                (&json!(1_000_000_000_000_i64), &json!(12_345_679_000.0))
            );
            // (1e12 - 12345679000) / 12345679000
            assert!(close(row["diff_ratio"].as_f64().unwrap(), 80.000_000_081, 1e-9), "{row}");
            seen.push((minute, row["ser_equip_ip"].clone(), row["ser_phys_if_nm"].clone()));
        }
    }
    // the minute with 10^9 is compared three minutes later
    let expected: Vec<_> = [22, 32]
        .into_iter()
        .flat_map(|m| [B211, B212].map(|(node, interface)| (m, json!(node), json!(interface))))
        .collect();
    assert_eq!(seen, expected);
}

#[test]
fn with_an_interval_of_two_it_is_four_minutes_of_ten() {
    let (mut kit, network, n) = kit("{}");
    network.starter(40);
    run(&mut kit, at("12:20"));
    n.set(2);
    let mut seen = Vec::new();
    for minute in 21..31 {
        let report = run(&mut kit, at("12:00") + MINUTE * minute);
        let rows = reported(&report);
        assert!(rows.iter().all(|(_, ratio)| close(*ratio, 53.000_054, 1e-6)), "{rows:?}");
        seen.extend(rows.iter().map(|(node, _)| (minute, (*node).to_owned())));
    }
    // of the minutes 6, 7, 8 and 9, two minutes later
    let expected: Vec<_> =
        [28, 29, 30].into_iter().chain([21]).flat_map(|m| [(m, B211.0.to_owned()), (m, B212.0.to_owned())]).collect();
    let mut expected = expected;
    expected.sort();
    assert_eq!(seen, expected);
}

#[test]
fn the_injector_gives_four_warm_and_one_and_a_half_while_warming_up() {
    let spike = |minute: u32| if minute.is_multiple_of(5) { 1000 } else { 100 };
    let (mut kit, network, _) = kit("{}");
    network.minutes(30, spike);
    let report = run(&mut kit, at("12:23"));
    assert_eq!(reported(&report), [(B211.0, 4.0), (B212.0, 4.0)]);
    assert_eq!(report.rows("s3_results")[0]["last_1m_val"], 1000);
    assert_eq!(report.rows("s3_results")[0]["avg_3nm_val"], 200.0);
    assert_eq!(alarms(&report), RAISED);
    assert!(reported(&run(&mut kit, at("12:24"))).is_empty());

    // three minutes of the baseline are there, the spike among them
    let (mut kit, network, _) = self::kit("{}");
    network.minutes(30, spike);
    let mut state = network.0.borrow_mut();
    for minutes in state.traffic.values_mut() {
        minutes.retain(|minute, _| *minute >= at("12:15") && ![at("12:18"), at("12:19")].contains(minute));
    }
    drop(state);
    let report = run(&mut kit, at("12:23"));
    assert_eq!(reported(&report), [(B211.0, 1.5), (B212.0, 1.5)]);
    assert_eq!(report.rows("s3_results")[0]["avg_3nm_val"], 400.0);
}

#[test]
fn a_clearing_event_cancels_and_only_of_the_same_rule() {
    let (mut kit, network, _) = kit("{}");
    network.starter(40);
    network.event("12:20:30", OLT, "R001", "0");
    assert_eq!(reported(&run(&mut kit, at("12:22"))).len(), 2, "another rule of the OLT was cleared");
    network.event("12:30:30", OLT, "R822", "0");
    assert!(reported(&run(&mut kit, at("12:32"))).is_empty());
}

#[test]
fn an_alarm_is_cleared_when_all_that_led_to_it_is_cleared() {
    let (mut kit, network, _) = kit("{}");
    network.minutes(22, |minute| 1000 * 10_i64.pow(minute % 10));
    network.0.borrow_mut().serving.insert(OTHER, vec![B212]);
    network.event("12:18:40", OTHER, "R001", "2");
    let raised = run(&mut kit, at("12:22"));
    assert_eq!(alarms(&raised), RAISED);
    assert_eq!(
        raised.alarms[1].message,
        "198.51.100.212 9/1/1: 1000000000000 multicast packets a minute, 12345679000 on average before; \
         behind OLT 192.0.2.23 (R822), OLT 192.0.2.24 (R001)"
    );
    assert_eq!(raised.alarms[1].because.len(), 3, "the traffic, and both ways that led there");

    network.event("12:22:10", OLT, "R822", "0");
    let report = run(&mut kit, at("12:23"));
    assert_eq!(alarms(&report), [(B211.0, None)], "the other one has a cause left");
    assert_eq!(alarms(&run(&mut kit, at("12:24"))), []);

    network.event("12:24:10", OTHER, "R001", "0");
    assert_eq!(alarms(&run(&mut kit, at("12:25"))), [(B212.0, None)]);
    assert!(!kit.state().keys().any(|key| key.starts_with("open/")), "{:?}", kit.state());
    assert_eq!(alarms(&run(&mut kit, at("12:26"))), []);
}

#[test]
fn what_has_no_baseline_or_no_traffic_has_no_ratio_and_no_alarm() {
    let (mut kit, network, _) = kit("{}");
    network.minutes(30, |minute| if minute < 20 { 0 } else { 500 });
    let zero = run(&mut kit, at("12:23"));
    assert_eq!((zero.verdict, reported(&zero), alarms(&zero)), (Verdict::Judged, vec![], vec![]));

    network.0.borrow_mut().traffic.remove(&B211);
    let none = run(&mut kit, at("12:24"));
    assert_eq!((none.verdict, reported(&none)), (Verdict::Judged, vec![(B212.0, 8.0)]));
}

#[test]
fn a_rule_that_alarms_without_a_ratio_is_reported_as_it_says() {
    let (mut kit, network, _) = kit("{}");
    network.minutes(30, |_| 7);
    network.0.borrow_mut().traffic.remove(&B211);
    kit.rule("3-2", |input| Ok(json!({"is_alarm": input["last_collected_at"].is_null(), "severity": "Critical"})));
    let report = run(&mut kit, at("12:23"));
    let row = &report.rows("s3_results")[0];
    assert_eq!(
        (&row["diff_ratio"], &row["last_1m_val"], &row["avg_3nm_val"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert_eq!(alarms(&report), [(B211.0, Some(Severity::Critical))]);
    assert_eq!(
        report.alarms[0].message,
        "198.51.100.211 9/2/1: no multicast packets a minute, no on average before; behind OLT 192.0.2.23 (R822)"
    );
}

#[test]
fn an_interface_is_reported_once_a_minute_and_with_repeat_in_every_batch() {
    let (mut kit, network, _) = kit("{}");
    network.starter(40);
    let first = kit.run("2026-11-30T12:22:00Z").unwrap();
    assert_eq!(reported(&first).len(), 2);
    let second = kit.run("2026-11-30T12:22:10Z").unwrap();
    assert_eq!((reported(&second), alarms(&second)), (vec![], alarms(&first)));
    kit.rule("3-2", |input| judge(input).map(|v| json!({"is_alarm": v["is_alarm"], "severity": "minor"})));
    assert_eq!(reported(&kit.run("2026-11-30T12:22:20Z").unwrap()).len(), 2, "another severity is another outcome");
    kit.configure(r#"{"repeat": true}"#);
    assert_eq!(reported(&kit.run("2026-11-30T12:22:30Z").unwrap()).len(), 2);
}

#[test]
fn an_interface_that_cannot_be_judged_is_put_aside_and_keeps_alarms_from_clearing() {
    let (mut kit, network, _) = kit("{}");
    network.starter(40);
    kit.rule("3-2", |input| match input["ser_equip_ip"].as_str() {
        Some("198.51.100.211") => Err("boom".to_owned()),
        _ => Ok(json!({})),
    });
    let report = run(&mut kit, at("12:22"));
    assert_eq!(report.verdict, Verdict::NoVerdict);
    let aside: Vec<_> =
        report.rejects.iter().map(|r| (r.row["ser_equip_ip"].as_str().unwrap(), r.reason.as_str())).collect();
    assert_eq!(aside, [(B211.0, "rule '3-2': boom"), (B212.0, "rule 3-2 answers no is_alarm")]);
    assert_eq!((reported(&report), alarms(&report)), (vec![], vec![]));
}

#[test]
fn without_a_persisting_alarm_nothing_else_is_asked() {
    let (mut kit, network, _) = kit("{}");
    network.minutes(18, |_| 1);
    kit.query("service_interfaces", |_| panic!("no alarm persists"));
    let report = run(&mut kit, at("12:22"));
    assert_eq!((report.verdict, alarms(&report)), (Verdict::Judged, vec![]));
}

#[test]
fn an_interval_that_makes_no_sense_is_a_config_fault() {
    let (mut kit, _, n) = kit("{}");
    for wrong in [0, -3, 1441, i64::MAX] {
        n.set(wrong);
        let fault = kit.run("2026-11-30T12:22:00Z").unwrap_err();
        assert!(matches!(&fault, Fault::Config(why) if why.contains(&format!("interval {wrong}"))), "{fault}");
    }
    n.set(1440);
    assert_eq!(run(&mut kit, at("12:22")).verdict, Verdict::Judged);
    kit.rule("3-1", |_| Ok(json!({})));
    assert_eq!(kit.run("2026-11-30T12:22:00Z").unwrap_err(), Fault::config("rule 3-1 answers no interval"));
    kit.rule("3-1", |_| Ok(json!({"interval": 2.5})));
    let fault = kit.run("2026-11-30T12:22:00Z").unwrap_err();
    assert!(matches!(fault.data(), Some(DataError::Failed(_))), "{fault}");
    kit.configure(r#"{"repaet": true}"#);
    assert!(matches!(kit.run("2026-11-30T12:22:00Z").unwrap_err(), Fault::Config(why) if why.contains("repaet")));
}
