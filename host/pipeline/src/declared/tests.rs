//! Declared detection over answers that a test makes up.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow_array::{BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::SchemaRef;
use weir_model::alarm::AlarmAction;
use weir_model::columns::{output_schema, timestamp_type};
use weir_model::port::{
    BatchHost, BatchInputs, Bounds, Detection, Detector as _, Queries, RuleAnswer, RuleCall, Verdict,
};
use weir_model::{
    CallError, DataError, Digest, Fault, FaultKind, FieldDef, Limits, Manifest, Name, Problem, Ruleset, Scalar,
    Severity, TenantConfig, Time,
};

use super::{Declared, load};

const MINUTE: i64 = 60_000_000;
/// 2026-01-31T12:00:00Z
const NOON: i64 = 1_769_860_800_000_000;

fn manifest(detect: &str) -> Manifest {
    let text = format!(
        "trigger = {{ interval = '1m' }}\n[queries.q]\nfile = 'queries/q.sql'\nparams = {{ from = 'timestamp', n = 'int64' }}\n\
         [rules]\nr = 'rules/r.json'\np = 'rules/p.json'\n[detect]\nquery = 'q'\nrule = 'r'\n{detect}"
    );
    toml::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// The query answers (minute, device, n).
struct Schema;
impl Queries for Schema {
    fn run(
        &self,
        _: &str,
        _: &BatchInputs,
        _: &[(String, Scalar)],
        _: &[(String, RecordBatch)],
    ) -> Result<RecordBatch, CallError> {
        Err(DataError::Undeclared.into())
    }
    fn input(&self, _: &str, _: &BatchInputs) -> Result<RecordBatch, CallError> {
        Err(DataError::Undeclared.into())
    }
    fn names(&self) -> Vec<Name> {
        Vec::new()
    }
    fn schema(&self, name: &str) -> Option<SchemaRef> {
        (name == "q").then(|| found(&[]).schema())
    }
}

fn found(rows: &[(i64, Option<&str>, i64)]) -> RecordBatch {
    let times: TimestampMicrosecondArray = rows.iter().map(|r| Some(r.0)).collect();
    RecordBatch::try_from_iter_with_nullable([
        ("minute", Arc::new(times.with_data_type(timestamp_type())) as _, true),
        ("device", Arc::new(StringArray::from_iter(rows.iter().map(|r| r.1))) as _, true),
        ("n", Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.2))) as _, true),
    ])
    .unwrap()
}

fn prepared(detect: &str, limits: Limits) -> Result<Declared, Vec<Problem>> {
    let manifest = manifest(detect);
    let ruleset = Ruleset {
        digest: Digest::of(b"r"),
        scenario: "t/s".parse().unwrap(),
        files: BTreeMap::new(),
        content: BTreeMap::new(),
        tenant: TenantConfig { display_timezone: "Asia/Seoul".parse().unwrap(), ..TenantConfig::default() },
        streams: BTreeMap::new(),
        limits,
        manifest: manifest.clone(),
    };
    load(&ruleset, manifest.detect.as_ref().unwrap(), &Schema)
}

/// A batch. Rule `p` answers n = 3 from an empty input; rule `r` says of each row that it alarms from n = 10 on, with the
/// severity `major`; n = 13 fails. With all rows at once it answers those that alarm.
struct Batch {
    time: i64,
    rows: RecordBatch,
    bound: Mutex<Vec<(String, Scalar)>>,
    state: Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>,
}

impl BatchHost for Batch {
    fn time(&self) -> Time {
        Time(self.time)
    }
    fn seed(&self) -> [u8; 32] {
        [0; 32]
    }
    fn input(&self, _: &str) -> Result<RecordBatch, CallError> {
        Err(DataError::Undeclared.into())
    }
    fn window(&self, _: &str) -> Result<Bounds, CallError> {
        Err(DataError::Undeclared.into())
    }
    fn query(
        &self,
        name: &str,
        params: &[(String, Scalar)],
        rows: &[(String, RecordBatch)],
    ) -> Result<RecordBatch, CallError> {
        assert!(name == "q" && rows.is_empty());
        *self.bound.lock().unwrap() = params.to_vec();
        Ok(self.rows.clone())
    }
    fn rule(&self, name: &str, call: &RuleCall) -> Result<RuleAnswer, CallError> {
        let fields: Vec<FieldDef> = (call.want.iter())
            .map(|(name, kind)| FieldDef { name: name.clone(), kind: *kind, nullable: true })
            .collect();
        if name == "p" {
            assert!(call.values.is_empty() && call.rows.is_empty() && call.each.is_none());
            let rows = RecordBatch::try_new(output_schema(&fields), vec![Arc::new(Int64Array::from(vec![3]))]).unwrap();
            return Ok(RuleAnswer { rows, failed: Vec::new() });
        }
        let all = call.rows.first().map(|(field, rows)| {
            assert_eq!((field.as_str(), call.unnest.as_deref()), ("rows", Some("alarms")));
            rows.clone()
        });
        let input = call.each.clone().or(all).unwrap();
        let n = input.column_by_name("n").unwrap();
        let n = arrow_array::cast::AsArray::as_primitive::<arrow_array::types::Int64Type>(n.as_ref());
        let names = input.column_by_name("device").map(|d| arrow_array::cast::AsArray::as_string::<i32>(d).clone());
        let keep: Vec<usize> = (0..n.len()).filter(|i| call.each.is_some() || n.value(*i) >= 10).collect();
        let failed: Vec<(u32, String)> = match call.each {
            Some(_) => keep.iter().filter(|i| n.value(**i) == 13).map(|i| (*i as u32, "thirteen".into())).collect(),
            None => Vec::new(),
        };
        let ok = |i: &usize| !failed.iter().any(|(row, _)| *row as usize == *i);
        let column = |field: &FieldDef| -> arrow_array::ArrayRef {
            match field.name.as_str() {
                "yes" => Arc::new(BooleanArray::from_iter(keep.iter().map(|i| ok(i).then(|| n.value(*i) >= 10)))),
                "level" => Arc::new(StringArray::from_iter(keep.iter().map(|i| ok(i).then_some("MAJOR")))),
                "name" => {
                    let names = names.as_ref().unwrap();
                    Arc::new(StringArray::from_iter(keep.iter().map(|i| names.iter().nth(*i).flatten())))
                }
                other => panic!("{other}"),
            }
        };
        let columns = fields.iter().map(column).collect();
        Ok(RuleAnswer { rows: RecordBatch::try_new(output_schema(&fields), columns).unwrap(), failed })
    }
    fn state_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, CallError> {
        let state = self.state.lock().unwrap();
        Ok(keys.iter().map(|k| state.get(*k).cloned()).collect())
    }
    fn state_put(&self, entries: &[(&[u8], &[u8])], ttl: Option<u64>) -> Result<(), CallError> {
        assert!(ttl.is_some(), "nothing is kept for ever");
        let mut state = self.state.lock().unwrap();
        state.extend(entries.iter().map(|(k, v)| (k.to_vec(), v.to_vec())));
        Ok(())
    }
    fn state_delete(&self, keys: &[&[u8]]) -> Result<(), CallError> {
        let mut state = self.state.lock().unwrap();
        keys.iter().for_each(|k| {
            state.remove(*k);
        });
        Ok(())
    }
    fn state_scan(&self, _: &[u8], _: Option<&[u8]>, _: u32) -> Result<Vec<(Vec<u8>, Vec<u8>)>, CallError> {
        Ok(Vec::new())
    }
}

/// A scenario with its state.
struct World {
    declared: Declared,
    state: Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>,
}

const BIND: &str = "bind = { from = 'minute(T) - 2m', n = { rule = 'p', field = 'n' } }\n";
const EACH: &str = "input = ['n']\nanswer = { yes = 'boolean', level = 'text' }\nwhen = 'yes'\n";
const ALARM: &str = "[detect.alarm]\ntype = 'busy'\nkey = ['device']\nseverity = 'level'\nmessage = '{device} at {minute:%H:%M}: {n}'\nfields = ['n']\n";

impl World {
    fn new(detect: &str) -> Self {
        Self { declared: prepared(detect, Limits::default()).unwrap(), state: Arc::default() }
    }
    fn try_batch(&self, time: i64, rows: RecordBatch) -> Result<Detection, Fault> {
        let bound = Mutex::default();
        let batch = Arc::new(Batch { time, rows, bound, state: self.state.clone() });
        let found = self.declared.detect(batch.clone()).map_err(|f| f.fault)?;
        assert_eq!(
            *batch.bound.lock().unwrap(),
            [("from".into(), Scalar::Timestamp(time / MINUTE * MINUTE - 2 * MINUTE)), ("n".into(), Scalar::Int64(3))]
        );
        Ok(found)
    }
    fn batch(&self, rows: &[(i64, Option<&str>, i64)]) -> Detection {
        self.try_batch(NOON + MINUTE + 5, found(rows)).unwrap()
    }
}

fn raised(found: &Detection) -> Vec<(String, Option<Severity>, String)> {
    let each = found.alarms.iter().map(|a| {
        let severity = match a.action {
            AlarmAction::Raise(severity) => Some(severity),
            AlarmAction::Clear => None,
        };
        (a.key.join(","), severity, a.message.clone())
    });
    each.collect()
}

fn yes(key: &str, message: &str) -> (String, Option<Severity>, String) {
    (key.into(), Some(Severity::Major), message.into())
}
fn over(key: &str) -> (String, Option<Severity>, String) {
    (key.into(), None, String::new())
}

#[test]
fn the_latest_row_of_a_key_speaks_and_a_row_that_is_well_ends_its_alarm() {
    let world = World::new(&format!("{BIND}{EACH}{ALARM}latest = 'minute'\n"));
    let later = NOON + MINUTE;
    let first = world.batch(&[(later, Some("a"), 11), (NOON, Some("a"), 50), (NOON, Some("b"), 10)]);
    assert_eq!(raised(&first), [yes("a", "a at 21:01: 11"), yes("b", "b at 21:00: 10")]);
    assert_eq!(first.verdict, Verdict::Judged);
    assert_eq!(first.alarms[0].fields, [("n".to_owned(), Scalar::Int64(11))]);
    assert_eq!((first.alarms[0].because[0].source.as_str(), first.alarms[0].because[0].row), ("query:q#1", 0));
    // The latest row of a is well; nothing is seen of b, which is left to the host's quiet batches.
    let second = world.batch(&[(later, Some("a"), 3), (NOON, Some("a"), 50)]);
    assert_eq!(raised(&second), [over("a")]);
    // Without `once` every alarming row is new, so what is over is told again when it alarmed before that.
    let third = world.batch(&[(later, Some("a"), 3), (NOON, Some("c"), 3)]);
    assert_eq!(raised(&third), []);
}

#[test]
fn an_alarm_ends_at_the_time_that_is_declared_only() {
    let once = "[detect.once]\nper = ['minute', 'device']\n";
    let world = World::new(&format!("{BIND}{EACH}{once}{ALARM}latest = 'minute'\nclear_at = 'minute(T) - 1m'\n"));
    assert_eq!(raised(&world.batch(&[(NOON, Some("a"), 50)])).len(), 1);
    // Well, but of another minute than clear_at: neither raised nor cleared.
    assert_eq!(raised(&world.batch(&[(NOON - MINUTE, Some("a"), 1)])), []);
    assert_eq!(raised(&world.batch(&[(NOON, Some("a"), 1)])), [over("a")]);
    assert_eq!(raised(&world.batch(&[(NOON, Some("a"), 1)])), []);
    // Over before it was told: told once, then over.
    let both = [(NOON - MINUTE, Some("b"), 50), (NOON, Some("b"), 1)];
    assert_eq!(raised(&world.batch(&both)), [yes("b", "b at 20:59: 50")]);
    assert_eq!(raised(&world.batch(&both)), [over("b")]);
    assert_eq!(raised(&world.batch(&both)), []);
}

#[test]
fn what_cannot_be_judged_is_put_aside_and_silence_clears_nothing() {
    let output = "[detect.output]\nname = 'o'\ncolumns = { at = 'T', who = 'device', n = 'n' }\n";
    let world = World::new(&format!("{BIND}{EACH}{output}{ALARM}"));
    let found = world.batch(&[(NOON, Some("a"), 13), (NOON, None, 20), (NOON, Some("b"), 12)]);
    assert_eq!(found.verdict, Verdict::NoVerdict);
    let aside: Vec<(u32, &str)> = found.rejects.iter().map(|r| (r.row.row, r.reason.as_str())).collect();
    assert_eq!(aside, [(0, "rule 'r': thirteen"), (1, "column device of query q is null")]);
    assert_eq!(raised(&found), [yes("b", "b at 21:00: 12")]);
    let (name, rows) = &found.outputs[0];
    assert_eq!((name.as_str(), rows.num_rows()), ("o", 1));
    let cells = rows.columns().iter().map(|column| super::cells::scalar(column, 0)).collect::<Vec<_>>();
    assert_eq!(cells, [Scalar::Timestamp(NOON + MINUTE + 5), Scalar::Text("b".into()), Scalar::Int64(12)]);
    assert_eq!(rows.schema().fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), ["at", "who", "n"]);
}

#[test]
fn all_rows_at_once_give_rows_of_the_answer() {
    let all = "all = { as = 'rows', unnest = 'alarms' }\nanswer = { name = 'text' }\n";
    let once = "[detect.once]\nper = ['name']\n";
    let output = "[detect.output]\nname = 'o'\ncolumns = { who = 'name' }\n";
    let alarm =
        "[detect.alarm]\ntype = 'busy'\nkey = ['name']\nseverity = { fixed = 'critical' }\nmessage = '{name}'\n";
    let world = World::new(&format!("{BIND}{all}{once}{output}{alarm}"));
    let rows = [(NOON, Some("a"), 3), (NOON, Some("b"), 11), (NOON, Some("c"), 12)];
    let first = world.batch(&rows);
    let keys: Vec<String> = raised(&first).into_iter().map(|a| a.0).collect();
    assert_eq!((keys, first.outputs[0].1.num_rows()), (vec!["b".to_owned(), "c".to_owned()], 2));
    assert_eq!(first.alarms[0].because[0].source, "rule:r#1");
    let second = world.batch(&rows);
    assert_eq!((second.alarms.len(), second.outputs[0].1.num_rows()), (2, 0), "raised again, reported once");
    let none = world.batch(&[]);
    assert_eq!((none.alarms.len(), none.verdict), (0, Verdict::Judged));
}

#[test]
fn what_leaves_is_bounded() {
    let detect = format!("{BIND}{EACH}{ALARM}");
    let rows: Vec<_> = ["a", "b", "c"].map(|d| (NOON, Some(d), 20)).into();
    for (limit, value, kind) in [
        ("alarms", 2, FaultKind::Alarms),
        ("rule_rows", 2, FaultKind::RuleLimit),
        ("memory_bytes", 10, FaultKind::Memory),
    ] {
        let patch = toml::from_str(&format!("{limit} = {value}")).unwrap();
        let declared = prepared(&detect, Limits::default().with(&patch).unwrap()).unwrap();
        let fault = World { declared, state: Arc::default() }.try_batch(NOON, found(&rows)).unwrap_err();
        assert_eq!((fault.kind, fault.field.as_deref()), (kind, Some(limit)), "{fault}");
    }
}

#[test]
fn a_text_that_is_too_long_for_an_alarm_costs_its_row_and_not_the_batch() {
    let patch = toml::from_str("alarm_bytes = 40").unwrap();
    let declared = prepared(&format!("{BIND}{EACH}{ALARM}"), Limits::default().with(&patch).unwrap()).unwrap();
    let world = World { declared, state: Arc::default() };
    // Key, message, field (a letter and a number) and the row that it comes from: 1 + 14 + 9 + 8, and 14 + 27 + 9 + 8.
    let long = "x".repeat(14);
    let found = world.batch(&[(NOON, Some("a"), 20), (NOON, Some(&long), 20), (NOON, Some("b"), 12)]);
    assert_eq!(found.verdict, Verdict::NoVerdict);
    assert_eq!(raised(&found), [yes("a", "a at 21:00: 20"), yes("b", "b at 21:00: 12")]);
    let aside: Vec<(u32, &str)> = found.rejects.iter().map(|r| (r.row.row, r.reason.as_str())).collect();
    assert_eq!(aside, [(1, "its alarm has 58 bytes, and alarm_bytes is 40")]);
}

#[test]
fn everything_that_does_not_fit_is_said() {
    let said = |detect: &str| -> Vec<String> {
        prepared(detect, Limits::default()).unwrap_err().iter().map(ToString::to_string).collect()
    };
    let all = said(
        "bind = { from = { value = 5 }, m = 'T' }\ninput = ['x']\nanswer = { n = 'int64', level = 'text' }\nwhen = 'level'\n\
         [detect.once]\nper = []\n[detect.output]\nname = 'o'\ncolumns = { a = 'nope', A = 'T' }\n\
         [detect.alarm]\ntype = 'busy'\nkey = ['device']\nseverity = 'major'\nmessage = '{device:%H} {what}'\nclear_at = 'T'\n",
    );
    assert_eq!(
        all,
        [
            "scenario.toml: detect.bind: parameter n of query q is not bound; add n = \"minute(T)\", { rule = ... } or { value = ... }",
            "scenario.toml: detect.bind.m: query q has no parameter m; there are the params from, n",
            "scenario.toml: detect.bind.from: 5 is no timestamp; write a value of type timestamp",
            "scenario.toml: detect.input: query q has no column x; there are the columns minute, device, n",
            "scenario.toml: detect.answer.n: n is a column of query q too; give the query's column another name, with AS",
            "scenario.toml: detect.when: column level is text, and boolean is needed; name another column, or make it one in the query",
            "scenario.toml: detect.once.per: it names no column; name at least one",
            "scenario.toml: detect.output.columns.a: there is no column nope; there are the columns level, n, minute, device, n",
            "scenario.toml: detect.output.columns.A: it differs from a only in case; choose another name",
            "scenario.toml: detect.alarm.severity: there is no column major; write severity = { fixed = \"major\" }",
            "scenario.toml: detect.alarm.message: column device is text, and timestamp is needed; name another column, or make it one in the query",
            "scenario.toml: detect.alarm.message: there is no column what; there are the columns level, n, minute, device, n",
            "scenario.toml: detect.alarm.clear_at: it needs a time to compare with; name a timestamp column in detect.alarm.latest",
        ]
    );
    let nothing = said(&format!("{BIND}{EACH}"));
    assert_eq!(
        nothing,
        ["scenario.toml: detect: nothing would be reported; add [detect.output] or [detect.alarm], or both"]
    );
}
