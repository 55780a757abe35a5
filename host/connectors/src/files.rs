//! Files of a folder, each read once.
//!
//! A file is taken when it has settled (or has a `NAME.done` beside it): its bytes are copied into the spool and its entry
//! goes to the stream's journal, before any of its rows is given out. A row's offset is its ordinal over all entries, so the
//! source can be read again from the spool whatever became of the file, until the rows are released. A file that has grown
//! since gives only what was appended; one whose old bytes changed is read again as a whole, with a warning.

mod folder;
mod lines;
mod manifest;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weir_model::port::{Journal, Payload, PollLimit, Polled, Source};
use weir_model::{Fault, FaultKind, FaultPoints, OffsetRange, Offsets, Time};

use folder::Folder;
use lines::Lines;
use manifest::Manifest;

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
}

/// A `files` source.
pub struct Files {
    folder: Folder,
    manifest: Manifest,
    position: u64,
    open: Option<Lines>,
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
        Ok(Self { folder, manifest, position, open: None, at_end: false })
    }

    fn next_chunk(&mut self, limit: PollLimit) -> Result<Option<Polled>, Fault> {
        loop {
            if self.open.is_none() {
                let Some(entry) = self.manifest.at(self.position) else { return Ok(None) };
                self.open = Some(Lines::open(&self.manifest.path(entry), entry.first, entry.rows, self.position)?);
            }
            let Some(lines) = &mut self.open else { return Ok(None) };
            let from = self.position;
            let records = lines.read(limit)?;
            self.position = lines.position();
            if lines.is_done() {
                self.open = None;
            }
            if self.position > from {
                let range = OffsetRange { partition: 0, from, to: self.position };
                return Ok(Some(Polled { range, payload: Payload::Records(records) }));
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
            if self.manifest.take(&file)?
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
