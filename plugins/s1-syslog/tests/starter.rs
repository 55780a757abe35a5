//! S1 over its starter data: three routers, each minute 50, 10 and 2 matching messages.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::RefCell;
use std::rc::Rc;

use s1_syslog::S1Syslog;
use serde_json::{Value, json};
use weir_sdk::testkit::{Kit, Report, Rows};
use weir_sdk::{Action, DataError, Fault, Kind::*, MINUTE, Scalar, Severity, Time, Verdict};

const A34: (&str, &str) = ("Edge-RouterA-034", "203.0.113.34");
const A33: (&str, &str) = ("Edge-RouterA-033", "203.0.113.33");
const A36: (&str, &str) = ("Edge-RouterA-036", "203.0.113.36");

/// What was logged: minute, router, matching messages. The query of the kit counts it as the SQL would.
#[derive(Clone, Default)]
struct Syslog(Rc<RefCell<Vec<Counted>>>);

type Counted = (Time, (&'static str, &'static str), i64);

impl Syslog {
    fn log(&self, minute: &str, router: (&'static str, &'static str), messages: i64) {
        let minute: Time = minute.parse().unwrap();
        let mut all = self.0.borrow_mut();
        all.retain(|(m, r, _)| (*m, *r) != (minute, router));
        all.push((minute, router, messages));
        all.sort();
    }
    fn starter(&self, minutes: &[&str]) {
        for minute in minutes {
            self.log(minute, A34, 50);
            self.log(minute, A33, 10);
            self.log(minute, A36, 2);
        }
    }
    fn counts(&self, from: Time, to: Time) -> Rows {
        let all = self.0.borrow();
        let seen: Vec<_> = all.iter().filter(|(m, ..)| from <= *m && *m < to).collect();
        Rows::new()
            .column("minute", Timestamp, seen.iter().map(|s| s.0))
            .column("router_host", Text, seen.iter().map(|s| s.1.0))
            .column("router_ip", Text, seen.iter().map(|s| s.1.1))
            .column("err_cnt", Int64, seen.iter().map(|s| s.2))
    }
}

/// The starter rule 1-2.
fn table(input: &Value) -> Result<Value, String> {
    assert_eq!(input.as_object().map(|o| o.len()), Some(1), "the rule gets err_cnt and nothing else: {input}");
    let answer = |should_alarm: bool, severity: &str, alarm_reason: &str| {
        Ok(json!({"should_alarm": should_alarm, "severity": severity, "alarm_reason": alarm_reason}))
    };
    match input["err_cnt"].as_i64() {
        Some(50..) => answer(true, "Critical", "Threshold >= 50"),
        Some(10..) => answer(true, "Warning", "Threshold >= 10"),
        Some(_) => answer(false, "Info", "Below threshold"),
        None => Err("err_cnt is no number".to_owned()),
    }
}

fn kit(config: &str) -> (Kit<S1Syslog>, Syslog) {
    let (mut kit, syslog) = (Kit::new(config), Syslog::default());
    kit.rule("1-1", |_| Ok(json!({"pattern": "%sapDHCPLseStatePopulateErr%"})));
    kit.rule("1-2", table);
    let counted = syslog.clone();
    kit.query("error_counts", move |call| {
        assert_eq!(call.text("pattern"), "%sapDHCPLseStatePopulateErr%");
        assert_eq!(call.time("from") + 2 * MINUTE, call.time("to"));
        assert_eq!(call.time("to"), call.time("to").floor_minute());
        Ok(counted.counts(call.time("from"), call.time("to")))
    });
    (kit, syslog)
}

/// Minute, router, count and severity of what was reported.
fn reported(report: &Report) -> Vec<(String, String, i64, String)> {
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    let rows = report.rows("s1_results").iter();
    rows.map(|row| {
        let minute = text(row, "processing_time")[11..16].to_owned();
        (minute, text(row, "router_ip"), row["error_count"].as_i64().unwrap(), text(row, "severity"))
    })
    .collect()
}

fn hit(minute: &str, router: (&str, &str), count: i64, severity: &str) -> (String, String, i64, String) {
    (minute.to_owned(), router.1.to_owned(), count, severity.to_owned())
}

/// Severity of each alarm by address, none for a clear.
fn alarms(report: &Report) -> Vec<(String, Option<Severity>)> {
    let alarms = report.alarms.iter();
    alarms
        .map(|alarm| match alarm.action {
            Action::Raise(severity) => (alarm.key[1].clone(), Some(severity)),
            Action::Clear => (alarm.key[1].clone(), None),
        })
        .collect()
}

#[test]
fn the_starter_data_gives_one_critical_and_one_warning() {
    let (mut kit, syslog) = kit("{}");
    syslog.starter(&["2026-11-30T12:04"]);
    let report = kit.run("2026-11-30T12:05:07Z").unwrap();

    assert_eq!(report.verdict, Verdict::Judged);
    assert_eq!(
        report.rows("s1_results"),
        [
            json!({
                "alarm_time": "2026-11-30T12:05:07Z", "router_name": "Edge-RouterA-033", "router_ip": "203.0.113.33",
                "error_count": 10, "severity": "Warning", "alarm_reason": "Threshold >= 10",
                "processing_time": "2026-11-30T12:04:00Z",
            }),
            json!({
                "alarm_time": "2026-11-30T12:05:07Z", "router_name": "Edge-RouterA-034", "router_ip": "203.0.113.34",
                "error_count": 50, "severity": "Critical", "alarm_reason": "Threshold >= 50",
                "processing_time": "2026-11-30T12:04:00Z",
            }),
        ]
    );
    let alarm = report.alarms.iter().find(|alarm| alarm.key[1] == A34.1).unwrap();
    assert_eq!(alarm.name, "syslog_errors");
    assert_eq!(alarm.key, [A34.0, A34.1]);
    assert_eq!(alarm.action, Action::Raise(Severity::Critical));
    assert_eq!(
        alarm.message,
        "Edge-RouterA-034 (203.0.113.34): 50 lease errors in 2026-11-30T12:04:00Z, Critical: Threshold >= 50"
    );
    assert_eq!(alarm.fields[0].value, Scalar::Int64(50));
    assert_eq!(alarm.fields[1].value, Scalar::Timestamp("2026-11-30T12:04".parse().unwrap()));
    assert_eq!(alarm.because.len(), 1);
    assert!(report.rejects.is_empty());
}

#[test]
fn the_injector_gives_one_critical_of_60() {
    let (mut kit, syslog) = kit("{}");
    syslog.log("2026-11-30T12:04", A34, 60);
    let report = kit.run("2026-11-30T12:05:00Z").unwrap();
    assert_eq!(reported(&report), [hit("12:04", A34, 60, "Critical")]);
    assert_eq!(alarms(&report), [(A34.1.to_owned(), Some(Severity::Critical))]);
}

#[test]
fn a_minute_is_reported_once_though_two_batches_see_it() {
    let (mut kit, syslog) = kit(r#"{"repeat": false}"#);
    syslog.starter(&["2026-11-30T12:04", "2026-11-30T12:05"]);
    let first = kit.run("2026-11-30T12:05:00Z").unwrap();
    assert_eq!(reported(&first), [hit("12:04", A33, 10, "Warning"), hit("12:04", A34, 50, "Critical")]);
    let second = kit.run("2026-11-30T12:06:00Z").unwrap();
    assert_eq!(reported(&second), [hit("12:05", A33, 10, "Warning"), hit("12:05", A34, 50, "Critical")]);
    // the same minutes once more: nothing new to report, and the alarms still hold
    let third = kit.run("2026-11-30T12:06:30Z").unwrap();
    assert_eq!(reported(&third), []);
    assert_eq!(alarms(&third), alarms(&second));
}

#[test]
fn with_repeat_each_batch_reports_what_it_sees() {
    let (mut kit, syslog) = kit(r#"{"repeat": true}"#);
    syslog.starter(&["2026-11-30T12:04", "2026-11-30T12:05"]);
    kit.run("2026-11-30T12:05:00Z").unwrap();
    let second = kit.run("2026-11-30T12:06:00Z").unwrap();
    assert_eq!(
        reported(&second),
        [
            hit("12:04", A33, 10, "Warning"),
            hit("12:04", A34, 50, "Critical"),
            hit("12:05", A33, 10, "Warning"),
            hit("12:05", A34, 50, "Critical"),
        ]
    );
}

#[test]
fn another_outcome_of_a_minute_is_reported_again_and_none_is_not() {
    let (mut kit, syslog) = kit("{}");
    syslog.log("2026-11-30T12:04", A34, 10);
    let warned = kit.run("2026-11-30T12:05:00Z").unwrap();
    assert_eq!(reported(&warned), [hit("12:04", A34, 10, "Warning")]);

    // rows came late
    syslog.log("2026-11-30T12:04", A34, 55);
    let worse = kit.run("2026-11-30T12:05:20Z").unwrap();
    assert_eq!(reported(&worse), [hit("12:04", A34, 55, "Critical")]);

    // the rule was edited
    kit.rule("1-2", |_| Ok(json!({"should_alarm": false, "severity": "Info", "alarm_reason": "off"})));
    let off = kit.run("2026-11-30T12:05:40Z").unwrap();
    assert_eq!(reported(&off), []);
    assert_eq!(alarms(&off), [(A34.1.to_owned(), None)]);
}

#[test]
fn a_router_has_one_alarm_of_its_latest_alarming_minute() {
    let (mut kit, syslog) = kit("{}");
    syslog.log("2026-11-30T12:03", A34, 50);
    syslog.log("2026-11-30T12:04", A34, 10);
    let report = kit.run("2026-11-30T12:05:00Z").unwrap();
    assert_eq!(reported(&report).len(), 2);
    assert_eq!(alarms(&report), [(A34.1.to_owned(), Some(Severity::Warning))]);
}

#[test]
fn a_router_that_is_well_again_is_cleared_once_and_a_silent_one_is_left_to_the_host() {
    let (mut kit, syslog) = kit("{}");
    syslog.log("2026-11-30T12:04", A34, 50);
    syslog.log("2026-11-30T12:04", A33, 10);
    assert_eq!(alarms(&kit.run("2026-11-30T12:05:00Z").unwrap()).len(), 2);
    assert!(kit.state().contains_key("open/Edge-RouterA-034/203.0.113.34"));

    syslog.log("2026-11-30T12:05", A34, 3);
    let report = kit.run("2026-11-30T12:06:00Z").unwrap();
    let still = (A33.1.to_owned(), Some(Severity::Warning));
    assert_eq!(alarms(&report), [still.clone(), (A34.1.to_owned(), None)]);
    assert_eq!(reported(&report), []);
    assert!(!kit.state().contains_key("open/Edge-RouterA-034/203.0.113.34"));

    // the minute 12:04 is still seen: it must not open the alarm again
    assert_eq!(alarms(&kit.run("2026-11-30T12:06:30Z").unwrap()), [still]);
    assert_eq!(alarms(&kit.run("2026-11-30T12:07:00Z").unwrap()), []);
}

#[test]
fn what_is_over_before_it_was_told_is_told_once() {
    let (mut kit, syslog) = kit("{}");
    syslog.log("2026-11-30T12:04", A34, 50);
    syslog.log("2026-11-30T12:05", A34, 3);
    let raised = (A34.1.to_owned(), Some(Severity::Critical));
    assert_eq!(alarms(&kit.run("2026-11-30T12:06:00Z").unwrap()), [raised]);
    assert_eq!(alarms(&kit.run("2026-11-30T12:06:30Z").unwrap()), [(A34.1.to_owned(), None)]);
    assert_eq!(alarms(&kit.run("2026-11-30T12:06:45Z").unwrap()), []);
}

#[test]
fn counts_that_cannot_be_judged_are_put_aside_and_keep_alarms_from_clearing() {
    let (mut kit, syslog) = kit("{}");
    syslog.starter(&["2026-11-30T12:04"]);
    kit.rule("1-2", |input| match input["err_cnt"].as_i64() {
        Some(50) => Err("boom".to_owned()),
        Some(10) => Ok(json!({"should_alarm": true})),
        _ => table(input),
    });
    let report = kit.run("2026-11-30T12:05:00Z").unwrap();
    assert_eq!(report.verdict, Verdict::NoVerdict);
    let aside: Vec<_> = report
        .rejects
        .iter()
        .map(|reject| (reject.row["router_ip"].as_str().unwrap(), reject.reason.as_str()))
        .collect();
    assert_eq!(
        aside,
        [(A34.1, "rule '1-2': boom"), (A33.1, "rule 1-2 answers no should_alarm, severity or alarm_reason"),]
    );
    assert_eq!((reported(&report), alarms(&report)), (vec![], vec![]));
}

#[test]
fn an_unknown_severity_is_a_warning_and_keeps_its_text_in_the_results() {
    let (mut kit, syslog) = kit("{}");
    syslog.log("2026-11-30T12:04", A34, 50);
    kit.rule("1-2", |_| Ok(json!({"should_alarm": true, "severity": "Dire", "alarm_reason": "r"})));
    let report = kit.run("2026-11-30T12:05:00Z").unwrap();
    assert_eq!(reported(&report), [hit("12:04", A34, 50, "Dire")]);
    assert_eq!(alarms(&report), [(A34.1.to_owned(), Some(Severity::Warning))]);
}

#[test]
fn no_counts_are_judged_too() {
    let (mut kit, _) = kit("{}");
    let report = kit.run("2026-11-30T12:05:00Z").unwrap();
    assert_eq!((report.verdict, report.alarms.len(), report.rows("s1_results").len()), (Verdict::Judged, 0, 0));
}

#[test]
fn what_it_cannot_work_with_is_a_config_fault() {
    let (mut kit, _) = kit(r#"{"repaet": true}"#);
    let fault = kit.run("2026-11-30T12:05:00Z").unwrap_err();
    assert!(matches!(&fault, Fault::Config(why) if why.contains("repaet")), "{fault}");

    kit.configure("{}").rule("1-1", |_| Ok(json!({})));
    let fault = kit.run("2026-11-30T12:05:00Z").unwrap_err();
    assert_eq!(fault, Fault::config("rule 1-1 answers no pattern"));
}

#[test]
fn a_wrong_query_is_named_in_the_fault() {
    let (mut kit, _) = kit("{}");
    kit.answer("error_counts", Rows::new().column("err_cnt", Text, ["50"]));
    kit.rule("1-2", |_| Ok(json!({})));
    let fault = kit.run("2026-11-30T12:05:00Z").unwrap_err();
    assert_eq!(fault.data(), Some(&DataError::NoSuchColumn));
    assert!(fault.to_string().contains("column 'minute' of query 'error_counts'"), "{fault}");
}

#[test]
fn a_tag_is_part_of_the_version() {
    let (kit, _) = kit("{}");
    let version = &kit.description().version;
    assert!(version == "0.1.0" || version.starts_with("0.1.0+"), "{version}");
}
