//! The shape of the house, kept true: who may import whom, who owns which engine, how long a file may be.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The one crate that may name an engine. Everybody else uses what the owner offers.
const OWNERS: [(&str, &str); 11] = [
    ("datafusion", "weir-lake"),
    ("deltalake", "weir-lake"),
    ("fjall", "weir-ledger"),
    ("notify", "weir-rulestore"),
    ("rdkafka", "weir-connectors"),
    ("reqwest", "weir-connectors"),
    ("wasmtime", "weir-sandbox"),
    ("wasmtime-wasi", "weir-sandbox"),
    ("zen-engine", "weir-jdm"),
    ("zen-expression", "weir-jdm"),
    ("rquickjs", "weir-jdm"),
];
/// Vocabulary and ports, which everybody imports.
const MODEL: &str = "weir-model";
/// Wires all others, and so imports them.
const BINARY: &str = "weir";
/// Files that may use `unsafe`, and say there why it is sound.
const MAY_BE_UNSAFE: [&str; 2] = ["host/jdm/src/heap.rs", "host/sandbox/src/cache.rs"];
const LONGEST_FILE: usize = 500;
/// What must be in the lock file in one version.
const ONCE: [&str; 10] = [
    "arrow-array",
    "arrow-schema",
    "datafusion",
    "deltalake-core",
    "object_store",
    "parquet",
    "rquickjs",
    "tokio",
    "wasmtime",
    "zen-engine",
];

const SECTIONS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

struct Manifest {
    path: String,
    name: String,
    text: toml::Table,
}

impl Manifest {
    fn read(path: &Path) -> Self {
        let text: toml::Table =
            fs::read_to_string(path).expect("a readable manifest").parse().expect("a valid manifest");
        Self { path: relative(path), name: text["package"]["name"].as_str().expect("a name").to_owned(), text }
    }

    /// Dependencies of all kinds, also those of one platform.
    fn dependencies(&self) -> Vec<(&str, &toml::Value)> {
        let platforms = self.text.get("target").and_then(toml::Value::as_table);
        let tables = std::iter::once(&self.text)
            .chain(platforms.into_iter().flat_map(|t| t.values().filter_map(toml::Value::as_table)));
        tables
            .flat_map(|table| SECTIONS.iter().filter_map(|s| table.get(*s)?.as_table()))
            .flatten()
            .map(|(name, value)| (name.as_str(), value))
            .collect()
    }
}

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("a folder of the repository").to_owned()
}

fn relative(path: &Path) -> String {
    let inside = path.strip_prefix(root()).expect("a path in the repository");
    inside.to_str().expect("a name in UTF-8").replace('\\', "/")
}

fn folders(inside: &str) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(root().join(inside))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_dir())
        .collect();
    all.sort();
    all
}

fn host_crates() -> Vec<Manifest> {
    let crates: Vec<Manifest> = folders("host")
        .iter()
        .map(|dir| dir.join("Cargo.toml"))
        .filter(|path| path.is_file())
        .map(|path| Manifest::read(&path))
        .collect();
    assert!(crates.len() > 5, "the host's crates were not found");
    crates
}

/// Every member of the workspace.
fn members() -> Vec<Manifest> {
    let mut all = host_crates();
    all.extend(["tests", "xtask"].map(|dir| Manifest::read(&root().join(dir).join("Cargo.toml"))));
    all
}

/// Rust sources of the host, with their text.
fn host_sources() -> Vec<(String, String)> {
    fn collect(dir: &Path, into: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(dir).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                collect(&path, into);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).expect("a readable source");
                into.push((relative(&path), text));
            }
        }
    }
    let mut all = Vec::new();
    for dir in folders("host") {
        let sources = dir.join("src");
        if sources.is_dir() {
            collect(&sources, &mut all);
        }
    }
    all.sort();
    all
}

fn assert_none(broken: &[String], rule: &str) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

#[test]
fn crates_import_the_model_and_no_sibling() {
    let crates = host_crates();
    let names: Vec<&str> = crates.iter().map(|c| c.name.as_str()).collect();
    let mut broken = Vec::new();
    for c in crates.iter().filter(|c| c.name != BINARY) {
        for (dependency, _) in c.dependencies() {
            let allowed = dependency == MODEL && c.name != MODEL;
            if names.contains(&dependency) && !allowed {
                broken.push(format!("{} imports {dependency}", c.path));
            }
        }
    }
    assert_none(&broken, "crates of the host meet in weir-model's ports, and only host/weir knows them all");
}

#[test]
fn an_engine_has_one_owner() {
    let mut users: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut broken = Vec::new();
    for m in members() {
        for (dependency, _) in m.dependencies() {
            let Some((engine, owner)) = OWNERS.iter().find(|(engine, _)| *engine == dependency) else {
                continue;
            };
            users.entry(engine).or_default().push(m.name.clone());
            if m.name != *owner {
                broken.push(format!("{} depends on {engine}, which {owner} owns", m.path));
            }
        }
    }
    assert_none(&broken, "an engine is named by its owner alone");
    // The list above must not rot: an engine in use is found under the name it is listed with.
    for engine in ["datafusion", "deltalake", "fjall", "notify", "wasmtime", "zen-engine"] {
        assert!(users.contains_key(engine), "nobody depends on {engine}");
    }
}

#[test]
fn versions_stand_in_the_workspace_manifest_only() {
    let mut broken = Vec::new();
    for m in members() {
        for (dependency, value) in m.dependencies() {
            let inherited = value.get("workspace").and_then(toml::Value::as_bool) == Some(true);
            if !inherited {
                broken.push(format!("{}: {dependency} = {value}", m.path));
            }
        }
    }
    assert_none(&broken, "a member writes `NAME.workspace = true`");
}

#[test]
fn host_crates_take_the_workspaces_lints() {
    let broken: Vec<String> = host_crates()
        .into_iter()
        .filter(|m| {
            let lints = m.text.get("lints").and_then(|l| l.get("workspace"));
            lints.and_then(toml::Value::as_bool) != Some(true)
        })
        .map(|m| m.path)
        .collect();
    assert_none(&broken, "a crate of the host has `[lints] workspace = true`");
}

#[test]
fn xtask_depends_on_a_hash_alone() {
    let xtask = Manifest::read(&root().join("xtask/Cargo.toml"));
    let names: Vec<&str> = xtask.dependencies().iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["blake3"], "`cargo xtask` must start in seconds on a fresh machine");
}

/// Packages of the lock file: name, version, source.
fn locked() -> Vec<(String, String, Option<String>)> {
    let text = fs::read_to_string(root().join("Cargo.lock")).expect("a lock file");
    let lock: toml::Table = text.parse().expect("a valid lock file");
    let packages = lock["package"].as_array().expect("packages");
    packages
        .iter()
        .map(|p| {
            let field = |name: &str| p.get(name).and_then(toml::Value::as_str).map(str::to_owned);
            let (name, version) = (field("name"), field("version"));
            (name.expect("a name"), version.expect("a version"), field("source"))
        })
        .collect()
}

#[test]
fn engines_and_their_vocabulary_are_in_the_build_once() {
    let all = locked();
    let mut broken = Vec::new();
    for name in ONCE {
        let versions: Vec<&str> =
            all.iter().filter(|(n, _, _)| n == name).map(|(_, version, _)| version.as_str()).collect();
        if versions.len() != 1 {
            broken.push(format!("{name}: {versions:?}"));
        }
    }
    assert_none(&broken, "two versions of these are two types of the same name, and minutes of compiling");
}

#[test]
fn everything_comes_from_the_registry() {
    let broken: Vec<String> = locked()
        .into_iter()
        .filter_map(|(name, _, source)| Some((name, source?)))
        .filter(|(_, source)| !source.starts_with("registry+"))
        .map(|(name, source)| format!("{name}: {source}"))
        .collect();
    assert_none(&broken, "a dependency from a repository can vanish or change");
}

#[test]
fn no_file_of_the_host_is_too_long() {
    let broken: Vec<String> = host_sources()
        .iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > LONGEST_FILE)
        .map(|(path, lines)| format!("{path}: {lines} lines"))
        .collect();
    assert_none(&broken, &format!("a file has one job and at most {LONGEST_FILE} lines"));
}

#[test]
fn unsafe_stays_where_it_is_explained() {
    let mut broken = Vec::new();
    for (path, text) in host_sources() {
        if MAY_BE_UNSAFE.contains(&path.as_str()) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            if uses_unsafe(line) {
                broken.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert_none(&broken, "unsafe outside of the files that may");
}

/// Whether the keyword stands in a line's code, before any comment.
fn uses_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == "unsafe")
}

#[test]
fn the_keyword_is_found_in_code_only() {
    assert!(uses_unsafe("    unsafe { f() }"));
    assert!(uses_unsafe("unsafe fn f() {}"));
    assert!(!uses_unsafe("#![forbid(unsafe_code)]"));
    assert!(!uses_unsafe("/// unsafe is forbidden here"));
}

#[test]
fn a_released_interface_never_changes() {
    let text = fs::read(root().join("wit/v0_1/detect.wit")).expect("the interface");
    assert_eq!(
        weir_model::Digest::of(&text).to_string(),
        "7684f76b7a8c3fb078b146eca0e2d6b2841a8347de9bcc7ec25b343873ec3ec8",
        "wit/v0_1 is released: what changes goes to wit/next"
    );
}
