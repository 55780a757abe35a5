//! The compiler of guests: rustc with a standard library for wasm32-wasip2.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::debian;
use crate::paths::Paths;
use crate::process::{cargo, exists, output, run_within};

/// The target that guests are compiled for.
pub const TARGET: &str = "wasm32-wasip2";

/// Skips the download, to try the way round it.
const NO_DOWNLOAD: &str = "WEIR_NO_DOWNLOAD";

/// A toolchain that can compile guests.
pub struct Guest {
    /// Its rustup name; none is the one in use anyway.
    name: Option<&'static str>,
}

impl Guest {
    /// Cargo with this toolchain.
    pub fn cargo(&self, paths: &Paths) -> Command {
        let mut command = cargo(paths);
        if let Some(name) = self.name {
            command.env("RUSTUP_TOOLCHAIN", name);
        }
        command
    }

    /// Whether it can lint as well. The one from Debian's packages cannot.
    pub fn has_clippy(&self) -> bool {
        self.name.is_none()
    }

    /// Which compiler it is, to the commit.
    pub fn version(&self, paths: &Paths) -> Result<String, String> {
        output(rustc(&paths.root, self.name).arg("-vV"))
    }
}

/// The toolchain, when it is there. Takes a fraction of a second.
pub fn find(paths: &Paths) -> Option<Guest> {
    if std::env::var_os(NO_DOWNLOAD).is_none() && has_std(&paths.root, None) {
        return Some(Guest { name: None });
    }
    debian::ready(paths).then_some(Guest { name: Some(debian::NAME) })
}

/// Makes it: by rustup, else from Debian's packages.
pub fn install(paths: &Paths) -> Result<Guest, String> {
    let by_hand = format!("run `rustup target add {TARGET}` where the network allows it");
    if !exists("rustup", "--version") {
        return Err(format!(
            "rustc has no standard library for {TARGET}, and there is no rustup to add it.\n\
             Install rustup (https://rustup.rs), then {by_hand}"
        ));
    }
    if std::env::var_os(NO_DOWNLOAD).is_none() {
        // Without a limit and without retries, rustup keeps trying an unreachable server for many minutes.
        let added = run_within(
            Command::new("rustup")
                .args(["target", "add", TARGET])
                .env("RUSTUP_MAX_RETRIES", "0")
                .current_dir(&paths.root),
            Duration::from_secs(120),
        );
        match (added, find(paths)) {
            (Ok(()), Some(guest)) => return Ok(guest),
            (Ok(()), None) => eprintln!("rustup added {TARGET}, but rustc does not find it"),
            (Err(why), _) => eprintln!("{why}"),
        }
    }
    if !exists("apt-get", "--version") {
        return Err(format!("the {TARGET} target could not be installed: {by_hand}"));
    }
    eprintln!("building a standard library for {TARGET} from Debian's packages instead");
    debian::build(paths)?;
    find(paths).ok_or_else(|| format!("the standard library was built, but rustc does not find it: {by_hand}"))
}

/// rustc, of a toolchain if one is given.
pub fn rustc(root: &Path, toolchain: Option<&str>) -> Command {
    let mut command = Command::new("rustc");
    command.current_dir(root).env_remove("LD_LIBRARY_PATH");
    if let Some(name) = toolchain {
        command.env("RUSTUP_TOOLCHAIN", name);
    }
    command
}

/// Whether a toolchain has a standard library for guests.
pub fn has_std(root: &Path, toolchain: Option<&str>) -> bool {
    let printed = output(rustc(root, toolchain).args(["--print", "target-libdir", "--target", TARGET]));
    let files = printed.ok().and_then(|dir| std::fs::read_dir(dir).ok()).into_iter().flatten().flatten();
    files.into_iter().any(|file| {
        let name = file.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libstd-") && name.ends_with(".rlib")
    })
}
