//! Streams: declared inputs, their positions, and the rows read from them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::columns::ColumnType;
use crate::duration::Span;
use crate::id::Name;
use crate::time::Time;

/// Column of every stream's rows and bronze table: the source's partition, int32.
pub const PARTITION: &str = "_partition";
/// Column of every stream's rows and bronze table: the row's offset in its partition, int64.
pub const OFFSET: &str = "_offset";

/// `streams/NAME.toml`: what a stream is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamDef {
    /// The column that says when a row happened; a required timestamp column of `schema`.
    pub event_time: String,
    /// How much later than the latest row of its partition a row may come before it counts as late.
    #[serde(default = "default_lateness")]
    pub watermark: Span,
    /// How much after the time at which it was taken in a row may say to have happened; one further ahead is a dead letter. By
    /// default half of the watermark. Rows that are that far ahead move the watermark on with them, so this is at most
    /// the watermark: what comes on time after them must not be late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<Span>,
    /// How long rows stay in the hot window, by event time. Older rows are read from the bronze table.
    #[serde(default = "default_retention")]
    pub retention: Span,
    /// The bronze table's name; by default the stream's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<Name>,
    /// How many days of bronze are kept.
    #[serde(default = "default_bronze_days")]
    pub keep_days: u32,
    /// Columns in order, as `name = "type"` or `name = { type = "type", required = true }`.
    pub schema: Columns,
    /// Where rows come from.
    pub source: SourceDef,
}

fn default_lateness() -> Span {
    Span::secs(120)
}
fn default_retention() -> Span {
    Span::secs(900)
}
fn default_bronze_days() -> u32 {
    30
}

/// The columns of a stream, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Columns(pub Vec<Column>);

/// One column of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name. Names that begin with `_` are the host's own.
    pub name: String,
    /// Its type.
    pub ty: ColumnType,
    /// A row without a value here is a dead letter.
    pub required: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum ColumnText {
    Short(ColumnType),
    Long(ColumnLong),
}
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnLong {
    #[serde(rename = "type")]
    ty: ColumnType,
    #[serde(default)]
    required: bool,
}

impl Serialize for Columns {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.0.iter().map(|c| {
            let text = if c.required {
                ColumnText::Long(ColumnLong { ty: c.ty, required: true })
            } else {
                ColumnText::Short(c.ty)
            };
            (&c.name, text)
        }))
    }
}
impl<'de> Deserialize<'de> for Columns {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> serde::de::Visitor<'de> for V {
            type Value = Columns;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of columns, name = \"type\"")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Columns, A::Error> {
                let mut out = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    // An untagged enum would hide why a type is wrong, so the two forms are told apart by hand.
                    let value: serde_json::Value = map.next_value()?;
                    let long = match value {
                        serde_json::Value::String(ty) => {
                            ColumnLong { ty: ty.parse().map_err(|e| in_column(&name, &e))?, required: false }
                        }
                        other => serde_json::from_value(other).map_err(|e| in_column(&name, &e))?,
                    };
                    out.push(Column { name, ty: long.ty, required: long.required });
                }
                Ok(Columns(out))
            }
        }
        d.deserialize_map(V)
    }
}
fn in_column<E: serde::de::Error>(name: &str, e: &dyn fmt::Display) -> E {
    E::custom(format_args!("column {name}: {e}"))
}

impl Columns {
    /// As Arrow fields; what is not required may be null.
    pub fn fields(&self) -> Vec<Field> {
        self.0.iter().map(|c| Field::new(&c.name, c.ty.arrow(), !c.required)).collect()
    }
    /// As an Arrow schema.
    pub fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.fields()))
    }
}

impl StreamDef {
    /// How much after the time at which it was taken in a row may say to have happened.
    pub fn ahead(&self) -> Span {
        self.ahead.unwrap_or(Span(self.watermark.get() / 2))
    }
    /// The Arrow schema of a stream's own columns, without the position.
    pub fn schema(&self) -> SchemaRef {
        self.schema.schema()
    }
    /// The Arrow schema of windows and bronze: the stream's columns, then [`PARTITION`] and [`OFFSET`].
    pub fn positioned_schema(&self) -> SchemaRef {
        let mut fields = self.schema.fields();
        fields.push(Field::new(PARTITION, DataType::Int32, false));
        fields.push(Field::new(OFFSET, DataType::Int64, false));
        Arc::new(Schema::new(fields))
    }
}

/// Offsets of one tick of a `generate` source, which makes at most this many rows: row i of tick k has the offset
/// `k * TICK_ROWS + i`.
pub const TICK_ROWS: u64 = 1 << 20;

/// The time between two ticks of a `generate` source; none unless exactly one of both is given and makes one.
pub fn tick_interval(interval: Option<Span>, rate: Option<f64>) -> Option<Duration> {
    match (interval, rate) {
        (Some(interval), None) => Some(interval.get()),
        (None, Some(rate)) if rate > 0.0 && rate <= 1e6 => Some(Duration::from_secs_f64(1.0 / rate)),
        _ => None,
    }
    .filter(|every| every.as_micros() > 0)
}

/// Where a stream's rows come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum SourceDef {
    /// Rows made by SQL, one query a tick. `$tick` is the tick's number (int64, from 0), `$now` its time (timestamp).
    /// One partition; a row's offset is `tick * 2^20 + index`, so a tick makes at most 1,048,576 rows.
    Generate {
        /// A SELECT whose columns are the stream's, by name.
        sql: String,
        /// Time between two ticks. This or `rate`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interval: Option<Span>,
        /// Ticks a second. This or `interval`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<f64>,
        /// How far before the stream's first start the ticks begin.
        #[serde(default)]
        history: Span,
    },
    /// Files of a folder, each read once. One partition; a row's offset is its durable ordinal over all files.
    Files {
        /// The folder, below the tenant's own in the rule store: an operator mounts there what lies elsewhere.
        path: String,
        /// How their bytes become rows.
        #[serde(default)]
        format: FileFormat,
        /// File names that count, `*` and `?` as wildcards.
        #[serde(default = "default_glob")]
        include: String,
        /// How long a file must not have changed before it is read, unless a file of the same name plus `.done` exists.
        #[serde(default = "default_settle")]
        settle: Span,
        /// What is between two cells of csv; a comma when it is not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delimiter: Option<char>,
    },
}

fn default_glob() -> String {
    "*".to_owned()
}
fn default_settle() -> Span {
    Span::secs(2)
}

/// How the bytes of a file become rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileFormat {
    /// One JSON object a line.
    #[default]
    #[serde(alias = "json")]
    JsonLines,
    /// Comma-separated text whose first line names the columns.
    Csv,
    /// Apache Parquet.
    Parquet,
}

/// Positions: for each partition the offset of the next row, so `0..offset` has been read. An absent partition is at 0.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offsets(pub BTreeMap<u32, u64>);

impl Offsets {
    /// Of one partition.
    pub fn of(partition: u32, next: u64) -> Self {
        Self(BTreeMap::from([(partition, next)]))
    }
    /// The next offset of a partition.
    pub fn get(&self, partition: u32) -> u64 {
        self.0.get(&partition).copied().unwrap_or(0)
    }
    /// Moves a partition on; never back.
    pub fn advance(&mut self, partition: u32, next: u64) {
        let at = self.0.entry(partition).or_insert(0);
        *at = next.max(*at);
    }
    /// Whether every partition is at least where `other` has it.
    pub fn reaches(&self, other: &Self) -> bool {
        other.0.iter().all(|(p, next)| self.get(*p) >= *next)
    }
}

/// Offsets `from..to` of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OffsetRange {
    /// The partition.
    pub partition: u32,
    /// The first offset.
    pub from: u64,
    /// The offset after the last.
    pub to: u64,
}

/// Rows of one partition in offset order, as kept in a hot window. `rows` has [`StreamDef::positioned_schema`].
#[derive(Debug, Clone)]
pub struct Chunk {
    /// Which offsets this chunk covers; some of them may have no row (dead letters, late rows, gaps of the source).
    pub range: OffsetRange,
    /// The rows, in offset order.
    pub rows: RecordBatch,
    /// Earliest event time; [`Time`] max when there is no row.
    pub min_time: Time,
    /// Latest event time; [`Time`] min when there is no row.
    pub max_time: Time,
}

/// A row that could not be used, kept with the reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Partition of the source.
    pub partition: u32,
    /// Offset of the row.
    pub offset: u64,
    /// Why it could not be used; names the column where there is one.
    pub reason: String,
    /// The row as it came, cut to 64 KiB.
    pub raw: String,
}

/// What a stream is in the ledger: made when a stream is first seen, and again when its definition changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamMeta {
    /// Random identity of the stream in this ledger; stays over generations.
    pub incarnation: crate::id::Incarnation,
    /// Counts definitions, from 1.
    pub generation: u32,
    /// Digest of the definition.
    pub definition: crate::id::Digest,
    /// When this generation began: the origin of `generate`'s ticks.
    pub anchor: Time,
    /// Where this generation begins.
    pub start: Offsets,
}

/// How far a stream's bronze table is, with what must be known to go on from there exactly.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BronzeCursor {
    /// All rows below are in the bronze table, files and folders synced.
    pub flushed: Offsets,
    /// Latest event time below `flushed`, per partition: what lateness is computed from.
    pub max_time: BTreeMap<u32, Time>,
    /// The table's id, to notice a table that was made anew.
    pub table_id: Option<String>,
}
