//! Ports with a second implementation, for tests that need a plugin, a store or a source to behave in a certain way.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::{BooleanArray, Int64Array, RecordBatch, TimestampMicrosecondArray};
use weir_model::port::{
    AlarmType, BatchHost, BatchInputs, Decode, Decoded, Description, DetectFailure, Detection, Detector, Journal,
    OpenSource, OutputDecl, Payload, PollLimit, Polled, Prepared, Queries, RuleAnswer, RuleCall, RuleContext,
    RuleStore, Rules, ScenarioView, Source, Sources, StreamView, Usage, Verdict,
};
use weir_model::stream::StreamMeta;
use weir_model::{
    CallError, DataError, Digest, Fault, FaultPoints, FieldDef, Kind, Limits, Manifest, Name, OffsetRange, Offsets,
    Ruleset, Scalar, ScenarioId, StreamDef, StreamId, Time,
};

/// A folder in memory where there is one: these tests sync thousands of times, and what they check is what is written in
/// which order.
pub fn quick_folder() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Draws from a seed where the host ends: at each point with the same small chance, at most `most` times.
#[derive(Debug)]
pub struct Seeded {
    state: Mutex<(u64, u32)>,
    one_in: u64,
    pub passed: Mutex<BTreeMap<&'static str, u64>>,
    pub injected: Mutex<BTreeMap<&'static str, u64>>,
}

impl Seeded {
    pub fn new(seed: u64, one_in: u64, most: u32) -> Arc<Self> {
        let state = Mutex::new((seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, most));
        Arc::new(Self { state, one_in, passed: Mutex::default(), injected: Mutex::default() })
    }
}

impl FaultPoints for Seeded {
    fn pass(&self, point: &'static str) -> Result<(), Fault> {
        *self.passed.lock().unwrap().entry(point).or_default() += 1;
        let mut state = self.state.lock().unwrap();
        // xorshift: the test prints its seed, and the same seed gives the same faults.
        state.0 ^= state.0 << 13;
        state.0 ^= state.0 >> 7;
        state.0 ^= state.0 << 17;
        if state.1 == 0 || !state.0.is_multiple_of(self.one_in) {
            return Ok(());
        }
        state.1 -= 1;
        *self.injected.lock().unwrap().entry(point).or_default() += 1;
        Err(weir_model::faultpoint::injected(point))
    }
}

/// A source of one row a second: offset k is at second k and holds `value = k * 7 % 10`.
pub struct Counting {
    at: u64,
    end: bool,
}

impl Source for Counting {
    fn poll(&mut self, now: Time, limit: PollLimit, _wait: Duration) -> Result<Option<Polled>, Fault> {
        let due = u64::try_from(now.micros() / 1_000_000).unwrap() + 1;
        let to = due.min(self.at + limit.rows as u64);
        self.end = to == due;
        if to <= self.at {
            return Ok(None);
        }
        let range = OffsetRange { partition: 0, from: self.at, to };
        let offsets: Vec<u64> = (self.at..to).collect();
        let at: TimestampMicrosecondArray =
            offsets.iter().map(|o| Some(i64::try_from(*o).unwrap() * 1_000_000)).collect();
        let value: Int64Array = offsets.iter().map(|o| Some(i64::try_from(o * 7 % 10).unwrap())).collect();
        let rows =
            RecordBatch::try_new(counting_stream().schema(), vec![Arc::new(at.with_timezone("UTC")), Arc::new(value)])
                .unwrap();
        self.at = to;
        Ok(Some(Polled { range, payload: Payload::Rows { rows, offsets }, taken: None }))
    }
    fn at_end(&self) -> bool {
        self.end
    }
    fn release(&mut self, _upto: &Offsets) -> Result<(), Fault> {
        Ok(())
    }
}

/// Rows that need no decoding.
pub struct AsIs;
impl Decode for AsIs {
    fn decode(&self, polled: Polled) -> Result<Decoded, Fault> {
        match polled.payload {
            Payload::Rows { rows, offsets } => {
                Ok(Decoded { range: polled.range, rows, offsets, dead: Vec::new(), taken: polled.taken })
            }
            _ => Err(Fault::internal("this source makes rows")),
        }
    }
}

pub struct CountingSources;
impl Sources for CountingSources {
    fn open(
        &self,
        _id: &StreamId,
        _def: &StreamDef,
        _meta: &StreamMeta,
        from: &Offsets,
        _journal: Arc<dyn Journal>,
    ) -> Result<OpenSource, Fault> {
        Ok((Box::new(Counting { at: from.get(0), end: false }), Box::new(AsIs)))
    }
}

pub fn counting_stream() -> StreamDef {
    toml::from_str(
        r#"
        event_time = "at"
        retention = "5m"
        [schema]
        at = { type = "timestamp", required = true }
        value = "int64"
        [source]
        type = "generate"
        sql = "not used"
        interval = "1s"
        "#,
    )
    .unwrap()
}

/// What a fake plugin does with its batch.
pub type Detect = dyn Fn(&dyn BatchHost) -> Result<Detection, Fault> + Send + Sync;

pub struct FakeDetector {
    pub description: Description,
    pub detect: Box<Detect>,
    pub calls: AtomicU64,
}

impl Detector for FakeDetector {
    fn description(&self) -> &Description {
        &self.description
    }
    fn digest(&self) -> Digest {
        Digest::of(b"fake plugin")
    }
    fn detect(&self, host: Arc<dyn BatchHost>) -> Result<Detection, Box<DetectFailure>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        (self.detect)(host.as_ref())
            .map_err(|fault| Box::new(DetectFailure { fault, log: Vec::new(), usage: Usage::default() }))
    }
}

struct NoRules;
impl Rules for NoRules {
    fn evaluate(&self, _: &str, _: &RuleCall, _: RuleContext) -> Result<RuleAnswer, CallError> {
        Err(DataError::Undeclared.into())
    }
    fn names(&self) -> BTreeMap<Name, Digest> {
        BTreeMap::new()
    }
}

struct InputOnly;
impl Queries for InputOnly {
    /// Every query answers the stream that its name says, as it is.
    fn run(
        &self,
        name: &str,
        inputs: &BatchInputs,
        _: &[(String, Scalar)],
        _: &[(String, RecordBatch)],
    ) -> Result<RecordBatch, CallError> {
        self.input(name, inputs)
    }
    fn input(&self, name: &str, inputs: &BatchInputs) -> Result<RecordBatch, CallError> {
        let stream = inputs.streams.get(name).ok_or(DataError::Undeclared)?;
        let schema = stream.def.positioned_schema();
        let rows = arrow_select::concat::concat_batches(&schema, stream.chunks.iter().map(|c| &c.rows))
            .map_err(Fault::internal)?;
        let Some(only) = stream.only else { return Ok(rows) };
        let at = rows.column_by_name("at").ok_or(DataError::Undeclared)?;
        let at: &TimestampMicrosecondArray = arrow_array::cast::AsArray::as_primitive(at.as_ref());
        let keep: BooleanArray =
            at.values().iter().map(|t| Some((only.from.micros()..only.to.micros()).contains(t))).collect();
        arrow_select::filter::filter_record_batch(&rows, &keep).map_err(|e| Fault::internal(e).into())
    }
    fn schema(&self, _: &str) -> Option<arrow_schema::SchemaRef> {
        None
    }
    fn names(&self) -> Vec<Name> {
        Vec::new()
    }
}

/// A store with one scenario `t/s` on one stream `t/events`. Its first ruleset is active until another one is.
pub struct OneScenario {
    rulesets: Mutex<(Vec<Arc<Prepared>>, usize)>,
    removed: AtomicBool,
    stream: Arc<StreamDef>,
}

impl OneScenario {
    /// `manifest` is put behind the plugin, trigger and input that the scenario has anyway.
    pub fn new(manifest: &str, detector: Arc<dyn Detector>) -> Arc<Self> {
        let stream = Arc::new(counting_stream());
        let one = Arc::new(Self { rulesets: Mutex::default(), removed: AtomicBool::new(false), stream });
        one.add(manifest, detector);
        one
    }
    /// Adds a ruleset to the history.
    pub fn add(&self, manifest: &str, detector: Arc<dyn Detector>) {
        self.add_granted(manifest, "", detector);
    }
    /// The same with a tenant.toml.
    pub fn add_granted(&self, manifest: &str, tenant: &str, detector: Arc<dyn Detector>) {
        let text = format!(
            "plugin = \"none\"\ntrigger = {{ interval = \"1m\" }}\n{manifest}\n[inputs.events]\nmode = \"new\"\n"
        );
        let manifest: Manifest = toml::from_str(&text).unwrap();
        let ruleset = Arc::new(Ruleset {
            digest: Digest::of_parts([text.as_bytes(), tenant.as_bytes()]),
            scenario: "t/s".parse().unwrap(),
            files: BTreeMap::new(),
            content: BTreeMap::new(),
            manifest,
            tenant: toml::from_str(tenant).unwrap(),
            streams: BTreeMap::from([(name("events"), (*self.stream).clone())]),
            limits: Limits::default(),
        });
        let prepared = Arc::new(Prepared { ruleset, detector, rules: Arc::new(NoRules), queries: Arc::new(InputOnly) });
        self.rulesets.lock().unwrap().0.push(prepared);
    }
    /// Makes the one that was added n-th (from 0) what batches run on.
    pub fn activate(&self, n: usize) {
        self.rulesets.lock().unwrap().1 = n;
    }
    /// Takes the scenario's folder away.
    pub fn remove(&self) {
        self.removed.store(true, Ordering::Release);
    }
    fn active(&self) -> Arc<Prepared> {
        let rulesets = self.rulesets.lock().unwrap();
        rulesets.0[rulesets.1].clone()
    }
    pub fn id(&self) -> ScenarioId {
        self.active().ruleset.scenario.clone()
    }
}

impl RuleStore for OneScenario {
    fn look(&self, _now: Time) {}
    fn scenarios(&self) -> Vec<ScenarioView> {
        vec![ScenarioView {
            id: self.id(),
            active: Some(self.active()),
            active_since: Some(Time::EPOCH),
            pending: None,
            rejected: None,
            pinned: None,
            removed: self.removed.load(Ordering::Acquire),
        }]
    }
    fn scenario(&self, id: &ScenarioId) -> Option<ScenarioView> {
        self.scenarios().into_iter().find(|v| v.id == *id)
    }
    fn streams(&self) -> Vec<StreamView> {
        vec![StreamView {
            id: StreamId::new(name("t"), name("events")),
            def: Some(self.stream.clone()),
            digest: Some(Digest::of(b"counting stream")),
            rejected: None,
        }]
    }
    fn stored(&self, id: &ScenarioId, digest: Digest) -> Result<Arc<Prepared>, Fault> {
        let rulesets = self.rulesets.lock().unwrap();
        let found = rulesets.0.iter().find(|p| p.ruleset.digest == digest);
        found.cloned().ok_or_else(|| Fault::internal(format_args!("{id} never had this ruleset")))
    }
    fn epoch(&self) -> u64 {
        1
    }
}

impl weir_model::port::History for OneScenario {
    fn history(&self, _: &ScenarioId) -> Result<Vec<weir_model::service::HistoryEntry>, Fault> {
        Ok(Vec::new())
    }
    fn rollback(&self, _: &ScenarioId, _: Option<Digest>) -> Result<Digest, Fault> {
        Err(Fault::internal("this store has no past"))
    }
    fn unpin(&self, _: &ScenarioId) -> Result<(), Fault> {
        Ok(())
    }
    fn forget(&self, _: &ScenarioId) -> Result<(), Fault> {
        Ok(())
    }
}

/// A plugin that writes one row a batch: how many rows are new, and their sum; and keeps a running total in state.
pub fn summing() -> Arc<FakeDetector> {
    fake(&["count", "sum", "total"], Some(1), Box::new(|host| Ok(detection(&sums(host)?, Vec::new()))))
}

/// Count and sum of a batch's new rows, and the running total, which it keeps in state.
pub fn sums(host: &dyn BatchHost) -> Result<[(&'static str, i64); 3], Fault> {
    let rows = host.query("events", &[], &[]).map_err(call)?;
    let values = rows.column_by_name("value").unwrap();
    let values = arrow_array::cast::AsArray::as_primitive::<arrow_array::types::Int64Type>(values.as_ref());
    let sum: i64 = values.values().iter().sum();
    let total = host.state_get(&[b"total"]).map_err(call)?.remove(0);
    let total = total.map_or(0, |t| i64::from_be_bytes(t.try_into().unwrap())) + sum;
    host.state_put(&[(b"total".as_slice(), total.to_be_bytes().as_slice())], None).map_err(call)?;
    Ok([("count", rows.num_rows() as i64), ("sum", sum), ("total", total)])
}

pub fn call(e: CallError) -> Fault {
    match e {
        CallError::Fault(fault) => fault,
        CallError::Data(e) => Fault::internal(e),
    }
}

pub fn fake(columns: &[&str], state: Option<u32>, detect: Box<Detect>) -> Arc<FakeDetector> {
    let fields = columns.iter().map(|c| FieldDef { name: (*c).into(), kind: Kind::Int64, nullable: false }).collect();
    let description = Description {
        name: "fake".into(),
        version: "1".into(),
        outputs: vec![OutputDecl { name: name("sums"), fields }],
        alarms: vec![AlarmType { name: name("parity"), key: vec!["which".into()] }],
        inputs: vec![name("events")],
        queries: Vec::new(),
        rules: Vec::new(),
        assets: Vec::new(),
        state,
    };
    Arc::new(FakeDetector { description, detect, calls: AtomicU64::new(0) })
}

pub fn detection(row: &[(&str, i64)], alarms: Vec<weir_model::AlarmRaise>) -> Detection {
    let fields: Vec<FieldDef> =
        row.iter().map(|(n, _)| FieldDef { name: (*n).into(), kind: Kind::Int64, nullable: false }).collect();
    let columns = row.iter().map(|(_, v)| Arc::new(Int64Array::from(vec![*v])) as _).collect();
    let rows = RecordBatch::try_new(weir_model::columns::output_schema(&fields), columns).unwrap();
    Detection {
        verdict: Verdict::Judged,
        outputs: vec![(name("sums"), rows)],
        alarms,
        rejects: Vec::new(),
        log: Vec::new(),
        usage: Usage::default(),
    }
}
