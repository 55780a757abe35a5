//! The detector over fixtures, without a host.
#![allow(clippy::unwrap_used)]

use serde_json::json;
use template::Logins;
use weir_sdk::testkit::{Kit, Rows};
use weir_sdk::{Kind::*, MINUTE};

#[test]
fn a_router_over_the_limit_is_an_alarm_and_every_count_a_row() {
    let mut kit = Kit::<Logins>::new("{}");
    kit.query("logins", |call| {
        assert_eq!(call.time("from") + MINUTE, call.time("to"));
        assert_eq!(call.time("to").to_string(), "2026-11-30T12:04:00Z", "one minute is waited for late rows");
        Ok(Rows::new().column("router", Text, ["quiet", "busy"]).column("logins", Int64, [1, 12]))
    });
    kit.rule("limit", |input| Ok(json!({ "alarm": input["logins"].as_i64() >= Some(10), "severity": "Major" })));

    let report = kit.run("2026-11-30T12:05:07Z").unwrap();

    assert_eq!(report.alarms.len(), 1);
    assert_eq!(report.alarms[0].message, "busy: 12 log-ins in 2026-11-30T12:03:00Z");
    assert_eq!(report.rows("login_counts").len(), 2);
    assert_eq!(
        report.rows("login_counts")[1],
        json!({ "minute": "2026-11-30T12:03:00Z", "router": "busy", "logins": 12 })
    );
}

#[test]
fn an_unknown_setting_is_refused() {
    assert!(Kit::<Logins>::new(r#"{"wait": 1}"#).run("2026-11-30T12:05:00Z").is_err());
}
