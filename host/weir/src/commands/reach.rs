//! Who answers: the host that holds the data folder, or the folder itself.

use std::path::Path;
use std::sync::Arc;

use weir_model::fault::{Fault, FaultKind};
use weir_model::service::Service;
use weir_model::time::Clock;
use weir_server::RemoteService;

use crate::config::Config;
use crate::host::Wiring;

/// The host's socket where a host runs; else the folder, opened until the answer is dropped.
pub(super) fn reach(config: &Config, wiring: &dyn Wiring, clock: Arc<dyn Clock>) -> Result<Arc<dyn Service>, Fault> {
    let data = config.data()?;
    if let Some(host) = RemoteService::find(data)? {
        return Ok(Arc::new(host));
    }
    if !is_used(data) {
        return Err(Fault::host(FaultKind::Ledger, "no host runs here, and none has ever run")
            .file(data.display())
            .fix("correct the data folder, or start a host with 'weir run'"));
    }
    wiring.open_local(config, clock)
}

/// Whether a host has ever held the folder. Asking must not turn any folder into a data folder.
pub(super) fn is_used(data: &Path) -> bool {
    data.join("ledger").is_dir()
}
