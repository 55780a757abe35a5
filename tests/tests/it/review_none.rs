//! Why there is no alarm: each reason that `weir review` gives, on the example and on batches that fail or never were.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use weir_model::batch::Outcome;
use weir_model::review::{Live as LiveRun, Made, Reason, ReviewAsk};
use weir_model::service::{ScenarioState, Service};
use weir_model::{BatchId, FaultKind, NoFaults, Time, VirtualClock};

use crate::lifecycle::QuietSources;
use crate::review::{ask, at, calls, edited, last, made, rule};
use crate::support::engines::open;
use crate::support::example::Example;
use crate::support::fakes::{OneScenario, quick_folder, summing};
use crate::support::feed;

#[test]
fn a_pattern_that_matches_nothing_and_a_threshold_that_nothing_reaches() {
    let example = Example::new();
    let live = example.open();
    edited(&example, &live, || rule(&example, "1-2", ">= 10", ">= 100"));
    edited(&example, &live, || rule(&example, "1-2", ">= 50", ">= 500"));
    example.batches(&live);
    let review = last(&example, &live);
    let no = Reason::RuleSaysNo { rule: "1-2".into(), field: "should_alarm".into(), inputs: 6 };
    assert_eq!((review.raised, review.reasons), (0, vec![no]));

    edited(&example, &live, || rule(&example, "1-1", "%sapDHCPLseStatePopulateErr%", "%nothing says this%"));
    example.minute(&live);
    let review = last(&example, &live);
    let params = json!({
        "from": "2026-01-31T11:59:00Z", "to": "2026-01-31T12:01:00Z", "pattern": "%nothing says this%",
    });
    let params = params.as_object().unwrap().clone();
    let expected = [
        Reason::EmptyAnswer { query: "error_counts".into(), calls: 1, params },
        Reason::RuleNotAsked { rule: "1-2".into() },
    ];
    assert_eq!(review.reasons, expected);

    // The batch before, on today's ruleset.
    let ask = ReviewAsk { latest: true, ..ask(&example, Some("12:00")) };
    let latest = live.host.review(&ask).unwrap();
    let LiveRun::Committed { id, agrees, .. } = latest.live else { panic!("it ran") };
    assert_eq!((id, agrees, latest.replayed), (BatchId(1), None, None));
    assert_eq!(calls(&latest), ["rule 1-1: 1, 1", "query error_counts: 0", "rule 1-2: 0, 0"]);
}

#[test]
fn rows_that_could_not_be_judged_are_told() {
    let example = Example::new();
    let live = example.open();
    // an answer without should_alarm for what is below every threshold
    edited(&example, &live, || {
        let file = example.store().join("netops/s1-syslog/rules/1-2.json");
        let text = std::fs::read_to_string(&file).unwrap();
        let mut graph: Value = serde_json::from_str(&text).unwrap();
        let table =
            graph["nodes"].as_array_mut().unwrap().iter_mut().find(|n| n["type"] == "decisionTableNode").unwrap();
        let rules = table["content"]["rules"].as_array_mut().unwrap();
        rules.clear();
        let _ = std::fs::remove_file(example.store().join("netops/s1-syslog/rules/1-2.cases.json"));
        std::fs::write(file, graph.to_string()).unwrap();
    });
    example.batches(&live);
    let review = last(&example, &live);
    assert_eq!(review.outcome, Outcome::NoVerdict);
    assert_eq!(review.reasons, [Reason::PutAside { rows: 6 }, Reason::NoVerdict]);
    let dead = review.outputs.iter().find(|(name, _)| name.as_str() == "dead_letters").unwrap().1;
    assert_eq!(dead.rows.rows[0]["reason"], "rule 1-2 answers no should_alarm, severity or alarm_reason");
}

#[test]
fn a_batch_that_fails_says_whose_fault_it_is_parked_or_committed() {
    let example = Example::new();
    let live = example.open();
    example.batches(&live);
    edited(&example, &live, || rule(&example, "1-1", "pattern:", "other:"));
    example.clock.advance(Duration::from_secs(60));
    live.host.reconcile().unwrap();
    for _ in 0..5 {
        live.host.step(&example.scenario()).unwrap();
    }
    // Parked: the batch has not happened, and the last one that has says so.
    let before = last(&example, &live);
    let held = before.held.unwrap();
    assert_eq!((before.replayed, held.state), (Some(BatchId(1)), Some(ScenarioState::Parked)));
    assert_eq!(held.fault.map(|fault| fault.kind), Some(FaultKind::PluginConfig));
    let review = at(&example, &live, "12:01");
    let [Reason::NotRun, Reason::Failed { fault }] = &review.reasons[..] else { panic!("{:?}", review.reasons) };
    assert_eq!((fault.kind, fault.whose), (FaultKind::PluginConfig, weir_model::Whose::Tenant));
    assert!(fault.message.contains("answers no pattern"), "{fault}");
    let LiveRun::NotYet { last: ended, state, fault: parked } = &review.live else { panic!("{:?}", review.live) };
    assert_eq!((*state, parked.as_ref()), (Some(ScenarioState::Parked), Some(fault)));
    assert_eq!(*ended, Some("2026-01-31T12:00:00Z".parse().unwrap()));
    assert_eq!(calls(&review), ["rule 1-1: 1, 1"], "what it asked until then");
    assert!(matches!(review.outcome, Outcome::Failed(_)));

    // Skipped: it has happened, as failed, and today's ruleset would have judged.
    edited(&example, &live, || {
        example.edit("netops/s1-syslog/scenario.toml", "on_failure = \"park\"", "on_failure = \"skip\"\nattempts = 1");
    });
    live.host.step(&example.scenario()).unwrap();
    let review = at(&example, &live, "12:01");
    assert!(matches!(&review.reasons[..], [Reason::LiveFailed { .. }, Reason::Failed { .. }]), "{:?}", review.reasons);
    assert_eq!(made(&review).iter().map(|m| m.1).collect::<Vec<_>>(), [Made::Stale; 2]);
    edited(&example, &live, || rule(&example, "1-1", "other:", "pattern:"));
    let latest = live.host.review(&ReviewAsk { latest: true, ..ask(&example, Some("12:01")) }).unwrap();
    // It would have raised again what was open when it came.
    let [Reason::LiveFailed { fault: recorded }, Reason::OpenAlready { alarms: 2 }] = &latest.reasons[..] else {
        panic!("{:?}", latest.reasons)
    };
    assert_eq!((recorded.kind, latest.raised), (FaultKind::PluginConfig, 2));
}

#[test]
fn a_column_that_the_plugin_does_not_find_is_named() {
    let example = Example::new();
    let live = example.open();
    edited(&example, &live, || {
        example.edit("netops/s1-syslog/queries/error_counts.sql", "AS err_cnt", "AS errors");
    });
    live.host.reconcile().unwrap();
    for _ in 0..5 {
        live.host.step(&example.scenario()).unwrap();
    }
    let fault = live.host.status().unwrap().scenarios.remove(0).fault.unwrap();
    assert_eq!(fault.kind, FaultKind::PluginData);
    assert!(fault.message.contains("column 'err_cnt' of query 'error_counts': no such column"), "{fault}");
}

#[test]
fn a_time_that_was_left_out_is_told_apart_from_one_that_is_still_to_come_and_one_that_never_was() {
    let example = Example::new();
    let live = example.open();
    example.batches(&live);
    live.host.pause(&example.scenario()).unwrap();
    example.clock.advance(Duration::from_secs(4 * 60));
    live.host.reconcile().unwrap();
    live.host.step(&example.scenario()).unwrap();
    let review = at(&example, &live, "12:03");
    assert_eq!(review.reasons, [Reason::NotRun], "with alarms on empty state: {:?}", made(&review));
    let ended = Some("2026-01-31T12:00:00Z".parse().unwrap());
    assert_eq!(review.live, LiveRun::NotYet { last: ended, state: Some(ScenarioState::Paused), fault: None });

    live.host.resume(&example.scenario()).unwrap();
    example.batches(&live);
    let [first, last] = ["2026-01-31T12:01:00Z", "2026-01-31T12:03:00Z"].map(|t| t.parse().unwrap());
    for (minute, live_run) in
        [("12:02", LiveRun::Skipped { by: BatchId(2), first, last, count: 3 }), ("11:50", LiveRun::Never)]
    {
        let review = at(&example, &live, minute);
        assert_eq!((review.replayed, review.live, review.reasons), (None, live_run, vec![Reason::NotRun]), "{minute}");
    }
    let off = ReviewAsk { at: Some("2026-01-31T12:02:17Z".parse().unwrap()), ..ask(&example, None) };
    assert_eq!(live.host.review(&off).unwrap().live, LiveRun::Never, "it is no minute");

    let before = live.host.review(&ask(&example, Some("10:00"))).unwrap_err();
    assert_eq!(before.kind, FaultKind::NotReplayable);
}

#[test]
fn an_unread_source_and_a_stream_without_rows_are_told() {
    let store = OneScenario::new("", summing());
    let (dir, clock) = (quick_folder(), VirtualClock::new(Time(90_000_000)));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let unread = Arc::new(AtomicBool::new(false));
    let sources = Arc::new(QuietSources(unread.clone()));
    let opened =
        open(dir.path(), Arc::new(clock.clone()), runtime.handle().clone(), Arc::new(NoFaults), sources, store.clone())
            .unwrap();
    opened.host.reconcile().unwrap();
    opened.host.step(&store.id()).unwrap();
    unread.store(true, Ordering::Release);
    clock.advance(Duration::from_secs(60));
    opened.host.step(&store.id()).unwrap();
    // The source still cannot be read, and a replay does not ask it for what is there.
    let review = |at: Time| {
        opened.host.review(&ReviewAsk { scenario: store.id(), at: Some(at), latest: false, rows: 5 }).unwrap().reasons
    };
    let no_rows = |to: Time| Reason::NoRows {
        stream: "events".parse().unwrap(),
        from: to.minus(Duration::from_secs(300)),
        to,
        new_only: true,
    };
    let minute = |n: i64| Time(n * 60_000_000);
    assert_eq!(review(minute(1)), [no_rows(minute(1))]);
    assert_eq!(review(minute(2)), [Reason::Unread { stream: "events".parse().unwrap() }, no_rows(minute(2))]);
}

/// Messages of router 34 that match, so many in each of these minutes.
fn messages(minutes: &[(&str, u32)]) -> String {
    let one = |minute: &str, n: u32| {
        format!(
            "('Edge-RouterA-034', '203.0.113.34', arrow_cast('2026-01-31T{minute}:{n:02}Z', \
             'Timestamp(Microsecond, Some(\"UTC\"))'), 'sapDHCPLseStatePopulateErr')"
        )
    };
    let all = minutes.iter().flat_map(|(minute, count)| (0..*count).map(move |n| one(minute, n)));
    all.collect::<Vec<_>>().join(", ")
}

#[test]
fn an_alarm_that_is_over_was_cleared_and_what_the_rule_still_says_is_kept_back() {
    for scenario in ["s1-syslog", "s1-rule-only"] {
        let example = Example::of(scenario);
        let columns = "router_host, router_ip, collected_at, syslog_message";
        let sent = messages(&[("11:58", 50), ("11:59", 50), ("12:00", 2)]);
        feed::stream(&example, "s1_router_syslog_events", columns, &sent);
        let live = example.open();
        example.batches(&live);
        assert_eq!(last(&example, &live).reasons, []);
        example.minute(&live);
        // 11:59 is still critical and was reported; the last full minute is well.
        let review = last(&example, &live);
        let key = "Edge-RouterA-034 203.0.113.34".to_owned();
        assert_eq!((review.raised, made(&review)), (1, vec![(key, Made::Cleared)]));
        let [Reason::OnlyCleared { alarms: 1 }, Reason::KeptBack { rule, field, yes: 1, found: 2 }] =
            &review.reasons[..]
        else {
            panic!("{scenario}: {:?}", review.reasons)
        };
        assert_eq!((rule.as_str(), field.as_deref()), ("1-2", Some("should_alarm")));
        // A minute later nothing is left to say yes to.
        example.minute(&live);
        let no = Reason::RuleSaysNo { rule: "1-2".into(), field: "should_alarm".into(), inputs: 1 };
        assert_eq!(last(&example, &live).reasons, [no]);
    }
}
