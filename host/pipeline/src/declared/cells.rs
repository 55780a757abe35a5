//! Columns of answers in the types of outputs, and single cells of them.

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Date32Type, Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef};
use arrow_cast::cast::{CastOptions, cast_with_options};
use arrow_schema::DataType as D;
use weir_model::columns::output_type;
use weir_model::zone::TimeFormat;
use weir_model::{DataError, Kind, Scalar, Time, Zone};

/// The kind that a column of this type has in `[detect]`; none for what has to be cast in SQL first.
pub fn kind(ty: &D) -> Option<Kind> {
    match ty {
        D::Time32(_) | D::Time64(_) | D::Duration(_) => None,
        ty => Some(weir_model::columns::kind_of(ty)).filter(|kind| *kind != Kind::Json),
    }
}

/// A column in the type that outputs have for its kind. A value that does not fit is an error, never a silent null.
pub fn plain(column: &ArrayRef, kind: Kind) -> Result<ArrayRef, DataError> {
    let ty = output_type(kind);
    if *column.data_type() == ty {
        return Ok(column.clone());
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, &ty, &options).map_err(|e| DataError::Failed(e.to_string()))
}

/// A cell of a column in an output's type. A date is its text.
pub fn scalar(column: &ArrayRef, row: usize) -> Scalar {
    if row >= column.len() || column.is_null(row) {
        return Scalar::Null;
    }
    match column.data_type() {
        D::Boolean => Scalar::Boolean(column.as_boolean().value(row)),
        D::Int64 => Scalar::Int64(column.as_primitive::<Int64Type>().value(row)),
        D::Float64 => Scalar::Float64(column.as_primitive::<Float64Type>().value(row)),
        D::Decimal128(..) => Scalar::Decimal(column.as_primitive::<Decimal128Type>().value_as_string(row)),
        D::Utf8 => Scalar::Text(column.as_string::<i32>().value(row).to_owned()),
        D::Binary => Scalar::Bytes(column.as_binary::<i32>().value(row).to_owned()),
        D::Timestamp(..) => Scalar::Timestamp(column.as_primitive::<TimestampMicrosecondType>().value(row)),
        D::Date32 => match column.as_primitive::<Date32Type>().value_as_date(row) {
            Some(date) => Scalar::Text(date.to_string()),
            None => Scalar::Null,
        },
        _ => Scalar::Null,
    }
}

/// A cell as text, for keys and messages; empty for null. Times are RFC 3339 in the zone, or in the format.
pub fn text(column: &ArrayRef, row: usize, zone: Zone, format: Option<&TimeFormat>) -> String {
    match scalar(column, row) {
        Scalar::Null => String::new(),
        Scalar::Boolean(v) => v.to_string(),
        Scalar::Int64(v) => v.to_string(),
        Scalar::Float64(v) => v.to_string(),
        Scalar::Decimal(v) => plain_decimal(&v).to_owned(),
        Scalar::Text(v) => v,
        Scalar::Bytes(v) => v.iter().map(|b| format!("{b:02x}")).collect(),
        Scalar::Timestamp(v) => match format {
            Some(format) => zone.format(Time(v), format),
            None => zone.rfc3339(Time(v)),
        },
    }
}

/// Outputs keep nine fraction digits; those that are zero say nothing.
fn plain_decimal(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// The boolean of a cell.
pub fn boolean(column: &ArrayRef, row: usize) -> Option<bool> {
    match scalar(column, row) {
        Scalar::Boolean(v) => Some(v),
        _ => None,
    }
}

/// What rows are ordered by: a timestamp's or an integer's value; null comes first.
pub fn rank(column: &ArrayRef, row: usize) -> Option<i64> {
    match scalar(column, row) {
        Scalar::Int64(v) | Scalar::Timestamp(v) => Some(v),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow_array::{Decimal128Array, Int32Array, StringArray, TimestampMicrosecondArray, UInt64Array};

    use super::*;

    fn shown(column: ArrayRef) -> Vec<String> {
        let kind = kind(column.data_type()).unwrap();
        let plain = plain(&column, kind).unwrap();
        (0..plain.len()).map(|row| text(&plain, row, "Asia/Seoul".parse().unwrap(), None)).collect()
    }

    #[test]
    fn cells_as_text() {
        assert_eq!(shown(Arc::new(Int32Array::from(vec![Some(-5), None]))), ["-5", ""]);
        assert_eq!(shown(Arc::new(UInt64Array::from(vec![u64::MAX]))), ["18446744073709551615"]);
        assert_eq!(shown(Arc::new(StringArray::from(vec!["a"]))), ["a"]);
        let decimals = Decimal128Array::from(vec![12_50, 100, 0]).with_precision_and_scale(10, 2).unwrap();
        assert_eq!(shown(Arc::new(decimals)), ["12.5", "1", "0"]);
        let times = TimestampMicrosecondArray::from(vec![0]).with_timezone("UTC");
        assert_eq!(shown(Arc::new(times)), ["1970-01-01T09:00:00+09:00"]);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let large = Decimal128Array::from(vec![10_i128.pow(37)]).with_precision_and_scale(38, 0).unwrap();
        assert!(plain(&(Arc::new(large) as ArrayRef), Kind::Decimal).is_err());
        assert_eq!(kind(&D::Time64(arrow_schema::TimeUnit::Microsecond)), None);
        assert_eq!(kind(&D::List(Arc::new(arrow_schema::Field::new("x", D::Int64, true)))), None);
    }
}
