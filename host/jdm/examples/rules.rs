//! How long calls of rules take: `cargo run --package weir-jdm --example rules`.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use weir_jdm::{Jdm, JdmConfig};
use weir_model::port::{RuleCall, RuleContext, RuleEngine};
use weir_model::{Digest, Kind, Limits, Ruleset, TenantConfig, Time};

const CALLS: u32 = 1_000;

/// A function node that is evaluated anew each time, because it reads the clock.
const STAMP: &str = r#"{"nodes": [
    {"id": "i", "name": "Request", "type": "inputNode"},
    {"id": "f", "name": "Stamp", "type": "functionNode",
     "content": "function handler(input) { return { at: new Date().toISOString() } }"},
    {"id": "o", "name": "Response", "type": "outputNode"}],
    "edges": [{"id": "a", "sourceId": "i", "targetId": "f"}, {"id": "b", "sourceId": "f", "targetId": "o"}]}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let starters = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rules/network-cep");
    let mut content: BTreeMap<String, Arc<[u8]>> = BTreeMap::new();
    content.insert("rules/stamp.json".to_owned(), STAMP.as_bytes().into());
    for name in ["1-1", "1-2"] {
        let bytes = std::fs::read(format!("{starters}/{name}.json"))?;
        content.insert(format!("rules/{name}.json"), bytes.into());
    }
    let manifest = "plugin = \"none.wasm\"\ntrigger = \"once\"\n[rules]\n\
        1-1 = \"rules/1-1.json\"\n1-2 = \"rules/1-2.json\"\nstamp = \"rules/stamp.json\"";
    let ruleset = Ruleset {
        digest: Digest::of(b"example"),
        scenario: "acme/example".parse()?,
        files: BTreeMap::new(),
        content,
        manifest: toml::from_str(manifest)?,
        tenant: TenantConfig::default(),
        streams: BTreeMap::new(),
        limits: Limits::defaults(),
    };
    let jdm = Jdm::new(JdmConfig { threads: 1 })?;
    let began = Instant::now();
    let rules = jdm.load(&ruleset).map_err(|problems| format!("{problems:?}"))?;
    let loaded = began.elapsed();

    let counts = Arc::new(Int64Array::from(vec![50, 10, 2, 60, 0, 9, 11, 49])) as ArrayRef;
    let table = RuleCall {
        each: Some(RecordBatch::try_from_iter([("err_cnt", counts)])?),
        want: vec![
            ("should_alarm".to_owned(), Kind::Boolean),
            ("severity".to_owned(), Kind::Text),
            ("alarm_reason".to_owned(), Kind::Text),
        ],
        ..RuleCall::default()
    };
    let one = |path: &str| RuleCall { want: vec![(path.to_owned(), Kind::Text)], ..RuleCall::default() };
    report("load three rules", &mut [loaded]);
    for (what, rule, call) in [
        ("1-1, a pure function node", "1-1", one("pattern")),
        ("1-2, a decision table over 8 rows", "1-2", table),
        ("a function node that reads the clock", "stamp", one("at")),
    ] {
        let mut times = Vec::new();
        for i in 0..CALLS {
            let context =
                RuleContext { time: Time(i64::from(i) * 60_000_000), seed: [0; 32], zone: weir_model::Zone::UTC };
            let began = Instant::now();
            rules.evaluate(rule, &call, context)?;
            times.push(began.elapsed());
        }
        report(what, &mut times);
    }
    Ok(())
}

#[allow(clippy::print_stdout)]
fn report(what: &str, times: &mut [Duration]) {
    times.sort();
    let at = |percent: usize| times[times.len() * percent / 100];
    println!("{what:40} p50 {:>9.1?}  p90 {:>9.1?}", at(50), at(90));
}
