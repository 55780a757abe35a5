//! The folder of a ledger: what lies where, and the promises between the parts.
//!
//! # Invariants
//!
//! 1. A batch is there with everything that belongs to it, or not at all: one fjall batch over all keyspaces, and the
//!    files it names are synced before it is written.
//! 2. Of each run the kept batches are `oldest..=head` without a hole, T grows with N, and each batch names the digest of
//!    the one before it.
//! 3. What readers see is durable. They read through a snapshot that is taken after the sync of a group, never the
//!    keyspaces themselves, so that nothing leaves the host that a power cut could take back.
//! 4. Everything is a function of the commits in their order: before-images, sizes, counters, expiry. Only `retain`
//!    and `forget` take away, and only what no later batch can ask for.
//! 5. A cursor is never ahead of its run's head, and no run's head is behind its slot in `heads`. If one is, the
//!    journal was cut, and every call for that run says so.
//!
//! # Files
//!
//! ```text
//! FORMAT    "weir-ledger 1\n". A file, not a key: another version must be noticed before fjall replays its journal,
//!           because the replay already writes.
//! LOCK      flock-ed while a process has the ledger open; holds its process id, for the message.
//! store/    fjall: the keyspaces below.
//! outputs/  outputs larger than `spill_bytes`, one Arrow IPC stream each, written, synced and renamed before the
//!           commit that names them. What no commit names is removed when the ledger is opened.
//! heads     the newest N of each run, one slot of 16 bytes a run (see `witness.rs`). Written after every group's sync
//!           and not synced itself. fjall cuts a damaged journal without a word; this file remembers what it cut.
//! ```
//!
//! # Keyspaces
//!
//! Integers in keys are big-endian, T has its sign bit flipped, names are preceded by their length in one byte, so keys
//! sort as their parts do and no two lists of parts give the same key. `run` is a number that a run gets with its first
//! commit and that is never used again: forgetting a scenario is the removal of its names, the rest is swept after it.
//!
//! ```text
//! meta      0 'incarnation' | 0 'next-run'     text | u64
//!           1 tenant scenario                  the scenario's incarnation
//!           2 run                              a forgotten run that is not swept yet
//!           3 tenant scenario                  since when it is paused, MessagePack
//! runs      tenant scenario run-name           Run: number, head, oldest, sizes, base of a fork, where `expiry` begins
//! attempts  tenant scenario run-name           Attempts at N = head + 1, by ruleset; not synced
//! batches   run N                              previous[32] digest[32] state[32] length:u32 sizes record (codec.rs)
//! times     run T                              N
//! touched   run N                              keys of `before` that batch N wrote, without their N
//! before    run space key* N                   cell: what the key held before batch N
//! state     run space key                      cell: what it holds after the head
//! expiry    run expires space key              empty: which values a batch with T >= expires takes away
//! outputs   run output N                       OutputEntry: rows, sizes, digest, where the bytes are
//! payloads  run output N                       the bytes, an Arrow IPC stream (lz4), unless they are in a file
//! sinks     tenant scenario run-name output    cursor, and how many outputs are above it
//! streams   tenant stream 0 | 1 | 2 number     StreamMeta | BronzeCursor | an entry of its journal
//! ```
//!
//! `key*` is the key with 0x00 written as 0x00 0xFF and 0x00 0x00 at its end: it sorts as the key does and no key is the
//! beginning of another one. A cell is 1 value | 2 expires:i64 value | 3 (nothing). Spaces are 1 version:u32 for a
//! plugin, 2 for alarms.
//!
//! Values that are structures are MessagePack with field names: a later version can add fields that have a default, and
//! drop fields, and still reads what an older one wrote. What a digest covers is kept as the bytes it was computed over
//! and never encoded again. Ledgers of another FORMAT are refused.
//!
//! # Runs that are not live
//!
//! With its first commit a run forks: it notes live's number and the batch after live's head. From then on its own cells
//! lie over live's state before that batch (before-images make that readable while live moves on); 3 means that the
//! fork deleted the key. Before its first commit it simply reads live.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_model::{Fault, FaultKind, Retry};

use crate::store::{io_fault, ledger_fault};

const FORMAT: &str = "weir-ledger 1\n";

/// The paths of a ledger's folder.
#[derive(Debug, Clone)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(dir: &Path) -> Self {
        Self(dir.to_owned())
    }
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
    pub(crate) fn store(&self) -> PathBuf {
        self.0.join("store")
    }
    pub(crate) fn outputs(&self) -> PathBuf {
        self.0.join("outputs")
    }
    pub(crate) fn heads(&self) -> PathBuf {
        self.0.join("heads")
    }
    fn format(&self) -> PathBuf {
        self.0.join("FORMAT")
    }
    fn lock_file(&self) -> PathBuf {
        self.0.join("LOCK")
    }

    /// Takes the folder for this process. The lock lasts as long as the file is open.
    pub(crate) fn lock(&self) -> Result<File, Fault> {
        let at = |e| io_fault("cannot lock the ledger", &e);
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(self.lock_file()).map_err(at)?;
        match patiently(|| file.try_lock(), |answer| matches!(answer, Err(TryLockError::WouldBlock))) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The text is only for the message; a lock without a readable owner is still a lock.
                let _ = file.read_to_string(&mut holder);
                let holder = holder.trim();
                let who = if holder.is_empty() { String::new() } else { format!(" (process {holder})") };
                return Err(ledger_fault(format_args!("another host holds the data folder{who}"))
                    .fix("stop it, or give this host a data folder of its own"));
            }
            Err(TryLockError::Error(e)) => return Err(at(e)),
        }
        file.set_len(0).map_err(at)?;
        file.rewind().map_err(at)?;
        writeln!(file, "{}", std::process::id()).map_err(at)?;
        Ok(file)
    }

    /// Checks the format version, or makes a new ledger's folder. Touches nothing when the version is another one.
    pub(crate) fn prepare(&self) -> Result<(), Fault> {
        let at = |e| io_fault("cannot prepare the ledger's folder", &e);
        match std::fs::read(self.format()) {
            Ok(text) if text == FORMAT.as_bytes() => {}
            Ok(text) => {
                return Err(ledger_fault(format_args!(
                    "the ledger has the format '{}', this host knows only '{}'",
                    String::from_utf8_lossy(&text).trim_end(),
                    FORMAT.trim_end()
                ))
                .retry(Retry::Never)
                .fix("run the version of the host that wrote it"));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                if self.store().exists() {
                    return Err(Fault::host(FaultKind::Ledger, "the ledger's FORMAT file is gone")
                        .file("ledger/FORMAT")
                        .retry(Retry::Never)
                        .fix("restore the data folder from a backup"));
                }
                write_synced(&self.format(), FORMAT.as_bytes()).map_err(at)?;
            }
            Err(e) => return Err(at(e)),
        }
        std::fs::create_dir_all(self.outputs()).map_err(at)?;
        sync_folder(&self.0).map_err(at)
    }
}

/// Writes a file so that after a crash it is there as a whole or not at all.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = PathBuf::from(draft);
    let mut file = File::create(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&draft, path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// Makes names of a folder durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// How long a lock that is held is asked for again.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Asks again for a while. A lock belongs to the open file, and a child that this process (or the host before) has just
/// forked has that file open until it executes its program: it holds what its parent has given up.
pub(crate) fn patiently<T>(mut ask: impl FnMut() -> T, held: impl Fn(&T) -> bool) -> T {
    let begun = Instant::now();
    loop {
        let answer = ask();
        if !held(&answer) || begun.elapsed() > LOCK_PATIENCE {
            return answer;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
