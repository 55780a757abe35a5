//! Which files of the folder are to be taken now.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use globset::{Glob, GlobMatcher};
use weir_model::stream::FileFormat;
use weir_model::{Fault, FaultKind, Time};

use super::manifest::Manifest;
use super::{FilesConfig, outside};

/// A last line without an end is waited for so many times as long as a file has to rest: whoever writes in blocks leaves
/// half a line for as long as the next block takes. Of csv it may just as well be a whole one.
const CSV_RESTS: u32 = 10;
/// Half an object is nothing else.
const JSON_RESTS: u32 = 300;

/// A file as the folder shows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// When it was changed last.
    pub modified: SystemTime,
    /// Its name.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Its size.
    pub size: u64,
    /// Nobody writes to it any more, so a last line without an end is a line.
    pub whole: bool,
}

/// The folder, and since when its files have not changed.
pub struct Folder {
    path: PathBuf,
    include: GlobMatcher,
    settle: Duration,
    /// How long a last line without an end is waited for.
    line: Duration,
    seen: BTreeMap<String, (u64, SystemTime, Time)>,
}

impl Folder {
    pub fn new(config: &FilesConfig) -> Result<Self, Fault> {
        let include = Glob::new(&config.include).map_err(|e| {
            Fault::tenant(FaultKind::Config, e)
                .field("source.include")
                .fix("write a file name with * and ? as wildcards")
        })?;
        Ok(Self {
            path: config.folder.clone(),
            include: include.compile_matcher(),
            settle: config.settle,
            line: config.settle.saturating_mul(match config.format.format {
                FileFormat::JsonLines => JSON_RESTS,
                FileFormat::Csv => CSV_RESTS,
                FileFormat::Parquet => 1,
            }),
            seen: BTreeMap::new(),
        })
    }

    /// Files that have not changed for the settle time and are not in the manifest as they are, oldest first.
    pub fn settled(&mut self, now: Time, manifest: &Manifest) -> Result<Vec<Found>, Fault> {
        let mut listed = BTreeMap::new();
        let unreadable = |e: std::io::Error| {
            outside(&self.path, "the folder cannot be read", &e)
                .fix("make it and let the host read it, or correct path under [source] of the stream")
        };
        for entry in std::fs::read_dir(&self.path).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            // A name that is no UTF-8 cannot be kept in the journal; it would come back under another name.
            let Ok(name) = entry.file_name().into_string() else { continue };
            // Gone between the listing and the look: it is not there any more.
            let Ok(meta) = entry.metadata() else { continue };
            let Ok(modified) = meta.modified() else { continue };
            if meta.is_file() {
                let (path, size) = (entry.path(), meta.len());
                listed.insert(name.clone(), Found { modified, name, path, size, whole: false });
            }
        }
        let mut ready = Vec::new();
        let mut seen = BTreeMap::new();
        for (name, file) in listed.iter().filter(|(name, _)| self.counts(name)) {
            let known = manifest.knows(name, file.size, file.modified);
            if known && !manifest.waits_for_a_line(name) {
                continue;
            }
            let since = match self.seen.get(name) {
                Some((size, modified, since)) if (*size, *modified) == (file.size, file.modified) => *since,
                _ => now,
            };
            seen.insert(name.clone(), (file.size, file.modified, since));
            let done = listed.contains_key(&format!("{name}.done"));
            let whole = done || now.since(since) >= self.line;
            if whole || (!known && now.since(since) >= self.settle) {
                ready.push(Found { whole, ..file.clone() });
            }
        }
        self.seen = seen;
        ready.sort();
        Ok(ready)
    }

    fn counts(&self, name: &str) -> bool {
        let unfinished = [".tmp", ".part", ".done", ".swp", "~"].iter().any(|end| name.ends_with(end));
        !name.starts_with('.') && !unfinished && self.include.is_match(name)
    }
}
