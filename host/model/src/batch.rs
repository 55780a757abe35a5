//! The batch protocol: what a batch pins, what it leaves, and what the ledger keeps of it.
//!
//! plan -> query -> detect -> commit -> sink. A batch is a function of its [`Plan`]; it has happened when its [`Commit`]
//! is durable; nothing leaves the host before that, and nothing is computed again after it.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};

use crate::alarm::AlarmEvent;
use crate::duration::Span;
use crate::fault::Fault;
use crate::id::{BatchId, Digest, Name, RunKey};
use crate::stream::Offsets;
use crate::time::Time;

/// The output that every scenario has: one row per change of an alarm. Also its table's name.
pub const ALARM_EVENTS: &str = "alarm_events";
/// The sink that every scenario has: its current alarms. Also their table's name.
pub const ALARMS: &str = "alarms";
/// The output that every scenario and stream has: rows that could not be used. Also its table's name.
pub const DEAD_LETTERS: &str = "dead_letters";
/// Outputs and tables that are the host's own: no plugin writes them.
pub const HOST_OUTPUTS: [&str; 3] = [ALARM_EVENTS, ALARMS, DEAD_LETTERS];
/// The view of a tenant's alarms in SQL.
pub const CURRENT_ALARMS: &str = "current_alarms";
/// What the view of a stream's hot window is named in SQL, before the stream's name.
pub const HOT: &str = "hot_";

/// What the host itself has under this name in SQL, if it has: no table of a tenant's can be read there beside it.
pub fn host_table(name: &str) -> Option<&'static str> {
    match name {
        ALARM_EVENTS | ALARMS | DEAD_LETTERS => Some("the host itself writes a table of this name"),
        CURRENT_ALARMS => Some("the host itself shows the alarms under this name"),
        _ if name.starts_with(HOT) => Some("the host itself shows the hot windows of streams as hot_STREAM"),
        _ => None,
    }
}

/// Columns that the host appends to every output's rows: T of the batch.
pub const BATCH_TIME: &str = "_batch_time";
/// N of the batch.
pub const BATCH_ID: &str = "_batch_id";
/// The scenario, `tenant/scenario`.
pub const SCENARIO: &str = "_scenario";
/// The ruleset's digest.
pub const RULESET: &str = "_ruleset";

/// The stages, one word each in modules, spans, metrics, configuration and errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Stage {
    Ingest,
    Plan,
    Query,
    Detect,
    Commit,
    Sink,
}

impl Stage {
    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Plan => "plan",
            Self::Query => "query",
            Self::Detect => "detect",
            Self::Commit => "commit",
            Self::Sink => "sink",
        }
    }
}

/// What a batch sees of one stream: exactly the rows below `upto` (and at or above `from` for new rows) whose event time
/// is at or after `floor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPin {
    /// Generation of the stream's definition.
    pub generation: u32,
    /// Where the previous batch of this run ended.
    pub from: Offsets,
    /// Where this one ends.
    pub upto: Offsets,
    /// T - retention.
    pub floor: Time,
    /// Latest event time below `upto` less the lateness, the least of all partitions; none before the first row.
    pub watermark: Option<Time>,
    /// Whether the source had been read up to its end at T. A batch with an unread source cannot call an alarm over.
    pub read: bool,
    /// Only rows with an event time in it are seen, whatever a query's bounds ask for; none: every one. A backfill has the
    /// rows of years below `upto` and must not see those after T.
    #[serde(default)]
    pub only: Option<Between>,
}

/// Times in `[from, to)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Between {
    pub from: Time,
    pub to: Time,
}

impl Between {
    /// Everything before a time, from the year 1 on.
    pub fn before(to: Time) -> Self {
        Self { from: Time(-62_135_596_800_000_000), to }
    }
}

/// What a backfill is; the same in all of its plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backfill {
    /// T of all its batches.
    pub range: Between,
    /// Time between two of them; T is a multiple of it since the epoch.
    pub every: Span,
    /// The live batch whose state before it the run begins with; none: it begins with nothing.
    pub base: Option<BatchId>,
}

impl Backfill {
    /// The first T at or after a time; none beyond the range.
    pub fn next(&self, at: Time) -> Option<Time> {
        let step = i64::try_from(self.every.get().as_micros()).unwrap_or(i64::MAX).max(1);
        let first = at.max(self.range.from).micros();
        let time = Time(first.saturating_add((-first).rem_euclid(step)));
        (time < self.range.to).then_some(time)
    }

    /// How many batches it has.
    pub fn batches(&self) -> u64 {
        let Some(first) = self.next(self.range.from) else { return 0 };
        let micros = self.range.to.micros().saturating_sub(first.micros()).unsigned_abs();
        micros.div_ceil(u64::try_from(self.every.get().as_micros()).unwrap_or(u64::MAX).max(1))
    }
}

/// Grid times that were not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The first of them.
    pub first: Time,
    /// The last of them.
    pub last: Time,
    /// How many.
    pub count: u64,
}

/// Everything a batch is a function of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Run and scenario.
    pub key: RunKey,
    /// N.
    pub id: BatchId,
    /// T, a grid time, greater than that of N - 1.
    pub time: Time,
    /// What it runs on.
    pub ruleset: Digest,
    /// Which attempt at N this is, from 1.
    pub attempt: u32,
    /// Positions by stream.
    pub streams: BTreeMap<Name, StreamPin>,
    /// Versions of reference tables: Delta version, or digest.
    #[serde(default)]
    pub tables: BTreeMap<Name, String>,
    /// Grid times between N - 1 and this one that were not run.
    #[serde(default)]
    pub skipped: Option<Skipped>,
    /// Grid times that this run has left out so far, these included.
    #[serde(default)]
    pub skipped_total: u64,
    /// Version of the plugin's state schema; a plugin with another one does not see this state.
    #[serde(default)]
    pub state_schema: Option<u32>,
    /// Of a backfill: what it is a part of.
    #[serde(default)]
    pub backfill: Option<Backfill>,
}

impl Plan {
    /// The seed of everything random in the batch: of tenant, scenario and T, so that re-runs and replays agree.
    pub fn seed(&self) -> [u8; 32] {
        Digest::of_parts([self.key.scenario.to_string().as_bytes(), &self.time.micros().to_le_bytes()]).0
    }
}

/// What a batch came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The plugin judged; silence means that all is well.
    Judged,
    /// The plugin ran and could not judge; nothing auto-clears.
    NoVerdict,
    /// It failed for good; the plugin's state is untouched, and open alarms turn stale.
    Failed(Fault),
}

/// Whose keys these are. Spaces never see each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Space {
    /// The plugin's, of one version of its state schema.
    Plugin(u32),
    /// Current alarms: key = [`alarm_key`], value = JSON of [`crate::AlarmState`].
    Alarms,
}

/// The state key of an alarm: type and key values, each preceded by its length, never joined.
pub fn alarm_key(name: &str, key: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in std::iter::once(name).chain(key.iter().map(String::as_str)) {
        out.extend_from_slice(&(part.len() as u32).to_be_bytes());
        out.extend_from_slice(part.as_bytes());
    }
    out
}

/// A value of keyed state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateValue {
    /// Its bytes.
    pub value: Vec<u8>,
    /// A batch whose T is at or after this does not see it.
    pub expires: Option<Time>,
}

/// A change of keyed state. The ledger adds the before-image when it commits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateWrite {
    /// Whose key.
    pub space: Space,
    /// The key.
    pub key: Vec<u8>,
    /// The value from now on; none deletes.
    pub after: Option<StateValue>,
}

/// Rows for one sink.
#[derive(Debug, Clone)]
pub struct Output {
    /// Name of the output; with the run it makes the sink's id.
    pub output: Name,
    /// The lake table that it goes to.
    pub table: Name,
    /// The rows, host columns included.
    pub rows: RecordBatch,
}

/// How long the stages took, in microseconds. `commit` and `sink` are not known when a record is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct StageMicros {
    pub plan: u64,
    pub query: u64,
    pub detect: u64,
    pub rule: u64,
}

/// What a batch leaves, to be written in one atomic, synced step.
#[derive(Debug, Clone)]
pub struct Commit {
    /// What it was a function of.
    pub plan: Plan,
    /// What it came to.
    pub outcome: Outcome,
    /// Changes of keyed state, at most one per key.
    pub state: Vec<StateWrite>,
    /// Changes of alarms, also as rows in the output [`ALARM_EVENTS`].
    pub events: Vec<AlarmEvent>,
    /// Rows for sinks, at most one entry per output.
    pub outputs: Vec<Output>,
    /// Rows of the streams that are new since the batch before, as Spark's `numInputRows` counts them.
    pub rows_in: u64,
    /// Alarms that the plugin raised.
    pub raised: u64,
    /// Time the stages took.
    pub micros: StageMicros,
    /// `rows_in` by stream.
    pub rows_by: BTreeMap<Name, u64>,
}

/// What the ledger tells of an output without reading it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSummary {
    /// Name of the output.
    pub output: Name,
    /// The lake table.
    pub table: Name,
    /// Number of rows.
    pub rows: u64,
    /// Size as kept.
    pub bytes: u64,
    /// Of the kept bytes.
    pub digest: Digest,
}

/// A committed batch, as the ledger keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchRecord {
    /// What it was a function of.
    pub plan: Plan,
    /// What it came to.
    pub outcome: Outcome,
    /// Changes of alarms.
    pub events: Vec<AlarmEvent>,
    /// Its outputs.
    pub outputs: Vec<OutputSummary>,
    /// Number of changed state keys.
    pub state_changes: u64,
    /// Rows of the streams that are new since the batch before, as Spark's `numInputRows` counts them.
    pub rows_in: u64,
    /// Alarms that the plugin raised.
    pub raised: u64,
    /// Time the stages took.
    pub micros: StageMicros,
    /// Digest of the record before it in its run; zeros for the first. A damaged journal shows as a break in this chain.
    pub previous: Digest,
    /// Digest over `previous` and everything committed with this batch.
    pub digest: Digest,
    /// `rows_in` by stream.
    #[serde(default)]
    pub rows_by: BTreeMap<Name, u64>,
}

/// An output that a sink has not drained yet.
#[derive(Debug, Clone)]
pub struct PendingOutput {
    /// The batch that made it.
    pub batch: BatchId,
    /// The lake table.
    pub table: Name,
    /// The ruleset that made it.
    pub ruleset: Digest,
    /// The rows.
    pub rows: RecordBatch,
}

/// How far a sink is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkCursor {
    /// All outputs up to this batch have been drained.
    pub drained_to: BatchId,
    /// Identity of the table that holds them, to notice one that was made anew.
    pub table_id: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_a_time_can_be_written_and_read() {
        let before = Between::before(Time::EPOCH);
        let text = serde_json::to_string(&before).unwrap_or_default();
        assert_eq!(text, r#"{"from":"0001-01-01T00:00:00Z","to":"1970-01-01T00:00:00Z"}"#);
        assert_eq!(serde_json::from_str::<Between>(&text).ok(), Some(before));
    }

    #[test]
    fn a_backfill_has_the_grid_times_of_its_range() {
        let minute = |n: i64| Time(n * 60_000_000);
        let of = |from: Time, to: Time, every: u64| Backfill {
            range: Between { from, to },
            every: Span::secs(every),
            base: None,
        };
        for (backfill, times) in [
            (of(minute(3), minute(6), 60), vec![minute(3), minute(4), minute(5)]),
            (of(Time(minute(3).0 + 1), Time(minute(5).0 + 1), 60), vec![minute(4), minute(5)]),
            (of(minute(-3), minute(7), 300), vec![minute(0), minute(5)]),
            (of(minute(1), minute(4), 300), vec![]),
        ] {
            let mut seen = Vec::new();
            let mut at = Time(i64::MIN / 2);
            while let Some(time) = backfill.next(at) {
                seen.push(time);
                at = Time(time.micros() + 1);
            }
            assert_eq!(seen, times);
            assert_eq!(backfill.batches(), times.len() as u64);
        }
    }
}
