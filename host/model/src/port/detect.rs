//! Plugins.

use super::BatchHost;
use super::Queries;
use super::RowMaker;
use super::Rules;
use crate::alarm::AlarmRaise;
use crate::alarm::Because;
use crate::columns::FieldDef;
use crate::fault::Fault;
use crate::fault::Problem;
use crate::id::Digest;
use crate::id::Name;
use crate::ruleset::Ruleset;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use serde::Deserialize;
use serde::Serialize;
use std::sync::Arc;

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
