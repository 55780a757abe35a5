//! Columns as text: the canonical rendering of any kind, and JSON for scripts.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray, RecordBatch, StructArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_json::writer::{Encoder, EncoderFactory, EncoderOptions, NullableEncoder, make_encoder};
use arrow_schema::{ArrowError, DataType as D, Field, FieldRef};
use weir_model::columns::kind_of;
use weir_model::{DataError, Kind, Time};

use super::{Blobs, ColumnError, pull};

/// Integers beyond this are no longer exact in a double, so JSON carries them as text.
const EXACT: i128 = 1 << 53;

fn failed(error: impl std::fmt::Display) -> ColumnError {
    DataError::Failed(error.to_string()).into()
}

/// Every row as text; nulls are empty. Timestamps are RFC 3339 in UTC, bytes hexadecimal, nested values JSON.
pub fn texts(array: &ArrayRef, max: u64) -> Result<Blobs, ColumnError> {
    let array = &pull::plain(array, max)?;
    let dates;
    let array = match array.data_type() {
        D::Utf8 | D::LargeUtf8 | D::Utf8View | D::Null => return pull::blobs(array, max),
        D::Timestamp(..) => return times(array, max),
        ty if kind_of(ty) == Kind::Json => return json_values(array, max),
        D::Date64 => {
            dates = arrow_cast::cast(array, &D::Date32).map_err(failed)?;
            &dates
        }
        _ => array,
    };
    let options = FormatOptions::new().with_display_error(true);
    let formatter = ArrayFormatter::try_new(array, &options).map_err(failed)?;
    let mut out = Blobs::with_capacity(array.len(), array.len() * 8);
    let mut text = String::new();
    for row in 0..array.len() {
        if array.is_valid(row) {
            text.clear();
            write!(text, "{}", formatter.value(row)).map_err(failed)?;
            out.data.extend_from_slice(text.as_bytes());
        }
        out.end_value(max)?;
    }
    Ok(out)
}

fn times(array: &ArrayRef, max: u64) -> Result<Blobs, ColumnError> {
    let mut out = Blobs::with_capacity(array.len(), array.len() * 27);
    for (row, micros) in pull::timestamps(array, max)?.into_iter().enumerate() {
        if array.is_valid(row) {
            out.data.extend_from_slice(Time(micros).to_string().as_bytes());
        }
        out.end_value(max)?;
    }
    Ok(out)
}

/// Every row of a nested column as JSON text; nulls are empty.
pub fn json_values(array: &ArrayRef, max: u64) -> Result<Blobs, ColumnError> {
    let options = options();
    let field: FieldRef = Arc::new(Field::new("", array.data_type().clone(), true));
    let mut encoder = make_encoder(&field, array, &options).map_err(failed)?;
    let mut out = Blobs::with_capacity(array.len(), array.len() * 8);
    for row in 0..array.len() {
        if !encoder.is_null(row) {
            encoder.encode(row, &mut out.data);
        }
        out.end_value(max)?;
    }
    Ok(out)
}

/// Rows as JSON objects, one after the other: `each` gets the row and its text. Nulls are written. Numbers that a
/// double cannot hold exactly are strings.
pub fn json_rows(
    batch: &RecordBatch,
    mut each: impl FnMut(usize, &[u8]) -> Result<(), ColumnError>,
) -> Result<(), ColumnError> {
    let options = options();
    let field: FieldRef = Arc::new(Field::new_struct("", batch.schema().fields().clone(), false));
    let rows = StructArray::from(batch.clone());
    let mut encoder = make_encoder(&field, &rows, &options).map_err(failed)?;
    let mut text = Vec::new();
    for row in 0..batch.num_rows() {
        text.clear();
        encoder.encode(row, &mut text);
        each(row, &text)?;
    }
    Ok(())
}

/// Rows as one JSON array of objects.
pub fn json(batch: &RecordBatch, max: u64) -> Result<String, ColumnError> {
    let mut out = vec![b'['];
    json_rows(batch, |row, text| {
        if row > 0 {
            out.push(b',');
        }
        out.extend_from_slice(text);
        if out.len() as u64 > max {
            return Err(ColumnError::TooBig);
        }
        Ok(())
    })?;
    out.push(b']');
    String::from_utf8(out).map_err(failed)
}

fn options() -> EncoderOptions {
    EncoderOptions::default().with_explicit_nulls(true).with_encoder_factory(Arc::new(Exact))
}

/// Encodes what JSON cannot hold exactly, or what arrow-json renders by the time zone's name.
#[derive(Debug)]
struct Exact;

impl EncoderFactory for Exact {
    fn make_default_encoder<'a>(
        &self,
        _field: &'a FieldRef,
        array: &'a dyn Array,
        _options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let encoder: Box<dyn Encoder + 'a> = match array.data_type() {
            D::Int64 => Box::new(Integers(array.as_primitive::<Int64Type>())),
            D::UInt64 => Box::new(Integers(array.as_primitive::<UInt64Type>())),
            D::Decimal64(..) => Box::new(Numbers(array.as_primitive::<Decimal64Type>())),
            D::Decimal128(..) => Box::new(Numbers(array.as_primitive::<Decimal128Type>())),
            D::Decimal256(..) => Box::new(Numbers(array.as_primitive::<Decimal256Type>())),
            D::Timestamp(..) => Box::new(Times(
                pull::timestamps(&array.slice(0, array.len()), u64::MAX)
                    .map_err(|_| ArrowError::CastError("a time is out of range".to_owned()))?,
            )),
            _ => return Ok(None),
        };
        Ok(Some(NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

fn number(text: std::fmt::Arguments<'_>, exact: bool, out: &mut Vec<u8>) {
    use std::io::Write as _;
    // Writing into a Vec cannot fail.
    let _ = if exact { write!(out, "{text}") } else { write!(out, "\"{text}\"") };
}

struct Integers<'a, T: ArrowPrimitiveType>(&'a PrimitiveArray<T>);
impl<T: ArrowPrimitiveType<Native: Into<i128>>> Encoder for Integers<'_, T> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let value: i128 = self.0.value(row).into();
        number(format_args!("{value}"), value.abs() <= EXACT, out);
    }
}

struct Numbers<'a, T: DecimalType>(&'a PrimitiveArray<T>);
impl<T: DecimalType> Encoder for Numbers<'_, T> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let text = self.0.value_as_string(row);
        let digits = text.chars().filter(char::is_ascii_digit).collect::<String>();
        let exact = digits.parse::<i128>().is_ok_and(|unscaled| unscaled <= EXACT);
        number(format_args!("{text}"), exact, out);
    }
}

struct Times(Vec<i64>);
impl Encoder for Times {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        number(format_args!("{}", Time(self.0[row])), false, out);
    }
}
