//! `weir pause` and `weir resume` on a host with a real ledger.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use weir_model::port::Ledger;
use weir_model::service::{ScenarioState, Service};
use weir_model::{BatchId, Clock, Fault, FaultKind, NoFaults, RunKey, Time, VirtualClock};
use weir_pipeline::scenario::Step;
use weir_pipeline::{Host, Pace};

use crate::support::binary::until;
use crate::support::engines::{Opened, open};
use crate::support::fakes::{CountingSources, OneScenario, quick_folder, summing};

struct World {
    dir: TempDir,
    clock: VirtualClock,
    runtime: Runtime,
    store: Arc<OneScenario>,
}

impl World {
    fn new(manifest: &str) -> Self {
        Self {
            dir: quick_folder(),
            clock: VirtualClock::new(Time(90_000_000)),
            runtime: Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap(),
            store: OneScenario::new(manifest, summing()),
        }
    }
    fn open(&self) -> Opened {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let (runtime, sources) = (self.runtime.handle().clone(), Arc::new(CountingSources));
        let opened = open(self.dir.path(), clock, runtime, Arc::new(NoFaults), sources, self.store.clone()).unwrap();
        opened.host.reconcile().unwrap();
        opened
    }
    fn step(&self, opened: &Opened) -> Step {
        opened.host.step(&self.store.id()).unwrap()
    }
    fn batches(&self, opened: &Opened) -> usize {
        let mut n = 0;
        loop {
            match self.step(opened) {
                Step::Committed(_) => n += 1,
                Step::NotDue(_) => return n,
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_paused_scenario_does_not_tick_over_a_restart_and_then_goes_on_as_after_downtime() {
    let world = World::new("");
    let id = world.store.id();
    let opened = world.open();
    assert_eq!(world.batches(&opened), 1);
    opened.host.pause(&id).unwrap();
    for _ in 0..2 {
        world.clock.advance(Duration::from_secs(60));
        assert_eq!(world.step(&opened), Step::Paused);
    }
    let status = opened.host.status().unwrap().scenarios.remove(0);
    assert_eq!((status.state, status.paused), (ScenarioState::Paused, Some(Time(90_000_000))));
    assert_eq!(status.last_batch.unwrap().id, BatchId(1));
    drop(opened);

    let opened = world.open();
    world.clock.advance(Duration::from_secs(60));
    assert_eq!(world.step(&opened), Step::Paused);
    opened.host.pause(&id).unwrap();
    let since = opened.host.status().unwrap().scenarios[0].paused;
    assert_eq!(since, Some(Time(90_000_000)), "still since the first time");
    assert_eq!(opened.host.once().unwrap(), Vec::<Fault>::new(), "a pause is no fault");

    opened.host.resume(&id).unwrap();
    assert_eq!(world.batches(&opened), 1);
    let head = opened.ledger.head(&RunKey::live(id)).unwrap().unwrap();
    // It was paused in minute 1 and resumed in minute 4: the ticks of minutes 2 and 3 were left out.
    assert_eq!((head.plan.id, head.plan.time), (BatchId(2), Time(240_000_000)));
    let skipped = head.plan.skipped.unwrap();
    assert_eq!((skipped.first, skipped.last, skipped.count), (Time(120_000_000), Time(180_000_000), 2));
    let status = opened.host.status().unwrap().scenarios.remove(0);
    assert_eq!((status.state, status.paused, status.skipped_ticks), (ScenarioState::Running, None, 2));

    // What a batch of a time that was left out would have read: rows since the batch before, which had those up to second
    // 90, and none of its own time or later.
    for (second, before) in [(120, 91), (180, 91), (60 + 150, 91)] {
        let side = opened.host.side(&world.store.id(), Time(second * 1_000_000), false).unwrap();
        let rows = before..second;
        let sum: i64 = rows.clone().map(|k| k * 7 % 10).sum();
        let row = serde_json::json!({"count": rows.clone().count(), "sum": sum, "total": sum});
        let found = &side.outputs.values().next().unwrap().rows[0];
        for (column, value) in row.as_object().unwrap() {
            assert_eq!(found[column], *value, "{column} at {second}: {found:?}");
        }
        assert_eq!((side.rows_in, side.state_before), (rows.count() as u64, None), "{second}");
    }
    // On today's ruleset, a committed one has the rows since the batch before it too, and the state that it had.
    let side = opened.host.side(&world.store.id(), Time(240_000_000), true).unwrap();
    let sum = |rows: std::ops::Range<i64>| rows.map(|k| k * 7 % 10).sum::<i64>();
    let found = &side.outputs.values().next().unwrap().rows[0];
    assert_eq!((&found["sum"], &found["total"]), (&sum(91..240).into(), &sum(0..240).into()));
    assert_eq!((side.rows_in, side.state_before), (240 - 91, Some(BatchId(2))));
}

#[test]
fn after_a_pause_catch_up_all_makes_up_for_every_tick() {
    let world = World::new("catch_up = \"all\"");
    let opened = world.open();
    assert_eq!(world.batches(&opened), 1);
    opened.host.pause(&world.store.id()).unwrap();
    world.clock.advance(Duration::from_secs(240));
    assert_eq!(world.step(&opened), Step::Paused);
    opened.host.resume(&world.store.id()).unwrap();
    assert_eq!(world.batches(&opened), 4);
}

#[test]
fn what_is_not_there_is_neither_paused_nor_resumed() {
    let world = World::new("");
    let opened = world.open();
    let other = "t/other".parse().unwrap();
    for result in [opened.host.pause(&other), opened.host.resume(&other)] {
        let fault = result.unwrap_err();
        assert_eq!(fault.kind, FaultKind::NotFound);
        assert!(fault.message.contains("t/other") && fault.fix.is_some(), "{fault}");
    }
}

/// A host that starts with less free disk than its floor begins no batch. Its scenarios run as far as anybody wished, so
/// that they do not must be said of each.
#[test]
fn a_scenario_that_begins_no_batch_because_the_disk_is_full_says_so() {
    let world = World::new("");
    let opened = world.open();
    assert_eq!(world.batches(&opened), 1);
    let scenario = |host: &Host| host.status().unwrap().scenarios.remove(0);
    assert_eq!((scenario(&opened.host).state, scenario(&opened.host).fault), (ScenarioState::Running, None));

    let floor = Some((world.dir.path().to_owned(), u64::MAX));
    let host = Host::new(opened.host.engines.clone(), Pace { disk_floor: floor, ..Pace::default() });
    let task = world.runtime.spawn(weir_pipeline::loops::run(host.clone()));
    until("the host runs", || host.status().unwrap().live.then_some(()));
    let status = host.status().unwrap();
    let whole = status.fault.unwrap();
    assert_eq!((whole.kind, whole.field.as_deref()), (FaultKind::Disk, Some("ledger.disk_floor_bytes")));
    let held = scenario(&host);
    let fault = held.fault.unwrap();
    assert_eq!((held.state, fault.kind), (ScenarioState::Running, FaultKind::Disk));
    assert!(fault.message.starts_with("no batch begins: ") && fault.message.contains("must stay free"), "{fault}");
    // One that is paused does not wait for room.
    host.pause(&world.store.id()).unwrap();
    assert_eq!((scenario(&host).state, scenario(&host).fault), (ScenarioState::Paused, None));
    host.stop();
    world.runtime.block_on(task).unwrap();
}
