//! Makes a host of the crates below `host/`. The only place that knows them all.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use weir_connectors::Connectors;
use weir_connectors::notify::Tellers;
use weir_jdm::{Jdm, JdmConfig};
use weir_lake::{LakeConfig, WeirLake};
use weir_ledger::{FjallLedger, LedgerConfig};
use weir_model::fault::{Fault, FaultKind, Problem};
use weir_model::id::ScenarioId;
use weir_model::port::{Ledger as _, PollLimit, QueryEngine, RuleStore, ScenarioView};
use weir_model::service::Service;
use weir_model::time::{BoxFuture, Clock};
use weir_model::{FaultPoints, NoFaults};
use weir_pipeline::{Admit, Engines, Host, Keeping, Pace, loops};
use weir_rulestore::{FolderStore, Keep, StoreConfig, Subject, check_folder};
use weir_sandbox::{Sandbox, SandboxConfig};
use weir_server::RemoteService;
use weir_server::api::SOCKET;

use crate::clock::{self, Past};
use crate::config::Config;
use crate::held::{self, Held, Use};
use crate::host::{Checked, RunningHost, Wiring};
use crate::whole;

/// The file in the data folder that says which rule store its host runs.
const HOST_FILE: &str = "host.json";
/// How long `--once` waits for rulesets that still settle or compile.
const ONCE_SETTLES: Duration = Duration::from_secs(180);

/// The real host.
#[derive(Debug, Clone, Copy)]
pub struct Wired;

/// A host's engines, as types; tests look at single ones.
#[allow(missing_docs)]
pub struct Built {
    pub engines: Engines,
    pub ledger: Arc<FjallLedger>,
    pub lake: Arc<WeirLake>,
    pub store: Arc<FolderStore>,
}

/// What a data folder remembers of its host.
#[derive(Serialize, Deserialize)]
struct HostFile {
    store: PathBuf,
    /// A host has run here with `--speed`: the folder's time may be ahead of the machine's, for good.
    #[serde(default)]
    hurried: bool,
}

/// Builds all engines on a data folder. Blocks; `runtime` drives what is async.
pub fn build(
    config: &Config,
    store: &Path,
    clock: Arc<dyn Clock>,
    faults: Arc<dyn FaultPoints>,
    runtime: Handle,
) -> Result<Built, Fault> {
    build_by(config, store, |_| Ok(clock), faults, runtime)
}

/// The same with a clock that depends on what has been committed.
fn build_by(
    config: &Config,
    store: &Path,
    clock: impl FnOnce(&FjallLedger) -> Result<Arc<dyn Clock>, Fault>,
    faults: Arc<dyn FaultPoints>,
    runtime: Handle,
) -> Result<Built, Fault> {
    let data = config.data()?;
    fs::create_dir_all(data).map_err(|e| in_data(data, &e))?;
    let ledger = FjallLedger::open(&data.join("ledger"), LedgerConfig::default(), faults.clone())?;
    let clock = clock(&ledger)?;
    let mut lake_config = LakeConfig::new(data.join("lake"), runtime.clone());
    lake_config.checkpoint_every = config.lake.checkpoint_every;
    lake_config.log_retention = config.lake.history.get();
    lake_config.file_bytes = config.lake.file_bytes;
    lake_config.merge_files = size(config.lake.merge_files);
    lake_config.replay_horizon = config.ledger.replay_horizon.get();
    let lake = WeirLake::open(lake_config, faults.clone())?;
    let admit = Admit {
        detectors: Sandbox::new(SandboxConfig::new(data.join("cache")))?,
        rules: Jdm::new(JdmConfig { threads: threads(config.threads.rule) })?,
        queries: lake.clone(),
        ledger: Some(ledger.clone()),
        lake: Some((lake.clone(), runtime.clone())),
    };
    let rulesets =
        FolderStore::open(store_config(config, store, data.join("rulesets")), Arc::new(admit), clock.clone())?;
    let rows = lake.clone();
    let sources = Connectors::new(
        data.join("spool"),
        store.to_owned(),
        Arc::new(move |sql, schema, file| rows.row_maker(sql, schema, file)),
        faults.clone(),
    );
    let notifiers = Tellers::new(data.join("notify"), Arc::new(|name| std::env::var(name).ok()), clock.clone());
    let engines = Engines {
        ledger: ledger.clone(),
        lake: lake.clone(),
        adhoc: lake.clone(),
        sources,
        store: rulesets.clone(),
        history: rulesets.clone(),
        clock,
        faults,
        runtime,
        notifiers,
    };
    Ok(Built { engines, ledger, lake, store: rulesets })
}

/// The rule store's folder, as it is called wherever one stands.
pub fn canonical_store(config: &Config) -> Result<PathBuf, Fault> {
    let store = config.store()?;
    store.canonicalize().map_err(|e| {
        Fault::tenant(FaultKind::Config, format_args!("the rule store: {e}"))
            .file(store.display())
            .fix("correct the path after --store")
    })
}

/// Notes in the data folder which rule store it belongs to, for commands that are not told.
pub fn remember_store(config: &Config, store: &Path) -> Result<(), Fault> {
    let data = config.data()?;
    let hurried = config.speed > 1 || host_file(data)?.is_some_and(|before| before.hurried);
    let file = serde_json::to_vec(&HostFile { store: store.to_owned(), hurried }).map_err(Fault::internal)?;
    // Whole, because no host and no command gets on without it: one that was cut short would stop them all.
    whole::put(&data.join(HOST_FILE), &file).map_err(|e| in_data(data, &e))
}

/// What the data folder remembers; nothing when no host has run there.
fn host_file(data: &Path) -> Result<Option<HostFile>, Fault> {
    let bytes = match fs::read(data.join(HOST_FILE)) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(in_data(data, &e)),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|e| {
        Fault::host(FaultKind::Config, e)
            .file(data.join(HOST_FILE).display())
            .fix("remove the file; the next 'weir run --store DIR' writes it anew")
    })
}

/// The clock that a data folder's past allows.
fn clock_of(config: &Config, machine: Arc<dyn Clock>, ledger: &FjallLedger) -> Result<Arc<dyn Clock>, Fault> {
    let hurried = host_file(config.data()?)?.is_some_and(|file| file.hurried);
    let mut past = Past { hurried, last: None };
    if hurried || config.speed > 1 {
        for id in ledger.scenarios()? {
            let head = ledger.head(&RunKey::live(id))?.map(|record| record.plan.time);
            past.last = past.last.max(head);
        }
    }
    clock::of_folder(machine, config.speed, past)
}

/// The pace that the settings ask for.
pub fn pace(config: &Config) -> Pace {
    Pace {
        poll: PollLimit { rows: size(config.ingest.poll_rows), bytes: size(config.ingest.poll_bytes) },
        look: config.rule_store.poll.get(),
        bronze_flush: config.ingest.flush.get(),
        window_bytes: config.ingest.window_bytes,
        sink_wait: config.sink.flush.get(),
        alarms_wait: config.sink.alarms.get(),
        sink_bytes: size(config.sink.batch_bytes),
        workers: threads(config.threads.cpu) + 2,
        replay_horizon: config.ledger.replay_horizon.get(),
        keeping: Keeping {
            every: config.upkeep.every.get(),
            results: config.upkeep.keep_results.get(),
            alarms: config.upkeep.keep_alarms.get(),
            dead_letters: config.upkeep.keep_dead_letters.get(),
        },
        disk_floor: config.data.clone().map(|data| (data, config.ledger.disk_floor_bytes)),
        ..Pace::default()
    }
}

fn store_config(config: &Config, store: &Path, history: PathBuf) -> StoreConfig {
    StoreConfig {
        store: store.to_owned(),
        history,
        settle: config.rule_store.settle.get(),
        poll: config.rule_store.poll.get(),
        keep: Keep { digests: size(config.rule_store.keep), horizon: config.ledger.replay_horizon.get() },
        defaults: config.limits.clone(),
    }
}

fn size(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
fn threads(n: u64) -> usize {
    size(n).max(1)
}

fn in_data(data: &Path, e: &std::io::Error) -> Fault {
    Fault::host(FaultKind::Disk, format_args!("the data folder: {e}")).file(data.display())
}

/// How long a host waits for a command that has its folder open.
const TURN: Duration = Duration::from_secs(10);

/// Takes the data folder. A command that has it open is waited for; where a host runs, nobody waits: the ledger says so.
fn hold(data: &Path, what: Use) -> Result<Option<Held>, Fault> {
    fs::create_dir_all(data).map_err(|e| in_data(data, &e))?;
    let mine = || match held::hold(data, what)? {
        Some(held) => Ok(Some(Some(held))),
        None => Ok(RemoteService::find(data)?.map(|_| None)),
    };
    held::wait(TURN, mine)?.ok_or_else(|| held::unanswered(data, &data.join(SOCKET), TURN))
}

impl Wiring for Wired {
    fn start(&self, config: Arc<Config>, clock: Arc<dyn Clock>, once: bool) -> Result<Box<dyn RunningHost>, Fault> {
        let store = canonical_store(&config)?;
        let held = hold(config.data()?, Use::Host)?;
        let clock = |ledger: &FjallLedger| clock_of(&config, clock, ledger);
        let built = build_by(&config, &store, clock, Arc::new(NoFaults), Handle::current())?;
        remember_store(&config, &store)?;
        clock::tell(&*built.engines.clock, config.speed);
        let host = Host::new(built.engines, pace(&config));
        Ok(Box::new(Running { host, store: built.store, loops: Mutex::new(None), _held: held }).started(once))
    }

    fn open_local(&self, config: &Config, clock: Arc<dyn Clock>) -> Result<Arc<dyn Service>, Fault> {
        let data = config.data()?;
        let store = match &config.store {
            Some(store) => store.clone(),
            None => match host_file(data)? {
                Some(file) => file.store,
                None => {
                    let told =
                        Fault::host(FaultKind::Config, "it is not known which rule store this folder belongs to");
                    return Err(told.file(data.join(HOST_FILE).display()).fix("name the rule store with --store"));
                }
            },
        };
        let held = hold(data, Use::Command)?;
        let runtime = small_runtime()?;
        let clock = |ledger: &FjallLedger| clock_of(config, clock, ledger);
        let built = build_by(config, &store, clock, Arc::new(NoFaults), runtime.handle().clone())?;
        settle(&built.store, built.engines.clock.as_ref());
        let host = Host::new(built.engines, pace(config));
        Ok(Arc::new(Local { host, _runtime: runtime, _held: held }))
    }

    fn check(&self, config: &Config, only: Option<&ScenarioId>) -> Result<Vec<Checked>, Fault> {
        let store = config.store.clone().ok_or_else(|| Fault::internal("a check without a rule store"))?;
        let runtime = small_runtime()?;
        let scratch = Scratch::new()?;
        let lake =
            WeirLake::open(LakeConfig::new(scratch.0.join("lake"), runtime.handle().clone()), Arc::new(NoFaults))?;
        let admit = Admit {
            detectors: Sandbox::new(SandboxConfig::new(scratch.0.join("cache")))?,
            rules: Jdm::new(JdmConfig { threads: 1 })?,
            queries: lake,
            ledger: None,
            lake: None,
        };
        let found = check_folder(&store, &config.limits, &admit, only);
        Ok(found.into_iter().map(|(subject, problems)| checked(subject, problems)).collect())
    }
}

fn checked(subject: Subject, problems: Vec<Problem>) -> Checked {
    let (tenant, scenario, stream) = match subject {
        Subject::Store => (None, None, None),
        Subject::Tenant(tenant) => (Some(tenant), None, None),
        Subject::Stream(id) => (Some(id.tenant), None, Some(id.stream)),
        Subject::Scenario(id) => (Some(id.tenant), Some(id.scenario), None),
    };
    Checked { tenant, scenario, stream, problems }
}

/// A runtime for a command that is no host.
fn small_runtime() -> Result<tokio::runtime::Runtime, Fault> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|e| Fault::host(FaultKind::Resources, format_args!("no runtime: {e}")))
}

/// A folder that goes away with its owner.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, Fault> {
        let path = std::env::temp_dir().join(format!("weir-check-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|e| in_data(&path, &e))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Looks at the store until nothing is pending there.
fn settle(store: &FolderStore, clock: &dyn Clock) {
    settle_unless(store, clock, |_| false);
}

/// The same, or until it has enough.
pub fn settle_unless(store: &FolderStore, clock: &dyn Clock, enough: impl Fn(&FolderStore) -> bool) {
    let until = Instant::now() + ONCE_SETTLES;
    let mut quiet = 0;
    loop {
        store.look(clock.now());
        if enough(store) {
            return;
        }
        let rests = store.wait(until.saturating_duration_since(Instant::now()).min(Duration::from_secs(1)));
        let decided = |s: &ScenarioView| s.removed || s.active.is_some() || s.rejected.is_some();
        let waits = store.scenarios().iter().any(|s| s.pending.is_some() || !decided(s));
        // What one look finds is made ready after it, so one quiet look alone says nothing.
        quiet = if waits || !rests { 0 } else { quiet + 1 };
        if quiet >= 2 || Instant::now() > until {
            return;
        }
        // A real wait until files have settled; no decision of a batch hangs on it.
        #[allow(clippy::disallowed_methods)]
        std::thread::sleep(Duration::from_millis(20));
    }
}

struct Running {
    host: Arc<Host>,
    store: Arc<FolderStore>,
    loops: Mutex<Option<JoinHandle<()>>>,
    _held: Option<Held>,
}

impl Running {
    fn started(self: Box<Self>, once: bool) -> Box<Self> {
        if !once {
            let task = self.host.engines.runtime.spawn(loops::run(self.host.clone()));
            *self.loops.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        }
        self
    }
}

impl RunningHost for Running {
    fn service(&self) -> Arc<dyn Service> {
        self.host.clone()
    }

    fn drained(&self) -> BoxFuture<'static, Result<(), Fault>> {
        let (host, store) = (self.host.clone(), self.store.clone());
        let work = tokio::task::spawn_blocking(move || {
            settle(&store, host.engines.clock.as_ref());
            let faults = host.once()?;
            faults.iter().for_each(|f| tracing::error!("{f}"));
            faults.into_iter().next().map_or(Ok(()), Err)
        });
        Box::pin(async { work.await.unwrap_or_else(|e| Err(Fault::internal(format_args!("a worker panicked: {e}")))) })
    }

    fn stop(&self) -> BoxFuture<'static, Result<(), Fault>> {
        self.host.stop();
        let task = self.loops.lock().unwrap_or_else(PoisonError::into_inner).take();
        Box::pin(async move {
            match task {
                Some(task) => task.await.map_err(|e| Fault::internal(format_args!("the host's loops panicked: {e}"))),
                None => Ok(()),
            }
        })
    }
}

/// An opened data folder; the runtime lives as long as it is asked.
struct Local {
    host: Arc<Host>,
    _runtime: tokio::runtime::Runtime,
    _held: Option<Held>,
}

macro_rules! forward {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        impl Service for Local {
            $(fn $name(&self, $($arg: $ty),*) -> $ret { self.host.$name($($arg),*) })*
        }
    };
}

use std::collections::BTreeMap;
use weir_model::batch::BatchRecord;
use weir_model::review::{Review, ReviewAsk};
use weir_model::service::{BackfillAsk, BackfillProgress, Events, HistoryEntry, Readiness, Rows, SideReport, Status};
use weir_model::{AlarmState, BatchId, Digest, Name, RunKey, Time};

forward! {
    status() -> Result<Status, Fault>;
    ready() -> Readiness;
    alarms(scenario: Option<&ScenarioId>, cleared: bool) -> Result<Vec<AlarmState>, Fault>;
    events(after: &BTreeMap<String, BatchId>, limit: usize, wait_ms: u64) -> Result<Events, Fault>;
    query(tenant: &Name, sql: &str) -> Result<Rows, Fault>;
    ledger(key: &RunKey, after: Option<BatchId>, limit: usize) -> Result<Vec<BatchRecord>, Fault>;
    newest(key: &RunKey, limit: usize) -> Result<Vec<BatchRecord>, Fault>;
    side(id: &ScenarioId, at: Time, latest: bool) -> Result<SideReport, Fault>;
    review(ask: &ReviewAsk) -> Result<Review, Fault>;
    backfill(ask: &BackfillAsk) -> Result<BackfillProgress, Fault>;
    history(id: &ScenarioId) -> Result<Vec<HistoryEntry>, Fault>;
    rollback(id: &ScenarioId, to: Option<Digest>) -> Result<Digest, Fault>;
    unpin(id: &ScenarioId) -> Result<(), Fault>;
    forget(id: &ScenarioId) -> Result<(), Fault>;
    resume(id: &ScenarioId) -> Result<(), Fault>;
    pause(id: &ScenarioId) -> Result<(), Fault>;
}
