//! `cargo xtask test`, `check`, `bench` and `soak`: cargo with the right arguments and environment.

use std::process::Command;

use crate::Outcome;
use crate::guests::{self, WORKSPACE, cargo_for, native_target};
use crate::paths::Paths;
use crate::process::{cargo, run};
use crate::setup::{self, Tools};

/// A second version of S1's plugin, for tests that swap it while it runs.
const SWAP_TAG: &str = "2";

/// All tests: the host's, with components and Python at hand, then the guest workspace's own.
pub fn test(paths: &Paths) -> Outcome {
    let tools = setup::all(paths)?;
    build_guests(paths, &tools)?;
    // One command, so that cargo builds in parallel and links each test once. Documentation tests would link every
    // crate with all engines once more.
    run(with_tools(cargo(paths), paths, &tools).args(["test", "--workspace", "--lib", "--bins", "--tests"]))?;
    run(cargo(paths)
        .args(["test", "--manifest-path", WORKSPACE, "--workspace"])
        .args(["--lib", "--bins", "--tests", "--target-dir"])
        .arg(native_target(paths)))
}

/// Formatting and lints of both workspaces.
pub fn check(paths: &Paths) -> Outcome {
    setup::host_tools()?;
    let guest = setup::guest_toolchain(paths)?;
    let formatted = ["fmt", "--all", "--check"];
    run(cargo(paths).args(formatted)).map_err(|why| format!("{why}\n`cargo fmt --all` mends it"))?;
    run(cargo(paths).args(formatted).args(["--manifest-path", WORKSPACE]))
        .map_err(|why| format!("{why}\n`cargo fmt --all --manifest-path {WORKSPACE}` mends it"))?;

    let deny = ["--", "--deny", "warnings"];
    let clippy = ["clippy", "--workspace", "--all-targets"];
    // With the benchmarks, which no other command but `bench` compiles.
    run(cargo(paths).args(clippy).args(["--features", "weir-tests/bench"]).args(deny))?;
    run(cargo(paths)
        .args(clippy)
        .args(["--manifest-path", WORKSPACE, "--target-dir"])
        .arg(native_target(paths))
        .args(deny))?;
    if !guest.has_clippy() {
        eprintln!("the code of guests that exists for wasm only is not linted: this toolchain has no clippy");
        return Ok(());
    }
    run(cargo_for(paths, &guest, "clippy").args(["--workspace", "--lib"]).args(deny))
}

/// The benchmarks, in release mode.
pub fn bench(paths: &Paths, arguments: &[String]) -> Outcome {
    let tools = setup::all(paths)?;
    build_guests(paths, &tools)?;
    run(with_tools(cargo(paths), paths, &tools)
        .args(["run", "--release", "--package", "weir-tests", "--features", "bench", "--bin", "bench", "--"])
        .args(arguments))
}

/// A host under the example's load for some minutes, in release mode.
pub fn soak(paths: &Paths, minutes: &str) -> Outcome {
    run(cargo(paths).args(["build", "--release", "--package", "weir", "--bin", "weir"]))?;
    bench(paths, &["soak".to_owned(), minutes.to_owned()])
}

fn build_guests(paths: &Paths, tools: &Tools) -> Outcome {
    guests::build(paths, &tools.guest)?;
    guests::build_tagged(paths, &tools.guest, SWAP_TAG)
}

fn with_tools(mut command: Command, paths: &Paths, tools: &Tools) -> Command {
    command.env("WEIR_GUESTS_DIR", paths.guests()).env("WEIR_PYTHON", &tools.python);
    // For the tests of the documentation: its commands call this program and build guests.
    if let Ok(own) = std::env::current_exe() {
        command.env("WEIR_XTASK", own).env("WEIR_TARGET", &paths.target);
    }
    command
}
