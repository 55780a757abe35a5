//! Where rulesets come from.

use super::Prepared;
use crate::fault::Fault;
use crate::fault::Problem;
use crate::id::Digest;
use crate::id::ScenarioId;
use crate::id::StreamId;
use crate::stream::StreamDef;
use crate::time::Time;
use serde::Deserialize;
use serde::Serialize;
use std::sync::Arc;

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
