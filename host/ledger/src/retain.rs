//! Taking away: what retention no longer asks for, and what a forgotten scenario leaves behind.
//!
//! Reads on the caller's thread decide what goes, small tasks let the writer remove it, so that a long clean-up never
//! holds up a commit for longer than one of them. If the process dies in the middle, the rest goes the next time.

use std::collections::BTreeMap;

use weir_model::{Fault, Name, RunKey, SinkId, Time};

use crate::client::Client;
use crate::codec::{self, OutputEntry, Run, SinkState};
use crate::keys::{self, Parts};
use crate::outputs;
use crate::store::{Ks, Pinned, Source, io_fault, ledger_fault};
use crate::tasks::{Reply, Task};

/// Keys that one task removes at most.
const REMOVE_LIMIT: usize = 1024;

impl Client {
    /// See [`weir_model::port::Ledger::retain`].
    pub(crate) fn drop_before(&self, horizon: Time) -> Result<(), Fault> {
        self.sweep_forgotten()?;
        let (runs, sinks) = self.core.read(|pinned| {
            let runs = runs(pinned)?
                .into_iter()
                // A damaged run is evidence; nothing of it is touched until somebody decides.
                .filter(|(_, run)| !pinned.store().damaged.contains_key(&run.id))
                .map(|(key, run)| {
                    let limit = first_kept(pinned, &run, horizon)?;
                    Ok((key, run, limit))
                })
                .collect::<Result<Vec<_>, Fault>>()?;
            let mut of_runs: BTreeMap<RunKey, Vec<_>> = BTreeMap::new();
            for (sink, state) in sinks(pinned)? {
                of_runs.entry(sink.key).or_default().push((sink.output, state));
            }
            Ok((runs, of_runs))
        })?;
        for (key, run, limit) in &runs {
            for (output, state) in sinks.get(key).into_iter().flatten() {
                // The cursor never moves back: what is drained now stays drained.
                let below = (*limit).min(state.drained_to() + 1);
                self.drop_outputs(run.id, output, below)?;
            }
            let mut oldest = run.oldest;
            while oldest < *limit {
                let task = Task::Drop { key: key.clone(), run: run.id, below: *limit };
                oldest = match self.ask(task)? {
                    Reply::Oldest(oldest) => oldest,
                    other => return Err(unexpected(&other)),
                };
            }
        }
        let synced = self.core.witness.sync();
        synced.map_err(|e| io_fault("the ledger's heads cannot be synced", &e))
    }

    /// Removes the outputs of batches below `below`, oldest first.
    fn drop_outputs(&self, run: u64, output: &Name, below: u64) -> Result<(), Fault> {
        let range = (
            std::ops::Bound::Included(keys::output(run, output, 0)),
            std::ops::Bound::Excluded(keys::output(run, output, below)),
        );
        loop {
            let page = self.core.read(|pinned| pinned.scan(Ks::Outputs, &range, REMOVE_LIMIT / 2))?;
            if page.is_empty() {
                return Ok(());
            }
            self.remove_outputs(&page)?;
        }
    }

    /// Removes entries with their bytes. The files last: a file without an entry is swept, an entry without its file
    /// would be damage.
    fn remove_outputs(&self, page: &[(fjall::Slice, fjall::Slice)]) -> Result<(), Fault> {
        let mut files = Vec::new();
        let mut remove = Vec::new();
        for (key, value) in page {
            files.extend(codec::decode::<OutputEntry>(value, "an output")?.file);
            remove.push((Ks::Outputs, key.to_vec()));
            remove.push((Ks::Payloads, key.to_vec()));
        }
        self.ask(Task::Remove(remove))?;
        for file in files {
            outputs::remove_file(&self.core.folder, &file);
        }
        Ok(())
    }

    /// Removes what runs of forgotten scenarios have written. Their numbers are never used again, so nothing new can
    /// lie among it.
    pub(crate) fn sweep_forgotten(&self) -> Result<(), Fault> {
        let all = keys::prefixed(&keys::all_dead());
        for (marker, _) in self.core.read(|pinned| pinned.scan(Ks::Meta, &all, usize::MAX))? {
            let mut parts = Parts(&marker[1..]);
            let run = parts.number().ok_or_else(|| ledger_fault("a forgotten run cannot be read"))?;
            for ks in Ks::OF_RUNS {
                self.sweep_keyspace(ks, run)?;
            }
            self.ask(Task::Remove(vec![(Ks::Meta, marker.to_vec())]))?;
        }
        Ok(())
    }

    fn sweep_keyspace(&self, ks: Ks, run: u64) -> Result<(), Fault> {
        let range = keys::prefixed(&run.to_be_bytes());
        loop {
            let page = self.core.read(|pinned| pinned.scan(ks, &range, REMOVE_LIMIT))?;
            if page.is_empty() {
                return Ok(());
            }
            if ks == Ks::Outputs {
                self.remove_outputs(&page)?;
            } else {
                let keys = page.iter().map(|(key, _)| (ks, key.to_vec()));
                self.ask(Task::Remove(keys.collect()))?;
            }
        }
    }
}

/// The first batch that is kept: the first one with T at or after `horizon`, and never one behind the head.
fn first_kept(pinned: &Pinned<'_>, run: &Run, horizon: Time) -> Result<u64, Fault> {
    let from = keys::time(run.id, horizon);
    let range = (std::ops::Bound::Included(from), keys::prefixed(&run.id.to_be_bytes()).1);
    match pinned.scan(Ks::Times, &range, 1)?.pop() {
        Some((_, n)) => codec::number(&n, "the number of a batch").map(|n| n.min(run.head)),
        None => Ok(run.head),
    }
}

/// All runs with their keys, damaged ones among them.
pub(crate) fn runs(pinned: &Pinned<'_>) -> Result<Vec<(RunKey, Run)>, Fault> {
    pinned
        .range(Ks::Runs, &keys::ALL)
        .map(|entry| {
            let (key, value) = entry?;
            let key = Parts(&key).run().ok_or_else(|| ledger_fault("the key of a run cannot be read"))?;
            Ok((key, codec::decode(&value, "a run")?))
        })
        .collect()
}

/// All sinks.
pub(crate) fn sinks(pinned: &Pinned<'_>) -> Result<Vec<(SinkId, SinkState)>, Fault> {
    pinned
        .range(Ks::Sinks, &keys::ALL)
        .map(|entry| {
            let (key, value) = entry?;
            let sink = Parts(&key).sink().ok_or_else(|| ledger_fault("the key of a sink cannot be read"))?;
            Ok((sink, codec::decode(&value, "a sink")?))
        })
        .collect()
}

/// The fault of a reply that belongs to another task.
pub(crate) fn unexpected(reply: &Reply) -> Fault {
    Fault::internal(format_args!("the writer answered {reply:?}"))
}
