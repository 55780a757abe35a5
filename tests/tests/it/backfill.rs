//! A past period as a run of its own: it equals what live made of it, whatever it is killed at, and what is published
//! takes the place of the live rows and of nothing else.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use weir_model::batch::Between;
use weir_model::port::{AdHoc, Ledger};
use weir_model::service::{BackfillAsk, BackfillProgress, Service};
use weir_model::{BatchId, Clock, Fault, FaultKind, FaultPoints, NoFaults, RunKey, SinkId, Span, Time, VirtualClock};
use weir_pipeline::Host;
use weir_pipeline::scenario::Step;

use crate::support::engines::{Opened, open};
use crate::support::example::{Example, Live};
use crate::support::fakes::{CountingSources, OneScenario, Seeded, name, quick_folder, summing};

fn minute(n: i64) -> Time {
    Time(n * 60_000_000)
}

fn ask(scenario: &str, from: Time, to: Time, run: &str) -> BackfillAsk {
    BackfillAsk {
        scenario: scenario.parse().unwrap(),
        name: Some(name(run)),
        range: Between { from, to },
        every: Span::secs(60),
        ruleset: None,
        publish: false,
        discard: false,
    }
}

fn done(host: &Host, ask: &BackfillAsk) -> Result<BackfillProgress, Fault> {
    loop {
        let progress = host.backfill(ask)?;
        if progress.finished() {
            return Ok(progress);
        }
    }
}

/// One scenario whose batches count and sum their new rows, on a stream of one row a second: offset k is at second k and
/// holds 7k mod 10.
struct World {
    dir: tempfile::TempDir,
    clock: VirtualClock,
    runtime: tokio::runtime::Runtime,
    store: Arc<OneScenario>,
}

impl World {
    /// Live until twelve and a half minutes: batches for minutes 0 to 12, in the tables.
    fn new() -> Self {
        let world = Self {
            dir: quick_folder(),
            clock: VirtualClock::new(Time(30_000_000)),
            runtime: tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
            store: OneScenario::new("", summing()),
        };
        let opened = world.open(Arc::new(NoFaults)).unwrap();
        opened.host.reconcile().unwrap();
        for _ in 0..=12 {
            assert!(matches!(opened.host.step(&world.store.id()).unwrap(), Step::Committed(_)));
            world.clock.advance(Duration::from_secs(60));
        }
        assert_eq!(opened.host.settle().unwrap(), Vec::new());
        world
    }
    fn open(&self, faults: Arc<dyn FaultPoints>) -> Result<Opened, Fault> {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let (runtime, sources) = (self.runtime.handle().clone(), Arc::new(CountingSources));
        open(self.dir.path(), clock, runtime, faults, sources, self.store.clone())
    }
}

fn sums(opened: &Opened) -> Vec<(i64, [i64; 3])> {
    let sql = "select count, sum, total, arrow_cast(_batch_time, 'Int64') / 60000000 as minute, _ruleset from sums order by minute, total";
    let rows = opened.lake.query(&name("t"), sql, Vec::new()).unwrap();
    let rows = weir_pipeline::output::objects(&rows).unwrap();
    let n = |row: &serde_json::Map<String, Value>, f: &str| row[f].as_i64().unwrap();
    rows.iter().map(|r| (n(r, "minute"), ["count", "sum", "total"].map(|f| n(r, f)))).collect()
}

/// Sum of the values of seconds `[from, to)`.
fn sum(from: i64, to: i64) -> i64 {
    (from..to).map(|k| k * 7 % 10).sum()
}

/// Count, sum and total of the batch for minute n: live ran it at half past and saw the rows until then.
fn by_live(n: i64) -> (i64, [i64; 3]) {
    let (from, to) = if n == 0 { (0, 31) } else { (60 * n - 29, 60 * n + 31) };
    (n, [to - from, sum(from, to), sum(0, to)])
}

/// The same of a backfill that begins with minute `first` on the state that live had: it sees the rows of the minute
/// before T.
fn by_backfill(n: i64, first: i64) -> (i64, [i64; 3]) {
    let at_first = if first == 0 { 0 } else { sum(0, 60 * (first - 1) + 31) };
    (n, [60, sum(60 * n - 60, 60 * n), at_first + sum(60 * first - 60, 60 * n)])
}

#[test]
fn published_rows_take_the_place_of_live_ones_in_the_range_and_live_goes_on_as_if_nothing_was() {
    let world = World::new();
    let opened = world.open(Arc::new(NoFaults)).unwrap();
    let live: Vec<_> = (0..=12).map(by_live).collect();
    assert_eq!(sums(&opened), live);
    let head = opened.ledger.head(&RunKey::live(world.store.id())).unwrap().unwrap();

    let mut ask = ask("t/s", minute(4), minute(9), "b");
    let progress = done(&opened.host, &ask).unwrap();
    assert_eq!((progress.done, progress.total, progress.published), (5, 5, false));
    assert_eq!(progress.base, Some(BatchId(5)), "live batch 5 was for minute 4");
    assert_eq!(sums(&opened), live, "nothing is written before it is published");
    let key = RunKey { scenario: world.store.id(), run: "backfill:b".parse().unwrap() };
    let records = opened.ledger.records(&key, None, 99).unwrap();
    assert_eq!(records.iter().map(|r| r.plan.time).collect::<Vec<_>>(), (4..9).map(minute).collect::<Vec<_>>());
    assert!(records.iter().all(|r| r.rows_in == 60));
    // A host that looks at what waits must not take the run's rows for live ones.
    opened.host.reconcile().unwrap();
    opened.host.settle().unwrap();
    assert_eq!(sums(&opened), live);

    ask.publish = true;
    assert!(done(&opened.host, &ask).unwrap().published);
    let expected: Vec<_> = (0..=12).map(|n| if (4..9).contains(&n) { by_backfill(n, 4) } else { by_live(n) }).collect();
    assert_eq!(sums(&opened), expected);
    let versions = || std::fs::read_dir(world.dir.path().join("lake/t/sums/_delta_log")).unwrap().count();
    let before = versions();
    assert!(done(&opened.host, &ask).unwrap().published, "again");
    assert_eq!((sums(&opened), versions()), (expected.clone(), before), "the second time nothing is written");

    assert_eq!(opened.ledger.head(&RunKey::live(world.store.id())).unwrap().unwrap(), head);
    assert!(matches!(opened.host.step(&world.store.id()).unwrap(), Step::Committed(_)));
    assert_eq!(opened.host.settle().unwrap(), Vec::new());
    assert_eq!(sums(&opened), [expected, vec![by_live(13)]].concat());
}

#[test]
fn what_live_is_still_to_write_keeps_a_run_from_being_published() {
    let world = World::new();
    let opened = world.open(Arc::new(NoFaults)).unwrap();
    // Batch 14, for minute 13, is due and has not run.
    let mut late = ask("t/s", minute(10), minute(14), "late");
    late.range.to = Time(minute(13).micros() + 1);
    late.publish = true;
    let fault = done(&opened.host, &late).unwrap_err();
    assert_eq!((fault.kind, fault.field.as_deref()), (FaultKind::Config, Some("--to")));
    assert!(fault.message.contains("still to come"), "{fault}");
    assert!(matches!(opened.host.step(&world.store.id()).unwrap(), Step::Committed(_)));
    assert!(done(&opened.host, &late).unwrap().published, "the run is kept, and live has passed it");
    let minutes: Vec<i64> = sums(&opened).iter().map(|(n, _)| *n).collect();
    assert_eq!(minutes, (0..=13).collect::<Vec<_>>(), "the rows of batch 14 were drained before they were replaced");
}

#[test]
fn a_run_that_ends_anywhere_goes_on_and_equals_one_that_did_not() {
    let mut injected = std::collections::BTreeMap::<&str, u64>::new();
    for seed in 1..=60 {
        let world = World::new();
        let faults = Seeded::new(seed, 9, 6);
        let mut ask = ask("t/s", minute(2), minute(12), "b");
        ask.publish = true;
        let mut starts = 0;
        loop {
            starts += 1;
            let opened = match world.open(faults.clone()) {
                Ok(opened) => opened,
                Err(fault) => {
                    assert_eq!(fault.kind, FaultKind::Injected, "seed {seed}: {fault}");
                    continue;
                }
            };
            match done(&opened.host, &ask) {
                Ok(progress) => {
                    assert!(progress.published);
                    let expected: Vec<_> =
                        (0..=12).map(|n| if (2..12).contains(&n) { by_backfill(n, 2) } else { by_live(n) }).collect();
                    assert_eq!(sums(&opened), expected, "seed {seed}, {starts} starts");
                    break;
                }
                Err(fault) => assert_eq!(fault.kind, FaultKind::Injected, "seed {seed}: {fault}"),
            }
        }
        for (point, n) in faults.injected.lock().unwrap().iter() {
            *injected.entry(point).or_default() += n;
        }
    }
    for point in ["batch.detected", "commit.before", "commit.written", "commit.synced", "commit.replied"] {
        assert!(injected.contains_key(point), "no fault at {point}: {injected:?}");
    }
}

#[test]
fn rows_that_are_discarded_are_gone_after_the_horizon_and_cannot_be_published() {
    let world = World::new();
    let opened = world.open(Arc::new(NoFaults)).unwrap();
    let mut ask = ask("t/s", minute(2), minute(8), "b");
    done(&opened.host, &ask).unwrap();
    let sink =
        SinkId { key: RunKey { scenario: world.store.id(), run: "backfill:b".parse().unwrap() }, output: name("sums") };
    let kept = |opened: &Opened| opened.ledger.outputs(&sink, None, usize::MAX).unwrap().len();
    opened.ledger.retain(minute(100)).unwrap();
    assert_eq!(kept(&opened), 6, "what may still be published is kept");
    ask.discard = true;
    let discarded = done(&opened.host, &ask).unwrap();
    assert!(discarded.discarded && !discarded.published);
    opened.ledger.retain(minute(100)).unwrap();
    assert_eq!(kept(&opened), 1, "the head of a run is never dropped");
    (ask.discard, ask.publish) = (false, true);
    let fault = done(&opened.host, &ask).unwrap_err();
    assert_eq!((fault.kind, fault.field.as_deref()), (FaultKind::NotReplayable, Some("--name")));
    assert_eq!(sums(&opened), (0..=12).map(by_live).collect::<Vec<_>>());
    let unknown = BackfillAsk { name: Some(name("x")), discard: true, ..ask };
    assert_eq!(opened.host.backfill(&unknown).unwrap_err().kind, FaultKind::NotFound);
}

#[test]
fn what_makes_no_sense_is_refused_by_field() {
    let world = World::new();
    let opened = world.open(Arc::new(NoFaults)).unwrap();
    let good = ask("t/s", minute(2), minute(4), "b");
    done(&opened.host, &good).unwrap();
    let refused = |change: &dyn Fn(&mut BackfillAsk), kind: FaultKind, field: Option<&str>| {
        let mut ask = good.clone();
        change(&mut ask);
        let fault = opened.host.backfill(&ask).unwrap_err();
        assert_eq!((fault.kind, fault.field.as_deref()), (kind, field), "{fault}");
    };
    refused(&|a| a.range.to = a.range.from, FaultKind::Config, Some("--to"));
    refused(&|a| a.range.to = minute(100), FaultKind::Config, Some("--to"));
    refused(&|a| a.every = Span::secs(0), FaultKind::Config, Some("--every"));
    refused(&|a| a.range = Between { from: Time(1), to: Time(2) }, FaultKind::Config, Some("--every"));
    refused(&|a| a.range.to = minute(5), FaultKind::Config, Some("--name"));
    refused(&|a| a.every = Span::secs(30), FaultKind::Config, Some("--name"));
    refused(&|a| a.scenario = "t/other".parse().unwrap(), FaultKind::NotFound, None);
}

/// Batches whose rows are gone find nothing. Published, that would take away what was found when the rows were there.
#[test]
fn a_period_whose_rows_are_gone_or_never_were_is_refused() {
    let world = World::new();
    let opened = world.open(Arc::new(NoFaults)).unwrap();
    let live: Vec<_> = (0..=12).map(by_live).collect();
    let refused = |from: i64, to: i64, field: &str, words: &str| {
        let mut ask = ask("t/s", minute(from), minute(to), "b");
        ask.publish = true;
        let fault = done(&opened.host, &ask).unwrap_err();
        assert_eq!((fault.kind, fault.field.as_deref()), (FaultKind::NotReplayable, Some(field)), "{fault}");
        assert!(fault.message.contains(words), "{fault}");
        assert_eq!(sums(&opened), live, "nothing is taken away");
    };
    refused(-10, -5, "--to", "there is no row before 1969-12-31T23:55:00Z");
    // The stream keeps its rows for thirty days, its results for a year.
    world.clock.advance(Duration::from_secs(31 * 86_400));
    opened.host.reconcile().unwrap();
    // Rows that are older than that and still there can be read.
    assert_eq!(done(&opened.host, &ask("t/s", minute(0), minute(3), "there")).unwrap().rows_in, 2 * 60);
    assert_eq!(opened.host.upkeep().unwrap(), Vec::new());
    refused(4, 9, "--from", "rows of stream events are kept for 30 days, and those of 1970-01-01T00:04:00Z");
    // What has all its batches was made of rows that were there.
    let mut whole = ask("t/s", minute(0), minute(3), "there");
    whole.publish = true;
    assert!(done(&opened.host, &whole).unwrap().published);
    assert_eq!(sums(&opened).len(), 13);
}

/// A run keeps its ruleset; another question about the same period is another run.
#[test]
fn a_run_goes_on_with_the_ruleset_it_began_with() {
    let world = World::new();
    world.store.add("attempts = 5", summing());
    let opened = world.open(Arc::new(NoFaults)).unwrap();
    let named = ask("t/s", minute(2), minute(4), "b");
    let first = done(&opened.host, &named).unwrap();
    let unnamed = BackfillAsk { name: None, ..named.clone() };
    let one = done(&opened.host, &unnamed).unwrap();
    assert_eq!((one.ruleset, one.done), (first.ruleset, 2));
    world.store.activate(1);
    assert_eq!(done(&opened.host, &named).unwrap().ruleset, first.ruleset);
    let two = done(&opened.host, &unnamed).unwrap();
    assert_ne!((&two.run, two.ruleset), (&one.run, one.ruleset));
    let old = BackfillAsk { ruleset: Some(first.ruleset), ..unnamed.clone() };
    assert_eq!(done(&opened.host, &old).unwrap().run, one.run);
    let clash = BackfillAsk { ruleset: Some(two.ruleset), ..named };
    assert_eq!(opened.host.backfill(&clash).unwrap_err().field.as_deref(), Some("--name"));
}

/// Another ruleset's run has taken the place of one since: that one is not published again, and nobody is told that it is.
#[test]
fn a_run_whose_rows_were_replaced_since_is_not_said_to_be_published() {
    let world = World::new();
    let opened = world.open(Arc::new(NoFaults)).unwrap();
    let mut one = ask("t/s", minute(2), minute(4), "one");
    one.publish = true;
    assert!(done(&opened.host, &one).unwrap().published);
    assert!(done(&opened.host, &one).unwrap().published, "it is there still");
    world.store.add("attempts = 5", summing());
    world.store.activate(1);
    let two = BackfillAsk { name: Some(name("two")), ..one.clone() };
    assert!(done(&opened.host, &two).unwrap().published);
    let fault = done(&opened.host, &one).unwrap_err();
    assert_eq!((fault.kind, fault.field.as_deref()), (FaultKind::NotReplayable, Some("--name")), "{fault}");
    assert!(done(&opened.host, &two).unwrap().published);
}

/// What batches said and left, without what tells one run from another.
fn told(live: &Live, key: &RunKey, output: &str) -> Vec<Value> {
    let sink = SinkId { key: key.clone(), output: name(output) };
    let records = live.built.ledger.records(key, None, 1_000).unwrap();
    let outputs = live.built.ledger.outputs(&sink, None, usize::MAX).unwrap();
    let rows = |id: BatchId| {
        let mine = outputs.iter().find(|o| o.batch == id);
        mine.map(|o| {
            let mut rows = weir_pipeline::output::objects(&o.rows).unwrap();
            rows.iter_mut().for_each(|r| drop(r.remove("_batch_id")));
            rows
        })
    };
    let event = |e: &weir_model::AlarmEvent| {
        json!([e.change.to_string(), e.alarm.key, e.alarm.severity.to_string(), e.alarm.count])
    };
    records
        .iter()
        .map(|r| {
            json!({
                "time": r.plan.time, "ruleset": r.plan.ruleset, "raised": r.raised, "rows": rows(r.plan.id),
                "events": r.events.iter().map(event).collect::<Vec<_>>(), "state": r.state_changes,
                "tables": r.plan.tables,
            })
        })
        .collect()
}

fn noon(text: &str) -> Time {
    format!("2026-01-31T{text}:00Z").parse().unwrap()
}

/// A quarter of an hour of live batches, and two backfills of it, from the beginning and from the middle: rows, alarms and
/// state of each batch, and the table after each is published. Answers how many rows the table has.
fn equals_live(example: &Example, live: &Live, scenario: &str, table: &str, columns: &str) -> usize {
    example.batches(live);
    for _ in 0..14 {
        example.minute(live);
    }
    let key = RunKey::live(example.scenario());
    let by_live = told(live, &key, table);
    assert_eq!(by_live.len(), 15);
    let rows = || {
        example.rows(
            live,
            &format!("select {columns}, _batch_time, _ruleset, _scenario from {table} order by _batch_time, {columns}"),
        )
    };
    let by_live_rows = rows();
    let alarms = live.host.alarms(None, true).unwrap();
    let events = || example.rows(live, "select * from alarm_events order by time, key");
    let by_live_events = events();

    for (run, from, base, skip) in [("whole", "12:00", None, 0), ("part", "12:06", Some(BatchId(7)), 6)] {
        let mut ask = ask(scenario, noon(from), Time(noon("12:14").micros() + 1), run);
        let progress = done(&live.host, &ask).unwrap();
        assert_eq!((progress.done, progress.base), (15 - skip, base));
        let run = RunKey { scenario: example.scenario(), run: format!("backfill:{run}").parse().unwrap() };
        assert_eq!(told(live, &run, table), by_live[usize::try_from(skip).unwrap()..]);
        assert_eq!(rows(), by_live_rows, "nothing is written before it is published");
        ask.publish = true;
        done(&live.host, &ask).unwrap();
        assert_eq!(rows(), by_live_rows);
    }
    assert_eq!(live.host.alarms(None, true).unwrap(), alarms);
    assert_eq!(events(), by_live_events);
    by_live_rows.len()
}

#[test]
fn a_backfill_of_s2_equals_what_live_made_of_it() {
    let example = Example::of("s2-linkdown");
    let live = example.open();
    let columns = "router_ip, local_device_name, high_count, low_count, created_at";
    let rows = equals_live(&example, &live, "netops/s2-linkdown", "s2_results", columns);
    assert_eq!(rows, 15 * 2, "of the spec: Router-A-1 and Router-A-3 in each batch");
}

#[test]
fn a_backfill_of_s3_equals_what_live_made_of_it() {
    let example = Example::of("s3-iptv");
    let live = example.open();
    let columns = "ser_equip_ip, ser_phys_if_nm, diff_ratio, last_1m_val, avg_3nm_val, created_at";
    let rows = equals_live(&example, &live, "netops/s3-iptv", "s3_results", columns);
    // Of the spec: an interface surges once in ten minutes, when its last minute is one that ends with 9. Three minutes
    // after that T is 12:02 and 12:12.
    assert_eq!(rows, 2 * 2);
}

#[test]
fn a_backfill_of_s1_equals_what_live_made_of_it_and_another_threshold_changes_the_past() {
    let example = Example::new();
    let live = example.open();
    let columns = "router_ip, router_name, error_count, severity, alarm_reason, processing_time, alarm_time";
    let rows = equals_live(&example, &live, "netops/s1-syslog", "s1_results", columns);
    // 12:00 sees two minutes, each other batch one more, of two routers.
    assert_eq!(rows, 16 * 2);

    // With another threshold the past looks different, and only there.
    example.edit("netops/s1-syslog/rules/1-2.json", ">= 50", ">= 70");
    let key = RunKey::live(example.scenario());
    let before = live.built.ledger.head(&key).unwrap().unwrap().plan.ruleset;
    example.until(&live, "the edited rule is active", |v| {
        v.pending.is_none() && v.active.as_ref().is_some_and(|a| a.ruleset.digest != before)
    });
    let mut ask = ask("netops/s1-syslog", noon("12:03"), noon("12:06"), "what-if");
    ask.publish = true;
    done(&live.host, &ask).unwrap();
    let severity = example.rows(
        &live,
        "select _batch_time, severity, router_ip from s1_results order by _batch_time, processing_time, router_ip",
    );
    let warned = |r: &&Value| r["router_ip"] == "203.0.113.34" && r["severity"] == "Warning";
    let minutes: Vec<&Value> = severity.iter().filter(warned).map(|r| &r["_batch_time"]).collect();
    // 12:03 sees 12:01 again, which live had reported as critical: another outcome, so it is reported again.
    let expected = ["12:03", "12:03", "12:04", "12:05"].map(|m| json!(format!("2026-01-31T{m}:00Z")));
    assert_eq!(minutes, expected.iter().collect::<Vec<_>>());
}
