//! The bytes of an append: a Parquet file with the rows, its statistics, and the log entry that adds it.

use std::collections::HashMap;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties};
use deltalake::kernel::transaction::CommitData;
use deltalake::kernel::{Action, Add, Transaction};
use deltalake::protocol::{DeltaOperation, SaveMode};
use serde_json::json;
use uuid::Uuid;
use weir_model::Fault;

use super::stats::stats;

/// A file of rows.
#[derive(Debug)]
pub(crate) struct RowFile {
    /// Its name in the table's folder.
    pub name: String,
    pub bytes: Vec<u8>,
    /// Statistics as the log holds them.
    pub stats: String,
}

/// Encodes rows, all in `schema`. None when there are none.
pub(crate) fn encode(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Option<RowFile>, Fault> {
    if batches.iter().all(|b| b.num_rows() == 0) {
        return Ok(None);
    }
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_created_by("weir".to_owned())
        .build();
    let mut bytes = Vec::new();
    let written = ArrowWriter::try_new(&mut bytes, schema.clone(), Some(properties)).and_then(|mut writer| {
        for batch in batches {
            writer.write(batch)?;
        }
        writer.close()
    });
    written.map_err(Fault::internal)?;
    Ok(Some(RowFile {
        name: format!("part-00000-{}-c000.snappy.parquet", Uuid::new_v4()),
        bytes,
        stats: stats(batches).map_err(Fault::internal)?,
    }))
}

/// The log entry of an append: the file, and how far each app is.
pub(crate) fn entry(file: Option<&RowFile>, apps: &[(String, i64)]) -> Result<Vec<u8>, Fault> {
    // A file's modification time is what the log's readers expect; nothing of a batch depends on it.
    #[allow(clippy::disallowed_methods)]
    let now = chrono::Utc::now().timestamp_millis();
    let add = file.map(|file| {
        Action::Add(Add {
            path: file.name.clone(),
            size: i64::try_from(file.bytes.len()).unwrap_or(i64::MAX),
            modification_time: now,
            data_change: true,
            stats: Some(file.stats.clone()),
            ..Add::default()
        })
    });
    let operation = DeltaOperation::Write { mode: SaveMode::Append, partition_by: None, predicate: None };
    // No last_updated: a transaction version without one never expires, whatever the table's properties say.
    let apps = apps.iter().map(|(app, version)| Transaction::new(app, *version)).collect();
    let info = HashMap::from([("isBlindAppend".to_owned(), json!(true))]);
    let data = CommitData::new(add.into_iter().collect(), operation, info, apps);
    let bytes = data.get_bytes().map_err(Fault::internal)?;
    Ok(bytes.to_vec())
}
