//! The binary itself: what a shell sees of it without a host. That this file is here also makes cargo build the binary
//! for the workspace's tests, which run it.

#![allow(clippy::expect_used)]

use std::process::{Command, Output};

fn weir(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(args).output().expect("the binary runs")
}

#[test]
fn help_and_version_end_with_0_and_a_wrong_command_line_with_2() {
    let version = weir(&["--version"]);
    assert_eq!(version.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&version.stdout).starts_with("weir "));
    let help = weir(&["run", "--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&help.stdout).contains("--once"));
    let wrong = weir(&["run", "--twice"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("--twice"));
}

#[test]
fn a_folder_without_a_host_is_unreachable_and_stays_as_it_is() {
    let empty = std::env::temp_dir().join(format!("weir-binary-{}", std::process::id()));
    let data = empty.to_string_lossy().into_owned();
    let asked = weir(&["status", "--data", &data]);
    assert_eq!(asked.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&asked.stderr).contains("none has ever run"));
    assert!(!empty.exists(), "asking makes no data folder");
}
