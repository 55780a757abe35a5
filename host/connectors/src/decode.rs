//! JSON records to rows, by the stream's schema. Every record becomes either a row or a dead letter that names the column.
//!
//! Strict where leniency would change values in silence: a JSON string is no number, `1.5` is no int64, a number is no
//! timestamp. Lenient where nothing is lost: unknown fields are ignored, a missing field is null, `2.0` is an int64, a
//! timestamp without a zone is UTC, and a decimal may be a string (JSON numbers do not hold all of them).

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use arrow_array::RecordBatch;
use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float64Builder, Int32Builder,
    Int64Builder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::types::{Date32Type, Decimal128Type};
use arrow_cast::parse::{Parser, parse_decimal, string_to_datetime};
use arrow_schema::SchemaRef;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use weir_model::Fault;
use weir_model::columns::ColumnType;
use weir_model::port::{Decode, Decoded, Payload, Polled, Record};
use weir_model::stream::{Column, DeadLetter, StreamDef};

/// Longest record; a longer one is a dead letter.
pub const RECORD_BYTES: usize = 1 << 20;
/// How much of a record a dead letter keeps.
const RAW_BYTES: usize = 65_536;

/// Decodes JSON objects.
pub struct Json {
    schema: SchemaRef,
    columns: Vec<Column>,
    by_name: HashMap<String, usize>,
}

impl Json {
    /// For a stream.
    pub fn new(def: &StreamDef) -> Self {
        let columns = def.schema.0.clone();
        let by_name = columns.iter().enumerate().map(|(i, c)| (c.name.clone(), i)).collect();
        Self { schema: def.schema(), columns, by_name }
    }

    fn row<'a>(&self, record: &'a Record, cells: &mut [Cell<'a>]) -> Result<(), String> {
        if record.value.len() > RECORD_BYTES {
            return Err(format!("the record is longer than {RECORD_BYTES} bytes"));
        }
        let text =
            std::str::from_utf8(&record.value).map_err(|e| format!("not UTF-8 after byte {}", e.valid_up_to()))?;
        cells.fill(Cell::Null);
        let mut json = serde_json::Deserializer::from_str(text);
        json.deserialize_any(RowVisitor { json: self, cells }).and_then(|()| json.end()).map_err(|e| e.to_string())?;
        match self.columns.iter().zip(cells.iter()).find(|(c, cell)| c.required && matches!(cell, Cell::Null)) {
            Some((column, _)) => Err(format!("column {}: a value is required, and it is null or missing", column.name)),
            None => Ok(()),
        }
    }
}

impl Decode for Json {
    fn decode(&self, polled: Polled) -> Result<Decoded, Fault> {
        let range = polled.range;
        let records = match polled.payload {
            Payload::Rows { rows, offsets } => return Ok(Decoded { range, rows, offsets, dead: Vec::new() }),
            Payload::Records(records) => records,
        };
        let mut builders: Vec<Builder> = self.columns.iter().map(|c| Builder::new(c.ty)).collect();
        let (mut offsets, mut dead) = (Vec::with_capacity(records.len()), Vec::new());
        let mut cells = vec![Cell::Null; self.columns.len()];
        for record in &records {
            match self.row(record, &mut cells) {
                Ok(()) => {
                    builders.iter_mut().zip(&cells).for_each(|(b, cell)| b.push(cell));
                    offsets.push(record.offset);
                }
                Err(reason) => dead.push(DeadLetter {
                    partition: range.partition,
                    offset: record.offset,
                    reason,
                    raw: String::from_utf8_lossy(&record.value[..record.value.len().min(RAW_BYTES)]).into_owned(),
                }),
            }
        }
        let columns = builders.into_iter().map(|mut b| b.array().finish()).collect::<Vec<_>>();
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(offsets.len()));
        let rows =
            RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(Fault::internal)?;
        Ok(Decoded { range, rows, offsets, dead })
    }
}

/// A value of the right type for its column.
#[derive(Debug, Clone)]
enum Cell<'a> {
    Null,
    Boolean(bool),
    Int64(i64),
    Float64(f64),
    Decimal(i128),
    Text(Cow<'a, str>),
    Timestamp(i64),
    Date(i32),
}

struct RowVisitor<'j, 'c, 'de> {
    json: &'j Json,
    cells: &'c mut [Cell<'de>],
}

impl<'de> Visitor<'de> for RowVisitor<'_, '_, 'de> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            match self.json.by_name.get(key.as_ref()) {
                Some(&i) => self.cells[i] = map.next_value_seed(CellSeed(&self.json.columns[i]))?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct Key<'a>(Cow<'a, str>);
impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }
            fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(v)))
            }
            fn visit_str<E>(self, v: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(v.to_owned())))
            }
        }
        d.deserialize_str(V)
    }
}

struct CellSeed<'c>(&'c Column);

impl<'de> DeserializeSeed<'de> for CellSeed<'_> {
    type Value = Cell<'de>;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Cell<'de>, D::Error> {
        d.deserialize_any(self)
    }
}

impl CellSeed<'_> {
    fn wrong<E: serde::de::Error, T>(&self, got: impl fmt::Display) -> Result<T, E> {
        Err(E::custom(format_args!("column {}: expected {}, got {got}", self.0.name, self.0.ty)))
    }

    fn text<'de, E: serde::de::Error>(&self, text: Cow<'de, str>) -> Result<Cell<'de>, E> {
        let shown = |t: &str| format!("the text {:?}", t.chars().take(60).collect::<String>());
        match self.0.ty {
            ColumnType::Text | ColumnType::Bytes => Ok(Cell::Text(text)),
            ColumnType::Timestamp => match string_to_datetime(&chrono::Utc, &text) {
                Ok(at) => Ok(Cell::Timestamp(at.timestamp_micros())),
                Err(_) => self.wrong(shown(&text)),
            },
            ColumnType::Date => {
                Date32Type::parse(&text).map_or_else(|| self.wrong(shown(&text)), |d| Ok(Cell::Date(d)))
            }
            ColumnType::Decimal { precision, scale } => parse_decimal::<Decimal128Type>(&text, precision, scale)
                .map_or_else(|_| self.wrong(shown(&text)), |v| Ok(Cell::Decimal(v))),
            _ => self.wrong(shown(&text)),
        }
    }

    fn number<'de, E: serde::de::Error>(&self, number: Number) -> Result<Cell<'de>, E> {
        match (self.0.ty, number) {
            (ColumnType::Float64, _) => Ok(Cell::Float64(number.float())),
            (ColumnType::Int64, _) => number.integer().map_or_else(|| self.wrong(number), |i| Ok(Cell::Int64(i))),
            (ColumnType::Int32, _) => match number.integer().filter(|i| i32::try_from(*i).is_ok()) {
                Some(i) => Ok(Cell::Int64(i)),
                None => self.wrong(number),
            },
            (ColumnType::Decimal { precision, scale }, _) => {
                parse_decimal::<Decimal128Type>(&number.to_string(), precision, scale)
                    .map_or_else(|_| self.wrong(number), |v| Ok(Cell::Decimal(v)))
            }
            _ => self.wrong(number),
        }
    }
}

#[derive(Clone, Copy)]
enum Number {
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

impl<'de> Visitor<'de> for CellSeed<'_> {
    type Value = Cell<'de>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for column {}", self.0.ty, self.0.name)
    }
    fn visit_unit<E>(self) -> Result<Cell<'de>, E> {
        Ok(Cell::Null)
    }
    fn visit_bool<E: serde::de::Error>(self, v: bool) -> Result<Cell<'de>, E> {
        if self.0.ty == ColumnType::Boolean { Ok(Cell::Boolean(v)) } else { self.wrong(v) }
    }
    fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<Cell<'de>, E> {
        self.number(Number::Signed(v))
    }
    fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<Cell<'de>, E> {
        self.number(Number::Unsigned(v))
    }
    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<Cell<'de>, E> {
        self.number(Number::Float(v))
    }
    fn visit_borrowed_str<E: serde::de::Error>(self, v: &'de str) -> Result<Cell<'de>, E> {
        self.text(Cow::Borrowed(v))
    }
    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Cell<'de>, E> {
        self.text(Cow::Owned(v.to_owned()))
    }
    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Cell<'de>, A::Error> {
        Err(A::Error::custom(format_args!("column {}: expected {}, got an object", self.0.name, self.0.ty)))
    }
    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, _: A) -> Result<Cell<'de>, A::Error> {
        Err(A::Error::custom(format_args!("column {}: expected {}, got an array", self.0.name, self.0.ty)))
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

    /// A cell of another type than the column's cannot be: the seed made it for this column. It would become a null.
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

/// The records of lines, for tests of other modules too.
#[cfg(test)]
pub(crate) fn records(lines: &[&str]) -> Polled {
    let records = lines.iter().enumerate().map(|(i, line)| Record {
        offset: i as u64,
        key: None,
        value: bytes::Bytes::copy_from_slice(line.as_bytes()),
        enqueued: None,
        headers: Vec::new(),
    });
    let range = weir_model::OffsetRange { partition: 0, from: 0, to: lines.len() as u64 };
    Polled { range, payload: Payload::Records(records.collect()) }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
