//! Alarms: what a plugin raises, what is current, and what changed.

use serde::{Deserialize, Serialize};

use crate::columns::Scalar;
use crate::id::{BatchId, Digest, Name, ScenarioId};
use crate::time::Time;

/// How bad. Ordered: `Critical` is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Severity {
    Info,
    Warning,
    Minor,
    Major,
    Critical,
}

impl std::fmt::Display for Severity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Minor => "minor",
            Self::Major => "major",
            Self::Critical => "critical",
        })
    }
}

/// A text that is no severity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no severity: use info, warning, minor, major or critical")]
pub struct BadSeverity(pub String);

impl std::str::FromStr for Severity {
    type Err = BadSeverity;
    /// By its name, in any case.
    fn from_str(text: &str) -> Result<Self, BadSeverity> {
        [Self::Info, Self::Warning, Self::Minor, Self::Major, Self::Critical]
            .into_iter()
            .find(|severity| severity.to_string().eq_ignore_ascii_case(text))
            .ok_or_else(|| BadSeverity(text.chars().take(80).collect()))
    }
}

/// Raise or clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlarmAction {
    /// The condition holds, with this severity.
    Raise(Severity),
    /// The condition is over.
    Clear,
}

/// A row that an alarm came from: which answer or input of the batch, and the row in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Because {
    /// `input:NAME`, `query:NAME#k` (the k-th call) or `output:NAME`.
    pub source: String,
    /// Row in it, from 0.
    pub row: u32,
}

/// What a plugin says about one alarm in one batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlarmRaise {
    /// An alarm type that `describe` declares.
    pub name: Name,
    /// Values of the type's key fields, in order.
    pub key: Vec<String>,
    /// Raise or clear.
    pub action: AlarmAction,
    /// For people.
    pub message: String,
    /// Further values, by name.
    pub fields: Vec<(String, Scalar)>,
    /// The rows it came from.
    pub because: Vec<Because>,
}

/// Whether a current alarm is still known to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlarmStatus {
    /// The condition holds, as far as the last batch could tell.
    Open,
    /// Nobody can tell: a source could not be read, the batch came to no verdict or failed, or the ruleset does not have
    /// its alarm type any more.
    Stale,
    /// The condition is over. Kept for a while, so that a new raise is a re-open.
    Cleared,
}

impl std::fmt::Display for AlarmStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Stale => "stale",
            Self::Cleared => "cleared",
        })
    }
}

/// The current state of one alarm. Its identity is (scenario, name, key).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlarmState {
    /// Whose.
    pub scenario: ScenarioId,
    /// Alarm type.
    pub name: Name,
    /// Names of the key's fields, as the plugin's `describe` has them.
    pub key_names: Vec<String>,
    /// Key values, in order.
    pub key: Vec<String>,
    /// Open, stale or cleared.
    pub status: AlarmStatus,
    /// Current severity.
    pub severity: Severity,
    /// Latest message.
    pub message: String,
    /// Latest fields.
    pub fields: Vec<(String, Scalar)>,
    /// T of the batch that opened it (or re-opened it last).
    pub opened_at: Time,
    /// T of the latest batch that raised it.
    pub last_seen: Time,
    /// T of the batch that cleared it.
    #[serde(default)]
    pub cleared_at: Option<Time>,
    /// How many batches raised it since it was opened.
    pub count: u64,
    /// Judged batches in a row that did not raise it.
    pub quiet: u32,
    /// The ruleset of the latest batch that raised it.
    pub ruleset: Digest,
    /// The latest batch that raised it.
    pub batch: BatchId,
    /// The highest severity since it was opened (or re-opened last).
    #[serde(default = "least")]
    pub peak: Severity,
}

fn least() -> Severity {
    Severity::Info
}

/// What happened to an alarm in a batch. An update of an open alarm with the same severity is no row of
/// `alarm_events`: count and last_seen move in the current state only. Status and severity of a current alarm are those
/// of its latest change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum AlarmChange {
    Opened,
    Escalated,
    Lowered,
    Cleared,
    Reopened,
    Stale,
    /// A stale alarm is open again: it can be told again whether it holds.
    Fresh,
}

impl std::fmt::Display for AlarmChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Opened => "opened",
            Self::Escalated => "escalated",
            Self::Lowered => "lowered",
            Self::Cleared => "cleared",
            Self::Reopened => "reopened",
            Self::Stale => "stale",
            Self::Fresh => "fresh",
        })
    }
}

/// One row of `alarm_events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlarmEvent {
    /// What happened.
    pub change: AlarmChange,
    /// Severity before, where there was one.
    pub before: Option<Severity>,
    /// The alarm after it.
    pub alarm: AlarmState,
    /// T of the batch.
    pub time: Time,
    /// The batch.
    pub batch: BatchId,
    /// The ruleset that made it.
    pub ruleset: Digest,
    /// The rows it came from.
    pub because: Vec<Because>,
}
