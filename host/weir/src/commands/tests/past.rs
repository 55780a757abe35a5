//! `weir backfill` and `weir generate`, as far as a command goes.

use serde_json::json;
use weir_model::fault::FaultKind;
use weir_model::service::BackfillProgress;

use super::*;
use crate::testing::{digest, of, status};

fn progress(done: u64, published: bool) -> BackfillProgress {
    of(json!({
        "run": {"scenario": "acme/s1", "run": "backfill:b"}, "ruleset": digest("r"), "base": 4, "done": done, "total": 720,
        "time": "2026-11-30T02:07:00Z", "rows_in": 1_000, "results": 10, "alarms": 4, "failed": 1,
        "publish": published, "published": published, "trigger": "10s",
    }))
}

fn fake(answers: Vec<Result<BackfillProgress, Fault>>) -> Fake {
    let fake = Fake::new(status("inc-1", &["acme"], Some(7)));
    *crate::testing::lock(&fake.progress) = answers.into();
    fake
}

const PERIOD: &str = "--from 2026-11-30T00:00:00Z --to 2026-11-30T12:00:00Z --data {data}";

#[test]
fn a_backfill_is_asked_for_until_it_is_finished_and_its_counts_are_summed() {
    let line = format!("weir backfill acme/s1 {PERIOD} --publish --json");
    let (exit, printed) = weir(&line, fake(vec![Ok(progress(128, false)), Ok(progress(720, true))]));
    assert_eq!(exit, Exit::Done);
    let objects = printed.objects();
    assert_eq!(objects.len(), 1, "{objects:?}");
    for (field, value) in [
        ("scenario", json!("s1")),
        ("run", json!("backfill:b")),
        ("base", json!(4)),
        ("every", json!("1m")),
        ("batches", json!(720)),
        ("total", json!(720)),
        ("rows_in", json!(2_000)),
        ("results", json!(20)),
        ("alarms", json!(8)),
        ("failed", json!(2)),
        ("published", json!(true)),
        ("fault", json!(null)),
    ] {
        assert_eq!(objects[0][field], value, "{field}");
    }
    assert_eq!(printed.stderr(), "", "progress is for terminals");
}

#[test]
fn people_get_a_table_and_are_told_that_nothing_was_published() {
    let (exit, printed) = weir(&format!("weir backfill acme/s1 {PERIOD}"), fake(vec![Ok(progress(720, false))]));
    assert_eq!(exit, Exit::Done);
    let text = printed.stdout();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("SCENARIO") && lines[1].starts_with("acme/s1"), "{text}");
    assert!(lines[1].contains("720/720") && lines[1].ends_with("no"), "{text}");
    assert!(printed.stderr().contains("--publish"), "{}", printed.stderr());
    assert!(printed.stderr().contains("acme/s1: a batch each 1m, and its trigger is 10s"), "{}", printed.stderr());

    let (_, printed) =
        weir(&format!("weir backfill acme/s1 {PERIOD} --every 10s"), fake(vec![Ok(progress(720, true))]));
    assert!(!printed.stderr().contains("trigger"), "{}", printed.stderr());
}

#[test]
fn a_fault_ends_it_after_what_was_done_is_told() {
    let stuck = Fault::tenant(FaultKind::Trap, "unreachable");
    let (exit, printed) =
        weir(&format!("weir backfill acme/s1 {PERIOD} --json"), fake(vec![Ok(progress(128, false)), Err(stuck)]));
    assert_eq!(exit, Exit::Problems);
    let objects = printed.objects();
    assert_eq!((&objects[0]["batches"], &objects[0]["fault"]["kind"]), (&json!(128), &json!("trap")));
    assert!(printed.stderr().contains("unreachable"), "{}", printed.stderr());
}

/// Which of the two fails first is not decided; that both did has to be seen, and nothing was done that a table could show.
#[test]
fn each_scenarios_fault_is_told() {
    let faults = ["one reason", "another reason"].map(|why| Err(Fault::tenant(FaultKind::Trap, why)));
    let (exit, printed) = weir(&format!("weir backfill acme/s1 acme/s2 {PERIOD}"), fake(faults.into()));
    assert_eq!((exit, printed.stdout().as_str()), (Exit::Problems, ""));
    let told = printed.stderr();
    for words in ["one reason", "another reason", "acme/s1: ", "acme/s2: "] {
        assert_eq!(told.matches(words).count(), 1, "{words}: {told}");
    }
}

#[test]
fn a_period_without_a_zone_is_one_of_the_reader() {
    let line = "weir backfill acme/s1 --from 2026-11-30T09:00 --to 2026-11-30T21:00 --timezone Asia/Seoul --json --data {data}";
    let (exit, printed) = weir(line, fake(vec![Ok(progress(720, false))]));
    assert_eq!(exit, Exit::Done);
    let found = &printed.objects()[0];
    assert_eq!((&found["from"], &found["to"]), (&json!("2026-11-30T00:00:00Z"), &json!("2026-11-30T12:00:00Z")));
    let (exit, printed) = weir(
        &line.replace("2026-11-30T09:00", "2026-03-29T02:30").replace("Asia/Seoul", "Europe/Berlin"),
        fake(Vec::new()),
    );
    assert_eq!(exit, Exit::Usage);
    let told = printed.stderr();
    assert!(told.contains("--from: 2026-03-29T02:30:00 is not there in Europe/Berlin"), "{told}");
    assert!(told.contains("2026-03-29T01:30:00+01:00 or 2026-03-29T03:30:00+02:00"), "{told}");
}

#[test]
fn history_needs_a_place_and_whole_minutes() {
    let folder = tempfile::tempdir().expect("a folder");
    let ask = |line: &str| on(folder.path(), line, Opened(None.into(), Vec::new()));
    let (exit, printed) = ask("weir generate network-cep --from 2026-11-30T00:00:00Z --to 2026-11-30T12:00:00Z");
    assert_eq!(exit, Exit::Usage);
    assert!(printed.stderr().contains("--out"), "{}", printed.stderr());
    let (exit, printed) =
        ask("weir generate network-cep --from 2026-11-30T00:00:30Z --to 2026-11-30T12:00:00Z --out {data}/x");
    assert_eq!(exit, Exit::Usage, "{}", printed.stderr());
    assert!(!folder.path().join("x").exists());
    // Nine in the morning in Seoul is midnight UTC.
    let (exit, printed) = ask(
        "weir generate network-cep --from 2026-11-30T09:00 --timezone Asia/Seoul --to 2026-11-30T00:10:00Z --out {data}/x --format json --json",
    );
    assert_eq!(exit, Exit::Done, "{}", printed.stderr());
    let streams = printed.objects()[0]["streams"].clone();
    assert_eq!(streams[0], json!({"stream": "s1_router_syslog_events", "rows": 980}));
    assert_eq!(streams.as_array().map(Vec::len), Some(6));
    assert!(folder.path().join("x/s2_traffic_forecast/2026-11-30.jsonl").is_file());
}
