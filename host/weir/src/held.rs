//! Who has the data folder: the one who holds the lock on `<data>/host.lock`. A host takes it before it opens anything
//! else, so that a command which comes while it starts waits for its socket and does not open the folder under its hands;
//! a command that opens the folder has it meanwhile. The lock ends with its process, however that ends. The file says who
//! took it last, for messages.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write as _};
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

/// What a process takes the folder for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// A host, for as long as it runs.
    Host,
    /// A command, until it has its answer.
    Command,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Command => "command",
        })
    }
}

/// Whether somebody has the folder. Makes nothing.
pub fn is_held(data: &Path) -> Result<bool, Fault> {
    match File::open(data.join(LOCK)) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(e) => Err(fault(data, &e)),
        Ok(file) => Ok(try_lock(&file, data)?.is_none()),
    }
}

/// Takes the folder, which is there, if nobody has it.
pub fn hold(data: &Path, what: Use) -> Result<Option<Held>, Fault> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(data.join(LOCK));
    let mut file = file.map_err(|e| fault(data, &e))?;
    if try_lock(&file, data)?.is_none() {
        return Ok(None);
    }
    // For messages only: a folder that can be locked is not refused because a note does not fit on its disk.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{what} {}", std::process::id()));
    Ok(Some(Held(file)))
}

/// Why nobody answers on `socket` although somebody has had the folder for so long.
pub fn unanswered(data: &Path, socket: &Path, waited: Duration) -> Fault {
    let noted = std::fs::read_to_string(data.join(LOCK)).unwrap_or_default();
    let noted = noted.trim().split_once(' ').and_then(|(what, pid)| Some((what, pid.parse::<u32>().ok()?)));
    let (message, fix) = match noted {
        Some(("host", pid)) => (
            format!(
                "another host holds the data folder (process {pid}), but nobody answers on its socket {}, for {waited:?} \
                 now: it is still starting, or the socket was lost",
                socket.display()
            ),
            format!(
                "try again a little later; a host whose socket was lost is stopped with 'kill {pid}' and started anew"
            ),
        ),
        Some((_, pid)) => (
            format!("another command has the data folder open (process {pid}), for {waited:?} now"),
            "try again a little later".to_owned(),
        ),
        None => (
            format!("a host is starting here, or another command has the folder, for {waited:?} now"),
            "try again a little later".to_owned(),
        ),
    };
    Fault::host(FaultKind::Ledger, message).file(data.display()).fix(fix)
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
    let fix = match e.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "run this as the user that the data folder belongs to, and let that user write there: a command works in the \
             folder too while no host runs"
        }
        _ => "the data folder must be on a local file system that knows locks, and host.lock a file in it",
    };
    Fault::host(FaultKind::Disk, format_args!("the lock of the data folder: {e}"))
        .file(data.join(LOCK).display())
        .fix(fix)
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
        let take = || hold(dir.path(), Use::Host);
        let held = take().unwrap().expect("nobody had it");
        assert!(is_held(dir.path()).unwrap());
        assert!(take().unwrap().is_none());
        let patience = Duration::from_millis(60);
        assert!(wait(patience, take).unwrap().is_none());
        drop(held);
        assert!(!is_held(dir.path()).unwrap());
        assert!(wait(patience, take).unwrap().is_some());
        assert!(!is_held(&dir.path().join("absent")).unwrap());
    }

    #[test]
    fn a_lock_that_cannot_be_had_says_what_the_folder_lacks() {
        let dir = tempfile::tempdir().unwrap();
        for kind in [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem] {
            let told = fault(dir.path(), &kind.into());
            assert!(told.fix.as_ref().unwrap().contains("the user that the data folder belongs to"), "{told}");
        }
        std::fs::create_dir(dir.path().join(LOCK)).unwrap();
        let told = hold(dir.path(), Use::Host).unwrap_err();
        assert!(told.file.as_ref().unwrap().ends_with("host.lock"), "{told}");
        assert!(told.fix.unwrap().contains("a local file system"));
    }

    #[test]
    fn whoever_does_not_answer_is_named_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("host.sock");
        let told = || unanswered(dir.path(), &socket, Duration::from_secs(30));
        assert!(told().message.contains("a host is starting here"), "{}", told());
        let me = std::process::id();
        drop(hold(dir.path(), Use::Command).unwrap());
        assert_eq!(told().message, format!("another command has the data folder open (process {me}), for 30s now"));
        let held = hold(dir.path(), Use::Host).unwrap();
        let message = format!("another host holds the data folder (process {me}), but nobody answers on its socket");
        assert!(told().message.starts_with(&message), "{}", told());
        assert!(told().message.contains(&socket.display().to_string()), "{}", told());
        assert!(told().fix.unwrap().contains(&format!("'kill {me}'")));
        drop(held);
    }
}
