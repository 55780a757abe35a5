//! Opens a host on real engines in a folder.

use std::path::Path;
use std::sync::Arc;

use weir_connectors::notify::Tellers;
use weir_lake::{LakeConfig, WeirLake};
use weir_ledger::{FjallLedger, LedgerConfig};
use weir_model::port::{History, RuleStore, Sources};
use weir_model::{Clock, Fault, FaultPoints, RunKey, SinkId};
use weir_pipeline::{Engines, Host, Pace};

/// A host and the engines that a test looks at.
pub struct Opened {
    pub host: Arc<Host>,
    pub ledger: Arc<FjallLedger>,
    pub lake: Arc<WeirLake>,
}

/// The host's environment.
fn secret(name: &str) -> Option<String> {
    (name == "HOOK_TOKEN").then(|| "s3cret".to_owned())
}

impl Opened {
    /// A sink of the live run of the scenario `t/s`.
    pub fn sink(&self, output: &str) -> SinkId {
        SinkId { key: RunKey::live("t/s".parse().unwrap()), output: output.parse().unwrap() }
    }
}

/// Opens ledger and lake below `data`, with the store and sources that are given.
pub fn open<S: RuleStore + History + 'static>(
    data: &Path,
    clock: Arc<dyn Clock>,
    runtime: tokio::runtime::Handle,
    faults: Arc<dyn FaultPoints>,
    sources: Arc<dyn Sources>,
    store: Arc<S>,
) -> Result<Opened, Fault> {
    let ledger = FjallLedger::open(&data.join("ledger"), LedgerConfig::default(), faults.clone())?;
    let mut config = LakeConfig::new(data.join("lake"), runtime.clone());
    // So that tables of a few minutes are kept too.
    config.merge_files = 3;
    let lake = WeirLake::open(config, faults.clone())?;
    let engines = Engines {
        ledger: ledger.clone(),
        lake: lake.clone(),
        adhoc: lake.clone(),
        sources,
        store: store.clone(),
        history: store,
        clock: clock.clone(),
        faults,
        runtime,
        notifiers: Tellers::new(data.join("notify"), Arc::new(secret), clock),
    };
    Ok(Opened { host: Host::new(engines, Pace::default()), ledger, lake })
}
