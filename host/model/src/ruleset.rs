//! Rulesets: everything that a scenario runs on, immutable and content-addressed; and the files that make one.
//!
//! ```text
//! <store>/<tenant>/tenant.toml                   TenantConfig
//! <store>/<tenant>/streams/NAME.toml             StreamDef
//! <store>/<tenant>/<scenario>/scenario.toml      Manifest
//!                             plugins/*.wasm  rules/*.json  queries/*.sql  tables/*.{csv,json,parquet}  assets/*
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::columns::ColumnType;
use crate::detect::DetectDef;
use crate::duration::Span;
use crate::fault::Problem;
use crate::id::{Digest, Name, ScenarioId};
use crate::limits::{Limits, LimitsPatch};
use crate::notify::NotifyDef;
use crate::stream::{Columns, StreamDef};
use crate::zone::Zone;

/// `tenant.toml`: what an operator grants a tenant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// Limits that differ from the host's; caps for every scenario of the tenant.
    #[serde(default)]
    pub limits: LimitsPatch,
    /// What this tenant's scenarios may use beyond the default.
    #[serde(default)]
    pub grants: Grants,
    /// The zone in which times are handed to rules and stand in messages, with its offset. Windows stay in UTC.
    #[serde(default)]
    pub display_timezone: Zone,
}

/// Capabilities that an operator may grant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grants {
    /// `native`: function nodes in module form are allowed; they have a network client that cannot be switched off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<FunctionGrant>,
    /// Where webhooks may post to: prefixes of URLs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<String>,
    /// Variables of the host's environment that headers of webhooks may hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
}

/// Where function nodes may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FunctionGrant {
    /// In the host's process.
    Native,
}

/// `scenario.toml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// A sentence for people.
    #[serde(default)]
    pub description: String,
    /// The component, a path in the scenario's folder. This or `detect`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    /// Detection that is declared, without a plugin. This or `plugin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detect: Option<DetectDef>,
    /// When a batch is due.
    pub trigger: Trigger,
    /// What to do with the ticks that passed while the host was down.
    #[serde(default)]
    pub catch_up: CatchUp,
    /// What to do after the attempts of a failing batch are used up.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// How often a batch may be tried before `on_failure`.
    #[serde(default = "default_attempts")]
    pub attempts: u32,
    /// Streams that the scenario reads, by stream name.
    #[serde(default)]
    pub inputs: BTreeMap<Name, InputDef>,
    /// Named queries.
    #[serde(default)]
    pub queries: BTreeMap<Name, QueryDef>,
    /// Rules by name: paths of JDM files in the scenario's folder.
    #[serde(default)]
    pub rules: BTreeMap<Name, String>,
    /// Outputs by the plugin's output name. An output that is not listed here goes to a table of its own name.
    #[serde(default)]
    pub outputs: BTreeMap<Name, OutputDef>,
    /// Settings of alarm types, by type name.
    #[serde(default)]
    pub alarms: BTreeMap<Name, AlarmDef>,
    /// Assets that the plugin reads in `prepare`, by name: paths in the scenario's folder.
    #[serde(default)]
    pub assets: BTreeMap<Name, String>,
    /// Handed to the plugin's `prepare` as JSON.
    #[serde(default)]
    pub config: toml::Table,
    /// Limits that differ from the tenant's; only lower ones have an effect.
    #[serde(default)]
    pub limits: LimitsPatch,
    /// `reset`: accept a plugin with another state schema version, starting on empty state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StatePolicy>,
    /// Reference tables, which queries read under these names beside streams and table parameters.
    #[serde(default)]
    pub tables: BTreeMap<Name, TableDef>,
    /// Who is told of changes of alarms, by name.
    #[serde(default)]
    pub notify: BTreeMap<Name, NotifyDef>,
}

fn default_attempts() -> u32 {
    3
}

/// When a batch is due. T is always a time of the trigger's grid, strictly increasing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Trigger {
    /// Every grid time: multiples of the interval since the epoch.
    Interval(Span),
    /// All that there is when the host starts, then none.
    AvailableNow,
    /// One batch when the host starts.
    Once,
}

impl Trigger {
    /// The interval, of a trigger that has one.
    pub fn interval(self) -> Option<Span> {
        match self {
            Self::Interval(span) => Some(span),
            Self::AvailableNow | Self::Once => None,
        }
    }

    /// The distance of the grid's times. For the triggers without an interval the grid is a second.
    pub fn grid(self) -> Span {
        self.interval().unwrap_or(Span::secs(1))
    }
}

/// After downtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// One batch for the latest grid time; the skipped ones are recorded.
    #[default]
    Latest,
    /// Every grid time, at most 10,000 of them; older ones are recorded as skipped.
    All,
}

/// After the last attempt of a failing batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Stop ticking until the ruleset changes or an operator resumes.
    #[default]
    Park,
    /// Commit the batch as failed and go on with the next.
    Skip,
    /// End the scenario until the host is restarted.
    Stop,
}

/// What to do about state of another schema version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatePolicy {
    /// Start on empty state; the old one is kept under its version.
    Reset,
}

/// How a scenario reads a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputDef {
    /// Whole window or new rows.
    #[serde(default)]
    pub mode: InputMode,
}

/// Which rows of a stream a batch sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputMode {
    /// All rows below the batch's positions and above T - retention.
    #[default]
    Window,
    /// The rows between the previous batch's positions and this one's.
    New,
}

/// A named query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueryDef {
    /// Path of the SQL file in the scenario's folder: one SELECT.
    pub file: String,
    /// Scalar parameters, `$name` in the SQL, with their types.
    #[serde(default)]
    pub params: BTreeMap<Name, ColumnType>,
    /// Table parameters, read as tables of that name in the SQL: rows that the plugin binds.
    #[serde(default)]
    pub rows: BTreeMap<Name, Columns>,
    /// Time bounds: stream -> the two timestamp parameters `[from, to)` that bound its event time in this query. What
    /// lies before the hot window is then read from the bronze table. A stream without bounds is read as its hot window.
    #[serde(default)]
    pub bounds: BTreeMap<Name, [Name; 2]>,
}

/// A reference table: rows that change seldom, read whole. Either `file` or `lake`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableDef {
    /// Path of a file in the scenario's folder: `.csv` with a header row, `.json` (an array of objects, or an object a
    /// line) or `.parquet`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// A Delta table of this tenant, read at the latest version that there is when a batch is planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lake: Option<Name>,
    /// Columns that are read, by name. A parquet file may go without: then it has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Columns>,
}

/// Where an output goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputDef {
    /// The lake table.
    pub table: Name,
    /// How many days its rows are kept, by their `_batch_time`; the host's default without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_days: Option<u32>,
    /// Types that columns have in the table where those of the plugin's kinds are too wide: `int32` for an int64 column.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<String, ColumnType>,
}

/// Settings of an alarm type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlarmDef {
    /// Clear an open alarm after this many judged batches in a row that did not raise it. None: only the plugin clears.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clear_after: Option<u32>,
}

/// A file of a ruleset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Of its bytes.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
}

/// Everything that a scenario runs on. Immutable; two rulesets with the same digest are the same.
///
/// The digest covers the scenario's id, and path, digest and size of every file: the scenario's own ones under their path
/// in the scenario's folder, `../tenant.toml`, and `../streams/NAME.toml` of the streams it reads.
#[derive(Debug, Clone)]
pub struct Ruleset {
    /// Of the listing.
    pub digest: Digest,
    /// Whose.
    pub scenario: ScenarioId,
    /// Files by path, relative to the scenario's folder.
    pub files: BTreeMap<String, FileEntry>,
    /// Their bytes, by the same path.
    pub content: BTreeMap<String, Arc<[u8]>>,
    /// `scenario.toml`, read.
    pub manifest: Manifest,
    /// `../tenant.toml`, read; the default when there is none.
    pub tenant: TenantConfig,
    /// The streams of the manifest's inputs, read.
    pub streams: BTreeMap<Name, StreamDef>,
    /// Limits, merged: host defaults, tenant, scenario.
    pub limits: Limits,
}

impl Ruleset {
    /// The digest of a listing.
    pub fn digest_of(scenario: &ScenarioId, files: &BTreeMap<String, FileEntry>) -> Digest {
        let id = scenario.to_string();
        let mut parts: Vec<Vec<u8>> = vec![b"weir ruleset 1".to_vec(), id.into_bytes()];
        for (path, entry) in files {
            parts.push(path.as_bytes().to_vec());
            parts.push(entry.digest.0.to_vec());
            parts.push(entry.size.to_le_bytes().to_vec());
        }
        Digest::of_parts(parts.iter().map(Vec::as_slice))
    }

    /// The bytes of a file, or the problem that it is missing, said of the manifest's field that names it.
    pub fn file(&self, path: &str, field: &str) -> Result<&Arc<[u8]>, Problem> {
        self.content.get(path).ok_or_else(|| {
            Problem::new("scenario.toml", format_args!("there is no file {path}"))
                .field(field)
                .fix("add the file, or correct the path; paths are relative to the scenario's folder")
                .partial()
        })
    }
}
