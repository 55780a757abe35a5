//! History for the examples: rows as a source would have delivered them, made minute by minute. Pure: no I/O, no engine;
//! the caller puts the rows where they belong.
//!
//! The rows of a minute are a function of (stream, minute, seed) alone. So a month that is made in days, in two runs or on
//! another machine is the same month, and memory is bounded by the part that is asked for.

mod dice;
mod network_cep;
mod sheet;

use arrow_array::{Int32Array, Int64Array, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use weir_model::stream::{OFFSET, PARTITION, StreamDef, TICK_ROWS};
use weir_model::{Fault, FaultKind, Time};

pub use network_cep::Stream;

/// Microseconds of a minute.
pub const MINUTE: i64 = 60_000_000;

/// Rows of some minutes of one stream, in order of event time.
#[derive(Debug, Clone)]
pub struct Part {
    /// The rows, in the stream's own columns.
    pub rows: RecordBatch,
    /// How many rows each minute has.
    pub per_minute: Vec<usize>,
}

impl Part {
    /// The rows as the stream's window and bronze table have them, `first` being the number of the first minute here since
    /// the beginning of the history: a minute is one tick, so row i of minute k has the offset `k * TICK_ROWS + i`, and a
    /// `generate` source goes on after them. Columns are taken by name; one that the definition adds must not be
    /// required and is null.
    pub fn positioned(&self, def: &StreamDef, first: u64) -> Result<RecordBatch, Fault> {
        let own = fit(&self.rows, &def.schema())?;
        let mut columns = own.columns().to_vec();
        let mut offsets = Vec::with_capacity(own.num_rows());
        for (minute, rows) in (first..).zip(&self.per_minute) {
            let base = i64::try_from(minute * TICK_ROWS).map_err(Fault::internal)?;
            offsets.extend((0i64..).take(*rows).map(|i| base + i));
        }
        columns.push(std::sync::Arc::new(Int32Array::from(vec![0; offsets.len()])));
        columns.push(std::sync::Arc::new(Int64Array::from(offsets)));
        RecordBatch::try_new(def.positioned_schema(), columns).map_err(Fault::internal)
    }

    /// The rows as JSON, an object a line; times as RFC 3339, nulls left out.
    pub fn json_lines(&self) -> Result<Vec<u8>, Fault> {
        let mut writer = arrow_json::LineDelimitedWriter::new(Vec::new());
        writer.write(&self.rows).and_then(|()| writer.finish()).map_err(Fault::internal)?;
        Ok(writer.into_inner())
    }

    /// Where the stream is after the minute with this number.
    pub fn end(last: u64) -> u64 {
        (last + 1) * TICK_ROWS
    }
}

fn fit(rows: &RecordBatch, wanted: &SchemaRef) -> Result<RecordBatch, Fault> {
    let columns = wanted.fields().iter().map(|field| match rows.column_by_name(field.name()) {
        Some(column) if column.data_type() == field.data_type() => Ok(column.clone()),
        None if field.is_nullable() && ![PARTITION, OFFSET].contains(&field.name().as_str()) => {
            Ok(arrow_array::new_null_array(field.data_type(), rows.num_rows()))
        }
        found => Err(Fault::tenant(
            FaultKind::Config,
            match found {
                Some(column) => format!(
                    "column {} is {} in the stream's definition and {} in the generated rows",
                    field.name(),
                    field.data_type(),
                    column.data_type()
                ),
                None => format!("column {} is required, and the generated rows do not have it", field.name()),
            },
        )
        .field(format_args!("schema.{}", field.name()))
        .fix("define the stream as examples/network-cep does")),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let fields = wanted.fields().clone();
    RecordBatch::try_new(std::sync::Arc::new(Schema::new(fields)), columns).map_err(|e| {
        Fault::tenant(FaultKind::Config, e)
            .field("schema")
            .fix("the generated rows have nulls where the stream's definition allows none")
    })
}

/// The whole minutes of `[from, to)`: the first and the end, both at a full minute.
pub fn minutes(from: Time, to: Time) -> Result<(Time, Time), Fault> {
    let wrong = |what: &str| Fault::tenant(FaultKind::Config, what);
    if from.micros() % MINUTE != 0 || to.micros() % MINUTE != 0 {
        return Err(wrong("history is made in whole minutes").fix("let --from and --to be full minutes"));
    }
    if to <= from {
        return Err(wrong("the end is not after the beginning").field("--to").fix("--from comes first"));
    }
    Ok((from, to))
}

#[cfg(test)]
mod tests;
