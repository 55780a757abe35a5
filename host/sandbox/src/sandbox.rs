//! Loads plugins of rulesets: admit, compile, link, describe, prepare.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use wasmtime::component::Linker;
use weir_model::columns::output_schema;
use weir_model::port::{Description, Detector, Detectors, LogLine};
use weir_model::{Digest, Fault, FaultKind, Limits, Name, Problem, Ruleset};

use crate::admit;
use crate::cache::Cache;
use crate::call::{Call, Scenario};
use crate::compile::Compiler;
use crate::engine::Engine;
use crate::plugin::{Code, Ended, Plugin};
use crate::{v0_1, wasi};

const MANIFEST: &str = "scenario.toml";

/// How the sandbox is set up; one for a host.
#[derive(Debug, Clone)]
pub struct SandboxConfig {
    /// Folder of compiled components. It is made private to the user.
    pub cache_dir: PathBuf,
    /// Largest total of the files in it; the oldest go first.
    pub cache_bytes: u64,
    /// Calls into plugins that can run at the same time. Each has address space reserved for it; one more is a fault
    /// that may pass.
    pub concurrent_calls: u32,
    /// The WebAssembly stack of a call. wasmtime has one size for all, so a ruleset cannot have less.
    pub stack_bytes: u64,
}

impl SandboxConfig {
    /// The defaults, with a folder for compiled components.
    pub fn new(cache_dir: impl Into<PathBuf>) -> Self {
        Self {
            cache_dir: cache_dir.into(),
            cache_bytes: 4 << 30,
            concurrent_calls: 32,
            stack_bytes: Limits::defaults().stack_bytes,
        }
    }
}

/// The sandbox: one engine, one linker, one cache.
pub struct Sandbox {
    engine: Arc<Engine>,
    linker: Linker<Call>,
    compiler: Compiler<Code>,
}

impl Sandbox {
    /// Sets it up. Reserves address space, makes the cache's folder and starts the thread of the epoch.
    pub fn new(config: SandboxConfig) -> Result<Arc<Self>, Fault> {
        let engine = Arc::new(Engine::new(&config)?);
        let cache = Cache::open(&config.cache_dir, &engine.wasm, config.cache_bytes)?;
        let mut linker = Linker::new(&engine.wasm);
        wasi::link(&mut linker)
            .and_then(|()| v0_1::add_to_linker(&mut linker))
            .map_err(|e| Fault::internal(format_args!("the sandbox's linker: {e:#}")))?;
        Ok(Arc::new(Self { compiler: Compiler::new(engine.wasm.clone(), cache), engine, linker }))
    }

    fn code(&self, component: &Component<'_>, limits: &Limits) -> Result<Arc<Code>, Problem> {
        let Component { file, bytes, digest } = *component;
        self.compiler.load(file, digest, bytes, limits.compile_time.get(), |compiled| {
            let linked = v0_1::link(&self.linker, &compiled).map_err(|e| {
                Problem::new(
                    file,
                    format_args!(
                        "it does not fit to {}@{}.{}.{}: {e:#}",
                        admit::PACKAGE,
                        admit::VERSION.0,
                        admit::VERSION.1,
                        admit::VERSION.2
                    ),
                )
                .fix("build it against the WIT of this host, unchanged")
            })?;
            Ok(Code::new(self.engine.clone(), linked))
        })
    }
}

/// A component of a ruleset.
#[derive(Clone, Copy)]
struct Component<'a> {
    file: &'a str,
    bytes: &'a Arc<[u8]>,
    digest: Digest,
}

impl Detectors for Sandbox {
    fn load(&self, ruleset: &Ruleset) -> Result<Arc<dyn Detector>, Vec<Problem>> {
        let limits = &ruleset.limits;
        let Some(file) = ruleset.manifest.plugin.as_deref() else {
            return Err(vec![Problem::new(MANIFEST, "there is no plugin").field("plugin")]);
        };
        let bytes = ruleset.file(file, "plugin").map_err(|p| vec![p])?;
        stack(limits, self.engine.stack_bytes)?;
        admit::check(file, bytes, limits.component_bytes)?;
        let component = Component { file, bytes, digest: Digest::of(bytes) };
        let assets = assets(ruleset)?;
        let config = serde_json::to_string(&ruleset.manifest.config)
            .map_err(|e| vec![Problem::new(MANIFEST, e).field("config")])?;
        let code = self.code(&component, limits).map_err(|p| vec![p])?;
        let mut scenario = Scenario {
            limits: Arc::new(limits.clone()),
            seed: Scenario::seed(component.digest, &config, &assets),
            config,
            assets,
            description: nothing(),
            outputs: Vec::new(),
        };
        let plugin = |scenario| Plugin::new(code.clone(), component.digest, Arc::new(scenario));

        let described = plugin(scenario.clone()).describe();
        let description = described_well(file, described)?;
        scenario.outputs = description.outputs.iter().map(|output| output_schema(&output.fields)).collect();
        scenario.description = description;

        let plugin = plugin(scenario);
        prepared_well(file, plugin.prepare())?;
        Ok(Arc::new(plugin))
    }
}

fn stack(limits: &Limits, all: u64) -> Result<(), Vec<Problem>> {
    if limits.stack_bytes == all {
        return Ok(());
    }
    Err(vec![
        Problem::new(MANIFEST, format_args!("the stack has {all} bytes for all plugins of this host"))
            .field("limits.stack_bytes")
            .fix("leave stack_bytes out of [limits], here and in tenant.toml"),
    ])
}

fn assets(ruleset: &Ruleset) -> Result<BTreeMap<Name, Arc<[u8]>>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut out = BTreeMap::new();
    for (name, path) in &ruleset.manifest.assets {
        match ruleset.file(path, &format!("assets.{name}")) {
            Ok(bytes) => {
                out.insert(name.clone(), bytes.clone());
            }
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(out) } else { Err(problems) }
}

fn nothing() -> Description {
    Description {
        name: String::new(),
        version: String::new(),
        outputs: Vec::new(),
        alarms: Vec::new(),
        inputs: Vec::new(),
        queries: Vec::new(),
        rules: Vec::new(),
        assets: Vec::new(),
        state: None,
    }
}

fn described_well(file: &str, described: Ended<Result<Description, Vec<String>>>) -> Result<Description, Vec<Problem>> {
    match described.result {
        Ok(Ok(description)) => Ok(description),
        Ok(Err(wrong)) => Err(wrong
            .into_iter()
            .map(|what| Problem::new(file, format_args!("describe: {what}")).fix("correct what the plugin describes"))
            .collect()),
        Err(fault) => Err(vec![problem(file, "describe", &fault)]),
    }
}

fn prepared_well(file: &str, prepared: Ended<()>) -> Result<(), Vec<Problem>> {
    let Err(fault) = prepared.result else {
        for LogLine { level, message } in &prepared.log {
            tracing::debug!(file, level, "prepare: {message}");
        }
        return Ok(());
    };
    Err(vec![if fault.kind == FaultKind::PluginConfig {
        Problem::new(MANIFEST, &fault.message).field("config").fix(fault.fix.as_deref().unwrap_or_default())
    } else {
        problem(file, "prepare", &fault)
    }])
}

/// A fault while a plugin is loaded. What is the host's own may pass, so it is looked at again.
fn problem(file: &str, function: &str, fault: &Fault) -> Problem {
    let problem = Problem::new(file, format_args!("{function}: {}", fault.message))
        .field(fault.field.as_deref().unwrap_or_default())
        .fix(fault.fix.as_deref().unwrap_or_default());
    if fault.whose == weir_model::Whose::Tenant { problem } else { problem.partial() }
}
