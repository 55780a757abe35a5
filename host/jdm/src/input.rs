//! From columns to the input of an evaluation.
//!
//! | column | in the rule |
//! |---|---|
//! | integers, floats, decimals | number |
//! | timestamp | text, RFC 3339 with the offset of the tenant's zone (`Z` for UTC), fractions only when there are any |
//! | date | text, `2026-01-31` |
//! | time, duration | number of microseconds |
//! | boolean, text, null | themselves |
//! | bytes | text, base64 |
//! | list, struct, map | array, object, object |
//!
//! The engine's numbers are decimals of 96 bits, which is 28 digits. A number that is larger, NaN or infinite fails the
//! evaluation; fraction digits beyond the 28th are rounded. Nothing ever becomes null silently.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, RecordBatch, downcast_dictionary_array};
use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use chrono::{Days, NaiveDate};
use rust_decimal::Decimal;
use weir_model::port::RuleCall;
use weir_model::{CallError, DataError, Scalar, Time, Zone};
use zen_expression::Variable;
use zen_expression::variable::VariableMap;

use crate::base64;

/// The inputs of a call. Lives on the thread that evaluates.
pub(crate) struct Inputs<'a> {
    /// Fields that are the same in each evaluation, or why there can be none.
    fixed: Result<Vec<(&'a str, Variable)>, String>,
    each: Option<&'a RecordBatch>,
    zone: Zone,
}

impl<'a> Inputs<'a> {
    /// An error when a value is not what its kind asks for.
    pub(crate) fn new(call: &'a RuleCall, zone: Zone) -> Result<Self, CallError> {
        let mut fixed = Vec::new();
        let mut broken = None;
        for (name, value) in &call.values {
            match scalar(value, zone)? {
                Ok(value) => fixed.push((name.as_str(), value)),
                Err(e) => broken = broken.or(Some(format!("{name}: {e}"))),
            }
        }
        for (name, rows) in &call.rows {
            let array: Result<Vec<_>, String> = (0..rows.num_rows())
                .map(|row| object(rows, row, Vec::new(), zone).map_err(|e| format!("{name}[{row}].{e}")))
                .collect();
            match array {
                Ok(array) => fixed.push((name.as_str(), Variable::from_array(array))),
                Err(e) => broken = broken.or(Some(e)),
            }
        }
        Ok(Self { fixed: broken.map_or(Ok(fixed), Err), each: call.each.as_ref(), zone })
    }

    /// Number of evaluations.
    pub(crate) fn len(&self) -> usize {
        self.each.map_or(1, RecordBatch::num_rows)
    }

    /// The input of one evaluation, shared with no other. A field of the row hides a fixed one of the same name.
    pub(crate) fn row(&self, row: usize) -> Result<Variable, String> {
        let fixed = self.fixed.as_ref().map_err(Clone::clone)?;
        let fields = fixed.iter().map(|(name, value)| (*name, value.deep_clone())).collect();
        match self.each {
            Some(rows) => object(rows, row, fields, self.zone),
            None => Ok(Variable::from_object(map(fields))),
        }
    }
}

fn map(fields: Vec<(&str, Variable)>) -> VariableMap {
    let mut map = VariableMap::with_capacity(fields.len());
    for (name, value) in fields {
        map.insert_str(name, value);
    }
    map
}

fn object<'a>(
    rows: &'a RecordBatch,
    row: usize,
    mut fields: Vec<(&'a str, Variable)>,
    zone: Zone,
) -> Result<Variable, String> {
    for (field, column) in rows.schema_ref().fields().iter().zip(rows.columns()) {
        let value = cell(column, row, zone).map_err(|e| format!("{}: {e}", field.name()))?;
        fields.push((field.name(), value));
    }
    Ok(Variable::from_object(map(fields)))
}

/// Outer error: malformed, which the caller is told at once. Inner: a value that no evaluation can take.
fn scalar(value: &Scalar, zone: Zone) -> Result<Result<Variable, String>, CallError> {
    Ok(match value {
        Scalar::Null => Ok(Variable::Null),
        Scalar::Boolean(b) => Ok(Variable::Bool(*b)),
        Scalar::Int64(n) => Ok(Variable::Number((*n).into())),
        Scalar::Float64(n) => float(*n),
        Scalar::Decimal(text) => {
            let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
            let plain = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
            if !plain || digits.matches('.').count() > 1 || !digits.bytes().any(|b| b.is_ascii_digit()) {
                return Err(DataError::Malformed.into());
            }
            number(text)
        }
        Scalar::Text(text) => Ok(Variable::String(text.as_str().into())),
        Scalar::Bytes(bytes) => Ok(Variable::String(base64::encode(bytes).into())),
        Scalar::Timestamp(us) => Ok(time(*us, zone)),
    })
}

/// A number from its decimal text.
fn number(text: &str) -> Result<Variable, String> {
    text.parse().map(Variable::Number).map_err(|_| format!("{text} is beyond the 28 digits of a rule's numbers"))
}

/// By its shortest text, so that what reads 0.1 everywhere else is 0.1 in a rule.
fn float(n: impl Into<f64> + std::fmt::Display + Copy) -> Result<Variable, String> {
    if !n.into().is_finite() {
        return Err(format!("{n} is no number in JSON"));
    }
    number(&n.to_string())
}

fn decimal(units: i128, scale: i8, text: impl FnOnce() -> String) -> Result<Variable, String> {
    match u32::try_from(scale).map(|scale| Decimal::try_from_i128_with_scale(units, scale)) {
        Ok(Ok(n)) => Ok(Variable::Number(n)),
        _ => number(&text()),
    }
}

fn time(us: i64, zone: Zone) -> Variable {
    Variable::String(zone.rfc3339(Time(us)).into())
}

fn date(days: i64) -> Result<Variable, String> {
    let epoch = NaiveDate::default();
    let by = Days::new(days.unsigned_abs());
    let date = if days < 0 { epoch.checked_sub_days(by) } else { epoch.checked_add_days(by) };
    date.map(|d| Variable::String(d.to_string().into())).ok_or_else(|| format!("{days} days since 1970 are no date"))
}

fn list(items: &dyn Array, zone: Zone) -> Result<Variable, String> {
    (0..items.len())
        .map(|i| cell(items, i, zone).map_err(|e| format!("[{i}]: {e}")))
        .collect::<Result<_, _>>()
        .map(Variable::from_array)
}

/// One value of a column.
fn cell(column: &dyn Array, row: usize, zone: Zone) -> Result<Variable, String> {
    use DataType as D;
    macro_rules! value {
        ($ty:ty) => {
            column.as_primitive::<$ty>().value(row)
        };
    }
    macro_rules! integer {
        ($ty:ty) => {
            Ok(Variable::Number(value!($ty).into()))
        };
    }
    macro_rules! number_of {
        ($ty:ty, $scale:expr) => {
            decimal(value!($ty).into(), $scale, || column.as_primitive::<$ty>().value_as_string(row))
        };
    }
    // Microseconds; what does not fit is no time that anything else could show.
    let micros =
        |n: i64, factor: i64| n.checked_mul(factor).ok_or_else(|| format!("{n} is out of the range of microseconds"));
    let at = |us: i64| time(us, zone);
    let whole = |n: Result<i64, String>| n.map(|n| Variable::Number(n.into()));
    if column.is_null(row) {
        return Ok(Variable::Null);
    }
    match column.data_type() {
        D::Null => Ok(Variable::Null),
        D::Boolean => Ok(Variable::Bool(column.as_boolean().value(row))),
        D::Int8 => integer!(Int8Type),
        D::Int16 => integer!(Int16Type),
        D::Int32 => integer!(Int32Type),
        D::Int64 => integer!(Int64Type),
        D::UInt8 => integer!(UInt8Type),
        D::UInt16 => integer!(UInt16Type),
        D::UInt32 => integer!(UInt32Type),
        D::UInt64 => integer!(UInt64Type),
        D::Float16 => float(value!(Float16Type).to_f32()),
        D::Float32 => float(value!(Float32Type)),
        D::Float64 => float(value!(Float64Type)),
        D::Decimal32(_, scale) => number_of!(Decimal32Type, *scale),
        D::Decimal64(_, scale) => number_of!(Decimal64Type, *scale),
        D::Decimal128(_, scale) => number_of!(Decimal128Type, *scale),
        D::Decimal256(..) => number(&column.as_primitive::<Decimal256Type>().value_as_string(row)),
        D::Utf8 => Ok(Variable::String(column.as_string::<i32>().value(row).into())),
        D::LargeUtf8 => Ok(Variable::String(column.as_string::<i64>().value(row).into())),
        D::Utf8View => Ok(Variable::String(column.as_string_view().value(row).into())),
        D::Binary => Ok(bytes(column.as_binary::<i32>().value(row))),
        D::LargeBinary => Ok(bytes(column.as_binary::<i64>().value(row))),
        D::BinaryView => Ok(bytes(column.as_binary_view().value(row))),
        D::FixedSizeBinary(_) => Ok(bytes(column.as_fixed_size_binary().value(row))),
        D::Date32 => date(value!(Date32Type).into()),
        D::Date64 => date(value!(Date64Type).div_euclid(86_400_000)),
        D::Timestamp(TimeUnit::Second, _) => micros(value!(TimestampSecondType), 1_000_000).map(at),
        D::Timestamp(TimeUnit::Millisecond, _) => micros(value!(TimestampMillisecondType), 1_000).map(at),
        D::Timestamp(TimeUnit::Microsecond, _) => Ok(at(value!(TimestampMicrosecondType))),
        D::Timestamp(TimeUnit::Nanosecond, _) => Ok(at(value!(TimestampNanosecondType).div_euclid(1_000))),
        D::Time32(TimeUnit::Second) => whole(Ok(i64::from(value!(Time32SecondType)) * 1_000_000)),
        D::Time32(_) => whole(Ok(i64::from(value!(Time32MillisecondType)) * 1_000)),
        D::Time64(TimeUnit::Microsecond) => whole(Ok(value!(Time64MicrosecondType))),
        D::Time64(_) => whole(Ok(value!(Time64NanosecondType).div_euclid(1_000))),
        D::Duration(TimeUnit::Second) => whole(micros(value!(DurationSecondType), 1_000_000)),
        D::Duration(TimeUnit::Millisecond) => whole(micros(value!(DurationMillisecondType), 1_000)),
        D::Duration(TimeUnit::Microsecond) => whole(Ok(value!(DurationMicrosecondType))),
        D::Duration(TimeUnit::Nanosecond) => whole(Ok(value!(DurationNanosecondType).div_euclid(1_000))),
        D::Dictionary(..) => downcast_dictionary_array! {
            column => column.key(row).map_or(Ok(Variable::Null), |key| cell(column.values(), key, zone)),
            other => Err(format!("a column of type {other} cannot be given to a rule"))
        },
        D::List(_) => list(&column.as_list::<i32>().value(row), zone),
        D::LargeList(_) => list(&column.as_list::<i64>().value(row), zone),
        D::FixedSizeList(..) => list(&column.as_fixed_size_list().value(row), zone),
        D::Struct(fields) => {
            let columns = column.as_struct().columns();
            let fields = fields
                .iter()
                .zip(columns)
                .map(|(field, column)| {
                    let value = cell(column, row, zone).map_err(|e| format!("{}: {e}", field.name()))?;
                    Ok((field.name().as_str(), value))
                })
                .collect::<Result<_, String>>()?;
            Ok(Variable::from_object(map(fields)))
        }
        D::Map(..) => {
            let entries = column.as_map().value(row);
            let mut map = VariableMap::with_capacity(entries.len());
            for i in 0..entries.len() {
                let name = match cell(entries.column(0), i, zone)? {
                    Variable::String(name) => name,
                    other => other.to_string().into(),
                };
                map.insert(name, cell(entries.column(1), i, zone)?);
            }
            Ok(Variable::from_object(map))
        }
        D::Interval(IntervalUnit::MonthDayNano) => {
            let (months, days, nanos) = IntervalMonthDayNanoType::to_parts(value!(IntervalMonthDayNanoType));
            Ok(Variable::from_object(map(vec![
                ("months", Variable::Number(months.into())),
                ("days", Variable::Number(days.into())),
                ("nanoseconds", Variable::Number(nanos.into())),
            ])))
        }
        other => Err(format!("a column of type {other} cannot be given to a rule")),
    }
}

fn bytes(bytes: &[u8]) -> Variable {
    Variable::String(base64::encode(bytes).into())
}

/// JSON as an input: of a sample case.
pub(crate) fn json(value: &serde_json::Value) -> Result<Variable, String> {
    use serde_json::Value as J;
    Ok(match value {
        J::Null => Variable::Null,
        J::Bool(b) => Variable::Bool(*b),
        J::Number(n) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
            (Some(n), ..) => Variable::Number(n.into()),
            (_, Some(n), _) => Variable::Number(n.into()),
            (.., n) => float(n.unwrap_or(f64::NAN))?,
        },
        J::String(text) => Variable::String(text.as_str().into()),
        J::Array(items) => Variable::from_array(items.iter().map(json).collect::<Result<_, _>>()?),
        J::Object(fields) => Variable::from_object(map(fields
            .iter()
            .map(|(name, value)| Ok((name.as_str(), json(value)?)))
            .collect::<Result<_, String>>()?)),
    })
}
