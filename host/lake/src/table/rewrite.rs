//! Reads files of rows and writes others, a few thousand rows at a time.

use std::fs::File;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use datafusion::parquet::errors::ParquetError;
use weir_model::{Fault, FaultKind};

use super::entry::{new_name, now_millis, properties};
use super::files::LiveFile;
use super::folder::Folder;
use super::stats::Stats;
use crate::normalise::adapt;

/// Rows in memory at a time.
const ROWS: usize = 8192;

/// The rows of one file, in the table's schema.
pub(crate) struct FileRows<'a> {
    folder: &'a Folder,
    schema: &'a SchemaRef,
    path: &'a str,
    reader: ParquetRecordBatchReader,
}

impl<'a> FileRows<'a> {
    pub fn open(folder: &'a Folder, schema: &'a SchemaRef, file: &'a LiveFile) -> Result<Self, Fault> {
        let path = file.path.as_str();
        let opened = folder.open_rows(path)?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(opened)
            .and_then(|builder| builder.with_batch_size(ROWS).build())
            .map_err(|e| unreadable(folder, path, &e))?;
        Ok(Self { folder, schema, path, reader })
    }
}

impl Iterator for FileRows<'_> {
    type Item = Result<RecordBatch, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.reader.next()?;
        let what = || format!("table {}", self.folder.name);
        Some(match batch {
            Ok(batch) => adapt(&batch, self.schema, &what()).map_err(|f| Fault { kind: FaultKind::Sink, ..f }),
            Err(e) => Err(unreadable(self.folder, self.path, &e)),
        })
    }
}

fn unreadable(folder: &Folder, path: &str, error: &dyn std::fmt::Display) -> Fault {
    Fault::external(FaultKind::Sink, format_args!("file {path} of the table cannot be read: {error}"))
        .file(&folder.name)
}

/// Writes rows to new files of about the wanted size, which no log entry names yet.
pub(crate) struct RowWriter<'a> {
    folder: &'a Folder,
    schema: &'a SchemaRef,
    /// Bytes of a file after which the next one begins.
    target: u64,
    open: Option<(String, ArrowWriter<File>, Stats)>,
    done: Vec<LiveFile>,
}

impl<'a> RowWriter<'a> {
    pub fn new(folder: &'a Folder, schema: &'a SchemaRef, target: u64) -> Self {
        Self { folder, schema, target, open: None, done: Vec::new() }
    }

    /// Writes rows, all in the table's schema.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), Fault> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let (name, mut writer, mut stats) = match self.open.take() {
            Some(open) => open,
            None => {
                let name = new_name();
                let file = self.folder.new_rows(&name)?;
                match ArrowWriter::try_new(file, self.schema.clone(), Some(properties())) {
                    Ok(writer) => (name, writer, Stats::new(self.schema.clone())),
                    Err(e) => return Err(self.failed(&name, e)),
                }
            }
        };
        stats.add(batch);
        if let Err(e) = writer.write(batch) {
            return Err(self.failed(&name, e));
        }
        let bytes = u64::try_from(writer.bytes_written() + writer.in_progress_size()).unwrap_or(u64::MAX);
        self.open = Some((name, writer, stats));
        if bytes >= self.target { self.end_file() } else { Ok(()) }
    }

    /// The files, synced with their folder.
    pub fn finish(mut self) -> Result<Vec<LiveFile>, Fault> {
        self.end_file()?;
        let files = std::mem::take(&mut self.done);
        let paths: Vec<_> = files.iter().map(|f| std::path::PathBuf::from(&f.path)).collect();
        if !paths.is_empty()
            && let Err(fault) = self.folder.sync_files(&paths)
        {
            discard(self.folder, &files);
            return Err(fault);
        }
        Ok(files)
    }

    fn end_file(&mut self) -> Result<(), Fault> {
        let Some((path, mut writer, stats)) = self.open.take() else { return Ok(()) };
        if let Err(e) = writer.finish() {
            return Err(self.failed(&path, e));
        }
        let size = u64::try_from(writer.bytes_written()).unwrap_or(u64::MAX);
        let stats = Some(stats.text().into_boxed_str());
        self.done.push(LiveFile { path, size, modified: now_millis(), stats });
        Ok(())
    }

    fn failed(&self, name: &str, error: ParquetError) -> Fault {
        self.folder.remove_rows(name);
        match error {
            ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
                Ok(io) => self.folder.fault("writing rows", &io),
                Err(other) => Fault::internal(other),
            },
            other => Fault::internal(other),
        }
    }
}

impl Drop for RowWriter<'_> {
    // Given up half-way: nobody will name these files.
    fn drop(&mut self) {
        if let Some((name, ..)) = self.open.take() {
            self.folder.remove_rows(&name);
        }
        discard(self.folder, &self.done);
    }
}

/// Takes files away that no log entry names. Best effort: they harm nobody.
pub(crate) fn discard(folder: &Folder, files: &[LiveFile]) {
    files.iter().for_each(|file| folder.remove_rows(&file.path));
}
