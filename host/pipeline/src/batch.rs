//! The order of a batch: plan -> query -> detect -> commit. Nothing else states it.
//!
//! Queries and rules run inside of detect, when the plugin asks for them. What comes after the commit is `drain.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use weir_model::alarm::{AlarmAction, AlarmState};
use weir_model::batch::{BatchRecord, Commit, Outcome, Plan, Space, Stage, StageMicros, StateValue, StateWrite};
use weir_model::port::{BatchInputs, DetectFailure, LogLine, Prepared, StateReader, Usage, Verdict};
use weir_model::ruleset::InputMode;
use weir_model::{BatchId, Digest, Fault, FaultPoints, Name, Offsets, RunKey};

use crate::ask::Ask;
use crate::decide::{alarms, tick::Due};
use crate::engines::Engines;
use crate::notices;
use crate::output;
use crate::stream::Stream;

/// The streams that a scenario reads, by name.
pub type Streams = BTreeMap<Name, Arc<Stream>>;

/// A batch that has been executed and not been committed.
#[derive(Debug)]
pub struct Executed {
    /// What to commit.
    pub commit: Commit,
    /// The plugin's log.
    pub log: Vec<LogLine>,
    /// What the plugin used.
    pub usage: Usage,
    /// Of the alarms that the plugin named, those that it cleared.
    pub cleared: u64,
}

/// Step 1: pins everything that the batch is a function of. `read`: which sources were read to their end just before.
/// A reference table that cannot be read is a fault, and the batch has not begun.
pub fn plan(
    key: RunKey,
    due: Due,
    prepared: &Prepared,
    head: Option<&BatchRecord>,
    streams: &Streams,
    read: &BTreeMap<Name, bool>,
) -> Result<Plan, Fault> {
    let tables = prepared.queries.tables().map_err(|fault| fault.at(Stage::Plan))?;
    let pins = streams.iter().map(|(name, stream)| {
        let from = head.and_then(|h| h.plan.streams.get(name)).map_or_else(Offsets::default, |pin| pin.upto.clone());
        (name.clone(), stream.pin(from, due.time, read.get(name).copied().unwrap_or(false)))
    });
    Ok(Plan {
        key,
        id: head.map_or(BatchId::FIRST, |h| h.plan.id.next()),
        time: due.time,
        ruleset: prepared.ruleset.digest,
        attempt: 1,
        streams: pins.collect(),
        tables,
        skipped: due.skipped,
        skipped_total: head.map_or(0, |h| h.plan.skipped_total) + due.skipped.map_or(0, |s| s.count),
        state_schema: prepared.detector.description().state,
        backfill: None,
    })
}

/// The rows of a plan's pins.
pub fn inputs(plan: &Plan, prepared: &Prepared, streams: &Streams) -> BatchInputs {
    let pinned = plan.streams.iter().filter_map(|(name, pin)| {
        let stream = streams.get(name)?;
        let new_only = prepared.ruleset.manifest.inputs.get(name).is_some_and(|i| i.mode == InputMode::New);
        Some((name.clone(), stream.pinned(pin, new_only)))
    });
    BatchInputs { time: plan.time, streams: pinned.collect(), tables: plan.tables.clone() }
}

/// Steps 2 and 3: runs the plugin on its inputs and puts together what is to be committed. `current` are the alarms of the
/// state that `reader` sees ([`current_alarms`]). Changes nothing anywhere.
pub fn execute(
    plan: Plan,
    prepared: &Arc<Prepared>,
    inputs: BatchInputs,
    reader: Box<dyn StateReader>,
    current: &alarms::Current,
    faults: &Arc<dyn FaultPoints>,
) -> Result<Executed, Box<DetectFailure>> {
    let started = Instant::now();
    let rows_by = new_rows(&plan, &inputs);
    let rows_in = rows_by.values().sum();
    let ask = Arc::new(Ask::new(plan.clone(), inputs, prepared.clone(), reader, faults.clone()));
    let detection = prepared.detector.detect(ask.clone())?;
    faults.pass("batch.detected").map_err(failure)?;
    let manifest = &prepared.ruleset.manifest;
    let judged = detection.verdict == Verdict::Judged;
    let quiet_counts = judged && plan.streams.values().all(|pin| pin.read);
    let changes =
        alarms::apply(current, &detection.alarms, judgement(&plan, prepared, quiet_counts)).map_err(failure)?;
    let mut outputs = Vec::new();
    for (name, rows) in &detection.outputs {
        if rows.num_rows() > 0 {
            outputs.push(output::of_plugin(&plan, manifest, name, rows).map_err(failure)?);
        }
    }
    outputs.extend(output::of_events(&plan, &changes.events).map_err(failure)?);
    outputs.extend(notices::of_events(&plan, manifest, &changes.events).map_err(failure)?);
    outputs.extend(output::of_rejects(&plan, &detection.rejects).map_err(failure)?);
    let mut state = ask.state_writes();
    state.extend(alarm_writes(changes.states).map_err(failure)?);
    let (query, rule) = ask.micros();
    let micros = StageMicros { plan: 0, query, detect: micros(started), rule };
    let outcome = if judged { Outcome::Judged } else { Outcome::NoVerdict };
    let raised = detection.alarms.len() as u64;
    let cleared = detection.alarms.iter().filter(|alarm| alarm.action == AlarmAction::Clear).count() as u64;
    let commit = Commit { plan, outcome, state, events: changes.events, outputs, rows_in, raised, micros, rows_by };
    Ok(Executed { commit, log: detection.log, usage: detection.usage, cleared })
}

/// The commit of a batch that failed for good: it has happened, the plugin's state is untouched, and the `current` alarms
/// that were open turn stale, because nobody judged them.
pub fn failed(plan: Plan, prepared: &Prepared, fault: Fault, current: &alarms::Current) -> Result<Commit, Fault> {
    let changes = alarms::apply(current, &[], judgement(&plan, prepared, false))?;
    let mut outputs: Vec<_> = output::of_events(&plan, &changes.events)?.into_iter().collect();
    outputs.extend(notices::of_events(&plan, &prepared.ruleset.manifest, &changes.events)?);
    Ok(Commit {
        outputs,
        plan,
        outcome: Outcome::Failed(fault),
        state: alarm_writes(changes.states)?,
        events: changes.events,
        rows_in: 0,
        raised: 0,
        micros: StageMicros::default(),
        rows_by: BTreeMap::new(),
    })
}

fn judgement<'a>(plan: &'a Plan, prepared: &'a Prepared, quiet_counts: bool) -> alarms::Judgement<'a> {
    alarms::Judgement {
        scenario: &plan.key.scenario,
        time: plan.time,
        batch: plan.id,
        ruleset: plan.ruleset,
        quiet_counts,
        types: &prepared.detector.description().alarms,
        defs: &prepared.ruleset.manifest.alarms,
        most: prepared.ruleset.limits.current_alarms,
    }
}

/// Step 4: makes the batch happen.
pub fn commit(engines: &Engines, commit: &Commit) -> Result<Digest, Fault> {
    engines.ledger.commit(commit).map_err(|fault| fault.at(Stage::Commit))
}

/// The alarms of a state.
pub fn current_alarms(reader: &dyn StateReader) -> Result<alarms::Current, Fault> {
    let entries = reader.scan(&Space::Alarms, b"", None, usize::MAX)?;
    entries.into_iter().map(|(key, value)| Ok((key, alarm_of(&value)?))).collect()
}

/// Makes of the alarms before a batch those after it, as a reader of its state finds them.
pub fn after(current: &mut alarms::Current, commit: &Commit) -> Result<(), Fault> {
    for write in commit.state.iter().filter(|write| write.space == Space::Alarms) {
        match &write.after {
            // From the bytes, so that nothing can be in memory that a restart would not find.
            Some(value) => current.insert(write.key.clone(), alarm_of(value)?),
            None => current.remove(&write.key),
        };
    }
    Ok(())
}

fn alarm_of(value: &StateValue) -> Result<AlarmState, Fault> {
    serde_json::from_slice(&value.value)
        .map_err(|e| Fault::internal(format_args!("an alarm in the ledger cannot be read: {e}")))
}

fn alarm_writes(states: BTreeMap<Vec<u8>, Option<AlarmState>>) -> Result<Vec<StateWrite>, Fault> {
    let write = |(key, alarm): (Vec<u8>, Option<AlarmState>)| {
        Ok(StateWrite { space: Space::Alarms, key, after: alarm_value(alarm.as_ref())? })
    };
    states.into_iter().map(write).collect()
}

fn alarm_value(alarm: Option<&AlarmState>) -> Result<Option<StateValue>, Fault> {
    let Some(alarm) = alarm else { return Ok(None) };
    Ok(Some(StateValue { value: serde_json::to_vec(alarm).map_err(Fault::internal)?, expires: None }))
}

/// Rows of the inputs at or above where the batch before ended.
fn new_rows(plan: &Plan, inputs: &BatchInputs) -> BTreeMap<Name, u64> {
    let mut by = BTreeMap::new();
    for (name, stream) in &inputs.streams {
        let mut rows = 0;
        let from = plan.streams.get(name).map(|pin| &pin.from);
        for chunk in &stream.chunks {
            let from = from.map_or(0, |f| f.get(chunk.range.partition));
            if let Some(new) = crate::window::cut(chunk, from, u64::MAX) {
                rows += new.rows.num_rows() as u64;
            }
        }
        by.insert(name.clone(), rows);
    }
    by
}

fn failure(fault: Fault) -> Box<DetectFailure> {
    Box::new(DetectFailure { fault: fault.at(Stage::Detect), log: Vec::new(), usage: Usage::default() })
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
