//! A side run with a recorder between detector and batch: what it was given and what it made of it.
//!
//! Nothing of this is in a live batch: the recorder stands where a review asks for one, as the batch's host towards the
//! detector and as the detector towards the batch.

mod alarms;
pub(crate) mod live;
mod record;
mod sample;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weir_model::batch::{BatchRecord, Between, Plan};
use weir_model::port::{BatchInputs, Extent, Notice, Prepared};
use weir_model::review::{Call, Held, InputSeen, MOST_ROWS, Review, ReviewAsk};
use weir_model::ruleset::InputMode;
use weir_model::{Fault, Name, Time};

use crate::batch::{self, Executed, Streams};
use crate::decide::reasons;
use crate::engines::Engines;
use crate::side::{self, Side};
use record::Recorder;
use sample::Budget;

/// The most ranges of streams whose rows are counted: each is a look at the window, or at bronze.
const MOST_RANGES: usize = 50;
/// How long all counting together may take until no more is begun.
const COUNTING: Duration = Duration::from_secs(10);

/// What a scenario does now, beside the batch that is looked at.
#[derive(Debug, Default)]
pub struct Present {
    /// What keeps it from getting on.
    pub held: Held,
    /// A version of it that was refused.
    pub rejected: Option<Notice>,
    /// Since when an operator keeps it from ticking.
    pub paused: Option<Time>,
}

/// Runs it and tells of it. A batch that fails is an answer, not an error.
pub fn run(
    engines: &Engines,
    side: Side,
    streams: &Streams,
    ask: &ReviewAsk,
    scenario: Present,
) -> Result<Review, Fault> {
    side.check(engines, streams)?;
    let most = ask.rows.min(MOST_ROWS) as usize;
    let Side { plan, replayed, record, prepared, reader } = side;
    let inputs = batch::inputs(&plan, &prepared, streams);
    let recorder = Arc::new(Recorder::new(&prepared, most));
    let watched = Arc::new(Prepared { detector: recorder.clone(), ..Prepared::clone(&prepared) });
    let Executed { commit, log, usage, cleared } = side::executed(engines, plan, &watched, inputs.clone(), reader)?;
    let mut seen = recorder.seen();
    let mut counter = Counter { engines, prepared: &prepared, inputs: &inputs, until: None };
    let inputs = inputs_seen(&commit.plan, &mut counter, record.as_ref().filter(|_| replayed.is_some()));
    count_ranges(&mut seen.calls, &mut counter);
    let mut budget = Budget::new(most);
    let outputs = commit.outputs.iter().map(|out| (out.output.clone(), budget.first(&out.rows))).collect();
    let alarms = alarms::seen(&seen.said, &commit)?;
    let mut review = Review {
        inputs,
        held: live::held_since(engines, &commit, &scenario.held)?,
        live: live::of(engines, &commit, record.as_ref(), replayed.is_some(), scenario.held)?,
        plan: commit.plan,
        replayed,
        outcome: commit.outcome,
        calls: seen.calls,
        calls_left_out: seen.calls_left_out,
        queries: seen.queries,
        rules: seen.rules,
        state: seen.state,
        raised: commit.raised,
        alarms_left_out: alarms.len().saturating_sub(most) as u64,
        alarms,
        outputs,
        log: log.iter().map(Into::into).collect(),
        usage,
        reasons: Vec::new(),
        cleared,
        rejected: scenario.rejected,
        every: prepared.ruleset.manifest.trigger.interval(),
        paused: scenario.paused,
    };
    review.reasons = reasons::of(&review);
    review.alarms.truncate(most);
    Ok(review)
}

/// Counts rows of streams, for a while.
struct Counter<'a> {
    engines: &'a Engines,
    prepared: &'a Prepared,
    inputs: &'a BatchInputs,
    until: Option<Duration>,
}

impl Counter<'_> {
    /// None: it could not be counted, or not any more.
    fn count(&mut self, stream: &Name, range: Option<Between>) -> Option<Extent> {
        let now = self.engines.clock.monotonic();
        if now >= *self.until.get_or_insert(now + COUNTING) {
            return None;
        }
        self.prepared.queries.extent(stream.as_str(), self.inputs, range).ok()
    }
}

/// Counts the rows of streams in the ranges that queries were given. What cannot be counted stays unknown.
fn count_ranges(calls: &mut [Call], counter: &mut Counter<'_>) {
    let mut counted = BTreeMap::new();
    let reads = calls.iter_mut().flat_map(|call| match call {
        Call::Query { reads, .. } => reads.as_mut_slice(),
        Call::Input { .. } | Call::Rule { .. } => &mut [],
    });
    for read in reads {
        let key = (read.stream.clone(), read.from, read.to);
        if counted.len() >= MOST_RANGES && !counted.contains_key(&key) {
            continue;
        }
        read.rows = *counted.entry(key).or_insert_with(|| {
            let range = Between { from: read.from, to: read.to };
            counter.count(&read.stream, Some(range)).map(|extent| extent.rows)
        });
    }
}

fn inputs_seen(plan: &Plan, counter: &mut Counter<'_>, record: Option<&BatchRecord>) -> Vec<InputSeen> {
    let manifest = &counter.prepared.ruleset.manifest;
    plan.streams
        .iter()
        .map(|(stream, pin)| InputSeen {
            stream: stream.clone(),
            from: pin.floor,
            to: plan.time,
            after: pin.from.clone(),
            upto: pin.upto.clone(),
            new_only: manifest.inputs.get(stream).is_some_and(|input| input.mode == InputMode::New),
            rows: counter.count(stream, None),
            new_rows: record.and_then(|record| record.rows_by.get(stream).copied()),
            read: pin.read,
        })
        .collect()
}
