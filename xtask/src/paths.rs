//! Where things are.

use std::path::{Path, PathBuf};

/// The repository, and the cargo target folder that this program was built in.
pub struct Paths {
    /// The repository.
    pub root: PathBuf,
    /// The target folder: `CARGO_TARGET_DIR`, or what cargo was configured with.
    pub target: PathBuf,
}

impl Paths {
    /// From where this program lies and where its sources were. `WEIR_REPOSITORY` names a copy of the repository to work
    /// on instead, with a target folder of its own: the tests of the documentation have one.
    pub fn find() -> Result<Self, String> {
        if let Some(root) = std::env::var_os("WEIR_REPOSITORY").map(PathBuf::from) {
            let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
            return Ok(Self { target: root.join(target), root });
        }
        // Cargo says where the sources are for which it runs this: two copies of the repository with one target folder share
        // the program, and it remembers the one that built it.
        let told = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).filter(|dir| dir.ends_with("xtask"));
        let crate_folder = told.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
        let root = crate_folder
            .parent()
            .filter(|root| root.join("xtask").is_dir())
            .ok_or("the repository has moved since xtask was built: run it as `cargo xtask`")?;
        let exe = std::env::current_exe().map_err(|e| format!("cannot tell where this program is: {e}"))?;
        // Cargo marks the top of a target folder that it made with this file, whatever lies between it and the program. One
        // that was there before has no mark.
        let marked = exe.ancestors().find(|dir| dir.join("CACHEDIR.TAG").is_file());
        let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from).filter(|dir| exe.starts_with(dir));
        let target = named
            .or_else(|| marked.or_else(|| exe.parent()?.parent()).map(Path::to_owned))
            .ok_or_else(|| format!("{} is in no cargo target folder", exe.display()))?;
        Ok(Self { root: root.to_owned(), target })
    }

    /// Where finished components are: `WEIR_GUESTS_DIR` of the tests.
    pub fn guests(&self) -> PathBuf {
        self.target.join("guests")
    }
}

/// Reads a text file, or says which one could not be read.
pub fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
}

/// Writes a file, and the folders it needs.
pub fn write(path: &Path, content: &str) -> Result<(), String> {
    make_parent(path)?;
    std::fs::write(path, content).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// Makes a folder and those above it.
pub fn make_dir(path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(path).map_err(|e| format!("cannot make {}: {e}", path.display()))
}

/// Removes a folder with all that is in it; none there is fine.
pub fn remove_dir(path: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(format!("cannot remove {}: {e}", path.display())),
        _ => Ok(()),
    }
}

/// Copies a file into place in one step: who looks at `to` sees the old bytes or the new ones, never half.
pub fn copy(from: &Path, to: &Path) -> Result<(), String> {
    make_parent(to)?;
    let mut part = to.as_os_str().to_owned();
    part.push(".part");
    std::fs::copy(from, &part)
        .and_then(|_| std::fs::rename(&part, to))
        .map_err(|e| format!("cannot copy {} to {}: {e}", from.display(), to.display()))
}

/// The files and folders of a folder, by name.
pub fn list(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |e| format!("cannot list {}: {e}", dir.display());
    let mut all = std::fs::read_dir(dir)
        .map_err(failed)?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    all.sort();
    Ok(all)
}

fn make_parent(path: &Path) -> Result<(), String> {
    path.parent().map_or(Ok(()), make_dir)
}
