//! Parquet, which has types of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::parquet::errors::ParquetError;
use weir_model::rows::fit;
use weir_model::stream::Columns;

use super::gather::Gather;
use crate::normalise::{cast_batch, plain_schema, with_rows};
use crate::query::BATCH_ROWS;

pub(super) fn read(
    bytes: &Arc<[u8]>,
    columns: Option<&Columns>,
    gather: &mut Gather<'_>,
) -> Result<(SchemaRef, Vec<RecordBatch>), ()> {
    let file = Bytes::from_owner(bytes.clone());
    // The reader is not written for files that mean harm: what it panics about is a file that cannot be read.
    let read = catch_unwind(AssertUnwindSafe(|| read_inner(file, columns, gather)));
    match read {
        Ok(Ok(Some(table))) if gather.is_good() => return Ok(table),
        Ok(Ok(_)) => {}
        Ok(Err(e)) => refuse(gather, &e.to_string()),
        Err(_) => refuse(gather, "its pages are damaged"),
    }
    Err(())
}

fn refuse(gather: &mut Gather<'_>, why: &str) {
    let why = why.split_once(": ").map_or(why, |(_, text)| text);
    gather.problem(0, "", &format!("it cannot be read as Parquet: {why}"), "write it anew");
}

fn read_inner(
    file: Bytes,
    columns: Option<&Columns>,
    gather: &mut Gather<'_>,
) -> Result<Option<(SchemaRef, Vec<RecordBatch>)>, ParquetError> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)?;
    // What the file says of itself, before anything is unpacked.
    let unpacked: i64 = builder.metadata().row_groups().iter().map(|g| g.total_byte_size().max(0)).sum();
    if !gather.fits(usize::try_from(unpacked).unwrap_or(usize::MAX)) {
        return Ok(None);
    }
    let own = plain_schema(builder.schema());
    let schema = match columns {
        Some(columns) => {
            for column in columns.0.iter().filter(|c| own.index_of(&c.name).is_err()) {
                let names: Vec<&str> = own.fields().iter().map(|f| f.name().as_str()).collect();
                let message = format!("the file has no such column; it has {}", names.join(", "));
                gather.problem(0, &column.name, &message, "write it as in the file, or take it out of the schema");
            }
            columns.schema()
        }
        None => own.clone(),
    };
    if !gather.is_good() {
        return Ok(None);
    }
    let mut batches = Vec::new();
    let mut row = 0;
    for batch in builder.with_batch_size(BATCH_ROWS).build()? {
        let batch = batch?;
        let batch = match columns {
            Some(columns) => match fitted(&batch, columns, &schema, row, gather) {
                Some(batch) => batch,
                None => continue,
            },
            None => cast_batch(&batch, &own)?,
        };
        row += batch.num_rows();
        if !gather.take(batch.get_array_memory_size()) {
            return Ok(None);
        }
        batches.push(batch);
    }
    Ok(Some((schema, batches)))
}

fn fitted(
    batch: &RecordBatch,
    columns: &Columns,
    schema: &SchemaRef,
    before: usize,
    gather: &mut Gather<'_>,
) -> Option<RecordBatch> {
    let mut values = Vec::new();
    for column in &columns.0 {
        match fit(column, batch.column_by_name(&column.name), batch.num_rows()) {
            Ok(fitted) => {
                for (row, reason) in &fitted.bad {
                    let reason = reason.strip_prefix(&format!("column {}: ", column.name)).unwrap_or(reason);
                    let reason = format!("row {}: {reason}", before + row + 1);
                    gather.problem(0, &column.name, &reason, "correct the value, or the type in the schema");
                }
                values.push(fitted.values);
            }
            Err(reason) => {
                gather.problem(0, &column.name, &reason, "correct the type in the schema");
            }
        }
    }
    if !gather.is_good() {
        return None;
    }
    match with_rows(schema.clone(), values, batch.num_rows()) {
        Ok(batch) => Some(batch),
        Err(e) => {
            gather.problem(0, "", &e.to_string(), "");
            None
        }
    }
}
