//! Columns of other systems as columns of a schema.

use std::sync::Arc;

use arrow_array::builder::Decimal128Builder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, new_null_array};
use arrow_cast::cast::{CastOptions, cast_with_options};
use arrow_schema::DataType;

use super::cell::{Shown, decimal_of, wrong};
use crate::columns::{ColumnType, Kind, kind_of};
use crate::stream::Column;

/// A column in its schema's type.
#[derive(Debug, Clone)]
pub struct Fitted {
    /// The values; null where one did not fit.
    pub values: ArrayRef,
    /// Rows whose value did not fit, or that have none where one is required, with the reason.
    pub bad: Vec<(usize, String)>,
}

/// A column as `column` wants it. `there`: what the file has under that name, if anything; `rows`: how many. Values are
/// never changed: what does not fit exactly is bad. The error says that no value of that type fits.
pub fn fit(column: &Column, there: Option<&ArrayRef>, rows: usize) -> Result<Fitted, String> {
    let want = column.ty.arrow();
    let mut bad = Vec::new();
    // A column without a type has no values either, and says so of none of its rows.
    let values = match there.filter(|values| *values.data_type() != DataType::Null) {
        None => new_null_array(&want, rows),
        Some(values) => {
            let ty = values.data_type();
            if !fits(column.ty, ty) {
                return Err(wrong(column, format_args!("a column of type {ty}")));
            }
            if matches!(column.ty, ColumnType::Decimal { .. }) && kind_of(ty) == Kind::Text {
                return decimals(column, values);
            }
            let cast = |values: &ArrayRef, ty: &DataType| {
                let options = CastOptions { safe: true, ..CastOptions::default() };
                cast_with_options(values, ty, &options).map_err(|e| wrong(column, e))
            };
            let fitted = cast(values, &want)?;
            // A value that comes back as another one was rounded or cut: such as 1.5 in an int64 column.
            let back = if exact(column.ty, ty) { None } else { Some(cast(&fitted, ty)?) };
            for row in 0..rows {
                let lost = fitted.is_null(row) && !values.is_null(row);
                let changed = || {
                    let Some(back) = &back else { return false };
                    !values.is_null(row) && values.slice(row, 1) != back.slice(row, 1)
                };
                if lost || changed() {
                    let shown = arrow_cast::display::array_value_to_string(values, row).unwrap_or_default();
                    let shown: String = shown.chars().take(60).collect();
                    bad.push((row, wrong(column, shown)));
                }
            }
            fitted
        }
    };
    Ok(complete(column, values, bad))
}

/// Texts as decimals, each one exactly.
fn decimals(column: &Column, values: &ArrayRef) -> Result<Fitted, String> {
    let texts = arrow_cast::cast(values, &DataType::Utf8).map_err(|e| wrong(column, e))?;
    let mut builder = Decimal128Builder::with_capacity(texts.len()).with_data_type(column.ty.arrow());
    let mut bad = Vec::new();
    for (row, text) in texts.as_string::<i32>().iter().enumerate() {
        match text.map(|text| decimal_of(column, text, Shown(text))).transpose() {
            Ok(value) => builder.append_option(value),
            Err(reason) => {
                builder.append_null();
                bad.push((row, reason));
            }
        }
    }
    Ok(complete(column, Arc::new(builder.finish()), bad))
}

/// With the rows that lack a value where one is required.
fn complete(column: &Column, values: ArrayRef, mut bad: Vec<(usize, String)>) -> Fitted {
    if column.required && values.null_count() > 0 {
        let lost: std::collections::BTreeSet<usize> = bad.iter().map(|(row, _)| *row).collect();
        for row in (0..values.len()).filter(|row| values.is_null(*row) && !lost.contains(row)) {
            bad.push((row, format!("column {}: a value is required, and it is null or missing", column.name)));
        }
        bad.sort_by_key(|(row, _)| *row);
    }
    Fitted { values, bad }
}

/// Whether values of an Arrow type can be meant for a column, by the rules of JSON: a text is no number.
fn fits(want: ColumnType, ty: &DataType) -> bool {
    let kind = kind_of(ty);
    match want {
        ColumnType::Boolean => kind == Kind::Boolean || *ty == DataType::Null,
        ColumnType::Int32 | ColumnType::Int64 => ty.is_numeric() || *ty == DataType::Null,
        ColumnType::Float64 => ty.is_numeric() || *ty == DataType::Null,
        ColumnType::Decimal { .. } => ty.is_numeric() || kind == Kind::Text,
        ColumnType::Text => kind == Kind::Text,
        ColumnType::Bytes => matches!(kind, Kind::Text | Kind::Bytes),
        ColumnType::Timestamp => matches!(kind, Kind::Timestamp | Kind::Text),
        ColumnType::Date => matches!(kind, Kind::Date | Kind::Text),
    }
}

/// Whether a cast either keeps a value or makes it null, so that nobody need look whether it was changed.
fn exact(want: ColumnType, ty: &DataType) -> bool {
    match want {
        ColumnType::Int32 | ColumnType::Int64 => ty.is_integer() || *ty == DataType::Null,
        ColumnType::Decimal { .. } => ty.is_integer() || *ty == DataType::Null,
        // A float64 is what a number is taken as, as in JSON; nanoseconds are cut, as everywhere in the host.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow_array::types::Decimal128Type;
    use arrow_array::{Float64Array, StringArray};

    #[test]
    fn a_decimal_of_a_file_is_exact_or_bad() {
        let ty = ColumnType::Decimal { precision: 10, scale: 2 };
        let column = Column { name: "d".to_owned(), ty, required: true };
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("1.5"), Some("1.505"), None, Some("x")]));
        let fitted = fit(&column, Some(&texts), 4).unwrap();
        assert_eq!(fitted.values.as_primitive::<Decimal128Type>().value(0), 150);
        assert_eq!(fitted.values.null_count(), 3);
        let reasons: Vec<(usize, &str)> = fitted.bad.iter().map(|(row, text)| (*row, text.as_str())).collect();
        assert_eq!(
            reasons,
            [
                (
                    1,
                    "column d: expected decimal(10,2), got the text \"1.505\": it has more than 2 digits after the point"
                ),
                (2, "column d: a value is required, and it is null or missing"),
                (3, "column d: expected decimal(10,2), got the text \"x\""),
            ]
        );
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.5, 1.505]));
        let fitted = fit(&column, Some(&floats), 2).unwrap();
        assert_eq!(fitted.bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1]);
    }
}
