//! The rows of a spooled parquet file, in bounded reads.
//!
//! A file is read once from end to end before it is taken: one that is damaged anywhere is refused as a whole, so that its
//! rows are the same whenever and in whatever pieces they are read again.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use weir_model::Fault;
use weir_model::port::{Payload, PollLimit};

use super::inside;

/// Rows that are unpacked at once. Their texts are views into the file's pages, so that a page that holds a long text once
/// does not become as many copies.
const ROWS: usize = 1_024;
/// A row group that unpacks to more is refused.
const GROUP_BYTES: i64 = 1 << 29;

/// A spooled file that is being read. Rows are numbered from `first`.
pub struct ParquetRows {
    path: PathBuf,
    reader: ParquetRecordBatchReader,
    position: u64,
    end: u64,
    /// What was unpacked and not given out.
    rest: Option<RecordBatch>,
}

impl ParquetRows {
    /// Opens it so that the next row is row `position`.
    pub fn open(path: &Path, first: u64, rows: u64, position: u64) -> Result<Self, Fault> {
        let skip = usize::try_from(position.saturating_sub(first)).unwrap_or(usize::MAX);
        let reader = guarded(|| reader(path, skip)).map_err(|why| damaged(path, &why))?;
        Ok(Self { path: path.to_owned(), reader, position: position.max(first), end: first + rows, rest: None })
    }

    /// Number of its rows, after reading all of them; or why it cannot be used.
    pub fn count(path: &Path) -> Result<u64, String> {
        guarded(|| {
            let mut rows = 0;
            for batch in reader(path, 0)? {
                let batch = batch.map_err(|e| e.to_string())?;
                rows += batch.num_rows() as u64;
            }
            Ok(rows)
        })
    }

    /// The row that comes next.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether all rows were read.
    pub fn is_done(&self) -> bool {
        self.position >= self.end
    }

    /// The next rows.
    pub fn read(&mut self, limit: PollLimit) -> Result<Payload, Fault> {
        let batch = match self.rest.take() {
            Some(batch) => batch,
            None => {
                let reader = &mut self.reader;
                let next = guarded(|| reader.next().transpose().map_err(|e| e.to_string()));
                let next = next.map_err(|why| damaged(&self.path, &why))?;
                next.filter(|b| b.num_rows() > 0)
                    .ok_or_else(|| damaged(&self.path, "it has fewer rows than when it was taken"))?
            }
        };
        let most = limit.rows.clamp(1, batch.num_rows());
        let (mut rows, mut bytes) = (0, 0);
        while rows < most && (rows == 0 || bytes < limit.bytes) {
            bytes += batch.columns().iter().map(|c| cell_bytes(c, rows)).sum::<usize>();
            rows += 1;
        }
        if rows < batch.num_rows() {
            self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        let offsets = (self.position..self.position + rows as u64).collect();
        self.position += rows as u64;
        Ok(Payload::Columns { rows: batch.slice(0, rows), offsets })
    }
}

/// About how many bytes one value takes.
pub fn cell_bytes(values: &ArrayRef, row: usize) -> usize {
    match values.data_type() {
        _ if values.is_null(row) => 1,
        DataType::Utf8View => values.as_string_view().value(row).len(),
        DataType::BinaryView => values.as_binary_view().value(row).len(),
        ty => ty.primitive_width().unwrap_or(1),
    }
}

fn reader(path: &Path, skip: usize) -> Result<ParquetRecordBatchReader, String> {
    let text = |e: parquet::errors::ParquetError| {
        let text = e.to_string();
        text.split_once(": ").map_or_else(|| text.clone(), |(_, rest)| rest.to_owned())
    };
    let file = || File::open(path).map_err(|e| e.to_string());
    let known = ParquetRecordBatchReaderBuilder::try_new(file()?).map_err(text)?;
    let groups = known.metadata().row_groups();
    if let Some(large) = groups.iter().map(|g| g.total_byte_size()).find(|bytes| *bytes > GROUP_BYTES) {
        return Err(format!("a row group of it unpacks to {large} bytes, and {GROUP_BYTES} are allowed"));
    }
    let options = ArrowReaderOptions::new().with_schema(as_views(known.schema()));
    let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file()?, options).map_err(text)?;
    builder.with_batch_size(ROWS).with_offset(skip).build().map_err(text)
}

/// The schema with texts and bytes as views.
fn as_views(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let ty = match field.data_type() {
            DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
            DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
            other => other.clone(),
        };
        field.as_ref().clone().with_data_type(ty)
    });
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<Field>>(), schema.metadata().clone()))
}

/// The reader is not written for files that mean harm: what it panics about is a file that cannot be read.
fn guarded<T>(read: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err("its pages are damaged".to_owned()))
}

/// The copy in the spool was good when it was taken.
fn damaged(path: &Path, why: &str) -> Fault {
    inside(path, "the spool cannot be read", &std::io::Error::other(why.to_owned()))
}
