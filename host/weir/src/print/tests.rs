#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::json;
use weir_model::fault::{Fault, FaultKind};

use super::*;
use crate::testing::{Printed, digest, event, of, record, report, rows, status};

#[test]
fn alarms_are_lines_with_severity_in_a_fixed_column() {
    let lines = [
        event("opened", None, "critical", 7),
        event("escalated", Some("warning"), "major", 7),
        event("lowered", Some("critical"), "warning", 7),
        event("cleared", Some("info"), "info", 7),
        event("reopened", None, "minor", 7),
        event("stale", Some("major"), "major", 7),
    ]
    .map(|e| alarm::line(&e, false));
    let what = "acme/s1  lease_errors[Edge-034, 203.0.113.34]: 60 errors, threshold 50";
    assert_eq!(
        lines,
        [
            format!("2026-11-30T12:01:00Z  CRITICAL  {what}  (opened)"),
            format!("2026-11-30T12:01:00Z  MAJOR     {what}  (escalated from warning)"),
            format!("2026-11-30T12:01:00Z  WARNING   {what}  (lowered from critical)"),
            format!("2026-11-30T12:01:00Z  INFO      {what}  (cleared)"),
            format!("2026-11-30T12:01:00Z  MINOR     {what}  (opened again)"),
            format!("2026-11-30T12:01:00Z  MAJOR     {what}  (stale: nobody can tell whether it holds)"),
        ]
    );
}

#[test]
fn colour_is_added_around_the_same_text() {
    let event = event("opened", None, "critical", 7);
    let plain = alarm::line(&event, true).replace("\x1b[1;31m", "").replace("\x1b[0m", "");
    assert_eq!(plain, alarm::line(&event, false));
    assert_ne!(plain, alarm::line(&event, true));
}

#[test]
fn a_tenants_text_cannot_drive_the_terminal() {
    let mut evil = event("opened", None, "info", 1);
    evil.alarm.message = "a\x1b[2Jb\nc\u{202e}d".to_owned();
    evil.alarm.key = vec!["\r".to_owned()];
    let line = alarm::line(&evil, false);
    assert!(line.contains("[\u{fffd}]: a\u{fffd}[2Jb\u{fffd}c\u{fffd}d"), "{line:?}");
    assert_eq!(clean("Zürich 서울"), "Zürich 서울");
}

#[test]
fn tables_line_up_also_with_wide_letters() {
    assert_eq!(rows::table(&rows()).to_string(), "router     n\nEdge-034  60\n서울\u{fffd}[2J\n");
}

#[test]
fn the_ledger_speaks_spark() {
    let batch = spark::progress(&record(7, json!("judged")));
    for (path, expected) in [
        ("/name", json!("acme/s1")),
        ("/runId", json!("live")),
        ("/batchId", json!(7)),
        ("/timestamp", json!("2026-11-30T12:01:00Z")),
        ("/batchTimestampMs", json!(1_796_040_060_000_i64)),
        ("/batchWatermarkMs", json!(1_796_040_030_000_i64)),
        ("/eventTime/watermark", json!("2026-11-30T12:00:30Z")),
        ("/numInputRows", json!(190)),
        ("/durationMs/detect", json!(1.2)),
        ("/durationMs/total", json!(1.3)),
        ("/sources/0/description", json!("syslog")),
        ("/sources/0/startOffset", json!({"0": 314})),
        ("/sources/0/endOffset", json!({"0": 500, "1": 4})),
        ("/sources/0/numInputRows", json!(177)),
        ("/sink/numOutputRows", json!(2)),
        ("/sink/description", json!("s1_results")),
        ("/ruleset", json!(digest("r"))),
        ("/outcome", json!("judged")),
        ("/digest", json!(digest("d"))),
    ] {
        assert_eq!(batch.pointer(path), Some(&expected), "{path}");
    }
    let fault = Fault::tenant(FaultKind::Cpu, "out of fuel");
    let failed = spark::progress(&record(8, json!({"failed": fault})));
    assert_eq!((&failed["outcome"], &failed["fault"]["kind"]), (&json!("failed"), &json!("cpu")));
    assert_eq!(
        spark::line(&failed),
        "acme/s1 #8 2026-11-30T12:01:00Z: 190 rows, 2 alarms, 1.3 ms (plan 0.1, query 0.3, detect 1.2, rule 0.2), failed"
    );
    let table = spark::table(&[record(7, json!("judged")), record(10, json!("no_verdict"))]).to_string();
    let short = digest("r").short();
    assert_eq!(
        table,
        format!(
            "\
batchId  timestamp             numInputRows  durationMs  sources startOffset..endOffset  sink numOutputRows  alarms  outcome     ruleset
      7  2026-11-30T12:01:00Z           190         1.3  syslog 0:314..500 1:0..4        s1_results 2             2  judged      {short}
     10  2026-11-30T12:01:00Z           190         1.3  syslog 0:314..500 1:0..4        s1_results 2             2  no_verdict  {short}
"
        )
    );
}

#[test]
fn status_is_tables_with_what_is_wrong_under_them() {
    let mut status = status("inc-1", &["acme"], Some(7));
    let fault = Fault::tenant(FaultKind::Trap, "unreachable").fix("see the log");
    if let Some(scenario) = status.scenarios.first_mut() {
        scenario.state = of(json!("parked"));
        scenario.fault = Some(fault.clone());
        scenario.rejected = Some(of(json!({
            "reason": "no handler", "file": "rules/1-2.json", "since": "2026-11-30T12:00:00Z",
            "problems": [
                {"file": "rules/1-2.json", "message": "no handler", "fix": "export one"},
                {"file": "q.sql", "message": "x"},
            ],
        })));
        scenario.pinned = Some(digest("r"));
        scenario.sinks[0].fault = Some(Fault::external(FaultKind::Sink, "no folder"));
    }
    let short = digest("r").short();
    assert_eq!(
        status::text(&status),
        format!(
            "\
a host is running at 2026-11-30T12:01:30Z, ledger inc-1

SCENARIO  STATE   RULESET       PLUGIN           BATCH  TIME                  OUTCOME     ROWS  ALARMS   MS  OPEN  SKIPPED  SINKS
acme/s1   parked  {short}  s1-syslog 0.1.0      7  2026-11-30T12:01:00Z  no verdict   186       2  1.3     2        3  s1_results 2 behind
  acme/s1: parked: unreachable; see the log
  acme/s1: rejected since 2026-11-30T12:00:00Z: rules/1-2.json: no handler; export one (and 1 more problem)
  acme/s1: pinned to {short}; 'weir unpin acme/s1' undoes it
  acme/s1: sink s1_results: no folder

STREAM       READ   FLUSHED   LAG  WINDOW ROWS  BYTES  LATE  DEAD LETTERS
acme/syslog  0:500  -        30 s          186   4096     0             1
"
        )
    );
}

#[test]
fn a_side_run_shows_rows_alarms_and_log() {
    let mut printed = Printed::default();
    report::side(&mut printed.out(false), &report(json!("no_verdict"))).expect("printed");
    let (ruleset, output) = (digest("r").short(), digest("o").short());
    assert_eq!(
        printed.stdout(),
        format!(
            "\
acme/s1 at 2026-11-30T12:01:00Z: replay of batch 7, ruleset {ruleset}, 186 rows in, 1 alarm
the plugin could not judge

s1_results: 2 rows, digest {output}
router     n
Edge-034  60
서울\u{fffd}[2J

alarms:
2026-11-30T12:01:00Z  CRITICAL  acme/s1  lease_errors[Edge-034, 203.0.113.34]: 60 errors, threshold 50  (opened)

log:
info  hello
"
        )
    );
}

#[test]
fn failures_name_place_and_fix() {
    let fault = Fault::tenant(FaultKind::Sql, "no column x").file("q.sql").field("x").fix("name another");
    let mut printed = Printed::default();
    printed.out(false).failure(&fault.clone().into());
    printed.out(false).failure(&Failure::Config(vec![of(json!({
        "file": "weir.toml:3", "field": "log", "message": "it is a section", "fix": "write [log]",
    }))]));
    printed.out(false).failure(&Failure::NotFound("there is no such thing".to_owned()));
    printed.out(false).failure(&Failure::Problems);
    assert_eq!(
        printed.stderr(),
        "\
error: q.sql: x: no column x
       fix: name another
error: weir.toml:3: log: it is a section
       fix: write [log]
error: there is no such thing
"
    );
    let mut printed = Printed::default();
    printed.out(true).failure(&fault.clone().into());
    assert_eq!(printed.stderr(), format!("{}\n", json!({"fault": fault})));
    assert!(printed.stdout().is_empty());
}
