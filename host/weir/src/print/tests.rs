#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::json;
use weir_model::alarm::AlarmEvent;
use weir_model::fault::{Fault, FaultKind};

use super::*;
use crate::testing::{Printed, digest, event, of, record, report, rows, status};

/// The lines of these changes, after the columns' names.
fn lines(events: &[AlarmEvent], zone: &str, colour: bool) -> Vec<String> {
    let text = alarm::Lines::new(zone.parse().unwrap(), colour).text(events);
    text.lines().map(str::to_owned).collect()
}

#[test]
fn changes_of_alarms_stand_in_columns_under_their_names() {
    let events = [
        event("opened", None, "critical", 7),
        event("escalated", Some("warning"), "major", 7),
        event("lowered", Some("critical"), "warning", 7),
        event("cleared", Some("info"), "info", 7),
        event("reopened", None, "minor", 7),
        event("stale", Some("major"), "major", 7),
        event("fresh", Some("major"), "major", 7),
    ];
    let key = "acme/s1   lease_errors[Edge-034, 203.0.113.34]  60 errors, threshold 50";
    assert_eq!(
        lines(&events, "UTC", false),
        [
            "TIME                  SEVERITY  CHANGE     SCENARIO  ALARM                                 MESSAGE"
                .to_owned(),
            format!("2026-11-30T12:01:00Z  CRITICAL  opened     {key}"),
            format!("2026-11-30T12:01:00Z  MAJOR     escalated  {key} (was warning)"),
            format!("2026-11-30T12:01:00Z  WARNING   lowered    {key} (was critical)"),
            format!("2026-11-30T12:01:00Z  INFO      cleared    {key}"),
            format!("2026-11-30T12:01:00Z  MINOR     reopened   {key}"),
            format!("2026-11-30T12:01:00Z  MAJOR     stale      {key} (nobody can tell whether it holds)"),
            format!("2026-11-30T12:01:00Z  MAJOR     fresh      {key} (no longer stale)"),
        ]
    );
    let seoul = lines(&events[..1], "Asia/Seoul", false);
    assert_eq!(seoul[1], format!("2026-11-30T21:01:00+09:00  CRITICAL  opened     {key}"));
    assert!(alarm::Lines::new(Zone::UTC, false).text(&[]).is_empty(), "no names before there is something to name");
    let mut tail = alarm::Lines::new(Zone::UTC, false);
    tail.expect(["acme/s1", "acme/later-and-wider"].map(str::to_owned).into_iter());
    assert!(
        tail.text(&events[..1]).contains("  acme/s1               lease_errors["),
        "there is room for the wider one"
    );
}

#[test]
fn columns_grow_and_stay_and_long_keys_do_not_break_them() {
    let keyed = |key: &str| {
        let mut event = event("opened", None, "critical", 7);
        event.alarm.key = vec![key.to_owned()];
        event.alarm.message = "what happened".to_owned();
        event
    };
    let mut tail = alarm::Lines::new(Zone::UTC, false);
    let at = |text: &str| {
        let places = text.lines().filter_map(|l| Some(l[..l.find("what happened")?].chars().count()));
        places.collect::<Vec<_>>()
    };
    let first = tail.text(&[keyed("a"), keyed("bbbb")]);
    let wider = tail.text(&[keyed("cccccccccc")]);
    let narrow = tail.text(&[keyed("d")]);
    // `lease_errors[bbbb]` is 18 wide, with ten letters it is 24.
    let before = "2026-11-30T12:01:00Z  CRITICAL  opened     acme/s1   ".len();
    assert_eq!((at(&first), at(&wider), at(&narrow)), (vec![before + 20; 2], vec![before + 26], vec![before + 26]));
    assert!(first.starts_with("TIME ") && !wider.contains("TIME "), "{wider}");
    // 48 places, whatever comes: the beginning and the end of it.
    let long = tail.text(&[keyed(&format!("{}{}", "x".repeat(5_000), "end")), keyed(&"서".repeat(200)), keyed("e")]);
    assert_eq!(at(&long)[0], before + 50);
    assert_eq!(at(&long)[2], before + 50);
    assert!(long.contains("  lease_errors[xxxxxxxxxxx…xxxxxxxxxxxxxxxxxxxend]  what"), "{long}");
    // 24 places before the mark hold 13 letters and 5 wide ones, 23 after it 11 wide ones and the bracket.
    let wide = format!("  lease_errors[{}…{}]   what", "서".repeat(5), "서".repeat(11));
    assert!(long.contains(&wide), "{long}");
}

#[test]
fn colour_is_added_around_the_same_text() {
    let event = [event("opened", None, "critical", 7)];
    let (plain, painted) = (lines(&event, "UTC", false), lines(&event, "UTC", true));
    assert_eq!(painted[1].replace("\x1b[1;31m", "").replace("\x1b[0m", ""), plain[1]);
    assert!(painted[1].contains("\x1b[1;31mCRITICAL\x1b[0m  \x1b[1;31mopened\x1b[0m  "), "{painted:?}");
    assert!(plain.iter().chain(painted.first()).all(|line| !line.contains('\x1b')));
}

#[test]
fn a_tenants_text_cannot_drive_the_terminal() {
    let mut evil = event("opened", None, "info", 1);
    evil.alarm.message = "a\x1b[2Jb\nc\u{202e}d".to_owned();
    evil.alarm.key = vec!["\r".to_owned()];
    let line = &lines(&[evil], "UTC", false)[1];
    assert!(line.ends_with("lease_errors[\u{fffd}]  a\u{fffd}[2Jb\u{fffd}c\u{fffd}d"), "{line:?}");
    assert_eq!(clean("Zürich 서울"), "Zürich 서울");
}

#[test]
fn timestamps_of_rows_are_in_the_zone_and_texts_that_look_like_them_are_not() {
    let rows: weir_model::service::Rows = of(json!({
        "columns": ["at", "said"], "types": ["Timestamp(µs, \"UTC\")", "Utf8"],
        "rows": [{"at": "2026-10-25T00:30:00Z", "said": "2026-10-25T00:30:00Z"}, {"at": null, "said": "x"}],
    }));
    assert_eq!(
        rows::table(&rows, "Europe/Berlin".parse().unwrap()).to_string(),
        "\
at                         said
2026-10-25T02:30:00+02:00  2026-10-25T00:30:00Z
                           x
"
    );
}

#[test]
fn tables_line_up_also_with_wide_letters() {
    assert_eq!(rows::table(&rows(), Zone::UTC).to_string(), "router     n\nEdge-034  60\n서울\u{fffd}[2J\n");
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
    let table = spark::table(&[record(7, json!("judged")), record(10, json!("no_verdict"))], Zone::UTC).to_string();
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

/// What runs and commits nothing does not look as if all were well.
#[test]
fn status_says_what_holds_up_a_host_and_a_scenario_that_runs() {
    let mut status = status("inc-1", &["acme"], Some(7));
    let full = Fault::host(FaultKind::Disk, "5 bytes of disk are free").fix("make room");
    status.fault = Some(full.clone());
    status.scenarios[0].fault = Some(Fault { message: format!("no batch begins: {}", full.message), ..full });
    let text = status::text(&status, Zone::UTC);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..3], [lines[0], "held up: 5 bytes of disk are free; make room", ""]);
    assert!(lines[4].starts_with("acme/s1   held up  "), "{text}");
    assert_eq!(lines[5], "  acme/s1: held up: no batch begins: 5 bytes of disk are free; make room");
}

/// The table `alarms` follows at its own pace: that is no backlog.
#[test]
fn a_sink_that_is_behind_on_purpose_is_not_shown_as_behind() {
    let mut status = status("inc-1", &["acme"], Some(7));
    let sinks = &mut status.scenarios[0].sinks;
    *sinks = vec![of(json!({"sink": "alarms", "drained_to": 6, "behind": 1, "fault": null, "in_pace": true}))];
    assert!(status::text(&status, Zone::UTC).contains("1 drained"), "{}", status::text(&status, Zone::UTC));
    status.scenarios[0].sinks[0].in_pace = false;
    assert!(status::text(&status, Zone::UTC).contains("alarms 1 behind"), "{}", status::text(&status, Zone::UTC));
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
        scenario
            .sinks
            .push(of(json!({"sink": "oncall", "drained_to": 7, "behind": 0, "fault": null, "dead_letters": 2})));
    }
    let short = digest("r").short();
    assert_eq!(
        status::text(&status, Zone::UTC),
        format!(
            "\
a host is running at 2026-11-30T12:01:30Z, ledger inc-1

SCENARIO  STATE   RULESET       PLUGIN           BATCH  TIME                  OUTCOME     ROWS  ALARMS   MS  OPEN  SKIPPED  SINKS
acme/s1   parked  {short}  s1-syslog 0.1.0      7  2026-11-30T12:01:00Z  no verdict   186       2  1.3     2        3  s1_results 2 behind
  acme/s1: parked: unreachable; see the log
  acme/s1: rejected since 2026-11-30T12:00:00Z: rules/1-2.json: no handler; export one (and 1 more problem)
  acme/s1: pinned to {short}; 'weir unpin acme/s1' undoes it
  acme/s1: sink s1_results: no folder
  acme/s1: sink oncall: 2 dead letters since the host was started; the table dead_letters says why

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
acme/s1 at 2026-11-30T12:01:00Z: replay of batch 7, ruleset {ruleset}, 186 rows in, 1 alarm raised, 0 cleared
the plugin could not judge

s1_results: 2 rows, digest {output}
router     n
Edge-034  60
서울\u{fffd}[2J

alarms:
TIME                  SEVERITY  CHANGE     SCENARIO  ALARM                                 MESSAGE
2026-11-30T12:01:00Z  CRITICAL  opened     acme/s1   lease_errors[Edge-034, 203.0.113.34]  60 errors, threshold 50

log:
info  hello
"
        )
    );
}

#[test]
fn a_side_run_says_truly_what_it_ran_on() {
    let told = |replayed: serde_json::Value, before: serde_json::Value| {
        let mut found = report(json!("judged"));
        (found.replayed, found.state_before, found.raised, found.cleared) = (of(replayed), of(before), 3, 2);
        let mut printed = Printed::default();
        report::side(&mut printed.out(false), &found).expect("printed");
        printed.stdout().lines().next().unwrap_or_default().to_owned()
    };
    let rest = format!("ruleset {}, 186 rows in, 1 alarm raised, 2 cleared", digest("r").short());
    for (replayed, before, what) in [
        (json!(7), json!(7), "replay of batch 7"),
        (json!(null), json!(7), "batch 7 on today's ruleset and rows, and the state before it"),
        (json!(null), json!(null), "a batch on empty state"),
    ] {
        assert_eq!(told(replayed, before), format!("acme/s1 at 2026-11-30T12:01:00Z: {what}, {rest}"));
    }
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

#[test]
fn every_time_that_people_read_is_in_the_zone() {
    let zone: Zone = "Asia/Seoul".parse().unwrap();
    let mut status = status("inc-1", &["acme"], Some(7));
    let notice = json!({"reason": "no handler", "file": "1-2.json", "since": "2026-11-30T12:00:00Z", "problems": []});
    if let Some(scenario) = status.scenarios.first_mut() {
        scenario.rejected = Some(of(notice.clone()));
        scenario.pending = Some(of(notice.clone()));
        scenario.paused = Some(of(json!("2026-11-30T12:00:30Z")));
    }
    status.streams[0].rejected = Some(of(notice));
    let text = status::text(&status, zone);
    let told = [
        "running at 2026-11-30T21:01:30+09:00,",
        " 2026-11-30T21:01:00+09:00 ",
        "rejected since 2026-11-30T21:00:00+09:00:",
        "pending since 2026-11-30T21:00:00+09:00:",
        "paused since 2026-11-30T21:00:30+09:00;",
        "acme/syslog: rejected since 2026-11-30T21:00:00+09:00:",
    ];
    told.iter().for_each(|t| assert!(text.contains(t), "{t}: {text}"));
    let table = spark::table(&[record(7, json!("judged"))], zone).to_string();
    assert!(table.contains("  2026-11-30T21:01:00+09:00  "), "{table}");
    let mut printed = Printed::default();
    let mut out = printed.out(false);
    out.zone = zone;
    report::side(&mut out, &report(json!("judged"))).expect("printed");
    let side = printed.stdout();
    assert!(side.starts_with("acme/s1 at 2026-11-30T21:01:00+09:00: "), "{side}");
    assert!(side.contains("\n2026-11-30T21:01:00+09:00  CRITICAL"), "{side}");
    for all in [text, table, side] {
        assert!(!all.contains("00Z"), "{all}");
    }
}
