//! Running other programs.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::paths::Paths;

/// Cargo in the repository, as if the developer had called it.
///
/// `cargo run` hands variables of *this* package down. Dependencies that watch them would be built again each time one
/// calls cargo by hand and through xtask in turn, so they are taken away.
pub fn cargo(paths: &Paths) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(&paths.root);
    for (name, value) in std::env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let ours = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
        if text == "CARGO" || ours.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(text);
        } else if text == "LD_LIBRARY_PATH" {
            match without_cargos(&value, &paths.target) {
                None => command.env_remove(text),
                Some(kept) => command.env(text, kept),
            };
        }
    }
    command
}

/// A library path without what rustup and `cargo run` put before it.
fn without_cargos(value: &OsStr, target: &Path) -> Option<std::ffi::OsString> {
    let own = |dir: &Path| dir.starts_with(target) || dir.components().any(|part| part.as_os_str() == "toolchains");
    let kept: Vec<_> = std::env::split_paths(value).filter(|dir| !own(dir)).collect();
    (!kept.is_empty()).then(|| std::env::join_paths(kept).ok())?
}

/// Runs a program on this terminal, says what it is, and how long it took when that is worth a line.
pub fn run(command: &mut Command) -> Outcome {
    let shown = show(command);
    eprintln!("$ {shown}");
    let start = Instant::now();
    let status = command.status().map_err(|e| cannot_start(command.get_program(), &e))?;
    if start.elapsed() >= Duration::from_secs(5) {
        eprintln!("  {:.0} s: {shown}", start.elapsed().as_secs_f64());
    }
    ended(status, &shown)
}

/// Like [`run`], but ends the program after a time.
pub fn run_within(command: &mut Command, limit: Duration) -> Outcome {
    let shown = show(command);
    eprintln!("$ {shown}");
    let mut child = command.spawn().map_err(|e| cannot_start(command.get_program(), &e))?;
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return ended(status, &shown),
            Ok(None) if start.elapsed() < limit => {
                // Waiting for a process with a limit has no other way in std.
                #[allow(clippy::disallowed_methods)]
                std::thread::sleep(Duration::from_millis(50));
            }
            other => {
                // It may have ended meanwhile; then there is nothing to kill.
                let _ = child.kill();
                let _ = child.wait();
                return Err(match other {
                    Err(e) => format!("`{shown}` was lost: {e}"),
                    _ => format!("`{shown}` did not end within {} s", limit.as_secs()),
                });
            }
        }
    }
}

/// What a program prints, without the last line end; its error when it fails.
pub fn output(command: &mut Command) -> Result<String, String> {
    let shown = show(command);
    let out = command.stdin(Stdio::null()).output().map_err(|e| cannot_start(command.get_program(), &e))?;
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stderr);
        return Err(format!("`{shown}` failed: {}", why.trim()));
    }
    Ok(String::from_utf8_lossy(&out.stdout).trim_end().to_owned())
}

/// Whether a program can be started at all.
pub fn exists(program: &str, argument: &str) -> bool {
    Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

fn ended(status: ExitStatus, shown: &str) -> Outcome {
    if status.success() { Ok(()) } else { Err(format!("`{shown}` failed ({status})")) }
}

fn cannot_start(program: &OsStr, e: &std::io::Error) -> String {
    format!("cannot start {}: {e}", program.display())
}

fn show(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_ended() {
        let start = Instant::now();
        let out = run_within(Command::new("sleep").arg("60"), Duration::from_millis(100));
        assert!(out.is_err_and(|e| e.contains("did not end within")));
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn failure_carries_what_the_program_said() {
        let out = output(Command::new("sh").args(["-c", "echo why >&2; exit 3"]));
        assert!(out.is_err_and(|e| e.ends_with("failed: why")));
        assert_eq!(output(Command::new("echo").arg("x")), Ok("x".to_owned()));
    }

    #[test]
    fn a_users_own_library_path_stays() {
        let value = OsStr::new("/t/debug/deps:/opt/.rustup/toolchains/x/lib:/opt/own");
        assert_eq!(without_cargos(value, Path::new("/t")), Some("/opt/own".into()));
        assert_eq!(without_cargos(OsStr::new("/t/debug"), Path::new("/t")), None);
    }
}
