//! `cargo xtask setup`: what must be on the machine, looked for first and installed only when it is missing.

use std::path::PathBuf;

use crate::Outcome;
use crate::paths::Paths;
use crate::process::exists;
use crate::python;
use crate::toolchain::{self, Guest, TARGET};

/// Everything that the tests need.
pub struct Tools {
    /// Compiles guests.
    pub guest: Guest,
    /// Reads Delta tables.
    pub python: PathBuf,
}

/// Checks and installs everything.
pub fn all(paths: &Paths) -> Result<Tools, String> {
    host_tools()?;
    let tools = Tools { guest: guest_toolchain(paths)?, python: python::ensure(paths)? };
    eprintln!("ready: {TARGET} for guests, {} for Delta tables", tools.python.display());
    Ok(tools)
}

/// Checks and installs the compiler of guests.
pub fn guest_toolchain(paths: &Paths) -> Result<Guest, String> {
    toolchain::find(paths).map_or_else(|| toolchain::install(paths), Ok)
}

/// What the host's dependencies are compiled with beside Rust.
pub fn host_tools() -> Outcome {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let missing =
        [(compiler.as_str(), "C compiler"), ("make", "make")].into_iter().find(|(n, _)| !exists(n, "--version"));
    let Some((program, what)) = missing else { return Ok(()) };
    Err(format!(
        "there is no {what} ({program}), and some dependencies (compression, TLS, QuickJS, jemalloc) are written in C.\n\
         On Debian or Ubuntu: apt-get install build-essential; on macOS: xcode-select --install"
    ))
}
