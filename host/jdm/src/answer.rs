//! From results to columns: the answer of a call.

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float64Builder, Int64Builder, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema};
use chrono::{DateTime, NaiveDate, NaiveDateTime};
use rust_decimal::prelude::ToPrimitive;
use rust_decimal::{Decimal, RoundingStrategy};
use weir_model::columns::{output_type, timestamp_type};
use weir_model::port::{RuleAnswer, RuleCall};
use weir_model::{Fault, Kind};

use crate::base64;
use crate::value::{Value, shorten};

/// Characters of a reason that are kept: a rule can throw a text of any length.
const REASON: usize = 500;
/// Fraction digits of decimals in answers; see [`output_type`].
const SCALE: u32 = 9;

/// The columns of an answer while it grows. A failed evaluation leaves nothing of itself in them.
pub(crate) struct Answer {
    want: Vec<(String, Kind)>,
    unnest: Option<String>,
    /// Whether an evaluation stands for a row, so that a failed one is a row of nulls.
    aligned: bool,
    columns: Vec<Column>,
    rows: usize,
    failed: Vec<(u32, String)>,
}

impl Answer {
    pub(crate) fn new(call: &RuleCall) -> Self {
        Self {
            columns: call.want.iter().map(|(_, kind)| Column::new(*kind)).collect(),
            want: call.want.clone(),
            unnest: call.unnest.clone(),
            aligned: call.each.is_some() && call.unnest.is_none(),
            rows: 0,
            failed: Vec::new(),
        }
    }

    /// Takes the result of evaluation `row`.
    pub(crate) fn push(&mut self, row: u32, result: &Value) {
        match self.cells(result) {
            Ok(rows) => rows.into_iter().for_each(|cells| self.append(cells)),
            Err(reason) => self.fail(row, &reason),
        }
    }

    /// Notes that evaluation `row` failed.
    pub(crate) fn fail(&mut self, row: u32, reason: &str) {
        self.failed.push((row, shorten(reason, REASON)));
        if self.aligned {
            self.append(vec![Cell::Null; self.columns.len()]);
        }
    }

    /// Rows so far.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn finish(self) -> Result<RuleAnswer, Fault> {
        let fields: Vec<Field> =
            self.want.iter().map(|(path, kind)| Field::new(path, output_type(*kind), true)).collect();
        let columns = self.columns.into_iter().map(Column::finish).collect();
        let rows = RecordBatch::try_new_with_options(
            Arc::new(Schema::new(fields)),
            columns,
            &RecordBatchOptions::new().with_row_count(Some(self.rows)),
        )
        .map_err(|e| Fault::internal(format_args!("an answer of a rule: {e}")))?;
        Ok(RuleAnswer { rows, failed: self.failed })
    }

    fn append(&mut self, cells: Vec<Cell>) {
        self.rows += 1;
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.append(cell);
        }
    }

    /// The rows of one result.
    fn cells(&self, result: &Value) -> Result<Vec<Vec<Cell>>, String> {
        let Some(path) = &self.unnest else {
            return Ok(vec![self.row(result)?]);
        };
        match result.at(path) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(i, item)| self.row(item).map_err(|e| format!("{path}[{i}].{e}")))
                .collect(),
            Some(other) => Err(format!("{path}: expected an array, got {}", other.describe())),
        }
    }

    fn row(&self, value: &Value) -> Result<Vec<Cell>, String> {
        self.want
            .iter()
            .map(|(path, kind)| match value.at(path) {
                None | Some(Value::Null) => Ok(Cell::Null),
                Some(found) => Cell::of(found, *kind).ok_or_else(|| {
                    let name = if path.is_empty() { "the result" } else { path };
                    format!("{name}: expected {}, got {}", expectation(*kind), found.describe())
                }),
            })
            .collect()
    }
}

/// What a result must be to fit a kind, for people.
fn expectation(kind: Kind) -> &'static str {
    match kind {
        Kind::Boolean => "boolean",
        Kind::Int64 => "int64 (a whole number)",
        Kind::Float64 => "float64 (a number)",
        Kind::Decimal => "decimal (a number)",
        Kind::Text => "text",
        Kind::Bytes => "bytes (a base64 text)",
        Kind::Timestamp => "timestamp (a text like 2026-01-31T12:00:00Z, or milliseconds since 1970)",
        Kind::Date => "date (a text like 2026-01-31)",
        Kind::Json => "json",
    }
}

#[derive(Clone)]
enum Cell {
    Null,
    Boolean(bool),
    Int64(i64),
    Float64(f64),
    Decimal(i128),
    Text(String),
    Bytes(Vec<u8>),
    /// Microseconds.
    Timestamp(i64),
    /// Days since 1970-01-01.
    Date(i32),
}

impl Cell {
    /// None when the value does not fit the kind.
    fn of(value: &Value, kind: Kind) -> Option<Self> {
        Some(match (kind, value) {
            (Kind::Boolean, Value::Bool(b)) => Self::Boolean(*b),
            (Kind::Int64, Value::Number(n)) if n.is_integer() => Self::Int64(n.to_i64()?),
            // By its text: the conversion of the number type is off by the last bit now and then.
            (Kind::Float64, Value::Number(n)) => Self::Float64(n.to_string().parse().ok()?),
            (Kind::Decimal, Value::Number(n)) => Self::Decimal(units(*n)?),
            // What big.js makes of its numbers in JSON: the only way for a function node to return exact decimals.
            (Kind::Decimal, Value::Text(text)) => Self::Decimal(units(text.parse().ok()?)?),
            (Kind::Text, Value::Text(text)) => Self::Text(text.clone()),
            (Kind::Bytes, Value::Text(text)) => Self::Bytes(base64::decode(text)?),
            (Kind::Timestamp, Value::Text(text)) => Self::Timestamp(micros(text)?),
            (Kind::Timestamp, Value::Number(ms)) => {
                Self::Timestamp(ms.checked_mul(Decimal::ONE_THOUSAND)?.round().to_i64()?)
            }
            (Kind::Date, Value::Text(text)) => {
                let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
                let days = date.signed_duration_since(NaiveDate::default()).num_days();
                Self::Date(i32::try_from(days).ok()?)
            }
            (Kind::Json, value) => Self::Text(value.to_json()),
            _ => return None,
        })
    }
}

/// The number in units of the answer's scale. More fraction digits are rounded, half away from zero, as SQL does.
fn units(n: Decimal) -> Option<i128> {
    let n = n.round_dp_with_strategy(SCALE, RoundingStrategy::MidpointAwayFromZero);
    n.mantissa().checked_mul(10_i128.pow(SCALE - n.scale()))
}

/// RFC 3339; a text without a zone is UTC.
fn micros(text: &str) -> Option<i64> {
    if let Ok(at) = DateTime::parse_from_rfc3339(text) {
        return Some(at.timestamp_micros());
    }
    ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"]
        .iter()
        .find_map(|format| NaiveDateTime::parse_from_str(text, format).ok())
        .map(|at| at.and_utc().timestamp_micros())
}

enum Column {
    Boolean(BooleanBuilder),
    Int64(Int64Builder),
    Float64(Float64Builder),
    Decimal(Decimal128Builder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    Date(Date32Builder),
}

impl Column {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Boolean => Self::Boolean(BooleanBuilder::new()),
            Kind::Int64 => Self::Int64(Int64Builder::new()),
            Kind::Float64 => Self::Float64(Float64Builder::new()),
            Kind::Decimal => Self::Decimal(Decimal128Builder::new().with_data_type(output_type(Kind::Decimal))),
            Kind::Text | Kind::Json => Self::Text(StringBuilder::new()),
            Kind::Bytes => Self::Bytes(BinaryBuilder::new()),
            Kind::Timestamp => Self::Timestamp(TimestampMicrosecondBuilder::new().with_data_type(timestamp_type())),
            Kind::Date => Self::Date(Date32Builder::new()),
        }
    }

    /// A cell of another kind cannot come here; it would be null.
    fn append(&mut self, cell: Cell) {
        match (self, cell) {
            (Self::Boolean(to), Cell::Boolean(v)) => to.append_value(v),
            (Self::Int64(to), Cell::Int64(v)) => to.append_value(v),
            (Self::Float64(to), Cell::Float64(v)) => to.append_value(v),
            (Self::Decimal(to), Cell::Decimal(v)) => to.append_value(v),
            (Self::Text(to), Cell::Text(v)) => to.append_value(v),
            (Self::Bytes(to), Cell::Bytes(v)) => to.append_value(v),
            (Self::Timestamp(to), Cell::Timestamp(v)) => to.append_value(v),
            (Self::Date(to), Cell::Date(v)) => to.append_value(v),
            (Self::Boolean(to), _) => to.append_null(),
            (Self::Int64(to), _) => to.append_null(),
            (Self::Float64(to), _) => to.append_null(),
            (Self::Decimal(to), _) => to.append_null(),
            (Self::Text(to), _) => to.append_null(),
            (Self::Bytes(to), _) => to.append_null(),
            (Self::Timestamp(to), _) => to.append_null(),
            (Self::Date(to), _) => to.append_null(),
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::Boolean(mut b) => Arc::new(b.finish()),
            Self::Int64(mut b) => Arc::new(b.finish()),
            Self::Float64(mut b) => Arc::new(b.finish()),
            Self::Decimal(mut b) => Arc::new(b.finish()),
            Self::Text(mut b) => Arc::new(b.finish()),
            Self::Bytes(mut b) => Arc::new(b.finish()),
            Self::Timestamp(mut b) => Arc::new(b.finish()),
            Self::Date(mut b) => Arc::new(b.finish()),
        }
    }
}
