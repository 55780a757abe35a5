//! S2 over its starter data: one router, four devices, traffic of 70, 50, 30 and 50 Gbps against a forecast of 40 to 60.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use s2_linkdown::S2Linkdown;
use serde_json::{Value, json};
use weir_sdk::testkit::{Kit, Report, Rows};
use weir_sdk::{Action, DataError, Fault, Kind::*, MINUTE, Scalar, Severity, Time, Verdict};

const ROUTER: &str = "203.0.113.90";

/// A minute of a device as the query shows it: device, minute, Gbps, flag.
type Minute = (&'static str, Time, f64, &'static str);

/// What the network does: the link types that have a linkdown event in a minute, and the traffic of devices.
#[derive(Clone, Default)]
struct Network(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    down: Vec<(Time, &'static str)>,
    traffic: Vec<Minute>,
}

fn at(minute: &str) -> Time {
    format!("2026-11-30T{minute}").parse().unwrap()
}

impl Network {
    fn down(&self, minute: &str, link_type: &'static str) {
        self.0.borrow_mut().down.push((at(minute), link_type));
    }
    /// Traffic of a device in a minute, in place of what it was.
    fn traffic(&self, device: &'static str, minute: &str, gbps: f64) {
        let flag = if gbps > 60.0 {
            "high_anomaly"
        } else if gbps < 40.0 {
            "low_anomaly"
        } else {
            "normal"
        };
        let mut state = self.0.borrow_mut();
        state.traffic.retain(|(d, m, ..)| (*d, *m) != (device, at(minute)));
        state.traffic.push((device, at(minute), gbps, flag));
    }
    /// The starter data of these minutes.
    fn starter(&self, minutes: &[&str]) {
        for minute in minutes {
            self.down(minute, "CORE-METRO");
            self.down(minute, "CORE-EDGE");
            for (device, gbps) in
                [("Router-A-1", 70.0), ("Router-A-2", 50.0), ("Router-A-3", 30.0), ("Router-A-4", 50.0)]
            {
                self.traffic(device, minute, gbps);
            }
        }
    }
}

fn kit(config: &str) -> (Kit<S2Linkdown>, Network) {
    let (mut kit, network) = (Kit::new(config), Network::default());
    let seen = network.clone();
    kit.query("linkdown_links", move |call| {
        assert_eq!(
            (call.time("from") + MINUTE, call.time("from").floor_minute()),
            (call.time("to"), call.time("from"))
        );
        let state = seen.0.borrow();
        let minute = call.time("from");
        let mut types: Vec<_> = state.down.iter().filter(|(m, _)| *m == minute).map(|(_, t)| *t).collect();
        types.sort_unstable();
        types.dedup();
        Ok(Rows::new().column("router_ip", Text, types.iter().map(|_| ROUTER)).column(
            "link_type",
            Text,
            types.iter().copied(),
        ))
    });
    kit.query("link_devices", |call| {
        let links = call.rows("links").to_json();
        let rows: Vec<(String, String, &str, &str)> = links
            .iter()
            .flat_map(|link| {
                let text = |name: &str| link[name].as_str().unwrap().to_owned();
                let devices = match link["link_type"].as_str() {
                    Some("CORE-METRO") => [("Router-A-1", "2/1/1"), ("Router-A-2", "2/1/2")],
                    _ => [("Router-A-3", "2/2/1"), ("Router-A-4", "2/2/2")],
                };
                devices.map(|(device, interface)| (text("router_ip"), text("link_type"), device, interface))
            })
            .collect();
        Ok(Rows::new()
            .column("router_ip", Text, rows.iter().map(|r| r.0.as_str()))
            .column("link_type", Text, rows.iter().map(|r| r.1.as_str()))
            .column("local_device_name", Text, rows.iter().map(|r| r.2))
            .column("if_name", Text, rows.iter().map(|r| r.3)))
    });
    let seen = network.clone();
    kit.query("traffic_anomalies", move |call| {
        let devices = call.rows("devices").to_json();
        let link_of: BTreeMap<&str, &str> = devices
            .iter()
            .map(|d| (d["local_device_name"].as_str().unwrap(), d["link_type"].as_str().unwrap()))
            .collect();
        let state = seen.0.borrow();
        let (from, to) = (call.time("from"), call.time("to"));
        let mut rows: Vec<&Minute> = state
            .traffic
            .iter()
            .filter(|(device, minute, ..)| link_of.contains_key(device) && from <= *minute && *minute < to)
            .collect();
        rows.sort_by_key(|row| (row.0, row.1));
        Ok(Rows::new()
            .column("minute_kst", Timestamp, rows.iter().map(|r| r.1))
            .column("router_ip", Text, rows.iter().map(|_| ROUTER))
            .column("local_device_name", Text, rows.iter().map(|r| r.0))
            .column("link_type", Text, rows.iter().map(|r| link_of[r.0]))
            .column("actual_gbps", Float64, rows.iter().map(|r| r.2))
            .column("yhat_lower_gbps", Float64, rows.iter().map(|_| 40.0))
            .column("yhat_upper_gbps", Float64, rows.iter().map(|_| 60.0))
            .column("anomaly_flag", Text, rows.iter().map(|r| r.3))
            .column("phase", Text, rows.iter().map(|_| "day")))
    });
    kit.rule("2", |input| Ok(count(input, 2)));
    (kit, network)
}

/// The starter rule 2, with its threshold.
fn count(input: &Value, threshold: i64) -> Value {
    assert_eq!(input.as_object().unwrap().keys().collect::<Vec<_>>(), ["anomaly_results"]);
    let mut devices: BTreeMap<(&str, &str), (i64, i64)> = BTreeMap::new();
    for row in input["anomaly_results"].as_array().unwrap() {
        let names: Vec<&String> = row.as_object().unwrap().keys().collect();
        assert_eq!(
            names,
            [
                "minute_kst",
                "router_ip",
                "local_device_name",
                "link_type",
                "actual_gbps",
                "yhat_lower_gbps",
                "yhat_upper_gbps",
                "anomaly_flag",
                "phase"
            ]
        );
        assert!(row["minute_kst"].as_str().unwrap().starts_with("2026-11-30T12:"), "{row}");
        let key = (row["router_ip"].as_str().unwrap(), row["local_device_name"].as_str().unwrap());
        let counts = devices.entry(key).or_default();
        match row["anomaly_flag"].as_str() {
            Some("high_anomaly") => counts.0 += 1,
            Some("low_anomaly") => counts.1 += 1,
            _ => {}
        }
    }
    let alarms = devices.iter().filter(|(_, (high, low))| *high >= threshold || *low >= threshold);
    let alarms = alarms.map(|((router, device), (high, low))| {
        json!({"created_at": "2026-11-30T12:10:07.000Z", "router_ip": router, "local_device_name": device,
            "high_count": high, "low_count": low})
    });
    json!({"alarms": alarms.collect::<Vec<_>>()})
}

/// Device, high_count and low_count of what was reported.
fn reported(report: &Report) -> Vec<(&str, i64, i64)> {
    let rows = report.rows("s2_results").iter();
    rows.map(|row| {
        assert_eq!(row["router_ip"], ROUTER);
        let count = |name: &str| row[name].as_i64().unwrap();
        (row["local_device_name"].as_str().unwrap(), count("high_count"), count("low_count"))
    })
    .collect()
}

/// Severity of each alarm by device, none for a clear.
fn alarms(report: &Report) -> Vec<(&str, Option<Severity>)> {
    let alarms = report.alarms.iter();
    alarms
        .map(|alarm| match alarm.action {
            Action::Raise(severity) => (alarm.key[1].as_str(), Some(severity)),
            Action::Clear => (alarm.key[1].as_str(), None),
        })
        .collect()
}

const MAJOR: Option<Severity> = Some(Severity::Major);

#[test]
fn the_starter_data_gives_one_device_above_and_one_below() {
    let (mut kit, network) = kit("{}");
    network.starter(&["12:05", "12:06", "12:07", "12:08", "12:09"]);
    let report = kit.run("2026-11-30T12:10:07Z").unwrap();
    assert_eq!(report.verdict, Verdict::Judged);
    assert_eq!(
        report.rows("s2_results"),
        [
            json!({"created_at": "2026-11-30T12:10:07Z", "router_ip": ROUTER, "local_device_name": "Router-A-1",
                "high_count": 2, "low_count": 0}),
            json!({"created_at": "2026-11-30T12:10:07Z", "router_ip": ROUTER, "local_device_name": "Router-A-3",
                "high_count": 0, "low_count": 2}),
        ]
    );
    assert_eq!(alarms(&report), [("Router-A-1", MAJOR), ("Router-A-3", MAJOR)]);
    let alarm = &report.alarms[0];
    assert_eq!(
        alarm.message,
        "Router-A-1 (203.0.113.90): traffic above the forecast in 2 minutes after a link went down at 12:05 UTC"
    );
    assert_eq!(alarm.fields[2].value, Scalar::Timestamp(at("12:05")));
    assert_eq!(alarm.because.len(), 2, "both minutes of this device");
    assert!(report.rejects.is_empty());
}

#[test]
fn the_injector_gives_four_alarms() {
    let (mut kit, network) = kit("{}");
    network.starter(&["12:05"]);
    for minute in ["12:07", "12:08"] {
        for device in ["Router-A-1", "Router-A-2", "Router-A-3", "Router-A-4"] {
            network.traffic(device, minute, 100.0);
        }
    }
    let report = kit.run("2026-11-30T12:10:00Z").unwrap();
    let expected = ["Router-A-1", "Router-A-2", "Router-A-3", "Router-A-4"].map(|device| (device, 2, 0));
    assert_eq!(reported(&report), expected);
    assert_eq!(report.alarms.len(), 4);
}

#[test]
fn without_a_link_down_nothing_else_is_asked() {
    let (mut kit, network) = kit("{}");
    network.starter(&["12:06", "12:07", "12:08"]);
    for query in ["link_devices", "traffic_anomalies"] {
        kit.query(query, |_| panic!("there was no link down"));
    }
    kit.rule("2", |_| panic!("there was no link down"));
    let report = kit.run("2026-11-30T12:10:00Z").unwrap();
    assert_eq!((report.verdict, report.alarms.len(), reported(&report)), (Verdict::Judged, 0, vec![]));
}

#[test]
fn only_the_kind_of_link_that_went_down_is_looked_at() {
    let (mut kit, network) = kit("{}");
    network.starter(&["12:07", "12:08"]);
    network.down("12:05", "CORE-EDGE");
    let report = kit.run("2026-11-30T12:10:00Z").unwrap();
    assert_eq!(reported(&report), [("Router-A-3", 0, 2)]);
}

#[test]
fn a_minute_is_reported_once_per_outcome_and_with_repeat_in_every_batch() {
    let (mut kit, network) = kit("{}");
    network.starter(&["12:05", "12:06", "12:07", "12:08", "12:09"]);
    let both = vec![("Router-A-1", 2, 0), ("Router-A-3", 0, 2)];
    let first = kit.run("2026-11-30T12:10:00Z").unwrap();
    assert_eq!(reported(&first), both);
    let again = kit.run("2026-11-30T12:10:10Z").unwrap();
    assert_eq!(reported(&again), vec![]);
    assert_eq!(alarms(&again), alarms(&first), "the alarms still hold");

    // the rule is edited: another outcome of the same minute
    kit.rule("2", |input| Ok(count(input, 1)));
    network.traffic("Router-A-3", "12:07", 50.0);
    let edited = kit.run("2026-11-30T12:10:20Z").unwrap();
    assert_eq!(reported(&edited), [("Router-A-3", 0, 1)]);

    network.traffic("Router-A-3", "12:07", 30.0);
    kit.rule("2", |input| Ok(count(input, 2)));
    let next = kit.run("2026-11-30T12:11:00Z").unwrap();
    assert_eq!(reported(&next), both, "another minute");

    kit.configure(r#"{"repeat": true}"#);
    assert_eq!(reported(&kit.run("2026-11-30T12:11:10Z").unwrap()), both);
    assert_eq!(reported(&kit.run("2026-11-30T12:11:20Z").unwrap()), both);
}

#[test]
fn a_device_that_is_seen_well_in_both_minutes_is_cleared_once() {
    let (mut kit, network) = kit("{}");
    network.starter(&["12:05", "12:06", "12:07", "12:08"]);
    assert_eq!(alarms(&kit.run("2026-11-30T12:10:00Z").unwrap()).len(), 2);

    // one good minute is not enough, and without the other nothing is known of it
    network.down("12:06", "CORE-METRO");
    network.down("12:07", "CORE-METRO");
    network.traffic("Router-A-1", "12:09", 50.0);
    assert_eq!(alarms(&kit.run("2026-11-30T12:11:00Z").unwrap()), []);

    network.traffic("Router-A-1", "12:10", 50.0);
    let report = kit.run("2026-11-30T12:12:00Z").unwrap();
    assert_eq!(alarms(&report), [("Router-A-1", None)]);
    assert_eq!(alarms(&kit.run("2026-11-30T12:12:10Z").unwrap()), []);
}

#[test]
fn a_rule_may_say_how_bad_it_is_and_an_unknown_word_loses_no_alarm() {
    let (mut kit, network) = kit("{}");
    network.starter(&["12:05", "12:07", "12:08"]);
    let rule = |severity: &'static str| {
        move |input: &Value| {
            let mut result = count(input, 2);
            result["alarms"][0]["severity"] = severity.into();
            Ok(result)
        }
    };
    kit.rule("2", rule("Critical"));
    let report = kit.run("2026-11-30T12:10:00Z").unwrap();
    assert_eq!(alarms(&report), [("Router-A-1", Some(Severity::Critical)), ("Router-A-3", MAJOR)]);
    kit.rule("2", rule("Dire"));
    let report = kit.run("2026-11-30T12:10:10Z").unwrap();
    assert_eq!(alarms(&report), [("Router-A-1", MAJOR), ("Router-A-3", MAJOR)]);
    assert_eq!(reported(&report), [("Router-A-1", 2, 0)], "another severity is another outcome");
}

#[test]
fn an_answer_without_a_name_or_a_count_is_put_aside_and_keeps_alarms_from_clearing() {
    let (mut kit, network) = kit("{}");
    network.starter(&["12:05", "12:07", "12:08"]);
    kit.rule("2", |_| {
        Ok(json!({"alarms": [
            {"router_ip": ROUTER, "high_count": 2, "low_count": 0},
            {"router_ip": ROUTER, "local_device_name": "Router-A-1", "high_count": 2},
            {"router_ip": ROUTER, "local_device_name": "Router-A-3", "high_count": 0, "low_count": 2},
        ]}))
    });
    let report = kit.run("2026-11-30T12:10:00Z").unwrap();
    assert_eq!(report.verdict, Verdict::NoVerdict);
    assert_eq!(report.rejects.len(), 2);
    assert!(report.rejects.iter().all(|r| r.reason.starts_with("rule 2 answers an alarm without")));
    // the rule stamped nothing: the batch's time
    assert_eq!(report.rows("s2_results")[0]["created_at"], "2026-11-30T12:10:00Z");
    assert_eq!(alarms(&report), [("Router-A-3", MAJOR)]);
}

#[test]
fn a_device_that_the_rule_names_twice_has_one_alarm() {
    let (mut kit, network) = kit("{}");
    network.starter(&["12:05", "12:07", "12:08"]);
    let twice = json!({"alarms": [
        {"router_ip": ROUTER, "local_device_name": "Router-A-1", "high_count": 2, "low_count": 0, "severity": "minor"},
        {"router_ip": ROUTER, "local_device_name": "Router-A-1", "high_count": 0, "low_count": 3, "severity": "critical"},
    ]});
    kit.rule("2", move |_| Ok(twice.clone()));
    let report = kit.run("2026-11-30T12:10:00Z").unwrap();
    assert_eq!(reported(&report), [("Router-A-1", 2, 0), ("Router-A-1", 0, 3)]);
    assert_eq!(alarms(&report), [("Router-A-1", Some(Severity::Critical))]);
    assert_eq!(reported(&kit.run("2026-11-30T12:10:10Z").unwrap()), []);
}

#[test]
fn what_it_cannot_work_with_is_said() {
    let (mut kit, network) = kit(r#"{"repaet": true}"#);
    network.starter(&["12:05", "12:07", "12:08"]);
    let fault = kit.run("2026-11-30T12:10:00Z").unwrap_err();
    assert!(matches!(&fault, Fault::Config(why) if why.contains("repaet")), "{fault}");

    kit.configure("{}").rule("2", |_| Err("boom".to_owned()));
    let fault = kit.run("2026-11-30T12:10:00Z").unwrap_err();
    assert_eq!(fault.data(), Some(&DataError::Failed("boom".to_owned())));
    assert!(fault.to_string().contains("rule '2'"), "{fault}");

    kit.answer("traffic_anomalies", Rows::new().column("router_ip", Text, [ROUTER]));
    kit.rule("2", |_| Ok(json!({"alarms": []})));
    let fault = kit.run("2026-11-30T12:10:00Z").unwrap_err();
    assert!(fault.to_string().contains("column 'local_device_name' of query 'traffic_anomalies'"), "{fault}");
}
