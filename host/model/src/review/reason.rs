//! Why there is no alarm.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::fault::Fault;
use crate::id::Name;
use crate::time::Time;

/// Why a batch opened no alarm. Each is a fact of the batch, never a guess.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Reason {
    /// The live run has no batch at this time: see `live`.
    NotRun,
    /// The live batch was committed as failed.
    LiveFailed {
        /// Why.
        fault: Fault,
    },
    /// It fails.
    Failed {
        /// Why.
        fault: Fault,
    },
    /// A source had not been read up to its end: rows may be missing, and nothing clears.
    Unread {
        /// The stream.
        stream: Name,
    },
    /// A stream has no row in its window, or no new one.
    NoRows {
        /// The stream.
        stream: Name,
        /// Event time from here ...
        from: Time,
        /// ... to before this.
        to: Time,
        /// Whether only new rows are read.
        new_only: bool,
    },
    /// A stream has rows, and none where a query looks.
    NoneInRange {
        /// The query.
        query: String,
        /// The stream.
        stream: Name,
        /// Event time from here ...
        from: Time,
        /// ... to before this.
        to: Time,
        /// The latest row that the batch sees, where it is before the range.
        latest: Option<Time>,
    },
    /// A query answered no row each time.
    EmptyAnswer {
        /// The query.
        query: String,
        /// How often it was asked.
        calls: u64,
        /// The parameters, of the first time.
        params: Map<String, Value>,
    },
    /// Calls answered an error that the detector was told.
    CallError {
        /// `query` or `rule`.
        what: String,
        /// Its name.
        name: String,
        /// How many calls.
        calls: u64,
        /// The first error.
        error: String,
    },
    /// Evaluations of a rule failed.
    EvaluationsFailed {
        /// The rule.
        rule: String,
        /// How many.
        failed: u64,
        /// Of so many.
        evaluations: u64,
        /// The first reason.
        error: String,
    },
    /// A rule's answer was false for every input.
    RuleSaysNo {
        /// The rule.
        rule: String,
        /// The field of its answer.
        field: String,
        /// For how many inputs.
        inputs: u64,
    },
    /// A rule answered an empty array each time.
    RuleFindsNone {
        /// The rule.
        rule: String,
        /// How often it was asked.
        calls: u64,
    },
    /// A rule had nothing to judge.
    RuleNotAsked {
        /// The rule.
        rule: String,
    },
    /// A rule said yes, and the detector raised nothing.
    KeptBack {
        /// The rule.
        rule: String,
        /// The field of its answer that was true; none: its answer is an array.
        field: Option<String>,
        /// For how many inputs it was true, or how many elements the array had.
        yes: u64,
        /// Keys of state that the detector found a value of.
        found: u64,
    },
    /// Rows could not be judged and were put aside as dead letters.
    PutAside {
        /// How many.
        rows: u64,
    },
    /// The detector says that it could not judge.
    NoVerdict,
    /// The detector cleared alarms and raised none.
    OnlyCleared {
        /// How many.
        alarms: u64,
    },
    /// Alarms were raised that are open already: their count moves, nobody is told anew.
    OpenAlready {
        /// How many.
        alarms: u64,
    },
    /// The detector asked for no query, no rule and no rows.
    AskedNothing,
    /// The detector raised nothing, and nothing of what it asked for says why.
    Unexplained,
}
