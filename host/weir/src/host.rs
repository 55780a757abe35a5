//! What the commands need of a host. [`crate::wiring`] makes one of the crates below `host/`; tests make their own.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_model::fault::{Fault, Problem};
use weir_model::id::{Name, ScenarioId};
use weir_model::service::Service;
use weir_model::time::{BoxFuture, Clock};

use crate::config::Config;

/// Makes hosts. Calls block; `start` is called on a blocking thread of a tokio runtime, the others outside of any.
pub trait Wiring: Send + Sync {
    /// Takes the data folder and begins to work: returns when questions can be answered, not when it is ready. A folder
    /// that another host holds is a [`weir_model::FaultKind::Ledger`] fault. `config` was loaded for
    /// [`crate::config::Need::Run`]. With `once` every scenario runs as if its trigger were available-now.
    fn start(&self, config: Arc<Config>, clock: Arc<dyn Clock>, once: bool) -> Result<Box<dyn RunningHost>, Fault>;

    /// Opens the data folder to answer questions; nothing is ingested, run or drained. Holds the folder until the answer
    /// is dropped. The folder exists; what is no data folder must not become one.
    fn open_local(&self, config: &Config, clock: Arc<dyn Clock>) -> Result<Arc<dyn Service>, Fault>;

    /// Judges the rule store (or one scenario of it) as a host would, without any data folder. Everything that was looked
    /// at is listed, also what is good; nothing at all when there is no such scenario.
    fn check(&self, config: &Config, only: Option<&ScenarioId>) -> Result<Vec<Checked>, Fault>;
}

/// A host at work.
pub trait RunningHost: Send + Sync {
    /// Asks it.
    fn service(&self) -> Arc<dyn Service>;

    /// Completes when all that was there has been processed and every sink is drained; for `--once`.
    fn drained(&self) -> BoxFuture<'static, Result<(), Fault>>;

    /// Completes when the host cannot go on as a whole, with the reason. A scenario that parks is no such reason.
    fn failed(&self) -> BoxFuture<'static, Fault> {
        Box::pin(std::future::pending())
    }

    /// Begins no more batches, finishes or abandons those that run, never half, and completes when what is committed is
    /// safe. Questions are answered until the host is dropped, which gives the data folder free.
    fn stop(&self) -> BoxFuture<'static, Result<(), Fault>>;
}

/// What `weir check` found of one scenario, stream or tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Checked {
    /// None: it is about the store as a whole.
    pub tenant: Option<Name>,
    /// The scenario, if it is one.
    pub scenario: Option<Name>,
    /// The stream, if it is one.
    pub stream: Option<Name>,
    pub problems: Vec<Problem>,
}

impl Checked {
    /// As people call it.
    pub fn subject(&self) -> String {
        match (&self.tenant, &self.scenario, &self.stream) {
            (Some(tenant), Some(scenario), _) => format!("{tenant}/{scenario}"),
            (Some(tenant), None, Some(stream)) => format!("{tenant} stream {stream}"),
            (Some(tenant), None, None) => format!("tenant {tenant}"),
            (None, ..) => "rule store".to_owned(),
        }
    }
}
