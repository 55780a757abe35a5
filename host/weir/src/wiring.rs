//! Makes a host of the crates below `host/`. The only place that knows them all.

use std::sync::Arc;

use weir_model::fault::Fault;
use weir_model::id::ScenarioId;
use weir_model::service::Service;
use weir_model::time::Clock;

use crate::config::Config;
use crate::host::{Checked, RunningHost, Wiring};

/// The real host.
#[derive(Debug, Clone, Copy)]
pub struct Wired;

impl Wiring for Wired {
    fn start(&self, _config: Arc<Config>, _clock: Arc<dyn Clock>, _once: bool) -> Result<Box<dyn RunningHost>, Fault> {
        Err(not_wired())
    }
    fn open_local(&self, _config: &Config, _clock: Arc<dyn Clock>) -> Result<Arc<dyn Service>, Fault> {
        Err(not_wired())
    }
    fn check(&self, _config: &Config, _only: Option<&ScenarioId>) -> Result<Vec<Checked>, Fault> {
        Err(not_wired())
    }
}

fn not_wired() -> Fault {
    Fault::internal("the host is not wired")
}
