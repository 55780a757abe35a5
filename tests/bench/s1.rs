//! S1 on the example's data: from the tick to the committed alarm and to Delta, a batch with the plugin and with the same
//! code native, and what a swapped rule costs the batch after it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use s1_syslog::S1Syslog;
use weir_model::FaultPoints;
use weir_model::batch::Plan;
use weir_model::port::{Ledger, PollLimit, Prepared, RuleStore};
use weir_model::{Clock, NoFaults, RunKey, StreamId};
use weir_pipeline::ask::Ask;
use weir_pipeline::batch::{self, Executed, Streams};
use weir_pipeline::decide::tick::Due;
use weir_pipeline::scenario::Step;

use crate::Effort;
use crate::call::in_turns;
use crate::native::Native;
use crate::recorded::Recorded;
use crate::report::{Report, Sample};
use crate::support::example::{Example, Live};
use crate::support::fakes::name;

const RULE: &str = "netops/s1-syslog/rules/1-2.json";
/// A tick of the example's source.
const SOURCE: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);

fn stream() -> StreamId {
    StreamId::new(name("netops"), name("s1_router_syslog_events"))
}

fn limit() -> PollLimit {
    PollLimit { rows: 65_536, bytes: 8 << 20 }
}

/// Goes to the next minute as a running host does: the source is read whenever it has something, and rows go to bronze.
fn to_the_next_minute(example: &Example, live: &Live) {
    let target = example.clock.now().floor(MINUTE, Duration::ZERO).plus(MINUTE);
    live.host.reconcile().unwrap();
    while example.clock.now() < target {
        example.clock.advance(target.since(example.clock.now()).min(SOURCE));
        let opened = live.host.stream(&stream()).unwrap();
        assert!(opened.read_to_end(&live.host.engines, limit(), 64).unwrap());
    }
    live.host.flush(&stream()).unwrap().unwrap();
}

/// Runs the batch that is due. Answers how long it took.
fn step(example: &Example, live: &Live) -> Duration {
    let start = Instant::now();
    let step = live.host.step(&example.scenario()).unwrap();
    let took = start.elapsed();
    let Step::Committed(record) = step else { panic!("no batch was due: {step:?}") };
    assert!(record.raised > 0, "the starter data raises alarms in every batch");
    took
}

fn drain(live: &Live) {
    live.host.sink_ids().iter().for_each(|sink| live.host.drain(sink).unwrap());
}

/// From the tick to the committed alarm, and to what a reader of the Delta table sees.
pub fn tick(report: &mut Report, effort: Effort) {
    let example = Example::new();
    let live = example.open();
    example.batches(&live);
    let (mut committed, mut visible) = (Sample::default(), Sample::default());
    let rounds = effort.rounds(300);
    for round in 0..rounds + 20 {
        to_the_next_minute(&example, &live);
        let start = Instant::now();
        let took = step(&example, &live);
        drain(&live);
        if round >= 20 {
            committed.push(took);
            visible.push(start.elapsed());
        }
    }
    let rows = example.rows(&live, "select count(*) as n from s1_results");
    assert!(rows[0]["n"].as_u64() >= Some(2 * rounds as u64), "every minute's two results are in Delta: {rows:?}");
    report.durations("S1, tick to committed alarm", &committed, Some(1500.0));
    report.durations("S1, tick to visible in Delta, flushed at once", &visible, Some(5000.0));
}

/// One batch up to its commit, which is left out.
fn execute(live: &Live, prepared: &Arc<Prepared>, streams: &Streams, plan: &Plan) -> Executed {
    let reader = live.built.ledger.state(&plan.key).unwrap();
    let inputs = batch::inputs(plan, prepared, streams);
    let faults: Arc<dyn FaultPoints> = Arc::new(NoFaults);
    batch::execute(plan.clone(), prepared, inputs, reader, &faults).unwrap()
}

/// The batch without commit, with the plugin and with the same code native.
pub fn batch(report: &mut Report, effort: Effort) {
    let example = Example::new();
    let live = example.open();
    example.batches(&live);
    to_the_next_minute(&example, &live);
    let id = example.scenario();
    let plugin = live.built.store.scenario(&id).unwrap().active.unwrap();
    let detector = Arc::new(Native::<S1Syslog>::like(plugin.detector.as_ref(), r#"{"repeat":false}"#));
    let native = Arc::new(Prepared { detector, ..Prepared::clone(&plugin) });
    let streams = Streams::from([(stream().stream, live.host.stream(&stream()).unwrap())]);
    let read = BTreeMap::from([(stream().stream, true)]);
    let key = RunKey::live(id);
    let head = live.built.ledger.head(&key).unwrap();
    let due = Due { time: example.clock.now(), skipped: None };
    let plan = batch::plan(key, due, &plugin, head.as_ref(), &streams, &read).unwrap();

    let sandboxed = execute(&live, &plugin, &streams, &plan);
    let usage = sandboxed.usage;
    let (a, b) = (sandboxed.commit, execute(&live, &native, &streams, &plan).commit);
    assert!(a.raised > 0 && !a.outputs.is_empty() && !a.state.is_empty(), "the batch has something to do");
    assert_eq!((a.raised, &a.events, &a.state), (b.raised, &b.events, &b.state), "both are the same code");
    for (a, b) in a.outputs.iter().zip(&b.outputs) {
        assert_eq!(a.rows, b.rows, "both are the same code");
    }

    let (mut sandboxed, mut natively) = (Sample::default(), Sample::default());
    let rounds = effort.rounds(500);
    for round in 0..rounds + 20 {
        let (mut one, mut other) = (Sample::default(), Sample::default());
        let mut by_plugin = || drop(one.time(|| execute(&live, &plugin, &streams, &plan)));
        let mut by_native = || drop(other.time(|| execute(&live, &native, &streams, &plan)));
        if round % 2 == 0 {
            by_plugin();
            by_native();
        } else {
            by_native();
            by_plugin();
        }
        if round >= 20 {
            sandboxed.extend(one);
            natively.extend(other);
        }
    }
    report.durations("S1 batch without commit, plugin", &sandboxed, None);
    report.durations("the same code native", &natively, None);
    let reader = live.built.ledger.state(&plan.key).unwrap();
    let inputs = batch::inputs(&plan, &plugin, &streams);
    let faults: Arc<dyn FaultPoints> = Arc::new(NoFaults);
    let host = Recorded::of(Arc::new(Ask::new(plan.clone(), inputs, plugin.clone(), reader, faults)));
    let (alone, natively_alone) = in_turns(plugin.detector.as_ref(), native.detector.as_ref(), &host, rounds);
    report.durations("detect of that batch alone, all answers known: plugin", &alone, None);
    report.durations("detect alone, the same code native", &natively_alone, None);
    let used = format!("{} host calls, {:.2} M fuel", usage.host_calls, usage.fuel as f64 / 1e6);
    report.figure("what the plugin uses in it", &used);
    report.ratio("S1 batch without commit, plugin over native", sandboxed.over(&natively), Some(1.15));
}

/// The first batch after a rule was swapped, and all others. The ruleset is made ready beside the batches, so what a
/// batch may notice is the new pointer and what is cold behind it.
pub fn swap(report: &mut Report, effort: Effort) {
    let example = Example::new();
    let live = example.open();
    example.batches(&live);
    let (mut ordinary, mut swapped) = (Sample::default(), Sample::default());
    for round in 0..effort.rounds(60) as u64 {
        let before = live.built.store.scenario(&example.scenario()).unwrap().active.unwrap().ruleset.digest;
        example.edit(RULE, &format!(">= {}", 50 + round), &format!(">= {}", 51 + round));
        example.until(&live, "the edited rule is active", |view| {
            view.pending.is_none() && view.active.as_ref().is_some_and(|active| active.ruleset.digest != before)
        });
        to_the_next_minute(&example, &live);
        swapped.push(step(&example, &live));
        drain(&live);
        for _ in 0..5 {
            to_the_next_minute(&example, &live);
            ordinary.push(step(&example, &live));
            drain(&live);
        }
    }
    report.durations("S1 batch with commit, ordinary", &ordinary, None);
    report.durations("S1 batch with commit, first after a swapped rule", &swapped, None);
    let pause = crate::report::micros((swapped.p50() - ordinary.p50()).max(0.0));
    report.figure("swap pause: difference of the two medians", &pause);
}
