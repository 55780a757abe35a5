//! The bytes of a change: a Parquet file with rows, its statistics, and the log entry that adds it or takes others away.

use std::collections::HashMap;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties};
use deltalake::kernel::transaction::CommitData;
use deltalake::kernel::{Action, Add, Remove, Transaction};
use deltalake::protocol::{DeltaOperation, SaveMode};
use serde_json::json;
use uuid::Uuid;
use weir_model::Fault;

use super::files::LiveFile;
use super::stats::Stats;

/// Rows of one row group: a reader skips whole groups.
const GROUP_ROWS: usize = 131_072;

/// A file of rows that is still in memory.
#[derive(Debug)]
pub(crate) struct RowFile {
    pub file: LiveFile,
    pub bytes: Vec<u8>,
}

/// Why a log entry is written.
#[derive(Debug, Clone)]
pub(crate) enum Reason {
    /// Rows were added.
    Append,
    /// Rows took the place of others, those of this predicate.
    Replace(String),
    /// The same rows stand in fewer files of about this many bytes.
    Compact(u64),
    /// Rows of this predicate were older than what is kept.
    Expire(String),
}

/// A name for a new file of rows.
pub(crate) fn new_name() -> String {
    format!("part-00000-{}-c000.snappy.parquet", Uuid::new_v4())
}

/// How files of rows are written.
pub(crate) fn properties() -> WriterProperties {
    WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_created_by("weir".to_owned())
        .build()
}

/// A file's modification time is what the log's readers expect; nothing of a batch depends on it.
#[allow(clippy::disallowed_methods)]
pub(crate) fn now_millis() -> i64 {
    chrono::Utc::now().timestamp_millis()
}

/// Encodes rows, all in `schema`. None when there are none.
pub(crate) fn encode(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Option<RowFile>, Fault> {
    if batches.iter().all(|b| b.num_rows() == 0) {
        return Ok(None);
    }
    let mut stats = Stats::new(schema.clone());
    let mut bytes = Vec::new();
    let written = ArrowWriter::try_new(&mut bytes, schema.clone(), Some(properties())).and_then(|mut writer| {
        for batch in batches {
            stats.add(batch);
            writer.write(batch)?;
        }
        writer.close()
    });
    written.map_err(Fault::internal)?;
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let stats = Some(stats.text().into_boxed_str());
    Ok(Some(RowFile { file: LiveFile { path: new_name(), size, modified: now_millis(), stats }, bytes }))
}

/// The log entry of a change: what it adds and takes away, and how far each app is.
pub(crate) fn entry(
    reason: &Reason,
    adds: &[LiveFile],
    removes: &[LiveFile],
    apps: &[(String, i64)],
) -> Result<Vec<u8>, Fault> {
    // The same rows in other files are no change to those who follow the table.
    let data_change = !matches!(reason, Reason::Compact(_));
    let now = now_millis();
    let size = |file: &LiveFile| i64::try_from(file.size).unwrap_or(i64::MAX);
    let removes = removes.iter().map(|file| {
        Action::Remove(Remove {
            path: file.path.clone(),
            data_change,
            deletion_timestamp: Some(now),
            extended_file_metadata: Some(true),
            partition_values: Some(HashMap::new()),
            size: Some(size(file)),
            ..Remove::default()
        })
    });
    let adds = adds.iter().map(|file| {
        Action::Add(Add {
            path: file.path.clone(),
            size: size(file),
            modification_time: file.modified,
            data_change,
            stats: file.stats.as_deref().map(str::to_owned),
            ..Add::default()
        })
    });
    let operation = match reason {
        Reason::Append => DeltaOperation::Write { mode: SaveMode::Append, partition_by: None, predicate: None },
        Reason::Replace(predicate) => {
            let predicate = Some(predicate.clone());
            DeltaOperation::Write { mode: SaveMode::Overwrite, partition_by: None, predicate }
        }
        Reason::Compact(target) => {
            DeltaOperation::Optimize { predicate: None, target_size: i64::try_from(*target).unwrap_or(i64::MAX) }
        }
        Reason::Expire(predicate) => DeltaOperation::Delete { predicate: Some(predicate.clone()) },
    };
    // No last_updated: a transaction version without one never expires, whatever the table's properties say.
    let apps = apps.iter().map(|(app, version)| Transaction::new(app, *version)).collect();
    let info = HashMap::from([("isBlindAppend".to_owned(), json!(matches!(reason, Reason::Append)))]);
    let data = CommitData::new(removes.chain(adds).collect(), operation, info, apps);
    let bytes = data.get_bytes().map_err(Fault::internal)?;
    Ok(bytes.to_vec())
}
