//! What goes over the wire beside the model's own types. The server reads what the client writes, so both use these.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_model::alarm::AlarmState;
use weir_model::batch::BatchRecord;
use weir_model::fault::Fault;
use weir_model::id::{BatchId, Digest, Name, RunId, ScenarioId};
use weir_model::service::HistoryEntry;
use weir_model::time::Time;

/// The longest that one request for events waits. Whoever follows asks again.
pub const MAX_WAIT_MS: u64 = 30_000;
/// The most events or batches of one answer.
pub const MAX_PAGE: usize = 10_000;
/// The largest request body, in bytes.
pub const MAX_REQUEST_BYTES: usize = 1 << 20;
/// The file name of the socket in the data folder.
pub const SOCKET: &str = "host.sock";

/// The path of a scenario's resource: `ledger`, `history`, `batch`, `review`, `backfill`, `rollback`, `unpin`, `forget`,
/// `resume` or `pause`.
pub fn scenario_path(id: &ScenarioId, what: &str) -> String {
    format!("/api/v1/scenarios/{}/{}/{what}", id.tenant, id.scenario)
}

/// Which alarms.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlarmsAsk {
    /// Of this tenant only.
    pub tenant: Option<Name>,
    /// Of the scenario of this name only.
    pub scenario: Option<Name>,
    /// Cleared ones too.
    #[serde(default)]
    pub cleared: bool,
}

/// Which events, and how long to wait for the first.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsAsk {
    /// Latest batch seen, by `tenant/scenario`; absent ones start at their beginning.
    #[serde(default)]
    pub after: BTreeMap<String, BatchId>,
    /// At most so many, and never more than [`MAX_PAGE`].
    #[serde(default = "page")]
    pub limit: usize,
    /// Never more than [`MAX_WAIT_MS`].
    #[serde(default)]
    pub wait_ms: u64,
}

/// Which batches.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerAsk {
    /// Which run.
    #[serde(default = "live")]
    pub run: RunId,
    /// Only batches after this one.
    pub after: Option<BatchId>,
    /// At most so many, and never more than [`MAX_PAGE`].
    #[serde(default = "page")]
    pub limit: usize,
    /// The newest so many, instead of the first ones.
    #[serde(default)]
    pub newest: bool,
}

fn page() -> usize {
    1_000
}
fn live() -> RunId {
    RunId::Live
}

/// SQL of a tenant.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct QueryAsk {
    pub tenant: Name,
    pub sql: String,
}

/// A side run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SideAsk {
    /// T.
    pub at: Time,
    /// Today's ruleset and data instead of the recorded ones.
    #[serde(default)]
    pub latest: bool,
}

/// Which ruleset to pin.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RollbackAsk {
    /// None: the one before the active.
    #[serde(default)]
    pub to: Option<Digest>,
}

/// Current alarms.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Alarms {
    pub alarms: Vec<AlarmState>,
}

/// Committed batches, in order.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Batches {
    pub batches: Vec<BatchRecord>,
}

/// Rulesets, newest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct History {
    pub history: Vec<HistoryEntry>,
}

/// The digest that is pinned now.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Pinned {
    pub pinned: Digest,
}

/// It is done; there is nothing more to say.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Done {}

/// What every request gets that has no answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Refused {
    pub fault: Fault,
}
