#![allow(clippy::unwrap_used)]

use super::*;
use serde_json::{Value, json};
use weir_model::{Fault, FaultKind, Time};

const T: &str = "2026-01-31T12:00:00Z";
const FROM: &str = "2026-01-31T11:40:00Z";

fn time(text: &str) -> Time {
    text.parse().unwrap()
}

/// A judged batch that saw rows, asked one query and one rule, and raised nothing; with fields replaced by path.
fn review(changes: &[(&str, Value)]) -> Review {
    let zeros = weir_model::Digest([0; 32]);
    let mut all = json!({
        "plan": {"key": {"scenario": "t/s", "run": "side:at"}, "id": 1, "time": T, "ruleset": zeros, "attempt": 1,
                 "streams": {}},
        "replayed": 1,
        "live": {"is": "committed", "id": 1, "outcome": "judged", "raised": 0, "events": 0, "agrees": true},
        "outcome": "judged",
        "inputs": [{"stream": "syslog", "from": FROM, "to": T, "after": {"0": 1}, "upto": {"0": 9}, "new_only": false,
                    "rows": {"rows": 8, "first": FROM, "last": "2026-01-31T11:59:00Z"}, "new_rows": 2, "read": true}],
        "calls": [
            {"call": "query", "query": "counts", "params": {"from": "2026-01-31T11:58:00Z"}, "tables": {},
             "reads": [{"stream": "syslog", "from": "2026-01-31T11:58:00Z", "to": T, "rows": 5}],
             "answer": {"rows": {"columns": ["n"], "types": ["Int64"], "rows": [{"n": 1}], "numbers": [0], "total": 3}}},
        ],
        "calls_left_out": 0, "held": null,
        "queries": [{"query": "counts", "calls": 1, "empty": 0, "errors": 0, "rows": 3, "empty_params": null, "error": null}],
        "rules": [{"rule": "judge", "calls": 1, "errors": 0, "evaluations": 3, "failed": 0, "elements": null, "rows": 3,
                   "truths": [], "error": null}],
        "state": {"read": 4, "found": 3, "scanned": 0, "put": 0, "deleted": 0, "entries": []},
        "raised": 0, "alarms": [], "alarms_left_out": 0, "outputs": {}, "log": [],
        "usage": {"fuel": 0, "memory_peak": 0, "host_calls": 2},
        "reasons": [],
    });
    for (path, value) in changes {
        *all.pointer_mut(path).unwrap() = value.clone();
    }
    serde_json::from_value(all).unwrap()
}

fn alarm(made: &str, said: bool) -> Value {
    json!({"name": "a", "key": ["k"], "said": said, "made": made, "severity": "major", "before": null, "message": "",
           "count": 1, "opened_at": T, "quiet": 0, "because": []})
}

fn reasons(changes: &[(&str, Value)]) -> Vec<Reason> {
    of(&review(changes))
}

fn fault() -> Fault {
    Fault::tenant(FaultKind::Cpu, "out of fuel")
}

#[test]
fn an_alarm_that_is_told_needs_no_reason_whatever_else_there_was() {
    for made in ["opened", "reopened", "escalated", "lowered", "fresh"] {
        let changes = [("/alarms", json!([alarm(made, true)])), ("/inputs/0/read", false.into())];
        assert_eq!(reasons(&changes), [], "{made}");
    }
    // What the host did by itself is no alarm of this batch.
    for made in ["cleared", "stale", "fresh", "quiet"] {
        assert_eq!(reasons(&[("/alarms", json!([alarm(made, false)]))]), [Reason::Unexplained], "{made}");
    }
}

#[test]
fn an_alarm_that_is_open_already_is_not_told_again() {
    let alarms = json!([alarm("updated", true), alarm("updated", true), alarm("overruled", true)]);
    assert_eq!(reasons(&[("/alarms", alarms)]), [Reason::OpenAlready { alarms: 2 }]);
    let cleared = json!([alarm("cleared", true), alarm("nothing", true)]);
    assert_eq!(reasons(&[("/alarms", cleared)]), [Reason::OnlyCleared { alarms: 1 }]);
}

#[test]
fn a_batch_that_fails_says_nothing_but_its_fault() {
    let changes = [("/outcome", json!({"failed": fault()})), ("/inputs/0/read", false.into())];
    assert_eq!(reasons(&changes), [Reason::Failed { fault: fault() }]);
}

#[test]
fn a_batch_that_fails_names_what_it_was_told_and_a_limit_once() {
    let failed = ("/outcome", json!({"failed": fault()}));
    let told =
        |error: &str| reasons(&[failed.clone(), ("/rules/0/errors", 1.into()), ("/rules/0/error", error.into())]);
    let error = Reason::CallError { what: "rule".into(), name: "judge".into(), calls: 1, error: "it threw".into() };
    assert_eq!(told("it threw"), [error, Reason::Failed { fault: fault() }]);
    assert_eq!(told(&fault().to_string()), [Reason::Failed { fault: fault() }]);
}

#[test]
fn the_live_batch_that_failed_or_never_was_is_named_even_if_there_are_alarms_here() {
    let opened = ("/alarms", json!([alarm("opened", true)]));
    let failed = ("/live/outcome", json!({"failed": fault()}));
    assert_eq!(reasons(&[opened.clone(), failed]), [Reason::LiveFailed { fault: fault() }]);
    for live in [
        json!({"is": "never"}),
        json!({"is": "skipped", "by": 7, "first": FROM, "last": T, "count": 20}),
        json!({"is": "not_yet", "last": null, "state": "parked", "fault": fault()}),
    ] {
        assert_eq!(reasons(&[opened.clone(), ("/live", live)]), [Reason::NotRun]);
    }
}

#[test]
fn sources_that_were_not_read_and_streams_without_rows_are_named() {
    let stream: weir_model::Name = "syslog".parse().unwrap();
    assert_eq!(reasons(&[("/inputs/0/read", false.into())]), [Reason::Unread { stream: stream.clone() }]);
    let no_rows = [
        ("/inputs/0/rows", json!({"rows": 0, "first": null, "last": null})),
        ("/calls/0/reads/0/rows", 0.into()),
        ("/inputs/0/new_only", true.into()),
    ];
    let (from, to) = (time(FROM), time(T));
    assert_eq!(reasons(&no_rows), [Reason::NoRows { stream, from, to, new_only: true }]);
    assert_eq!(reasons(&[("/inputs/0/rows", Value::Null)]), [Reason::Unexplained], "not counted is not none");
}

#[test]
fn a_range_without_rows_is_named_with_the_latest_row_before_it() {
    let stream: weir_model::Name = "syslog".parse().unwrap();
    let none = |latest: Option<&str>| Reason::NoneInRange {
        query: "counts".into(),
        stream: stream.clone(),
        from: time("2026-01-31T11:58:00Z"),
        to: time(T),
        latest: latest.map(time),
    };
    let empty = ("/calls/0/reads/0/rows", Value::from(0));
    assert_eq!(reasons(std::slice::from_ref(&empty)), [none(None)], "there are later rows");
    let last = "2026-01-31T11:50:00Z";
    assert_eq!(reasons(&[empty.clone(), ("/inputs/0/rows/last", last.into())]), [none(Some(last))]);
    assert_eq!(reasons(&[("/calls/0/reads/0/rows", Value::Null)]), [Reason::Unexplained], "not counted is not none");
    // Beyond the window bronze is read, which the window says nothing of.
    let beyond = [
        empty,
        ("/inputs/0/rows", json!({"rows": 0, "first": null, "last": null})),
        ("/calls/0/reads/0/from", "2026-01-31T10:00:00Z".into()),
    ];
    assert!(matches!(&reasons(&beyond)[..], [Reason::NoRows { .. }, Reason::NoneInRange { .. }]));
}

#[test]
fn a_query_that_finds_nothing_is_named_with_its_parameters() {
    let params = json!({"from": FROM, "pattern": "%x%"});
    let changes = [
        ("/queries/0/empty", 2.into()),
        ("/queries/0/calls", 2.into()),
        ("/queries/0/rows", 0.into()),
        ("/queries/0/empty_params", params.clone()),
        ("/rules/0/evaluations", 0.into()),
    ];
    let params = params.as_object().unwrap().clone();
    assert_eq!(
        reasons(&changes),
        [
            Reason::EmptyAnswer { query: "counts".into(), calls: 2, params },
            Reason::RuleNotAsked { rule: "judge".into() }
        ]
    );
    // One of two calls found something.
    assert_eq!(reasons(&[("/queries/0/empty", 1.into())]), [Reason::Unexplained]);
}

#[test]
fn what_a_rule_said_is_counted() {
    let truth = |yes: u64, no: u64, neither: u64| json!([{"field": "alarm", "yes": yes, "no": no, "neither": neither}]);
    let says_no = Reason::RuleSaysNo { rule: "judge".into(), field: "alarm".into(), inputs: 3 };
    assert_eq!(reasons(&[("/rules/0/truths", truth(0, 3, 1))]), [says_no]);
    let kept = Reason::KeptBack { rule: "judge".into(), field: Some("alarm".into()), yes: 2, found: 3 };
    assert_eq!(reasons(&[("/rules/0/truths", truth(2, 1, 0))]), [kept]);
    assert_eq!(reasons(&[("/rules/0/truths", truth(0, 0, 3))]), [Reason::Unexplained], "null is no answer");
    let elements = |n: u64| reasons(&[("/rules/0/elements", n.into())]);
    assert_eq!(elements(0), [Reason::RuleFindsNone { rule: "judge".into(), calls: 1 }]);
    assert_eq!(elements(4), [Reason::KeptBack { rule: "judge".into(), field: None, yes: 4, found: 3 }]);
}

#[test]
fn errors_and_rows_that_nobody_could_judge_are_named() {
    let error = Value::from("no such column");
    let of_query = [("/queries/0/errors", 1.into()), ("/queries/0/error", error.clone())];
    let told = |what: &str, name: &str| Reason::CallError {
        what: what.into(),
        name: name.into(),
        calls: 1,
        error: "no such column".into(),
    };
    assert_eq!(reasons(&of_query), [told("query", "counts")]);
    let of_rule = [("/rules/0/errors", 1.into()), ("/rules/0/error", error.clone()), ("/rules/0/elements", 0.into())];
    assert_eq!(reasons(&of_rule), [told("rule", "judge")], "an error is no empty array");
    let dead = json!({"dead_letters": {"columns": [], "types": [], "rows": [], "numbers": [], "total": 2}});
    let aside = [
        ("/rules/0/failed", 2.into()),
        ("/rules/0/error", error),
        ("/outputs", dead),
        ("/outcome", "no_verdict".into()),
    ];
    let failed =
        Reason::EvaluationsFailed { rule: "judge".into(), failed: 2, evaluations: 3, error: "no such column".into() };
    assert_eq!(reasons(&aside), [failed, Reason::PutAside { rows: 2 }, Reason::NoVerdict]);
}

#[test]
fn a_detector_that_asks_for_nothing_and_one_that_just_says_nothing() {
    let nothing = [("/calls", json!([])), ("/queries", json!([])), ("/rules", json!([]))];
    assert_eq!(reasons(&nothing), [Reason::AskedNothing]);
    assert_eq!(reasons(&[]), [Reason::Unexplained]);
}
