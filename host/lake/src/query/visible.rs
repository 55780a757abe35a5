//! Which rows of a stream a batch sees. Pure: the pins, the hot chunks and what was read of bronze decide.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_ord::sort::{SortColumn, lexsort_to_indices};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use arrow_select::take::take_record_batch;
use weir_model::port::PinnedStream;
use weir_model::stream::{Chunk, OFFSET, PARTITION};
use weir_model::{Fault, Time};

use super::scan::Piece;
use crate::normalise::adapt;

/// Event times `[from, to)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period {
    pub from: Time,
    pub to: Option<Time>,
}

impl Period {
    /// A query's own bounds where it has them, else everything from the pin's floor on.
    pub fn of(pinned: &PinnedStream, bounds: Option<(Time, Time)>) -> Self {
        let asked = match bounds {
            Some((from, to)) => Self { from, to: Some(to) },
            None => Self { from: pinned.floor, to: None },
        };
        match pinned.only {
            Some(only) => {
                Self { from: asked.from.max(only.from), to: Some(asked.to.map_or(only.to, |to| to.min(only.to))) }
            }
            None => asked,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.to.is_some_and(|to| to <= self.from)
    }

    /// The part that only bronze holds.
    pub fn below_hot(&self, pinned: &PinnedStream) -> Option<Self> {
        if self.is_empty() || self.from >= pinned.complete_from {
            return None;
        }
        let to = self.to.map_or(pinned.complete_from, |to| to.min(pinned.complete_from));
        Some(Self { from: self.from, to: Some(to) })
    }

    /// The part that the hot chunks hold.
    pub fn hot(&self, pinned: &PinnedStream) -> Self {
        Self { from: self.from.max(pinned.complete_from), to: self.to }
    }

    fn holds(&self, time: i64) -> bool {
        time >= self.from.micros() && self.to.is_none_or(|to| time < to.micros())
    }
}

/// The hot rows of a period, in (partition, offset) order. `schema` is what the query was planned for.
pub(crate) fn hot(
    pinned: &PinnedStream,
    schema: &SchemaRef,
    event_time: &str,
    period: Period,
) -> Result<Vec<Piece>, Fault> {
    let mut pieces = Vec::new();
    if period.is_empty() {
        return Ok(pieces);
    }
    for chunk in &pinned.chunks {
        let late = period.to.is_some_and(|to| chunk.min_time >= to);
        if chunk.rows.num_rows() == 0 || chunk.max_time < period.from || late {
            continue;
        }
        let rows = pinned_rows(pinned, chunk)?;
        if rows.num_rows() == 0 {
            continue;
        }
        let batch = adapt(&rows, schema, &format!("stream {}", pinned.stream))?;
        let inside = chunk.min_time >= period.from && period.to.is_none_or(|to| chunk.max_time < to);
        let keep = if inside { None } else { Some(in_period(&batch, event_time, period)?) };
        if keep.as_ref().is_none_or(|k| k.true_count() > 0) {
            pieces.push(Piece { batch, keep });
        }
    }
    Ok(pieces)
}

/// The rows of a chunk inside of the pin's offsets.
fn pinned_rows(pinned: &PinnedStream, chunk: &Chunk) -> Result<RecordBatch, Fault> {
    let from = pinned.from.get(chunk.range.partition);
    let upto = pinned.upto.get(chunk.range.partition);
    if chunk.range.from >= from && chunk.range.to <= upto {
        return Ok(chunk.rows.clone());
    }
    let offsets = chunk
        .rows
        .column_by_name(OFFSET)
        .and_then(|c| c.as_primitive_opt::<Int64Type>())
        .ok_or_else(|| Fault::internal("a chunk has no offsets"))?;
    let below = |limit: u64| offsets.values().partition_point(|o| u64::try_from(*o).unwrap_or(0) < limit);
    let (start, end) = (below(from), below(upto));
    Ok(chunk.rows.slice(start, end.saturating_sub(start)))
}

fn in_period(batch: &RecordBatch, event_time: &str, period: Period) -> Result<BooleanArray, Fault> {
    let times = batch
        .column_by_name(event_time)
        .and_then(|c| c.as_primitive_opt::<TimestampMicrosecondType>())
        .ok_or_else(|| Fault::internal(format_args!("rows without event time {event_time}")))?;
    let values = times.values();
    let keep = BooleanBuffer::collect_bool(values.len(), |i| period.holds(values[i]));
    Ok(BooleanArray::new(keep, times.nulls().cloned()))
}

/// Hot and bronze rows as one piece in (partition, offset) order, with the columns of `schema`.
pub(crate) fn merge(schema: &SchemaRef, bronze: Vec<RecordBatch>, hot: Vec<Piece>) -> Result<Vec<Piece>, Fault> {
    if bronze.iter().all(|b| b.num_rows() == 0) {
        return Ok(hot);
    }
    let merged = merge_rows(schema, bronze, hot).map_err(Fault::internal)?;
    Ok(vec![Piece { batch: merged, keep: None }])
}

fn merge_rows(schema: &SchemaRef, bronze: Vec<RecordBatch>, hot: Vec<Piece>) -> Result<RecordBatch, ArrowError> {
    let columns: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    let mut batches = bronze;
    for piece in hot {
        let rows = select(&piece.batch, &columns)?;
        batches.push(match &piece.keep {
            Some(keep) => filter_record_batch(&rows, keep)?,
            None => rows,
        });
    }
    let all = concat_batches(schema, &batches)?;
    in_order(&all)
}

fn select(batch: &RecordBatch, columns: &[&str]) -> Result<RecordBatch, ArrowError> {
    let indices = columns.iter().map(|name| batch.schema_ref().index_of(name)).collect::<Result<Vec<_>, _>>()?;
    batch.project(&indices)
}

/// Sorted by (partition, offset).
pub(crate) fn in_order(rows: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let keys = [PARTITION, OFFSET]
        .iter()
        .map(|name| {
            let values = rows.column(rows.schema_ref().index_of(name)?).clone();
            Ok(SortColumn { values, options: None })
        })
        .collect::<Result<Vec<_>, ArrowError>>()?;
    take_record_batch(rows, &lexsort_to_indices(&keys, None)?)
}

/// All pieces as one batch.
pub(crate) fn one_batch(schema: &SchemaRef, pieces: Vec<Piece>) -> Result<RecordBatch, ArrowError> {
    let batches = pieces
        .into_iter()
        .map(|piece| match &piece.keep {
            Some(keep) => filter_record_batch(&piece.batch, keep),
            None => Ok(piece.batch),
        })
        .collect::<Result<Vec<_>, _>>()?;
    concat_batches(schema, &batches)
}

/// The columns that a read of bronze must bring: those that the plan reads, and the position.
pub(crate) fn columns_read(schema: &SchemaRef, read: &[usize]) -> SchemaRef {
    let mut columns: Vec<usize> = read.to_vec();
    for name in [PARTITION, OFFSET] {
        if let Ok(index) = schema.index_of(name)
            && !columns.contains(&index)
        {
            columns.push(index);
        }
    }
    columns.sort_unstable();
    schema.project(&columns).map_or_else(|_| schema.clone(), Arc::new)
}
