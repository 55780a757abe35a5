//! Makes a component of a few lines of WebAssembly text, and a ruleset and a batch around it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow_array::{Int64Array, RecordBatch, StringArray};
use weir_model::port::{BatchHost, Bounds, DetectFailure, Detection, Detector, Detectors, RuleAnswer, RuleCall};
use weir_model::{CallError, Digest, Limits, Problem, Ruleset, Scalar, ScenarioId, TenantConfig, Time};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::{Sandbox, SandboxConfig};

pub const FILE: &str = "plugins/guest.wasm";

/// A core module's functions. Results lie in memory: zeros at 1024 are `ok`, and `ok(judged)`.
pub struct Guest {
    /// Imports, as text.
    pub imports: &'static str,
    /// Further fields of the module.
    pub more: &'static str,
    /// Body of `describe`, before it answers.
    pub describe: &'static str,
    /// Body of `prepare`, which leaves a pointer.
    pub prepare: &'static str,
    /// Body of `detect`, before it answers. The batch is local 0, local 1 is free.
    pub detect: &'static str,
}

impl Default for Guest {
    fn default() -> Self {
        Self { imports: "", more: "", describe: "", prepare: "i32.const 1024", detect: "" }
    }
}

impl Guest {
    /// The module's text. What `describe` answers lies at 256: name and version `p`, one input and one query `q`, an
    /// asset `a`, state of version 1.
    pub fn module(&self) -> String {
        let Self { imports, more, describe, prepare, detect } = self;
        format!(
            r#"(module {imports}
              (memory (export "memory") 4)
              (global $free (mut i32) (i32.const 65536))
              (data (i32.const 200) "pqa")
              (data (i32.const 208) "\c9\00\00\00\01\00\00\00" "\ca\00\00\00\01\00\00\00")
              (data (i32.const 256) "\c8\00\00\00\01\00\00\00" "\c8\00\00\00\01\00\00\00"
                "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00"
                "\d0\00\00\00\01\00\00\00" "\d0\00\00\00\01\00\00\00"
                "\00\00\00\00\00\00\00\00" "\d8\00\00\00\01\00\00\00" "\01\00\00\00\01\00\00\00")
              (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
                (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
                (global.set $free (i32.add (local.get $at) (local.get 3)))
                (local.get $at))
              {more}
              (func (export "weir:detect/plugin@0.1.0#describe") (result i32) {describe} i32.const 256)
              (func (export "weir:detect/plugin@0.1.0#prepare") (param i32 i32) (result i32) {prepare})
              (func (export "weir:detect/plugin@0.1.0#detect") (param i32) (result i32) (local i32)
                {detect} i32.const 1024))"#
        )
    }

    pub fn component(&self) -> Vec<u8> {
        component(&self.module(), None)
    }
}

/// A component of the world `detector`, as a core module's text. `change` edits the WIT.
pub fn component(module: &str, change: Option<(&str, &str)>) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit/v0_1/detect.wit");
    let mut wit = std::fs::read_to_string(path).expect("the WIT");
    let mut module = module.to_owned();
    if let Some((from, to)) = change {
        wit = wit.replace(from, to);
        module = module.replace(from, to);
    }
    let mut resolve = Resolve::default();
    let package = resolve.push_str("detect.wit", &wit).expect("the WIT");
    let world = resolve.select_world(&[package], Some("detector")).expect("the world");
    let mut bytes = wat::parse_str(module).expect("WebAssembly text");
    embed_component_metadata(&mut bytes, &resolve, world, StringEncoding::UTF8).expect("metadata");
    let encoder = ComponentEncoder::default().validate(false).module(&bytes).expect("a module");
    let mut encoder = encoder;
    encoder.encode().expect("a component")
}

/// A sandbox with a folder of its own.
pub struct Place {
    pub sandbox: Arc<Sandbox>,
    pub folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { sandbox: Sandbox::new(SandboxConfig::new(folder.path())).expect("a sandbox"), folder }
    }

    pub fn load(&self, bytes: &[u8], change: impl FnOnce(&mut Limits)) -> Result<Arc<dyn Detector>, Vec<Problem>> {
        self.sandbox.load(&ruleset(bytes, change))
    }

    pub fn refused(&self, bytes: &[u8]) -> Vec<Problem> {
        match self.load(bytes, |_| ()) {
            Ok(_) => panic!("it was accepted"),
            Err(problems) => problems,
        }
    }

    /// Loads it and lets it judge a batch.
    pub fn run(&self, guest: &Guest, change: impl FnOnce(&mut Limits)) -> Result<Detection, Box<DetectFailure>> {
        let plugin = self.load(&guest.component(), change).expect("a plugin");
        plugin.detect(Arc::new(TestBatch::default()))
    }
}

pub fn ruleset(bytes: &[u8], change: impl FnOnce(&mut Limits)) -> Ruleset {
    let mut limits = Limits::defaults();
    change(&mut limits);
    let manifest =
        format!("plugin = \"{FILE}\"\ntrigger = \"once\"\n[config]\nlimit = 3\n[assets]\na = \"assets/a\"\n");
    Ruleset {
        digest: Digest::of(b"ruleset"),
        scenario: "t/s".parse::<ScenarioId>().expect("an id"),
        files: BTreeMap::new(),
        content: BTreeMap::from([
            (FILE.to_owned(), Arc::from(bytes)),
            ("assets/a".to_owned(), Arc::from(&b"asset"[..])),
        ]),
        manifest: toml::from_str(&manifest).expect("a manifest"),
        tenant: TenantConfig::default(),
        streams: BTreeMap::new(),
        limits,
    }
}

/// A batch that answers everything with two rows.
#[derive(Default)]
pub struct TestBatch {
    pub state: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
}

pub fn rows() -> RecordBatch {
    RecordBatch::try_from_iter([
        ("n", Arc::new(Int64Array::from(vec![1, 2])) as _),
        ("text", Arc::new(StringArray::from(vec![Some("a"), None])) as _),
    ])
    .expect("a batch")
}

impl BatchHost for TestBatch {
    fn time(&self) -> Time {
        Time(1_000_000)
    }
    fn seed(&self) -> [u8; 32] {
        [7; 32]
    }
    fn input(&self, _: &str) -> Result<RecordBatch, CallError> {
        Ok(rows())
    }
    fn window(&self, _: &str) -> Result<Bounds, CallError> {
        Ok(Bounds { start: Time(0), end: Time(1_000_000), watermark: None })
    }
    fn query(&self, _: &str, _: &[(String, Scalar)], _: &[(String, RecordBatch)]) -> Result<RecordBatch, CallError> {
        Ok(rows())
    }
    fn rule(&self, _: &str, _: &RuleCall) -> Result<RuleAnswer, CallError> {
        Ok(RuleAnswer { rows: rows(), failed: vec![(1, "no".to_owned())] })
    }
    fn state_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, CallError> {
        let state = self.state.lock().expect("nobody panics");
        Ok(keys.iter().map(|key| state.get(*key).cloned()).collect())
    }
    fn state_put(&self, entries: &[(&[u8], &[u8])], _: Option<u64>) -> Result<(), CallError> {
        let entries = entries.iter().map(|(key, value)| (key.to_vec(), value.to_vec()));
        self.state.lock().expect("nobody panics").extend(entries);
        Ok(())
    }
    fn state_delete(&self, keys: &[&[u8]]) -> Result<(), CallError> {
        self.state.lock().expect("nobody panics").retain(|key, _| !keys.contains(&key.as_slice()));
        Ok(())
    }
    fn state_scan(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: u32,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, CallError> {
        let state = self.state.lock().expect("nobody panics");
        let found = state.iter().filter(|(key, _)| key.starts_with(prefix) && Some(key.as_slice()) > after);
        Ok(found.take(limit as usize).map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}
