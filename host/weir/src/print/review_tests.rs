#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::{Value, json};
use weir_model::batch::Between;
use weir_model::fault::{Fault, FaultKind};
use weir_model::review::{Answered, Call};
use weir_model::zone::Zone;

use super::text;
use crate::testing::{of, review};

#[test]
fn a_batch_is_told_in_the_order_in_which_it_came_to_its_result() {
    let told = text(&review(json!("judged")), Zone::UTC);
    let ruleset = review(json!("judged")).plan.ruleset.short();
    let syslog = "syslog: window from 2026-11-30T11:46:00Z to 2026-11-30T12:01:00Z, 186 rows of 2026-11-30T11:46:10Z to \
                  2026-11-30T12:00:59Z, 177 new since the batch before; up to offset 0: 500, 1: 4";
    let expected = format!(
        "\
acme/s1 at 2026-11-30T12:01:00Z: replay of batch 7, ruleset {ruleset}
judged, 1 alarm raised, 0 cleared
the live batch came to the same

inputs
  {syslog}

1. query counts: 64000 rows
   with from = 2026-11-30T11:59:00Z, least = 1.5
   with 1 row as table known
   of syslog from 2026-11-30T11:59:00Z to 2026-11-30T12:01:00Z: 12 rows
     router     n
     서울\u{fffd}[2J  60
     (63999 rows more; --rows N shows N)

2. rule 1-2 on 64000 rows
   with limit = 50
   alarm: 63998 false, 1 null, 1 true
   row 9 failed: n is no number
     row  router     n  -> alarm
       3  서울\u{fffd}[2J  60  true
     (63999 rows more; --rows N shows N)

3. query none: error: failed: x

2 calls more, which are not shown

state: 2 keys read, 1 found; 1 put, 0 deleted
     read    open/a: nothing
     put     b = x
     (1 more)

alarms
  MAJOR     updated    lease_errors[Edge-034]: 60 errors (open since 2026-11-30T12:00:00Z, raised 3 times)
            because of query counts (step 1) row 3
  (4 alarms more)

output s1_results: 1 row
     router  n
     a       1

log
  info  hello

why no alarm was opened or changed
  - the alarm that was raised is open already: its count moves, and nobody is told again
"
    );
    assert_eq!(told, expected);
    let there = text(&review(json!("judged")), "Asia/Seoul".parse().unwrap());
    assert!(!there.contains('Z'), "every instant is in the zone: {there}");
    assert!(there.contains("with from = 2026-11-30T20:59:00+09:00, least = 1.5"), "{there}");
}

#[test]
fn why_there_is_no_live_batch_and_a_rejected_version_stand_at_the_top() {
    let mut found = review(json!("judged"));
    found.live = of(json!({"is": "never"}));
    (found.replayed, found.reasons) = (None, of(json!([{"why": "not_run"}])));
    found.rejected = of(json!({"reason": "no handler; export one", "file": "acme/s1/rules/1-2.json",
                               "since": "2026-11-30T12:00:30Z", "problems": []}));
    (found.raised, found.cleared) = (3, 2);
    let told = text(&found, Zone::UTC);
    let ruleset = found.plan.ruleset.short();
    let top = format!(
        "\
acme/s1 at 2026-11-30T12:01:00Z: a batch on empty state, ruleset {ruleset}
the live run has no batch at 2026-11-30T12:01:00Z: it is before its first batch, or before what the ledger keeps
the newest version of the scenario is rejected since 2026-11-30T12:00:30Z: acme/s1/rules/1-2.json: no handler; export one
batches run on the last good one
judged, 1 alarm raised, 2 cleared

inputs
"
    );
    assert!(told.starts_with(&top), "{told}");
    assert_eq!(told.matches("the live run has no batch").count(), 1, "{told}");
    assert!(!told.contains("why"), "{told}");
    found.reasons = of(json!([{"why": "not_run"}, {"why": "no_verdict"}]));
    let told = text(&found, Zone::UTC);
    assert!(
        told.ends_with("\nwhy no alarm was opened or changed\n  - the detector says that it could not judge\n"),
        "{told}"
    );
    // Of a committed time on today's ruleset.
    found.live = of(json!({"is": "committed", "id": 7, "outcome": "judged", "raised": 1, "events": 2, "agrees": null}));
    let told = text(&found, Zone::UTC);
    assert!(told.contains(": batch 7 on today's ruleset and rows, and the state before it, ruleset "), "{told}");
    assert!(told.contains("\nthe live batch judged, named 1 alarm and made 2 changes of alarms\n"), "{told}");
}

#[test]
fn no_rows_and_empty_values_read_well() {
    let mut found = review(json!("judged"));
    if let Some(state) = &mut found.state {
        state.entries = of(json!([{"what": "put", "key": "b", "value": ""}]));
    }
    let told = text(&found, Zone::UTC);
    assert!(told.contains("\n     put     b = (empty)\n     (2 more)\n"), "{told}");
    // As --rows 0 makes it.
    for sample in found.outputs.values_mut() {
        sample.rows.rows.clear();
    }
    let clear = |answer: &mut Answered| {
        if let Answered::Rows(sample) = answer {
            sample.rows.rows.clear();
        }
    };
    for call in &mut found.calls {
        match call {
            Call::Input { answer, .. } | Call::Query { answer, .. } => clear(answer),
            Call::Rule { each, answer, .. } => {
                clear(answer);
                each.iter_mut().for_each(|each| each.rows.rows.clear());
            }
        }
    }
    if let Some(state) = &mut found.state {
        state.entries.clear();
    }
    (found.alarms_left_out, found.alarms) = (5, Vec::new());
    let told = text(&found, Zone::UTC);
    for text in [
        "1. query counts: 64000 rows\n",
        "12 rows\n     (not shown; --rows N shows N)\n\n2. rule 1-2 on 64000 rows\n",
        "   row 9 failed: n is no number\n     (not shown; --rows N shows N)\n",
        "1 put, 0 deleted\n     (not shown; --rows N shows N)\n\nalarms: 5 (not shown; --rows N shows N)\n\noutput s1_results: 1 \
         row\n     (not shown; --rows N shows N)\n",
    ] {
        assert!(told.contains(text), "{text}: {told}");
    }
    assert!(!told.contains(" more;"), "{told}");
}

#[test]
fn rows_that_are_seen_by_time_have_no_offsets_of_today() {
    let mut found = review(json!("judged"));
    assert!(text(&found, Zone::UTC).contains("new since the batch before; up to offset 0: 500, 1: 4\n"));
    for pin in found.plan.streams.values_mut() {
        pin.only = Some(Between::before(found.plan.time));
    }
    let told = text(&found, Zone::UTC);
    assert!(told.contains("new since the batch before\n") && !told.contains("offset"), "{told}");
}

#[test]
fn the_last_batch_says_what_holds_the_next() {
    let mut found = review(json!("judged"));
    assert!(!text(&found, Zone::UTC).contains("since:"));
    found.held = of(json!({"state": "parked", "fault": Fault::tenant(FaultKind::Cpu, "out of fuel")}));
    let told = text(&found, Zone::UTC);
    let parked = "the scenario is parked until it is changed or 'weir resume acme/s1': out of fuel";
    assert!(told.contains(&format!("\nno batch was committed since: {parked}\n")), "{told}");
    (found.held, found.paused) = (of(json!({"state": "paused", "fault": null})), of(json!("2026-11-30T12:01:10Z")));
    let told = text(&found, Zone::UTC);
    let paused = "the scenario is paused since 2026-11-30T12:01:10Z; 'weir resume acme/s1' lets it go on";
    assert!(told.contains(&format!("\nno batch was committed since: {paused}\n")), "{told}");
    found.held = of(json!({"state": "running", "fault": Fault::external(FaultKind::Source, "no table")}));
    let told = text(&found, Zone::UTC);
    assert!(told.contains("\nno batch was committed since: the scenario does not get on: no table\n"), "{told}");
}

/// The sentences, with what became of the time in the live run.
fn why(live: Value, reasons: Value) -> Vec<String> {
    let mut found = review(json!("judged"));
    found.raised = 0;
    (found.live, found.reasons) = (of(live), of(reasons));
    let told = text(&found, Zone::UTC);
    let (_, reasons) = told.split_once("why no alarm was opened or changed\n").unwrap();
    reasons.lines().map(|line| line.strip_prefix("  - ").unwrap().to_owned()).collect()
}

#[test]
fn every_reason_is_a_sentence() {
    let (from, to) = ("2026-11-30T11:46:00Z", "2026-11-30T12:01:00Z");
    let fault = Fault::tenant(FaultKind::Cpu, "out of fuel");
    // The same again is told once.
    let other = Fault::tenant(FaultKind::Memory, "no memory");
    let params = json!({"from": from, "pattern": "%x%"});
    let told = why(
        json!({"is": "never"}),
        json!([
            {"why": "live_failed", "fault": fault}, {"why": "failed", "fault": other},
            {"why": "failed", "fault": fault},
            {"why": "unread", "stream": "s"},
            {"why": "no_rows", "stream": "s", "from": from, "to": to, "new_only": false},
            {"why": "no_rows", "stream": "s", "from": from, "to": to, "new_only": true},
            {"why": "none_in_range", "query": "q", "stream": "s", "from": from, "to": to, "latest": from},
            {"why": "none_in_range", "query": "q", "stream": "s", "from": from, "to": to, "latest": null},
            {"why": "empty_answer", "query": "q", "calls": 1, "params": params},
            {"why": "empty_answer", "query": "q", "calls": 3, "params": {}},
            {"why": "call_error", "what": "query", "name": "q", "calls": 2, "error": "undeclared"},
            {"why": "evaluations_failed", "rule": "r", "failed": 2, "evaluations": 6, "error": "no number"},
            {"why": "rule_says_no", "rule": "r", "field": "alarm", "inputs": 1},
            {"why": "rule_says_no", "rule": "r", "field": "alarm", "inputs": 6},
            {"why": "rule_finds_none", "rule": "r", "calls": 1},
            {"why": "rule_not_asked", "rule": "r"},
            {"why": "kept_back", "rule": "r", "field": "alarm", "yes": 4, "found": 0},
            {"why": "kept_back", "rule": "r", "field": null, "yes": 1, "found": 2},
            {"why": "put_aside", "rows": 3}, {"why": "no_verdict"}, {"why": "only_cleared", "alarms": 2},
            {"why": "open_already", "alarms": 2}, {"why": "asked_nothing"}, {"why": "unexplained"},
        ]),
    );
    let range = "query q looks at s from 2026-11-30T11:46:00Z to 2026-11-30T12:01:00Z, and there is no row";
    let expected = [
        "the live batch failed, and nobody judged: out of fuel",
        "the batch fails: no memory",
        "the source of s was not read to its end: rows may be missing, and nothing clears",
        "stream s has no row from 2026-11-30T11:46:00Z to 2026-11-30T12:01:00Z",
        "stream s has no new row",
        &format!("{range}; the latest row is of 2026-11-30T11:46:00Z"),
        range,
        "query q answered no row, with from = 2026-11-30T11:46:00Z, pattern = %x%",
        "query q answered no row each of 3 times",
        "query q answered an error each of 2 times: undeclared",
        "rule r failed on 2 of 6 inputs: no number",
        "rule r answered alarm = false for its one input",
        "rule r answered alarm = false for all of 6 inputs",
        "rule r answered an empty array",
        "rule r had nothing to judge",
        "rule r answered alarm = true for 4 inputs, and the detector raised nothing of it",
        "rule r answered 1 element, and the detector raised nothing of it; it found 2 values in its state",
        "3 rows could not be judged and became dead letters",
        "the detector says that it could not judge",
        "the detector cleared 2 alarms and raised none",
        "the 2 alarms that were raised are open already: their counts move, and nobody is told again",
        "the detector asked for no query, no rule and no rows",
        "the detector raised nothing, and nothing of what it asked for says why",
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_time_without_a_batch_says_what_became_of_it() {
    let (first, last) = ("2026-11-30T11:58:00Z", "2026-11-30T12:02:00Z");
    let fault = Fault::tenant(FaultKind::Cpu, "out of fuel");
    let told = |live: Value, every: Value| {
        let mut found = review(json!("judged"));
        (found.live, found.every, found.reasons) = (of(live), of(every), of(json!([{"why": "not_run"}])));
        text(&found, Zone::UTC).lines().nth(1).unwrap().to_owned()
    };
    let not_yet = |last: Value, state: Value| json!({"is": "not_yet", "last": last, "state": state, "fault": null});
    let at = "the live run has no batch at 2026-11-30T12:01:00Z";
    let its_last = format!("its last one is of {first}");
    for (live, every, expected) in [
        (
            json!({"is": "skipped", "by": 8, "first": first, "last": last, "count": 5}),
            json!("1m"),
            format!(
                "{at}: it did not tick then (the host was down, or the scenario paused or parked), and batch 8 left out \
                 5 ticks from {first} to {last}"
            ),
        ),
        (
            json!({"is": "not_yet", "last": first, "state": "parked", "fault": fault}),
            json!("1m"),
            format!(
                "{at} yet: the scenario is parked until it is changed or 'weir resume acme/s1': out of fuel; {its_last}"
            ),
        ),
        (
            not_yet(json!(first), json!("paused")),
            json!("1m"),
            format!("{at} yet: the scenario is paused; 'weir resume acme/s1' lets it go on; {its_last}"),
        ),
        (
            not_yet(json!(first), json!("running")),
            json!("1m"),
            format!("{at} yet: it is due, and waits for its streams or its turn; {its_last}"),
        ),
        (
            not_yet(json!(first), json!("running")),
            json!(null),
            format!("{at} yet: the scenario waits for its trigger; {its_last}"),
        ),
        (not_yet(json!(null), json!(null)), json!("1m"), format!("{at} yet: no host is running; it has had none")),
        (
            not_yet(json!(first), json!("paused")),
            json!("7m"),
            format!("{at}: that is no time of its trigger, which is every 7m"),
        ),
        (json!({"is": "never"}), json!("2m"), format!("{at}: that is no time of its trigger, which is every 2m")),
        (
            json!({"is": "never"}),
            json!("1m"),
            format!("{at}: it is before its first batch, or before what the ledger keeps"),
        ),
    ] {
        assert_eq!(told(live.clone(), every.clone()), expected, "{live} {every}");
    }
}
