//! The ports: what `pipeline` asks of the engines. Each doc states the implementor's duty.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::alarm::{AlarmRaise, AlarmState, Because};
use crate::batch::{BatchRecord, Commit, PendingOutput, Plan, SinkCursor, Space, StateValue};
use crate::columns::{FieldDef, Kind, Scalar};
use crate::fault::{CallError, Fault, Problem};
use crate::id::{BatchId, Digest, Incarnation, Name, RunKey, ScenarioId, SinkId, StreamId};
use crate::ruleset::Ruleset;
use crate::stream::{BronzeCursor, Chunk, DeadLetter, OffsetRange, Offsets, StreamDef, StreamMeta};
use crate::time::{BoxFuture, Time};

// ---------------------------------------------------------------------------------------------- sources

/// One record as a source has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its offset in its partition.
    pub offset: u64,
    /// Key, where the source has keys.
    pub key: Option<Bytes>,
    /// The bytes.
    pub value: Bytes,
    /// When the source took it in, where the source says so.
    pub enqueued: Option<Time>,
    /// Headers, in order.
    pub headers: Vec<(String, Bytes)>,
}

/// What was read.
#[derive(Debug, Clone)]
pub enum Payload {
    /// Records to be decoded.
    Records(Vec<Record>),
    /// Rows that the source made itself, in the stream's schema, with each row's offset.
    Rows {
        /// The rows.
        rows: RecordBatch,
        /// Offset of each row, increasing.
        offsets: Vec<u64>,
    },
}

/// One bounded read of one partition.
#[derive(Debug, Clone)]
pub struct Polled {
    /// The offsets that were read. Not every one need have a record.
    pub range: OffsetRange,
    /// What they hold.
    pub payload: Payload,
}

/// How much one poll may bring. At least one record is brought when there is one, however large.
#[derive(Debug, Clone, Copy)]
pub struct PollLimit {
    /// Records.
    pub rows: usize,
    /// Bytes of them.
    pub bytes: usize,
}

/// A source of one stream, opened at a position.
///
/// Duties: reading the same offsets again gives the same records, until [`Source::release`] has passed them. Offsets of a
/// partition only grow. A source that has lost what lies at the position answers a [`crate::FaultKind::Gap`] fault.
/// All calls come from one thread at a time and may block up to the time they are given.
pub trait Source: Send {
    /// The next records after the position, or none when there are none before `wait` has passed. Moves the position on.
    /// `now` is the clock's time; a source must not look at another clock.
    fn poll(&mut self, now: Time, limit: PollLimit, wait: Duration) -> Result<Option<Polled>, Fault>;

    /// Whether the last poll ended at what the source held at that moment, in every partition.
    fn at_end(&self) -> bool;

    /// When it is worth to poll again, if the source knows (`generate` does).
    fn next_due(&self) -> Option<Time> {
        None
    }

    /// Rows below are durable elsewhere: what was kept to read them again may go.
    fn release(&mut self, upto: &Offsets) -> Result<(), Fault>;
}

/// Turns polled records into rows of the stream's schema, and what cannot be turned into dead letters. Pure.
pub trait Decode: Send + Sync {
    /// `rows` and `offsets` have the same length; every record is either a row or a dead letter.
    fn decode(&self, polled: Polled) -> Result<Decoded, Fault>;
}

/// What became of polled records.
#[derive(Debug, Clone)]
pub struct Decoded {
    /// The offsets it covers.
    pub range: OffsetRange,
    /// Rows in the stream's schema ([`StreamDef::schema`]), in offset order.
    pub rows: RecordBatch,
    /// Offset of each row.
    pub offsets: Vec<u64>,
    /// The others.
    pub dead: Vec<DeadLetter>,
}

/// A source with the decoder of its records.
pub type OpenSource = (Box<dyn Source>, Box<dyn Decode>);

/// Opens sources.
pub trait Sources: Send + Sync {
    /// Opens the stream's source so that the first poll reads at `from`, and makes its decoder. `journal` is the
    /// stream's own durable list, for what may vanish at the source.
    fn open(
        &self,
        id: &StreamId,
        def: &StreamDef,
        meta: &StreamMeta,
        from: &Offsets,
        journal: Arc<dyn Journal>,
    ) -> Result<OpenSource, Fault>;
}

/// A durable, ordered list that belongs to one stream.
pub trait Journal: Send + Sync {
    /// All entries, in order of their number.
    #[allow(clippy::type_complexity)]
    fn entries(&self) -> Result<Vec<(u64, Vec<u8>)>, Fault>;
    /// Writes entry `number`; durable when it returns. Writing a number again replaces it.
    fn put(&self, number: u64, bytes: &[u8]) -> Result<(), Fault>;
    /// Forgets an entry.
    fn remove(&self, number: u64) -> Result<(), Fault>;
}

/// Makes the rows of one tick of a `generate` source. Pure in (tick, now).
pub trait RowMaker: Send + Sync {
    /// Rows in the stream's schema. `now` is the tick's own time.
    fn rows(&self, tick: u64, now: Time) -> Result<RecordBatch, Fault>;
}

// ---------------------------------------------------------------------------------------------- ledger

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
    /// Erases everything of a scenario: batches, outputs, cursors, state.
    fn forget(&self, id: &ScenarioId) -> Result<(), Fault>;

    /// Notes that the batch is about to be tried and returns which attempt it is, from 1. Survives a crash of the
    /// process, need not survive one of the machine.
    fn begin(&self, plan: &Plan) -> Result<u32, Fault>;

    /// Makes a batch happen: atomic and durable when it returns `Ok`. N must be the one after the run's head and T
    /// greater than its T. Committing the same bytes again answers the same digest and changes nothing; other bytes for a
    /// committed N are a [`crate::FaultKind::Internal`] fault. An error of the store is resolved inside, by reopening it and looking
    /// for N; only when that cannot be done is the answer a [`crate::FaultKind::Unknown`] fault: call again with the same commit.
    fn commit(&self, commit: &Commit) -> Result<Digest, Fault>;

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

// ---------------------------------------------------------------------------------------------- what a batch can ask

/// What a batch sees of one stream: plain rows, immutable.
#[derive(Debug, Clone)]
pub struct PinnedStream {
    /// The stream.
    pub stream: StreamId,
    /// Its definition.
    pub def: Arc<StreamDef>,
    /// Only rows at or above (empty: from the start) ...
    pub from: Offsets,
    /// ... and below these offsets are seen.
    pub upto: Offsets,
    /// Only rows with an event time at or after this are seen, unless a query's bounds reach further back.
    pub floor: Time,
    /// All rows below `upto` with an event time at or after this are in `chunks`; older ones are in the bronze table.
    pub complete_from: Time,
    /// Rows in (partition, offset) order. May hold rows below `floor`; never any outside of the offsets.
    pub chunks: Vec<Chunk>,
}

/// All inputs of a batch.
#[derive(Debug, Clone)]
pub struct BatchInputs {
    /// T. What SQL `now()` answers.
    pub time: Time,
    /// Streams by name.
    pub streams: BTreeMap<Name, PinnedStream>,
}

/// The named queries of a ruleset, planned once.
pub trait Queries: Send + Sync {
    /// Runs one on the calling thread. Equal inputs give equal bytes: rows in the query's own order where it is total, else
    /// sorted by all columns. Unknown names and wrong binds are `Data`; limits and lost disks are `Fault`.
    fn run(
        &self,
        name: &str,
        inputs: &BatchInputs,
        params: &[(String, Scalar)],
        rows: &[(String, RecordBatch)],
    ) -> Result<RecordBatch, CallError>;

    /// The rows of a stream that the batch sees, as one record batch in (partition, offset) order, position columns
    /// included.
    fn input(&self, name: &str, inputs: &BatchInputs) -> Result<RecordBatch, CallError>;

    /// Names of all queries.
    fn names(&self) -> Vec<Name>;
}

/// One call of a rule.
#[derive(Debug, Clone, Default)]
pub struct RuleCall {
    /// Fields of the input object, the same in each evaluation.
    pub values: Vec<(String, Scalar)>,
    /// Fields that hold an array of objects, the same in each evaluation.
    pub rows: Vec<(String, RecordBatch)>,
    /// One evaluation a row: the row's columns are fields of the input object. None: one evaluation.
    pub each: Option<RecordBatch>,
    /// The elements of the array at this path are the answer's rows. None: one row an evaluation.
    pub unnest: Option<String>,
    /// Columns of the answer: path in the result, and kind. An empty path with kind json is the whole result.
    pub want: Vec<(String, Kind)>,
}

/// What a rule answered.
#[derive(Debug, Clone)]
pub struct RuleAnswer {
    /// One column per `want`, named by its path. With `each` and no `unnest`, row i answers row i, all null if it failed.
    pub rows: RecordBatch,
    /// Evaluations that failed, with the reason.
    pub failed: Vec<(u32, String)>,
}

/// What an evaluation may know beside its input.
#[derive(Debug, Clone, Copy)]
pub struct RuleContext {
    /// T: what dates in function nodes answer.
    pub time: Time,
    /// The batch's seed: what random numbers in function nodes come from.
    pub seed: [u8; 32],
}

/// The rules of a ruleset, loaded and compiled once.
pub trait Rules: Send + Sync {
    /// Evaluates one, blocking. Equal call and context give equal bytes. A rule that fails in single evaluations lists
    /// them in `failed`; without `each` that is `Data(Failed)`. Limits are `Fault`.
    fn evaluate(&self, name: &str, call: &RuleCall, context: RuleContext) -> Result<RuleAnswer, CallError>;
    /// Rules by name, with the digest of their file.
    fn names(&self) -> BTreeMap<Name, Digest>;
}

/// Event-time bounds of an input in a batch, `[start, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// T - retention.
    pub start: Time,
    /// T.
    pub end: Time,
    /// See [`crate::StreamPin::watermark`].
    pub watermark: Option<Time>,
}

/// What a detector may ask of its batch. One per call of `detect`; all answers are functions of the plan.
pub trait BatchHost: Send + Sync {
    /// T.
    fn time(&self) -> Time;
    /// The batch's seed.
    fn seed(&self) -> [u8; 32];
    /// Rows of a stream.
    fn input(&self, name: &str) -> Result<RecordBatch, CallError>;
    /// Bounds of a stream.
    fn window(&self, input: &str) -> Result<Bounds, CallError>;
    /// Runs a named query.
    fn query(
        &self,
        name: &str,
        params: &[(String, Scalar)],
        rows: &[(String, RecordBatch)],
    ) -> Result<RecordBatch, CallError>;
    /// Evaluates a rule.
    fn rule(&self, name: &str, call: &RuleCall) -> Result<RuleAnswer, CallError>;
    /// Values of keys, in order; the batch's own writes are seen, expired values are not.
    fn state_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, CallError>;
    /// Puts values that last `ttl` seconds from T, or for ever.
    fn state_put(&self, entries: &[(&[u8], &[u8])], ttl: Option<u64>) -> Result<(), CallError>;
    /// Deletes keys.
    fn state_delete(&self, keys: &[&[u8]]) -> Result<(), CallError>;
    /// Entries with a prefix after a key, bytewise order, at most `limit`.
    #[allow(clippy::type_complexity)]
    fn state_scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: u32)
    -> Result<Vec<(Vec<u8>, Vec<u8>)>, CallError>;
}

// ---------------------------------------------------------------------------------------------- detectors

/// What a plugin says of itself. Mirrors `description` of the WIT.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Description {
    pub name: String,
    pub version: String,
    pub outputs: Vec<OutputDecl>,
    pub alarms: Vec<AlarmType>,
    pub inputs: Vec<Name>,
    pub queries: Vec<Name>,
    pub rules: Vec<Name>,
    pub assets: Vec<Name>,
    /// Version of the state schema; none when the plugin keeps no state.
    pub state: Option<u32>,
}

/// An output that a plugin declares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct OutputDecl {
    pub name: Name,
    pub fields: Vec<FieldDef>,
}

/// An alarm type that a plugin declares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct AlarmType {
    pub name: Name,
    /// Names of the key's fields.
    pub key: Vec<String>,
}

/// Whether the plugin judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Silence means that all is well.
    Judged,
    /// It could not tell: nothing auto-clears.
    NoVerdict,
}

/// Rows that the plugin put aside.
#[derive(Debug, Clone, PartialEq)]
pub struct Reject {
    /// The row.
    pub row: Because,
    /// Why.
    pub reason: String,
    /// The row as JSON, cut to 64 KiB.
    pub raw: String,
}

/// What a call into a plugin used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Fuel.
    pub fuel: u64,
    /// Largest total of memories, frames and writers, in bytes.
    pub memory_peak: u64,
    /// Calls from guest to host.
    pub host_calls: u64,
}

/// A line that a plugin logged (by `log`, stdout or stderr).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// debug, info, warn or error.
    pub level: &'static str,
    /// The text.
    pub message: String,
}

/// What a plugin made of a batch. State changes stay in the [`BatchHost`].
#[derive(Debug, Clone)]
pub struct Detection {
    /// Whether it judged.
    pub verdict: Verdict,
    /// Finished outputs, in the declared schema; several finishes of one output are one entry.
    pub outputs: Vec<(Name, RecordBatch)>,
    /// Alarms, in order.
    pub alarms: Vec<AlarmRaise>,
    /// Rows put aside.
    pub rejects: Vec<Reject>,
    /// Its log, bounded.
    pub log: Vec<LogLine>,
    /// What it used.
    pub usage: Usage,
}

/// A call into a plugin that failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{fault}")]
pub struct DetectFailure {
    /// Why.
    pub fault: Fault,
    /// Its log until then, bounded.
    pub log: Vec<LogLine>,
    /// What it used.
    pub usage: Usage,
}

/// A loaded plugin of a ruleset.
pub trait Detector: Send + Sync {
    /// What it says of itself.
    fn description(&self) -> &Description;
    /// Digest of its component.
    fn digest(&self) -> Digest;
    /// One batch, on the calling thread, in a fresh prepared instance: no memory survives from one call to the next.
    /// Limits are those of the ruleset. Never panics because of what a guest does.
    fn detect(&self, host: Arc<dyn BatchHost>) -> Result<Detection, Box<DetectFailure>>;
}

/// Loads the components of rulesets.
pub trait Detectors: Send + Sync {
    /// Compiles (or takes from the cache), checks version and imports, runs `describe`, and prepares once.
    fn load(&self, ruleset: &Ruleset) -> Result<Arc<dyn Detector>, Vec<Problem>>;
}

/// Loads the rules of rulesets.
pub trait RuleEngine: Send + Sync {
    /// Reads, checks and compiles all rules of the manifest, and runs their sample cases.
    fn load(&self, ruleset: &Ruleset) -> Result<Arc<dyn Rules>, Vec<Problem>>;
}

/// Plans the queries of rulesets.
pub trait QueryEngine: Send + Sync {
    /// Reads, checks and plans all queries of the manifest against the streams' schemas.
    fn plan(&self, ruleset: &Ruleset) -> Result<Arc<dyn Queries>, Vec<Problem>>;
    /// Plans the SQL of a `generate` source. `file` and the field `source.sql` are named in problems.
    fn row_maker(&self, sql: &str, schema: SchemaRef, file: &str) -> Result<Arc<dyn RowMaker>, Problem>;
}

/// A ruleset that is ready to run. Immutable; taken once per batch, swapped as one pointer.
#[derive(Clone)]
pub struct Prepared {
    /// The content.
    pub ruleset: Arc<Ruleset>,
    /// Its plugin.
    pub detector: Arc<dyn Detector>,
    /// Its rules.
    pub rules: Arc<dyn Rules>,
    /// Its queries.
    pub queries: Arc<dyn Queries>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("digest", &self.ruleset.digest).finish_non_exhaustive()
    }
}

/// Decides whether a ruleset may run, and makes it ready.
pub trait Admission: Send + Sync {
    /// Collects every problem. Runs off the batch path and may take as long as `compile_time` allows.
    fn admit(&self, ruleset: Arc<Ruleset>) -> Result<Arc<Prepared>, Vec<Problem>>;
}

// ---------------------------------------------------------------------------------------------- rule store

/// Why a scenario's folder is not what runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// What is waited for, or what is wrong: the first problem in words.
    pub reason: String,
    /// The file it is about.
    pub file: String,
    /// Since when.
    pub since: Time,
    /// All problems.
    #[serde(default)]
    pub problems: Vec<Problem>,
}

/// What the rule store knows of a scenario.
#[derive(Debug, Clone)]
pub struct ScenarioView {
    /// The scenario.
    pub id: ScenarioId,
    /// What batches run on; none when no version of it was ever good.
    pub active: Option<Arc<Prepared>>,
    /// Since when it is active.
    pub active_since: Option<Time>,
    /// A newer version that still changes or compiles.
    pub pending: Option<Notice>,
    /// A newer version that is bad.
    pub rejected: Option<Notice>,
    /// The digest that an operator pinned.
    pub pinned: Option<Digest>,
    /// The folder is gone: the scenario stops and keeps its state.
    pub removed: bool,
}

/// What the rule store knows of a stream.
#[derive(Debug, Clone)]
pub struct StreamView {
    /// The stream.
    pub id: StreamId,
    /// Its last good definition.
    pub def: Option<Arc<StreamDef>>,
    /// Digest of that definition.
    pub digest: Option<Digest>,
    /// A newer definition that is bad.
    pub rejected: Option<Notice>,
}

/// Where rulesets come from.
pub trait RuleStore: Send + Sync {
    /// Looks whether anything changed, cheaply; called before every batch and by a timer. Starts loading what has.
    fn look(&self, now: Time);
    /// All scenarios, in order of their ids.
    fn scenarios(&self) -> Vec<ScenarioView>;
    /// One scenario.
    fn scenario(&self, id: &ScenarioId) -> Option<ScenarioView>;
    /// All streams of all tenants, in order of their ids.
    fn streams(&self) -> Vec<StreamView>;
    /// A ruleset of the history, made ready again. [`crate::FaultKind::NotReplayable`] when it is not kept any more.
    fn stored(&self, id: &ScenarioId, digest: Digest) -> Result<Arc<Prepared>, Fault>;
    /// Counts changes of any view; grows when something was published.
    fn epoch(&self) -> u64;
}

/// The past of the rule store.
pub trait History: Send + Sync {
    /// Rulesets of a scenario and what became of them, newest first.
    fn history(&self, id: &ScenarioId) -> Result<Vec<crate::service::HistoryEntry>, Fault>;
    /// Pins a ruleset until the folder changes or it is unpinned: the given one, or the one active before.
    fn rollback(&self, id: &ScenarioId, to: Option<Digest>) -> Result<Digest, Fault>;
    /// Undoes a pin.
    fn unpin(&self, id: &ScenarioId) -> Result<(), Fault>;
    /// Erases what is kept of a scenario whose folder is gone.
    fn forget(&self, id: &ScenarioId) -> Result<(), Fault>;
}

// ---------------------------------------------------------------------------------------------- lake

/// An in-memory table beside the lake's, for an ad-hoc query.
#[derive(Debug, Clone)]
pub struct ViewTable {
    /// Its name in SQL.
    pub name: String,
    /// Its schema.
    pub schema: SchemaRef,
    /// Its rows.
    pub rows: Vec<RecordBatch>,
}

/// SQL that people write at a prompt.
pub trait AdHoc: Send + Sync {
    /// One SELECT over a tenant's lake tables, by name, and the given ones, which come first. Bounded in memory, rows
    /// and time.
    fn query(&self, tenant: &Name, sql: &str, views: Vec<ViewTable>) -> Result<RecordBatch, Fault>;
}

/// Rows for a table. `version` grows strictly per `app`; the table remembers the latest of each app.
#[derive(Debug, Clone)]
pub struct Append {
    /// Who appends: a sink's id with all incarnations in it.
    pub app: String,
    /// Which of its appends this is: N of a batch, or an offset.
    pub version: i64,
    /// The rows.
    pub rows: RecordBatch,
}

/// One lake table with its one writer.
///
/// Duties: an append is atomic over all its items, and idempotent: items at or below the version that the table holds for
/// their app are left out. When it returns `Ok`, files and folders are synced. After an error nothing is known; the same
/// items can be given again.
pub trait Table: Send + Sync {
    /// Identity of the table: another one after it was deleted and made again.
    fn id(&self) -> BoxFuture<'_, Result<String, Fault>>;
    /// The latest version of an app that the table holds.
    fn held<'a>(&'a self, app: &'a str) -> BoxFuture<'a, Result<Option<i64>, Fault>>;
    /// Appends, all in one transaction. Columns that the table lacks are added (nullable); others are refused.
    fn append(&self, items: Vec<Append>) -> BoxFuture<'_, Result<(), Fault>>;
}

/// Which rows of a bronze table.
#[derive(Debug, Clone)]
pub struct BronzeRange {
    /// Event-time column.
    pub event_time: String,
    /// Event time at or after.
    pub from: Time,
    /// Event time before; none: no bound.
    pub to: Option<Time>,
    /// Only offsets at or above ...
    pub above: Offsets,
    /// ... and below these.
    pub below: Offsets,
}

/// The tables of all tenants.
pub trait Lake: Send + Sync {
    /// The table, made when it is not there, its schema widened when it lacks columns.
    fn table<'a>(
        &'a self,
        tenant: &'a Name,
        table: &'a Name,
        schema: SchemaRef,
    ) -> BoxFuture<'a, Result<Arc<dyn Table>, Fault>>;
    /// Rows of a bronze table, in (partition, offset) order. Empty when the table is not there.
    fn bronze<'a>(
        &'a self,
        tenant: &'a Name,
        table: &'a Name,
        schema: SchemaRef,
        range: BronzeRange,
    ) -> BoxFuture<'a, Result<Vec<RecordBatch>, Fault>>;
}
