//! Where rows come from.

use crate::fault::Fault;
use crate::id::StreamId;
use crate::stream::DeadLetter;
use crate::stream::OffsetRange;
use crate::stream::Offsets;
use crate::stream::StreamDef;
use crate::stream::StreamMeta;
use crate::time::Time;
use arrow_array::RecordBatch;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// One record as a source has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its offset in its partition.
    pub offset: u64,
    /// Key, where the source has keys.
    pub key: Option<Bytes>,
    /// The bytes.
    pub value: Bytes,
    /// When the source took it in, where the source says so.
    pub enqueued: Option<Time>,
    /// Headers, in order.
    pub headers: Vec<(String, Bytes)>,
}

/// What was read.
#[derive(Debug, Clone)]
pub enum Payload {
    /// Records to be decoded.
    Records(Vec<Record>),
    /// Rows that the source made itself, in the stream's schema, with each row's offset.
    Rows {
        /// The rows.
        rows: RecordBatch,
        /// Offset of each row, increasing.
        offsets: Vec<u64>,
    },
    /// Records whose cells stand in the order of a header.
    Delimited {
        /// The header's line.
        header: Bytes,
        /// What is between two cells.
        delimiter: u8,
        /// The records, header not among them.
        records: Vec<Record>,
    },
    /// Rows with the source's own columns, to be fitted to the stream's.
    Columns {
        /// The rows.
        rows: RecordBatch,
        /// Offset of each row, increasing.
        offsets: Vec<u64>,
    },
    /// What the source itself found to be unusable.
    Refused(Vec<DeadLetter>),
}

/// One bounded read of one partition.
#[derive(Debug, Clone)]
pub struct Polled {
    /// The offsets that were read. Not every one need have a record.
    pub range: OffsetRange,
    /// What they hold.
    pub payload: Payload,
    /// When the source took them in: the same whenever these offsets are read. None where the source does not know, or
    /// made the rows itself.
    pub taken: Option<Time>,
}

/// How much one poll may bring. At least one record is brought when there is one, however large.
#[derive(Debug, Clone, Copy)]
pub struct PollLimit {
    /// Records.
    pub rows: usize,
    /// Bytes of them.
    pub bytes: usize,
}

/// A source of one stream, opened at a position.
///
/// Duties: reading the same offsets again gives the same records, until [`Source::release`] has passed them. Offsets of a
/// partition only grow. A source that has lost what lies at the position answers a [`crate::FaultKind::Gap`] fault.
/// All calls come from one thread at a time and may block up to the time they are given.
pub trait Source: Send {
    /// The next records after the position, or none when there are none before `wait` has passed. Moves the position on.
    /// `now` is the clock's time; a source must not look at another clock.
    fn poll(&mut self, now: Time, limit: PollLimit, wait: Duration) -> Result<Option<Polled>, Fault>;

    /// Whether the last poll ended at what the source held at that moment, in every partition.
    fn at_end(&self) -> bool;

    /// When it is worth to poll again, if the source knows (`generate` does).
    fn next_due(&self) -> Option<Time> {
        None
    }

    /// Rows below are durable elsewhere: what was kept to read them again may go.
    fn release(&mut self, upto: &Offsets) -> Result<(), Fault>;
}

/// Turns polled records into rows of the stream's schema, and what cannot be turned into dead letters. Pure.
pub trait Decode: Send + Sync {
    /// `rows` and `offsets` have the same length; every record is either a row or a dead letter.
    fn decode(&self, polled: Polled) -> Result<Decoded, Fault>;
}

/// What became of polled records.
#[derive(Debug, Clone)]
pub struct Decoded {
    /// The offsets it covers.
    pub range: OffsetRange,
    /// Rows in the stream's schema ([`StreamDef::schema`]), in offset order.
    pub rows: RecordBatch,
    /// Offset of each row.
    pub offsets: Vec<u64>,
    /// The others.
    pub dead: Vec<DeadLetter>,
    /// As [`Polled::taken`].
    pub taken: Option<Time>,
}

/// A source with the decoder of its records.
pub type OpenSource = (Box<dyn Source>, Box<dyn Decode>);

/// Opens sources.
pub trait Sources: Send + Sync {
    /// Opens the stream's source so that the first poll reads at `from`, and makes its decoder. `journal` is the
    /// stream's own durable list, for what may vanish at the source.
    fn open(
        &self,
        id: &StreamId,
        def: &StreamDef,
        meta: &StreamMeta,
        from: &Offsets,
        journal: Arc<dyn Journal>,
    ) -> Result<OpenSource, Fault>;
}

/// A durable, ordered list that belongs to one stream.
pub trait Journal: Send + Sync {
    /// All entries, in order of their number.
    #[allow(clippy::type_complexity)]
    fn entries(&self) -> Result<Vec<(u64, Vec<u8>)>, Fault>;
    /// Writes entry `number`; durable when it returns. Writing a number again replaces it.
    fn put(&self, number: u64, bytes: &[u8]) -> Result<(), Fault>;
    /// Forgets an entry.
    fn remove(&self, number: u64) -> Result<(), Fault>;
}

/// Makes the rows of one tick of a `generate` source. Pure in (tick, now).
pub trait RowMaker: Send + Sync {
    /// Rows in the stream's schema. `now` is the tick's own time.
    fn rows(&self, tick: u64, now: Time) -> Result<RecordBatch, Fault>;
}
