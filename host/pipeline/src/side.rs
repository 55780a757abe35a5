//! A side run: one batch for a fixed time. Writes nothing, beside a running host or without one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weir_model::batch::{BatchRecord, Between, Plan, Space, StateValue};
use weir_model::port::{BatchInputs, Prepared, ScenarioView, StateReader};
use weir_model::service::SideReport;
use weir_model::{BatchId, Fault, FaultKind, Name, Offsets, RunId, RunKey, ScenarioId, Time};

use crate::batch::{self, Executed, Streams};
use crate::decide::tick::Due;
use crate::engines::Engines;
use crate::output;
use crate::review;
use crate::stream::{Stream, table_name};

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// What a side run is made of.
pub struct Side {
    /// The plan: recorded, or pinned now.
    pub plan: Plan,
    /// The committed batch that is replayed.
    pub replayed: Option<BatchId>,
    /// The committed batch of this time, replayed or not.
    pub(crate) record: Option<BatchRecord>,
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) reader: Box<dyn StateReader>,
}

impl Side {
    /// Refuses what cannot be answered: rows that are not there yet, or not any more.
    pub(crate) fn check(&self, engines: &Engines, streams: &Streams) -> Result<(), Fault> {
        for (name, pin) in &self.plan.streams {
            let Some(stream) = streams.get(name) else {
                return Err(Fault::tenant(
                    FaultKind::NotReplayable,
                    format_args!("stream {name} is not there any more"),
                ));
            };
            if !stream.window.offsets().reaches(&pin.upto) {
                return Err(Fault::external(
                    FaultKind::NotReplayable,
                    format_args!("stream {name} has not been read up to where the batch saw it"),
                )
                .fix("wait until the host has caught up, then try again"));
            }
        }
        kept(engines, &self.plan, self.replayed.is_some(), streams)
    }
}

/// What a side run is made from: the committed batch of its time, if there is one, and the ruleset that it runs on. The
/// ruleset decides which streams there are; a replay may have another one than is active.
pub(crate) fn ground(
    engines: &Engines,
    id: &ScenarioId,
    at: Time,
    latest: bool,
) -> Result<(Option<BatchRecord>, Arc<Prepared>), Fault> {
    let record = engines.ledger.record_at(&RunKey::live(id.clone()), at)?;
    let prepared = match &record {
        Some(record) if !latest => engines.store.stored(id, record.plan.ruleset)?,
        _ => active(engines, id)?,
    };
    Ok((record, prepared))
}

/// Decides what runs, on its [`ground`]: a committed T is replayed from its record, with the state before it and its own ruleset; another T,
/// or any with `latest`, runs on today's ruleset and rows. `latest` of a committed T keeps the state before it; a T that
/// was never committed runs on empty state.
pub(crate) fn prepare(
    engines: &Engines,
    id: &ScenarioId,
    at: Time,
    latest: bool,
    (record, prepared): (Option<BatchRecord>, Arc<Prepared>),
    streams: &Streams,
) -> Result<Side, Fault> {
    let reader: Box<dyn StateReader> = match &record {
        Some(record) => engines.ledger.state_before(&RunKey::live(id.clone()), record.plan.id)?,
        None => Box::new(Empty),
    };
    match record {
        Some(record) if !latest => {
            let mut plan = record.plan.clone();
            plan.key.run = side_run()?;
            Ok(Side { plan, replayed: Some(record.plan.id), record: Some(record), prepared, reader })
        }
        record => {
            let plan = fresh(engines, id, at, &prepared, record.as_ref(), streams)?;
            Ok(Side { plan, replayed: None, record, prepared, reader })
        }
    }
}

/// The plan of a batch that was never committed like this. The streams have been read further than a batch at T would have
/// found them: of their rows it sees those before T, as a backfill's batch does.
fn fresh(
    engines: &Engines,
    id: &ScenarioId,
    at: Time,
    prepared: &Prepared,
    record: Option<&BatchRecord>,
    streams: &Streams,
) -> Result<Plan, Fault> {
    let read = streams.keys().map(|name| (name.clone(), true)).collect();
    let key = RunKey { scenario: id.clone(), run: side_run()? };
    let mut plan = batch::plan(key, Due { time: at, skipped: None }, prepared, None, streams, &read)?;
    let before = match record {
        Some(_) => None,
        None => batch_before(engines, &RunKey::live(id.clone()), at)?,
    };
    for (name, pin) in &mut plan.streams {
        let of = |record: &BatchRecord| record.plan.streams.get(name).cloned();
        let from = record.and_then(of).map(|pin| pin.from).or_else(|| before.as_ref().and_then(of).map(|pin| pin.upto));
        pin.from = from.unwrap_or_default();
        pin.only = Some(Between::before(at));
        if let Some(stream) = streams.get(name) {
            pin.watermark = pin.watermark.map(|mark| mark.min(at.minus(stream.def.watermark.get())));
        }
    }
    if let Some(record) = record {
        plan.id = record.plan.id;
    }
    Ok(plan)
}

/// The last batch before a time that no batch has. None: there was none, or it is not kept any more.
fn batch_before(engines: &Engines, key: &RunKey, at: Time) -> Result<Option<BatchRecord>, Fault> {
    let Some(head) = engines.ledger.head(key)? else { return Ok(None) };
    if head.plan.time < at {
        return Ok(Some(head));
    }
    let next = review::live::next_after(at, head, |id| engines.ledger.record(key, id))?;
    match next.plan.id.0.checked_sub(1) {
        Some(before) => engines.ledger.record(key, BatchId(before)),
        None => Ok(None),
    }
}

fn side_run() -> Result<RunId, Fault> {
    Ok(RunId::Side(Name::new("at").map_err(Fault::internal)?))
}

/// The active ruleset, or the fault that there is none, with the reason.
pub fn active(engines: &Engines, id: &ScenarioId) -> Result<Arc<Prepared>, Fault> {
    let Some(view) = engines.store.scenario(id) else { return Err(Fault::no_scenario(id)) };
    view.active.clone().ok_or_else(|| inactive(&view))
}

/// That there is no active ruleset, with the reason.
fn inactive(view: &ScenarioView) -> Fault {
    let id = &view.id;
    let fault =
        |why: String| Fault::tenant(FaultKind::NotFound, format_args!("scenario {id} has no active ruleset{why}"));
    match (&view.rejected, &view.pending) {
        _ if view.removed => fault(": its folder is not in the rule store any more".to_owned())
            .fix("put the folder back, or ask for a time in `weir ledger`: a committed batch runs on its own ruleset"),
        (Some(notice), _) => fault(format!(": its only version was rejected: {}", notice.reason)).file(&notice.file),
        (None, Some(notice)) => fault(format!(" yet: {}", notice.reason)).file(&notice.file),
        (None, None) => fault(String::new()).fix("`weir status` says what the scenario does"),
    }
}

/// Runs it. An answer with `outcome` failed is an answer, not an error.
pub fn run(engines: &Engines, side: Side, streams: &Streams) -> Result<SideReport, Fault> {
    side.check(engines, streams)?;
    let Side { plan, replayed, record, prepared, reader } = side;
    let inputs = batch::inputs(&plan, &prepared, streams);
    let Executed { commit, log, usage, cleared } = executed(engines, plan, &prepared, inputs.clone(), reader)?;
    let rows_in = match replayed {
        Some(_) => commit.rows_in,
        None => new_rows(&commit.plan, &prepared, inputs),
    };
    let mut outputs = BTreeMap::new();
    let mut output_digests = BTreeMap::new();
    for out in &commit.outputs {
        outputs.insert(out.output.clone(), output::rows_of(&out.rows)?);
        output_digests.insert(out.output.clone(), output::rows_digest(&out.rows)?);
    }
    Ok(SideReport {
        plan: commit.plan,
        replayed,
        outcome: commit.outcome,
        outputs,
        output_digests,
        events: commit.events,
        raised: commit.raised,
        rows_in,
        log: log.iter().map(Into::into).collect(),
        usage,
        cleared,
        state_before: record.map(|record| record.plan.id),
    })
}

/// Rows that a batch which was never committed sees for the first time, in hot window and bronze. What cannot be counted is
/// left out.
fn new_rows(plan: &Plan, prepared: &Prepared, mut inputs: BatchInputs) -> u64 {
    for (name, pinned) in &mut inputs.streams {
        pinned.from = plan.streams.get(name).map_or_else(Offsets::default, |pin| pin.from.clone());
    }
    let count = |name: &Name| prepared.queries.extent(name.as_str(), &inputs, None).map_or(0, |extent| extent.rows);
    inputs.streams.keys().map(count).sum()
}

/// The batch, or what is left of one that fails.
pub(crate) fn executed(
    engines: &Engines,
    plan: Plan,
    prepared: &Arc<Prepared>,
    inputs: BatchInputs,
    reader: Box<dyn StateReader>,
) -> Result<Executed, Fault> {
    let current = batch::current_alarms(reader.as_ref())?;
    batch::execute(plan.clone(), prepared, inputs, reader, &current, &engines.faults).or_else(|failure| {
        let commit = batch::failed(plan, prepared, failure.fault, &current)?;
        Ok(Executed { commit, log: failure.log, usage: failure.usage, cleared: 0 })
    })
}

/// Refuses a time whose rows are not there: an answer without rows would be taken for what happened then.
fn kept(engines: &Engines, plan: &Plan, replayed: bool, streams: &Streams) -> Result<(), Fault> {
    let refuse = |message: String| Err(Fault::tenant(FaultKind::NotReplayable, message));
    let now = engines.clock.now();
    if plan.time > now {
        return refuse(format!("{} is still to come: it is {now}", plan.time));
    }
    let mut begins = None;
    for (name, pin) in &plan.streams {
        let Some(stream) = streams.get(name) else { continue };
        let days = stream.def.keep_days;
        let from = now.minus(DAY * days);
        let (_, complete_from) = stream.window.rows(&Offsets::default(), &Offsets::default());
        if pin.floor < from && pin.floor < complete_from {
            return refuse(format!(
                "the batch at {} reads rows of stream {name} from {} on, and they are kept for {days} days: from {from} on",
                plan.time, pin.floor
            ))
            .map_err(|f| f.fix("a larger keep_days of the stream keeps its rows longer from now on"));
        }
        let oldest = oldest(engines, stream)?;
        begins = [begins, oldest].into_iter().flatten().min();
    }
    // What a batch saw is what it saw; a time that never had one may lie before the first row.
    if replayed || plan.streams.is_empty() {
        return Ok(());
    }
    match begins {
        None => refuse(format!("there is no row that a batch at {} could see", plan.time)),
        Some(begins) if begins >= plan.time => {
            refuse(format!("there is no row before {}: the earliest one is of {begins}", plan.time))
        }
        Some(_) => Ok(()),
    }
}

/// A time at or before that of the earliest row of the stream, in its table or its window. Blocks.
pub(crate) fn oldest(engines: &Engines, stream: &Stream) -> Result<Option<Time>, Fault> {
    let table = table_name(&stream.id, &stream.def);
    let bronze = engines.lake.oldest(&stream.id.tenant, &table, &stream.def.event_time);
    Ok([engines.runtime.block_on(bronze)?, stream.window.oldest()].into_iter().flatten().min())
}

/// State with nothing in it.
pub(crate) struct Empty;

impl StateReader for Empty {
    fn get(&self, _: &Space, _: &[u8]) -> Result<Option<StateValue>, Fault> {
        Ok(None)
    }
    fn scan(&self, _: &Space, _: &[u8], _: Option<&[u8]>, _: usize) -> Result<Vec<(Vec<u8>, StateValue)>, Fault> {
        Ok(Vec::new())
    }
    fn size(&self, _: &Space) -> Result<(u64, u64), Fault> {
        Ok((0, 0))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use weir_model::port::Notice;

    use super::*;

    #[test]
    fn a_scenario_without_a_ruleset_says_why() {
        let notice = |reason: &str| {
            let (reason, file) = (reason.to_owned(), "t/s/scenario.toml".to_owned());
            Some(Notice { reason, file, since: Time(0), problems: Vec::new() })
        };
        let told = |removed, rejected, pending| {
            let (active, active_since, pinned) = (None, None, None);
            let id = "t/s".parse().unwrap();
            inactive(&ScenarioView { id, active, active_since, pending, rejected, pinned, removed }).to_string()
        };
        // What was rejected before the folder was taken away is no longer the reason.
        for rejected in [None, notice("no plugin")] {
            let told = told(true, rejected, None);
            assert!(told.contains("scenario t/s has no active ruleset: its folder is not in the rule store"), "{told}");
            assert!(told.contains("put the folder back"), "{told}");
        }
        let rejected = told(false, notice("no plugin"), notice("it compiles"));
        assert!(rejected.contains("t/s/scenario.toml") && rejected.contains("was rejected: no plugin"), "{rejected}");
        assert!(told(false, None, notice("it compiles")).contains("has no active ruleset yet: it compiles"));
        assert!(told(false, None, None).contains("`weir status`"));
    }
}
