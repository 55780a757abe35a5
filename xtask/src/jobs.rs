//! `cargo xtask test`, `check` and `bench`: cargo with the right arguments and environment.

use std::process::Command;

use crate::Outcome;
use crate::guests::{self, native_target};
use crate::paths::Paths;
use crate::process::{cargo, run};
use crate::setup::{self, Tools};

const GUEST_WORKSPACE: &str = "plugins/Cargo.toml";
/// A second version of S1's plugin, for tests that swap it while it runs.
const SWAP_TAG: &str = "2";

/// All tests: the host's, with components and Python at hand, then the guest workspace's own.
pub fn test(paths: &Paths) -> Outcome {
    let tools = setup::all(paths)?;
    build_guests(paths, &tools)?;
    // One command, so that cargo builds in parallel and links each test once. Documentation tests would link every
    // crate with all engines once more.
    run(with_tools(cargo(paths), paths, &tools).args([
        "test",
        "--workspace",
        "--lib",
        "--bins",
        "--tests",
    ]))?;
    run(cargo(paths)
        .args(["test", "--manifest-path", GUEST_WORKSPACE, "--workspace"])
        .args(["--lib", "--bins", "--tests", "--target-dir"])
        .arg(native_target(paths)))
}

/// Formatting and lints of both workspaces.
pub fn check(paths: &Paths) -> Outcome {
    setup::host_tools()?;
    run(cargo(paths).args(["fmt", "--all", "--check"]))
        .map_err(|why| format!("{why}\n`cargo fmt --all` mends it"))?;
    run(cargo(paths).args([
        "fmt",
        "--all",
        "--check",
        "--manifest-path",
        GUEST_WORKSPACE,
    ]))
    .map_err(|why| {
        format!("{why}\n`cargo fmt --all --manifest-path {GUEST_WORKSPACE}` mends it")
    })?;
    let deny = ["--", "--deny", "warnings"];
    run(cargo(paths)
        .args(["clippy", "--workspace", "--all-targets"])
        .args(deny))?;
    run(cargo(paths)
        .args(["clippy", "--workspace", "--all-targets"])
        .args(["--manifest-path", GUEST_WORKSPACE, "--target-dir"])
        .arg(native_target(paths))
        .args(deny))
}

/// The benchmarks, in release mode.
pub fn bench(paths: &Paths, arguments: &[String]) -> Outcome {
    let tools = setup::all(paths)?;
    build_guests(paths, &tools)?;
    run(with_tools(cargo(paths), paths, &tools)
        .args([
            "run",
            "--release",
            "--package",
            "weir-tests",
            "--bin",
            "bench",
            "--",
        ])
        .args(arguments))
}

fn build_guests(paths: &Paths, tools: &Tools) -> Outcome {
    guests::build(paths, &tools.guest)?;
    guests::build_tagged(paths, &tools.guest, SWAP_TAG)
}

fn with_tools(mut command: Command, paths: &Paths, tools: &Tools) -> Command {
    command
        .env("WEIR_GUESTS_DIR", paths.guests())
        .env("WEIR_PYTHON", &tools.python);
    command
}
