//! The real engines, admitted once: rows go in as what a batch has pinned, without a source, a ledger or a sink.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};
use serde_json::{Value, json};
use weir_jdm::{Jdm, JdmConfig};
use weir_model::alarm::AlarmStatus;
use weir_model::batch::{Plan, Space, StateValue, StreamPin};
use weir_model::port::{
    BatchInputs, PinnedStream, Prepared, Queries, QueryEngine, RuleEngine, RuleStore, Rules, StateReader,
};
use weir_model::ruleset::FileEntry;
use weir_model::stream::{Chunk, OFFSET, OffsetRange, PARTITION};
use weir_model::{
    BatchId, Digest, Fault, FaultPoints, NoFaults, Offsets, Outcome, Ruleset, RunKey, Scalar, StreamId, Time,
};
use weir_pipeline::{batch, output};

use super::{Cell, Said, sorted};
use crate::support::example::{Example, Live};
use crate::support::fakes::name;

/// Rows by stream, as JSON objects; times are microseconds.
pub(super) type Rows = BTreeMap<&'static str, Vec<Value>>;

/// A scenario of the example store, ready to run.
pub(super) struct Real {
    // `live` stands on it
    example: Example,
    live: Live,
    jdm: Arc<Jdm>,
    base: Arc<Prepared>,
}

impl Real {
    pub fn new(scenario: &'static str) -> Self {
        let example = Example::of(scenario);
        let live = example.open();
        let base = live.built.store.scenario(&example.scenario()).unwrap().active.expect("the scenario is admitted");
        Self { example, live, jdm: Jdm::new(JdmConfig { threads: 1 }).unwrap(), base }
    }

    /// The scenario's queries on reference tables with these rows.
    pub fn queries(&self, tables: &[(&str, Vec<Value>)]) -> Arc<dyn Queries> {
        let mut ruleset = (*self.base.ruleset).clone();
        for (table, rows) in tables {
            let path = format!("tables/{table}.json");
            ruleset.manifest.tables.get_mut(*table).expect("the scenario has this table").file = Some(path.clone());
            put(&mut ruleset, &path, serde_json::to_vec(rows).unwrap());
        }
        self.live.built.lake.plan(&ruleset).unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    /// The scenario's rules, one of them with a function node that answers this value.
    pub fn rules(&self, rule: &str, answer: &Value) -> Arc<dyn Rules> {
        let mut ruleset = (*self.base.ruleset).clone();
        let path = ruleset.manifest.rules[rule].clone();
        let mut nodes: Value = serde_json::from_slice(&ruleset.content[&path]).unwrap();
        let node = nodes["nodes"].as_array_mut().unwrap().iter_mut().find(|node| node["type"] == "functionNode");
        node.expect("the rule has a function node")["content"] =
            json!(format!("function handler(input) {{ return {answer}; }}"));
        put(&mut ruleset, &path, serde_json::to_vec(&nodes).unwrap());
        // its sample cases are those of the starter value
        let cases = path.replace(".json", ".cases.json");
        ruleset.content.remove(&cases);
        ruleset.files.remove(&cases);
        self.jdm.load(&ruleset).unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    /// The scenario with other queries or rules.
    pub fn prepared(&self, queries: Option<&Arc<dyn Queries>>, rules: Option<&Arc<dyn Rules>>) -> Arc<Prepared> {
        let mut prepared = (*self.base).clone();
        if let Some(queries) = queries {
            prepared.queries = queries.clone();
        }
        if let Some(rules) = rules {
            prepared.rules = rules.clone();
        }
        Arc::new(prepared)
    }

    /// Everything that a batch at T is a function of, its streams being these rows.
    fn pinned(&self, prepared: &Prepared, time: i64, rows: &Rows) -> (Plan, BatchInputs) {
        let time = Time(time);
        let floor = time.minus(Duration::from_secs(7200));
        let (mut pins, mut streams) = (BTreeMap::new(), BTreeMap::new());
        for (stream, def) in &prepared.ruleset.streams {
            let rows = rows.get(stream.as_str()).map(Vec::as_slice).unwrap_or_default();
            let upto = Offsets::of(0, rows.len() as u64);
            let pin = StreamPin {
                generation: 1,
                from: Offsets::default(),
                upto: upto.clone(),
                floor,
                watermark: None,
                read: true,
                only: None,
            };
            pins.insert(stream.clone(), pin);
            let pinned = PinnedStream {
                stream: StreamId { tenant: name("netops"), stream: stream.clone() },
                def: Arc::new(def.clone()),
                from: Offsets::default(),
                upto,
                floor,
                complete_from: floor,
                chunks: chunks(&def.positioned_schema(), &def.event_time, rows),
                only: None,
            };
            streams.insert(stream.clone(), pinned);
        }
        let tables = prepared.queries.tables().unwrap();
        let plan = Plan {
            key: RunKey::live(self.example.scenario()),
            id: BatchId::FIRST,
            time,
            ruleset: prepared.ruleset.digest,
            attempt: 1,
            streams: pins,
            tables: tables.clone(),
            skipped: None,
            skipped_total: 0,
            state_schema: prepared.detector.description().state,
            backfill: None,
        };
        (plan, BatchInputs { time, streams, tables })
    }

    /// One batch, whose changes of state are kept as a commit would. Its rows are those of one output.
    pub fn batch(&self, prepared: &Arc<Prepared>, time: i64, rows: &Rows, kept: &mut Kept, output: &str) -> Said {
        let (plan, inputs) = self.pinned(prepared, time, rows);
        // A running host does after each batch, and a batch must not show it.
        if time.div_euclid(60_000_000) % 2 == 0 {
            prepared.queries.make_ready();
        }
        let faults: Arc<dyn FaultPoints> = Arc::new(NoFaults);
        let current = batch::current_alarms(kept).unwrap();
        let done = batch::execute(plan, prepared, inputs, Box::new(kept.clone()), &current, &faults)
            .unwrap_or_else(|failure| panic!("the batch fails: {failure} {:?}", failure.log));
        assert_eq!(done.commit.outcome, Outcome::Judged, "{:?}", done.log);
        for write in done.commit.state {
            match write.after {
                Some(value) => kept.0.insert((write.space, write.key), value),
                None => kept.0.remove(&(write.space, write.key)),
            };
        }
        let mut said = Said::default();
        for found in done.commit.outputs {
            assert_ne!(found.output.as_str(), "dead_letters", "{:?}", found.rows);
            if found.output.as_str() == output {
                said.rows = cells(&found.rows);
            }
        }
        for alarm in batch::current_alarms(kept).unwrap().into_values() {
            if alarm.status == AlarmStatus::Open {
                said.open.insert(alarm.key, (alarm.severity, alarm.last_seen.micros()));
            }
        }
        said
    }

    /// The answer of a chain of queries, each of which reads the rows of the one before as a table.
    pub fn chain(&self, prepared: &Prepared, time: i64, rows: &Rows, chain: &[Link<'_>]) -> Vec<Vec<Cell>> {
        let (_, inputs) = self.pinned(prepared, time, rows);
        let mut before: Option<RecordBatch> = None;
        for link in chain {
            let params: Vec<_> = link.times.iter().map(|(n, at)| ((*n).to_owned(), Scalar::Timestamp(*at))).collect();
            let bound: Vec<_> = link.reads.iter().map(|n| ((*n).to_owned(), before.clone().unwrap())).collect();
            before = Some(prepared.queries.run(link.query, &inputs, &params, &bound).unwrap());
        }
        cells(&before.expect("a chain has links"))
    }
}

/// A query of a chain.
pub(super) struct Link<'a> {
    pub query: &'a str,
    /// The name under which it reads the rows of the one before.
    pub reads: Option<&'a str>,
    pub times: &'a [(&'a str, i64)],
}

fn put(ruleset: &mut Ruleset, path: &str, bytes: Vec<u8>) {
    let entry = FileEntry { digest: Digest::of(&bytes), size: bytes.len() as u64 };
    ruleset.files.insert(path.to_owned(), entry);
    ruleset.content.insert(path.to_owned(), bytes.into());
    ruleset.digest = Ruleset::digest_of(&ruleset.scenario, &ruleset.files);
}

/// Rows of one partition, in two chunks where there are enough.
fn chunks(schema: &SchemaRef, event_time: &str, rows: &[Value]) -> Vec<Chunk> {
    let half = rows.len() / 2;
    let (a, b) = rows.split_at(half);
    let parts = [(0, a), (half, b)];
    let parts = parts.iter().filter(|(_, part)| !part.is_empty());
    parts.map(|(first, part)| chunk(schema, event_time, *first, part)).collect()
}

fn chunk(schema: &SchemaRef, event_time: &str, first: usize, rows: &[Value]) -> Chunk {
    let mut placed = rows.to_vec();
    for (i, row) in placed.iter_mut().enumerate() {
        row[PARTITION] = json!(0);
        row[OFFSET] = json!(first + i);
    }
    let mut decoder = arrow_json::ReaderBuilder::new(schema.clone()).build_decoder().unwrap();
    decoder.serialize(&placed).unwrap();
    let times = || rows.iter().map(|row| Time(row[event_time].as_i64().unwrap()));
    Chunk {
        range: OffsetRange { partition: 0, from: first as u64, to: (first + rows.len()) as u64 },
        rows: decoder.flush().unwrap().expect("there are rows"),
        min_time: times().min().unwrap(),
        max_time: times().max().unwrap(),
    }
}

/// Rows without the host's columns, sorted.
fn cells(rows: &RecordBatch) -> Vec<Vec<Cell>> {
    let schema = rows.schema();
    let own: Vec<_> = schema.fields().iter().filter(|field| !field.name().starts_with('_')).collect();
    let cell = |value: &Value, ty: &DataType| match (value, ty) {
        (Value::Null, _) => Cell::Null,
        (Value::String(text), DataType::Timestamp(..)) => Cell::Time(text.parse::<Time>().unwrap().micros()),
        (Value::String(text), _) => Cell::Text(text.clone()),
        (Value::Number(number), DataType::Float64) => Cell::Float(number.as_f64().unwrap()),
        (Value::Number(number), _) => Cell::Int(number.as_i64().unwrap()),
        other => panic!("{other:?}"),
    };
    let objects = output::objects(rows).unwrap();
    let row = |object: &serde_json::Map<String, Value>| -> Vec<Cell> {
        own.iter().map(|field| cell(&object[field.name()], field.data_type())).collect()
    };
    sorted(objects.iter().map(row).collect())
}

/// Keyed state as the ledger would keep it.
#[derive(Clone, Default)]
pub(super) struct Kept(BTreeMap<(Space, Vec<u8>), StateValue>);

impl StateReader for Kept {
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<StateValue>, Fault> {
        Ok(self.0.get(&(space.clone(), key.to_vec())).cloned())
    }
    fn scan(
        &self,
        space: &Space,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, StateValue)>, Fault> {
        let found = self.0.iter().filter(|((of, key), _)| of == space && key.starts_with(prefix));
        let found = found.filter(|((_, key), _)| after.is_none_or(|after| key.as_slice() > after));
        Ok(found.take(limit).map(|((_, key), value)| (key.clone(), value.clone())).collect())
    }
    fn size(&self, space: &Space) -> Result<(u64, u64), Fault> {
        let own = || self.0.iter().filter(|((of, _), _)| of == space);
        Ok((own().count() as u64, own().map(|((_, key), v)| (key.len() + v.value.len()) as u64).sum()))
    }
}

/// What is there in a batch.
pub(super) fn there<T>(rows: &[(usize, T)], batch: usize) -> Vec<&T> {
    rows.iter().filter(|(from, _)| *from <= batch).map(|(_, row)| row).collect()
}

/// The same as JSON.
pub(super) fn arrived<T>(rows: &[(usize, T)], batch: usize, json: impl Fn(&T) -> Value) -> Vec<Value> {
    there(rows, batch).into_iter().map(json).collect()
}
