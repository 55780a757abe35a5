//! The example store with real plugins and rules, on every real engine, moved by hand on a virtual clock.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use weir::config::{Config, Need, Overrides};
use weir::wiring::{self, Built};
use weir_model::port::{AdHoc, RuleStore, ScenarioView};
use weir_model::{Clock, FaultPoints, NoFaults, ScenarioId, Time, VirtualClock};
use weir_pipeline::Host;
use weir_pipeline::scenario::Step;

use super::fakes::name;

/// The repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A component that `cargo xtask guests` has built.
pub fn guest(file: &str) -> PathBuf {
    let folder = std::env::var_os("WEIR_GUESTS_DIR")
        .expect("WEIR_GUESTS_DIR is not set: run the tests by `cargo xtask test`, which builds the guests");
    let path = PathBuf::from(folder).join(file);
    assert!(path.is_file(), "there is no {}: run `cargo xtask guests`", path.display());
    path
}

/// Copies a folder with all that is in it.
pub fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Puts the example's store together, as `cargo xtask demo` does.
pub fn assemble(to: &Path) {
    let example = repository().join("examples/network-cep");
    copy_tree(&example.join("store"), to);
    let parts = std::fs::read_to_string(example.join("parts.txt")).unwrap();
    for line in parts.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let (from, target) = (words.next().unwrap(), to.join(words.next().unwrap()));
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        let source = from.strip_prefix("guests/").map_or_else(|| repository().join(from), guest);
        std::fs::copy(source, target).unwrap();
    }
}

/// The same with some scenarios of tenant `netops` only, and the streams that they read.
pub fn assemble_only(to: &Path, scenarios: &[&str]) {
    assemble(to);
    let tenant = to.join("netops");
    let manifests: Vec<weir_model::Manifest> = scenarios
        .iter()
        .map(|scenario| std::fs::read_to_string(tenant.join(scenario).join("scenario.toml")).unwrap())
        .map(|text| toml::from_str(&text).unwrap())
        .collect();
    for entry in std::fs::read_dir(&tenant).unwrap() {
        let folder = entry.unwrap();
        if folder.path().join("scenario.toml").is_file() && !scenarios.iter().any(|s| folder.file_name() == *s) {
            std::fs::remove_dir_all(folder.path()).unwrap();
        }
    }
    for entry in std::fs::read_dir(tenant.join("streams")).unwrap() {
        let file = entry.unwrap().path();
        let stem = file.file_stem().unwrap().to_string_lossy().into_owned();
        if !manifests.iter().any(|manifest| manifest.inputs.contains_key(&*stem)) {
            std::fs::remove_file(file).unwrap();
        }
    }
}

/// The example on real engines.
pub struct Example {
    pub dir: TempDir,
    scenario: &'static str,
    pub clock: VirtualClock,
    pub runtime: Runtime,
    /// The text of a settings file, in place of the host's defaults.
    pub settings: &'static str,
}

/// A host that was opened on it.
pub struct Live {
    pub built: Built,
    pub host: Arc<Host>,
}

impl Example {
    /// S1 alone at 2026-01-31T12:00:30Z, with a trigger of a minute, as the spec has it.
    pub fn new() -> Self {
        Self::of("s1-syslog")
    }
    /// The same in a folder that is given.
    pub fn new_in(dir: TempDir) -> Self {
        Self::of_in("s1-syslog", dir)
    }
    /// Another scenario of the example.
    pub fn of(scenario: &'static str) -> Self {
        Self::of_in(scenario, TempDir::new().unwrap())
    }
    /// All scenarios of the example in one host; `scenario()` is S1.
    pub fn all() -> Self {
        let example = Self::unassembled("s1-syslog", TempDir::new().unwrap());
        assemble(&example.store());
        ["s1-syslog", "s2-linkdown", "s3-iptv"].iter().for_each(|scenario| example.every_minute(scenario));
        example
    }
    /// Some scenarios of the example in one host; `scenario()` is the first.
    pub fn some(scenarios: &[&'static str]) -> Self {
        Self::some_in(scenarios, TempDir::new().unwrap())
    }
    fn of_in(scenario: &'static str, dir: TempDir) -> Self {
        Self::some_in(&[scenario], dir)
    }
    fn some_in(scenarios: &[&'static str], dir: TempDir) -> Self {
        let example = Self::unassembled(scenarios[0], dir);
        assemble_only(&example.store(), scenarios);
        scenarios.iter().for_each(|scenario| example.every_minute(scenario));
        example
    }
    fn unassembled(scenario: &'static str, dir: TempDir) -> Self {
        Self {
            dir,
            scenario,
            settings: "",
            clock: VirtualClock::new("2026-01-31T12:00:30Z".parse::<Time>().unwrap()),
            runtime: Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
        }
    }
    fn every_minute(&self, scenario: &str) {
        let manifest = format!("netops/{scenario}/scenario.toml");
        self.edit(&manifest, "trigger = { interval = \"10s\" }", "trigger = { interval = \"1m\" }");
    }
    pub fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }
    pub fn scenario(&self) -> ScenarioId {
        format!("netops/{}", self.scenario).parse().unwrap()
    }
    /// Replaces a text that must be there.
    pub fn edit(&self, file: &str, from: &str, to: &str) {
        let path = self.store().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} does not contain {from}");
        std::fs::write(path, text.replace(from, to)).unwrap();
    }
    pub fn write(&self, file: &str, bytes: &[u8]) {
        let path = self.store().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    pub fn config(&self) -> Config {
        let file = self.dir.path().join("weir.toml");
        std::fs::write(&file, self.settings).unwrap();
        let overrides =
            Overrides { file: Some(file), store: Some(self.store()), data: Some(self.data()), ..Overrides::default() };
        Config::load(&overrides, Need::Run).unwrap()
    }
    pub fn open(&self) -> Live {
        self.open_with(Arc::new(NoFaults))
    }
    pub fn open_with(&self, faults: Arc<dyn FaultPoints>) -> Live {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let config = self.config();
        let built = wiring::build(&config, &self.store(), clock, faults, self.runtime.handle().clone())
            .expect("the engines open");
        let host = Host::new(built.engines.clone(), wiring::pace(&config));
        let live = Live { built, host };
        self.until(&live, "the store has settled", |v| {
            v.pending.is_none() && (v.active.is_some() || v.rejected.is_some())
        });
        live.host.reconcile().unwrap();
        live
    }
    /// Looks at the store, on a clock that moves a little, until the scenario is as wished.
    pub fn until(&self, live: &Live, what: &str, wished: impl Fn(&ScenarioView) -> bool) -> ScenarioView {
        self.wait_for(live, &self.scenario(), what, wished)
    }
    /// The same for any scenario.
    pub fn wait_for(
        &self,
        live: &Live,
        id: &ScenarioId,
        what: &str,
        wished: impl Fn(&ScenarioView) -> bool,
    ) -> ScenarioView {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            live.built.store.look(self.clock.now());
            assert!(live.built.store.wait(Duration::from_secs(60)), "the store does not come to rest");
            let view = live.built.store.scenario(id);
            if let Some(view) = view.as_ref().filter(|v| wished(v)) {
                return view.clone();
            }
            assert!(Instant::now() < deadline, "not within a minute: {what}; now {view:?}");
            self.clock.advance(Duration::from_millis(100));
            // Real time for the store's own threads.
            #[allow(clippy::disallowed_methods)]
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    /// Puts the injector's data set in the place of a stream's starter data.
    pub fn inject(&self, stream: &str) {
        let from = repository().join("examples/network-cep/injector").join(stream);
        std::fs::copy(from, self.store().join("netops/streams").join(stream)).unwrap();
    }
    /// Moves to the next minute's half, runs what is due, and brings it to the tables. Answers how many batches ran.
    pub fn minute(&self, live: &Live) -> usize {
        let half = self.clock.now().floor(Duration::from_secs(60), Duration::ZERO).plus(Duration::from_secs(90));
        self.clock.advance(half.since(self.clock.now()));
        self.batches(live)
    }
    pub fn batches(&self, live: &Live) -> usize {
        live.host.reconcile().unwrap();
        let mut ran = 0;
        loop {
            match live.host.step(&self.scenario()).unwrap() {
                Step::Committed(_) => ran += 1,
                Step::NotDue(_) => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(live.host.settle().unwrap(), Vec::new());
        ran
    }
    /// Rows of a question over the lake, as JSON objects.
    pub fn rows(&self, live: &Live, sql: &str) -> Vec<serde_json::Value> {
        let rows = live.built.lake.query(&name("netops"), sql, Vec::new()).unwrap();
        weir_pipeline::output::objects(&rows).unwrap().into_iter().map(serde_json::Value::Object).collect()
    }
}
