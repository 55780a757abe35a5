//! Columns of an output, made of what a guest wrote. Their types are [`output_type`]'s; null slots are zero or empty.

use std::iter::repeat_n;
use std::sync::Arc;

use arrow_array::types::Decimal128Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array, StringArray,
    TimestampMicrosecondArray, new_null_array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_cast::parse::parse_decimal;
use arrow_schema::DataType;
use weir_model::columns::{kind_of, output_type};
use weir_model::{DataError, Kind, Scalar};

use super::{Blobs, ColumnError, DAY, Decimals, pull};

type Built = Result<ArrayRef, DataError>;

/// A validity bitmap as a guest sends it: LSB first, as many bytes as the rows need. Spare bits are ignored.
pub type Validity = Option<Vec<u8>>;

fn nulls(validity: Validity, rows: usize) -> Result<Option<NullBuffer>, DataError> {
    let Some(bits) = validity else {
        return Ok(None);
    };
    if bits.len() != rows.div_ceil(8) {
        return Err(DataError::Malformed);
    }
    let nulls = NullBuffer::new(BooleanBuffer::new(Buffer::from(bits), 0, rows));
    Ok(Some(nulls).filter(|n| n.null_count() > 0))
}

fn zeroed<T: Default>(mut values: Vec<T>, nulls: Option<&NullBuffer>) -> Vec<T> {
    for (slot, valid) in values.iter_mut().zip(nulls.into_iter().flatten()) {
        if !valid {
            *slot = T::default();
        }
    }
    values
}

/// The column has another kind than what was written.
fn only(kinds: &[Kind], kind: Kind) -> Result<(), DataError> {
    if kinds.contains(&kind) { Ok(()) } else { Err(DataError::WrongKind(kind)) }
}

/// One byte a row, 0 or 1.
pub fn booleans(kind: Kind, values: Vec<u8>, validity: Validity) -> Built {
    only(&[Kind::Boolean], kind)?;
    let nulls = nulls(validity, values.len())?;
    let values = zeroed(values, nulls.as_ref());
    if values.iter().any(|v| *v > 1) {
        return Err(DataError::Malformed);
    }
    let bits = BooleanBuffer::collect_bool(values.len(), |row| values[row] == 1);
    Ok(Arc::new(BooleanArray::new(bits, nulls)))
}

/// Integers.
pub fn int64s(kind: Kind, values: Vec<i64>, validity: Validity) -> Built {
    only(&[Kind::Int64], kind)?;
    let nulls = nulls(validity, values.len())?;
    let values = zeroed(values, nulls.as_ref());
    Ok(Arc::new(Int64Array::new(values.into(), nulls)))
}

/// Floating point numbers.
pub fn float64s(kind: Kind, values: Vec<f64>, validity: Validity) -> Built {
    only(&[Kind::Float64], kind)?;
    let nulls = nulls(validity, values.len())?;
    let values = zeroed(values, nulls.as_ref());
    Ok(Arc::new(Float64Array::new(values.into(), nulls)))
}

/// Microseconds since the epoch; a date is the day that they lie in.
pub fn timestamps(kind: Kind, values: Vec<i64>, validity: Validity) -> Built {
    only(&[Kind::Timestamp, Kind::Date], kind)?;
    let nulls = nulls(validity, values.len())?;
    let values = zeroed(values, nulls.as_ref());
    Ok(if kind == Kind::Date {
        let days = values.into_iter().map(day).collect::<Vec<_>>();
        Arc::new(Date32Array::new(days.into(), nulls))
    } else {
        Arc::new(TimestampMicrosecondArray::new(values.into(), nulls).with_timezone("UTC"))
    })
}

fn day(micros: i64) -> i32 {
    // The quotient of any i64 lies within 1.1e8 days.
    micros.div_euclid(DAY) as i32
}

/// Decimals, brought to the scale of outputs. Digits beyond it are rounded half away from zero.
pub fn decimals(kind: Kind, values: &Decimals, validity: Validity) -> Built {
    only(&[Kind::Decimal], kind)?;
    if values.low.len() != values.high.len() {
        return Err(DataError::Malformed);
    }
    let nulls = nulls(validity, values.low.len())?;
    let unscaled = (values.low.iter().zip(&values.high))
        .enumerate()
        .map(|(row, (low, high))| {
            if nulls.as_ref().is_some_and(|n| n.is_null(row)) {
                return Ok(0);
            }
            let value = (i128::from(*high) << 64) | i128::from(*low);
            rescale(value, values.scale).ok_or(DataError::OutOfRange)
        })
        .collect::<Result<Vec<i128>, _>>()?;
    let column = Decimal128Array::new(unscaled.into(), nulls).with_data_type(output_type(Kind::Decimal));
    Ok(Arc::new(column))
}

const SCALE: i32 = 9;
const LARGEST: i128 = 10_i128.pow(38) - 1;

fn rescale(value: i128, scale: i8) -> Option<i128> {
    let shift = SCALE - i32::from(scale);
    let power = |digits: i32| 10_i128.checked_pow(digits.unsigned_abs());
    let out = match (value, shift) {
        (0, _) => 0,
        (_, 0..) => value.checked_mul(power(shift)?)?,
        // More digits than an i128 has: nothing is left of the value.
        (_, ..0) => power(shift).map_or(0, |by| {
            let rest = value % by;
            let up = i128::from(rest.unsigned_abs() >= by.unsigned_abs().div_ceil(2));
            value / by + up * value.signum()
        }),
    };
    (out.abs() <= LARGEST).then_some(out)
}

/// Texts, bytes or JSON texts.
pub fn blobs(kind: Kind, values: Blobs, validity: Validity) -> Built {
    only(&[Kind::Text, Kind::Bytes, Kind::Json], kind)?;
    values.check()?;
    let nulls = nulls(validity, values.len())?;
    let values = emptied(values, nulls.as_ref());
    if kind == Kind::Json {
        for (row, text) in values.iter().enumerate() {
            if nulls.as_ref().is_none_or(|n| n.is_valid(row)) {
                is_json(text)?;
            }
        }
    }
    let offsets: Vec<i32> = values
        .offsets
        .iter()
        .map(|o| i32::try_from(*o).map_err(|_| DataError::OutOfRange))
        .collect::<Result<_, _>>()?;
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let data = Buffer::from(values.data);
    Ok(if kind == Kind::Bytes {
        Arc::new(BinaryArray::try_new(offsets, data, nulls).map_err(|_| DataError::Malformed)?)
    } else {
        // Checks that every value is UTF-8.
        Arc::new(StringArray::try_new(offsets, data, nulls).map_err(|_| DataError::Malformed)?)
    })
}

fn emptied(values: Blobs, nulls: Option<&NullBuffer>) -> Blobs {
    let Some(nulls) = nulls else {
        return values;
    };
    let filled = |(value, valid): (&[u8], bool)| !valid && !value.is_empty();
    if !values.iter().zip(nulls).any(filled) {
        return values;
    }
    let mut out = Blobs::with_capacity(values.len(), values.data.len());
    for (value, valid) in values.iter().zip(nulls) {
        if valid {
            out.data.extend_from_slice(value);
        }
        // No longer than what it is made of.
        out.offsets.push(out.data.len() as u32);
    }
    out
}

fn is_json(text: &[u8]) -> Result<(), DataError> {
    serde_json::from_slice::<serde::de::IgnoredAny>(text).map(|_| ()).map_err(|_| DataError::Malformed)
}

/// The same value in every row.
pub fn constant(kind: Kind, value: &Scalar, rows: usize) -> Built {
    Ok(match (kind, value) {
        (_, Scalar::Null) => new_null_array(&output_type(kind), rows),
        (Kind::Boolean, Scalar::Boolean(v)) => {
            Arc::new(BooleanArray::new(BooleanBuffer::collect_bool(rows, |_| *v), None))
        }
        (Kind::Int64, Scalar::Int64(v)) => Arc::new(Int64Array::from_value(*v, rows)),
        (Kind::Float64, Scalar::Float64(v)) => Arc::new(Float64Array::from_value(*v, rows)),
        (Kind::Timestamp, Scalar::Timestamp(v)) => {
            Arc::new(TimestampMicrosecondArray::from_value(*v, rows).with_timezone("UTC"))
        }
        (Kind::Date, Scalar::Timestamp(v)) => Arc::new(Date32Array::from_value(day(*v), rows)),
        (Kind::Decimal, Scalar::Decimal(text)) => {
            // The same precision and scale as `output_type` says.
            let v = parse_decimal::<Decimal128Type>(text, 38, 9).map_err(|_| DataError::Malformed)?;
            Arc::new(Decimal128Array::from_value(v, rows).with_data_type(output_type(Kind::Decimal)))
        }
        (Kind::Text, Scalar::Text(v)) => Arc::new(StringArray::from_iter_values(repeat_n(v, rows))),
        (Kind::Json, Scalar::Text(v)) => {
            is_json(v.as_bytes())?;
            Arc::new(StringArray::from_iter_values(repeat_n(v, rows)))
        }
        (Kind::Bytes, Scalar::Bytes(v)) => Arc::new(BinaryArray::from_iter_values(repeat_n(v, rows))),
        _ => return Err(DataError::WrongKind(kind)),
    })
}

/// Bytes that [`constant`] takes, about.
pub fn constant_size(value: &Scalar, rows: usize) -> u64 {
    let one = match value {
        Scalar::Text(v) | Scalar::Decimal(v) => v.len() + 16,
        Scalar::Bytes(v) => v.len() + 16,
        _ => 16,
    };
    (one as u64).saturating_mul(rows as u64)
}

/// A column of a frame as a column of an output of the same kind. Text may become json when it is.
pub fn copied(kind: Kind, source: &ArrayRef, max: u64) -> Result<ArrayRef, ColumnError> {
    let from = kind_of(source.data_type());
    let same = from == kind || (from, kind) == (Kind::Text, Kind::Json);
    if !same {
        return Err(DataError::WrongKind(from).into());
    }
    let keeps_type = *source.data_type() == output_type(kind) && kind != Kind::Json;
    if keeps_type {
        return Ok(source.clone());
    }
    if *source.data_type() == DataType::Null {
        return Ok(new_null_array(&output_type(kind), source.len()));
    }
    let validity = pull::validity(source);
    Ok(match kind {
        Kind::Boolean => booleans(kind, pull::booleans(source, max)?, validity),
        Kind::Int64 => int64s(kind, pull::int64s(source, max)?, validity),
        Kind::Float64 => float64s(kind, pull::float64s(source, max)?, validity),
        Kind::Decimal => decimals(kind, &pull::decimals(source, max)?, validity),
        Kind::Timestamp | Kind::Date => timestamps(kind, pull::timestamps(source, max)?, validity),
        Kind::Text | Kind::Bytes | Kind::Json => blobs(kind, pull::blobs(source, max)?, validity),
    }?)
}
