//! Columns as primitive lists, which cross into a guest as bulk copies. Null slots are zero or empty: equal rows give
//! equal bytes, whatever an engine left in the slots of nulls.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, GenericByteArray, PrimitiveArray};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, NullBuffer};
use arrow_schema::{DataType as D, TimeUnit};
use hashbrown::HashMap;
use weir_model::columns::kind_of;
use weir_model::{DataError, Kind};

use super::render;
use super::{Blobs, ColumnError, DAY, Decimals, Dictionary, NO_CODE};

type Pulled<T> = Result<T, ColumnError>;

fn wrong_kind<T>(array: &dyn Array) -> Pulled<T> {
    Err(DataError::WrongKind(kind_of(array.data_type())).into())
}

/// Which rows have a value: LSB first, spare bits 0. None when all have.
pub fn validity(array: &dyn Array) -> Option<Vec<u8>> {
    let nulls = array.logical_nulls()?;
    (nulls.null_count() > 0).then(|| bits(nulls.inner()))
}

fn bits(bits: &BooleanBuffer) -> Vec<u8> {
    let mut out = bits.sliced().as_slice()[..bits.len().div_ceil(8)].to_vec();
    if let (Some(last), spare @ 1..) = (out.last_mut(), bits.len() % 8) {
        *last &= (1 << spare) - 1;
    }
    out
}

/// One byte a row, 0 or 1.
pub fn booleans(array: &ArrayRef, max: u64) -> Pulled<Vec<u8>> {
    let array = &plain(array, max)?;
    if !matches!(array.data_type(), D::Boolean) {
        return wrong_kind(array);
    }
    let array = array.as_boolean();
    let mut out: Vec<u8> = array.values().iter().map(u8::from).collect();
    zero_nulls(&mut out, array.nulls());
    Ok(out)
}

/// Integers, widened; times and durations in microseconds.
pub fn int64s(array: &ArrayRef, max: u64) -> Pulled<Vec<i64>> {
    let array = &plain(array, max)?;
    let times = |by: i64| move |v: i64| v.checked_mul(by).ok_or(DataError::OutOfRange.into());
    Ok(match array.data_type() {
        D::Int64 => dense(array.as_primitive::<Int64Type>(), |v| v),
        D::Int32 => dense(array.as_primitive::<Int32Type>(), i64::from),
        D::Int16 => dense(array.as_primitive::<Int16Type>(), i64::from),
        D::Int8 => dense(array.as_primitive::<Int8Type>(), i64::from),
        D::UInt32 => dense(array.as_primitive::<UInt32Type>(), i64::from),
        D::UInt16 => dense(array.as_primitive::<UInt16Type>(), i64::from),
        D::UInt8 => dense(array.as_primitive::<UInt8Type>(), i64::from),
        D::Time32(TimeUnit::Second) => dense(array.as_primitive::<Time32SecondType>(), |v| i64::from(v) * 1_000_000),
        D::Time32(_) => dense(array.as_primitive::<Time32MillisecondType>(), |v| i64::from(v) * 1_000),
        D::Time64(TimeUnit::Nanosecond) => dense(array.as_primitive::<Time64NanosecondType>(), |v| v.div_euclid(1_000)),
        D::Time64(_) => dense(array.as_primitive::<Time64MicrosecondType>(), |v| v),
        D::Duration(TimeUnit::Second) => try_dense(array.as_primitive::<DurationSecondType>(), times(1_000_000))?,
        D::Duration(TimeUnit::Millisecond) => try_dense(array.as_primitive::<DurationMillisecondType>(), times(1_000))?,
        D::Duration(TimeUnit::Microsecond) => dense(array.as_primitive::<DurationMicrosecondType>(), |v| v),
        D::Duration(TimeUnit::Nanosecond) => {
            dense(array.as_primitive::<DurationNanosecondType>(), |v| v.div_euclid(1_000))
        }
        _ => return wrong_kind(array),
    })
}

/// Floating point numbers, widened.
pub fn float64s(array: &ArrayRef, max: u64) -> Pulled<Vec<f64>> {
    let array = &plain(array, max)?;
    Ok(match array.data_type() {
        D::Float64 => dense(array.as_primitive::<Float64Type>(), |v| v),
        D::Float32 => dense(array.as_primitive::<Float32Type>(), f64::from),
        D::Float16 => dense(array.as_primitive::<Float16Type>(), |v| v.to_f64()),
        _ => return wrong_kind(array),
    })
}

/// Microseconds since the epoch, UTC, floored; dates at 00:00.
pub fn timestamps(array: &ArrayRef, max: u64) -> Pulled<Vec<i64>> {
    let array = &plain(array, max)?;
    let times = |by: i64| move |v: i64| v.checked_mul(by).ok_or(DataError::OutOfRange.into());
    Ok(match array.data_type() {
        D::Timestamp(TimeUnit::Microsecond, _) => dense(array.as_primitive::<TimestampMicrosecondType>(), |v| v),
        D::Timestamp(TimeUnit::Nanosecond, _) => {
            dense(array.as_primitive::<TimestampNanosecondType>(), |v| v.div_euclid(1_000))
        }
        D::Timestamp(TimeUnit::Millisecond, _) => {
            try_dense(array.as_primitive::<TimestampMillisecondType>(), times(1_000))?
        }
        D::Timestamp(TimeUnit::Second, _) => try_dense(array.as_primitive::<TimestampSecondType>(), times(1_000_000))?,
        D::Date32 => dense(array.as_primitive::<Date32Type>(), |v| i64::from(v) * DAY),
        D::Date64 => try_dense(array.as_primitive::<Date64Type>(), |v| {
            let days = v.div_euclid(DAY / 1_000);
            days.checked_mul(DAY).ok_or(DataError::OutOfRange.into())
        })?,
        _ => return wrong_kind(array),
    })
}

/// Decimals in two halves. uint64 is decimal(20,0).
pub fn decimals(array: &ArrayRef, max: u64) -> Pulled<Decimals> {
    let array = &plain(array, max)?;
    let (scale, values): (i8, Vec<i128>) = match array.data_type() {
        D::UInt64 => (0, dense(array.as_primitive::<UInt64Type>(), i128::from)),
        D::Decimal32(_, s) => (*s, dense(array.as_primitive::<Decimal32Type>(), i128::from)),
        D::Decimal64(_, s) => (*s, dense(array.as_primitive::<Decimal64Type>(), i128::from)),
        D::Decimal128(_, s) => (*s, dense(array.as_primitive::<Decimal128Type>(), |v| v)),
        D::Decimal256(_, s) => (
            *s,
            try_dense(array.as_primitive::<Decimal256Type>(), |v| v.to_i128().ok_or(DataError::OutOfRange.into()))?,
        ),
        _ => return wrong_kind(array),
    };
    // Both halves are parts of one two's complement number, so cutting bits off is what is meant.
    Ok(Decimals {
        scale,
        low: values.iter().map(|v| *v as u64).collect(),
        high: values.iter().map(|v| (*v >> 64) as i64).collect(),
    })
}

/// Texts, bytes, or the JSON text of nested values.
pub fn blobs(array: &ArrayRef, max: u64) -> Pulled<Blobs> {
    let array = &plain(array, max)?;
    match array.data_type() {
        D::Utf8 => side_by_side(array.as_string::<i32>(), max),
        D::LargeUtf8 => side_by_side(array.as_string::<i64>(), max),
        D::Binary => side_by_side(array.as_binary::<i32>(), max),
        D::LargeBinary => side_by_side(array.as_binary::<i64>(), max),
        ty if kind_of(ty) == Kind::Json => render::json_values(array, max),
        _ => {
            let Some(values) = values(array) else {
                return wrong_kind(array);
            };
            let mut out = Blobs::with_capacity(array.len(), 0);
            for value in values {
                out.push(value.unwrap_or_default(), max)?;
            }
            Ok(out)
        }
    }
}

/// Texts, bytes or JSON texts, each one once.
pub fn dictionary(array: &ArrayRef, max: u64) -> Pulled<Dictionary> {
    if let D::Dictionary(..) = array.data_type() {
        return indexed(array, max);
    }
    if kind_of(array.data_type()) == Kind::Json {
        let texts = render::json_values(array, max)?;
        let nulls = array.logical_nulls();
        let rows = texts.iter().enumerate().map(|(i, text)| (!is_null(nulls.as_ref(), i)).then_some(text));
        return coded(rows, max);
    }
    match values(array) {
        Some(rows) => coded(rows, max),
        None => wrong_kind(array),
    }
}

fn coded<'a>(rows: impl Iterator<Item = Option<&'a [u8]>>, max: u64) -> Pulled<Dictionary> {
    let mut seen = Seen::default();
    let codes = rows.map(|row| row.map_or(Ok(NO_CODE), |value| seen.code(value, max))).collect::<Pulled<_>>()?;
    Ok(Dictionary { codes, values: seen.values })
}

/// A column that is a dictionary already: each of its values is looked at once. It may hold equal ones and unused ones.
fn indexed(array: &ArrayRef, max: u64) -> Pulled<Dictionary> {
    let dictionary = array.as_any_dictionary();
    let Some(values) = values(dictionary.values()) else {
        return wrong_kind(array);
    };
    let values: Vec<Option<&[u8]>> = values.collect();
    let keys = keys(dictionary.keys())?;
    let mut seen = Seen::default();
    let mut known: Vec<Option<u32>> = vec![None; values.len()];
    let mut codes = Vec::with_capacity(array.len());
    for key in keys {
        let code = match key {
            None => NO_CODE,
            Some(key) => match (known[key], values[key]) {
                (Some(code), _) => code,
                (None, None) => NO_CODE,
                (None, Some(value)) => seen.code(value, max)?,
            },
        };
        if let Some(key) = key {
            known[key] = Some(code);
        }
        codes.push(code);
    }
    Ok(Dictionary { codes, values: seen.values })
}

/// Keys of a dictionary, as indexes of its values.
fn keys(keys: &dyn Array) -> Pulled<Vec<Option<usize>>> {
    let keys = arrow_cast::cast(keys, &D::Int64).map_err(|e| DataError::Failed(e.to_string()))?;
    Ok(keys.as_primitive::<Int64Type>().iter().map(|key| key.and_then(|key| usize::try_from(key).ok())).collect())
}

/// Values in the order in which they were first seen.
struct Seen<'a> {
    codes: HashMap<&'a [u8], u32>,
    values: Blobs,
}

impl Default for Seen<'_> {
    fn default() -> Self {
        Self { codes: HashMap::new(), values: Blobs::with_capacity(0, 0) }
    }
}

impl<'a> Seen<'a> {
    fn code(&mut self, value: &'a [u8], max: u64) -> Pulled<u32> {
        let next = u32::try_from(self.codes.len()).map_err(|_| ColumnError::TooBig)?;
        let code = *self.codes.entry(value).or_insert(next);
        if code == next {
            self.values.push(value, max)?;
        }
        Ok(code)
    }
}

type Rows<'a> = Box<dyn Iterator<Item = Option<&'a [u8]>> + 'a>;

/// The rows of a text or bytes column that is no dictionary.
fn values(array: &ArrayRef) -> Option<Rows<'_>> {
    macro_rules! rows {
        ($array:expr) => {
            Box::new($array.iter().map(|row| row.map(AsRef::as_ref)))
        };
    }
    Some(match array.data_type() {
        D::Utf8 => rows!(array.as_string::<i32>()),
        D::LargeUtf8 => rows!(array.as_string::<i64>()),
        D::Utf8View => rows!(array.as_string_view()),
        D::Binary => rows!(array.as_binary::<i32>()),
        D::LargeBinary => rows!(array.as_binary::<i64>()),
        D::BinaryView => rows!(array.as_binary_view()),
        D::FixedSizeBinary(_) => rows!(array.as_fixed_size_binary()),
        D::Null => Box::new(std::iter::repeat_n(None, array.len())),
        _ => return None,
    })
}

/// The column without its dictionary, unless the values that rows share are too large when each row has its own.
pub(super) fn plain(array: &ArrayRef, max: u64) -> Pulled<ArrayRef> {
    let D::Dictionary(..) = array.data_type() else {
        return Ok(array.clone());
    };
    let dictionary = array.as_any_dictionary();
    let used: Vec<u32> =
        keys(dictionary.keys())?.into_iter().flatten().filter_map(|key| u32::try_from(key).ok()).collect();
    if super::size::of_rows(dictionary.values(), &used) > max {
        return Err(ColumnError::TooBig);
    }
    arrow_select::take::take(dictionary.values(), dictionary.keys(), None)
        .map_err(|e| DataError::Failed(e.to_string()).into())
}

fn side_by_side<T: ByteArrayType>(array: &GenericByteArray<T>, max: u64) -> Pulled<Blobs> {
    let offsets = array.value_offsets();
    let first = offsets[0].as_usize();
    let size = offsets[array.len()].as_usize() - first;
    if size as u64 > max || u32::try_from(size).is_err() {
        return Err(ColumnError::TooBig);
    }
    let empty_nulls = array.nulls().is_none_or(|n| (0..n.len()).all(|i| n.is_valid(i) || offsets[i] == offsets[i + 1]));
    if empty_nulls {
        return Ok(Blobs {
            offsets: offsets.iter().map(|o| (o.as_usize() - first) as u32).collect(),
            data: array.value_data()[first..first + size].to_vec(),
        });
    }
    let mut out = Blobs::with_capacity(array.len(), size);
    for row in array.iter() {
        out.push(row.map(AsRef::as_ref).unwrap_or_default(), max)?;
    }
    Ok(out)
}

fn dense<T: ArrowPrimitiveType, O: Default>(array: &PrimitiveArray<T>, of: impl Fn(T::Native) -> O) -> Vec<O> {
    let mut out: Vec<O> = array.values().iter().map(|v| of(*v)).collect();
    zero_nulls(&mut out, array.nulls());
    out
}

/// For conversions that can fail; what lies in the slot of a null must not make them fail.
fn try_dense<T: ArrowPrimitiveType, O: Default>(
    array: &PrimitiveArray<T>,
    of: impl Fn(T::Native) -> Pulled<O>,
) -> Pulled<Vec<O>> {
    array.iter().map(|v| v.map_or(Ok(O::default()), &of)).collect()
}

fn zero_nulls<O: Default>(out: &mut [O], nulls: Option<&NullBuffer>) {
    let Some(nulls) = nulls.filter(|n| n.null_count() > 0) else {
        return;
    };
    for (slot, valid) in out.iter_mut().zip(nulls) {
        if !valid {
            *slot = O::default();
        }
    }
}

fn is_null(nulls: Option<&NullBuffer>, row: usize) -> bool {
    nulls.is_some_and(|n| n.is_null(row))
}
