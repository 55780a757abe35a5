//! One value on its way into a column.

use std::borrow::Cow;
use std::fmt;

use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float64Builder, Int32Builder,
    Int64Builder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::types::Date32Type;
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_cast::parse::{Parser, string_to_datetime};
use arrow_schema::{ArrowError, SchemaRef};

use super::decimal::{self, Unfit};
use crate::columns::ColumnType;
use crate::stream::Column;

/// A value of the right type for its column.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Cell<'a> {
    Null,
    Boolean(bool),
    /// Of an int32 column too; it fits then.
    Int64(i64),
    Float64(f64),
    /// Scaled as its column says.
    Decimal(i128),
    /// Of a bytes column too: the text's bytes.
    Text(Cow<'a, str>),
    /// What is no text.
    Bytes(Cow<'a, [u8]>),
    /// Microseconds since the epoch, UTC.
    Timestamp(i64),
    /// Days since the epoch.
    Date(i32),
}

impl<'a> Cell<'a> {
    /// What a text cell of a file without types says, as csv: everything is written as text, and an empty cell is null.
    /// Spaces around what is no text do not count. The error says what was expected.
    pub fn of_plain(column: &Column, text: Cow<'a, str>) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::Null);
        }
        if matches!(column.ty, ColumnType::Text | ColumnType::Bytes) {
            return Ok(Self::Text(text));
        }
        let trimmed = text.trim_matches([' ', '\t']);
        let shown = || wrong(column, Shown(&text));
        match column.ty {
            _ if trimmed.is_empty() => Ok(Self::Null),
            ColumnType::Boolean => match trimmed {
                "true" | "TRUE" | "True" => Ok(Self::Boolean(true)),
                "false" | "FALSE" | "False" => Ok(Self::Boolean(false)),
                _ => Err(shown()),
            },
            ColumnType::Int32 | ColumnType::Int64 | ColumnType::Float64 => {
                let number = match trimmed.parse() {
                    Ok(i) => Number::Signed(i),
                    Err(_) => {
                        let float: f64 = trimmed.parse().map_err(|_| shown())?;
                        // Digits that are beyond what a float holds, as JSON refuses them too; `inf` is what it says.
                        if float.is_infinite() && trimmed.bytes().any(|b| b.is_ascii_digit()) {
                            return Err(shown());
                        }
                        Number::Float(float)
                    }
                };
                Self::of_number(column, number).map_err(|_| shown())
            }
            _ => Self::of_text(column, Cow::Owned(trimmed.to_owned())),
        }
    }

    /// What a text of a file with types says, as JSON: a number in quotes is no number.
    pub fn of_text(column: &Column, text: Cow<'a, str>) -> Result<Self, String> {
        let shown = |text: &str| wrong(column, Shown(text));
        match column.ty {
            ColumnType::Text | ColumnType::Bytes => Ok(Self::Text(text)),
            ColumnType::Timestamp => match string_to_datetime(&chrono::Utc, &text) {
                Ok(at) => Ok(Self::Timestamp(at.timestamp_micros())),
                Err(_) => Err(shown(&text)),
            },
            ColumnType::Date => Date32Type::parse(&text).map(Self::Date).ok_or_else(|| shown(&text)),
            ColumnType::Decimal { .. } => decimal_of(column, &text, Shown(&text)).map(Self::Decimal),
            _ => Err(shown(&text)),
        }
    }

    pub(super) fn of_number(column: &Column, number: Number) -> Result<Self, String> {
        let shown = || wrong(column, number);
        match column.ty {
            ColumnType::Float64 => Ok(Self::Float64(number.float())),
            ColumnType::Int64 => number.integer().map(Self::Int64).ok_or_else(shown),
            ColumnType::Int32 => {
                number.integer().filter(|i| i32::try_from(*i).is_ok()).map(Self::Int64).ok_or_else(shown)
            }
            ColumnType::Decimal { .. } => match number {
                Number::Float(float) if !decimal::float_is_exact(float) => {
                    Err(format!("{}: a number of so many digits is exact in quotes only", shown()))
                }
                _ => decimal_of(column, &number.to_string(), number).map(Self::Decimal),
            },
            _ => Err(shown()),
        }
    }
}

/// A text as what a decimal column keeps. Nothing is rounded or cut.
pub(super) fn decimal_of(column: &Column, text: &str, shown: impl fmt::Display) -> Result<i128, String> {
    let ColumnType::Decimal { precision, scale } = column.ty else { return Err(wrong(column, shown)) };
    decimal::exact(text, precision, scale).map_err(|unfit| match unfit {
        Unfit::NoNumber => wrong(column, shown),
        Unfit::TooFine => format!("{}: it has more than {scale} digits after the point", wrong(column, shown)),
        Unfit::TooLarge => format!("{}: it has too many digits before the point", wrong(column, shown)),
    })
}

/// What is wrong with a value.
pub(super) fn wrong(column: &Column, got: impl fmt::Display) -> String {
    format!("column {}: expected {}, got {got}", column.name, column.ty)
}

/// A text in a message, cut.
pub(super) struct Shown<'a>(pub(super) &'a str);
impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the text {:?}", self.0.chars().take(60).collect::<String>())
    }
}

/// The first column that must have a value and has none, as what is wrong with the row.
pub fn missing(columns: &[Column], cells: &[Cell<'_>]) -> Option<String> {
    let (column, _) = columns.iter().zip(cells).find(|(c, cell)| c.required && matches!(cell, Cell::Null))?;
    Some(format!("column {}: a value is required, and it is null or missing", column.name))
}

#[derive(Clone, Copy)]
pub(super) enum Number {
    Signed(i64),
    Unsigned(u64),
    Float(f64),
}

impl Number {
    fn float(self) -> f64 {
        match self {
            Self::Signed(i) => i as f64,
            Self::Unsigned(u) => u as f64,
            Self::Float(f) => f,
        }
    }
    /// The integer it is exactly; beyond 2^53 a float is not exact.
    fn integer(self) -> Option<i64> {
        match self {
            Self::Signed(i) => Some(i),
            Self::Unsigned(u) => i64::try_from(u).ok(),
            Self::Float(f) => (f.fract() == 0.0 && f.abs() <= 9_007_199_254_740_992.0).then_some(f as i64),
        }
    }
}
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signed(i) => fmt::Display::fmt(i, f),
            Self::Unsigned(u) => fmt::Display::fmt(u, f),
            Self::Float(v) => fmt::Display::fmt(v, f),
        }
    }
}

/// Gathers rows of cells.
pub struct Rows {
    builders: Vec<Builder>,
    rows: usize,
    bytes: usize,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl Rows {
    /// None yet.
    pub fn new(columns: &[Column]) -> Self {
        Self::of(columns.iter().map(|c| c.ty))
    }

    /// None yet, of columns of these types.
    pub fn of(types: impl IntoIterator<Item = ColumnType>) -> Self {
        Self { builders: types.into_iter().map(Builder::new).collect(), rows: 0, bytes: 0 }
    }

    /// One row: a cell for each column.
    pub fn push(&mut self, cells: &[Cell<'_>]) {
        for (builder, cell) in self.builders.iter_mut().zip(cells) {
            builder.push(cell);
            self.bytes += match cell {
                Cell::Text(text) => 8 + text.len(),
                Cell::Bytes(bytes) => 8 + bytes.len(),
                _ => 8,
            };
        }
        self.rows += 1;
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// About how many bytes they take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// As one batch. `schema` has the columns' types.
    pub fn finish(self, schema: SchemaRef) -> Result<RecordBatch, ArrowError> {
        let columns = self.builders.into_iter().map(|mut b| b.array().finish()).collect::<Vec<_>>();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        RecordBatch::try_new_with_options(schema, columns, &options)
    }
}

enum Builder {
    Boolean(BooleanBuilder),
    Int32(Int32Builder),
    Int64(Int64Builder),
    Float64(Float64Builder),
    Decimal(Decimal128Builder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    Date(Date32Builder),
}

impl Builder {
    fn new(ty: ColumnType) -> Self {
        match ty {
            ColumnType::Boolean => Self::Boolean(BooleanBuilder::new()),
            ColumnType::Int32 => Self::Int32(Int32Builder::new()),
            ColumnType::Int64 => Self::Int64(Int64Builder::new()),
            ColumnType::Float64 => Self::Float64(Float64Builder::new()),
            ColumnType::Decimal { .. } => Self::Decimal(Decimal128Builder::new().with_data_type(ty.arrow())),
            ColumnType::Text => Self::Text(StringBuilder::new()),
            ColumnType::Bytes => Self::Bytes(BinaryBuilder::new()),
            ColumnType::Timestamp => Self::Timestamp(TimestampMicrosecondBuilder::new().with_data_type(ty.arrow())),
            ColumnType::Date => Self::Date(Date32Builder::new()),
        }
    }

    /// A cell of another type than the column's cannot be: it was made for this column. It would become a null.
    fn push(&mut self, cell: &Cell<'_>) {
        match (self, cell) {
            (Self::Boolean(b), Cell::Boolean(v)) => b.append_value(*v),
            (Self::Boolean(b), _) => b.append_null(),
            (Self::Int32(b), Cell::Int64(v)) => b.append_option(i32::try_from(*v).ok()),
            (Self::Int32(b), _) => b.append_null(),
            (Self::Int64(b), Cell::Int64(v)) => b.append_value(*v),
            (Self::Int64(b), _) => b.append_null(),
            (Self::Float64(b), Cell::Float64(v)) => b.append_value(*v),
            (Self::Float64(b), _) => b.append_null(),
            (Self::Decimal(b), Cell::Decimal(v)) => b.append_value(*v),
            (Self::Decimal(b), _) => b.append_null(),
            (Self::Text(b), Cell::Text(v)) => b.append_value(v),
            (Self::Text(b), _) => b.append_null(),
            (Self::Bytes(b), Cell::Text(v)) => b.append_value(v.as_bytes()),
            (Self::Bytes(b), Cell::Bytes(v)) => b.append_value(v),
            (Self::Bytes(b), _) => b.append_null(),
            (Self::Timestamp(b), Cell::Timestamp(v)) => b.append_value(*v),
            (Self::Timestamp(b), _) => b.append_null(),
            (Self::Date(b), Cell::Date(v)) => b.append_value(*v),
            (Self::Date(b), _) => b.append_null(),
        }
    }

    fn array(&mut self) -> &mut dyn ArrayBuilder {
        match self {
            Self::Boolean(b) => b,
            Self::Int32(b) => b,
            Self::Int64(b) => b,
            Self::Float64(b) => b,
            Self::Decimal(b) => b,
            Self::Text(b) => b,
            Self::Bytes(b) => b,
            Self::Timestamp(b) => b,
            Self::Date(b) => b,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_number_that_no_float_holds_is_refused_and_infinity_is_what_it_says() {
        let column = Column { name: "f".to_owned(), ty: ColumnType::Float64, required: false };
        let of = |text: &'static str| Cell::of_plain(&column, Cow::Borrowed(text));
        assert_eq!(of(" 1e308"), Ok(Cell::Float64(1e308)));
        assert_eq!(of("-inf"), Ok(Cell::Float64(f64::NEG_INFINITY)));
        for beyond in ["1e400", "-1e309"] {
            assert_eq!(of(beyond), Err(format!("column f: expected float64, got the text \"{beyond}\"")));
        }
    }
}
