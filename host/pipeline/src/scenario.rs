//! One scenario's live run: which batch is due, its attempts, and what follows from a failure.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_model::batch::{BatchRecord, Commit, Outcome, Plan, Stage};
use weir_model::port::{DetectFailure, LogLine, PollLimit, Prepared, Usage};
use weir_model::ruleset::{Manifest, Trigger};
use weir_model::service::BatchStatus;
use weir_model::{Digest, Fault, FaultKind, Name, RunKey, ScenarioId, Time};

use crate::batch::{self, Executed, Streams};
use crate::decide::failure::{self, Next};
use crate::decide::{alarms, tick};
use crate::engines::Engines;

/// A wall clock that differs from the monotonic one by more than this since the last look has jumped.
const JUMP: Duration = Duration::from_secs(30);

/// Reads of a source before a batch. More than this and the batch goes on with what was read, and says so in its pin.
const READS_BEFORE_BATCH: usize = 64;

/// Alarms of a scenario that are held in memory from one batch to the next, each of `limits.alarm_bytes` (4 kB by default)
/// at most and some hundred bytes around it. A scenario that has more reads them from the ledger in every batch.
const ALARMS_HELD: usize = 1_024;

/// The live run of one scenario. `step` is called by one caller at a time.
pub struct Scenario {
    /// Its identity.
    pub id: ScenarioId,
    inner: Mutex<Inner>,
    // Apart from `inner`, which is locked as long as a batch runs: who asks for the status must not wait for it.
    shown: Mutex<Option<Shown>>,
    resumed: AtomicBool,
}

#[derive(Default)]
struct Inner {
    head: Option<Arc<BatchRecord>>,
    loaded: bool,
    /// The alarms after the head; none: they are read before the next batch. A scan would find every version of them that
    /// was written since the store's last flush.
    alarms: Option<alarms::Current>,
    last: Option<BatchStatus>,
    parked: Option<Parked>,
    /// Why the batch that is due is tried again.
    trouble: Option<Fault>,
    /// The latest step waited for a stream.
    waiting: bool,
    ended: bool,
    /// A trigger that runs when the host starts has run.
    ran: bool,
    clock: Option<(Time, Duration)>,
}

/// What is told of a scenario.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// The latest committed batch.
    pub head: Option<Arc<BatchRecord>>,
    /// The same with the time that its stages took, as far as it is known.
    pub last: Option<BatchStatus>,
    /// Whether it is parked.
    pub parked: bool,
    /// Why it is parked, or why the batch that is due is tried again.
    pub fault: Option<Fault>,
    /// It ended by `on_failure = "stop"`.
    pub ended: bool,
    /// No batch begins before a stream is where the last one saw it.
    pub waiting: bool,
}

struct Parked {
    fault: Fault,
    ruleset: Digest,
}

/// What one step came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A batch was committed.
    Committed(Box<BatchRecord>),
    /// Nothing is due before this time.
    NotDue(Time),
    /// A stream is not yet where the last batch saw it.
    Waiting(Name),
    /// The batch could not be done now; try again.
    Retry(Fault),
    /// It does not tick until something changes.
    Parked(Fault),
    /// It does not tick any more.
    Ended,
    /// It does not tick until an operator resumes it.
    Paused,
}

impl Scenario {
    /// A scenario whose head is read from the ledger at the first step.
    pub fn new(id: ScenarioId) -> Self {
        Self { id, inner: Mutex::new(Inner::default()), shown: Mutex::new(None), resumed: AtomicBool::new(false) }
    }

    /// Runs the batch that is due, if one is. Blocks. An injected fault comes out as `Err`: the host ends there.
    pub fn step(
        &self,
        engines: &Engines,
        prepared: &Arc<Prepared>,
        streams: &Streams,
        limit: PollLimit,
    ) -> Result<Step, Fault> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if self.resumed.swap(false, Ordering::AcqRel) {
            inner.parked = None;
            inner.ended = false;
            inner.clock = None;
        }
        let step = self.step_inner(&mut inner, engines, prepared, streams, limit);
        inner.waiting = matches!(step, Ok(Step::Waiting(_)));
        match &step {
            Ok(Step::Retry(fault)) => inner.trouble = Some(fault.clone()),
            Ok(Step::Waiting(_)) | Err(_) => {}
            Ok(_) => inner.trouble = None,
        }
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(inner.shown());
        step
    }

    fn step_inner(
        &self,
        inner: &mut Inner,
        engines: &Engines,
        prepared: &Arc<Prepared>,
        streams: &Streams,
        limit: PollLimit,
    ) -> Result<Step, Fault> {
        let started = Instant::now();
        if inner.ended {
            return Ok(Step::Ended);
        }
        if engines.ledger.paused(&self.id)?.is_some() {
            inner.load(&self.id, engines)?;
            return Ok(Step::Paused);
        }
        if let Some(parked) = &inner.parked {
            if parked.ruleset == prepared.ruleset.digest {
                return Ok(Step::Parked(parked.fault.clone()));
            }
            inner.parked = None;
        }
        inner.load(&self.id, engines)?;
        let now = engines.clock.now();
        if let Some(fault) = inner.jumped(now, engines.clock.monotonic()) {
            return Ok(inner.park(fault, prepared));
        }
        let manifest = &prepared.ruleset.manifest;
        let head = inner.head.clone();
        let due = match inner.due(manifest, now) {
            Ok(due) => due,
            Err(next) => return Ok(Step::NotDue(next)),
        };
        let mut read = BTreeMap::new();
        for (name, stream) in streams {
            let at_end = match stream.read_to_end(engines, limit, READS_BEFORE_BATCH) {
                Ok(at_end) => at_end,
                Err(fault) if fault.kind == FaultKind::Injected => return Err(fault),
                Err(fault) if fault.kind == FaultKind::Gap => {
                    return Ok(inner.park(fault, prepared));
                }
                // The stream's own loop reports it; this batch goes on with what there is and says that it was not read.
                Err(_) => false,
            };
            read.insert(name.clone(), at_end);
            let committed = head.as_ref().and_then(|h| h.plan.streams.get(name)).map(|pin| &pin.upto);
            if committed.is_some_and(|upto| !stream.window.offsets().reaches(upto)) {
                return Ok(Step::Waiting(name.clone()));
            }
        }
        let key = RunKey::live(self.id.clone());
        let mut plan = match batch::plan(key, due, prepared, head.as_deref(), streams, &read) {
            Ok(plan) => plan,
            Err(fault) if fault.kind == FaultKind::Injected => return Err(fault),
            // Nothing has begun: a table of another system is not there now, and no attempt is used up by waiting for it.
            Err(fault) => return Ok(Step::Retry(fault)),
        };
        engines.faults.pass("batch.planned")?;
        plan.attempt = engines.ledger.begin(&plan)?;
        engines.faults.pass("batch.begun")?;
        let planned = micros(started);
        // What is held is of the head, which this attempt may move.
        let held = inner.alarms.take();
        let result = match failure::exhausted(plan.attempt, manifest.attempts) {
            Some(fault) => Err(Box::new(DetectFailure { fault, log: Vec::new(), usage: Usage::default() })),
            None => run(engines, prepared, streams, &plan, held),
        };
        match result {
            Ok((mut done, current)) => {
                done.commit.micros.plan = planned;
                tell(&self.id, &done.log);
                let step = inner.committed(engines, &done.commit, started)?;
                if matches!(step, Step::Committed(_)) {
                    inner.hold(current, &done.commit);
                }
                inner.ran |= match (&step, manifest.trigger) {
                    (Step::Committed(_), Trigger::Once) => true,
                    (Step::Committed(_), Trigger::AvailableNow) => read.values().all(|at_end| *at_end),
                    _ => false,
                };
                Ok(step)
            }
            Err(failure) => {
                tell(&self.id, &failure.log);
                inner.failed(engines, prepared, plan, failure.fault, started)
            }
        }
    }

    /// What is told of it; from the ledger when no step was made since the start.
    pub fn shown(&self, engines: &Engines) -> Result<Shown, Fault> {
        if let Some(shown) = &*self.shown.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(shown.clone());
        }
        let mut fresh = Inner::default();
        fresh.load(&self.id, engines)?;
        Ok(fresh.shown())
    }

    /// Lets a parked or ended scenario go on at its next step.
    pub fn resume(&self) {
        self.resumed.store(true, Ordering::Release);
    }
}

impl Inner {
    fn load(&mut self, id: &ScenarioId, engines: &Engines) -> Result<(), Fault> {
        if !self.loaded {
            let head = engines.ledger.head(&RunKey::live(id.clone()))?;
            self.last = head.as_ref().map(|h| status(h, &[]));
            self.head = head.map(Arc::new);
            self.loaded = true;
        }
        Ok(())
    }

    fn shown(&self) -> Shown {
        Shown {
            head: self.head.clone(),
            last: self.last.clone(),
            parked: self.parked.is_some(),
            fault: self.parked.as_ref().map(|p| p.fault.clone()).or_else(|| self.trouble.clone()),
            ended: self.ended,
            waiting: self.waiting,
        }
    }

    /// What is due. The triggers without an interval run when the host starts: once, or until all sources are read.
    fn due(&self, manifest: &Manifest, now: Time) -> Result<tick::Due, Time> {
        let last = self.head.as_ref().map(|h| h.plan.time);
        if self.ran {
            return Err(now.plus(Duration::from_secs(3600)));
        }
        tick::due(manifest.trigger, manifest.catch_up, last, now).ok_or_else(|| tick::next(manifest.trigger, last, now))
    }

    fn committed(&mut self, engines: &Engines, commit: &Commit, started: Instant) -> Result<Step, Fault> {
        let before = Instant::now();
        match batch::commit(engines, commit) {
            Ok(_) => {}
            Err(fault) if fault.kind == FaultKind::Injected => return Err(fault),
            Err(fault) => return Ok(Step::Retry(fault)),
        }
        let key = &commit.plan.key;
        let record = engines.ledger.record(key, commit.plan.id)?.ok_or_else(|| {
            Fault::internal(format_args!("batch {} of {key} is committed and cannot be read", commit.plan.id))
        })?;
        let stages = [("commit", micros(before)), ("total", micros(started))];
        let status = status(&record, &stages);
        progress(&record, &status);
        self.last = Some(status);
        self.head = Some(Arc::new(record.clone()));
        Ok(Step::Committed(Box::new(record)))
    }

    /// Keeps the alarms for the next batch. `current` are those before this one.
    fn hold(&mut self, mut current: alarms::Current, commit: &Commit) {
        let known = batch::after(&mut current, commit).is_ok();
        self.alarms = (known && current.len() <= ALARMS_HELD).then_some(current);
    }

    fn failed(
        &mut self,
        engines: &Engines,
        prepared: &Prepared,
        plan: Plan,
        fault: Fault,
        started: Instant,
    ) -> Result<Step, Fault> {
        let manifest = &prepared.ruleset.manifest;
        tracing::warn!(scenario = %plan.key.scenario, batch = %plan.id, attempt = plan.attempt, kind = ?fault.kind, whose = ?fault.whose, "batch failed: {fault}");
        metrics::counter!("weir_batch_faults_total", "tenant" => plan.key.scenario.tenant.to_string(),
            "scenario" => plan.key.scenario.scenario.to_string(), "kind" => format!("{:?}", fault.kind))
        .increment(1);
        match failure::next(&fault, plan.attempt, manifest.attempts, manifest.on_failure) {
            Next::Leave => Err(fault),
            Next::Retry => Ok(Step::Retry(fault)),
            Next::Park => Ok(self.park(fault, prepared)),
            next @ (Next::Skip | Next::Stop) => {
                let reader = engines.ledger.state(&plan.key).and_then(|r| batch::current_alarms(r.as_ref()));
                let commit = match reader.and_then(|current| batch::failed(plan, prepared, fault, &current)) {
                    Ok(commit) => commit,
                    // The ledger cannot be read now, so it could not be written either.
                    Err(fault) => return Ok(Step::Retry(fault)),
                };
                let step = self.committed(engines, &commit, started)?;
                self.ended = next == Next::Stop && matches!(step, Step::Committed(_));
                Ok(step)
            }
        }
    }

    fn park(&mut self, fault: Fault, prepared: &Prepared) -> Step {
        tracing::error!(scenario = %prepared.ruleset.scenario, kind = ?fault.kind, "parked: {fault}");
        self.parked = Some(Parked { fault: fault.clone(), ruleset: prepared.ruleset.digest });
        Step::Parked(fault)
    }

    fn jumped(&mut self, wall: Time, monotonic: Duration) -> Option<Fault> {
        let (wall0, mono0) = self.clock.replace((wall, monotonic))?;
        let passed = monotonic.saturating_sub(mono0);
        let expected = wall0.plus(passed);
        let off = wall.since(expected).max(expected.since(wall));
        (off > JUMP).then(|| {
            Fault::host(FaultKind::ClockJump, format_args!("the wall clock says {wall} where {expected} was expected"))
                .fix("check the machine's clock, then run `weir resume`")
        })
    }
}

fn status(record: &BatchRecord, stages: &[(&str, u64)]) -> BatchStatus {
    let m = record.micros;
    let mut duration_ms: BTreeMap<String, f64> =
        [("plan", m.plan), ("query", m.query), ("detect", m.detect), ("rule", m.rule)].into_iter().map(ms).collect();
    duration_ms.extend(stages.iter().copied().map(ms));
    BatchStatus {
        id: record.plan.id,
        time: record.plan.time,
        ruleset: record.plan.ruleset,
        rows_in: record.rows_in,
        alarms: record.raised,
        outcome: match record.outcome {
            Outcome::Judged => "judged",
            Outcome::NoVerdict => "no_verdict",
            Outcome::Failed(_) => "failed",
        }
        .to_owned(),
        duration_ms,
    }
}

fn ms((name, micros): (&str, u64)) -> (String, f64) {
    (name.to_owned(), micros as f64 / 1000.0)
}

/// Steps 2 and 3 on the state that the head left. Answers the alarms before the batch too, which are `held` or read.
fn run(
    engines: &Engines,
    prepared: &Arc<Prepared>,
    streams: &Streams,
    plan: &Plan,
    held: Option<alarms::Current>,
) -> Result<(Executed, alarms::Current), Box<DetectFailure>> {
    let unread =
        |f: Fault| Box::new(DetectFailure { fault: f.at(Stage::Plan), log: Vec::new(), usage: Usage::default() });
    let reader = engines.ledger.state(&plan.key).map_err(unread)?;
    let current = held.map_or_else(|| batch::current_alarms(reader.as_ref()), Ok).map_err(unread)?;
    let inputs = batch::inputs(plan, prepared, streams);
    match batch::execute(plan.clone(), prepared, inputs, reader, &current, &engines.faults) {
        Ok(done) => Ok((done, current)),
        Err(mut failure) => {
            failure.fault = failure.fault.at(Stage::Detect);
            Err(failure)
        }
    }
}

/// A line per batch in Spark's field names, and the metrics of a batch.
fn progress(record: &BatchRecord, status: &BatchStatus) {
    let total = status.duration_ms.get("total").copied().unwrap_or_default();
    let rate = if total > 0.0 { record.rows_in as f64 * 1000.0 / total } else { 0.0 };
    let id = &record.plan.key.scenario;
    tracing::info!(
        target: "weir::progress",
        name = %id,
        batchId = record.plan.id.0,
        timestamp = %record.plan.time,
        numInputRows = record.rows_in,
        processedRowsPerSecond = rate,
        alarms = record.raised,
        alarmChanges = record.events.len(),
        ruleset = %record.plan.ruleset.short(),
        durationMs = %serde_json::json!(status.duration_ms),
        "batch"
    );
    let labels = [("tenant", id.tenant.to_string()), ("scenario", id.scenario.to_string())];
    metrics::histogram!("weir_batch_duration_seconds", &labels).record(total / 1000.0);
    metrics::counter!("weir_batches_total", &labels).increment(1);
    metrics::counter!("weir_batch_rows_total", &labels).increment(record.rows_in);
    metrics::counter!("weir_alarms_raised_total", &labels).increment(record.raised);
}

/// A plugin's log goes to the host's, under its scenario.
fn tell(id: &ScenarioId, log: &[LogLine]) {
    for line in log {
        match line.level {
            "error" | "warn" => {
                tracing::warn!(target: "weir::plugin", scenario = %id, "{}", line.message)
            }
            "info" => tracing::info!(target: "weir::plugin", scenario = %id, "{}", line.message),
            _ => tracing::debug!(target: "weir::plugin", scenario = %id, "{}", line.message),
        }
    }
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
