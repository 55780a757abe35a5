//! Upkeep by the host: which tables, how long their rows stay, and what the status says of it. Virtual clock, real lake
//! and ledger.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weir_model::port::AdHoc;
use weir_model::service::{Service, TableStatus};
use weir_model::{BatchId, Clock, FaultKind, NoFaults, Time, VirtualClock};
use weir_pipeline::host::{Host, Pace};
use weir_pipeline::scenario::Step;

use crate::support::engines::{Opened, open};
use crate::support::fakes::{CountingSources, OneScenario, name, quick_folder, summing};

const HOUR: Duration = Duration::from_secs(3600);

struct Run {
    opened: Opened,
    store: Arc<OneScenario>,
    clock: VirtualClock,
}

impl Run {
    fn host(&self) -> &Arc<Host> {
        &self.opened.host
    }
    /// Everything that is due now, its rows in bronze and its results in their table.
    fn rest(&self) {
        let host = self.host();
        host.reconcile().unwrap();
        let stream = host.stream(&host.stream_ids()[0]).unwrap();
        while !stream.ingest(&host.engines, Pace::default().poll, Duration::ZERO).unwrap().at_end {}
        while matches!(host.step(&self.store.id()).unwrap(), Step::Committed(_)) {}
        assert_eq!(host.settle().unwrap(), Vec::new());
    }
    fn count(&self, sql: &str) -> (i64, i64) {
        let rows = self.opened.lake.query(&name("t"), sql, Vec::new()).unwrap();
        let objects = weir_pipeline::output::objects(&rows).unwrap();
        (objects[0]["n"].as_i64().unwrap(), objects[0]["low"].as_i64().unwrap_or(-1))
    }
    fn tables(&self) -> BTreeMap<String, TableStatus> {
        let tables = self.host().status().unwrap().tables;
        tables.into_iter().map(|t| (t.table.to_string(), t)).collect()
    }
}

/// Four days with a batch every six hours. The stream keeps its rows for the default of 30 days, the result table for
/// two: what is older goes with its file, and the rest is in few files.
#[test]
fn the_host_keeps_what_definitions_say_and_tells_of_it() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = quick_folder();
    let clock = VirtualClock::new(Time(30_000_000));
    let store = OneScenario::new("[outputs.sums]\ntable = \"sums\"\nkeep_days = 2", summing());
    let dyn_clock: Arc<dyn Clock> = Arc::new(clock.clone());
    let handle = runtime.handle().clone();
    let sources = Arc::new(CountingSources);
    let opened = open(dir.path(), dyn_clock, handle, Arc::new(NoFaults), sources, store.clone()).unwrap();
    let run = Run { opened, store, clock };
    let mut most = 0;
    for _ in 0..16 {
        run.clock.advance(6 * HOUR);
        run.rest();
        assert_eq!(run.host().upkeep().unwrap(), Vec::new());
        most = most.max(run.tables()["sums"].files);
    }
    let now = run.clock.now();
    assert_eq!(now, Time(30_000_000 + 4 * 86_400_000_000));
    // Sixteen batches, at the hours 6, 12, ... 96. All that are not older than two days are there; one that is older may
    // share a file with one of its day that is not.
    let cut = now.minus(2 * 24 * HOUR).micros();
    let kept = (1..=16i64).map(|n| n * 6 * 3_600_000_000).filter(|t| *t >= cut).count();
    let sql = "SELECT count(*) AS n, CAST(min(_batch_time) AS bigint) AS low FROM sums";
    let young = run.count(&format!("{sql} WHERE CAST(_batch_time AS bigint) >= {cut}")).0;
    assert_eq!((young, kept), (8, 8));
    let (rows, oldest) = run.count(sql);
    assert!(oldest >= cut - 86_400_000_000, "{oldest}");
    assert!(most <= 10, "{most} files");
    // Bronze has every second still, each once.
    let seconds = now.micros() / 1_000_000 + 1;
    assert_eq!(run.count("SELECT count(*) AS n, count(DISTINCT _offset) AS low FROM events"), (seconds, seconds));

    // A time that has no rows is no batch without rows.
    let side = |time: Time| run.host().side(&run.store.id(), time, false);
    let minute = |n: i64| Time(n * 60_000_000);
    for (time, words) in [
        (Time(0), "there is no row before 1970-01-01T00:00:00Z: the earliest one is of 1970-01-01T00:00:00Z"),
        (minute(5 * 1440), "1970-01-06T00:00:00Z is still to come: it is 1970-01-05T00:00:30Z"),
    ] {
        let fault = side(time).unwrap_err();
        assert_eq!((fault.kind, fault.message.as_str()), (FaultKind::NotReplayable, words));
    }
    assert_eq!(side(minute(7)).unwrap().replayed, None);
    assert_eq!(side(minute(360)).unwrap().replayed, Some(BatchId(1)));

    let tables = run.tables();
    let sums = &tables["sums"];
    assert_eq!((sums.rows, sums.expired_rows), (u64::try_from(rows).unwrap(), 16 - u64::try_from(rows).unwrap()));
    assert_eq!((sums.at, sums.fault.clone()), (now, None));
    assert!(sums.merged_files > 0 && sums.bytes > 0);
    assert_eq!(tables["events"].rows, u64::try_from(seconds).unwrap());
    assert!(tables.contains_key("alarm_events") && tables.contains_key("dead_letters"), "{:?}", tables.keys());

    // The stream keeps its rows for thirty days.
    run.clock.advance(27 * 24 * HOUR);
    let fault = side(minute(360)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::NotReplayable);
    let words = "the batch at 1970-01-01T06:00:00Z reads rows of stream events from 1970-01-01T05:55:00Z on, and they \
                 are kept for 30 days: from 1970-01-02T00:00:30Z on";
    assert_eq!(fault.message, words);
}

/// The machine's clock is set forward by more than anything is kept: what is there stays there, and goes when that time
/// has passed.
#[test]
fn a_clock_that_was_set_forward_takes_nothing_away() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = quick_folder();
    let clock = VirtualClock::new(Time(30_000_000));
    let store = OneScenario::new("[outputs.sums]\ntable = \"sums\"\nkeep_days = 3", summing());
    let dyn_clock: Arc<dyn Clock> = Arc::new(clock.clone());
    let (handle, sources) = (runtime.handle().clone(), Arc::new(CountingSources));
    let opened = open(dir.path(), dyn_clock, handle, Arc::new(NoFaults), sources, store.clone()).unwrap();
    let run = Run { opened, store, clock };
    run.clock.advance(6 * HOUR);
    run.rest();
    let counts =
        || ["sums", "events"].map(|table| run.count(&format!("SELECT count(*) AS n, 0 AS low FROM {table}")).0);
    let there = counts();
    assert_eq!(there, [1, 6 * 3600 + 31]);
    let now = run.clock.now();
    run.clock.jump(now.plus(400 * 24 * HOUR));
    assert_eq!(run.host().upkeep().unwrap(), Vec::new());
    assert_eq!(counts(), there);
    run.clock.jump(now);
    // A file goes when its youngest row is too old: here after three days.
    run.clock.advance(4 * 24 * HOUR);
    assert_eq!(run.host().upkeep().unwrap(), Vec::new());
    assert_eq!(counts(), [0, there[1]]);
}
