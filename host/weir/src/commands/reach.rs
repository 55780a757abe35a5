//! Who answers: the host that holds the data folder, or the folder itself.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weir_model::fault::{Fault, FaultKind};
use weir_model::service::Service;
use weir_model::time::Clock;
use weir_server::RemoteService;
use weir_server::api::SOCKET;

use crate::config::Config;
use crate::held;
use crate::host::Wiring;

/// How long a host may take to start, or another command to answer, before one is told to come again.
const PATIENCE: Duration = Duration::from_secs(30);

/// The host's socket where a host runs; else the folder, opened until the answer is dropped. Waits for a host that is
/// starting.
pub(super) fn reach(config: &Config, wiring: &dyn Wiring, clock: Arc<dyn Clock>) -> Result<Arc<dyn Service>, Fault> {
    let data = config.data()?;
    // None: nobody has the folder.
    let found = held::wait(PATIENCE, || match RemoteService::find(data)? {
        Some(host) => Ok(Some(Some(host))),
        None => Ok((!held::is_held(data)?).then_some(None)),
    })?;
    match found {
        Some(Some(host)) => return Ok(Arc::new(host)),
        Some(None) => {}
        None => return Err(held::unanswered(data, &data.join(SOCKET), PATIENCE)),
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
