//! History that is made: a host goes on after it, and a backfill finds in it what the spec says.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use weir::config::{Config, Need, Overrides};
use weir::generate::{Ask, Format, into_data, into_files};
use weir_generate::Stream;
use weir_lake::{LakeConfig, WeirLake};
use weir_model::batch::Between;
use weir_model::port::QueryEngine;
use weir_model::service::{BackfillAsk, Service};
use weir_model::stream::SourceDef;
use weir_model::{Clock, FaultKind, NoFaults, Span, StreamDef, Time};

use crate::support::binary::pause;
use crate::support::example::{Example, repository};
use crate::support::fakes::name;

fn at(text: &str) -> Time {
    text.parse().unwrap()
}

/// The hour before noon; the example's clock says half a minute past noon.
fn hour(seed: u64) -> Ask {
    Ask { from: at("2026-01-31T11:00:00Z"), to: at("2026-01-31T12:00:00Z"), seed, tenant: name("netops") }
}

fn fill(example: &Example, ask: &Ask) -> Result<Vec<weir::generate::Made>, weir_model::Fault> {
    let config = Config::load(
        &Overrides { store: Some(example.store()), data: Some(example.data()), ..Overrides::default() },
        Need::Run,
    );
    let clock: Arc<dyn Clock> = Arc::new(example.clock.clone());
    let filled = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The store's files settle on the clock.
        scope.spawn(|| {
            while !filled.load(Ordering::Acquire) {
                pause(Duration::from_millis(20));
                example.clock.advance(Duration::from_millis(20));
            }
        });
        let result = into_data(ask, &config.unwrap(), clock, &mut |_| {});
        filled.store(true, Ordering::Release);
        result
    })
}

#[test]
fn a_host_goes_on_after_the_history_and_a_backfill_finds_the_alarms_of_the_spec() {
    let example = Example::new();
    let made = fill(&example, &hour(0)).unwrap();
    assert_eq!((made[0].stream.as_str(), made[0].rows), ("s1_router_syslog_events", 60 * 98));
    let refused = fill(&example, &hour(0)).unwrap_err();
    assert!(refused.message.contains("still empty"), "{refused}");

    let live = example.open();
    let held = fill(&example, &hour(0)).unwrap_err();
    assert_eq!(held.kind, FaultKind::Ledger, "a folder that a host holds: {held}");
    // The batch for noon sees two minutes of the history.
    assert_eq!(example.batches(&live), 1);
    for _ in 0..3 {
        example.minute(&live);
    }
    let counts = "select cast(date_trunc('minute', collected_at) as varchar) as minute, count(*) as n from s1_router_syslog_events \
         where collected_at < timestamp '2026-01-31T12:03:00Z' group by 1 order by 1";
    let counts = example.rows(&live, counts);
    assert_eq!(counts.len(), 63, "no minute is missing where history and source meet");
    assert!(counts.iter().all(|row| row["n"] == 98), "{counts:?}");

    let ask = BackfillAsk {
        scenario: example.scenario(),
        name: None,
        range: Between { from: at("2026-01-31T11:00:00Z"), to: at("2026-01-31T12:00:00Z") },
        every: Span::secs(60),
        ruleset: None,
        publish: true,
        discard: false,
    };
    let mut rows_in = 0;
    loop {
        let progress = live.host.backfill(&ask).unwrap();
        rows_in += progress.rows_in;
        if progress.finished() {
            assert_eq!((progress.done, progress.base), (60, None));
            break;
        }
    }
    assert_eq!(rows_in, 59 * 98, "T of the last batch is 11:59");
    // Of the spec: in each minute 50 messages of .34 are critical and 10 of .33 a warning. T 11:59 sees 11:58 last.
    let found = example.rows(
        &live,
        "select cast(processing_time as varchar) as minute, router_ip, error_count, severity from s1_results \
         where _batch_time < timestamp '2026-01-31T12:00:00Z' order by 1, 2",
    );
    let expected: Vec<Value> = (0..59)
        .flat_map(|m| {
            let minute = format!("2026-01-31T11:{m:02}:00Z");
            [
                json!({"minute": minute, "router_ip": "203.0.113.33", "error_count": 10, "severity": "Warning"}),
                json!({"minute": minute, "router_ip": "203.0.113.34", "error_count": 50, "severity": "Critical"}),
            ]
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn a_stream_that_was_read_is_not_filled() {
    let example = Example::new();
    drop(example.open());
    let refused = fill(&example, &hour(0)).unwrap_err();
    assert_eq!(refused.kind, FaultKind::Config);
    assert!(refused.message.contains("was read or filled before"), "{refused}");
    let later = Ask { to: at("2026-01-31T12:01:00Z"), ..hour(0) };
    assert_eq!(fill(&Example::new(), &later).unwrap_err().field.as_deref(), Some("--to"), "it has not come yet");
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut out = BTreeMap::new();
    for stream in std::fs::read_dir(folder).unwrap() {
        for file in std::fs::read_dir(stream.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            out.insert(name, std::fs::read(path).unwrap());
        }
    }
    out
}

#[test]
fn files_are_one_a_stream_and_day_the_same_for_a_seed_and_readable_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let ask = |seed| Ask { from: at("2026-01-30T23:00:00Z"), to: at("2026-01-31T01:00:00Z"), ..hour(seed) };
    let formats = [Format::Parquet, Format::Json].into();
    let make = |folder: &str, seed| {
        let folder = dir.path().join(folder);
        let mut told = 0;
        let made = into_files(&ask(seed), &folder, &formats, &mut |n| told = n).unwrap();
        assert_eq!(told, 6 * 120, "minutes of all streams");
        (made, files(&folder))
    };
    let (made, one) = make("a", 7);
    let (_, same) = make("b", 7);
    let (_, other) = make("c", 8);
    assert_eq!(one.len(), 6 * 2 * 2);
    assert!(one.contains_key("s2_traffic_forecast/2026-01-30.parquet"), "{:?}", one.keys());
    assert!(one == same && one != other);
    let again = into_files(&ask(7), &dir.path().join("a"), &formats, &mut |_| {}).unwrap_err();
    assert!(again.file.is_some_and(|f| f.contains("2026-01-30")), "{}", again.message);

    for made in made {
        let lines = |day: &str| {
            let text = String::from_utf8(one[&format!("{}/{day}.jsonl", made.stream)].clone()).unwrap();
            text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()).collect::<Vec<_>>()
        };
        let all = [lines("2026-01-30"), lines("2026-01-31")].concat();
        assert_eq!(all.len() as u64, made.rows, "{}", made.stream);
    }
    let python = std::env::var("WEIR_PYTHON").expect("WEIR_PYTHON is not set: run the tests by `cargo xtask test`");
    let path = dir.path().join("a/s1_router_syslog_events/2026-01-31.parquet");
    let script = "import sys, pyarrow.parquet as p; t = p.read_table(sys.argv[1]); print(t.num_rows, t.column_names, flush=True); __import__('os')._exit(0)";
    let output = std::process::Command::new(python).args(["-c", script]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = String::from_utf8(one["s1_router_syslog_events/2026-01-31.jsonl"].clone()).unwrap().lines().count();
    let expected = format!("{rows} ['router_host', 'router_ip', 'collected_at', 'syslog_message']");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected);
}

/// The rows that an example's source makes of one minute, by its SQL.
fn by_source(def: &StreamDef, minute: Time) -> Vec<Value> {
    let SourceDef::Generate { sql, interval: Some(every), .. } = &def.source else { panic!("a generate source") };
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let config = LakeConfig::new(dir.path().join("lake"), runtime.handle().clone());
    let lake = WeirLake::open(config, Arc::new(NoFaults)).unwrap();
    let maker = lake.row_maker(sql, def.schema(), "test").unwrap();
    // A tick makes the slot that ended last before it; ticks come in any phase.
    let ticks = 60 / every.get().as_secs();
    let made = (1..=ticks).flat_map(|tick| {
        let now = minute.plus(every.get() * u32::try_from(tick).unwrap()).plus(Duration::from_millis(1_234));
        objects(&maker.rows(tick, now).unwrap())
    });
    made.collect()
}

fn objects(rows: &arrow_array::RecordBatch) -> Vec<Value> {
    let mut out: Vec<Value> = weir_pipeline::output::objects(rows).unwrap().into_iter().map(Value::Object).collect();
    for row in &mut out {
        // The number of the access point is the tick's in one and the row's in the other; nothing depends on it.
        if let Some(text) = row.get("syslog_message").and_then(Value::as_str)
            && let Some((start, end)) = text.split_once(" in service")
        {
            let start = start.trim_end_matches(|c: char| c.is_ascii_digit());
            row["syslog_message"] = json!(format!("{start}N in service{end}"));
        }
    }
    out
}

#[test]
fn seed_0_makes_what_the_examples_own_sources_make() {
    for stream in Stream::ALL {
        let path = repository().join(format!("examples/network-cep/store/netops/streams/{}.toml", stream.name()));
        let def: StreamDef = toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        for minute in ["2026-01-31T11:59:00Z", "2026-02-01T00:00:00Z", "2026-02-01T00:07:00Z"] {
            let minute = at(minute);
            let rows = stream.rows(minute, minute.plus(Duration::from_secs(60)), 0).unwrap();
            let rows = rows.positioned(&def, 0).unwrap();
            let own: Vec<usize> = (0..def.schema.0.len()).collect();
            let mut made = objects(&rows.project(&own).unwrap());
            let mut expected = by_source(&def, minute);
            for rows in [&mut made, &mut expected] {
                rows.sort_by_key(Value::to_string);
            }
            assert_eq!(made, expected, "{} at {minute}", stream.name());
        }
    }
}
