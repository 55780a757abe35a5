//! The batch protocol over a real ledger and real tables, with plugins, sinks and clocks that misbehave.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use weir_model::port::{AdHoc, BatchHost, Ledger};
use weir_model::service::Service;
use weir_model::{BatchId, Clock, Fault, FaultKind, FaultPoints, NoFaults, RunKey, SinkId, Time, VirtualClock, Whose};
use weir_pipeline::scenario::Step;

use crate::support::engines::{Opened, open};
use crate::support::fakes::{
    CountingSources, FakeDetector, OneScenario, Seeded, call, detection, fake, name, quick_folder, summing,
};

struct World {
    dir: TempDir,
    clock: VirtualClock,
    runtime: Runtime,
    store: Arc<OneScenario>,
    faults: Arc<dyn FaultPoints>,
}

impl World {
    fn new(manifest: &str, detector: Arc<FakeDetector>) -> Self {
        Self {
            dir: quick_folder(),
            clock: VirtualClock::new(Time(90_000_000)),
            runtime: Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap(),
            store: OneScenario::new(manifest, detector),
            faults: Arc::new(NoFaults),
        }
    }
    fn open(&self) -> Opened {
        loop {
            let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
            let (runtime, faults) = (self.runtime.handle().clone(), self.faults.clone());
            match open(self.dir.path(), clock, runtime, faults, Arc::new(CountingSources), self.store.clone())
                .and_then(|o| o.host.reconcile().map(|()| o))
            {
                Ok(opened) => return opened,
                Err(fault) => assert_eq!(fault.kind, FaultKind::Injected, "{fault}"),
            }
        }
    }
    fn sink(&self, output: &str) -> SinkId {
        SinkId { key: RunKey::live(self.store.id()), output: name(output) }
    }
    fn batches(&self, opened: &Opened) -> usize {
        let mut n = 0;
        loop {
            match opened.host.step(&self.store.id()).unwrap() {
                Step::Committed(_) => n += 1,
                Step::NotDue(_) => return n,
                other => panic!("{other:?}"),
            }
        }
    }
}

fn ints(opened: &Opened, sql: &str) -> Vec<i64> {
    let rows = opened.lake.query(&name("t"), sql, Vec::new()).unwrap();
    rows.column(0).as_primitive::<Int64Type>().values().to_vec()
}

/// A plugin that answers another number each time it is called, whatever it is asked.
fn fickle() -> Arc<FakeDetector> {
    let calls = AtomicI64::new(0);
    let detect = move |host: &dyn BatchHost| {
        host.input("events").map_err(call)?;
        Ok(detection(&[("call", calls.fetch_add(1, Ordering::Relaxed))], Vec::new()))
    };
    fake(&["call"], None, Box::new(detect))
}

#[test]
fn what_sinks_hold_equals_what_the_ledger_holds_when_a_plugin_answers_differently_each_time() {
    for seed in 1..=30 {
        // More attempts than faults: a batch that ends the host too often would park.
        let mut world = World::new("attempts = 100", fickle());
        let seeded = Seeded::new(seed, 9, 8);
        world.faults = seeded.clone();
        let mut opened = world.open();
        for _ in 0..6 {
            world.clock.advance(Duration::from_secs(60));
            loop {
                let moved = opened.host.step(&world.store.id()).and_then(|step| {
                    opened.host.drain(&world.sink("sums"))?;
                    Ok(matches!(step, Step::NotDue(_)))
                });
                match moved {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(fault) => {
                        assert_eq!(fault.kind, FaultKind::Injected, "seed {seed}: {fault}");
                        drop(opened);
                        opened = world.open();
                    }
                }
            }
        }
        while let Err(fault) = opened.host.drain(&world.sink("sums")) {
            assert_eq!(fault.kind, FaultKind::Injected, "seed {seed}: {fault}");
            drop(opened);
            opened = world.open();
        }
        let kept = opened.ledger.outputs(&world.sink("sums"), None, usize::MAX).unwrap();
        let in_ledger: BTreeMap<i64, i64> = kept
            .iter()
            .map(|o| (i64::try_from(o.batch.0).unwrap(), o.rows.column(0).as_primitive::<Int64Type>().value(0)))
            .collect();
        let batches = ints(&opened, "select _batch_id from sums order by _batch_id, call");
        assert_eq!(batches, (1..=6).collect::<Vec<_>>(), "seed {seed}: each batch once; {:?}", seeded.injected);
        let in_table: BTreeMap<i64, i64> =
            batches.into_iter().zip(ints(&opened, "select call from sums order by _batch_id")).collect();
        assert_eq!(in_table, in_ledger, "seed {seed}");
    }
}

#[test]
fn ten_minutes_of_downtime_are_one_batch_with_the_skipped_ticks_shown() {
    let world = World::new("", summing());
    let opened = world.open();
    assert_eq!(world.batches(&opened), 1);
    drop(opened);
    world.clock.advance(Duration::from_secs(600));
    let opened = world.open();
    assert_eq!(world.batches(&opened), 1);
    let status = opened.host.status().unwrap();
    assert_eq!(status.scenarios[0].skipped_ticks, 9);
    let head = opened.ledger.head(&RunKey::live(world.store.id())).unwrap().unwrap();
    let skipped = head.plan.skipped.unwrap();
    assert_eq!((head.plan.id, head.plan.time), (BatchId(2), Time(660_000_000)));
    assert_eq!((skipped.first, skipped.last, skipped.count), (Time(120_000_000), Time(600_000_000), 9));
}

#[test]
fn or_all_ten_of_them_with_catch_up_all() {
    let world = World::new("catch_up = \"all\"", summing());
    let opened = world.open();
    assert_eq!(world.batches(&opened), 1);
    drop(opened);
    world.clock.advance(Duration::from_secs(600));
    let opened = world.open();
    assert_eq!(world.batches(&opened), 10);
    assert_eq!(opened.host.status().unwrap().scenarios[0].skipped_ticks, 0);
    opened.host.settle().unwrap();
    assert_eq!(ints(&opened, "select count(*) from sums"), [11]);
}

#[test]
fn a_sink_whose_folder_is_a_file_delays_only_itself_and_catches_up() {
    let world = World::new("", summing());
    let opened = world.open();
    assert_eq!(world.batches(&opened), 1);
    assert_eq!(opened.host.settle().unwrap(), Vec::<Fault>::new());
    let table = world.dir.path().join("lake/t/sums");
    let aside = world.dir.path().join("sums-aside");
    std::fs::rename(&table, &aside).unwrap();
    std::fs::write(&table, b"a file where a table was").unwrap();

    for minute in 2..=4 {
        world.clock.advance(Duration::from_secs(60));
        assert_eq!(world.batches(&opened), 1, "detection goes on");
        let fault = opened.host.drain(&world.sink("sums")).unwrap_err();
        assert_eq!(fault.whose, Whose::External, "{fault}");
        opened.host.stream(&opened.host.stream_ids()[0]).unwrap().flush(&opened.host.engines).unwrap();
        assert_eq!(opened.host.status().unwrap().scenarios[0].last_batch.as_ref().unwrap().id, BatchId(minute));
    }
    let status = opened.host.status().unwrap();
    let sink = status.scenarios[0].sinks.iter().find(|s| s.sink == name("sums")).unwrap();
    assert_eq!((sink.drained_to, sink.behind), (Some(BatchId(1)), 3));
    assert!(sink.fault.is_some());

    std::fs::remove_file(&table).unwrap();
    std::fs::rename(&aside, &table).unwrap();
    opened.host.drain(&world.sink("sums")).unwrap();
    assert_eq!(ints(&opened, "select _batch_id from sums order by 1"), [1, 2, 3, 4]);
}

#[test]
fn a_table_made_anew_stops_the_sink_with_a_clear_error() {
    let world = World::new("", summing());
    let opened = world.open();
    world.batches(&opened);
    opened.host.settle().unwrap();
    drop(opened);
    std::fs::remove_dir_all(world.dir.path().join("lake/t/sums")).unwrap();
    let opened = world.open();
    world.clock.advance(Duration::from_secs(60));
    world.batches(&opened);
    let fault = opened.host.drain(&world.sink("sums")).unwrap_err();
    assert_eq!(fault.kind, FaultKind::SinkMismatch, "{fault}");
    assert!(fault.fix.is_some() && fault.file.as_deref() == Some("lake/t/sums"), "{fault:?}");
}

#[test]
fn a_replay_of_a_committed_batch_gives_the_same_rows_and_writes_nothing() {
    let world = World::new("", summing());
    let opened = world.open();
    for _ in 0..5 {
        world.batches(&opened);
        world.clock.advance(Duration::from_secs(60));
    }
    opened.host.settle().unwrap();
    let at = Time(3 * 60_000_000);
    let live = opened.ledger.record_at(&RunKey::live(world.store.id()), at).unwrap().unwrap();
    let kept = opened.ledger.outputs(&world.sink("sums"), Some(BatchId(live.plan.id.0 - 1)), 1).unwrap();
    let head = opened.ledger.head(&RunKey::live(world.store.id())).unwrap();

    let side = opened.host.side(&world.store.id(), at, false).unwrap();
    assert_eq!(side.replayed, Some(live.plan.id));
    assert_eq!(side.output_digests[&name("sums")], weir_pipeline::output::rows_digest(&kept[0].rows).unwrap());
    assert_eq!(opened.ledger.head(&RunKey::live(world.store.id())).unwrap(), head);
    // The running total is what it was then, not today's. The batch for 180 s was planned at 210 s and saw what was read.
    let total = (0..=210).map(|k| k * 7 % 10).sum::<i64>();
    assert_eq!(side.outputs[&name("sums")].rows[0]["total"], serde_json::json!(total));
}

#[test]
fn a_batch_that_fails_the_same_way_again_parks_and_keeps_its_number() {
    let detect = |_: &dyn BatchHost| Err(Fault::tenant(FaultKind::Trap, "unreachable"));
    let world = World::new("", fake(&["x"], None, Box::new(detect)));
    let opened = world.open();
    let Step::Parked(fault) = opened.host.step(&world.store.id()).unwrap() else { panic!("not parked") };
    assert_eq!(fault.kind, FaultKind::Trap);
    assert_eq!(opened.ledger.head(&RunKey::live(world.store.id())).unwrap(), None);
    let status = opened.host.status().unwrap();
    assert_eq!(status.scenarios[0].state, weir_model::service::ScenarioState::Parked);
}

#[test]
fn with_skip_it_is_committed_as_failed_and_state_is_untouched() {
    let detect = |host: &dyn BatchHost| {
        let runs = host.state_get(&[b"runs"]).map_err(call)?.remove(0).map_or(0, |v| v[0]) + 1;
        host.state_put(&[(b"runs".as_slice(), [runs].as_slice())], None).map_err(call)?;
        if host.time() == Time(120_000_000) {
            return Err(Fault::tenant(FaultKind::Trap, "unreachable"));
        }
        Ok(detection(&[("runs", i64::from(runs))], Vec::new()))
    };
    let world = World::new("on_failure = \"skip\"", fake(&["runs"], Some(1), Box::new(detect)));
    let opened = world.open();
    for _ in 0..3 {
        assert_eq!(world.batches(&opened), 1);
        world.clock.advance(Duration::from_secs(60));
    }
    opened.host.settle().unwrap();
    let records = opened.ledger.records(&RunKey::live(world.store.id()), None, 10).unwrap();
    let failed: Vec<bool> = records.iter().map(|r| matches!(r.outcome, weir_model::Outcome::Failed(_))).collect();
    assert_eq!(failed, [false, true, false]);
    assert_eq!(ints(&opened, "select runs from sums order by 1"), [1, 2], "the failed batch left no state behind");
}

#[test]
fn a_wall_clock_that_jumps_parks_the_scenario_until_it_is_resumed() {
    let world = World::new("", summing());
    let opened = world.open();
    world.batches(&opened);
    world.clock.jump(Time(90_000_000 + 3_600_000_000));
    let Step::Parked(fault) = opened.host.step(&world.store.id()).unwrap() else { panic!("not parked") };
    assert_eq!(fault.kind, FaultKind::ClockJump);
    opened.host.resume(&world.store.id()).unwrap();
    assert_eq!(world.batches(&opened), 1);
}
