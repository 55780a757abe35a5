//! From results to columns: the answer of a call.

use std::sync::Arc;

use arrow_schema::{Field, Schema};
use chrono::{DateTime, NaiveDate, NaiveDateTime};
use rust_decimal::prelude::ToPrimitive;
use rust_decimal::{Decimal, RoundingStrategy};
use weir_model::columns::{output_column, output_type};
use weir_model::port::{RuleAnswer, RuleCall};
use weir_model::rows::{Cell, Rows};
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
    rows: Rows,
    failed: Vec<(u32, String)>,
}

impl Answer {
    pub(crate) fn new(call: &RuleCall) -> Self {
        Self {
            rows: Rows::of(call.want.iter().map(|(_, kind)| output_column(*kind))),
            want: call.want.clone(),
            unnest: call.unnest.clone(),
            aligned: call.each.is_some() && call.unnest.is_none(),
            failed: Vec::new(),
        }
    }

    /// Takes the result of evaluation `row`.
    pub(crate) fn push(&mut self, row: u32, result: &Value) {
        match self.cells(result) {
            Ok(rows) => rows.iter().for_each(|cells| self.rows.push(cells)),
            Err(reason) => self.fail(row, &reason),
        }
    }

    /// Notes that evaluation `row` failed.
    pub(crate) fn fail(&mut self, row: u32, reason: &str) {
        self.failed.push((row, shorten(reason, REASON)));
        if self.aligned {
            self.rows.push(&vec![Cell::Null; self.want.len()]);
        }
    }

    /// Rows so far.
    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn finish(self) -> Result<RuleAnswer, Fault> {
        let fields: Vec<Field> =
            self.want.iter().map(|(path, kind)| Field::new(path, output_type(*kind), true)).collect();
        let rows = self
            .rows
            .finish(Arc::new(Schema::new(fields)))
            .map_err(|e| Fault::internal(format_args!("an answer of a rule: {e}")))?;
        Ok(RuleAnswer { rows, failed: self.failed })
    }

    /// The rows of one result.
    fn cells(&self, result: &Value) -> Result<Vec<Vec<Cell<'static>>>, String> {
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

    fn row(&self, value: &Value) -> Result<Vec<Cell<'static>>, String> {
        self.want
            .iter()
            .map(|(path, kind)| match value.at(path) {
                None | Some(Value::Null) => Ok(Cell::Null),
                Some(found) => cell(found, *kind).ok_or_else(|| {
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

/// A value as a cell of a kind's column; none when it does not fit.
fn cell(value: &Value, kind: Kind) -> Option<Cell<'static>> {
    Some(match (kind, value) {
        (Kind::Boolean, Value::Bool(b)) => Cell::Boolean(*b),
        (Kind::Int64, Value::Number(n)) if n.is_integer() => Cell::Int64(n.to_i64()?),
        // By its text: the conversion of the number type is off by the last bit now and then.
        (Kind::Float64, Value::Number(n)) => Cell::Float64(n.to_string().parse().ok()?),
        (Kind::Decimal, Value::Number(n)) => Cell::Decimal(units(*n)?),
        // What big.js makes of its numbers in JSON: the only way for a function node to return exact decimals.
        (Kind::Decimal, Value::Text(text)) => Cell::Decimal(units(text.parse().ok()?)?),
        (Kind::Text, Value::Text(text)) => Cell::Text(text.clone().into()),
        (Kind::Bytes, Value::Text(text)) => Cell::Bytes(base64::decode(text)?.into()),
        (Kind::Timestamp, Value::Text(text)) => Cell::Timestamp(micros(text)?),
        (Kind::Timestamp, Value::Number(ms)) => {
            Cell::Timestamp(ms.checked_mul(Decimal::ONE_THOUSAND)?.round().to_i64()?)
        }
        (Kind::Date, Value::Text(text)) => {
            let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
            let days = date.signed_duration_since(NaiveDate::default()).num_days();
            Cell::Date(i32::try_from(days).ok()?)
        }
        (Kind::Json, value) => Cell::Text(value.to_json().into()),
        _ => return None,
    })
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
