//! Statistics of a file as the log holds them: what readers skip files by. Bounds are left out where they could be wrong.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use chrono::{DateTime, NaiveDate, TimeDelta};
use datafusion::arrow::compute::{max, max_string, min, min_string};
use serde_json::{Map, Number, Value};

/// Longer texts have no bounds.
const TEXT: usize = 64;

/// Statistics of rows that come batch by batch, all in one schema.
#[derive(Debug)]
pub(crate) struct Stats {
    schema: SchemaRef,
    rows: usize,
    columns: Vec<(usize, Bounds)>,
}

/// Raw bounds are compared over all batches first, and written in the log's form after that.
#[derive(Debug, Clone)]
enum Bounds {
    /// No value yet.
    Empty,
    /// A value without an order that readers share, or a text that is too long.
    Unknown,
    Ints(i64, i64),
    Floats(f64, f64),
    Days(i32, i32),
    Micros(i64, i64),
    Texts(String, String),
}

impl Stats {
    pub fn new(schema: SchemaRef) -> Self {
        let columns = vec![(0, Bounds::Empty); schema.fields().len()];
        Self { schema, rows: 0, columns }
    }

    /// Takes rows into account.
    pub fn add(&mut self, batch: &RecordBatch) {
        self.rows += batch.num_rows();
        for ((nulls, bounds), column) in self.columns.iter_mut().zip(batch.columns()) {
            *nulls += column.null_count();
            let so_far = std::mem::replace(bounds, Bounds::Unknown);
            *bounds = so_far.with(Bounds::of(column));
        }
    }

    /// As the log holds them.
    pub fn text(&self) -> String {
        let mut min_values = Map::new();
        let mut max_values = Map::new();
        let mut null_count = Map::new();
        for (field, (nulls, bounds)) in self.schema.fields().iter().zip(&self.columns) {
            null_count.insert(field.name().clone(), (*nulls).into());
            if let Some((low, high)) = bounds.values() {
                min_values.insert(field.name().clone(), low);
                max_values.insert(field.name().clone(), high);
            }
        }
        let all = serde_json::json!({
            "numRecords": self.rows,
            "minValues": min_values,
            "maxValues": max_values,
            "nullCount": null_count,
        });
        all.to_string()
    }
}

impl Bounds {
    fn of(column: &ArrayRef) -> Self {
        match column.data_type() {
            DataType::Int8 => ints::<Int8Type>(column),
            DataType::Int16 => ints::<Int16Type>(column),
            DataType::Int32 => ints::<Int32Type>(column),
            DataType::Int64 => ints::<Int64Type>(column),
            DataType::Float32 => floats::<Float32Type>(column),
            DataType::Float64 => floats::<Float64Type>(column),
            DataType::Date32 => range::<Date32Type>(column).map_or(Self::Empty, |(l, h)| Self::Days(l, h)),
            DataType::Timestamp(..) => {
                range::<TimestampMicrosecondType>(column).map_or(Self::Empty, |(l, h)| Self::Micros(l, h))
            }
            DataType::Utf8 => texts(column),
            _ => Self::Unknown,
        }
    }

    fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Empty, bounds) | (bounds, Self::Empty) => bounds,
            (Self::Ints(a, b), Self::Ints(c, d)) => Self::Ints(a.min(c), b.max(d)),
            (Self::Floats(a, b), Self::Floats(c, d)) => Self::Floats(a.min(c), b.max(d)),
            (Self::Days(a, b), Self::Days(c, d)) => Self::Days(a.min(c), b.max(d)),
            (Self::Micros(a, b), Self::Micros(c, d)) => Self::Micros(a.min(c), b.max(d)),
            (Self::Texts(a, b), Self::Texts(c, d)) => Self::Texts(a.min(c), b.max(d)),
            _ => Self::Unknown,
        }
    }

    fn values(&self) -> Option<(Value, Value)> {
        Some(match self {
            Self::Empty | Self::Unknown => return None,
            Self::Ints(low, high) => ((*low).into(), (*high).into()),
            Self::Floats(low, high) => {
                (Value::Number(Number::from_f64(*low)?), Value::Number(Number::from_f64(*high)?))
            }
            Self::Days(low, high) => (day(*low)?, day(*high)?),
            // The log holds milliseconds; a bound may be further out, never further in.
            Self::Micros(low, high) => (millisecond(*low)?, millisecond(high.checked_add(999)?)?),
            Self::Texts(low, high) => (low.as_str().into(), high.as_str().into()),
        })
    }
}

fn range<T: ArrowPrimitiveType>(column: &ArrayRef) -> Option<(T::Native, T::Native)> {
    let column = column.as_primitive_opt::<T>()?;
    Some((min(column)?, max(column)?))
}

fn ints<T: ArrowPrimitiveType>(column: &ArrayRef) -> Bounds
where
    T::Native: Into<i64>,
{
    range::<T>(column).map_or(Bounds::Empty, |(low, high)| Bounds::Ints(low.into(), high.into()))
}

fn floats<T: ArrowPrimitiveType>(column: &ArrayRef) -> Bounds
where
    T::Native: Into<f64>,
{
    let finite = column.as_primitive_opt::<T>().is_some_and(|c| c.iter().flatten().all(|v| v.into().is_finite()));
    if !finite {
        return Bounds::Unknown;
    }
    range::<T>(column).map_or(Bounds::Empty, |(low, high)| Bounds::Floats(low.into(), high.into()))
}

fn texts(column: &ArrayRef) -> Bounds {
    let Some(column) = column.as_string_opt::<i32>() else {
        return Bounds::Unknown;
    };
    let (Some(low), Some(high)) = (min_string(column), max_string(column)) else {
        return Bounds::Empty;
    };
    if low.len() > TEXT || high.len() > TEXT {
        return Bounds::Unknown;
    }
    Bounds::Texts(low.to_owned(), high.to_owned())
}

fn day(days: i32) -> Option<Value> {
    let day = NaiveDate::default().checked_add_signed(TimeDelta::days(days.into()))?;
    Some(day.format("%Y-%m-%d").to_string().into())
}

fn millisecond(micros: i64) -> Option<Value> {
    let time = DateTime::from_timestamp_micros(micros)?;
    Some(time.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string().into())
}
