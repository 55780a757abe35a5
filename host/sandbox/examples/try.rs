//! Loads a component and lets it judge batches of generated rows: what it leaves, what it used and how long it took.
//!
//! ```text
//! cargo run -p weir-sandbox --example try -- COMPONENT CONFIG-JSON [ROWS] [CALLS]
//! ```
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use weir_model::port::{BatchHost, Bounds, Detector, Detectors, RuleAnswer, RuleCall};
use weir_model::{CallError, DataError, Digest, Limits, Ruleset, Scalar, TenantConfig, Time};
use weir_sandbox::{Sandbox, SandboxConfig};

/// A batch of rows that every input and query answers with.
struct Rows(RecordBatch);

fn rows(count: i64) -> Result<RecordBatch, Box<dyn Error>> {
    let ips = (0..count).map(|i| format!("10.0.{}.{}", i * 7 % 4, i * 31 % 25));
    let errors = (0..count).map(|i| i.wrapping_mul(2_654_435_761) >> 7 & 127);
    let times = (0..count).map(|i| i * 1_000);
    Ok(RecordBatch::try_from_iter([
        ("ip", Arc::new(StringArray::from_iter_values(ips)) as _),
        ("err_cnt", Arc::new(Int64Array::from_iter_values(errors)) as _),
        ("at", Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC")) as _),
    ])?)
}

impl BatchHost for Rows {
    fn time(&self) -> Time {
        Time(1_700_000_000_000_000)
    }
    fn seed(&self) -> [u8; 32] {
        [1; 32]
    }
    fn input(&self, _: &str) -> Result<RecordBatch, CallError> {
        Ok(self.0.clone())
    }
    fn window(&self, _: &str) -> Result<Bounds, CallError> {
        Ok(Bounds { start: Time(0), end: self.time(), watermark: None })
    }
    fn query(&self, _: &str, _: &[(String, Scalar)], _: &[(String, RecordBatch)]) -> Result<RecordBatch, CallError> {
        Ok(self.0.clone())
    }
    fn rule(&self, name: &str, _: &RuleCall) -> Result<RuleAnswer, CallError> {
        Err(DataError::Failed(format!("there is no rule {name} here")).into())
    }
    fn state_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, CallError> {
        Ok(vec![None; keys.len()])
    }
    fn state_put(&self, _: &[(&[u8], &[u8])], _: Option<u64>) -> Result<(), CallError> {
        Ok(())
    }
    fn state_delete(&self, _: &[&[u8]]) -> Result<(), CallError> {
        Ok(())
    }
    fn state_scan(&self, _: &[u8], _: Option<&[u8]>, _: u32) -> Result<Vec<(Vec<u8>, Vec<u8>)>, CallError> {
        Ok(Vec::new())
    }
}

fn ruleset(component: &str, config: &str) -> Result<Ruleset, Box<dyn Error>> {
    let mut manifest: toml::Table = toml::from_str("plugin = \"plugins/it.wasm\"\ntrigger = \"once\"")?;
    manifest.insert("config".to_owned(), toml::Value::Table(serde_json::from_str(config)?));
    Ok(Ruleset {
        digest: Digest::of(config.as_bytes()),
        scenario: "t/s".parse()?,
        files: BTreeMap::new(),
        content: BTreeMap::from([("plugins/it.wasm".to_owned(), std::fs::read(component)?.into())]),
        manifest: manifest.try_into()?,
        tenant: TenantConfig::default(),
        streams: BTreeMap::new(),
        limits: Limits::defaults(),
    })
}

fn time(calls: usize, mut call: impl FnMut()) -> [Duration; 3] {
    let mut all: Vec<Duration> = (0..calls)
        .map(|_| {
            let start = Instant::now();
            call();
            start.elapsed()
        })
        .collect();
    all.sort();
    [all[0], all[calls / 2], all[calls * 99 / 100]]
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let component = args.next().ok_or("which component?")?;
    let config = args.next().unwrap_or_else(|| "{}".to_owned());
    let count = args.next().map_or(Ok(8_000), |n| n.parse())?;
    let calls: usize = args.next().map_or(Ok(1), |n| n.parse())?;
    let cache = tempfile::tempdir()?;
    let sandbox = Sandbox::new(SandboxConfig::new(cache.path()))?;
    let ruleset = ruleset(&component, &config)?;
    let start = Instant::now();
    let plugin: Arc<dyn Detector> = match sandbox.load(&ruleset) {
        Ok(plugin) => plugin,
        Err(problems) => {
            problems.iter().for_each(|p| println!("problem: {p}"));
            return Ok(());
        }
    };
    println!("loaded in {:?}: {:?}", start.elapsed(), plugin.description());
    let host = Arc::new(Rows(rows(count)?));
    match plugin.detect(host.clone()) {
        Ok(done) => {
            println!("{:?} {:?}", done.verdict, done.usage);
            done.outputs.iter().for_each(|(name, rows)| println!("output {name}: {} rows", rows.num_rows()));
            println!("{} alarms, {} rejects", done.alarms.len(), done.rejects.len());
            done.alarms.iter().take(3).for_each(|alarm| println!("{alarm:?}"));
            done.rejects.iter().take(3).for_each(|reject| println!("{reject:?}"));
            done.log.iter().take(5).for_each(|line| println!("{line:?}"));
        }
        Err(failure) => {
            println!("fault: {:?}", failure.fault);
            println!("{:?}", failure.usage);
            failure.log.iter().take(5).for_each(|line| println!("{line:?}"));
        }
    }
    if calls > 1 {
        let [least, p50, p99] = time(calls, || drop(plugin.detect(host.clone())));
        println!("{calls} calls: least {least:?}, p50 {p50:?}, p99 {p99:?}");
    }
    Ok(())
}
