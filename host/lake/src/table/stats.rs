//! Statistics of a file as the log holds them: what readers skip files by. Bounds are left out where they could be wrong.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{ArrowError, DataType};
use chrono::{DateTime, NaiveDate, TimeDelta};
use datafusion::arrow::compute::{max, max_string, min, min_string};
use serde_json::{Map, Number, Value};

/// Longer texts have no bounds.
const TEXT: usize = 64;

/// Bounds of one column of one batch, or of all.
type Bounds = Option<(Value, Value)>;

pub(crate) fn stats(batches: &[RecordBatch]) -> Result<String, ArrowError> {
    let mut min_values = Map::new();
    let mut max_values = Map::new();
    let mut null_count = Map::new();
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let fields = batches.first().map(|b| b.schema_ref().fields().clone());
    for (i, field) in fields.iter().flat_map(|f| f.iter()).enumerate() {
        let columns = batches.iter().map(|b| b.column(i));
        let nulls: usize = columns.clone().map(|c| c.null_count()).sum();
        null_count.insert(field.name().clone(), nulls.into());
        // Raw bounds are compared over all batches first, and written in the log's form after that.
        if let Some((low, high)) = whole_bounds(columns) {
            min_values.insert(field.name().clone(), low);
            max_values.insert(field.name().clone(), high);
        }
    }
    let all = serde_json::json!({
        "numRecords": rows,
        "minValues": min_values,
        "maxValues": max_values,
        "nullCount": null_count,
    });
    Ok(all.to_string())
}

fn whole_bounds<'a>(columns: impl Iterator<Item = &'a arrow_array::ArrayRef> + Clone) -> Bounds {
    let ty = columns.clone().next()?.data_type().clone();
    match ty {
        DataType::Int8 => ints::<Int8Type>(columns),
        DataType::Int16 => ints::<Int16Type>(columns),
        DataType::Int32 => ints::<Int32Type>(columns),
        DataType::Int64 => ints::<Int64Type>(columns),
        DataType::Float32 => floats::<Float32Type>(columns),
        DataType::Float64 => floats::<Float64Type>(columns),
        DataType::Date32 => {
            let (low, high) = range::<Date32Type>(columns)?;
            Some((day(low)?, day(high)?))
        }
        DataType::Timestamp(..) => {
            let (low, high) = range::<TimestampMicrosecondType>(columns)?;
            // The log holds milliseconds; a bound may be further out, never further in.
            let ceiling = high.checked_add(999)?;
            Some((millisecond(low)?, millisecond(ceiling)?))
        }
        DataType::Utf8 => texts(columns),
        _ => None,
    }
}

fn range<'a, T: ArrowPrimitiveType>(
    columns: impl Iterator<Item = &'a arrow_array::ArrayRef>,
) -> Option<(T::Native, T::Native)>
where
    T::Native: PartialOrd,
{
    let mut all: Option<(T::Native, T::Native)> = None;
    for column in columns {
        let column = column.as_primitive_opt::<T>()?;
        let (Some(low), Some(high)) = (min(column), max(column)) else {
            continue;
        };
        all = Some(match all {
            None => (low, high),
            Some((l, h)) => (if low < l { low } else { l }, if high > h { high } else { h }),
        });
    }
    all
}

fn ints<'a, T: ArrowPrimitiveType>(columns: impl Iterator<Item = &'a arrow_array::ArrayRef>) -> Bounds
where
    T::Native: PartialOrd + Into<i64>,
{
    let (low, high) = range::<T>(columns)?;
    Some((Value::from(low.into()), Value::from(high.into())))
}

fn floats<'a, T: ArrowPrimitiveType>(columns: impl Iterator<Item = &'a arrow_array::ArrayRef> + Clone) -> Bounds
where
    T::Native: PartialOrd + Into<f64>,
{
    let finite = columns
        .clone()
        .all(|column| column.as_primitive_opt::<T>().is_some_and(|c| c.iter().flatten().all(|v| v.into().is_finite())));
    if !finite {
        return None;
    }
    let (low, high) = range::<T>(columns)?;
    let number = |v: T::Native| Number::from_f64(v.into()).map(Value::Number);
    Some((number(low)?, number(high)?))
}

fn texts<'a>(columns: impl Iterator<Item = &'a arrow_array::ArrayRef>) -> Bounds {
    let mut all: Option<(&str, &str)> = None;
    for column in columns {
        let column = column.as_string_opt::<i32>()?;
        let (Some(low), Some(high)) = (min_string(column), max_string(column)) else {
            continue;
        };
        all = Some(all.map_or((low, high), |(l, h)| (l.min(low), h.max(high))));
    }
    let (low, high) = all?;
    (low.len() <= TEXT && high.len() <= TEXT).then(|| (low.into(), high.into()))
}

fn day(days: i32) -> Option<Value> {
    let day = NaiveDate::default().checked_add_signed(TimeDelta::days(days.into()))?;
    Some(day.format("%Y-%m-%d").to_string().into())
}

fn millisecond(micros: i64) -> Option<Value> {
    let time = DateTime::from_timestamp_micros(micros)?;
    Some(time.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string().into())
}
