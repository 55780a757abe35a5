//! Plain values that cross between a detector and its host. They mirror `types` of the WIT.

use std::fmt;
use std::str::FromStr;

use crate::Time;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Kind {
    Boolean,
    Int64,
    Float64,
    Decimal,
    Text,
    Bytes,
    Timestamp,
    /// A day; crosses as the timestamp of its 00:00 UTC.
    Date,
    /// JSON text; crosses as text does.
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

/// A column's name and kind, and whether it may hold nulls.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Field {
    pub name: String,
    pub kind: Kind,
    pub nullable: bool,
}

impl Field {
    /// A column without nulls.
    pub fn new(name: impl Into<String>, kind: Kind) -> Self {
        Self { name: name.into(), kind, nullable: false }
    }
    /// A column that may hold nulls.
    pub fn nullable(name: impl Into<String>, kind: Kind) -> Self {
        Self { nullable: true, ..Self::new(name, kind) }
    }
}

/// Texts or byte strings as they cross: value i is `data[offsets[i]..offsets[i + 1]]`, rows + 1 offsets, the first 0.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Blobs {
    pub offsets: Vec<u32>,
    pub data: Vec<u8>,
}

impl Default for Blobs {
    fn default() -> Self {
        Self { offsets: vec![0], data: Vec::new() }
    }
}

impl Blobs {
    /// How many values.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Appends a value. More than 4 GiB of data cannot be said; no host takes as much.
    pub fn push(&mut self, value: &[u8]) {
        self.data.extend_from_slice(value);
        self.offsets.push(u32::try_from(self.data.len()).unwrap_or(u32::MAX));
    }
    /// One value; none beyond the last one, or where the offsets make no sense.
    pub fn get(&self, row: usize) -> Option<&[u8]> {
        let (from, to) = (*self.offsets.get(row)?, *self.offsets.get(row + 1)?);
        self.data.get(from as usize..to as usize)
    }
    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|row| self.get(row).unwrap_or_default())
    }
    /// Whether offsets and data fit together.
    pub fn is_well_formed(&self) -> bool {
        self.offsets.first() == Some(&0)
            && self.offsets.is_sorted()
            && self.offsets.last().map(|end| *end as usize) == Some(self.data.len())
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for Blobs {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut blobs = Self::default();
        for value in values {
            blobs.push(value.as_ref());
        }
        blobs
    }
}

/// Decimals as they cross: value i is `(high[i] << 64 | low[i]) / 10^scale`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Decimals {
    pub scale: i8,
    pub low: Vec<u64>,
    pub high: Vec<i64>,
}

impl Decimals {
    /// Decimals from unscaled values.
    pub fn new(scale: i8, unscaled: impl IntoIterator<Item = i128>) -> Self {
        let (low, high) = unscaled.into_iter().map(|value| (value as u64, (value >> 64) as i64)).unzip();
        Self { scale, low, high }
    }
    /// The unscaled value: 12.50 with scale 2 is 1250.
    pub fn unscaled(&self, row: usize) -> Option<i128> {
        let (low, high) = (*self.low.get(row)?, *self.high.get(row)?);
        Some(i128::from(high) << 64 | i128::from(low))
    }
    /// The nearest float.
    pub fn float(&self, row: usize) -> Option<f64> {
        Some(self.unscaled(row)? as f64 / 10f64.powi(i32::from(self.scale)))
    }
}

/// One value.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Scalar {
    /// Fits every kind.
    Null,
    Boolean(bool),
    Int64(i64),
    Float64(f64),
    /// Decimal text, such as `-12.50`.
    Decimal(String),
    Text(String),
    Bytes(Vec<u8>),
    Timestamp(Time),
}

macro_rules! scalar_from {
    ($($from:ty => |$value:ident| $into:expr;)*) => {$(
        impl From<$from> for Scalar {
            fn from($value: $from) -> Self {
                $into
            }
        }
    )*};
}
scalar_from! {
    bool => |v| Self::Boolean(v);
    i32 => |v| Self::Int64(v.into());
    u32 => |v| Self::Int64(v.into());
    i64 => |v| Self::Int64(v);
    f64 => |v| Self::Float64(v);
    &str => |v| Self::Text(v.to_owned());
    String => |v| Self::Text(v);
    &String => |v| Self::Text(v.clone());
    Vec<u8> => |v| Self::Bytes(v);
    Time => |v| Self::Timestamp(v);
}
impl<T: Into<Scalar>> From<Option<T>> for Scalar {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A value with a name.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Named {
    pub name: String,
    pub value: Scalar,
}

impl Named {
    /// Names a value.
    pub fn new(name: impl Into<String>, value: impl Into<Scalar>) -> Self {
        Self { name: name.into(), value: value.into() }
    }
}

/// A row of a frame that is still held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct RowRef {
    pub frame: u32,
    pub row: u32,
}

/// A row whose evaluation failed, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct RowFault {
    pub row: u32,
    pub reason: String,
}

/// The event time that a batch sees of an input: `[start, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Bounds {
    pub start: Time,
    pub end: Time,
    /// Up to when the stream is taken to be complete; none before its first row.
    pub watermark: Option<Time>,
}

/// How bad an alarm is. Ordered: `Critical` is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Severity {
    Info,
    Warning,
    Minor,
    Major,
    Critical,
}

impl FromStr for Severity {
    type Err = String;
    /// By its name, in any case.
    fn from_str(text: &str) -> Result<Self, String> {
        [
            ("info", Self::Info),
            ("warning", Self::Warning),
            ("minor", Self::Minor),
            ("major", Self::Major),
            ("critical", Self::Critical),
        ]
        .into_iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text))
        .map(|(_, severity)| severity)
        .ok_or_else(|| format!("'{text}' is no severity: use info, warning, minor, major or critical"))
    }
}

/// Whether a detector could tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It judged: an alarm that it did not raise counts as quiet.
    Judged,
    /// It could not: nothing auto-clears.
    NoVerdict,
}
