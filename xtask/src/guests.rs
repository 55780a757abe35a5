//! `cargo xtask guests`: compiles what is below plugins/ and tests/guests/ to components, and leaves them as
//! `<target>/guests/*.wasm`. When no source has changed, nothing runs, not even cargo.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;
use crate::digest::Digest;
use crate::paths::{Paths, copy, list, make_dir, remove_dir, write};
use crate::process::run;
use crate::toolchain::{Guest, TARGET};

/// Everything that a component depends on, beside the compiler. A folder that a guest includes a file from belongs here.
const SOURCES: [&str; 3] = ["plugins", "tests/guests", "wit"];
/// The guests' own workspace.
pub const WORKSPACE: &str = "plugins/Cargo.toml";
/// The plugin that swap tests need in many versions.
const TAGGED_PACKAGE: &str = "s1-syslog";
const TAGGED_FILE: &str = "s1_syslog";
/// Makes the bytes of a build differ; the plugins put it into their version.
const TAG: &str = "WEIR_BUILD_TAG";

/// Builds all components.
pub fn build(paths: &Paths, guest: &Guest) -> Outcome {
    let out = paths.guests();
    let stamp = Stamp::new(paths, guest, None)?;
    if stamp.holds() {
        eprintln!("guests: {} up to date in {}", wasm_files(&out)?.len(), out.display());
        return Ok(());
    }
    // Cargo never removes the component of a package that is gone, and links those of all others anew.
    let built = release_folder(paths);
    for old in wasm_files(&built)? {
        std::fs::remove_file(&old).map_err(|e| format!("cannot remove {}: {e}", old.display()))?;
    }
    run(&mut cargo_for(paths, guest, "build"))?;
    let made = wasm_files(&built)?;
    if made.is_empty() {
        return Err(format!("{WORKSPACE} made no component: is a member a cdylib?"));
    }
    remove_dir(&out)?;
    for file in &made {
        copy(file, &out.join(file.file_name().unwrap_or_default()))?;
    }
    eprintln!("guests: {} built, in {}", made.len(), out.display());
    stamp.write()
}

/// Builds one more `s1_syslog`, equal but for its bytes: `guests/s1_syslog+TAG.wasm`.
pub fn build_tagged(paths: &Paths, guest: &Guest, tag: &str) -> Outcome {
    if tag.is_empty() || !tag.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Err(format!("'{tag}' is no tag: letters and digits only"));
    }
    let stamp = Stamp::new(paths, guest, Some(tag))?;
    if stamp.holds() {
        return Ok(());
    }
    run(cargo_for(paths, guest, "build").args(["--package", TAGGED_PACKAGE]).env(TAG, tag))?;
    let name = format!("{TAGGED_FILE}.wasm");
    copy(&release_folder(paths).join(name), &tagged(paths, tag))?;
    stamp.write()
}

/// The components that were built, by file name.
pub fn wasm_files(dir: &Path) -> Result<Vec<PathBuf>, String> {
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let mut files = list(dir)?;
    files.retain(|file| file.extension().is_some_and(|e| e == "wasm"));
    Ok(files)
}

/// Where native builds of the guest workspace go (its tests and lints): apart, so that host and guests never wait for
/// each other's build lock.
pub fn native_target(paths: &Paths) -> PathBuf {
    paths.target.join("guests-native")
}

fn build_target(paths: &Paths) -> PathBuf {
    paths.target.join("guests-build")
}

fn release_folder(paths: &Paths) -> PathBuf {
    build_target(paths).join(TARGET).join("release")
}

fn tagged(paths: &Paths, tag: &str) -> PathBuf {
    paths.guests().join(format!("{TAGGED_FILE}+{tag}.wasm"))
}

/// Cargo for components: `build`, or what else takes the same arguments.
pub fn cargo_for(paths: &Paths, guest: &Guest, what: &str) -> Command {
    let mut command = guest.cargo(paths);
    command
        .args([what, "--release", "--target", TARGET])
        .args(["--manifest-path", WORKSPACE, "--target-dir"])
        .arg(build_target(paths))
        // Flags and profiles that a developer sets for the host are not meant for guests, and are not in the stamp.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove(TAG);
    command
}

/// What the components in the guests folder were made of.
struct Stamp {
    file: PathBuf,
    text: String,
}

impl Stamp {
    fn new(paths: &Paths, guest: &Guest, tag: Option<&str>) -> Result<Self, String> {
        let mut digest = Digest::default();
        digest.part(guest.version(paths)?.as_bytes());
        for folder in SOURCES {
            digest.tree(&paths.root, folder)?;
        }
        Ok(Self {
            file: paths.guests().join(match tag {
                None => ".stamp".to_owned(),
                Some(tag) => format!(".stamp+{tag}"),
            }),
            text: digest.text(),
        })
    }

    fn holds(&self) -> bool {
        std::fs::read_to_string(&self.file).is_ok_and(|is| is == self.text)
    }

    fn write(&self) -> Outcome {
        self.file.parent().map_or(Ok(()), make_dir)?;
        write(&self.file, &self.text)
    }
}
