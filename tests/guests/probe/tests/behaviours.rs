//! The behaviours that end well, natively.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use probe::Probe;
use serde_json::json;
use weir_sdk::testkit::{Kit, Report, Rows};
use weir_sdk::{DataError, Fault, Kind::*, Verdict};

const T: &str = "2026-11-30T12:05:00Z";

fn kit(config: &str) -> Kit<Probe> {
    let events = r#"
        {"ip": "a", "err_cnt": 50}
        {"ip": "b", "err_cnt": 49}
        {"ip": "c", "err_cnt": 60}
        {"ip": "a", "err_cnt": 71}
    "#;
    let mut kit = Kit::new(config);
    kit.input("events", Rows::json_lines(&[("ip", Text), ("err_cnt", Int64)], events));
    kit
}

fn texts(report: &Report) -> Vec<(i64, &str)> {
    let rows = report.rows("probe").iter();
    rows.map(|row| (row["n"].as_i64().unwrap(), row["text"].as_str().unwrap_or("null"))).collect()
}

#[test]
fn it_filters_and_groups() {
    let report = kit(r#"{"do":"filter-group"}"#).run(T).unwrap();
    assert_eq!(texts(&report), [(2, "a/60"), (1, "c/60")]);
}

#[test]
fn it_echoes_and_judges_rows() {
    let report = kit(r#"{"do":"echo"}"#).run(T).unwrap();
    assert_eq!(texts(&report)[1], (1, r#"[{"ip":"b","err_cnt":49}]"#));

    let mut judging = kit(r#"{"do":"rule"}"#);
    judging.rule("judge", |input| match input["ip"].as_str() {
        Some("b") => Err("no b".to_owned()),
        ip => Ok(json!({ "saw": ip })),
    });
    let report = judging.run(T).unwrap();
    assert_eq!(texts(&report)[..2], [(0, r#"{"saw":"a"}"#), (1, "null")]);
    assert_eq!(report.rejects[0].reason, "rule 'judge': no b");
}

#[test]
fn it_counts_batches() {
    let mut kit = kit(r#"{"do":"count"}"#);
    for n in 1..=3 {
        assert_eq!(texts(&kit.run(T).unwrap()), [(n, "null")]);
    }
}

#[test]
fn it_asks_for_what_is_not_declared() {
    for what in ["input", "window", "query", "rule", "output", "alarm"] {
        let fault = kit(&format!(r#"{{"do":"undeclared","what":"{what}"}}"#)).run(T).unwrap_err();
        assert_eq!(fault.data(), Some(&DataError::Undeclared), "{what}");
    }
    let fault = kit(r#"{"do":"wrong-output"}"#).run(T).unwrap_err();
    assert_eq!(fault.data(), Some(&DataError::RequiredNull));
}

#[test]
fn it_leaves_as_much_as_it_is_told() {
    let report = kit(r#"{"do":"return-big","rows":1000}"#).run(T).unwrap();
    assert_eq!(report.rows("probe").len(), 1000);
    let report = kit(r#"{"do":"alarms","count":3,"bytes":5,"fields":2}"#).run(T).unwrap();
    assert_eq!(report.alarms.len(), 3);
    assert_eq!((report.alarms[2].message.as_str(), report.alarms[2].fields.len()), ("xxxxx", 2));
    assert_eq!(kit(r#"{"do":"log","lines":4}"#).run(T).unwrap().log.len(), 4);
    assert_eq!(kit(r#"{"do":"rejects","reason":"r"}"#).run(T).unwrap().rejects.len(), 4);
}

#[test]
fn it_ends_as_it_is_told() {
    assert_eq!(kit(r#"{"do":"no-verdict"}"#).run(T).unwrap().verdict, Verdict::NoVerdict);
    let fault = |kind: &str| kit(&format!(r#"{{"do":"fault","kind":"{kind}"}}"#)).run(T).unwrap_err();
    assert_eq!(fault("config"), Fault::config("it was asked to"));
    assert_eq!(fault("input"), Fault::input("it was asked to"));
    assert_eq!(fault("internal"), Fault::internal("it was asked to"));
    assert_eq!(fault("data").data(), Some(&DataError::Malformed));
    assert!(matches!(kit(r#"{"do":"dance"}"#).run(T), Err(Fault::Config(_))));
    assert!(matches!(kit(r#"{"do":"prepare-fault"}"#).run(T), Err(Fault::Config(_))));
}
