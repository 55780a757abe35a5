//! Reads a scenario's or a stream's files whole and makes a ruleset or a definition of them, or says all that is wrong.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::Read as _;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use weir_model::ruleset::{FileEntry, Manifest, TenantConfig};
use weir_model::stream::StreamDef;
use weir_model::{Digest, Limits, Name, Problem, Ruleset, ScenarioId};

use crate::check::{self, Around};
use crate::check_notify;
use crate::toml_file::{self, Read};
use crate::tree::{Entry, Folder, Tenant, stamp};

const MANIFEST: &str = "scenario.toml";
const TENANT: &str = "../tenant.toml";
/// A TOML file may have this many bytes.
const TOML_BYTES: u64 = 1 << 20;

/// The file changed or vanished between two looks at it: look again.
#[derive(Debug)]
pub(crate) struct Again;

/// What a folder holds.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Of its content.
    pub digest: Digest,
    /// Streams that the manifest names.
    pub inputs: BTreeSet<Name>,
    /// The ruleset, or what is wrong; files are relative to the scenario's folder.
    pub ruleset: Result<Ruleset, Vec<Problem>>,
}

/// Content that is in use, so that equal files are held once.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<HashMap<Digest, Weak<[u8]>>>);

impl Pool {
    fn share(&self, digest: Digest, bytes: Vec<u8>) -> Arc<[u8]> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = held.get(&digest).and_then(Weak::upgrade) {
            return there;
        }
        let bytes: Arc<[u8]> = bytes.into();
        // Dead entries are swept when they could be the half of all.
        if held.len() >= 64 && held.len().is_power_of_two() {
            held.retain(|_, weak| weak.strong_count() > 0);
        }
        held.insert(digest, Arc::downgrade(&bytes));
        bytes
    }
}

/// Files of a ruleset, read or refused.
#[derive(Debug, Default)]
pub(crate) struct Raw {
    files: BTreeMap<String, FileEntry>,
    content: BTreeMap<String, Arc<[u8]>>,
    refused: BTreeSet<String>,
    problems: Vec<Problem>,
}

impl Raw {
    /// Takes a file that was read.
    pub(crate) fn put(&mut self, path: &str, bytes: Vec<u8>, pool: &Pool) {
        let digest = Digest::of(&bytes);
        self.files.insert(path.to_owned(), FileEntry { digest, size: bytes.len() as u64 });
        self.content.insert(path.to_owned(), pool.share(digest, bytes));
    }

    fn read(&mut self, path: &str, entry: &Entry, limit: (u64, &str), pool: &Pool) -> Result<(), Again> {
        match whole(entry, limit.0) {
            Ok(bytes) => self.put(path, bytes, pool),
            Err(Refused::Again) => return Err(Again),
            Err(Refused::Large) => self.refuse(
                path,
                entry,
                Problem::new(path, format_args!("it has {} bytes, allowed are {}", entry.size, limit.0))
                    .fix(format_args!("make it smaller, or ask for a higher {}", limit.1)),
            ),
            Err(Refused::Io(e)) => {
                self.refuse(path, entry, Problem::new(path, format_args!("it cannot be read: {e}")).partial());
            }
        }
        Ok(())
    }

    /// What cannot be read has no content digest; its stamp stands in, so that a change of it is seen.
    fn refuse(&mut self, path: &str, entry: &Entry, problem: Problem) {
        self.files.insert(path.to_owned(), FileEntry { digest: entry.stamp, size: entry.size });
        self.refused.insert(path.to_owned());
        self.problems.push(problem);
    }
}

enum Refused {
    Again,
    Large,
    Io(std::io::Error),
}

/// Reads a file whole, if it is the one that was looked at and stays so.
fn whole(entry: &Entry, limit: u64) -> Result<Vec<u8>, Refused> {
    let io = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => Refused::Again,
        _ => Refused::Io(e),
    };
    if entry.size > limit {
        return Err(Refused::Large);
    }
    let file = File::open(&entry.path).map_err(io)?;
    let same = |file: &File| file.metadata().map(|m| stamp(&m) == entry.stamp).map_err(io);
    if !same(&file)? {
        return Err(Refused::Again);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(entry.size).unwrap_or(0));
    (&file).take(limit + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 != entry.size || !same(&file)? {
        return Err(Refused::Again);
    }
    Ok(bytes)
}

/// Reads a scenario's folder and what it needs of its tenant.
pub(crate) fn scenario(
    id: &ScenarioId,
    tenant: &Tenant,
    folder: &Folder,
    host: &Limits,
    pool: &Pool,
) -> Result<Loaded, Again> {
    let mut raw = Raw { problems: folder.problems.clone(), ..Raw::default() };
    if let Some(entry) = &tenant.config {
        raw.read(TENANT, entry, (TOML_BYTES, "limit"), pool)?;
    }
    if let Some(entry) = folder.files.get(MANIFEST) {
        raw.read(MANIFEST, entry, (TOML_BYTES, "limit"), pool)?;
    }
    let config = raw.content.get(TENANT).and_then(|b| toml_file::read::<TenantConfig>(TENANT, b).value);
    let manifest = raw.content.get(MANIFEST).and_then(|b| toml_file::read::<Manifest>(MANIFEST, b).value);
    let limits = merged(config.as_ref(), manifest.as_ref(), host);
    let inputs: BTreeSet<Name> = manifest.iter().flat_map(|m| m.inputs.keys().cloned()).collect();
    for name in &inputs {
        if let Some(entry) = tenant.streams.get(name) {
            raw.read(&stream_path(name), entry, (TOML_BYTES, "limit"), pool)?;
        }
    }
    let (mut assets, mut tables) = (limits.asset_bytes, limits.table_bytes);
    for (path, entry) in folder.files.iter().filter(|(path, _)| *path != MANIFEST) {
        let limit = match class(path, manifest.as_ref()) {
            Class::Component => (limits.component_bytes, "component_bytes"),
            Class::Rule => (limits.rule_bytes, "rule_bytes"),
            Class::Query => (limits.query_bytes, "query_bytes"),
            Class::Asset => {
                // All of them together are bounded, so that many small ones cannot fill the memory either.
                let left = assets;
                assets = assets.saturating_sub(entry.size);
                (left, "asset_bytes")
            }
            Class::Table => {
                let left = tables;
                tables = tables.saturating_sub(entry.size);
                (left, "table_bytes")
            }
        };
        raw.read(path, entry, limit, pool)?;
    }
    let digest = digest_of(id, &raw);
    let streams = tenant.streams.keys().cloned().collect();
    Ok(Loaded { digest, inputs, ruleset: assemble(id, raw, host, &streams) })
}

fn digest_of(id: &ScenarioId, raw: &Raw) -> Digest {
    let plain = Ruleset::digest_of(id, &raw.files);
    if raw.problems.is_empty() {
        return plain;
    }
    let texts: Vec<String> = raw.problems.iter().map(ToString::to_string).collect();
    Digest::of_parts(std::iter::once(plain.0.as_slice()).chain(texts.iter().map(|t| t.as_bytes())))
}

enum Class {
    Component,
    Rule,
    Query,
    Asset,
    Table,
}

/// Which limit a file has: what the manifest says it is, else what its folder says.
fn class(path: &str, manifest: Option<&Manifest>) -> Class {
    if let Some(m) = manifest {
        if m.plugin.as_deref() == Some(path) {
            return Class::Component;
        }
        if m.rules.values().any(|p| p == path) {
            return Class::Rule;
        }
        if m.queries.values().any(|q| q.file == path) {
            return Class::Query;
        }
        if m.assets.values().any(|p| p == path) {
            return Class::Asset;
        }
        if m.tables.values().any(|t| t.file.as_deref() == Some(path)) {
            return Class::Table;
        }
    }
    match path.split('/').next() {
        Some("plugins") => Class::Component,
        Some("rules") => Class::Rule,
        Some("queries") => Class::Query,
        Some("tables") => Class::Table,
        _ => Class::Asset,
    }
}

fn merged(config: Option<&TenantConfig>, manifest: Option<&Manifest>, host: &Limits) -> Limits {
    let tenant = config.map_or_else(|| host.clone(), |c| check::limits(TENANT, &c.limits, host).0);
    match manifest {
        Some(m) => check::limits(MANIFEST, &m.limits, &tenant).0.capped_by(&tenant),
        None => tenant,
    }
}

fn stream_path(name: &Name) -> String {
    format!("../streams/{name}.toml")
}

/// Makes a ruleset of files, or says everything that is wrong with them. Pure. `streams` are all that the tenant has.
pub(crate) fn assemble(
    id: &ScenarioId,
    raw: Raw,
    host: &Limits,
    streams: &BTreeSet<Name>,
) -> Result<Ruleset, Vec<Problem>> {
    let mut problems = raw.problems;
    let read_tenant = raw.content.get(TENANT).map(|b| toml_file::read::<TenantConfig>(TENANT, b));
    let config = match read_tenant {
        Some(read) => checked(read, &mut problems, |c| check::tenant(TENANT, c, host)),
        None => Some(TenantConfig::default()),
    };
    let read = match raw.content.get(MANIFEST) {
        Some(bytes) => toml_file::read::<Manifest>(MANIFEST, bytes),
        None => {
            if !raw.refused.contains(MANIFEST) {
                problems
                    .push(Problem::new(MANIFEST, "there is no scenario.toml").fix("add it to the folder").partial());
            }
            return Err(problems);
        }
    };
    let mut defs = BTreeMap::new();
    for name in read.value.iter().flat_map(|m| m.inputs.keys()) {
        let path = stream_path(name);
        if let Some(bytes) = raw.content.get(&path) {
            let stream = toml_file::read::<StreamDef>(&path, bytes);
            if let Some(def) = checked(stream, &mut problems, |d| check::stream(&path, d)) {
                defs.insert(name.clone(), def);
            }
        }
    }
    let around = Around { files: &raw.files, refused: &raw.refused, streams, defs: &defs };
    let base = config.as_ref().map_or_else(|| host.clone(), |c| check::limits(TENANT, &c.limits, host).0);
    let manifest = checked(read, &mut problems, |m| {
        let mut out = check::manifest(m, &around);
        // Without the tenant's grants nothing can be said; what is wrong with its file is said already.
        out.extend(config.as_ref().map(|c| check_notify::sinks(m, c)).unwrap_or_default());
        out.extend(check::limits(MANIFEST, &m.limits, &base).1);
        out
    });
    match (manifest, config) {
        (Some(manifest), Some(tenant)) if problems.is_empty() => Ok(Ruleset {
            digest: Ruleset::digest_of(id, &raw.files),
            scenario: id.clone(),
            limits: merged(Some(&tenant), Some(&manifest), host),
            files: raw.files,
            content: raw.content,
            manifest,
            tenant,
            streams: defs,
        }),
        _ => Err(problems),
    }
}

/// The value of a file, with what reading and checking it found.
pub(crate) fn checked<T>(
    read: Read<T>,
    problems: &mut Vec<Problem>,
    check: impl FnOnce(&T) -> Vec<Problem>,
) -> Option<T> {
    let found = read.value.as_ref().map(check).unwrap_or_default();
    let found: Vec<Problem> = found.into_iter().filter(|p| !read.is_about_a_hole(p)).collect();
    problems.extend(read.problems);
    problems.extend(found);
    read.value
}

/// A stream's file, read.
pub(crate) struct LoadedStream {
    /// Of the definition; comments and spacing do not count.
    pub digest: Digest,
    /// The definition, or what is wrong; files are relative to the store.
    pub def: Result<StreamDef, Vec<Problem>>,
    /// The file's text.
    pub text: Vec<u8>,
}

/// Reads a TOML file that is not a scenario's own. `file` is named in problems.
pub(crate) fn text(file: &str, entry: &Entry) -> Result<Result<Vec<u8>, Problem>, Again> {
    Ok(match whole(entry, TOML_BYTES) {
        Ok(text) => Ok(text),
        Err(Refused::Again) => return Err(Again),
        Err(Refused::Large) => {
            Err(Problem::new(file, format_args!("it has {} bytes, allowed are {TOML_BYTES}", entry.size)))
        }
        Err(Refused::Io(e)) => Err(Problem::new(file, format_args!("it cannot be read: {e}")).partial()),
    })
}

/// Reads a stream's file.
pub(crate) fn stream(file: &str, entry: &Entry) -> Result<LoadedStream, Again> {
    Ok(match text(file, entry)? {
        Ok(text) => stream_text(file, text),
        Err(problem) => LoadedStream { digest: entry.stamp, def: Err(vec![problem]), text: Vec::new() },
    })
}

/// A stream's definition from its text.
pub(crate) fn stream_text(file: &str, text: Vec<u8>) -> LoadedStream {
    let mut problems = Vec::new();
    let def = checked(toml_file::read::<StreamDef>(file, &text), &mut problems, |d| check::stream(file, d));
    // Of the TOML's values in their order: a comment must not start a new generation of a stream, nor must a newer host
    // whose StreamDef has more fields.
    let values = std::str::from_utf8(&text).ok().and_then(|t| toml::from_str::<toml::Table>(t).ok());
    let digest = match values.and_then(|v| serde_json::to_vec(&v).ok()) {
        Some(json) => Digest::of(&json),
        None => Digest::of(&text),
    };
    match def {
        Some(def) if problems.is_empty() => LoadedStream { digest, def: Ok(def), text },
        _ => LoadedStream { digest, def: Err(problems), text },
    }
}

/// A problem with its file relative to the store instead of the scenario's folder.
pub(crate) fn in_store(id: &ScenarioId, mut problem: Problem) -> Problem {
    let (own, tenant) = (format!("{id}/"), format!("{}/", id.tenant));
    if let Some(beside) = problem.file.strip_prefix("../") {
        problem.file = format!("{tenant}{beside}");
    } else if !problem.file.starts_with(&own) && !problem.file.starts_with(&format!("{tenant}streams/")) {
        problem.file = format!("{own}{}", problem.file);
    }
    problem
}
