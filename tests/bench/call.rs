//! Calls into plugins without a host around them: `detect` over a batch of rows, and what a call costs that does nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use weir_model::port::{BatchHost, Bounds, Detector, Detectors, RuleAnswer, RuleCall};
use weir_model::{CallError, DataError, Digest, Limits, Ruleset, Scalar, TenantConfig, Time};
use weir_sandbox::{Sandbox, SandboxConfig};

use crate::Effort;
use crate::native::Native;
use crate::probe::Probe;
use crate::report::{Report, Sample};
use crate::support::example::guest;

/// A batch of rows that every input answers with.
struct Rows(RecordBatch);

fn rows(count: i64) -> RecordBatch {
    let ips = (0..count).map(|i| format!("10.0.{}.{}", i * 7 % 4, i * 31 % 25));
    let errors = (0..count).map(|i| (i.wrapping_mul(2_654_435_761) >> 7) & 127);
    let times = (0..count).map(|i| i * 1_000);
    RecordBatch::try_from_iter([
        ("ip", Arc::new(StringArray::from_iter_values(ips)) as _),
        ("err_cnt", Arc::new(Int64Array::from_iter_values(errors)) as _),
        ("at", Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC")) as _),
    ])
    .unwrap()
}

type Answer<T> = Result<T, CallError>;

impl BatchHost for Rows {
    fn time(&self) -> Time {
        Time(1_700_000_000_000_000)
    }
    fn seed(&self) -> [u8; 32] {
        [1; 32]
    }
    fn input(&self, _: &str) -> Answer<RecordBatch> {
        Ok(self.0.clone())
    }
    fn window(&self, _: &str) -> Answer<Bounds> {
        Ok(Bounds { start: Time(0), end: self.time(), watermark: None })
    }
    fn query(&self, _: &str, _: &[(String, Scalar)], _: &[(String, RecordBatch)]) -> Answer<RecordBatch> {
        Ok(self.0.clone())
    }
    fn rule(&self, _: &str, _: &RuleCall) -> Answer<RuleAnswer> {
        Err(DataError::Undeclared.into())
    }
    fn state_get(&self, keys: &[&[u8]]) -> Answer<Vec<Option<Vec<u8>>>> {
        Ok(vec![None; keys.len()])
    }
    fn state_put(&self, _: &[(&[u8], &[u8])], _: Option<u64>) -> Answer<()> {
        Ok(())
    }
    fn state_delete(&self, _: &[&[u8]]) -> Answer<()> {
        Ok(())
    }
    fn state_scan(&self, _: &[u8], _: Option<&[u8]>, _: u32) -> Answer<Vec<(Vec<u8>, Vec<u8>)>> {
        Ok(Vec::new())
    }
}

/// The probe in a sandbox, with all limits as they are by default.
fn probe(folder: &tempfile::TempDir, behaviour: &str) -> Arc<dyn Detector> {
    let file = "plugins/probe.wasm";
    let bytes = std::fs::read(guest("probe.wasm")).unwrap();
    let manifest = format!("plugin = \"{file}\"\ntrigger = \"once\"\n[config]\ndo = \"{behaviour}\"\n");
    let ruleset = Ruleset {
        digest: Digest::of(behaviour.as_bytes()),
        scenario: "bench/probe".parse().unwrap(),
        files: BTreeMap::new(),
        content: BTreeMap::from([(file.to_owned(), Arc::from(bytes))]),
        manifest: toml::from_str(&manifest).unwrap(),
        tenant: TenantConfig::default(),
        streams: BTreeMap::new(),
        limits: Limits::defaults(),
    };
    let sandbox = Sandbox::new(SandboxConfig::new(folder.path())).unwrap();
    sandbox.load(&ruleset).unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// The same calls in turns, each side first in half of them.
pub fn in_turns(a: &dyn Detector, b: &dyn Detector, host: &Arc<dyn BatchHost>, rounds: usize) -> (Sample, Sample) {
    let (mut first, mut second) = (Sample::default(), Sample::default());
    for round in 0..rounds + 20 {
        let (mut on_a, mut on_b) = (Sample::default(), Sample::default());
        let mut call_a = || on_a.time(|| a.detect(host.clone()).map(drop).unwrap());
        let mut call_b = || on_b.time(|| b.detect(host.clone()).map(drop).unwrap());
        if round % 2 == 0 {
            call_a();
            call_b();
        } else {
            call_b();
            call_a();
        }
        if round >= 20 {
            first.extend(on_a);
            second.extend(on_b);
        }
    }
    (first, second)
}

/// Filter and group by.
pub fn detect(report: &mut Report, effort: Effort) {
    let folder = tempfile::tempdir().unwrap();
    let plugin = probe(&folder, "filter-group");
    let native = Native::<Probe>::like(plugin.as_ref(), r#"{"do":"filter-group"}"#);
    for (label, count, rounds) in [("1k", 1_000, 1000), ("8k", 8_000, 500), ("64k", 64_000, 100)] {
        let host: Arc<dyn BatchHost> = Arc::new(Rows(rows(count)));
        let (here, there) = (native.detect(host.clone()).unwrap(), plugin.detect(host.clone()).unwrap());
        assert!(!here.outputs.is_empty(), "the benchmark finds nothing");
        assert_eq!(here.outputs, there.outputs, "both are the same code");
        let (sandboxed, natively) = in_turns(plugin.as_ref(), &native, &host, effort.rounds(rounds));
        report.durations(&format!("filter and group by over {label} rows, plugin"), &sandboxed, None);
        report.durations("the same code native", &natively, None);
        let goal = (count == 8_000).then_some(2.5);
        report.ratio(&format!("detect over {label} rows, plugin over native"), sandboxed.over(&natively), goal);
    }
}

/// A call that does nothing: store, instance, prepare, detect, and all of it dropped. The sandbox offers no instance
/// without the rest, so this is an upper bound of it.
pub fn instance(report: &mut Report, effort: Effort) {
    let folder = tempfile::tempdir().unwrap();
    let plugin = probe(&folder, "judged");
    let host: Arc<dyn BatchHost> = Arc::new(Rows(rows(1)));
    let mut sample = Sample::default();
    for round in 0..effort.rounds(5000) + 50 {
        let mut one = Sample::default();
        one.time(|| plugin.detect(host.clone()).map(drop).unwrap());
        if round >= 50 {
            sample.extend(one);
        }
    }
    let what = "fixed call cost: fresh instance, prepare, empty detect, drop (the goal is for the instance alone)";
    report.durations(what, &sample, Some(15.0));
}
