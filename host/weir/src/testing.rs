//! Stand-ins for tests: samples, a service that says what it was asked, and a place to print.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use weir_model::alarm::{AlarmEvent, AlarmState};
use weir_model::batch::BatchRecord;
use weir_model::fault::{Fault, FaultKind};
use weir_model::id::{BatchId, Digest, Name, RunKey, ScenarioId};
use weir_model::review::{Review, ReviewAsk};
use weir_model::service::{
    BackfillAsk, BackfillProgress, Events, HistoryEntry, Readiness, Rows, Service, SideReport, Status,
};
use weir_model::time::{Time, VirtualClock};
use weir_model::zone::Zone;

use crate::print::Out;

/// From its JSON.
pub(crate) fn of<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap_or_else(|e| panic!("a sample: {e}"))
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn digest(of: &str) -> Digest {
    Digest::of(of.as_bytes())
}

pub(crate) fn event(change: &str, before: Option<&str>, severity: &str, batch: u64) -> AlarmEvent {
    of(json!({
        "change": change, "before": before, "time": "2026-11-30T12:01:00Z", "batch": batch, "ruleset": digest("r"),
        "because": [],
        "alarm": {
            "scenario": "acme/s1", "name": "lease_errors", "key_names": ["router", "ip"],
            "key": ["Edge-034", "203.0.113.34"], "status": "open", "severity": severity,
            "message": "60 errors, threshold 50", "fields": [], "opened_at": "2026-11-30T12:00:00Z",
            "last_seen": "2026-11-30T12:01:00Z", "count": 2, "quiet": 0, "ruleset": digest("r"), "batch": batch,
        },
    }))
}

pub(crate) fn events(all: &[AlarmEvent]) -> Events {
    let next = all.iter().map(|e| (e.alarm.scenario.to_string(), e.batch)).collect();
    Events { events: all.to_vec(), next }
}

pub(crate) fn record(n: u64, outcome: Value) -> BatchRecord {
    of(json!({
        "plan": {
            "key": {"scenario": "acme/s1", "run": "live"}, "id": n, "time": "2026-11-30T12:01:00Z",
            "ruleset": digest("r"), "attempt": 1,
            "streams": {"syslog": {"generation": 1, "from": {"0": 314}, "upto": {"0": 500, "1": 4},
                        "floor": "2026-11-30T11:46:00Z", "watermark": "2026-11-30T12:00:30Z", "read": true}},
        },
        "outcome": outcome, "events": [],
        "outputs": [{"output": "s1_results", "table": "s1_results", "rows": 2, "bytes": 100, "digest": digest("o")}],
        "state_changes": 2, "rows_in": 190, "raised": 2,
        "micros": {"plan": 100, "query": 300, "detect": 1200, "rule": 200},
        "previous": digest("p"), "digest": digest("d"), "rows_by": {"syslog": 177},
    }))
}

pub(crate) fn status(ledger: &str, tenants: &[&str], last_batch: Option<u64>) -> Status {
    let scenario = |tenant: &&str| {
        json!({
            "tenant": tenant, "scenario": "s1", "state": "running", "ruleset": digest("r"),
            "active_since": "2026-11-30T12:00:00Z",
            "plugin": {"name": "s1-syslog", "version": "0.1.0", "digest": digest("w")}, "rules": [],
            "pending": null, "rejected": null, "pinned": null, "fault": null,
            "last_batch": last_batch.map(|n| json!({
                "id": n, "time": "2026-11-30T12:01:00Z", "ruleset": digest("r"), "rows_in": 186, "alarms": 2,
                "outcome": "no_verdict", "duration_ms": {"total": 1.34},
            })),
            "skipped_ticks": 3, "open_alarms": 2,
            "sinks": [{"sink": "s1_results", "drained_to": 5, "behind": 2, "fault": null}],
        })
    };
    of(json!({
        "time": "2026-11-30T12:01:30Z", "live": true, "ledger": ledger,
        "scenarios": tenants.iter().map(scenario).collect::<Vec<_>>(),
        "streams": [{
            "tenant": "acme", "stream": "syslog", "generation": 1, "offsets": {"0": 500}, "flushed": {},
            "watermark": "2026-11-30T12:01:00Z", "window_rows": 186, "window_bytes": 4096, "dead_letters": 1,
            "late_rows": 0, "rejected": null, "fault": null,
        }],
    }))
}

pub(crate) fn rows() -> Rows {
    of(json!({
        "columns": ["router", "n"], "types": ["Utf8", "Int64"],
        "rows": [{"router": "Edge-034", "n": 60}, {"router": "서울\u{1b}[2J", "n": null}],
    }))
}

pub(crate) fn report(outcome: Value) -> SideReport {
    of(json!({
        "plan": record(7, json!("judged")).plan, "replayed": 7, "outcome": outcome,
        "outputs": {"s1_results": rows()}, "output_digests": {"s1_results": digest("o")},
        "events": [event("opened", None, "critical", 7)], "raised": 1, "rows_in": 186,
        "log": [{"level": "info", "message": "hello"}], "usage": {"fuel": 1, "memory_peak": 2, "host_calls": 3},
    }))
}

/// A batch that asked for everything there is to ask for, and raised nothing that is new.
pub(crate) fn review(outcome: Value) -> Review {
    let t = "2026-11-30T12:01:00Z";
    let sample = |row: Value, number: u64, total: u64| {
        json!({"columns": ["router", "n"], "types": ["Utf8", "Int64"], "rows": [row], "numbers": [number],
               "total": total})
    };
    let counts = sample(json!({"router": "서울\u{1b}[2J", "n": 60}), 3, 64_000);
    of(json!({
        "plan": record(7, json!("judged")).plan, "replayed": 7, "outcome": outcome,
        "live": {"is": "committed", "id": 7, "outcome": "judged", "raised": 1, "events": 0, "agrees": true},
        "inputs": [{"stream": "syslog", "from": "2026-11-30T11:46:00Z", "to": t, "after": {"0": 314},
                    "upto": {"0": 500, "1": 4}, "new_only": false,
                    "rows": {"rows": 186, "first": "2026-11-30T11:46:10Z", "last": "2026-11-30T12:00:59Z"},
                    "new_rows": 177, "read": true}],
        "calls": [
            {"call": "query", "query": "counts", "params": {"from": "2026-11-30T11:59:00Z", "least": 1.5},
             "tables": {"known": sample(json!({"router": "a", "n": null}), 0, 1)},
             "reads": [{"stream": "syslog", "from": "2026-11-30T11:59:00Z", "to": t, "rows": 12}],
             "answer": {"rows": counts}},
            {"call": "rule", "rule": "1-2", "values": {"limit": 50}, "arrays": {}, "each": counts, "unnest": null,
             "evaluations": 64_000, "failed": [[9, "n is no number"]],
             "answer": {"rows": {"columns": ["alarm"], "types": ["Boolean"], "rows": [{"alarm": true}], "numbers": [3],
                                 "total": 64_000}},
             "tallies": [{"column": "alarm", "counts": {"true": 1, "false": 63_998, "null": 1}}]},
            {"call": "query", "query": "none", "params": {}, "tables": {}, "reads": [], "answer": {"error": "failed: x"}},
        ],
        "calls_left_out": 2, "held": null, "queries": [], "rules": [],
        "state": {"read": 2, "found": 1, "scanned": 0, "put": 1, "deleted": 0,
                  "entries": [{"what": "read", "key": "open/a", "value": null}, {"what": "put", "key": "b", "value": "x"}]},
        "raised": 1,
        "alarms": [{"name": "lease_errors", "key": ["Edge-034"], "said": true, "made": "updated", "severity": "major",
                    "before": null, "message": "60 errors", "count": 3, "opened_at": "2026-11-30T12:00:00Z", "quiet": 0,
                    "because": [{"source": "query:counts#1", "row": 3}]}],
        "alarms_left_out": 4, "outputs": {"s1_results": sample(json!({"router": "a", "n": 1}), 0, 1)},
        "log": [{"level": "info", "message": "hello"}], "usage": {"fuel": 1, "memory_peak": 2, "host_calls": 3},
        "reasons": [{"why": "open_already", "alarms": 1}],
    }))
}

/// A service with fixed answers.
pub(crate) struct Fake {
    pub(crate) clock: VirtualClock,
    pub(crate) status: Status,
    /// What `events` answers, in turn; then nothing happens, and the time that is waited passes.
    pub(crate) pages: Mutex<VecDeque<Result<Events, Fault>>>,
    pub(crate) outcome: Value,
    /// What `backfill` answers, in turn.
    pub(crate) progress: Mutex<VecDeque<Result<BackfillProgress, Fault>>>,
    pub(crate) batches: Vec<BatchRecord>,
    pub(crate) history: Vec<HistoryEntry>,
    pub(crate) asked: Mutex<Vec<String>>,
}

impl Fake {
    pub(crate) fn new(status: Status) -> Self {
        Self {
            clock: VirtualClock::new(Time::EPOCH),
            status,
            pages: Mutex::default(),
            outcome: json!("judged"),
            progress: Mutex::default(),
            batches: Vec::new(),
            history: Vec::new(),
            asked: Mutex::default(),
        }
    }
    pub(crate) fn asked(&self) -> Vec<String> {
        lock(&self.asked).clone()
    }
    fn note(&self, asked: String) {
        lock(&self.asked).push(asked);
    }
}

impl Service for Fake {
    fn status(&self) -> Result<Status, Fault> {
        Ok(self.status.clone())
    }
    fn ready(&self) -> Readiness {
        Readiness { ready: true, waiting: Vec::new() }
    }
    fn alarms(&self, _scenario: Option<&ScenarioId>, _cleared: bool) -> Result<Vec<AlarmState>, Fault> {
        Ok(Vec::new())
    }
    fn events(&self, after: &BTreeMap<String, BatchId>, _limit: usize, wait_ms: u64) -> Result<Events, Fault> {
        self.note(format!("events {:?}", after.iter().map(|(k, n)| format!("{k}:{}", n.0)).collect::<Vec<_>>()));
        let page = lock(&self.pages).pop_front();
        page.unwrap_or_else(|| {
            self.clock.advance(Duration::from_millis(wait_ms));
            Ok(Events { events: Vec::new(), next: after.clone() })
        })
    }
    fn query(&self, tenant: &Name, sql: &str) -> Result<Rows, Fault> {
        self.note(format!("query {tenant} {sql}"));
        match sql {
            "bad" => Err(Fault::tenant(FaultKind::Sql, "no column x").field("x").fix("name a column of the table")),
            _ => Ok(rows()),
        }
    }
    fn ledger(&self, key: &RunKey, after: Option<BatchId>, limit: usize) -> Result<Vec<BatchRecord>, Fault> {
        self.note(format!("ledger {key} {:?} {limit}", after.map(|n| n.0)));
        let rest = self.batches.iter().filter(|r| after.is_none_or(|n| r.plan.id > n));
        Ok(rest.take(limit).cloned().collect())
    }
    fn newest(&self, key: &RunKey, limit: usize) -> Result<Vec<BatchRecord>, Fault> {
        self.note(format!("newest {key} {limit}"));
        let from = self.batches.len().saturating_sub(limit);
        Ok(self.batches.iter().skip(from).cloned().collect())
    }
    fn side(&self, id: &ScenarioId, at: Time, latest: bool) -> Result<SideReport, Fault> {
        self.note(format!("side {id} {at} {latest}"));
        Ok(report(self.outcome.clone()))
    }
    fn review(&self, ask: &ReviewAsk) -> Result<Review, Fault> {
        self.note(format!("review {} {:?} {} {}", ask.scenario, ask.at.map(|at| at.to_string()), ask.latest, ask.rows));
        Ok(review(self.outcome.clone()))
    }
    fn backfill(&self, ask: &BackfillAsk) -> Result<BackfillProgress, Fault> {
        self.note(format!("backfill {} {}", ask.scenario, ask.publish));
        lock(&self.progress).pop_front().unwrap_or_else(|| Err(Fault::tenant(FaultKind::NotFound, "nothing left")))
    }
    fn history(&self, _id: &ScenarioId) -> Result<Vec<HistoryEntry>, Fault> {
        Ok(self.history.clone())
    }
    fn rollback(&self, id: &ScenarioId, to: Option<Digest>) -> Result<Digest, Fault> {
        self.note(format!("rollback {id} {to:?}"));
        Ok(to.unwrap_or_else(|| digest("before")))
    }
    fn unpin(&self, id: &ScenarioId) -> Result<(), Fault> {
        self.note(format!("unpin {id}"));
        Ok(())
    }
    fn forget(&self, id: &ScenarioId) -> Result<(), Fault> {
        Err(Fault::tenant(FaultKind::Config, format_args!("scenario {id} is still in the rule store")))
    }
    fn resume(&self, id: &ScenarioId) -> Result<(), Fault> {
        self.note(format!("resume {id}"));
        Ok(())
    }
    fn pause(&self, id: &ScenarioId) -> Result<(), Fault> {
        self.note(format!("pause {id}"));
        Ok(())
    }
}

/// What was printed.
#[derive(Default)]
pub(crate) struct Printed {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Printed {
    pub(crate) fn out(&mut self, json: bool) -> Out<'_> {
        Out { stdout: &mut self.stdout, stderr: &mut self.stderr, json, colour: false, zone: Zone::UTC }
    }
    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
    pub(crate) fn objects(&self) -> Vec<Value> {
        let lines = self.stdout();
        lines.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{l}: {e}"))).collect()
    }
}

pub(crate) fn shared(fake: Fake) -> Arc<dyn Service> {
    Arc::new(fake)
}
