//! What a batch can ask: inputs, queries, rules, state.

use crate::batch::Between;
use crate::columns::Kind;
use crate::columns::Scalar;
use crate::fault::CallError;
use crate::fault::DataError;
use crate::fault::Fault;
use crate::id::Digest;
use crate::id::Name;
use crate::id::StreamId;
use crate::stream::Chunk;
use crate::stream::Offsets;
use crate::stream::StreamDef;
use crate::time::Time;
use crate::zone::Zone;
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_schema::SchemaRef;
use serde::Deserialize;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a batch sees of one stream: plain rows, immutable.
#[derive(Debug, Clone)]
pub struct PinnedStream {
    /// The stream.
    pub stream: StreamId,
    /// Its definition.
    pub def: Arc<StreamDef>,
    /// Only rows at or above (empty: from the start) ...
    pub from: Offsets,
    /// ... and below these offsets are seen.
    pub upto: Offsets,
    /// Only rows with an event time at or after this are seen, unless a query's bounds reach further back.
    pub floor: Time,
    /// All rows below `upto` with an event time at or after this are in `chunks`; older ones are in the bronze table.
    pub complete_from: Time,
    /// Rows in (partition, offset) order. May hold rows below `floor`; never any outside of the offsets.
    pub chunks: Vec<Chunk>,
    /// See [`crate::StreamPin::only`].
    pub only: Option<Between>,
}

/// All inputs of a batch.
#[derive(Debug, Clone)]
pub struct BatchInputs {
    /// T. What SQL `now()` answers.
    pub time: Time,
    /// Streams by name.
    pub streams: BTreeMap<Name, PinnedStream>,
    /// Versions of the reference tables, as the plan has them ([`crate::Plan::tables`]).
    pub tables: BTreeMap<Name, String>,
}

/// Some rows of a stream: how many, and from when to when.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Number of rows.
    pub rows: u64,
    /// The earliest event time of them.
    pub first: Option<Time>,
    /// The latest event time of them.
    pub last: Option<Time>,
}

impl Extent {
    /// Counts rows in: those with an event time in the column of this name that is `wanted`.
    pub fn add(&mut self, rows: &RecordBatch, event_time: &str, wanted: impl Fn(Time) -> bool) {
        let column = rows.column_by_name(event_time).and_then(|c| c.as_primitive_opt::<TimestampMicrosecondType>());
        for time in column.into_iter().flatten().flatten().map(Time).filter(|time| wanted(*time)) {
            self.rows += 1;
            self.first = Some(self.first.map_or(time, |first| first.min(time)));
            self.last = Some(self.last.map_or(time, |last| last.max(time)));
        }
    }
}

/// The named queries of a ruleset, planned once.
pub trait Queries: Send + Sync {
    /// Runs one on the calling thread. Equal inputs give equal bytes: rows in the query's own order where it is total, else
    /// sorted by all columns. Unknown names and wrong binds are `Data`; limits and lost disks are `Fault`.
    fn run(
        &self,
        name: &str,
        inputs: &BatchInputs,
        params: &[(String, Scalar)],
        rows: &[(String, RecordBatch)],
    ) -> Result<RecordBatch, CallError>;

    /// Does ahead what the next run of each query need not do then, on the calling thread. To be called after a batch, while
    /// nobody waits; an answer does not show whether it was.
    fn make_ready(&self) {}

    /// The rows of a stream that the batch sees, as one record batch in (partition, offset) order, position columns
    /// included.
    fn input(&self, name: &str, inputs: &BatchInputs) -> Result<RecordBatch, CallError>;

    /// How many rows of a stream the batch sees with an event time in a range, which may begin before the window as a
    /// query's bounds may; none: in its window.
    ///
    /// Without an implementation of its own: of the rows that [`Queries::input`] answers.
    fn extent(&self, name: &str, inputs: &BatchInputs, range: Option<Between>) -> Result<Extent, CallError> {
        let rows = self.input(name, inputs)?;
        let pinned = inputs.streams.get(name).ok_or(DataError::Undeclared)?;
        let mut extent = Extent::default();
        extent.add(&rows, &pinned.def.event_time, |time| range.is_none_or(|r| time >= r.from && time < r.to));
        Ok(extent)
    }

    /// Names of all queries.
    fn names(&self) -> Vec<Name>;

    /// Versions of the reference tables as they are now, to be pinned in a plan: of a file its digest, of a lake table its
    /// Delta version and identity. Cheap where nothing has changed; may block. A table that is not there or cannot be
    /// read is an external fault.
    fn tables(&self) -> Result<BTreeMap<Name, String>, Fault> {
        Ok(BTreeMap::new())
    }

    /// Columns of a query's answer; none when there is no such query.
    fn schema(&self, name: &str) -> Option<SchemaRef>;
}

/// One call of a rule.
#[derive(Debug, Clone, Default)]
pub struct RuleCall {
    /// Fields of the input object, the same in each evaluation.
    pub values: Vec<(String, Scalar)>,
    /// Fields that hold an array of objects, the same in each evaluation.
    pub rows: Vec<(String, RecordBatch)>,
    /// One evaluation a row: the row's columns are fields of the input object. None: one evaluation.
    pub each: Option<RecordBatch>,
    /// The elements of the array at this path are the answer's rows. None: one row an evaluation.
    pub unnest: Option<String>,
    /// Columns of the answer: path in the result, and kind. An empty path with kind json is the whole result.
    pub want: Vec<(String, Kind)>,
}

/// What a rule answered.
#[derive(Debug, Clone)]
pub struct RuleAnswer {
    /// One column per `want`, named by its path. With `each` and no `unnest`, row i answers row i, all null if it failed.
    pub rows: RecordBatch,
    /// Evaluations that failed, with the reason.
    pub failed: Vec<(u32, String)>,
}

/// What an evaluation may know beside its input.
#[derive(Debug, Clone, Copy)]
pub struct RuleContext {
    /// T: what dates in function nodes answer.
    pub time: Time,
    /// The batch's seed: what random numbers in function nodes come from.
    pub seed: [u8; 32],
    /// The zone in which the times of the input are written.
    pub zone: Zone,
}

/// The rules of a ruleset, loaded and compiled once.
pub trait Rules: Send + Sync {
    /// Evaluates one, blocking. Equal call and context give equal bytes. A rule that fails in single evaluations lists
    /// them in `failed`; without `each` that is `Data(Failed)`. Limits are `Fault`.
    fn evaluate(&self, name: &str, call: &RuleCall, context: RuleContext) -> Result<RuleAnswer, CallError>;
    /// Rules by name, with the digest of their file.
    fn names(&self) -> BTreeMap<Name, Digest>;
}

/// Event-time bounds of an input in a batch, `[start, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// T - retention.
    pub start: Time,
    /// T.
    pub end: Time,
    /// See [`crate::StreamPin::watermark`].
    pub watermark: Option<Time>,
}

/// What a detector may ask of its batch. One per call of `detect`; all answers are functions of the plan.
pub trait BatchHost: Send + Sync {
    /// T.
    fn time(&self) -> Time;
    /// The batch's seed.
    fn seed(&self) -> [u8; 32];
    /// Rows of a stream.
    fn input(&self, name: &str) -> Result<RecordBatch, CallError>;
    /// Bounds of a stream.
    fn window(&self, input: &str) -> Result<Bounds, CallError>;
    /// Runs a named query.
    fn query(
        &self,
        name: &str,
        params: &[(String, Scalar)],
        rows: &[(String, RecordBatch)],
    ) -> Result<RecordBatch, CallError>;
    /// Evaluates a rule.
    fn rule(&self, name: &str, call: &RuleCall) -> Result<RuleAnswer, CallError>;
    /// Values of keys, in order; the batch's own writes are seen, expired values are not.
    fn state_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, CallError>;
    /// Puts values that last `ttl` seconds from T, or for ever.
    fn state_put(&self, entries: &[(&[u8], &[u8])], ttl: Option<u64>) -> Result<(), CallError>;
    /// Deletes keys.
    fn state_delete(&self, keys: &[&[u8]]) -> Result<(), CallError>;
    /// Entries with a prefix after a key, bytewise order, at most `limit`.
    #[allow(clippy::type_complexity)]
    fn state_scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: u32)
    -> Result<Vec<(Vec<u8>, Vec<u8>)>, CallError>;
}
