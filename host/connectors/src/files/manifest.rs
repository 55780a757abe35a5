//! The entries of a stream's files, durable in the journal, with their bytes in the spool until they are released.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use weir_model::port::Journal;
use weir_model::{Digest, Fault, FaultPoints};

use super::folder::Found;
use super::{inside, outside};

/// One taken file, or what was appended to one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    /// File name in the folder.
    pub name: String,
    /// Size of the whole file when it was taken.
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
        let missing = |(number, e): &&(u64, Entry)| e.released || !self.spool.join(spool_name(*number)).is_file();
        let lost = self.entries.iter().filter(|(_, e)| e.first + e.rows > position).find(missing);
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
        self.latest(name).is_some_and(|e| (e.size, e.modified) == (size, nanos(modified)))
    }

    fn latest(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().rev().map(|(_, e)| e).find(|e| e.name == name)
    }

    /// Takes a file: copy, sync, journal. Answers false when it changed meanwhile or vanished: look again later.
    pub fn take(&mut self, file: &Found) -> Result<bool, Fault> {
        let number = self.entries.last().map_or(1, |(n, _)| n + 1);
        let first = self.entries.last().map_or(0, |(_, e)| e.first + e.rows);
        let target = self.spool.join(spool_name(number));
        let before = self.latest(&file.name).filter(|e| e.size <= file.size).cloned();
        let Some(copied) = copy(file, before.as_ref(), &target)? else { return Ok(false) };
        if let (Some(known), false) = (self.latest(&file.name), copied.appended) {
            tracing::warn!(file = %file.path.display(), known = %known.digest.short(), now = %copied.digest.short(),
                "a file that was read before has other bytes now; it is read again as a whole");
        }
        self.faults.pass("ingest.journal")?;
        let entry = Entry {
            name: file.name.clone(),
            size: file.size,
            modified: nanos(file.modified),
            digest: copied.digest,
            first,
            rows: copied.rows,
            released: copied.rows == 0,
        };
        self.put(number, entry)?;
        self.faults.pass("ingest.journal")?;
        Ok(true)
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

struct Copied {
    digest: Digest,
    rows: u64,
    appended: bool,
}

/// Copies a file, or only what was appended to it since `before`, and syncs the copy.
fn copy(file: &Found, before: Option<&Entry>, target: &Path) -> Result<Option<Copied>, Fault> {
    let mut from = match File::open(&file.path) {
        Ok(from) => from,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(outside(&file.path, "the file cannot be opened", &e)),
    };
    let mut all = blake3::Hasher::new();
    let mut start = 0;
    if let Some(before) = before {
        let mut head = (&mut from).take(before.size);
        pump(&mut head, &mut all, None).map_err(|e| outside(&file.path, "the file cannot be read", &e))?;
        if Digest(*all.finalize().as_bytes()) == before.digest {
            start = before.size;
        } else {
            from = File::open(&file.path).map_err(|e| outside(&file.path, "the file cannot be opened", &e))?;
            all = blake3::Hasher::new();
        }
    }
    let mut to = File::create(target).map_err(|e| inside(target, "a copy cannot be made", &e))?;
    let mut rest = (&mut from).take(file.size - start);
    let mut counter = Counter { to: &mut to, lines: 0, open_line: false };
    let copied =
        pump(&mut rest, &mut all, Some(&mut counter)).map_err(|e| inside(target, "a copy cannot be written", &e))?;
    let rows = counter.lines + u64::from(counter.open_line);
    to.sync_all().map_err(|e| inside(target, "a copy cannot be synced", &e))?;
    if let Some(folder) = target.parent() {
        File::open(folder).and_then(|f| f.sync_all()).map_err(|e| inside(folder, "the spool cannot be synced", &e))?;
    }
    let same =
        fs::metadata(&file.path).is_ok_and(|m| m.len() == file.size && m.modified().is_ok_and(|t| t == file.modified));
    if !same || copied != file.size - start {
        remove(target)?;
        return Ok(None);
    }
    Ok(Some(Copied { digest: Digest(*all.finalize().as_bytes()), rows, appended: start > 0 }))
}

struct Counter<'a> {
    to: &'a mut File,
    lines: u64,
    open_line: bool,
}

fn pump(from: &mut impl Read, all: &mut blake3::Hasher, mut to: Option<&mut Counter<'_>>) -> io::Result<u64> {
    let mut buffer = vec![0; 1 << 16];
    let mut total = 0;
    loop {
        let n = match from.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        let bytes = &buffer[..n];
        all.update(bytes);
        if let Some(counter) = &mut to {
            counter.to.write_all(bytes)?;
            counter.lines += bytes.iter().filter(|b| **b == b'\n').count() as u64;
            counter.open_line = bytes.last() != Some(&b'\n');
        }
        total += n as u64;
    }
}

fn remove(path: &Path) -> Result<(), Fault> {
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
