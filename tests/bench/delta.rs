//! Appends to a Delta table as its history grows, and the same by Python's deltalake on copies of the same table.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use weir_lake::{LakeConfig, WeirLake};
use weir_model::NoFaults;
use weir_model::port::{Append, Lake, Table};

use crate::Effort;
use crate::report::{Report, Sample, micros};
use crate::support::example::repository;
use crate::support::fakes::name;

const ROWS: usize = 100;
const APPENDS: usize = 20;
/// 2026-01-01T00:00:00Z.
const EPOCH: i64 = 1_767_225_600_000_000;

/// The schema of s1_results, as `append_bench.py` has it.
fn schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let text = DataType::Utf8;
    let fields = [
        ("alarm_time", time.clone()),
        ("router_name", text.clone()),
        ("router_ip", text.clone()),
        ("error_count", DataType::Int64),
        ("severity", text.clone()),
        ("alarm_reason", text),
        ("processing_time", time),
    ];
    Arc::new(Schema::new(fields.into_iter().map(|(n, ty)| Field::new(n, ty, true)).collect::<Vec<_>>()))
}

fn rows(number: i64) -> RecordBatch {
    let at = TimestampMicrosecondArray::from_value(EPOCH + number * 60_000_000, ROWS).with_timezone("UTC");
    let at = Arc::new(at);
    let text = |make: &dyn Fn(usize) -> String| Arc::new(StringArray::from_iter_values((0..ROWS).map(make)));
    RecordBatch::try_new(
        schema(),
        vec![
            at.clone(),
            text(&|i| format!("Edge-RouterA-{i:03}")),
            text(&|i| format!("203.0.113.{}", i % 256)),
            Arc::new(Int64Array::from_iter_values(0..ROWS as i64)),
            text(&|_| "Critical".to_owned()),
            text(&|_| "Threshold >= 50".to_owned()),
            at,
        ],
    )
    .unwrap()
}

struct Grown<'r> {
    runtime: &'r tokio::runtime::Runtime,
    table: Arc<dyn Table>,
    next: i64,
}

impl<'r> Grown<'r> {
    fn new(runtime: &'r tokio::runtime::Runtime, lake: &WeirLake, table: &str) -> Self {
        let table = runtime.block_on(lake.table(&name("bench"), &name(table), schema())).unwrap();
        let mut grown = Self { runtime, table, next: 1 };
        grown.append();
        grown
    }
    /// One append is one version of the table; the first one is version 1, because version 0 makes it.
    fn append(&mut self) {
        let item = Append { app: "bench".to_owned(), version: self.next, rows: rows(self.next) };
        self.runtime.block_on(self.table.append(vec![item])).unwrap();
        self.next += 1;
    }
}

/// The latest version in a table's log.
fn version(table: &Path) -> u64 {
    let names = std::fs::read_dir(table.join("_delta_log")).unwrap().map(|e| e.unwrap().file_name());
    let versions = names.filter_map(|n| n.to_str()?.strip_suffix(".json")?.parse().ok());
    versions.max().expect("a log")
}

/// Waits until the log has not changed for a while: a checkpoint of the versions before may still be in the making.
fn rest(table: &Path) {
    let stamp = || std::fs::read_dir(table.join("_delta_log")).unwrap().count();
    let (mut seen, mut since) = (stamp(), Instant::now());
    while since.elapsed() < Duration::from_millis(1500) {
        // Real time for the lake's own task.
        #[allow(clippy::disallowed_methods)]
        std::thread::sleep(Duration::from_millis(50));
        let now = stamp();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
}

/// Median and p99 of 20 appends by Python, in microseconds.
fn python(table: &Path) -> Option<(f64, f64)> {
    let output = Command::new(std::env::var_os("WEIR_PYTHON")?)
        .arg(repository().join("tests/python/append_bench.py"))
        .arg(table)
        .args(["--appends", &APPENDS.to_string(), "--rows", &ROWS.to_string()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    Some((answer["p50"].as_f64()? * 1000.0, answer["p99"].as_f64()? * 1000.0))
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(done.success(), "the table cannot be copied");
}

/// Appends to both in turns, so that what else the machine does meets both; the young one is at version 10 first.
fn in_turns(old: &mut Grown<'_>, young: &mut Grown<'_>) -> (Sample, Sample) {
    while young.next <= 10 {
        young.append();
    }
    let (mut to_old, mut to_young) = (Sample::default(), Sample::default());
    for round in 0..2 * APPENDS {
        if round % 2 == 0 {
            to_old.time(|| old.append());
            to_young.time(|| young.append());
        } else {
            to_young.time(|| young.append());
            to_old.time(|| old.append());
        }
    }
    (to_old, to_young)
}

/// Appends at versions 10, 50, 1,000 and 10,000.
pub fn run(report: &mut Report, effort: Effort) {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let config = LakeConfig::new(folder.path().join("lake"), runtime.handle().clone());
    let lake = WeirLake::open(config, Arc::new(NoFaults)).unwrap();
    let path = folder.path().join("lake/bench/rows");
    let mut grown = Grown::new(&runtime, &lake, "rows");

    let last = effort.most(10_000, 2000);
    let (mut growing, mut grown_by) = (Duration::ZERO, 0u32);
    for target in [10, 50, 1000, last] {
        let before = Instant::now();
        while version(&path) + 200 < target {
            (0..100).for_each(|_| grown.append());
            grown_by += 100;
        }
        growing += before.elapsed();
        while version(&path) < target {
            grown.append();
        }
        rest(&path);
        let other = folder.path().join(format!("python-{target}"));
        copy(&path, &other);
        let mut ours = Sample::default();
        (0..APPENDS).for_each(|_| ours.time(|| grown.append()));
        assert_eq!(version(&path), target + APPENDS as u64, "an append is a version");
        report.durations(&format!("Delta append of 100 rows at version {target}, weir"), &ours, None);
        if let Some((p50, p99)) = python(&other) {
            assert_eq!(version(&other), target + APPENDS as u64, "Python appended to the copy");
            let value = format!("{} (p99 {})", micros(p50), micros(p99));
            report.figure(&format!("the same by Python's deltalake (n = {APPENDS})"), &value);
            let goal = (target == 50).then_some(0.1);
            report.ratio(&format!("weir's append over Python's at version {target}"), ours.p50() / p50, goal);
        }
    }
    let (old, young) = in_turns(&mut grown, &mut Grown::new(&runtime, &lake, "young"));
    report.durations(&format!("Delta append at version {last}, in turns with a young table"), &old, None);
    report.durations("Delta append to that young table, from version 10 on", &young, None);
    report.ratio(&format!("append at version {last} over append at version 10"), old.over(&young), Some(1.2));
    let mean = growing.as_secs_f64() * 1e6 / f64::from(grown_by.max(1));
    report.figure("mean of all appends while it grew, checkpoints beside them", &micros(mean));
    report.keep(folder);
}
