//! A service that answers fixed values and remembers what it was asked.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use weir_model::alarm::AlarmState;
use weir_model::batch::BatchRecord;
use weir_model::fault::{Fault, FaultKind};
use weir_model::id::{BatchId, Digest, Name, RunKey, ScenarioId};
use weir_model::review::{Review, ReviewAsk};
use weir_model::service::{
    BackfillAsk, BackfillProgress, Events, HistoryEntry, Readiness, Rows, Service, SideReport, Status,
};
use weir_model::time::Time;

pub(super) fn backfill() -> BackfillAsk {
    of(json!({
        "scenario": "acme/s1", "range": {"from": "2026-11-30T00:00:00Z", "to": "2026-11-30T12:00:00Z"}, "every": "1m",
        "publish": true,
    }))
}

#[derive(Default)]
pub(super) struct Fake {
    pub(super) asked: Mutex<Vec<String>>,
    pub(super) waiting: Vec<String>,
    /// What every call answers instead.
    pub(super) fault: Option<Fault>,
}

impl Fake {
    pub(super) fn failing(fault: Fault) -> Self {
        Self { fault: Some(fault), ..Self::default() }
    }
    pub(super) fn asked(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.clone()
    }
    fn answer<T>(&self, asked: String, value: T) -> Result<T, Fault> {
        let mut all = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(asked);
        self.fault.clone().map_or(Ok(value), Err)
    }
}

/// From its JSON, which is also how it goes over the wire.
pub(super) fn of<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a sample")
}

fn digest() -> Digest {
    Digest::of(b"ruleset")
}

pub(super) fn status() -> Status {
    let mut status: Value = json!({
        "time": "2026-11-30T12:01:30Z", "live": true, "ledger": "inc-1",
        "scenarios": [
            {"tenant": "acme", "scenario": "s1", "state": "running", "ruleset": digest(),
             "active_since": "2026-11-30T12:00:00Z",
             "plugin": {"name": "s1-syslog", "version": "0.1.0", "digest": digest()},
             "rules": [{"name": "1-2", "file": "rules/1-2.json", "digest": digest()}],
             "pending": null, "rejected": null, "pinned": null, "fault": null,
             "last_batch": {"id": 7, "time": "2026-11-30T12:01:00Z", "ruleset": digest(), "rows_in": 186, "alarms": 2,
                            "outcome": "judged", "duration_ms": {"plan": 0.1, "detect": 1.2, "total": 1.3}},
             "skipped_ticks": 3, "open_alarms": 2,
             "sinks": [{"sink": "s1_results", "drained_to": 5, "behind": 2, "fault": null}]},
        ],
        "streams": [
            {"tenant": "acme", "stream": "syslog", "generation": 1, "offsets": {"0": 500}, "flushed": {"0": 320},
             "watermark": "2026-11-30T12:01:00Z", "window_rows": 186, "window_bytes": 4096, "dead_letters": 1,
             "late_rows": 0, "rejected": null, "fault": null},
        ],
    });
    let mut parked = status["scenarios"][0].clone();
    for (field, value) in [
        ("scenario", json!("s2")),
        ("state", json!("parked")),
        ("fault", json!(Fault::tenant(FaultKind::Trap, "unreachable"))),
        ("last_batch", Value::Null),
        ("sinks", json!([])),
    ] {
        parked[field] = value;
    }
    if let Some(scenarios) = status["scenarios"].as_array_mut() {
        scenarios.push(parked);
    }
    of(status)
}

pub(super) fn alarm(scenario: &str) -> AlarmState {
    of(json!({
        "scenario": scenario, "name": "lease_errors", "key_names": ["router"], "key": ["Edge-034"],
        "status": "open", "severity": "critical", "message": "60 errors",
        "fields": [["err_cnt", {"int64": 60}], ["ratio", {"float64": 0.1}]],
        "opened_at": "2026-11-30T12:00:00Z", "last_seen": "2026-11-30T12:01:00Z", "count": 2, "quiet": 0,
        "ruleset": digest(), "batch": 7,
    }))
}

fn event() -> Value {
    json!({
        "change": "escalated", "before": "warning", "alarm": alarm("acme/s1"), "time": "2026-11-30T12:01:00Z",
        "batch": 7, "ruleset": digest(), "because": [{"source": "query:errors#0", "row": 3}],
    })
}

fn plan() -> Value {
    json!({
        "key": {"scenario": "acme/s1", "run": "live"}, "id": 7, "time": "2026-11-30T12:01:00Z", "ruleset": digest(),
        "attempt": 1, "streams": {"syslog": {"generation": 1, "from": {"0": 314}, "upto": {"0": 500},
        "floor": "2026-11-30T11:46:00Z", "watermark": null, "read": true}},
    })
}

pub(super) fn record() -> BatchRecord {
    of(json!({
        "plan": plan(), "outcome": "judged", "events": [event()],
        "outputs": [{"output": "s1_results", "table": "s1_results", "rows": 2, "bytes": 100, "digest": digest()}],
        "state_changes": 2, "rows_in": 186, "raised": 2,
        "micros": {"plan": 100, "query": 300, "detect": 1200, "rule": 200}, "previous": digest(), "digest": digest(),
    }))
}

pub(super) fn events() -> Events {
    of(json!({"events": [event()], "next": {"acme/s1": 7}}))
}

pub(super) fn rows() -> Rows {
    of(json!({"columns": ["n"], "types": ["Int64"], "rows": [{"n": 1}, {"n": null}]}))
}

pub(super) fn report() -> SideReport {
    of(json!({
        "plan": plan(), "replayed": 7, "outcome": {"failed": Fault::tenant(FaultKind::Cpu, "out of fuel")},
        "outputs": {"s1_results": rows()}, "output_digests": {"s1_results": digest()}, "events": [event()],
        "raised": 2, "rows_in": 186, "log": [{"level": "info", "message": "hello"}],
        "usage": {"fuel": 1, "memory_peak": 2, "host_calls": 3},
    }))
}

pub(super) fn review() -> Review {
    let sample = json!({"columns": ["n"], "types": ["Int64"], "rows": [{"n": 1}], "numbers": [4], "total": 64_000});
    of(json!({
        "plan": plan(), "replayed": 7, "outcome": "no_verdict",
        "live": {"is": "committed", "id": 7, "outcome": {"failed": Fault::tenant(FaultKind::Cpu, "out of fuel")},
                 "raised": 0, "events": 0, "agrees": false},
        "inputs": [{"stream": "syslog", "from": "2026-11-30T11:46:00Z", "to": "2026-11-30T12:01:00Z", "after": {"0": 314},
                    "upto": {"0": 500}, "new_only": true, "rows": {"rows": 186, "first": null, "last": null},
                    "new_rows": null, "read": false}],
        "calls": [
            {"call": "input", "stream": "syslog", "answer": {"error": "undeclared"}},
            {"call": "query", "query": "errors", "params": {"a": 1.5}, "tables": {"t": sample},
             "reads": [{"stream": "syslog", "from": "2026-11-30T11:46:00Z", "to": "2026-11-30T12:01:00Z", "rows": null}],
             "answer": {"rows": sample}},
            {"call": "rule", "rule": "1-2", "values": {}, "arrays": {}, "each": sample, "unnest": null,
             "evaluations": 64_000, "failed": [[3, "no number"]], "answer": {"rows": sample},
             "tallies": [{"column": "alarm", "counts": {"true": 1, "false": 63_999}}]},
        ],
        "calls_left_out": 2, "held": null,
        "queries": [{"query": "errors", "calls": 1, "empty": 0, "errors": 0, "rows": 64_000, "empty_params": null,
                     "error": null}],
        "rules": [{"rule": "1-2", "calls": 1, "errors": 0, "evaluations": 64_000, "failed": 1, "elements": 3,
                   "rows": 64_000, "truths": [{"field": "alarm", "yes": 1, "no": 63_999, "neither": 0}], "error": "no"}],
        "state": {"read": 1, "found": 0, "scanned": 0, "put": 1, "deleted": 0,
                  "entries": [{"what": "read", "key": "k", "value": null}]},
        "raised": 1,
        "alarms": [{"name": "lease_errors", "key": ["Edge-034"], "said": true, "made": "updated", "severity": "major",
                    "before": null, "message": "60 errors", "count": 3, "opened_at": "2026-11-30T12:00:00Z", "quiet": 0,
                    "because": [{"source": "query:errors#1", "row": 3}]}],
        "alarms_left_out": 0, "outputs": {"s1_results": sample}, "log": [{"level": "info", "message": "hello"}],
        "usage": {"fuel": 1, "memory_peak": 2, "host_calls": 3},
        "reasons": [{"why": "not_run"}, {"why": "failed", "fault": Fault::tenant(FaultKind::Cpu, "out of fuel")},
                    {"why": "rule_says_no", "rule": "1-2", "field": "alarm", "inputs": 12}],
    }))
}

pub(super) fn history() -> Vec<HistoryEntry> {
    of(json!([{"digest": digest(), "time": "2026-11-30T12:00:00Z", "event": "active", "reason": "rules/1-2.json"}]))
}

impl Service for Fake {
    fn status(&self) -> Result<Status, Fault> {
        self.answer("status".to_owned(), status())
    }
    fn ready(&self) -> Readiness {
        Readiness { ready: self.waiting.is_empty(), waiting: self.waiting.clone() }
    }
    fn alarms(&self, scenario: Option<&ScenarioId>, cleared: bool) -> Result<Vec<AlarmState>, Fault> {
        let all = ["acme/s1", "acme/s2", "zeta/s1"].map(alarm);
        let asked = format!("alarms {scenario:?} {cleared}");
        let found = all.into_iter().filter(|a| scenario.is_none_or(|id| *id == a.scenario));
        self.answer(asked, found.collect())
    }
    fn events(&self, after: &BTreeMap<String, BatchId>, limit: usize, wait_ms: u64) -> Result<Events, Fault> {
        self.answer(format!("events {after:?} {limit} {wait_ms}"), events())
    }
    fn query(&self, tenant: &Name, sql: &str) -> Result<Rows, Fault> {
        assert_ne!(sql, "panic", "as asked");
        self.answer(format!("query {tenant} {sql}"), rows())
    }
    fn ledger(&self, key: &RunKey, after: Option<BatchId>, limit: usize) -> Result<Vec<BatchRecord>, Fault> {
        let asked = format!("ledger {key} {after:?} {limit}");
        self.answer(asked, vec![record()])
    }
    fn newest(&self, key: &RunKey, limit: usize) -> Result<Vec<BatchRecord>, Fault> {
        self.answer(format!("newest {key} {limit}"), vec![record()])
    }
    fn side(&self, id: &ScenarioId, at: Time, latest: bool) -> Result<SideReport, Fault> {
        self.answer(format!("side {id} {at} {latest}"), report())
    }
    fn review(&self, ask: &ReviewAsk) -> Result<Review, Fault> {
        let asked =
            format!("review {} {:?} {} {}", ask.scenario, ask.at.map(|at| at.to_string()), ask.latest, ask.rows);
        self.answer(asked, review())
    }
    fn backfill(&self, ask: &BackfillAsk) -> Result<BackfillProgress, Fault> {
        let progress = json!({
            "run": {"scenario": ask.scenario, "run": "backfill:b"}, "ruleset": digest(), "base": 4, "done": 128,
            "total": ask.backfill(None).batches(), "time": "2026-11-30T02:07:00Z", "rows_in": 12_544, "results": 256,
            "alarms": 256, "failed": 0, "publish": ask.publish, "published": false,
        });
        let asked = format!("backfill {} {} {} {}", ask.scenario, ask.range.from, ask.range.to, ask.every);
        self.answer(asked, of(progress))
    }
    fn history(&self, id: &ScenarioId) -> Result<Vec<HistoryEntry>, Fault> {
        self.answer(format!("history {id}"), history())
    }
    fn rollback(&self, id: &ScenarioId, to: Option<Digest>) -> Result<Digest, Fault> {
        let asked = format!("rollback {id} {:?}", to.map(|d| d.short()));
        self.answer(asked, to.unwrap_or_else(digest))
    }
    fn unpin(&self, id: &ScenarioId) -> Result<(), Fault> {
        self.answer(format!("unpin {id}"), ())
    }
    fn forget(&self, id: &ScenarioId) -> Result<(), Fault> {
        self.answer(format!("forget {id}"), ())
    }
    fn resume(&self, id: &ScenarioId) -> Result<(), Fault> {
        self.answer(format!("resume {id}"), ())
    }
    fn pause(&self, id: &ScenarioId) -> Result<(), Fault> {
        self.answer(format!("pause {id}"), ())
    }
}
