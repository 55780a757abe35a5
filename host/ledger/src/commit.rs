//! What a commit is: its bytes, prepared on the caller's thread, and its place in the run, decided on the writer's.

use std::collections::{BTreeMap, BTreeSet};

use weir_model::batch::{BatchRecord, Commit, OutputSummary, Space, StateValue};
use weir_model::{BatchId, Digest, Fault, Outcome, RunKey, Time};

use crate::codec::{self, Base, Run, SinkState, StoredBatch, ZERO};
use crate::keys;
use crate::outputs::{self, PreparedOutput};
use crate::slot::Core;
use crate::staging::Staging;
use crate::state::{Layers, load_batch, load_run};
use crate::store::{Ks, Source, fresh_incarnation, ledger_fault};

/// Expired values that one commit takes away at most. What is left goes with the next.
const PURGE_LIMIT: usize = 4096;

/// A commit that is ready to be written.
#[derive(Debug)]
pub(crate) struct Prepared {
    key: RunKey,
    n: u64,
    time: Time,
    /// State stays untouched.
    failed: bool,
    body: Vec<u8>,
    state: Digest,
    content: Digest,
    writes: Vec<(Space, Vec<u8>, Option<StateValue>)>,
    outputs: Vec<PreparedOutput>,
    fork: Fork,
}

/// What a run that is not live begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fork {
    /// Live state as it is now.
    Head,
    /// Live state as this live batch saw it.
    Before(u64),
    /// Nothing.
    Empty,
}

/// A batch that became durable, for its note in `heads`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Landed {
    pub run: u64,
    pub birth: u64,
    pub n: u64,
    pub digest: Digest,
}

impl Prepared {
    /// Encodes a commit and checks what can be checked without the ledger.
    pub(crate) fn new(core: &Core, commit: &Commit) -> Result<Self, Fault> {
        let plan = &commit.plan;
        let mut keys_seen = BTreeSet::new();
        for write in &commit.state {
            if keys::before(0, &write.space, &write.key, 0).len() > keys::KEY_LIMIT {
                return Err(Fault::internal(format_args!(
                    "a state key of {} bytes is too long for the ledger",
                    write.key.len()
                )));
            }
            if !keys_seen.insert((&write.space, &write.key)) {
                return Err(Fault::internal("a commit changes a state key twice"));
            }
        }
        let mut outputs_seen = BTreeSet::new();
        if let Some(twice) = commit.outputs.iter().find(|o| !outputs_seen.insert(&o.output)) {
            return Err(Fault::internal(format_args!("a commit has the output {} twice", twice.output)));
        }
        let outputs = commit
            .outputs
            .iter()
            .map(|o| outputs::prepare(&core.folder, core.config.spill_bytes, plan, o))
            .collect::<Result<Vec<_>, _>>()?;
        let record = BatchRecord {
            plan: plan.clone(),
            outcome: commit.outcome.clone(),
            events: commit.events.clone(),
            outputs: outputs
                .iter()
                .map(|o| OutputSummary {
                    output: o.output.clone(),
                    table: o.entry.table.clone(),
                    rows: o.entry.rows,
                    bytes: o.entry.bytes,
                    digest: o.entry.digest,
                })
                .collect(),
            state_changes: commit.state.len() as u64,
            rows_in: commit.rows_in,
            raised: commit.raised,
            micros: commit.micros,
            previous: ZERO,
            digest: ZERO,
            rows_by: commit.rows_by.clone(),
        };
        let body = codec::encode(&record)?;
        let cells: Vec<_> = commit
            .state
            .iter()
            .map(|w| {
                let key = keys::state(0, &w.space, &w.key);
                (key, codec::cell(w.after.as_ref()))
            })
            .collect();
        let state = Digest::of_parts(cells.iter().flat_map(|(key, cell)| [key.as_slice(), cell.as_slice()]));
        Ok(Self {
            key: plan.key.clone(),
            n: plan.id.0,
            time: plan.time,
            failed: matches!(commit.outcome, Outcome::Failed(_)),
            content: codec::content(&body, state),
            body,
            state,
            writes: commit.state.iter().map(|w| (w.space.clone(), w.key.clone(), w.after.clone())).collect(),
            outputs,
            fork: match plan.backfill {
                None => Fork::Head,
                Some(backfill) => backfill.base.map_or(Fork::Empty, |n| Fork::Before(n.0)),
            },
        })
    }

    /// About how many bytes it writes.
    pub(crate) fn bytes(&self) -> usize {
        let writes = self
            .writes
            .iter()
            .map(|(_, key, value)| 64 + 4 * key.len() + 2 * value.as_ref().map_or(0, |v| v.value.len()));
        let outputs = self.outputs.iter().map(|o| 512 + o.payload.as_ref().map_or(0, Vec::len));
        1024 + self.body.len() + writes.sum::<usize>() + outputs.sum::<usize>()
    }

    /// Whether this very commit is in the ledger already. The fault of another one in its place.
    pub(crate) fn landed(&self, source: &impl Source, run: &Run) -> Result<Option<Landed>, Fault> {
        if self.n > run.head {
            return Ok(None);
        }
        let (n, key) = (self.n, &self.key);
        let kept = load_batch(source, run, n)?.ok_or_else(|| {
            if n < run.oldest {
                Fault::internal(format_args!("batch {n} of {key} is committed again after it was dropped by retention"))
            } else {
                ledger_fault(format_args!("batch {n} of {key} is missing"))
            }
        })?;
        if codec::chained(kept.previous, self.content) != kept.digest {
            return Err(Fault::internal(format_args!("batch {n} of {key} is committed already, with other content")));
        }
        Ok(Some(Landed { run: run.id, birth: run.birth, n, digest: kept.digest }))
    }

    /// The same for a commit whose run may not have begun.
    pub(crate) fn look(&self, source: &impl Source) -> Result<Option<Landed>, Fault> {
        match load_run(source, &self.key)? {
            Some(run) => self.landed(source, &run),
            None => Ok(None),
        }
    }

    /// Puts the batch behind the run's head, or finds it there.
    pub(crate) fn stage(&self, staging: &mut Staging<'_>) -> Result<Landed, Fault> {
        let (n, key) = (self.n, &self.key);
        let known = load_run(staging, key)?;
        if let Some(run) = &known
            && let Some(landed) = self.landed(staging, run)?
        {
            return Ok(landed);
        }
        let head = known.as_ref().map_or(0, |run| run.head);
        if n != head + 1 {
            return Err(Fault::internal(format_args!(
                "batch {n} of {key} cannot be committed: the one after {head} is next"
            )));
        }
        if let Some(run) = &known
            && self.time <= run.head_time
        {
            return Err(Fault::internal(format_args!(
                "batch {n} of {key} has T {}, which is not after {} of the one before it",
                self.time, run.head_time
            )));
        }
        let mut run = match known {
            Some(run) => run,
            None => begin_run(staging, key, self.fork)?,
        };
        let digest = codec::chained(run.head_digest, self.content);
        let stored = StoredBatch {
            previous: run.head_digest,
            digest,
            state: self.state,
            sizes_before: run.sizes.clone(),
            body: self.body.clone(),
        };
        staging.put(Ks::Batches, keys::batch(run.id, n), stored.encode()?);
        staging.put(Ks::Times, keys::time(run.id, self.time), n.to_be_bytes());
        staging.remove(Ks::Attempts, keys::run(key));
        self.stage_state(staging, &mut run)?;
        self.stage_outputs(staging, &run)?;
        run.head = n;
        run.head_time = self.time;
        run.head_digest = digest;
        staging.put(Ks::Runs, keys::run(key), codec::encode(&run)?);
        Ok(Landed { run: run.id, birth: run.birth, n, digest })
    }

    /// Changes the cells, keeps what they held, and takes away what has expired at T. The last is as if the batch had
    /// deleted it: no batch from this one on can see it, and a replay of an earlier one finds it in the before-images. It
    /// is a function of state and T, so sizes are one too.
    fn stage_state(&self, staging: &mut Staging<'_>, run: &mut Run) -> Result<(), Fault> {
        let mut changes: BTreeMap<(&Space, &[u8]), Option<&StateValue>> = BTreeMap::new();
        let purged = if self.failed { Vec::new() } else { expired(staging, run, self.time)? };
        if !self.failed && purged.len() < PURGE_LIMIT {
            run.expires_from = Some(keys::after(self.time));
        }
        for (space, key) in &purged {
            changes.insert((space, key), None);
        }
        for (space, key, value) in &self.writes {
            changes.insert((space, key), value.as_ref());
        }
        let layers = Layers::of_head(staging, &self.key, run)?;
        let mut touched = Vec::new();
        for ((space, key), new) in changes {
            let old = layers.get(staging, space, key)?;
            if old.is_none() && new.is_none() {
                continue;
            }
            run.sizes.change(space, key, old.as_ref(), new);
            let cell = keys::state(run.id, space, key);
            match new {
                Some(_) => staging.put(Ks::State, cell, codec::cell(new)),
                // What a fork deletes must not be found below it.
                None if run.base.is_some() => staging.put(Ks::State, cell, codec::cell(None)),
                None => staging.remove(Ks::State, cell),
            }
            if let Some(at) = old.as_ref().and_then(|v| v.expires) {
                staging.remove(Ks::Expiry, keys::expiry(run.id, at, space, key));
            }
            if let Some(at) = new.and_then(|v| v.expires) {
                staging.put(Ks::Expiry, keys::expiry(run.id, at, space, key), []);
                run.expires_from = run.expires_from.map(|from| from.min(at));
            }
            let before = keys::before(run.id, space, key, self.n);
            staging.put(Ks::Before, before, codec::cell(old.as_ref()));
            touched.push(keys::before_key(run.id, space, key));
        }
        let list = codec::key_list(touched.iter().map(Vec::as_slice));
        staging.put(Ks::Touched, keys::batch(run.id, self.n), list);
        Ok(())
    }

    fn stage_outputs(&self, staging: &mut Staging<'_>, run: &Run) -> Result<(), Fault> {
        for output in &self.outputs {
            let key = keys::output(run.id, &output.output, self.n);
            if let Some(payload) = &output.payload {
                staging.put(Ks::Payloads, key.clone(), payload.as_slice());
            }
            staging.put(Ks::Outputs, key, codec::encode(&output.entry)?);
            let mut sink = keys::run(&self.key);
            keys::push_name(&mut sink, output.output.as_str());
            let mut state = load_sink(staging, &sink)?.unwrap_or_default();
            state.waiting += 1;
            staging.put(Ks::Sinks, sink, codec::encode(&state)?);
        }
        Ok(())
    }
}

/// What is known of a sink, by its key.
pub(crate) fn load_sink(source: &impl Source, key: &[u8]) -> Result<Option<SinkState>, Fault> {
    source.get(Ks::Sinks, key)?.map(|bytes| codec::decode(&bytes, "a sink")).transpose()
}

/// Makes sure that the ledger knows the scenario.
pub(crate) fn know_scenario(
    staging: &mut Staging<'_>,
    id: &weir_model::ScenarioId,
    fresh: &str,
) -> Result<String, Fault> {
    let key = keys::scenario(id);
    match staging.get(Ks::Meta, &key)? {
        Some(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        None => {
            staging.put(Ks::Meta, key, fresh);
            Ok(fresh.to_owned())
        }
    }
}

/// A run's first commit: a number of its own, and what it forks from.
fn begin_run(staging: &mut Staging<'_>, key: &RunKey, fork: Fork) -> Result<Run, Fault> {
    know_scenario(staging, &key.scenario, &fresh_incarnation().0)?;
    let id = match staging.get(Ks::Meta, keys::NEXT_RUN)? {
        Some(bytes) => codec::number(&bytes, "the number of the next run")?,
        None => 1,
    };
    staging.put(Ks::Meta, keys::NEXT_RUN.to_vec(), (id + 1).to_be_bytes().as_slice());
    let live = match key.run {
        weir_model::RunId::Live => None,
        _ => load_run(staging, &RunKey::live(key.scenario.clone()))?,
    };
    let (sizes, base) = match (&live, fork) {
        (_, Fork::Empty) | (None, Fork::Head) => Default::default(),
        (Some(live), Fork::Head) => (live.sizes.clone(), Some(Base { run: live.id, before: live.head + 1 })),
        (Some(live), Fork::Before(n)) if n == live.head + 1 => {
            (live.sizes.clone(), Some(Base { run: live.id, before: n }))
        }
        (live, Fork::Before(n)) => {
            let batch = match live {
                Some(live) if n >= live.oldest => load_batch(staging, live, n)?.map(|batch| (live.id, batch)),
                _ => None,
            };
            let (run, batch) = batch.ok_or_else(|| {
                Fault::host(
                    weir_model::FaultKind::NotReplayable,
                    format_args!("{key} cannot begin: the live state before batch {n} is not kept"),
                )
                .retry(weir_model::Retry::Never)
            })?;
            (batch.sizes_before, Some(Base { run, before: n }))
        }
    };
    Ok(Run {
        id,
        birth: uuid::Uuid::new_v4().as_u64_pair().0,
        head: 0,
        head_time: Time(i64::MIN),
        head_digest: ZERO,
        oldest: BatchId::FIRST.0,
        sizes,
        base,
        expires_from: None,
    })
}

/// Own values of a run that have expired at `at`, oldest first.
fn expired(staging: &Staging<'_>, run: &Run, at: Time) -> Result<Vec<(Space, Vec<u8>)>, Fault> {
    staging
        .scan(Ks::Expiry, &keys::expired(run.id, run.expires_from, at), PURGE_LIMIT)?
        .iter()
        .map(|(key, _)| {
            let mut parts = keys::Parts(key);
            parts
                .number()
                .and_then(|_| parts.number())
                .and_then(|_| parts.space())
                .map(|space| (space, parts.0.to_vec()))
                .ok_or_else(|| ledger_fault("a key of expiry cannot be read"))
        })
        .collect()
}
