//! The ledger: what has happened. Batches, their outputs until sinks have drained them, cursors, keyed state, streams.
//! The sole owner of the embedded store (fjall); nothing of fjall is in its interface.
//!
//! Where to read on: `format.rs` what lies on the disk and what is promised of it, `commit.rs` what a batch becomes,
//! `committer.rs` how it gets durable and what is done about an error, `state.rs` how state is read at any batch,
//! `check.rs` how damage is noticed. `store.rs` alone knows fjall.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod check;
mod client;
mod codec;
mod commit;
mod committer;
mod config;
mod format;
mod fsguard;
mod keys;
mod outputs;
mod retain;
mod slot;
mod staging;
mod state;
mod store;
mod tasks;
#[cfg(test)]
mod tests;
mod witness;

use std::fmt;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use weir_model::alarm::AlarmState;
use weir_model::batch::{BatchRecord, Commit, PendingOutput, SinkCursor, Space};
use weir_model::port::{Journal, Ledger, StateReader};
use weir_model::stream::{BronzeCursor, StreamMeta};
use weir_model::{
    BatchId, Digest, Fault, FaultPoints, Incarnation, Plan, RunKey, ScenarioId, SinkId, Stage, StreamId, Time,
};

pub use check::{CheckReport, Finding};
pub use config::{LedgerConfig, LedgerStats};

use client::{Client, StreamJournal};
use codec::{OutputEntry, StoredBatch};
use commit::Prepared;
use committer::Message;
use format::Folder;
use keys::Parts;
use retain::unexpected;
use slot::Core;
use state::{View, load_batch, load_run};
use store::{Ks, Source, ledger_fault};
use tasks::{Reply, Task};

/// The ledger of one data folder.
///
/// Dropping it stops the writer, closes the store and unlocks the folder; readers and journals that are still around
/// answer a fault from then on.
pub struct FjallLedger {
    client: Arc<Client>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for FjallLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FjallLedger").field("dir", &self.client.core.folder.path()).finish_non_exhaustive()
    }
}

impl FjallLedger {
    /// Opens the ledger in `dir`, or makes one there. Tools that only read while no host runs open it the same way.
    ///
    /// Refuses a folder that another process holds, a network file system, and a format it does not know, before anything
    /// there is touched. Damage to single runs does not keep it from opening: every call for such a run answers the
    /// fault, and [`FjallLedger::check`] tells everything.
    pub fn open(dir: &Path, config: LedgerConfig, faults: Arc<dyn FaultPoints>) -> Result<Arc<Self>, Fault> {
        std::fs::create_dir_all(dir).map_err(|e| store::io_fault("the ledger's folder cannot be made", &e))?;
        fsguard::check(dir)?;
        let core = Arc::new(Core::open(Folder::new(dir), config, faults)?);
        core.read(|pinned| outputs::sweep(&core.folder, pinned))?;
        let (outbox, inbox) = sync_channel(core.config.queue);
        let writer = std::thread::Builder::new()
            .name("ledger-writer".to_owned())
            .spawn({
                let core = Arc::clone(&core);
                move || committer::run(core, inbox)
            })
            .map_err(|e| ledger_fault(format_args!("the ledger's writer cannot start: {e}")))?;
        Ok(Arc::new(Self { client: Arc::new(Client { core, outbox }), writer: Mutex::new(Some(writer)) }))
    }

    /// What the writer has done since the ledger was opened.
    pub fn stats(&self) -> LedgerStats {
        self.core().counters.stats()
    }

    /// Looks at everything: chains and indexes of all batches, before-images, sizes, counters and the bytes of all
    /// outputs. Reads the whole ledger; commits go on meanwhile.
    pub fn check(&self) -> Result<CheckReport, Fault> {
        let core = self.core();
        core.read(|pinned| check::full(&core.folder, pinned, &core.witness))
    }

    fn core(&self) -> &Arc<Core> {
        &self.client.core
    }

    fn ask(&self, task: Task) -> Result<Reply, Fault> {
        self.client.ask(task)
    }

    fn put(&self, key: Vec<u8>, value: Vec<u8>, durable: bool) -> Result<(), Fault> {
        let task = Task::Put { ks: Ks::Streams, key, value: value.into(), durable };
        self.ask(task).map(drop)
    }
}

impl Drop for FjallLedger {
    fn drop(&mut self) {
        // The writer may have died; then there is nobody to stop.
        let _ = self.client.outbox.send(Message::Stop);
        let writer = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(_)) = writer.map(JoinHandle::join) {
            tracing::error!("the ledger's writer had panicked");
        }
        if let Err(error) = self.core().witness.sync() {
            tracing::warn!(%error, "the ledger's heads could not be synced");
        }
    }
}

impl Ledger for FjallLedger {
    fn incarnation(&self) -> Incarnation {
        self.core().incarnation.clone()
    }

    fn scenario(&self, id: &ScenarioId) -> Result<Incarnation, Fault> {
        let known = self.core().read(|pinned| pinned.get(Ks::Meta, &keys::scenario(id)))?;
        if let Some(text) = known {
            return Ok(Incarnation(String::from_utf8_lossy(&text).into_owned()));
        }
        let task = Task::Scenario { id: id.clone(), fresh: store::fresh_incarnation() };
        match self.ask(task)? {
            Reply::Incarnation(incarnation) => Ok(incarnation),
            other => Err(unexpected(&other)),
        }
    }

    fn scenarios(&self) -> Result<Vec<ScenarioId>, Fault> {
        let prefix = keys::scenarios();
        self.core().read(|pinned| {
            pinned
                .range(Ks::Meta, &keys::prefixed(&prefix))
                .map(|entry| {
                    Parts(&entry?.0[prefix.len()..])
                        .scenario()
                        .ok_or_else(|| ledger_fault("the key of a scenario cannot be read"))
                })
                .collect()
        })
    }

    fn forget(&self, id: &ScenarioId) -> Result<(), Fault> {
        self.ask(Task::Forget(id.clone()))?;
        self.client.sweep_forgotten()
    }

    fn paused(&self, id: &ScenarioId) -> Result<Option<Time>, Fault> {
        let kept = self.core().read(|pinned| pinned.get(Ks::Meta, &keys::paused(id)))?;
        kept.map(|bytes| codec::decode(&bytes, "since when a scenario is paused")).transpose()
    }

    fn put_paused(&self, id: &ScenarioId, since: Option<Time>) -> Result<(), Fault> {
        let key = keys::paused(id);
        let task = match since {
            Some(since) => Task::Put { ks: Ks::Meta, key, value: codec::encode(&since)?.into(), durable: true },
            None => Task::Remove(vec![(Ks::Meta, key)]),
        };
        self.ask(task).map(drop)
    }

    fn begin(&self, plan: &Plan) -> Result<u32, Fault> {
        match self.ask(Task::from(plan))? {
            Reply::Attempt(attempt) => Ok(attempt),
            other => Err(unexpected(&other)),
        }
    }

    fn commit(&self, commit: &Commit) -> Result<Digest, Fault> {
        let core = self.core();
        let prepared = Prepared::new(core, commit).map_err(|fault| fault.at(Stage::Commit))?;
        core.faults.pass("commit.before")?;
        let reply = self.ask(Task::Commit(Box::new(prepared)))?;
        core.faults.pass("commit.replied")?;
        match reply {
            Reply::Landed(landed) => Ok(landed.digest),
            other => Err(unexpected(&other)),
        }
    }

    fn commit_all(&self, commits: &[Commit]) -> Result<(), Fault> {
        let core = self.core();
        let prepare = |commit| Prepared::new(core, commit).map_err(|fault| fault.at(Stage::Commit));
        let prepared = commits.iter().map(prepare).collect::<Result<Vec<_>, _>>()?;
        core.faults.pass("commit.before")?;
        // All are on their way before the first answer is waited for: what is ready shares a group and its sync.
        let sent = prepared.into_iter().map(|p| self.client.send(Task::Commit(Box::new(p))));
        let sent = sent.collect::<Result<Vec<_>, _>>()?;
        // The first fault is the cause of those after it.
        let answers: Vec<Result<Reply, Fault>> = sent.into_iter().map(client::Answer::get).collect();
        core.faults.pass("commit.replied")?;
        answers.into_iter().try_for_each(|answer| answer.map(drop))
    }

    fn head(&self, key: &RunKey) -> Result<Option<BatchRecord>, Fault> {
        self.core().read(|pinned| {
            let Some(run) = load_run(pinned, key)? else {
                return Ok(None);
            };
            let head = load_batch(pinned, &run, run.head)?;
            let head = head.ok_or_else(|| missing(key, run.head))?;
            head.record().map(Some)
        })
    }

    fn record(&self, key: &RunKey, id: BatchId) -> Result<Option<BatchRecord>, Fault> {
        self.core().read(|pinned| {
            let Some(run) = load_run(pinned, key)? else {
                return Ok(None);
            };
            if id.0 < run.oldest || id.0 > run.head {
                return Ok(None);
            }
            let batch = load_batch(pinned, &run, id.0)?;
            let batch = batch.ok_or_else(|| missing(key, id.0))?;
            batch.record().map(Some)
        })
    }

    fn record_at(&self, key: &RunKey, time: Time) -> Result<Option<BatchRecord>, Fault> {
        self.core().read(|pinned| {
            let Some(run) = load_run(pinned, key)? else {
                return Ok(None);
            };
            let Some(n) = pinned.get(Ks::Times, &keys::time(run.id, time))? else {
                return Ok(None);
            };
            let n = codec::number(&n, "the number of a batch")?;
            let batch = load_batch(pinned, &run, n)?;
            let batch = batch.ok_or_else(|| missing(key, n))?;
            batch.record().map(Some)
        })
    }

    fn records(&self, key: &RunKey, after: Option<BatchId>, limit: usize) -> Result<Vec<BatchRecord>, Fault> {
        self.core().read(|pinned| {
            let Some(run) = load_run(pinned, key)? else {
                return Ok(Vec::new());
            };
            let first = after.map_or(0, |a| a.0.saturating_add(1)).max(run.oldest);
            let from = std::ops::Bound::Included(keys::batch(run.id, first));
            let to = std::ops::Bound::Included(keys::batch(run.id, run.head));
            let mut out = Vec::new();
            for entry in pinned.range(Ks::Batches, &(from, to)).take(limit) {
                let record = StoredBatch::decode(&entry?.1)?.record()?;
                let due = first + out.len() as u64;
                if record.plan.id.0 != due {
                    return Err(missing(key, due));
                }
                out.push(record);
            }
            Ok(out)
        })
    }

    fn state(&self, key: &RunKey) -> Result<Box<dyn StateReader>, Fault> {
        let core = Arc::downgrade(self.core());
        self.core().read(|pinned| Ok(Box::new(View::at_head(core, pinned, key)?) as Box<dyn StateReader>))
    }

    fn state_before(&self, key: &RunKey, id: BatchId) -> Result<Box<dyn StateReader>, Fault> {
        let core = Arc::downgrade(self.core());
        self.core().read(|pinned| Ok(Box::new(View::before(core, pinned, key, id)?) as Box<dyn StateReader>))
    }

    fn alarms(&self, id: &ScenarioId) -> Result<Vec<AlarmState>, Fault> {
        const PAGE: usize = 1024;
        let state = self.state(&RunKey::live(id.clone()))?;
        let mut out = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = state.scan(&Space::Alarms, &[], after.as_deref(), PAGE)?;
            for (_, value) in &page {
                out.push(
                    serde_json::from_slice(&value.value)
                        .map_err(|e| ledger_fault(format_args!("an alarm of {id} cannot be read: {e}")))?,
                );
            }
            match page.into_iter().nth(PAGE - 1) {
                Some((key, _)) => after = Some(key),
                None => return Ok(out),
            }
        }
    }

    fn outputs(&self, sink: &SinkId, after: Option<BatchId>, max_bytes: usize) -> Result<Vec<PendingOutput>, Fault> {
        let core = self.core();
        core.read(|pinned| {
            let Some(run) = load_run(pinned, &sink.key)? else {
                return Ok(Vec::new());
            };
            let prefix = keys::outputs(run.id, &sink.output);
            let after = keys::output(run.id, &sink.output, after.map_or(0, |a| a.0));
            let (mut out, mut bytes) = (Vec::new(), 0);
            for entry in pinned.range(Ks::Outputs, &keys::prefixed_after(&prefix, after)) {
                let (key, value) = entry?;
                let entry: OutputEntry = codec::decode(&value, "an output")?;
                bytes += entry.memory;
                if !out.is_empty() && bytes > max_bytes as u64 {
                    break;
                }
                let n = Parts(&key[prefix.len()..])
                    .number()
                    .ok_or_else(|| ledger_fault(format_args!("the key of an output of {sink} cannot be read")))?;
                out.push(PendingOutput {
                    batch: BatchId(n),
                    rows: outputs::read(&core.folder, pinned, run.id, sink, n, &entry)?,
                    table: entry.table,
                    ruleset: entry.ruleset,
                });
            }
            Ok(out)
        })
    }

    fn cursor(&self, sink: &SinkId) -> Result<Option<SinkCursor>, Fault> {
        self.core().read(|pinned| {
            load_run(pinned, &sink.key)?;
            let state = commit::load_sink(pinned, &keys::sink(sink))?;
            Ok(state.and_then(|s| s.cursor))
        })
    }

    fn advance(&self, sink: &SinkId, cursor: &SinkCursor) -> Result<(), Fault> {
        let task = Task::Advance { sink: sink.clone(), cursor: cursor.clone() };
        self.ask(task).map(drop)
    }

    fn sinks(&self) -> Result<Vec<(SinkId, Option<SinkCursor>, u64)>, Fault> {
        let sinks = self.core().read(retain::sinks)?;
        Ok(sinks.into_iter().map(|(sink, state)| (sink, state.cursor, state.waiting)).collect())
    }

    fn stream(&self, id: &StreamId) -> Result<Option<StreamMeta>, Fault> {
        self.core().read(|pinned| {
            pinned.get(Ks::Streams, &keys::stream_meta(id))?.map(|bytes| codec::decode(&bytes, "a stream")).transpose()
        })
    }

    fn put_stream(&self, id: &StreamId, meta: &StreamMeta) -> Result<(), Fault> {
        self.put(keys::stream_meta(id), codec::encode(meta)?, true)
    }

    fn bronze(&self, id: &StreamId) -> Result<BronzeCursor, Fault> {
        self.core().read(|pinned| {
            pinned
                .get(Ks::Streams, &keys::stream_bronze(id))?
                .map_or_else(|| Ok(BronzeCursor::default()), |bytes| codec::decode(&bytes, "a bronze cursor"))
        })
    }

    fn put_bronze(&self, id: &StreamId, cursor: &BronzeCursor) -> Result<(), Fault> {
        self.put(keys::stream_bronze(id), codec::encode(cursor)?, false)
    }

    fn journal(&self, id: &StreamId) -> Arc<dyn Journal> {
        Arc::new(StreamJournal { client: Arc::downgrade(&self.client), id: id.clone() })
    }

    fn retain(&self, horizon: Time) -> Result<(), Fault> {
        self.client.drop_before(horizon)
    }
}

fn missing(key: &RunKey, n: u64) -> Fault {
    ledger_fault(format_args!("batch {n} of {key} is missing"))
}
