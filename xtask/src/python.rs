//! A Python that reads Delta tables with a library that is not ours: tests check with it what the host has written.

use std::path::PathBuf;
use std::process::Command;

use crate::digest::Digest;
use crate::paths::{Paths, read, remove_dir, write};
use crate::process::{exists, output, run};

const REQUIREMENTS: &str = "tests/python/requirements.txt";
const LEAST: (u32, u32) = (3, 10);

/// The interpreter of a virtual environment with what [`REQUIREMENTS`] lists. Made when it is not there or the list has
/// changed: about half a minute.
pub fn ensure(paths: &Paths) -> Result<PathBuf, String> {
    let wanted = read(&paths.root.join(REQUIREMENTS))?;
    let base = base_python()?;
    let mut digest = Digest::default();
    digest.part(wanted.as_bytes());
    digest.part(base.as_bytes());
    let stamp = digest.text();

    let venv = paths.target.join("python");
    let stamp_file = venv.join("stamp");
    let python = venv.join("bin/python");
    if std::fs::read_to_string(&stamp_file).is_ok_and(|is| is == stamp) && python.exists() {
        return Ok(python);
    }
    remove_dir(&venv)?;
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv)).map_err(|why| {
        format!("{why}\npython3 cannot make virtual environments; on Debian: apt-get install python3-venv")
    })?;
    run(Command::new(&python)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
        .arg(paths.root.join(REQUIREMENTS)))
    .map_err(|why| format!("{why}\npip could not install what {REQUIREMENTS} lists"))?;
    write(&stamp_file, &stamp)?;
    Ok(python)
}

/// Which python3 this is; its refusal when it is missing or too old.
fn base_python() -> Result<String, String> {
    let wants = format!("tests need Python {}.{} or newer", LEAST.0, LEAST.1);
    if !exists("python3", "--version") {
        return Err(format!("there is no python3: {wants}; on Debian: apt-get install python3 python3-venv"));
    }
    let seen =
        output(Command::new("python3").args(["-c", "import sys; print(*sys.version_info[:3], sys.executable)"]))?;
    if version(&seen).is_none_or(|v| v < LEAST) {
        return Err(format!("{wants}, and python3 is {seen}"));
    }
    Ok(seen)
}

fn version(seen: &str) -> Option<(u32, u32)> {
    let mut numbers = seen.split(' ').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert!(version("3 9 18 /usr/bin/python3").is_some_and(|v| v < LEAST));
        assert!(version("3 11 2 /usr/bin/python3").is_some_and(|v| v >= LEAST));
        assert_eq!(version("what"), None);
    }
}
