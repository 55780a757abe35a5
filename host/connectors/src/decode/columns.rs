//! Columns of a parquet file as rows of a stream.

use std::collections::BTreeMap;

use arrow_array::{Array, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_cast::display::array_value_to_string;
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use weir_model::Fault;
use weir_model::rows::fit;
use weir_model::stream::{Column, DeadLetter};

use super::{RAW_BYTES, RECORD_BYTES, Sorted};

pub(super) fn fitted(
    rows: &RecordBatch,
    offsets: Vec<u64>,
    partition: u32,
    columns: &[Column],
    schema: &SchemaRef,
) -> Result<Sorted, Fault> {
    let count = rows.num_rows();
    // The first reason of each row that cannot be used.
    let mut bad: BTreeMap<usize, String> = BTreeMap::new();
    for row in (0..count).filter(|row| row_bytes(rows, *row) > RECORD_BYTES) {
        bad.insert(row, format!("the record is longer than {RECORD_BYTES} bytes"));
    }
    let mut values = Vec::with_capacity(columns.len());
    for column in columns {
        match fit(column, rows.column_by_name(&column.name), count) {
            Ok(fitted) => {
                for (row, reason) in fitted.bad {
                    bad.entry(row).or_insert(reason);
                }
                values.push(fitted.values);
            }
            Err(reason) => {
                (0..count).for_each(|row| {
                    bad.entry(row).or_insert_with(|| reason.clone());
                });
                values.push(new_null_array(&column.ty.arrow(), count));
            }
        }
    }
    let dead = bad
        .iter()
        .map(|(row, reason)| DeadLetter {
            partition,
            offset: offsets[*row],
            reason: reason.clone(),
            raw: raw(rows, *row),
        })
        .collect();
    let good = BooleanArray::from((0..count).map(|row| !bad.contains_key(&row)).collect::<Vec<_>>());
    // Nulls of bad rows are taken out before the schema, which may forbid them, is put on.
    let loose: Vec<_> = schema.fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
    let loose = std::sync::Arc::new(arrow_schema::Schema::new(loose));
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    let all = RecordBatch::try_new_with_options(loose, values, &options).map_err(Fault::internal)?;
    let kept = filter_record_batch(&all, &good).map_err(Fault::internal)?;
    let options = RecordBatchOptions::new().with_row_count(Some(kept.num_rows()));
    let rows = RecordBatch::try_new_with_options(schema.clone(), kept.columns().to_vec(), &options)
        .map_err(Fault::internal)?;
    let offsets = offsets.into_iter().enumerate().filter(|(row, _)| !bad.contains_key(row)).map(|(_, o)| o).collect();
    Ok(Sorted { rows, offsets, dead })
}

/// Bytes of a row's texts and bytes, which are views after reading.
fn row_bytes(rows: &RecordBatch, row: usize) -> usize {
    rows.columns().iter().map(|values| crate::files::cell_bytes(values, row)).sum()
}

/// A row as a JSON object of texts, cut.
fn raw(rows: &RecordBatch, row: usize) -> String {
    let mut object = serde_json::Map::new();
    let mut left = RAW_BYTES;
    for (field, values) in rows.schema_ref().fields().iter().zip(rows.columns()) {
        let value = if values.is_null(row) {
            serde_json::Value::Null
        } else {
            let text = array_value_to_string(values, row).unwrap_or_default();
            let text: String = text.chars().take(left / 4).collect();
            left = left.saturating_sub(text.len());
            serde_json::Value::String(text)
        };
        object.insert(field.name().clone(), value);
    }
    serde_json::Value::Object(object).to_string()
}
