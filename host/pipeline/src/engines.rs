//! The ports that a pipeline runs on, in one place.

use std::sync::Arc;

use weir_model::port::{AdHoc, History, Lake, Ledger, Notifiers, RuleStore, Sources};
use weir_model::{Clock, FaultPoints};

/// Everything that a pipeline asks. Cheap to clone.
#[derive(Clone)]
#[allow(missing_docs)]
pub struct Engines {
    pub ledger: Arc<dyn Ledger>,
    pub lake: Arc<dyn Lake>,
    pub adhoc: Arc<dyn AdHoc>,
    pub sources: Arc<dyn Sources>,
    pub store: Arc<dyn RuleStore>,
    pub history: Arc<dyn History>,
    pub clock: Arc<dyn Clock>,
    pub faults: Arc<dyn FaultPoints>,
    /// Where async ports are driven from blocking threads.
    pub runtime: tokio::runtime::Handle,
    pub notifiers: Arc<dyn Notifiers>,
}
