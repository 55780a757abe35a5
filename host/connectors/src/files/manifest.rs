//! The entries of a stream's files, durable in the journal, with their bytes in the spool until they are released.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use weir_model::port::Journal;
use weir_model::{Digest, Fault, FaultPoints, Time};

use super::copy::{Copied, copy};
use super::folder::Found;
use super::inside;
use super::reader::Format;

/// One taken file, or what was appended to one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    /// File name in the folder.
    pub name: String,
    /// How much of the file was taken: all of it, or up to a line that has no end yet.
    pub size: u64,
    /// When it was changed last, in nanoseconds since the epoch.
    pub modified: u64,
    /// Digest of the whole file.
    pub digest: Digest,
    /// Ordinal of its first row.
    pub first: u64,
    /// Number of its rows (lines).
    pub rows: u64,
    /// Its bytes are no longer in the spool, because the rows are durable elsewhere.
    pub released: bool,
    /// When it was taken.
    #[serde(default)]
    pub taken: Option<Time>,
    /// Why the file as a whole cannot be used. It has one row then, which stands for it, and no copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Size of the file where it ended with a line that had no end yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<u64>,
}

/// All entries.
pub struct Manifest {
    spool: PathBuf,
    journal: Arc<dyn Journal>,
    faults: Arc<dyn FaultPoints>,
    /// In order of their number, which is also that of their rows.
    entries: Vec<(u64, Entry)>,
}

impl Manifest {
    /// Reads the journal and sweeps copies that have no entry: the host ended before they were journalled.
    pub fn open(spool: PathBuf, journal: Arc<dyn Journal>, faults: Arc<dyn FaultPoints>) -> Result<Self, Fault> {
        fs::create_dir_all(&spool).map_err(|e| inside(&spool, "the spool cannot be made", &e))?;
        let entries = journal
            .entries()?
            .into_iter()
            .map(|(number, bytes)| {
                let entry = serde_json::from_slice(&bytes)
                    .map_err(|e| Fault::internal(format_args!("journal entry {number} of a files source: {e}")))?;
                Ok((number, entry))
            })
            .collect::<Result<Vec<(u64, Entry)>, Fault>>()?;
        let manifest = Self { spool, journal, faults, entries };
        let listed =
            fs::read_dir(&manifest.spool).map_err(|e| inside(&manifest.spool, "the spool cannot be read", &e))?;
        for file in listed.filter_map(Result::ok) {
            let known =
                manifest.entries.iter().any(|(n, e)| !e.released && file.file_name() == *spool_name(*n).as_str());
            if !known {
                fs::remove_file(file.path()).map_err(|e| inside(&file.path(), "an orphan cannot be removed", &e))?;
            }
        }
        Ok(manifest)
    }

    /// Where the next rows that are neither released nor in the spool would end, when `position` is among them.
    pub fn gap(&self, position: u64) -> Option<u64> {
        let missing = |(number, e): &&(u64, Entry)| {
            e.refused.is_none() && (e.released || !self.spool.join(spool_name(*number)).is_file())
        };
        let mut after = self.entries.iter().filter(|(_, e)| e.rows > 0 && e.first + e.rows > position);
        let lost = after.find(missing);
        lost.map(|(_, e)| e.first + e.rows)
    }

    /// The entry that holds a row.
    pub fn at(&self, position: u64) -> Option<&Entry> {
        self.entries.iter().map(|(_, e)| e).find(|e| e.first <= position && position < e.first + e.rows)
    }

    /// Where an entry's bytes are.
    pub fn path(&self, entry: &Entry) -> PathBuf {
        let number = self.entries.iter().find(|(_, e)| e.first == entry.first && e.rows > 0).map_or(0, |(n, _)| *n);
        self.spool.join(spool_name(number))
    }

    /// Whether the file has been taken as it is.
    pub fn knows(&self, name: &str, size: u64, modified: SystemTime) -> bool {
        self.latest(name).is_some_and(|e| (e.seen.unwrap_or(e.size), e.modified) == (size, nanos(modified)))
    }

    /// Whether the end of the file was left because it was no whole line.
    pub fn waits_for_a_line(&self, name: &str) -> bool {
        self.latest(name).is_some_and(|e| e.seen.is_some())
    }

    fn latest(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().rev().map(|(_, e)| e).find(|e| e.name == name)
    }

    /// Takes a file: copy, sync, journal. Answers false when it changed meanwhile or vanished: look again later.
    pub fn take(&mut self, file: &Found, now: Time, format: Format) -> Result<bool, Fault> {
        let number = self.entries.last().map_or(1, |(n, _)| n + 1);
        let first = self.entries.last().map_or(0, |(_, e)| e.first + e.rows);
        let target = self.spool.join(spool_name(number));
        let grows = |e: &&Entry| e.size == file.size || (e.size < file.size && format.grows());
        let before = self.latest(&file.name).filter(grows).cloned();
        let Some(copied) = copy(file, before.as_ref(), &target, format)? else { return Ok(false) };
        let (rows, refused) = match self.duplicate(&copied) {
            Some(reason) => (1, Some(reason)),
            None => match format.count(&target)? {
                None => (copied.lines, None),
                // Nothing was appended, as far as rows go.
                Some(_) if copied.appended && copied.bytes == 0 => (0, None),
                Some(Ok(rows)) => (rows, None),
                Some(Err(why)) => (1, Some(format!("the file cannot be read: {why}"))),
            },
        };
        if let Some(reason) = &refused {
            tracing::warn!(file = %file.path.display(), reason, "a file is not read");
        } else if let (Some(known), false) = (self.latest(&file.name), copied.appended) {
            tracing::warn!(file = %file.path.display(), known = %known.digest.short(), now = %copied.digest.short(),
                "a file that was read before has other bytes now; it is read again as a whole");
        }
        self.faults.pass("ingest.journal")?;
        let kept = rows > 0 && refused.is_none();
        let entry = Entry {
            name: file.name.clone(),
            size: copied.size,
            modified: nanos(file.modified),
            digest: copied.digest,
            first,
            rows,
            released: rows == 0,
            taken: Some(now),
            refused,
            seen: (copied.size < file.size).then_some(file.size),
        };
        self.put(number, entry)?;
        if !kept {
            remove(&target)?;
        }
        self.faults.pass("ingest.journal")?;
        Ok(true)
    }

    /// Why a file that was read as a whole is no news, if it is none.
    fn duplicate(&self, copied: &Copied) -> Option<String> {
        if copied.appended || copied.size == 0 {
            return None;
        }
        let same = |e: &&Entry| e.size == copied.size && e.digest == copied.digest;
        let known = self.entries.iter().map(|(_, e)| e).find(same)?;
        Some(format!("duplicate: its bytes are those of {}, which was taken before", known.name))
    }

    fn put(&mut self, number: u64, entry: Entry) -> Result<(), Fault> {
        let bytes = serde_json::to_vec(&entry).map_err(Fault::internal)?;
        self.journal.put(number, &bytes)?;
        match self.entries.iter_mut().find(|(n, _)| *n == number) {
            Some((_, kept)) => *kept = entry,
            None => self.entries.push((number, entry)),
        }
        Ok(())
    }

    /// Rows below are durable elsewhere. Entries stay, so that their files are not read again.
    pub fn release(&mut self, upto: u64) -> Result<(), Fault> {
        let done: Vec<(u64, Entry)> =
            self.entries.iter().filter(|(_, e)| !e.released && e.first + e.rows <= upto).cloned().collect();
        for (number, mut entry) in done {
            entry.released = true;
            self.put(number, entry)?;
            remove(&self.spool.join(spool_name(number)))?;
        }
        Ok(())
    }
}

pub(super) fn remove(path: &Path) -> Result<(), Fault> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(inside(path, "a copy cannot be removed", &e)),
        _ => Ok(()),
    }
}

fn spool_name(number: u64) -> String {
    format!("{number:020}.lines")
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
