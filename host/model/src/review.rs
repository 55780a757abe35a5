//! `weir review`: how a batch came to its result. Field names are stable: they are what `--json` prints.
//!
//! Everything in it is bounded: of each answer a few rows, of each row a few hundred characters a cell, and of the whole a
//! few megabytes; what was left out is counted.

mod reason;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::alarm::{AlarmChange, Because, Severity};
use crate::batch::{Outcome, Plan};
use crate::duration::Span;
use crate::fault::Fault;
use crate::id::{BatchId, Name, ScenarioId};
use crate::port::{Extent, Notice, Usage};
use crate::service::{LogText, Rows, ScenarioState};
use crate::stream::Offsets;
use crate::time::Time;

pub use reason::Reason;

/// The most rows of an answer that can be asked for.
pub const MOST_ROWS: u32 = 1_000;
/// Rows of an answer where nothing is said.
pub const ROWS: u32 = 20;

/// Which batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReviewAsk {
    /// The scenario.
    pub scenario: ScenarioId,
    /// T; none: that of the last batch that was committed.
    #[serde(default)]
    pub at: Option<Time>,
    /// Today's ruleset and data instead of the recorded ones.
    #[serde(default)]
    pub latest: bool,
    /// Rows shown of each answer, at most [`MOST_ROWS`].
    #[serde(default = "rows")]
    pub rows: u32,
}

fn rows() -> u32 {
    ROWS
}

/// A batch, looked at from the inside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Review {
    /// What the batch is a function of.
    pub plan: Plan,
    /// The committed batch that was replayed; none: another T, or `latest`.
    pub replayed: Option<BatchId>,
    /// What became of T in the live run.
    pub live: Live,
    /// Of the last committed batch: what keeps the next one from being committed, if anything does.
    pub held: Option<Held>,
    /// What it came to here.
    pub outcome: Outcome,
    /// What it saw of each stream.
    pub inputs: Vec<InputSeen>,
    /// What the detector asked for, in order.
    pub calls: Vec<Call>,
    /// Later calls, which are in the totals only.
    pub calls_left_out: u64,
    /// All calls by query, those that were never asked among them.
    pub queries: Vec<QueryTotal>,
    /// All calls by rule, those that were never asked among them.
    pub rules: Vec<RuleTotal>,
    /// What it read and wrote of its state; none: it keeps none.
    pub state: Option<StateSeen>,
    /// Alarms that the detector raised or cleared.
    pub raised: u64,
    /// What became of alarms: of those that were raised or cleared, and of others that were open.
    pub alarms: Vec<AlarmSeen>,
    /// Further ones.
    pub alarms_left_out: u64,
    /// Rows by output, as a commit would hold them.
    pub outputs: BTreeMap<Name, Sample>,
    /// The detector's log.
    pub log: Vec<LogText>,
    /// What it used.
    pub usage: Usage,
    /// Why no alarm was opened, made worse or opened again; empty when one was.
    pub reasons: Vec<Reason>,
    /// Of `raised`, those that were cleared.
    #[serde(default)]
    pub cleared: u64,
    /// A version of the scenario that was refused: batches run on the last good one.
    #[serde(default)]
    pub rejected: Option<Notice>,
    /// The interval of the scenario's trigger: batches are due at its multiples. None: its trigger has none.
    #[serde(default)]
    pub every: Option<Span>,
    /// Since when an operator keeps the scenario from ticking.
    #[serde(default)]
    pub paused: Option<Time>,
}

impl Review {
    /// Whether T is a time at which the trigger has a batch due.
    pub fn on_grid(&self) -> bool {
        self.every.is_none_or(|every| self.plan.time.floor(every.get(), Duration::ZERO) == self.plan.time)
    }
}

/// What became of a time in the live run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Live {
    /// It is the time of a committed batch.
    Committed {
        /// N.
        id: BatchId,
        /// What it came to.
        outcome: Outcome,
        /// Alarms that it raised or cleared.
        raised: u64,
        /// Changes of alarms that it made.
        events: u64,
        /// Whether the replay came to the same outcome and changes; none: it was no replay.
        agrees: Option<bool>,
    },
    /// It was left out: the host was down or the scenario held, and the batch that came next recorded it.
    Skipped {
        /// The batch that recorded it.
        by: BatchId,
        /// The first time that was left out with it.
        first: Time,
        /// The last one.
        last: Time,
        /// How many.
        count: u64,
    },
    /// It is later than the last committed batch.
    NotYet {
        /// T of that batch.
        last: Option<Time>,
        /// What the scenario does now; none: no host runs that could tell.
        state: Option<ScenarioState>,
        /// Why it does not get on, if it does not.
        fault: Option<Fault>,
    },
    /// No batch was ever due then, as far as the ledger has it.
    Never,
}

/// What a scenario does now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// None: no host runs that could tell.
    pub state: Option<ScenarioState>,
    /// Why it does not get on, if it does not.
    pub fault: Option<Fault>,
}

/// What a batch saw of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputSeen {
    /// The stream.
    pub stream: Name,
    /// The window begins here ...
    pub from: Time,
    /// ... and ends here, T.
    pub to: Time,
    /// Where the batch before ended.
    pub after: Offsets,
    /// Where this one ends.
    pub upto: Offsets,
    /// Whether the scenario reads new rows only instead of the window.
    pub new_only: bool,
    /// The rows that it sees; none: they could not be counted.
    pub rows: Option<Extent>,
    /// Rows that are new since the batch before, where a record has it.
    pub new_rows: Option<u64>,
    /// Whether the source had been read up to its end.
    pub read: bool,
}

/// Something that the detector asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    /// Rows of a stream.
    Input {
        /// The stream.
        stream: String,
        /// The answer, or why there is none.
        answer: Answered,
    },
    /// A named query.
    Query {
        /// Its name.
        query: String,
        /// Its parameters.
        params: Map<String, Value>,
        /// Rows that were bound as tables.
        tables: BTreeMap<String, Sample>,
        /// What it read of streams whose event time its parameters bound.
        reads: Vec<Read>,
        /// The answer, or why there is none.
        answer: Answered,
    },
    /// A rule.
    Rule {
        /// Its name.
        rule: String,
        /// Fields of the input that are the same in each evaluation.
        values: Map<String, Value>,
        /// Arrays of the input.
        arrays: BTreeMap<String, Sample>,
        /// One evaluation for each of these rows; none: one evaluation.
        each: Option<Sample>,
        /// The array of the result whose elements are the answer's rows.
        unnest: Option<String>,
        /// How often it was evaluated.
        evaluations: u64,
        /// Evaluations that failed: the row and the reason. Bounded.
        failed: Vec<(u32, String)>,
        /// The answer, or why there is none. With `each` and without `unnest` the same rows are shown of both, those
        /// that failed and those that were answered with true first.
        answer: Answered,
        /// How often a column of the answer was what, of columns with few different values.
        tallies: Vec<Tally>,
    },
}

/// An answer, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answered {
    /// Rows.
    Rows(Sample),
    /// An error that the detector was told.
    Error(String),
}

/// Some rows of an answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Columns, types and rows; timestamps in UTC.
    #[serde(flatten)]
    pub rows: Rows,
    /// Which rows they are, from 0.
    pub numbers: Vec<u64>,
    /// How many rows there are.
    pub total: u64,
}

impl Sample {
    /// Rows that are not shown.
    pub fn left_out(&self) -> u64 {
        self.total.saturating_sub(self.rows.rows.len() as u64)
    }
}

/// How many rows of a stream lie in the range of event time that a query was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// The stream.
    pub stream: Name,
    /// Event time from here ...
    pub from: Time,
    /// ... to before this.
    pub to: Time,
    /// The rows; none: they could not be counted.
    pub rows: Option<u64>,
}

/// How often a column of an answer was what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// The column.
    pub column: String,
    /// Count by value; `null` for none.
    pub counts: BTreeMap<String, u64>,
}

/// All calls of a query.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryTotal {
    /// Its name.
    pub query: String,
    /// How often it was asked.
    pub calls: u64,
    /// Calls that answered no row.
    pub empty: u64,
    /// Calls that answered an error.
    pub errors: u64,
    /// Rows of all answers.
    pub rows: u64,
    /// Parameters of the first call that answered no row.
    pub empty_params: Option<Map<String, Value>>,
    /// The first error.
    pub error: Option<String>,
}

/// All calls of a rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleTotal {
    /// Its name.
    pub rule: String,
    /// How often it was asked.
    pub calls: u64,
    /// Calls that answered an error.
    pub errors: u64,
    /// Evaluations of all calls.
    pub evaluations: u64,
    /// Evaluations that failed.
    pub failed: u64,
    /// Elements of the arrays that were taken for rows, where a call has asked for an array.
    pub elements: Option<u64>,
    /// Rows of all answers.
    pub rows: u64,
    /// Boolean columns of the answers.
    pub truths: Vec<Truth>,
    /// The first error, or reason of an evaluation that failed.
    pub error: Option<String>,
}

/// How often a rule said yes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    /// The column.
    pub field: String,
    /// Rows with true.
    pub yes: u64,
    /// Rows with false.
    pub no: u64,
    /// Rows with neither.
    pub neither: u64,
}

/// What a detector did with its state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateSeen {
    /// Keys that were asked for.
    pub read: u64,
    /// Of them, keys that had a value.
    pub found: u64,
    /// Entries that scans answered.
    pub scanned: u64,
    /// Keys that were given a value.
    pub put: u64,
    /// Keys that were deleted.
    pub deleted: u64,
    /// Some of the entries: what was read, put and deleted, in order.
    pub entries: Vec<Entry>,
}

/// An entry of state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// `read`, `put` or `deleted`.
    pub what: String,
    /// The key; bytes that are no text are escaped.
    pub key: String,
    /// The value; none: there is none.
    pub value: Option<String>,
}

/// What became of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Made {
    Opened,
    Escalated,
    Lowered,
    Cleared,
    Reopened,
    Stale,
    Fresh,
    /// It was raised and is open already with this severity: only its count moves.
    Updated,
    /// It is open, and the batch did not raise it.
    Quiet,
    /// It was cleared and was not open.
    Nothing,
    /// The detector named it again in the same batch; its last word counts.
    Overruled,
}

impl From<AlarmChange> for Made {
    fn from(change: AlarmChange) -> Self {
        match change {
            AlarmChange::Opened => Self::Opened,
            AlarmChange::Escalated => Self::Escalated,
            AlarmChange::Lowered => Self::Lowered,
            AlarmChange::Cleared => Self::Cleared,
            AlarmChange::Reopened => Self::Reopened,
            AlarmChange::Stale => Self::Stale,
            AlarmChange::Fresh => Self::Fresh,
        }
    }
}

/// An alarm in a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlarmSeen {
    /// Its type.
    pub name: Name,
    /// Its key.
    pub key: Vec<String>,
    /// Whether the detector named it.
    pub said: bool,
    /// What became of it.
    pub made: Made,
    /// Its severity; none: a clear of what was not open.
    pub severity: Option<Severity>,
    /// Severity before, of one that changed.
    pub before: Option<Severity>,
    /// Its message.
    pub message: String,
    /// How many batches raised it since it was opened.
    pub count: u64,
    /// T of the batch that opened it.
    pub opened_at: Option<Time>,
    /// Judged batches in a row that did not raise it.
    pub quiet: u32,
    /// The rows that it came from.
    pub because: Vec<Because>,
}
