//! What the writer is asked for. Each task is a function of the store and itself, and says the same when it is staged
//! again after an error: numbers are set, never counted up.

use std::collections::BTreeMap;

use fjall::Slice;
use weir_model::batch::SinkCursor;
use weir_model::{Digest, Fault, Incarnation, Plan, RunKey, ScenarioId, SinkId};

use crate::codec::{self, Attempts, Run};
use crate::commit::{Landed, Prepared, know_scenario, load_sink};
use crate::keys;
use crate::staging::Staging;
use crate::state::{load_batch, load_run};
use crate::store::{Ks, Source, ledger_fault};

/// One thing to write.
#[derive(Debug)]
pub(crate) enum Task {
    /// A batch.
    Commit(Box<Prepared>),
    /// An attempt at a batch. Not synced.
    Begin {
        key: RunKey,
        n: u64,
        ruleset: Digest,
        /// Which one it is, once that has been decided.
        attempt: Option<u32>,
    },
    /// A scenario's incarnation: this one if it has none.
    Scenario { id: ScenarioId, fresh: Incarnation },
    /// The end of a scenario's names; what its runs have written is swept later.
    Forget(ScenarioId),
    /// A sink's cursor.
    Advance { sink: SinkId, cursor: SinkCursor },
    /// A plain value.
    Put { ks: Ks, key: Vec<u8>, value: Slice, durable: bool },
    /// Plain keys.
    Remove(Vec<(Ks, Vec<u8>)>),
    /// The oldest batches of a run, those below this one; some of them when they are many.
    Drop { key: RunKey, run: u64, below: u64 },
}

/// What came of a task.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Landed(Landed),
    Attempt(u32),
    Incarnation(Incarnation),
    /// The oldest batch that is kept.
    Oldest(u64),
    Done,
}

/// Keys that dropping batches removes in one go; the last batch may add more.
const DROP_LIMIT: usize = 4096;
/// Entries that are looked at in one go.
const PAGE: usize = 1024;

impl Task {
    /// Whether its reply waits for a sync.
    pub(crate) fn is_durable(&self) -> bool {
        match self {
            Self::Begin { .. } => false,
            Self::Put { durable, .. } => *durable,
            _ => true,
        }
    }

    /// About how many bytes it writes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Commit(prepared) => prepared.bytes(),
            Self::Put { key, value, .. } => key.len() + value.len(),
            Self::Remove(keys) => keys.iter().map(|(_, key)| key.len() + 32).sum(),
            _ => 256,
        }
    }

    /// Adds its writes to the group. After a fault the caller undoes them.
    pub(crate) fn stage(&mut self, staging: &mut Staging<'_>) -> Result<Reply, Fault> {
        match self {
            Self::Commit(prepared) => prepared.stage(staging).map(Reply::Landed),
            Self::Begin { key, n, ruleset, attempt } => begin(staging, key, *n, *ruleset, attempt).map(Reply::Attempt),
            Self::Scenario { id, fresh } => {
                let text = know_scenario(staging, id, &fresh.0)?;
                Ok(Reply::Incarnation(Incarnation(text)))
            }
            Self::Forget(id) => forget(staging, id),
            Self::Advance { sink, cursor } => advance(staging, sink, cursor),
            Self::Put { ks, key, value, .. } => {
                staging.put(*ks, key.clone(), value.clone());
                Ok(Reply::Done)
            }
            Self::Remove(keys) => {
                for (ks, key) in keys {
                    staging.remove(*ks, key.clone());
                }
                Ok(Reply::Done)
            }
            Self::Drop { key, run, below } => drop_batches(staging, key, *run, *below),
        }
    }
}

impl From<&Plan> for Task {
    fn from(plan: &Plan) -> Self {
        Self::Begin { key: plan.key.clone(), n: plan.id.0, ruleset: plan.ruleset, attempt: None }
    }
}

fn begin(
    staging: &mut Staging<'_>,
    key: &RunKey,
    n: u64,
    ruleset: Digest,
    decided: &mut Option<u32>,
) -> Result<u32, Fault> {
    let head = load_run(staging, key)?.map_or(0, |run| run.head);
    if n != head + 1 {
        return Err(Fault::internal(format_args!("batch {n} of {key} cannot begin: the one after {head} is next")));
    }
    let at = keys::run(key);
    let kept: Option<Attempts> =
        staging.get(Ks::Attempts, &at)?.map(|bytes| codec::decode(&bytes, "attempts")).transpose()?;
    // Attempts at another N are of a batch that has been committed since, or that was lost with a machine.
    let mut attempts = kept.filter(|a| a.n == n).unwrap_or(Attempts { n, by_ruleset: BTreeMap::new() });
    let before = attempts.by_ruleset.get(&ruleset).copied().unwrap_or(0);
    let attempt = *decided.get_or_insert(before.saturating_add(1));
    attempts.by_ruleset.insert(ruleset, attempt.max(before));
    staging.put(Ks::Attempts, at, codec::encode(&attempts)?);
    Ok(attempt)
}

fn advance(staging: &mut Staging<'_>, sink: &SinkId, cursor: &SinkCursor) -> Result<Reply, Fault> {
    let run = load_run(staging, &sink.key)?;
    let head = run.as_ref().map_or(0, |run| run.head);
    let to = cursor.drained_to.0;
    if to > head {
        return Err(Fault::internal(format_args!(
            "the cursor of {sink} cannot move to {to}: the run's head is {head}"
        )));
    }
    let at = keys::sink(sink);
    let mut state = load_sink(staging, &at)?.unwrap_or_default();
    let from = state.drained_to();
    if to < from {
        return Err(Fault::internal(format_args!("the cursor of {sink} cannot move back from {from} to {to}")));
    }
    if let Some(run) = run {
        state.waiting = state.waiting.saturating_sub(count_outputs(staging, &run, sink, from, to)?);
    }
    state.cursor = Some(cursor.clone());
    staging.put(Ks::Sinks, at, codec::encode(&state)?);
    Ok(Reply::Done)
}

/// Outputs of batches `from + 1 ..= to`.
fn count_outputs(source: &impl Source, run: &Run, sink: &SinkId, from: u64, to: u64) -> Result<u64, Fault> {
    let mut after = keys::output(run.id, &sink.output, from);
    let last = keys::output(run.id, &sink.output, to);
    let mut count = 0;
    loop {
        let range = (std::ops::Bound::Excluded(after), std::ops::Bound::Included(last.clone()));
        let page = source.scan(Ks::Outputs, &range, PAGE)?;
        count += page.len() as u64;
        match page.last() {
            Some((key, _)) if page.len() == PAGE => after = key.to_vec(),
            _ => return Ok(count),
        }
    }
}

fn forget(staging: &mut Staging<'_>, id: &ScenarioId) -> Result<Reply, Fault> {
    staging.remove(Ks::Meta, keys::scenario(id));
    staging.remove(Ks::Meta, keys::paused(id));
    let all = keys::prefixed(&keys::scenario_runs(id));
    // Not by `load_run`: forgetting is the way out for a run that is damaged.
    for (key, value) in staging.scan(Ks::Runs, &all, usize::MAX)? {
        let run: Run = codec::decode(&value, "a run")?;
        staging.put(Ks::Meta, keys::dead(run.id), []);
        staging.remove(Ks::Runs, key.to_vec());
    }
    for ks in [Ks::Attempts, Ks::Sinks] {
        for (key, _) in staging.scan(ks, &all, usize::MAX)? {
            staging.remove(ks, key.to_vec());
        }
    }
    Ok(Reply::Done)
}

fn drop_batches(staging: &mut Staging<'_>, key: &RunKey, id: u64, below: u64) -> Result<Reply, Fault> {
    let Some(mut run) = load_run(staging, key)?.filter(|run| run.id == id) else {
        return Ok(Reply::Oldest(below));
    };
    let (below, mut removed) = (below.min(run.head), 0);
    let oldest = run.oldest;
    while run.oldest < below && removed < DROP_LIMIT {
        let n = run.oldest;
        let at = keys::batch(id, n);
        if let Some(batch) = load_batch(staging, &run, n)? {
            let time = batch.record()?.plan.time;
            staging.remove(Ks::Times, keys::time(id, time));
        }
        let touched = staging.get(Ks::Touched, &at)?;
        let touched =
            touched.ok_or_else(|| ledger_fault(format_args!("the changes of batch {n} of {key} are missing")))?;
        for mut before in codec::unkey_list(&touched)? {
            before.extend(n.to_be_bytes());
            staging.remove(Ks::Before, before);
            removed += 1;
        }
        staging.remove(Ks::Touched, at.clone());
        staging.remove(Ks::Batches, at);
        removed += 3;
        run.oldest += 1;
    }
    if oldest < run.oldest {
        staging.put(Ks::Runs, keys::run(key), codec::encode(&run)?);
    }
    Ok(Reply::Oldest(run.oldest))
}
