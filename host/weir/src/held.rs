//! Who has the data folder: the one who holds the lock on `<data>/host.lock`. A host takes it before it opens anything
//! else, so that a command which comes while it starts waits for its socket and does not open the folder under its hands;
//! a command that opens the folder has it meanwhile. The lock ends with its process, however that ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use weir_model::fault::{Fault, FaultKind};

/// The file that is locked.
const LOCK: &str = "host.lock";
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(25);

/// The folder is this process's until this is dropped.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "it is held, not read")] File);

/// Whether somebody has the folder. Makes nothing.
pub fn is_held(data: &Path) -> Result<bool, Fault> {
    match File::open(data.join(LOCK)) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(e) => Err(fault(data, &e)),
        Ok(file) => Ok(try_lock(&file, data)?.is_none()),
    }
}

/// Takes the folder, which is there, if nobody has it.
pub fn hold(data: &Path) -> Result<Option<Held>, Fault> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(data.join(LOCK));
    let file = file.map_err(|e| fault(data, &e))?;
    Ok(try_lock(&file, data)?.map(|()| Held(file)))
}

/// Asks every few milliseconds until there is an answer, at most so long.
pub fn wait<T>(patience: Duration, mut ask: impl FnMut() -> Result<Option<T>, Fault>) -> Result<Option<T>, Fault> {
    let until = Instant::now() + patience;
    loop {
        let answer = ask()?;
        if answer.is_some() || Instant::now() >= until {
            return Ok(answer);
        }
        // A real wait for another process; no decision of a batch hangs on it.
        #[allow(clippy::disallowed_methods)]
        std::thread::sleep(PAUSE);
    }
}

fn try_lock(file: &File, data: &Path) -> Result<Option<()>, Fault> {
    match file.try_lock() {
        Ok(()) => Ok(Some(())),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(e)) => Err(fault(data, &e)),
    }
}

fn fault(data: &Path, e: &std::io::Error) -> Fault {
    Fault::host(FaultKind::Disk, format_args!("the lock of the data folder: {e}")).file(data.join(LOCK).display())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn one_has_it_and_asking_makes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_held(dir.path()).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let held = hold(dir.path()).unwrap().expect("nobody had it");
        assert!(is_held(dir.path()).unwrap());
        assert!(hold(dir.path()).unwrap().is_none());
        let patience = Duration::from_millis(60);
        assert!(wait(patience, || hold(dir.path())).unwrap().is_none());
        drop(held);
        assert!(!is_held(dir.path()).unwrap());
        assert!(wait(patience, || hold(dir.path())).unwrap().is_some());
        assert!(!is_held(&dir.path().join("absent")).unwrap());
    }
}
