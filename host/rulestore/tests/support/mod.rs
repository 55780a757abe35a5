//! An admission that judges by content, and a store on a clock that stands still.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use weir_model::port::{
    Admission, BatchHost, BatchInputs, Description, DetectFailure, Detection, Detector, Prepared, Queries, RuleAnswer,
    RuleCall, RuleContext, RuleStore, Rules, ScenarioView, StreamView,
};
use weir_model::{CallError, DataError, Digest, Limits, Name, Problem, Ruleset, Scalar, ScenarioId, VirtualClock};
use weir_rulestore::{FolderStore, Keep, StoreConfig};

/// Refuses rulesets with a file that says BAD, as half-written those that say CUT, and fails on those that say PANIC.
#[derive(Debug, Default)]
pub struct ByContent(pub AtomicUsize);

impl Admission for ByContent {
    fn admit(&self, ruleset: Arc<Ruleset>) -> Result<Arc<Prepared>, Vec<Problem>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let mut problems = Vec::new();
        for (path, bytes) in &ruleset.content {
            let text = String::from_utf8_lossy(bytes);
            assert!(!text.contains("PANIC"), "asked for");
            if text.contains("BAD") {
                problems.push(Problem::new(path, "it says BAD").field("text").fix("write something else"));
            }
            if text.contains("CUT") {
                problems.push(Problem::new(path, "it ends early").partial());
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let part = Arc::new(Part);
        Ok(Arc::new(Prepared { ruleset, detector: part.clone(), rules: part.clone(), queries: part }))
    }
}

struct Part;
impl Detector for Part {
    fn description(&self) -> &Description {
        unreachable!("nothing runs here")
    }
    fn digest(&self) -> Digest {
        Digest::of(b"")
    }
    fn detect(&self, _: Arc<dyn BatchHost>) -> Result<Detection, Box<DetectFailure>> {
        unreachable!("nothing runs here")
    }
}
impl Rules for Part {
    fn evaluate(&self, _: &str, _: &RuleCall, _: RuleContext) -> Result<RuleAnswer, CallError> {
        Err(DataError::Undeclared.into())
    }
    fn names(&self) -> BTreeMap<Name, Digest> {
        BTreeMap::new()
    }
}
impl Queries for Part {
    fn run(
        &self,
        _: &str,
        _: &BatchInputs,
        _: &[(String, Scalar)],
        _: &[(String, RecordBatch)],
    ) -> Result<RecordBatch, CallError> {
        Err(DataError::Undeclared.into())
    }
    fn input(&self, _: &str, _: &BatchInputs) -> Result<RecordBatch, CallError> {
        Err(DataError::Undeclared.into())
    }
    fn schema(&self, _: &str) -> Option<arrow_schema::SchemaRef> {
        None
    }
    fn names(&self) -> Vec<Name> {
        Vec::new()
    }
}

pub const SETTLE: Duration = Duration::from_secs(2);
pub const STREAM: &str = "event_time = 't'\n[schema]\nt = { type = 'timestamp', required = true }\n[source]\ntype = 'files'\npath = 'data'\n";
pub const MANIFEST: &str =
    "plugin = 'plugins/p.wasm'\ntrigger = { interval = '1m' }\n[inputs.s]\n[rules]\nr = 'rules/r.json'\n";

/// A store with one tenant `t`, one stream `s` and one scenario `t/a`.
pub struct Bench {
    pub dir: tempfile::TempDir,
    pub clock: VirtualClock,
    pub admission: Arc<ByContent>,
    pub keep: Keep,
    pub store: Option<Arc<FolderStore>>,
}

impl Bench {
    pub fn new() -> Self {
        let bench = Self {
            dir: fast_dir(),
            clock: VirtualClock::new("2026-01-31T12:00:00Z".parse().unwrap()),
            admission: Arc::default(),
            keep: Keep { digests: 100, horizon: Duration::from_secs(3600) },
            store: None,
        };
        bench.write("t/streams/s.toml", STREAM);
        bench.write("t/a/scenario.toml", MANIFEST);
        bench.write("t/a/plugins/p.wasm", "component");
        bench.write("t/a/rules/r.json", "rule 0");
        bench
    }
    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join("store").join(file)
    }
    pub fn history(&self) -> PathBuf {
        self.dir.path().join("rulesets")
    }
    pub fn write(&self, file: &str, text: &str) {
        let path = self.path(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    pub fn open(&mut self) {
        self.store = None;
        let config = StoreConfig {
            store: self.dir.path().join("store"),
            history: self.history(),
            settle: SETTLE,
            poll: Duration::from_secs(3600),
            keep: self.keep,
            defaults: Limits::defaults(),
        };
        self.store = Some(FolderStore::open(config, self.admission.clone(), Arc::new(self.clock.clone())).unwrap());
        self.idle();
    }
    pub fn store(&self) -> &FolderStore {
        self.store.as_ref().unwrap()
    }
    fn idle(&self) {
        assert!(self.store().wait(Duration::from_secs(60)), "the store does not come to rest");
    }
    /// One look.
    pub fn look(&self) {
        self.store().look(weir_model::Clock::now(&self.clock));
        self.idle();
    }
    /// A look, and one after the settle time.
    pub fn settle(&self) {
        self.look();
        self.clock.advance(SETTLE);
        self.look();
    }
    pub fn view(&self) -> ScenarioView {
        self.store().scenario(&id()).expect("the scenario is known")
    }
    pub fn stream(&self) -> StreamView {
        self.store().streams().into_iter().find(|s| s.id.to_string() == "t/s").expect("the stream is known")
    }
    pub fn active(&self) -> Digest {
        self.view().active.expect("something runs").ruleset.digest
    }
    pub fn rule(&self) -> String {
        let active = self.view().active.expect("something runs");
        String::from_utf8_lossy(&active.ruleset.content["rules/r.json"]).into_owned()
    }
    pub fn admitted(&self) -> usize {
        self.admission.0.load(Ordering::SeqCst)
    }
}

/// In memory where there is such a folder: every edit is synced several times, which a busy disk takes long for.
fn fast_dir() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

pub fn id() -> ScenarioId {
    "t/a".parse().unwrap()
}

pub fn files_below(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, |entries| {
        entries.flatten().map(|e| if e.path().is_dir() { files_below(&e.path()) } else { 1 }).sum()
    })
}
