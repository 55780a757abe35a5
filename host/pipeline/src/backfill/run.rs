//! One batch after the other: plan, detect, and commits in groups that share a sync.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_model::batch::{ALARM_EVENTS, Backfill, BatchRecord, Commit, Outcome, Plan};
use weir_model::port::{BatchInputs, BronzeRange, DetectFailure, Ledger, Prepared, StateReader};
use weir_model::ruleset::InputMode;
use weir_model::service::{BackfillAsk, BackfillProgress};
use weir_model::{BatchId, Digest, Fault, FaultKind, Name, RunKey, Stage, StreamId, Time};

use super::reach::Reach;
use super::sliding::Sliding;
use crate::batch;
use crate::decide::failure::{self, Next};
use crate::engines::Engines;
use crate::host::Host;
use crate::layered::Layered;
use crate::side;
use crate::stream::table_name;

/// Batches that share a sync.
const GROUP: usize = 128;
/// A group ends after this time, so that a call ends when it should and little is done again after a crash.
const GROUP_TIME: Duration = Duration::from_millis(250);
/// A group ends when its outputs are as large.
const GROUP_BYTES: usize = 8 << 20;

/// A run at work.
pub(super) struct Run {
    pub key: RunKey,
    pub prepared: Arc<Prepared>,
    pub backfill: Backfill,
    head: Option<(BatchId, Time)>,
    inputs: BTreeMap<Name, (Sliding, bool)>,
    /// Versions of the reference tables: of today when it began, the same in all of its batches.
    tables: BTreeMap<Name, String>,
}

/// What a new run is made of: the ruleset that was asked for, else today's.
pub(super) fn ruleset(host: &Host, ask: &BackfillAsk) -> Result<Digest, Fault> {
    match ask.ruleset {
        Some(digest) => Ok(digest),
        None => Ok(side::active(&host.engines, &ask.scenario)?.ruleset.digest),
    }
}

impl Run {
    /// Opens the run at its head, or begins it. A run that exists goes on with its own ruleset. Blocks.
    pub fn open(host: &Host, ask: &BackfillAsk, key: &RunKey, ruleset: Digest) -> Result<Self, Fault> {
        let engines = &host.engines;
        let head = engines.ledger.head(key)?;
        let backfill = match &head {
            Some(head) => same(ask, head)?,
            None => ask.backfill(base(engines.ledger.as_ref(), ask)?),
        };
        let ruleset = head.as_ref().map_or(ruleset, |head| head.plan.ruleset);
        let prepared = engines.store.stored(&key.scenario, ruleset)?;
        let streams = host.streams_of(&prepared).map_err(|name| {
            Fault::external(
                FaultKind::NotReplayable,
                format_args!("stream {name} is not open, or has another schema now"),
            )
            .fix("`weir status` says what is wrong with the stream")
        })?;
        let first = backfill.next(backfill.range.from).unwrap_or(backfill.range.from);
        let next = head.as_ref().map_or(first, |head| head.plan.time.plus(backfill.every.get()));
        let mut inputs = BTreeMap::new();
        let mut reach = Reach::new(engines, &backfill, backfill.next(next));
        for (name, stream) in streams {
            // What a host has read and not written to bronze yet is a part of the past too.
            let id = StreamId::new(key.scenario.tenant.clone(), name.clone());
            host.flush(&id).unwrap_or(Ok(()))?;
            let back = stream.def.retention.get().max(backfill.every.get());
            let new_only = prepared.ruleset.manifest.inputs.get(&name).is_some_and(|i| i.mode == InputMode::New);
            reach.look(&stream, if new_only { backfill.every.get() } else { stream.def.retention.get() })?;
            inputs.insert(name, (Sliding::new(&stream, next.minus(back), backfill.range.to), new_only));
        }
        reach.judge()?;
        let tables = match &head {
            Some(head) => head.plan.tables.clone(),
            None => prepared.queries.tables().map_err(|fault| fault.at(Stage::Plan))?,
        };
        let head = head.map(|head| (head.plan.id, head.plan.time));
        Ok(Self { key: key.clone(), prepared, backfill, head, inputs, tables })
    }

    /// Batches until the time is over or all are there; at least one group. Blocks.
    pub fn go_on(&mut self, host: &Host, until: Instant) -> Result<BackfillProgress, Fault> {
        let ruleset = self.prepared.ruleset.digest;
        let mut progress = BackfillProgress {
            trigger: self.prepared.ruleset.manifest.trigger.interval(),
            ..BackfillProgress::begun(self.key.clone(), ruleset, Some(&self.backfill))
        };
        loop {
            let (group, fault) = self.group(&host.engines, until)?;
            host.engines.ledger.commit_all(&group).map_err(|fault| fault.at(Stage::Commit))?;
            for commit in &group {
                progress.rows_in += commit.rows_in;
                progress.results += commit.outputs.iter().map(|o| o.rows.num_rows() as u64).sum::<u64>();
                progress.alarms += commit.raised;
                progress.failed += u64::from(matches!(commit.outcome, Outcome::Failed(_)));
            }
            let id = &self.key.scenario;
            metrics::counter!("weir_backfill_batches_total", "tenant" => id.tenant.to_string(), "scenario" => id.scenario.to_string())
                .increment(group.len() as u64);
            if let Some(last) = group.last() {
                self.head = Some((last.plan.id, last.plan.time));
            }
            if let Some(fault) = fault {
                return Err(fault);
            }
            if group.is_empty() || Instant::now() >= until || *host.stop.borrow() {
                break;
            }
        }
        (progress.done, progress.time) = self.head.map_or((0, None), |(n, time)| (n.0, Some(time)));
        Ok(progress)
    }

    /// Executes the next batches, each on the state that the one before left. With a fault come those before it.
    fn group(&mut self, engines: &Engines, until: Instant) -> Result<(Vec<Commit>, Option<Fault>), Fault> {
        let until = until.min(Instant::now() + GROUP_TIME);
        if self.next(self.head).is_none() {
            // Also when retention has dropped the state that the run lies on: it can be published all the same.
            return Ok((Vec::new(), None));
        }
        let state = Layered::new(self.state(engines)?);
        let (mut group, mut bytes) = (Vec::new(), 0);
        let mut head = self.head;
        while group.len() < GROUP && bytes < GROUP_BYTES && (group.is_empty() || Instant::now() < until) {
            let Some(time) = self.next(head) else { break };
            let id = head.map_or(BatchId::FIRST, |(id, _)| id.next());
            match self.batch(engines, id, time, &state) {
                Ok(commit) => {
                    state.write(&commit.state)?;
                    bytes += commit.outputs.iter().map(|o| o.rows.get_array_memory_size()).sum::<usize>();
                    head = Some((id, time));
                    group.push(commit);
                }
                Err(fault) => return Ok((group, Some(fault))),
            }
        }
        Ok((group, None))
    }

    /// T of the batch after one.
    fn next(&self, head: Option<(BatchId, Time)>) -> Option<Time> {
        self.backfill.next(head.map_or(self.backfill.range.from, |(_, time)| Time(time.micros() + 1)))
    }

    /// State after the run's head.
    fn state(&self, engines: &Engines) -> Result<Box<dyn StateReader>, Fault> {
        let live = RunKey::live(self.key.scenario.clone());
        match (self.head, self.backfill.base) {
            (Some(_), _) => engines.ledger.state(&self.key),
            (None, Some(base)) => engines.ledger.state_before(&live, base),
            (None, None) => Ok(Box::new(side::Empty)),
        }
    }

    /// Executes one batch. What a failing live batch would be skipped for is skipped here; what it would park or stop for
    /// ends the call.
    fn batch(&mut self, engines: &Engines, id: BatchId, time: Time, state: &Layered) -> Result<Commit, Fault> {
        let manifest = &self.prepared.ruleset.manifest;
        let (attempts, on_failure) = (manifest.attempts, manifest.on_failure);
        let before = time.minus(self.backfill.every.get());
        let mut plan = Plan {
            key: self.key.clone(),
            id,
            time,
            ruleset: self.prepared.ruleset.digest,
            attempt: 1,
            streams: BTreeMap::new(),
            tables: self.tables.clone(),
            skipped: None,
            skipped_total: 0,
            state_schema: self.prepared.detector.description().state,
            backfill: Some(self.backfill),
        };
        let mut inputs = BatchInputs { time, streams: BTreeMap::new(), tables: self.tables.clone() };
        let mut rows_by = BTreeMap::new();
        for (name, (sliding, new_only)) in &mut self.inputs {
            let (id, def) = sliding.stream();
            let (table, schema) = (table_name(&id, &def), def.positioned_schema());
            let memory = usize::try_from(self.prepared.ruleset.limits.sql_memory_bytes).ok();
            let read = |range| {
                let range = BronzeRange { memory, ..range };
                let rows = engines.lake.bronze(&id.tenant, &table, schema.clone(), range);
                engines.runtime.block_on(rows)
            };
            let seen = sliding.seen(&read, before, time, *new_only)?;
            rows_by.insert(name.clone(), seen.new);
            plan.streams.insert(name.clone(), seen.pin);
            inputs.streams.insert(name.clone(), seen.rows);
        }
        let current = batch::current_alarms(state)?;
        loop {
            let reader = Box::new(state.clone());
            match batch::execute(plan.clone(), &self.prepared, inputs.clone(), reader, &current, &engines.faults) {
                Ok(mut done) => {
                    done.commit.rows_in = rows_by.values().sum();
                    done.commit.rows_by = rows_by;
                    // They stand in the record and go nowhere.
                    done.commit.outputs.retain(|o| o.output.as_str() != ALARM_EVENTS);
                    return Ok(done.commit);
                }
                Err(failed) => {
                    let DetectFailure { fault, .. } = *failed;
                    match failure::next(&fault, plan.attempt, attempts, on_failure) {
                        Next::Retry if plan.attempt < attempts => plan.attempt += 1,
                        Next::Skip => {
                            let mut commit = batch::failed(plan, &self.prepared, fault, &current)?;
                            commit.rows_in = rows_by.values().sum();
                            commit.rows_by = rows_by;
                            commit.outputs.clear();
                            return Ok(commit);
                        }
                        _ => return Err(fault),
                    }
                }
            }
        }
    }
}

/// What the run was begun as, if that is what is asked for.
fn same(ask: &BackfillAsk, head: &BatchRecord) -> Result<Backfill, Fault> {
    let key = &head.plan.key;
    let other = |what: String| {
        Fault::tenant(FaultKind::Config, format_args!("{key} is another run: {what}"))
            .field("--name")
            .fix("ask for it as it was begun, or give the new one another name")
    };
    let Some(backfill) = head.plan.backfill else {
        return Err(other("it is no backfill".to_owned()));
    };
    if (backfill.range, backfill.every) != (ask.range, ask.every) {
        let range = backfill.range;
        return Err(other(format!("from {} to {} every {}", range.from, range.to, backfill.every)));
    }
    match ask.ruleset {
        Some(ruleset) if ruleset != head.plan.ruleset => {
            Err(other(format!("it runs on ruleset {}", head.plan.ruleset.short())))
        }
        _ => Ok(backfill),
    }
}

/// The live batch whose state before it is that at the beginning of the range: the first one with T in or after it. None:
/// the ledger does not keep that state any more, or there never was one.
fn base(ledger: &dyn Ledger, ask: &BackfillAsk) -> Result<Option<BatchId>, Fault> {
    let live = RunKey::live(ask.scenario.clone());
    let from = ask.range.from;
    let (Some(head), Some(oldest)) = (ledger.head(&live)?, ledger.records(&live, None, 1)?.pop()) else {
        return Ok(None);
    };
    if head.plan.time < from {
        return Ok(Some(head.plan.id.next()));
    }
    if oldest.plan.time >= from {
        // Of a run whose beginning is kept this is the state before its first batch, which is none. Else nobody knows
        // what came between the beginning of the range and the oldest batch.
        let first = oldest.plan.id == BatchId::FIRST;
        return Ok((!first && oldest.plan.time == from).then_some(oldest.plan.id));
    }
    let (mut low, mut high) = (oldest.plan.id.0, head.plan.id.0);
    // T of `low` is before the range, T of `high` is not.
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        match ledger.record(&live, BatchId(middle))? {
            Some(record) if record.plan.time < from => low = middle,
            Some(_) => high = middle,
            None => return Ok(None),
        }
    }
    Ok(Some(BatchId(high)))
}
