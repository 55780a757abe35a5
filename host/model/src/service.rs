//! What people and programs ask of a host: the answers of the command line, the socket and REST, in one form.
//!
//! Field names are stable: they are what `--json` prints.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::alarm::{AlarmEvent, AlarmState};
use crate::batch::{Backfill, BatchRecord, Between, Outcome, Plan};
use crate::duration::Span;
use crate::fault::Fault;
use crate::id::{BatchId, Digest, Incarnation, Name, RunKey, ScenarioId};
use crate::port::{LogLine, Notice, Usage};
use crate::review::{Review, ReviewAsk};
use crate::stream::Offsets;
use crate::time::Time;

/// `weir status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// When it was asked.
    pub time: Time,
    /// Whether a host is running, or the folder was opened to answer this.
    pub live: bool,
    /// The ledger's identity.
    pub ledger: Incarnation,
    /// Scenarios in order.
    pub scenarios: Vec<ScenarioStatus>,
    /// Streams in order.
    pub streams: Vec<StreamStatus>,
    /// Tables that were kept since the host started, in order.
    #[serde(default)]
    pub tables: Vec<TableStatus>,
    /// What keeps the host as a whole from taking in rows and changes: too little free disk.
    #[serde(default)]
    pub fault: Option<Fault>,
}

/// What a scenario does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScenarioState {
    /// It ticks (or waits for its streams).
    Running,
    /// It does not tick until its ruleset changes or somebody resumes it; `fault` says why.
    Parked,
    /// It does not tick: removed, ended, or no version of it was ever good.
    Stopped,
    /// It does not tick because an operator paused it.
    Paused,
}

/// One scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ScenarioStatus {
    pub tenant: Name,
    pub scenario: Name,
    pub state: ScenarioState,
    /// Digest of the active ruleset.
    pub ruleset: Option<Digest>,
    pub active_since: Option<Time>,
    pub plugin: Option<PluginStatus>,
    pub rules: Vec<FileStatus>,
    pub pending: Option<Notice>,
    pub rejected: Option<Notice>,
    /// Digest that an operator pinned.
    pub pinned: Option<Digest>,
    /// Why it is parked, or why the batch that is due is tried again.
    pub fault: Option<Fault>,
    pub last_batch: Option<BatchStatus>,
    /// Grid times that were not run, since the scenario's first batch.
    pub skipped_ticks: u64,
    pub sinks: Vec<SinkStatus>,
    /// Alarms that are open or stale.
    pub open_alarms: u64,
    /// Since when an operator keeps it from ticking.
    #[serde(default)]
    pub paused: Option<Time>,
}

/// The plugin of a ruleset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct PluginStatus {
    pub name: String,
    pub version: String,
    pub digest: Digest,
}

/// A file of a ruleset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct FileStatus {
    pub name: Name,
    pub file: String,
    pub digest: Digest,
}

/// The latest batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct BatchStatus {
    pub id: BatchId,
    pub time: Time,
    pub ruleset: Digest,
    pub rows_in: u64,
    /// Alarms raised.
    pub alarms: u64,
    /// `judged`, `no_verdict` or `failed`.
    pub outcome: String,
    /// Milliseconds by stage (`plan`, `query`, `detect`, `rule`, `commit`) and `total`. `detect` contains `query` and
    /// `rule`.
    pub duration_ms: BTreeMap<String, f64>,
}

/// A sink of a scenario.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct SinkStatus {
    pub sink: Name,
    pub drained_to: Option<BatchId>,
    /// Committed outputs that it has not drained.
    pub behind: u64,
    /// Why it does not move, if it does not.
    pub fault: Option<Fault>,
    /// Of a notification sink: what became dead letters since the host was started.
    #[serde(default)]
    pub dead_letters: u64,
    /// What it is behind by it is behind on purpose: it drains at its pace, and its next time has not come.
    #[serde(default)]
    pub in_pace: bool,
}

/// One stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct StreamStatus {
    pub tenant: Name,
    pub stream: Name,
    pub generation: u32,
    pub offsets: Offsets,
    pub flushed: Offsets,
    pub watermark: Option<Time>,
    pub window_rows: u64,
    pub window_bytes: u64,
    pub dead_letters: u64,
    pub late_rows: u64,
    pub rejected: Option<Notice>,
    pub fault: Option<Fault>,
}

/// A table as its latest upkeep left it; counts are since the host started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct TableStatus {
    pub tenant: Name,
    pub table: Name,
    /// When it was kept.
    pub at: Time,
    pub files: u64,
    pub bytes: u64,
    pub rows: u64,
    /// Files that were put together with others.
    pub merged_files: u64,
    /// Rows that were kept long enough and removed.
    pub expired_rows: u64,
    /// Files taken from the disk because no version that can be read has them.
    pub removed_files: u64,
    /// Why its upkeep does not get on, if it does not.
    pub fault: Option<Fault>,
}

impl TableStatus {
    /// Of a table that was not kept yet.
    pub fn new(tenant: Name, table: Name, at: Time) -> Self {
        Self {
            tenant,
            table,
            at,
            files: 0,
            bytes: 0,
            rows: 0,
            merged_files: 0,
            expired_rows: 0,
            removed_files: 0,
            fault: None,
        }
    }
}

/// Rows for people and programs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    /// Column names, in order.
    pub columns: Vec<String>,
    /// Arrow types of the columns, as text.
    pub types: Vec<String>,
    /// One object a row; timestamps as RFC 3339.
    pub rows: Vec<serde_json::Map<String, serde_json::Value>>,
}

/// `weir batch --at`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct SideReport {
    pub plan: Plan,
    /// The committed batch that was replayed.
    pub replayed: Option<BatchId>,
    pub outcome: Outcome,
    /// Rows by output, exactly as a commit would hold them.
    pub outputs: BTreeMap<Name, Rows>,
    /// Digest over the outputs' Arrow bytes, by output: equal for the live batch and its replay.
    pub output_digests: BTreeMap<Name, Digest>,
    /// Alarm changes.
    pub events: Vec<AlarmEvent>,
    /// Alarms that the detector raised or cleared.
    pub raised: u64,
    pub rows_in: u64,
    pub log: Vec<LogText>,
    pub usage: Usage,
    /// Of `raised`, those that were cleared.
    #[serde(default)]
    pub cleared: u64,
    /// The committed batch of this time, replayed or not: it ran on the state before that one. None: on empty state.
    #[serde(default)]
    pub state_before: Option<BatchId>,
}

/// Which backfill: `weir backfill`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackfillAsk {
    /// The scenario.
    pub scenario: ScenarioId,
    /// The run's name; by default one made of range, interval and ruleset, so that the same question goes on with the
    /// same run.
    #[serde(default)]
    pub name: Option<Name>,
    /// T of its batches.
    pub range: Between,
    /// Time between two of them, at least a second.
    pub every: Span,
    /// What a new run runs on; by default today's ruleset. One that was begun keeps its own.
    #[serde(default)]
    pub ruleset: Option<Digest>,
    /// Whether its rows take the place of those in the result tables when all batches are there.
    #[serde(default)]
    pub publish: bool,
    /// Gives up the rows that it has left: nobody will publish them, and retention may drop them.
    #[serde(default)]
    pub discard: bool,
}

impl BackfillAsk {
    /// What each of its plans says of the run.
    pub fn backfill(&self, base: Option<BatchId>) -> Backfill {
        Backfill { range: self.range, every: self.every, base }
    }
}

/// How far a backfill is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillProgress {
    /// The run.
    pub run: RunKey,
    /// What it runs on.
    pub ruleset: Digest,
    /// The live batch whose state before it the run began with; none: it began with nothing.
    pub base: Option<BatchId>,
    /// Batches that are committed.
    pub done: u64,
    /// Batches that it has.
    pub total: u64,
    /// T of the last committed one.
    pub time: Option<Time>,
    /// Rows of the streams that this call's batches have read for the first time.
    pub rows_in: u64,
    /// Rows that they left.
    pub results: u64,
    /// Alarms that they raised.
    pub alarms: u64,
    /// How many of them failed and were skipped, as `on_failure` says.
    pub failed: u64,
    /// Whether it was asked to publish.
    pub publish: bool,
    /// Whether its rows are in the result tables.
    pub published: bool,
    /// Whether its rows were given up.
    #[serde(default)]
    pub discarded: bool,
    /// The interval of its ruleset's trigger; none: it has none, or the run's rows were given up.
    #[serde(default)]
    pub trigger: Option<Span>,
}

impl BackfillProgress {
    /// Of a run before any batch of this call. One that is no backfill has no batches.
    pub fn begun(run: RunKey, ruleset: Digest, backfill: Option<&Backfill>) -> Self {
        Self {
            run,
            ruleset,
            base: backfill.and_then(|b| b.base),
            done: 0,
            total: backfill.map_or(0, Backfill::batches),
            time: None,
            rows_in: 0,
            results: 0,
            alarms: 0,
            failed: 0,
            publish: false,
            published: false,
            discarded: false,
            trigger: None,
        }
    }

    /// Whether nothing is left to do.
    pub fn finished(&self) -> bool {
        self.discarded || self.done == self.total && (self.published || !self.publish)
    }
}

/// A line of a plugin's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct LogText {
    pub level: String,
    pub message: String,
}

impl From<&LogLine> for LogText {
    fn from(line: &LogLine) -> Self {
        Self { level: line.level.to_owned(), message: line.message.clone() }
    }
}

/// A ruleset of a scenario's history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct HistoryEntry {
    pub digest: Digest,
    /// When it became active, or was found bad.
    pub time: Time,
    /// `active`, `rejected`, `pinned` or `unpinned`.
    pub event: String,
    /// Why: the first problem, or what changed against the one before (paths).
    pub reason: String,
}

/// One page of alarm events, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// The events.
    pub events: Vec<AlarmEvent>,
    /// Ask with this for what comes next: the latest batch seen, by scenario.
    pub next: BTreeMap<String, BatchId>,
}

/// Whether the host is ready for work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Readiness {
    /// All streams have reached their committed positions and the first look at the store is done.
    pub ready: bool,
    /// What is waited for.
    pub waiting: Vec<String>,
}

/// A host, seen from outside. Calls block. Answered by the running host, or by an opened data folder.
pub trait Service: Send + Sync {
    /// Everything at a glance.
    fn status(&self) -> Result<Status, Fault>;
    /// Whether it is ready.
    fn ready(&self) -> Readiness;
    /// Current alarms; of one scenario or all; cleared ones only when asked for.
    fn alarms(&self, scenario: Option<&ScenarioId>, cleared: bool) -> Result<Vec<AlarmState>, Fault>;
    /// Alarm events after the given batches (`tenant/scenario` -> N), at most `limit`. An absent scenario starts at its
    /// beginning; `wait_ms` waits that long for the first one.
    fn events(&self, after: &BTreeMap<String, BatchId>, limit: usize, wait_ms: u64) -> Result<Events, Fault>;
    /// SQL over a tenant's lake tables (by name), hot windows (`hot_STREAM`) and alarms (`current_alarms`).
    fn query(&self, tenant: &Name, sql: &str) -> Result<Rows, Fault>;
    /// Batches of a run after N, in order.
    fn ledger(&self, key: &RunKey, after: Option<BatchId>, limit: usize) -> Result<Vec<BatchRecord>, Fault>;
    /// The newest batches of a run, at most `limit`, in order.
    fn newest(&self, key: &RunKey, limit: usize) -> Result<Vec<BatchRecord>, Fault>;
    /// A side run. `latest`: today's ruleset and data instead of the recorded ones.
    fn side(&self, id: &ScenarioId, at: Time, latest: bool) -> Result<SideReport, Fault>;
    /// A side run, looked at from the inside.
    fn review(&self, ask: &ReviewAsk) -> Result<Review, Fault>;
    /// Goes on with a backfill for about a second, or begins it. Ask again with the same until it is finished.
    fn backfill(&self, ask: &BackfillAsk) -> Result<BackfillProgress, Fault>;
    /// Rulesets of a scenario, newest first.
    fn history(&self, id: &ScenarioId) -> Result<Vec<HistoryEntry>, Fault>;
    /// Pins a ruleset: the given one, or the one before the active. Answers the digest.
    fn rollback(&self, id: &ScenarioId, to: Option<Digest>) -> Result<Digest, Fault>;
    /// Undoes a pin.
    fn unpin(&self, id: &ScenarioId) -> Result<(), Fault>;
    /// Erases a removed scenario.
    fn forget(&self, id: &ScenarioId) -> Result<(), Fault>;
    /// Lets a parked or paused scenario go on.
    fn resume(&self, id: &ScenarioId) -> Result<(), Fault>;
    /// Keeps a scenario from ticking until it is resumed, also over restarts. A batch that runs is finished.
    fn pause(&self, id: &ScenarioId) -> Result<(), Fault>;
}
