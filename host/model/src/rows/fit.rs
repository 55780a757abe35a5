//! Columns of other systems as columns of a schema.

use arrow_array::{Array, ArrayRef, new_null_array};
use arrow_cast::cast::{CastOptions, cast_with_options};
use arrow_schema::DataType;

use super::cell::wrong;
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
    if column.required && values.null_count() > 0 {
        let lost: std::collections::BTreeSet<usize> = bad.iter().map(|(row, _)| *row).collect();
        for row in (0..rows).filter(|row| values.is_null(*row) && !lost.contains(row)) {
            bad.push((row, format!("column {}: a value is required, and it is null or missing", column.name)));
        }
        bad.sort_by_key(|(row, _)| *row);
    }
    Ok(Fitted { values, bad })
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
    let kind = kind_of(ty);
    match want {
        ColumnType::Int32 | ColumnType::Int64 => ty.is_integer() || *ty == DataType::Null,
        ColumnType::Decimal { .. } => ty.is_integer() || kind == Kind::Text || *ty == DataType::Null,
        // A float64 is what a number is taken as, as in JSON; nanoseconds are cut, as everywhere in the host.
        _ => true,
    }
}
