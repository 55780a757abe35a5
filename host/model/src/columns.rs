//! Kinds of columns, and how they map to Arrow.

use std::fmt;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// The kinds a guest knows. Mirrors `kind` of the WIT: smaller ints widen to int64, uint64 is decimal(20,0), time and
/// duration are int64 microseconds, lists, structs, maps and intervals are json.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Kind {
    Boolean,
    Int64,
    Float64,
    Decimal,
    Text,
    Bytes,
    /// Microseconds since the epoch, UTC.
    Timestamp,
    Date,
    Json,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Boolean => "boolean",
            Self::Int64 => "int64",
            Self::Float64 => "float64",
            Self::Decimal => "decimal",
            Self::Text => "text",
            Self::Bytes => "bytes",
            Self::Timestamp => "timestamp",
            Self::Date => "date",
            Self::Json => "json",
        })
    }
}

/// The kind that a guest sees an Arrow type as.
pub fn kind_of(ty: &DataType) -> Kind {
    use DataType as D;
    match ty {
        D::Boolean => Kind::Boolean,
        D::Int8 | D::Int16 | D::Int32 | D::Int64 | D::UInt8 | D::UInt16 | D::UInt32 => Kind::Int64,
        D::Time32(_) | D::Time64(_) | D::Duration(_) => Kind::Int64,
        D::Float16 | D::Float32 | D::Float64 => Kind::Float64,
        D::UInt64 | D::Decimal32(..) | D::Decimal64(..) | D::Decimal128(..) | D::Decimal256(..) => Kind::Decimal,
        D::Utf8 | D::LargeUtf8 | D::Utf8View | D::Null => Kind::Text,
        D::Binary | D::LargeBinary | D::BinaryView | D::FixedSizeBinary(_) => Kind::Bytes,
        D::Timestamp(..) => Kind::Timestamp,
        D::Date32 | D::Date64 => Kind::Date,
        D::Dictionary(_, value) => kind_of(value),
        _ => Kind::Json,
    }
}

/// Whether a table of the lake can have a column of this name, which Delta readers have to agree on.
pub fn is_table_column(name: &str) -> bool {
    !name.is_empty() && !name.contains([' ', ',', ';', '{', '}', '(', ')', '\n', '\t', '='])
}

/// The Arrow type of timestamps everywhere in the host: microseconds, UTC. Delta's `timestamp`.
pub fn timestamp_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// A column type as written in a stream or table definition: `boolean`, `int32`, `int64`, `float64`, `decimal(P,S)`,
/// `text`, `bytes`, `timestamp`, `date`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ColumnType {
    Boolean,
    Int32,
    Int64,
    Float64,
    Decimal { precision: u8, scale: i8 },
    Text,
    Bytes,
    Timestamp,
    Date,
}

impl ColumnType {
    /// As Arrow's type.
    pub fn arrow(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::Float64 => DataType::Float64,
            Self::Decimal { precision, scale } => DataType::Decimal128(precision, scale),
            Self::Text => DataType::Utf8,
            Self::Bytes => DataType::Binary,
            Self::Timestamp => timestamp_type(),
            Self::Date => DataType::Date32,
        }
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Boolean => "boolean",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Float64 => "float64",
            Self::Decimal { precision, scale } => return write!(f, "decimal({precision},{scale})"),
            Self::Text => "text",
            Self::Bytes => "bytes",
            Self::Timestamp => "timestamp",
            Self::Date => "date",
        })
    }
}
impl std::str::FromStr for ColumnType {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        Ok(match s {
            "boolean" => Self::Boolean,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "float64" => Self::Float64,
            "text" => Self::Text,
            "bytes" => Self::Bytes,
            "timestamp" => Self::Timestamp,
            "date" => Self::Date,
            _ => return decimal(s).ok_or_else(|| {
                format!("'{s}' is no column type: use boolean, int32, int64, float64, decimal(P,S), text, bytes, timestamp or date")
            }),
        })
    }
}
fn decimal(s: &str) -> Option<ColumnType> {
    let (p, s) = s.strip_prefix("decimal(")?.strip_suffix(')')?.split_once(',')?;
    let (precision, scale) = (p.trim().parse().ok()?, s.trim().parse().ok()?);
    let fits = (1..=38).contains(&precision) && scale >= 0 && scale <= i8::try_from(precision).ok()?;
    fits.then_some(ColumnType::Decimal { precision, scale })
}
impl Serialize for ColumnType {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for ColumnType {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

/// A column as a guest sees it and as a plugin's `describe` declares outputs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FieldDef {
    /// Column name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Whether it may be null.
    pub nullable: bool,
}

/// The type in which an output column of a kind is kept. Decimals of outputs are decimal(38,9), json is text.
pub fn output_column(kind: Kind) -> ColumnType {
    match kind {
        Kind::Boolean => ColumnType::Boolean,
        Kind::Int64 => ColumnType::Int64,
        Kind::Float64 => ColumnType::Float64,
        Kind::Decimal => ColumnType::Decimal { precision: 38, scale: 9 },
        Kind::Text | Kind::Json => ColumnType::Text,
        Kind::Bytes => ColumnType::Bytes,
        Kind::Timestamp => ColumnType::Timestamp,
        Kind::Date => ColumnType::Date,
    }
}

/// The Arrow type of [`output_column`].
pub fn output_type(kind: Kind) -> DataType {
    output_column(kind).arrow()
}

/// The Arrow schema of declared output fields.
pub fn output_schema(fields: &[FieldDef]) -> SchemaRef {
    Arc::new(Schema::new(
        fields.iter().map(|f| Field::new(&f.name, output_type(f.kind), f.nullable)).collect::<Vec<_>>(),
    ))
}

/// One value: what a guest binds to a query or a rule, or puts into an alarm's fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Scalar {
    Null,
    Boolean(bool),
    Int64(i64),
    Float64(#[serde(with = "float")] f64),
    /// Decimal text, such as `-12.50`.
    Decimal(String),
    Text(String),
    Bytes(Vec<u8>),
    /// Microseconds since the epoch, UTC.
    Timestamp(i64),
}

impl Scalar {
    /// The value's kind; none for null, which fits everywhere.
    pub fn kind(&self) -> Option<Kind> {
        Some(match self {
            Self::Null => return None,
            Self::Boolean(_) => Kind::Boolean,
            Self::Int64(_) => Kind::Int64,
            Self::Float64(_) => Kind::Float64,
            Self::Decimal(_) => Kind::Decimal,
            Self::Text(_) => Kind::Text,
            Self::Bytes(_) => Kind::Bytes,
            Self::Timestamp(_) => Kind::Timestamp,
        })
    }
}

/// JSON has no NaN and no infinities, and serde_json writes them as null, which is no number when it is read back. They
/// are written as text.
mod float {
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Text {
        Number(f64),
        Word(String),
    }

    pub fn serialize<S: Serializer>(v: &f64, s: S) -> Result<S::Ok, S::Error> {
        if v.is_finite() { s.serialize_f64(*v) } else { s.serialize_str(&v.to_string()) }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
        match Text::deserialize(d)? {
            Text::Number(v) => Ok(v),
            Text::Word(w) => w.parse().map_err(D::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn floats_that_are_no_numbers_survive_json() {
        for v in [1.5, f64::INFINITY, f64::NEG_INFINITY, -0.0] {
            let text = serde_json::to_string(&Scalar::Float64(v)).unwrap();
            assert_eq!(serde_json::from_str::<Scalar>(&text).unwrap(), Scalar::Float64(v), "{text}");
        }
        let nan = serde_json::to_string(&Scalar::Float64(f64::NAN)).unwrap();
        assert!(matches!(serde_json::from_str(&nan).unwrap(), Scalar::Float64(v) if v.is_nan()));
    }

    #[test]
    fn column_types_are_read_and_refused() {
        assert_eq!("decimal(10, 2)".parse(), Ok(ColumnType::Decimal { precision: 10, scale: 2 }));
        for bad in ["decimal(39,0)", "decimal(2,3)", "string", "Int64"] {
            assert!(bad.parse::<ColumnType>().unwrap_err().starts_with(&format!("'{bad}' is no column type")));
        }
    }
}
