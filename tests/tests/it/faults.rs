//! A fault at every step: whatever the host ends at, the results equal those of a run without faults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weir_model::batch::ALARM_EVENTS;
use weir_model::faultpoint::POINTS;
use weir_model::port::{AdHoc, BatchHost};
use weir_model::{AlarmRaise, Clock, FaultKind, FaultPoints, NoFaults, Severity, SinkId, Time, VirtualClock};
use weir_pipeline::host::{Host, Pace};
use weir_pipeline::scenario::Step;

use crate::support::engines::{Opened, open};
use crate::support::fakes::{CountingSources, OneScenario, Seeded, detection, fake, name, quick_folder, sums};

const MINUTES: u64 = 8;

/// One row a batch with count and sum of the new rows and a running total, and an alarm while the sum is odd.
fn plugin() -> Arc<crate::support::fakes::FakeDetector> {
    let detect = |host: &dyn BatchHost| {
        let row = sums(host)?;
        let minute = host.time().micros() / 60_000_000;
        let action = match minute % 3 {
            0 => weir_model::alarm::AlarmAction::Clear,
            1 => weir_model::alarm::AlarmAction::Raise(Severity::Warning),
            _ => weir_model::alarm::AlarmAction::Raise(Severity::Critical),
        };
        let alarm = AlarmRaise {
            name: name("parity"),
            key: vec!["third".into()],
            action,
            message: format!("minute {minute}"),
            fields: Vec::new(),
            because: Vec::new(),
        };
        Ok(detection(&row, vec![alarm]))
    };
    fake(&["count", "sum", "total"], Some(1), Box::new(detect))
}

/// What is in the lake after a run, as text, and how often which point failed.
struct Ran {
    tables: BTreeMap<&'static str, Vec<String>>,
    injected: BTreeMap<&'static str, u64>,
    passed: BTreeMap<&'static str, u64>,
}

fn run(runtime: &tokio::runtime::Handle, seed: Option<u64>) -> Ran {
    let dir = quick_folder();
    let clock = VirtualClock::new(Time(30_000_000));
    let seeded = seed.map(|seed| Seeded::new(seed, 23, 6));
    let faults: Arc<dyn FaultPoints> = match &seeded {
        Some(seeded) => seeded.clone(),
        None => Arc::new(NoFaults),
    };
    // More attempts than faults: a batch that ends the host too often would park.
    let store = OneScenario::new("attempts = 100", plugin());
    let mut order = seed.unwrap_or(0);
    let start = |clock: &VirtualClock| -> Opened {
        loop {
            let clock: Arc<dyn Clock> = Arc::new(clock.clone());
            match open(dir.path(), clock, runtime.clone(), faults.clone(), Arc::new(CountingSources), store.clone()) {
                Ok(opened) => return opened,
                Err(fault) => assert_eq!(fault.kind, FaultKind::Injected, "{fault}"),
            }
        }
    };
    let mut opened = start(&clock);
    for _ in 0..MINUTES {
        clock.advance(Duration::from_secs(60));
        // Each part must come to rest before the next minute; in which order they move, and where the host ends in
        // between, is drawn from the seed.
        let mut left: Vec<u32> = vec![0, 1, 2, 3, 4];
        while !left.is_empty() {
            order = order.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = usize::try_from(order >> 33).unwrap() % left.len();
            let done = move_one(&opened.host, &store, left[at]);
            match done {
                Ok(true) => {
                    left.remove(at);
                }
                Ok(false) => {}
                Err(fault) => {
                    assert_eq!(fault.kind, FaultKind::Injected, "{fault}");
                    drop(opened);
                    opened = start(&clock);
                    left = vec![0, 1, 2, 3, 4];
                }
            }
        }
    }
    loop {
        // A host that ended during the last minute has to read again what was not in the tables yet.
        let rest = |host: &Arc<Host>| {
            while !move_one(host, &store, 0)? {}
            host.settle()
        };
        match rest(&opened.host) {
            Ok(faults) => {
                assert_eq!(faults, Vec::new());
                break;
            }
            Err(fault) => {
                assert_eq!(fault.kind, FaultKind::Injected, "{fault}");
                drop(opened);
                opened = start(&clock);
            }
        }
    }
    let read = |sql: &str| {
        let rows = opened.lake.query(&name("t"), sql, Vec::new()).unwrap();
        weir_pipeline::output::objects(&rows).unwrap().iter().map(|o| serde_json::json!(o).to_string()).collect()
    };
    let tables = BTreeMap::from([
        ("sums", read("select count, sum, total, _batch_id, _batch_time from sums order by _batch_id, sum, total")),
        (
            ALARM_EVENTS,
            read("select change, severity, message, count, _batch_id from alarm_events order by _batch_id, change"),
        ),
        ("events", read("select at, value, _offset from events order by _offset, value")),
    ]);
    let count = |f: &dyn Fn(&Seeded) -> BTreeMap<&'static str, u64>| seeded.as_deref().map(f).unwrap_or_default();
    Ran {
        tables,
        injected: count(&|s| s.injected.lock().unwrap().clone()),
        passed: count(&|s| s.passed.lock().unwrap().clone()),
    }
}

/// Fails with the first row that differs.
fn same(table: &str, expected: &[String], ran: &Ran, seed: u64) {
    let got = &ran.tables[table];
    let first = (0..expected.len().max(got.len())).find(|i| expected.get(*i) != got.get(*i));
    if let Some(i) = first {
        panic!(
            "seed {seed}: table {table} has {} rows and should have {}; row {i} is {:?} and should be {:?}; faults {:?}",
            got.len(),
            expected.len(),
            got.get(i),
            expected.get(i),
            ran.injected
        );
    }
}

/// Moves one part; answers whether it has come to rest.
fn move_one(host: &Arc<Host>, store: &OneScenario, part: u32) -> Result<bool, weir_model::Fault> {
    host.reconcile()?;
    match part {
        0 => {
            let stream = host.stream(&host.stream_ids()[0]).unwrap();
            Ok(stream.ingest(&host.engines, Pace::default().poll, Duration::ZERO)?.at_end)
        }
        1 => match host.step(&store.id())? {
            Step::NotDue(_) => Ok(true),
            Step::Committed(_) | Step::Waiting(_) => Ok(false),
            other => panic!("{other:?}"),
        },
        2 => {
            let stream = host.stream(&host.stream_ids()[0]).unwrap();
            stream.flush(&host.engines).map(|()| true)
        }
        3 => {
            let sinks: Vec<SinkId> = host.sink_ids();
            sinks.iter().try_for_each(|sink| host.drain(sink)).map(|()| true)
        }
        _ => {
            assert_eq!(host.upkeep()?, Vec::new());
            Ok(true)
        }
    }
}

#[test]
fn results_equal_a_run_without_faults_for_200_seeds() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let expected = run(runtime.handle(), None).tables;
    // Independent of the program: offset k is at second k and holds 7k mod 10.
    let sums = &expected["sums"];
    assert_eq!(sums.len() as u64, MINUTES);
    let sum = |from: u64, to: u64| (from..to).map(|k| k * 7 % 10).sum::<u64>();
    let first: serde_json::Value = serde_json::from_str(&sums[0]).unwrap();
    assert_eq!((first["count"].clone(), first["sum"].clone()), (91.into(), sum(0, 91).into()));
    let last: serde_json::Value = serde_json::from_str(&sums[sums.len() - 1]).unwrap();
    assert_eq!(last["total"], serde_json::json!(sum(0, 30 + 60 * MINUTES + 1)));

    let injected = std::sync::Mutex::new(BTreeMap::<&str, u64>::new());
    let passed = std::sync::Mutex::new(BTreeMap::<&str, u64>::new());
    std::thread::scope(|scope| {
        for half in 0..2 {
            let (expected, injected, passed, handle) = (&expected, &injected, &passed, runtime.handle());
            scope.spawn(move || {
                for seed in (1..=200u64).filter(|s| s % 2 == half) {
                    let ran = run(handle, Some(seed));
                    for (table, rows) in expected {
                        same(table, rows, &ran, seed);
                    }
                    for (point, n) in ran.injected {
                        *injected.lock().unwrap().entry(point).or_default() += n;
                    }
                    for (point, n) in ran.passed {
                        *passed.lock().unwrap().entry(point).or_default() += n;
                    }
                }
            });
        }
    });
    // The source here keeps no journal; its point has a test of its own.
    let elsewhere = ["ingest.journal"];
    let injected = injected.into_inner().unwrap();
    for point in POINTS.iter().filter(|p| !elsewhere.contains(p)) {
        assert!(injected.contains_key(point), "no fault at {point}; passed: {:?}", passed.lock().unwrap());
    }
}
