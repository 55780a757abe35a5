//! A table's folder on disk: what is there, and the two writes that an append makes. Nothing here makes a folder, so a
//! table that was taken away is never put back by accident; whatever returned `Ok` survives a crash of the machine.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use url::Url;
use uuid::Uuid;
use weir_model::{Fault, FaultKind, Name};

use crate::error::io_fault;

/// Beginning of the names of files that are being written; others take no notice of them.
const TEMPORARY: &str = ".weir-";

/// Where one table is.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    root: PathBuf,
    /// `tenant/table`, for texts.
    pub name: String,
}

/// Tells one file from another that came into its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// What is at the place of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Nothing, or a folder without a log.
    Absent,
    /// Something with a log.
    Table,
}

/// A log entry under a temporary name; the name goes with it.
#[derive(Debug)]
pub(crate) struct Staged(PathBuf);

impl Drop for Staged {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// How a conditional put ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    /// The entry is there.
    Done(Stamp),
    /// Another writer's entry has this version.
    Taken,
}

impl Folder {
    pub fn new(lake: &Path, tenant: &Name, table: &Name) -> Self {
        Self { root: lake.join(tenant.as_str()).join(table.as_str()), name: format!("{tenant}/{table}") }
    }

    fn log(&self) -> PathBuf {
        self.root.join("_delta_log")
    }

    fn entry(&self, version: u64) -> PathBuf {
        self.log().join(format!("{version:020}.json"))
    }

    /// As the table format names places.
    pub fn url(&self) -> Result<Url, Fault> {
        Url::from_directory_path(&self.root)
            .map_err(|()| Fault::internal(format_args!("{} is no absolute path", self.root.display())))
    }

    /// What is there. Something that is no folder is a fault.
    pub fn presence(&self) -> Result<Presence, Fault> {
        match fs::metadata(&self.root) {
            Err(e) if gone(&e) => return Ok(Presence::Absent),
            Err(e) => return Err(self.fault("looking at the table's folder", &e)),
            Ok(meta) if !meta.is_dir() => {
                return Err(Fault::external(
                    FaultKind::SinkMismatch,
                    "there is a file where the table's folder was expected",
                )
                .file(&self.name)
                .fix("take the file away, or put the table's folder back"));
            }
            Ok(_) => {}
        }
        match fs::read_dir(self.log()) {
            Err(e) if gone(&e) => Ok(Presence::Absent),
            Err(e) => Err(self.fault("looking at the table's log", &e)),
            Ok(mut entries) => Ok(if entries.next().is_some() { Presence::Table } else { Presence::Absent }),
        }
    }

    /// Names of the log's files; none where it cannot be listed.
    pub fn log_names(&self) -> HashSet<OsString> {
        fs::read_dir(self.log()).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect()
    }

    /// The stamp of a log entry, if it is there.
    pub fn look(&self, version: u64) -> Result<Option<Stamp>, Fault> {
        match fs::metadata(self.entry(version)) {
            Ok(meta) => Ok(Some(Stamp::of(&meta))),
            Err(e) if gone(&e) => Ok(None),
            Err(e) => Err(self.fault("looking at a log entry", &e)),
        }
    }

    /// Writes a file of rows, and a log entry under a name that nobody reads, and syncs them with their folder. All
    /// three are synced at once: one after the other they cost a disk several times as long.
    pub fn stage(&self, rows: Option<(&str, &[u8])>, entry: &[u8]) -> Result<Staged, Fault> {
        let staged = Staged(self.root.join(format!("{TEMPORARY}{}", Uuid::new_v4())));
        let rows = rows.map(|(name, bytes)| (self.root.join(name), bytes));
        let done = match &rows {
            Some((path, bytes)) => write_new(path, bytes).and_then(|file| {
                let entry = write_new(&staged.0, entry)?;
                sync_together([file, entry, File::open(&self.root)?])
            }),
            None => write_new(&staged.0, entry).and_then(|entry| entry.sync_all()),
        };
        done.map(|()| staged).map_err(|e| {
            if let Some((path, _)) = &rows {
                let _ = fs::remove_file(path);
            }
            self.fault("writing rows", &e)
        })
    }

    /// A new, empty file of rows.
    pub fn new_rows(&self, name: &str) -> Result<File, Fault> {
        let path = self.root.join(name);
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        file.map_err(|e| self.fault("writing rows", &e))
    }

    /// A file of rows, to read.
    pub fn open_rows(&self, path: &str) -> Result<File, Fault> {
        File::open(self.root.join(path)).map_err(|e| self.fault(&format!("opening {path}"), &e))
    }

    /// Files of rows that lie directly in the table's folder, with their age: when they were written, in milliseconds.
    pub fn row_files(&self) -> Result<Vec<(String, i64)>, Fault> {
        let listed = fs::read_dir(&self.root).and_then(|entries| {
            let mut files = Vec::new();
            for entry in entries {
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                if !name.ends_with(".parquet") || name.starts_with(['.', '_']) {
                    continue;
                }
                match entry.metadata() {
                    Ok(meta) => files.push((name, meta.mtime().saturating_mul(1000))),
                    Err(e) if gone(&e) => {}
                    Err(e) => return Err(e),
                }
            }
            Ok(files)
        });
        listed.map_err(|e| self.fault("listing the table's files", &e))
    }

    /// Files that log entries took away since then, in milliseconds. Entries are kept for as long as older versions may
    /// be read, so one that is not there is older.
    pub fn removed_since(&self, since: i64) -> Result<HashSet<String>, Fault> {
        let mut removed = HashSet::new();
        let entries = fs::read_dir(self.log()).map_err(|e| self.fault("looking at the table's log", &e))?;
        for entry in entries {
            let path = entry.map_err(|e| self.fault("looking at the table's log", &e))?.path();
            if path.extension().is_none_or(|e| e != "json") {
                continue;
            }
            let text = match fs::read_to_string(&path) {
                Ok(text) => text,
                Err(e) if gone(&e) => continue,
                Err(e) => return Err(self.fault("reading a log entry", &e)),
            };
            for line in text.lines().filter(|line| line.starts_with("{\"remove\"")) {
                let Ok(action) = serde_json::from_str::<serde_json::Value>(line) else { continue };
                let Some(remove) = action.get("remove") else { continue };
                let at = remove.get("deletionTimestamp").and_then(serde_json::Value::as_i64);
                if at.is_none_or(|at| at > since)
                    && let Some(path) = remove.get("path").and_then(serde_json::Value::as_str)
                {
                    removed.insert(percent_decoded(path));
                }
            }
        }
        Ok(removed)
    }

    /// Takes a file of rows away that no entry names. Best effort: such a file harms nobody.
    pub fn remove_rows(&self, name: &str) {
        let _ = fs::remove_file(self.root.join(name));
    }

    /// Makes the staged entry log entry `version` unless there is one. It appears whole, by a link. An error leaves open
    /// whether it is there.
    pub fn put_entry(&self, version: u64, staged: &Staged) -> Result<Put, Fault> {
        let linked = match fs::hard_link(&staged.0, self.entry(version)) {
            Ok(()) => sync(&self.log()),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => return Ok(Put::Taken),
            Err(e) => Err(e),
        };
        linked.map_err(|e| self.fault("writing a log entry", &e))?;
        match self.look(version)? {
            Some(stamp) => Ok(Put::Done(stamp)),
            None => Err(self.missing()),
        }
    }

    /// Syncs files below the table's folder, given by relative path, and the folders that hold them.
    pub fn sync_files(&self, files: &[PathBuf]) -> Result<(), Fault> {
        let mut folders: Vec<PathBuf> = vec![self.root.clone(), self.log()];
        let done = files.iter().try_for_each(|file| {
            let path = self.root.join(file);
            sync(&path)?;
            folders.extend(path.parent().map(Path::to_path_buf));
            Ok(())
        });
        folders.sort();
        folders.dedup();
        done.and_then(|()| folders.iter().try_for_each(|folder| sync(folder)))
            .map_err(|e: io::Error| self.fault("syncing the table", &e))
    }

    /// Syncs the folders above, which an entry for a new table was made in.
    pub fn sync_above(&self) -> Result<(), Fault> {
        let above = self.root.ancestors().skip(1).take(2);
        above.into_iter().try_for_each(sync).map_err(|e| self.fault("syncing the lake's folders", &e))
    }

    /// Makes the tenant's and the table's folder; never the lake's own, which may be a volume that is not mounted.
    pub fn create(&self) -> Result<(), Fault> {
        let tenant = self.root.parent().unwrap_or(&self.root);
        for folder in [tenant, &self.root] {
            match fs::create_dir(folder) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(self.fault("making the table's folder", &e)),
            }
        }
        Ok(())
    }

    /// A log entry's text.
    pub fn read_entry(&self, version: u64) -> Result<String, Fault> {
        fs::read_to_string(self.entry(version)).map_err(|e| self.fault("reading a log entry", &e))
    }

    /// The version of the latest checkpoint, 0 when there is none.
    pub fn checkpoint(&self) -> u64 {
        fs::read(self.log().join("_last_checkpoint"))
            .ok()
            .and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok())
            .and_then(|hint| hint.get("version")?.as_u64())
            .unwrap_or(0)
    }

    /// Files of the checkpoint of a version, by relative path.
    pub fn checkpoint_files(&self, version: u64) -> Vec<PathBuf> {
        let log = Path::new("_delta_log");
        let prefix = format!("{version:020}.checkpoint");
        let names = fs::read_dir(self.log())
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with(&prefix) || name == "_last_checkpoint");
        names.map(|name| log.join(name)).collect()
    }

    /// Takes away what writes cut short by a crash left behind. Only the table's one writer may call it.
    pub fn clear_temporary(&self) {
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// The table is not where it was.
    pub fn missing(&self) -> Fault {
        Fault::external(
            FaultKind::SinkMismatch,
            "the table is gone: its folder or the latest entry of its log is missing",
        )
        .file(&self.name)
        .fix("put the folder back; to begin a new table, restart the host")
    }

    pub fn fault(&self, doing: &str, error: &io::Error) -> Fault {
        io_fault(&self.name, doing, error)
    }
}

impl Stamp {
    fn of(meta: &fs::Metadata) -> Self {
        Self { device: meta.dev(), inode: meta.ino(), bytes: meta.size(), modified: (meta.mtime(), meta.mtime_nsec()) }
    }
}

fn gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    Ok(file)
}

fn sync_together(files: [File; 3]) -> io::Result<()> {
    let [first, second, third] = files;
    std::thread::scope(|scope| {
        let others = [second, third].map(|file| scope.spawn(move || file.sync_all()));
        let mut done = first.sync_all();
        for other in others {
            let synced = other.join().unwrap_or_else(|_| Err(io::Error::other("a thread that syncs panicked")));
            done = done.and(synced);
        }
        done
    })
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Paths in a log are URL-encoded.
pub(crate) fn percent_decoded(path: &str) -> String {
    let mut out = Vec::with_capacity(path.len());
    let bytes = path.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        let hex = (bytes[i] == b'%')
            .then(|| path.get(i + 1..i + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(hex.unwrap_or(bytes[i]));
        i += if hex.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}
