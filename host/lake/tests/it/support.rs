//! A lake in a temporary folder, rulesets from text, and rows as text.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_cast::display::array_value_to_string;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use weir_lake::{LakeConfig, WeirLake};
use weir_model::faultpoint::injected;
use weir_model::port::{BatchInputs, PinnedStream, Queries, QueryEngine};
use weir_model::stream::Chunk;
use weir_model::{
    Digest, Fault, FaultPoints, Limits, Name, NoFaults, OffsetRange, Offsets, Problem, Ruleset, ScenarioId, StreamDef,
    StreamId, TenantConfig, Time,
};

/// 2026-01-01T00:00:00Z.
pub const DAY: i64 = 1_767_225_600_000_000;
pub const MINUTE: i64 = 60_000_000;

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// The time `minutes` after the day began.
pub fn at(minutes: i64) -> Time {
    Time(DAY + minutes * MINUTE)
}

pub struct House {
    pub folder: TempDir,
    pub runtime: Runtime,
    pub lake: Arc<WeirLake>,
    faults: Arc<dyn FaultPoints>,
    every: u64,
    /// How long log entries below a checkpoint stay.
    retention: Duration,
}

impl House {
    pub fn new() -> Self {
        Self::with(Arc::new(NoFaults), 100)
    }

    /// Log entries below a checkpoint go at once.
    pub fn with(faults: Arc<dyn FaultPoints>, every: u64) -> Self {
        Self::keeping(faults, every, Duration::ZERO)
    }

    /// Log entries below a checkpoint stay for a while.
    pub fn keeping(faults: Arc<dyn FaultPoints>, every: u64, retention: Duration) -> Self {
        let folder = TempDir::new().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let lake = Self::open(&folder, &runtime, &faults, every, retention);
        Self { folder, runtime, lake, faults, every, retention }
    }

    fn open(
        folder: &TempDir,
        runtime: &Runtime,
        faults: &Arc<dyn FaultPoints>,
        every: u64,
        retention: Duration,
    ) -> Arc<WeirLake> {
        let mut config = LakeConfig::new(folder.path().join("lake"), runtime.handle().clone());
        config.checkpoint_every = every;
        config.log_retention = retention;
        WeirLake::open(config, faults.clone()).unwrap()
    }

    /// As after a restart of the process.
    pub fn reopen(&mut self) {
        self.lake = Self::open(&self.folder, &self.runtime, &self.faults, self.every, self.retention);
    }

    /// The same folder in the hands of another process: it knows nothing of what this one's writers do.
    pub fn beside(&self) -> Arc<WeirLake> {
        Self::open(&self.folder, &self.runtime, &self.faults, self.every, self.retention)
    }

    pub fn plan(&self, ruleset: &Ruleset) -> Arc<dyn Queries> {
        self.lake.plan(ruleset).unwrap_or_else(|p| panic!("{p:?}"))
    }

    pub fn problems(&self, ruleset: &Ruleset) -> Vec<Problem> {
        match self.lake.plan(ruleset) {
            Ok(_) => panic!("accepted"),
            Err(problems) => problems,
        }
    }
}

/// Fails once at the point it was told.
#[derive(Debug, Default)]
pub struct FailOnce(pub Mutex<Option<&'static str>>);

impl FaultPoints for FailOnce {
    fn pass(&self, point: &'static str) -> Result<(), Fault> {
        let mut armed = self.0.lock().unwrap();
        if *armed == Some(point) {
            *armed = None;
            return Err(injected(point));
        }
        Ok(())
    }
}

/// A ruleset of the given manifest lines, streams and SQL files.
pub fn ruleset(manifest: &str, streams: &[(&str, &str)], files: &[(&str, &str)]) -> Ruleset {
    let manifest = format!("plugin = \"p.wasm\"\ntrigger = {{ interval = \"60s\" }}\n{manifest}");
    Ruleset {
        digest: Digest::of(manifest.as_bytes()),
        scenario: ScenarioId::new(name("acme"), name("s1")),
        files: BTreeMap::new(),
        content: files.iter().map(|(path, sql)| ((*path).to_owned(), Arc::from(sql.as_bytes()))).collect(),
        manifest: toml::from_str(&manifest).unwrap(),
        tenant: TenantConfig::default(),
        streams: streams.iter().map(|(stream, def)| (name(stream), stream_def(def))).collect(),
        limits: Limits::defaults(),
    }
}

pub fn stream_def(text: &str) -> StreamDef {
    toml::from_str(&format!("{text}\n[source]\ntype = \"generate\"\nsql = \"\"\n")).unwrap()
}

pub const SYSLOG: &str = "event_time = \"collected_at\"\n[schema]\nrouter_host = \"text\"\nrouter_ip = \"text\"\n\
    collected_at = { type = \"timestamp\", required = true }\nsyslog_message = \"text\"\n";

/// Rows of the syslog stream: (time, host, message), at offsets from `from` on in partition 0.
pub fn syslog(from: i64, rows: &[(Time, &str, &str)]) -> RecordBatch {
    let def = stream_def(SYSLOG);
    let count = i64::try_from(rows.len()).unwrap();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(rows.iter().map(|r| format!("Edge-RouterA-0{}", r.1)))),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|r| format!("203.0.113.{}", r.1)))),
        Arc::new(times(rows.iter().map(|r| r.0))),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.2))),
        Arc::new(Int32Array::from_iter_values(rows.iter().map(|_| 0))),
        Arc::new(Int64Array::from_iter_values(from..from + count)),
    ];
    RecordBatch::try_new(def.positioned_schema(), columns).unwrap()
}

pub fn times(values: impl Iterator<Item = Time>) -> TimestampMicrosecondArray {
    TimestampMicrosecondArray::from_iter_values(values.map(Time::micros)).with_timezone("UTC")
}

/// A chunk of partition 0; its times are looked up in `event_time`.
pub fn chunk(rows: RecordBatch, event_time: &str) -> Chunk {
    let offsets = rows.column_by_name("_offset").unwrap();
    let offsets = offsets.as_any().downcast_ref::<Int64Array>().unwrap().values().clone();
    let seen = rows.column_by_name(event_time).unwrap();
    let seen = seen.as_any().downcast_ref::<TimestampMicrosecondArray>().unwrap();
    let (min, max) = (seen.values().iter().min().unwrap(), seen.values().iter().max().unwrap());
    let offset = |o: Option<&i64>| u64::try_from(*o.unwrap()).unwrap();
    Chunk {
        range: OffsetRange { partition: 0, from: offset(offsets.first()), to: offset(offsets.last()) + 1 },
        min_time: Time(*min),
        max_time: Time(*max),
        rows,
    }
}

/// A window that holds everything from `floor` on.
pub fn pinned(stream: &str, def: &str, floor: Time, chunks: Vec<Chunk>) -> PinnedStream {
    let upto = chunks.iter().map(|c| c.range.to).max().unwrap_or(0);
    PinnedStream {
        stream: StreamId::new(name("acme"), name(stream)),
        def: Arc::new(stream_def(def)),
        from: Offsets::default(),
        upto: Offsets::of(0, upto),
        floor,
        complete_from: floor,
        chunks,
        only: None,
    }
}

pub fn inputs(time: Time, streams: Vec<PinnedStream>) -> BatchInputs {
    let streams = streams.into_iter().map(|s| (s.stream.stream.clone(), s)).collect();
    BatchInputs { time, streams, tables: BTreeMap::new() }
}

/// What Python's deltalake reads of a table: about the table, and its rows.
pub fn python(table: &std::path::Path) -> (serde_json::Value, Vec<serde_json::Value>) {
    let python = std::env::var("WEIR_PYTHON").expect("WEIR_PYTHON is not set: run the tests by `cargo xtask test`");
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/python/read_delta.py");
    let output = std::process::Command::new(python).arg(script).arg(table).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (lines.next().unwrap(), lines.collect())
}

/// The time on the wall: what files on a disk are stamped with.
#[allow(clippy::disallowed_methods)]
pub fn wall() -> Time {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Time(i64::try_from(now.as_micros()).unwrap())
}

/// Each row as its values, joined by `|`.
pub fn lines(batch: &RecordBatch) -> Vec<String> {
    let value = |column: &ArrayRef, row| array_value_to_string(column, row).unwrap();
    let line = |row| batch.columns().iter().map(|c| value(c, row)).collect::<Vec<_>>().join("|");
    (0..batch.num_rows()).map(line).collect()
}

/// Small numbers without a pattern (xorshift).
pub struct Dice(pub u64);
impl Dice {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}
