//! Files of a folder, each read once.
//!
//! A file is taken when it has settled (or has a `NAME.done` beside it): its bytes are copied into the spool and its entry
//! goes to the stream's journal, before any of its rows is given out. A row's offset is its ordinal over all entries, so the
//! source can be read again from the spool whatever became of the file, until the rows are released. A file that has grown
//! since gives only what was appended; a last line without an end is waited for a while, because it may be half a line. One
//! whose old bytes changed is read again as a whole, with a warning. Bytes that were read under another name, and a parquet
//! file that is damaged, are not read: one dead letter stands for the file.

mod copy;
mod csv;
mod folder;
mod lines;
mod manifest;
mod parquet;
mod reader;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weir_model::port::{Journal, PollLimit, Polled, Source};
use weir_model::{Fault, FaultKind, FaultPoints, OffsetRange, Offsets, Time};

use folder::Folder;
use manifest::Manifest;
pub(crate) use parquet::cell_bytes;
pub use reader::Format;
use reader::Reader;

/// Where a `files` source reads and keeps.
#[derive(Debug, Clone)]
pub struct FilesConfig {
    /// The folder that is read.
    pub folder: PathBuf,
    /// File names that count.
    pub include: String,
    /// How long a file must not have changed.
    pub settle: Duration,
    /// This stream's own folder for copies.
    pub spool: PathBuf,
    /// How their bytes become rows.
    pub format: Format,
}

/// A `files` source.
pub struct Files {
    folder: Folder,
    manifest: Manifest,
    format: Format,
    position: u64,
    open: Option<(Reader, Option<Time>)>,
    at_end: bool,
}

impl Files {
    /// Goes on at `from`. Rows that were released before it are not there any more; a position among them is a gap.
    pub fn open(
        config: FilesConfig,
        from: &Offsets,
        journal: Arc<dyn Journal>,
        faults: Arc<dyn FaultPoints>,
    ) -> Result<Self, Fault> {
        let manifest = Manifest::open(config.spool.clone(), journal, faults)?;
        let folder = Folder::new(&config)?;
        let position = from.get(0);
        if let Some(gap) = manifest.gap(position) {
            return Err(Fault::host(
                FaultKind::Gap,
                format_args!("rows {position} to {} are neither in the bronze table nor in the spool", gap - 1),
            )
            .file(config.spool.display())
            .fix("put the spool folder back as it was"));
        }
        Ok(Self { folder, manifest, format: config.format, position, open: None, at_end: false })
    }

    fn next_chunk(&mut self, limit: PollLimit) -> Result<Option<Polled>, Fault> {
        loop {
            if self.open.is_none() {
                let Some(entry) = self.manifest.at(self.position) else { return Ok(None) };
                let path = self.manifest.path(entry);
                self.open = Some((Reader::open(self.format, &path, entry, self.position)?, entry.taken));
            }
            let Some((reader, taken)) = &mut self.open else { return Ok(None) };
            let (from, taken) = (self.position, *taken);
            let payload = match reader.read(limit) {
                Ok(payload) => payload,
                Err(fault) => {
                    // What was read of it may be half of something: begin again at the position.
                    self.open = None;
                    return Err(fault);
                }
            };
            self.position = reader.position();
            if reader.is_done() {
                self.open = None;
            }
            if self.position > from {
                let range = OffsetRange { partition: 0, from, to: self.position };
                return Ok(Some(Polled { range, payload, taken }));
            }
        }
    }
}

impl Source for Files {
    fn poll(&mut self, now: Time, limit: PollLimit, _wait: Duration) -> Result<Option<Polled>, Fault> {
        if let Some(chunk) = self.next_chunk(limit)? {
            self.at_end = false;
            return Ok(Some(chunk));
        }
        for file in self.folder.settled(now, &self.manifest)? {
            if self.manifest.take(&file, now, self.format)?
                && let Some(chunk) = self.next_chunk(limit)?
            {
                self.at_end = false;
                return Ok(Some(chunk));
            }
        }
        self.at_end = true;
        Ok(None)
    }

    fn at_end(&self) -> bool {
        self.at_end
    }

    fn release(&mut self, upto: &Offsets) -> Result<(), Fault> {
        self.manifest.release(upto.get(0))
    }
}

/// A fault of the folder that is read.
fn outside(path: &std::path::Path, doing: &str, e: &std::io::Error) -> Fault {
    Fault::external(FaultKind::Source, format_args!("{doing}: {e}")).file(path.display())
}

/// A fault of the host's own folder.
fn inside(path: &std::path::Path, doing: &str, e: &std::io::Error) -> Fault {
    let kind = if e.kind() == std::io::ErrorKind::StorageFull { FaultKind::Disk } else { FaultKind::Source };
    Fault::host(kind, format_args!("{doing}: {e}")).file(path.display())
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
