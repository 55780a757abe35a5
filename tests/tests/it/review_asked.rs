//! What `weir review`, `weir batch` and `weir ledger` say of what is not there, of times without a batch, of versions that were
//! refused and of rules that do not answer.

use std::time::Duration;

use weir::print::review::text;
use weir_model::port::{Ledger, RuleStore};
use weir_model::review::{Reason, Review, ReviewAsk};
use weir_model::service::{BackfillAsk, Service};
use weir_model::zone::Zone;
use weir_model::{BatchId, Clock as _, Fault, FaultKind, RunKey, ScenarioId, Span, Time};

use crate::review::{ask, at, edited, last, rule};
use crate::support::example::{Example, Live};

fn minute(minute: &str) -> Time {
    format!("2026-01-31T{minute}:00Z").parse().unwrap()
}

fn told(review: &Review) -> String {
    text(review, Zone::UTC)
}

/// Rows of S1's stream in the hot window with an event time in `[from, to)`.
fn rows(live: &Live, from: Time, to: Time) -> u64 {
    let zoned = |time: Time| format!("arrow_cast('{time}', 'Timestamp(Microsecond, Some(\"UTC\"))')");
    let sql = format!(
        "SELECT count(*) AS n FROM hot_s1_router_syslog_events WHERE collected_at >= {} AND collected_at < {}",
        zoned(from),
        zoned(to)
    );
    let found = live.host.query(&"netops".parse().unwrap(), &sql).unwrap();
    found.rows[0]["n"].as_u64().unwrap()
}

#[test]
fn nobody_knows_a_scenario_and_all_say_so_in_the_same_words() {
    let example = Example::new();
    let live = example.open();
    let id: ScenarioId = "netops/nothing".parse().unwrap();
    let (host, noon, key) = (&live.host, minute("12:00"), RunKey::live(id.clone()));
    let review = |at, latest| host.review(&ReviewAsk { scenario: id.clone(), at, latest, rows: 1 }).map(drop);
    let ask = BackfillAsk {
        scenario: id.clone(),
        name: None,
        range: weir_model::batch::Between { from: minute("11:50"), to: noon },
        every: Span::secs(60),
        ruleset: None,
        publish: false,
        discard: false,
    };
    let expected = Fault::no_scenario(&id);
    assert_eq!(
        (expected.kind, expected.message.as_str()),
        (FaultKind::NotFound, "there is no scenario netops/nothing")
    );
    assert_eq!((&expected.file, &expected.field), (&None, &None), "nothing stands before it");
    for (what, answer) in [
        ("review", review(None, false)),
        ("review --at", review(Some(noon), false)),
        ("review --latest", review(None, true)),
        ("batch", host.side(&id, noon, false).map(drop)),
        ("batch --latest", host.side(&id, noon, true).map(drop)),
        ("ledger", host.ledger(&key, None, 3).map(drop)),
        ("ledger --limit", host.newest(&key, 3).map(drop)),
        ("backfill", host.backfill(&ask).map(drop)),
        ("history", host.history(&id).map(drop)),
        ("rollback", host.rollback(&id, None).map(drop)),
        ("unpin", host.unpin(&id)),
        ("forget", host.forget(&id)),
        ("resume", host.resume(&id)),
        ("pause", host.pause(&id)),
    ] {
        assert_eq!(answer, Err(expected.clone()), "{what}");
    }
    // One that is there and has had no batch is another matter.
    let fault = live.host.review(&crate::review::ask(&example, None)).unwrap_err();
    assert_eq!(
        (fault.kind, fault.field, fault.message.as_str()),
        (FaultKind::NotFound, None, "scenario netops/s1-syslog has no committed batch")
    );
    // Nor is one whose folder is gone: what it did can still be looked at.
    example.batches(&live);
    std::fs::remove_dir_all(example.store().join("netops/s1-syslog")).unwrap();
    example.until(&live, "the scenario is removed", |view| view.removed);
    assert_eq!(last(&example, &live).replayed, Some(BatchId(1)));
    let fault = live.host.pause(&example.scenario()).unwrap_err();
    assert!(fault.message.contains("is not in the rule store any more"), "{fault}");
}

#[test]
fn a_batch_that_never_was_sees_the_rows_before_its_time_and_says_what_it_ran_on() {
    let example = Example::new();
    let live = example.open();
    example.batches(&live);
    (0..3).for_each(|_| assert_eq!(example.minute(&live), 1));
    // 12:04 and 12:05 are left out.
    example.clock.advance(Duration::from_secs(180));
    assert_eq!(example.batches(&live), 1);
    assert!(
        rows(&live, minute("12:00"), minute("12:10")) > 6 * 98,
        "rows of six minutes after 12:00 are in the window"
    );
    let floor = |to: Time| to.minus(Duration::from_secs(20 * 60));
    // The rows that the batch before had not seen: those after its last one.
    let seen_by = |batch: &str| at(&example, &live, batch).inputs[0].rows.unwrap().last.unwrap();
    for (latest, time, id, before, what) in [
        (
            true,
            "12:03",
            Some(BatchId(4)),
            Some("12:02"),
            "batch 4 on today's ruleset and rows, and the state before it",
        ),
        (false, "11:58", None, None, "a batch on empty state"),
        (false, "12:05", None, Some("12:03"), "a batch on empty state"),
    ] {
        let t = minute(time);
        let review = live.host.review(&ReviewAsk { latest, ..ask(&example, Some(time)) }).unwrap();
        let seen = review.inputs[0].rows.unwrap();
        assert_eq!(seen.rows, rows(&live, floor(t), t), "{time}");
        assert!(seen.last.unwrap() < t, "{time}: {seen:?}");
        assert!(told(&review).lines().next().unwrap().contains(what), "{time}: {}", told(&review));
        assert!(!told(&review).contains("offset"), "{time}: {}", told(&review));
        // What a detector is told of the streams' progress is not of today either.
        let mark = review.plan.streams.values().next().unwrap().watermark.unwrap();
        assert!(mark <= t, "{time}: {mark}");
        let side = live.host.side(&example.scenario(), t, latest).unwrap();
        let since = before.map_or_else(|| floor(t), |batch| Time(seen_by(batch).micros() + 1));
        assert_eq!((side.rows_in, side.state_before, side.replayed), (rows(&live, since, t), id, None), "{time}");
        assert_eq!((side.raised, side.cleared), (review.raised, review.cleared), "{time}");
    }
    // What is replayed has seen what it has seen.
    let review = at(&example, &live, "12:03");
    assert!(told(&review).contains("; up to offset 0: "), "{}", told(&review));
    assert_eq!(review.plan.streams.values().next().unwrap().only, None);
}

#[test]
fn the_top_says_why_there_is_no_live_batch() {
    let example = Example::new();
    let live = example.open();
    example.batches(&live);
    let second = |time: &str| {
        let at = Some(format!("2026-01-31T{time}Z").parse().unwrap());
        told(&live.host.review(&ReviewAsk { at, ..ask(&example, None) }).unwrap()).lines().nth(1).unwrap().to_owned()
    };
    let at = "the live run has no batch at 2026-01-31T12:0";
    assert_eq!(second("12:00:10"), format!("{at}0:10Z: that is no time of its trigger, which is every 1m"));
    assert_eq!(
        second("11:59:00"),
        "the live run has no batch at 2026-01-31T11:59:00Z: it is before its first batch, or before what the ledger keeps"
    );
    live.host.pause(&example.scenario()).unwrap();
    let since = example.clock.now();
    example.clock.advance(Duration::from_secs(60));
    assert_eq!(
        second("12:01:00"),
        format!(
            "{at}1:00Z yet: the scenario is paused since {since}; 'weir resume netops/s1-syslog' lets it go on; its last \
             one is of 2026-01-31T12:00:00Z"
        )
    );
    let tail = told(&last(&example, &live));
    assert!(tail.contains("\nno batch was committed since: the scenario is paused since "), "{tail}");
}

#[test]
fn a_version_that_was_refused_stands_at_the_top() {
    let example = Example::new();
    let live = example.open();
    example.batches(&live);
    assert_eq!(last(&example, &live).rejected, None);
    example.edit("netops/s1-syslog/rules/1-1.json", "function handler(input)", "function pattern(input)");
    example.until(&live, "the bad rule is rejected", |v| v.pending.is_none() && v.rejected.is_some());
    let review = last(&example, &live);
    let notice = review.rejected.clone().unwrap();
    assert_eq!(notice.file, "netops/s1-syslog/rules/1-1.json");
    let top: Vec<String> = told(&review).lines().take(4).map(str::to_owned).collect();
    let said = "the newest version of the scenario is rejected since 2026-01-31T12:0";
    assert!(top[1].starts_with(said) && top[1].contains(&notice.reason) && top[1].contains("handler"), "{top:?}");
    assert_eq!(top[2], "batches run on the last good one");
    assert_eq!(top[3], "judged, 2 alarms raised, 0 cleared");

    // One that never was good has nothing to run on.
    let example = Example::new();
    example.edit("netops/s1-syslog/rules/1-1.json", "function handler(input)", "function pattern(input)");
    let live = example.open();
    let fault = live.host.review(&ask(&example, Some("12:00"))).unwrap_err();
    assert_eq!((fault.kind, fault.file.as_deref()), (FaultKind::NotFound, Some("netops/s1-syslog/rules/1-1.json")));
    let said = "scenario netops/s1-syslog has no active ruleset: its only version was rejected: ";
    assert!(fault.message.starts_with(said) && fault.message.contains("handler"), "{fault}");
}

#[test]
fn the_newest_batches_come_in_order() {
    let example = Example::new();
    let live = example.open();
    let key = RunKey::live(example.scenario());
    assert_eq!(live.host.newest(&key, 3), Ok(Vec::new()));
    example.batches(&live);
    (0..4).for_each(|_| assert_eq!(example.minute(&live), 1));
    let ids = |limit| live.host.newest(&key, limit).unwrap().iter().map(|r| r.plan.id.0).collect::<Vec<_>>();
    assert_eq!((ids(3), ids(100), ids(0)), (vec![3, 4, 5], vec![1, 2, 3, 4, 5], Vec::new()));
    assert_eq!(live.built.ledger.head(&key).unwrap().unwrap().plan.id, BatchId(5));
}

/// A function node that answers like this instead of what it should.
fn with_function(file: &str, from: &str, to: &str, scenario: &'static str) -> (Example, Live) {
    let example = Example::of(scenario);
    example.edit(
        &format!("netops/{scenario}/scenario.toml"),
        "on_failure = \"park\"",
        "on_failure = \"skip\"\nattempts = 1",
    );
    let live = example.open();
    assert!(live.built.store.scenario(&example.scenario()).unwrap().active.is_some());
    edited(&example, &live, || rule(&example, file, from, to));
    live.host.step(&example.scenario()).unwrap();
    (example, live)
}

#[test]
fn a_function_that_throws_is_named_with_what_it_threw() {
    // Rule 3-2 judges rows: each fails by itself, and nobody can tell.
    let throw = "throw new Error('no ratio of ' + input.ser_equip_ip); return { is_alarm:";
    let (example, live) = with_function("3-2", "return { is_alarm:", throw, "s3-iptv");
    let review = last(&example, &live);
    let said = told(&review);
    let Some(Reason::EvaluationsFailed { rule, failed: 3, evaluations: 3, error }) =
        review.reasons.iter().find(|reason| matches!(reason, Reason::EvaluationsFailed { .. }))
    else {
        panic!("{:?}", review.reasons)
    };
    assert!(rule == "3-2" && error.contains("no ratio of 198.51.100.211"), "{error}");
    for line in [
        "   row 0 failed: ",
        "\n  - rule 3-2 failed on 3 of 3 inputs: ",
        "\n  - 3 rows could not be judged and became dead letters\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }

    // Rule 1-1 is asked once: without its answer there is no batch.
    let throw = "throw new Error('no pattern today'); return { pattern:";
    let (example, live) = with_function("1-1", "return { pattern:", throw, "s1-syslog");
    let review = last(&example, &live);
    let said = told(&review);
    assert!(
        said.lines().take(3).any(|line| line.starts_with("failed: ") && line.contains("no pattern today")),
        "{said}"
    );
    assert!(
        said.contains("\n1. rule 1-1 on one input, error: ") && said.contains("\n  - the live batch failed, "),
        "{said}"
    );
    let names = "\n  - rule 1-1 answered an error: failed: Pattern: Error: no pattern today (near line ";
    assert!(said.contains(names), "{said}");
}

#[test]
fn a_function_that_never_ends_is_named_with_the_limit_that_ended_it() {
    for (file, from, scenario) in [("3-2", "return { is_alarm:", "s3-iptv"), ("1-1", "return { pattern:", "s1-syslog")]
    {
        let (example, live) = with_function(file, from, &format!("while (true) {{}} {from}"), scenario);
        let review = last(&example, &live);
        let said = told(&review);
        let top: Vec<&str> = said.lines().take(3).collect();
        assert!(
            top.iter().any(|line| {
                line.starts_with("failed: ") && line.contains("rule_time") && line.contains(&format!("{file}.json"))
            }),
            "{said}"
        );
        assert!(said.contains(&format!("rule {file} on ")) && said.contains(", error: "), "{said}");
        assert_eq!(said.matches("\n  - ").count(), 1, "one reason, which is the limit: {said}");
        assert!(said.contains("\n  - the live batch failed, and nobody judged: "), "{said}");
    }
}
