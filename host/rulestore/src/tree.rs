//! What lies in the store's folder, by `stat` alone. Names, sizes and times only say where to look again.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weir_model::{Digest, Name, Problem};

/// More files than this in a scenario's folder are refused.
pub(crate) const FILES: usize = 1_000;
/// Folders below a scenario's folder may be this deep.
const DEPTH: usize = 8;
const MANIFEST: &str = "scenario.toml";

/// A file as `stat` shows it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Where to open it.
    pub path: PathBuf,
    /// Its size.
    pub size: u64,
    /// Device, inode, size, modification and change time: another one says that the file should be read again.
    pub stamp: Digest,
}

impl Entry {
    fn new(path: PathBuf, meta: &Metadata) -> Self {
        Self { path, size: meta.size(), stamp: stamp(meta) }
    }
}

/// The stamp of [`Entry`].
pub(crate) fn stamp(meta: &Metadata) -> Digest {
    let numbers = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
    let mut bytes = Vec::with_capacity(56);
    for n in [meta.dev(), meta.ino(), meta.size()] {
        bytes.extend_from_slice(&n.to_le_bytes());
    }
    for n in numbers {
        bytes.extend_from_slice(&n.to_le_bytes());
    }
    Digest::of(&bytes)
}

/// The whole store.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Tenants by name.
    pub tenants: BTreeMap<Name, Tenant>,
    /// Folders that are no tenants because of their names.
    pub strays: Vec<Problem>,
    /// The device that the store is on: an unmounted volume leaves an empty folder of another one.
    pub device: u64,
}

/// A tenant's folder.
#[derive(Debug, Default)]
pub(crate) struct Tenant {
    /// `tenant.toml`.
    pub config: Option<Entry>,
    /// `streams/*.toml`.
    pub streams: BTreeMap<Name, Entry>,
    /// Scenarios by name.
    pub scenarios: BTreeMap<Name, Folder>,
    /// What is wrong with names and links; files are relative to the store.
    pub problems: Vec<Problem>,
    /// The folder could not be listed, so nothing is known of what is in it.
    pub unreadable: bool,
}

/// A scenario's folder.
#[derive(Debug, Default)]
pub(crate) struct Folder {
    /// Its files by path, relative to it.
    pub files: BTreeMap<String, Entry>,
    /// What may not be read; files are relative to the folder.
    pub problems: Vec<Problem>,
}

impl Folder {
    /// A digest of what `stat` shows, with that of the files beside the folder that count for it.
    pub(crate) fn fingerprint<'a>(&self, beside: impl Iterator<Item = Option<&'a Entry>>) -> Digest {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        for (path, entry) in &self.files {
            parts.push(path.clone().into_bytes());
            parts.push(entry.stamp.0.to_vec());
        }
        parts.extend(self.problems.iter().map(|p| p.to_string().into_bytes()));
        parts.extend(beside.map(|e| e.map_or_else(Vec::new, |e| e.stamp.0.to_vec())));
        Digest::of_parts(parts.iter().map(Vec::as_slice))
    }
}

/// Whether a name is a dropping of an editor or of a copy that is under way.
pub(crate) fn ignored(name: &str) -> bool {
    const ENDS: [&str; 7] = ["~", ".swp", ".swo", ".swx", ".tmp", ".part", ".bak"];
    name.starts_with('.')
        || name.starts_with('#')
        || name == "4913"
        || name.contains("___jb_")
        || ENDS.iter().any(|end| name.ends_with(end))
}

/// Looks at everything. An error when the store's folder itself cannot be listed.
pub(crate) fn scan(store: &Path) -> io::Result<Tree> {
    let root = store.canonicalize()?;
    let mut tree = Tree { device: fs::metadata(&root)?.dev(), ..Tree::default() };
    for (name, path) in list(&root)? {
        let Some(meta) = stat(&path)? else { continue };
        if !meta.is_dir() {
            continue;
        }
        match Name::new(&name) {
            Ok(tenant) => {
                let mut out = Tenant::default();
                match inside(&path, &root) {
                    Some(real) => {
                        if let Err(e) = scan_tenant(&real, &name, &mut out) {
                            out.problems.push(Problem::new(&name, format_args!("the folder cannot be read: {e}")));
                            out.unreadable = true;
                        }
                    }
                    None => out.problems.push(leaves(&name)),
                }
                tree.tenants.insert(tenant, out);
            }
            Err(e) => {
                tree.strays.push(Problem::new(&name, e).fix("rename the folder; a tenant's name is its folder's"))
            }
        }
    }
    Ok(tree)
}

fn scan_tenant(dir: &Path, tenant: &str, out: &mut Tenant) -> io::Result<()> {
    for (name, path) in list(dir)? {
        let Some(meta) = stat(&path)? else { continue };
        let Some(real) = inside(&path, dir) else {
            out.problems.push(leaves(&format!("{tenant}/{name}")));
            continue;
        };
        if name == "tenant.toml" && meta.is_file() {
            out.config = Some(Entry::new(real, &meta));
        } else if name == "streams" && meta.is_dir() {
            scan_streams(&real, dir, tenant, out)?;
        } else if meta.is_dir() && looks_like_a_scenario(&real) {
            match Name::new(&name) {
                Ok(scenario) => {
                    let mut folder = Folder::default();
                    if let Err(e) = walk(&real, dir, "", 0, &mut folder) {
                        folder
                            .problems
                            .push(Problem::new(MANIFEST, format_args!("the folder cannot be read: {e}")).partial());
                    }
                    out.scenarios.insert(scenario, folder);
                }
                Err(e) => out.problems.push(
                    Problem::new(format_args!("{tenant}/{name}"), e)
                        .fix("rename the folder; a scenario's name is its folder's"),
                ),
            }
        }
    }
    Ok(())
}

/// A tenant's folder may hold data folders too (a `files` source reads them): those are not walked.
fn looks_like_a_scenario(dir: &Path) -> bool {
    [MANIFEST, "plugins", "rules", "queries"].iter().any(|name| dir.join(name).symlink_metadata().is_ok())
}

fn scan_streams(dir: &Path, tenant_dir: &Path, tenant: &str, out: &mut Tenant) -> io::Result<()> {
    for (name, path) in list(dir)? {
        let Some(stem) = name.strip_suffix(".toml") else { continue };
        let Some(meta) = stat(&path)? else { continue };
        let file = format!("{tenant}/streams/{name}");
        match (Name::new(stem), inside(&path, tenant_dir)) {
            (_, None) => out.problems.push(leaves(&file)),
            (Err(e), _) => {
                out.problems.push(Problem::new(file, e).fix("rename the file; a stream's name is its file's"))
            }
            (Ok(stream), Some(real)) if meta.is_file() => {
                out.streams.insert(stream, Entry::new(real, &meta));
            }
            _ => {}
        }
    }
    Ok(())
}

fn walk(dir: &Path, tenant_dir: &Path, prefix: &str, depth: usize, out: &mut Folder) -> io::Result<()> {
    for (name, path) in list(dir)? {
        let Some(meta) = stat(&path)? else { continue };
        let shown = format!("{prefix}{name}");
        let Some(real) = inside(&path, tenant_dir) else {
            out.problems.push(leaves(&shown));
            continue;
        };
        if meta.is_dir() {
            if depth == DEPTH {
                out.problems.push(Problem::new(&shown, format_args!("folders are nested more than {DEPTH} deep")));
            } else {
                walk(&real, tenant_dir, &format!("{shown}/"), depth + 1, out)?;
            }
        } else if !meta.is_file() {
            out.problems.push(Problem::new(&shown, "it is neither a file nor a folder").fix("remove it"));
        } else if out.files.len() == FILES {
            if !out.problems.iter().any(|p| p.file == MANIFEST) {
                let problem = Problem::new(MANIFEST, format_args!("the folder has more than {FILES} files"));
                out.problems.push(problem.fix("keep data elsewhere"));
            }
        } else {
            out.files.insert(shown, Entry::new(real, &meta));
        }
    }
    Ok(())
}

/// Names and paths in a folder, in order, without what is ignored and what has no readable name.
fn list(dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string()
            && !ignored(&name)
        {
            out.push((name, entry.path()));
        }
    }
    out.sort();
    Ok(out)
}

/// None when it vanished since it was listed, or is a link to nothing.
fn stat(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some(meta)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Where a path really is, if that is below `root`. A link inside of it is fine (mounted config maps are made of them); one
/// out of it would let a tenant read another's files.
fn inside(path: &Path, root: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().filter(|real| real.starts_with(root))
}

fn leaves(file: &str) -> Problem {
    Problem::new(file, "it is a link that leaves the folder").fix("copy the file here instead")
}
