//! What has been committed.

use super::Journal;
use crate::alarm::AlarmState;
use crate::batch::BatchRecord;
use crate::batch::Commit;
use crate::batch::PendingOutput;
use crate::batch::Plan;
use crate::batch::SinkCursor;
use crate::batch::Space;
use crate::batch::StateValue;
use crate::fault::Fault;
use crate::id::BatchId;
use crate::id::Digest;
use crate::id::Incarnation;
use crate::id::RunKey;
use crate::id::ScenarioId;
use crate::id::SinkId;
use crate::id::StreamId;
use crate::stream::BronzeCursor;
use crate::stream::StreamMeta;
use crate::time::Time;
use std::sync::Arc;

/// What has been committed. Sole memory of the host beside the lake.
///
/// Duties: what a call that returned `Ok` has written survives a crash of the process and of the machine, unless said
/// otherwise. Calls block; they may come from many threads. Every `Err` is a [`crate::FaultKind::Ledger`] or
/// [`crate::FaultKind::Disk`] fault (or an injected one); after one the ledger can be called again.
pub trait Ledger: Send + Sync {
    /// This ledger's identity, made with it.
    fn incarnation(&self) -> Incarnation;

    /// The scenario's identity, made when it is first asked for and after [`Ledger::forget`].
    fn scenario(&self, id: &ScenarioId) -> Result<Incarnation, Fault>;
    /// All scenarios the ledger knows.
    fn scenarios(&self) -> Result<Vec<ScenarioId>, Fault>;
    /// Erases everything of a scenario: batches, outputs, cursors, state, and that it is paused.
    fn forget(&self, id: &ScenarioId) -> Result<(), Fault>;
    /// Since when an operator keeps the scenario from ticking; none: nobody does.
    fn paused(&self, id: &ScenarioId) -> Result<Option<Time>, Fault>;
    /// Keeps it.
    fn put_paused(&self, id: &ScenarioId, since: Option<Time>) -> Result<(), Fault>;

    /// Notes that the batch is about to be tried and returns which attempt it is, from 1. Survives a crash of the
    /// process, need not survive one of the machine.
    fn begin(&self, plan: &Plan) -> Result<u32, Fault>;

    /// Makes a batch happen: atomic and durable when it returns `Ok`. N must be the one after the run's head and T
    /// greater than its T. Committing the same bytes again answers the same digest and changes nothing; other bytes for a
    /// committed N are a [`crate::FaultKind::Internal`] fault. An error of the store is resolved inside, by reopening it and looking
    /// for N; only when that cannot be done is the answer a [`crate::FaultKind::Unknown`] fault: call again with the same commit.
    fn commit(&self, commit: &Commit) -> Result<Digest, Fault>;

    /// Several batches of one run, consecutive, in order. As if each was committed by itself, but they may share a sync.
    /// After an error the first of them may have happened and the others not.
    fn commit_all(&self, commits: &[Commit]) -> Result<(), Fault> {
        commits.iter().try_for_each(|commit| self.commit(commit).map(drop))
    }

    /// The latest batch of a run.
    fn head(&self, key: &RunKey) -> Result<Option<BatchRecord>, Fault>;
    /// One batch.
    fn record(&self, key: &RunKey, id: BatchId) -> Result<Option<BatchRecord>, Fault>;
    /// The batch of a grid time.
    fn record_at(&self, key: &RunKey, time: Time) -> Result<Option<BatchRecord>, Fault>;
    /// Batches after `after`, in order, at most `limit`.
    fn records(&self, key: &RunKey, after: Option<BatchId>, limit: usize) -> Result<Vec<BatchRecord>, Fault>;

    /// State as the run's head left it. A consistent view, however long it is held.
    fn state(&self, key: &RunKey) -> Result<Box<dyn StateReader>, Fault>;
    /// State as batch `id` saw it, from before-images. [`crate::FaultKind::NotReplayable`] beyond the replay horizon.
    fn state_before(&self, key: &RunKey, id: BatchId) -> Result<Box<dyn StateReader>, Fault>;
    /// Current alarms of a live run, cleared ones among them.
    fn alarms(&self, id: &ScenarioId) -> Result<Vec<AlarmState>, Fault>;

    /// Outputs after `after` in order of N, bounded in bytes; at least one when there is one.
    fn outputs(&self, sink: &SinkId, after: Option<BatchId>, max_bytes: usize) -> Result<Vec<PendingOutput>, Fault>;
    /// How far a sink is.
    fn cursor(&self, sink: &SinkId) -> Result<Option<SinkCursor>, Fault>;
    /// Moves a sink's cursor on. Outputs at or below it may be dropped by retention.
    fn advance(&self, sink: &SinkId, cursor: &SinkCursor) -> Result<(), Fault>;
    /// All sinks that have outputs or a cursor, each with its cursor and how many outputs wait.
    fn sinks(&self) -> Result<Vec<(SinkId, Option<SinkCursor>, u64)>, Fault>;

    /// A stream's identity and definition.
    fn stream(&self, id: &StreamId) -> Result<Option<StreamMeta>, Fault>;
    /// Keeps it.
    fn put_stream(&self, id: &StreamId, meta: &StreamMeta) -> Result<(), Fault>;
    /// How far a stream's bronze table is.
    fn bronze(&self, id: &StreamId) -> Result<BronzeCursor, Fault>;
    /// Keeps it. Need not be durable at once: the table itself is asked at start.
    fn put_bronze(&self, id: &StreamId, cursor: &BronzeCursor) -> Result<(), Fault>;
    /// A stream's journal.
    fn journal(&self, id: &StreamId) -> Arc<dyn Journal>;

    /// Drops what retention no longer asks for: records, before-images and drained outputs of batches with T before
    /// `horizon`. Never an output that a sink has not drained, never the head of a run.
    fn retain(&self, horizon: Time) -> Result<(), Fault>;
}

/// A view of keyed state. Keys and values as they were put; expired values are still there, the caller knows T.
pub trait StateReader: Send + Sync {
    /// One value.
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<StateValue>, Fault>;
    /// Entries with a prefix, after a key, in bytewise order, at most `limit`.
    #[allow(clippy::type_complexity)]
    fn scan(
        &self,
        space: &Space,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, StateValue)>, Fault>;
    /// Number of keys, and bytes of keys and values, of a space. Kept with every commit, not counted here.
    fn size(&self, space: &Space) -> Result<(u64, u64), Fault>;
}
