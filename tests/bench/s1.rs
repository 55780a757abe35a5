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

/// CPU time that this process has used, in seconds, to a hundredth.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // Behind the name in brackets, user and system time are the 12th and 13th field, in hundredths on Linux.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

fn limit() -> PollLimit {
    PollLimit { rows: 65_536, bytes: 8 << 20 }
}

/// Goes to the next minute as a running host does: the source is read whenever it has something, and rows go to bronze.
pub fn to_the_next_minute(example: &Example, live: &Live) {
    let target = example.clock.now().floor(MINUTE, Duration::ZERO).plus(MINUTE);
    live.host.reconcile().unwrap();
    let streams = live.host.stream_ids();
    while example.clock.now() < target {
        example.clock.advance(target.since(example.clock.now()).min(SOURCE));
        for stream in &streams {
            let opened = live.host.stream(stream).unwrap();
            assert!(opened.read_to_end(&live.host.engines, limit(), 64).unwrap());
        }
    }
    for stream in &streams {
        live.host.flush(stream).unwrap().unwrap();
    }
}

/// Runs the batch that is due. Answers how long it took, and each of its stages in milliseconds.
fn step(example: &Example, live: &Live) -> (Duration, BTreeMap<String, f64>) {
    let start = Instant::now();
    let step = live.host.step(&example.scenario()).unwrap();
    let took = start.elapsed();
    // As a running host does before it waits for the next tick.
    live.host.make_ready(&example.scenario());
    let Step::Committed(record) = step else { panic!("no batch was due: {step:?}") };
    // S3's spike comes once in ten minutes.
    assert!(record.raised > 0 || example.scenario().scenario.as_str() == "s3-iptv", "each batch of S1 and S2 alarms");
    let shown = live.host.scenario(&example.scenario()).unwrap().shown(&live.host.engines).unwrap();
    (took, shown.last.unwrap().duration_ms)
}

fn drain(live: &Live) {
    live.host.sink_ids().iter().for_each(|sink| live.host.drain(sink).unwrap());
}

/// A scenario, the table of its results, goals in microseconds, and what PySpark 4.3 took for a batch with the same rules
/// on a machine of this class, in milliseconds.
type Measured = (&'static str, &'static str, &'static str, [Option<f64>; 2], f64);
const SCENARIOS: [Measured; 3] = [
    ("S1", "s1-syslog", "s1_results", [Some(1500.0), Some(5000.0)], 735.0),
    ("S2", "s2-linkdown", "s2_results", [Some(2000.0), None], 2672.0),
    ("S3", "s3-iptv", "s3_results", [Some(2000.0), None], 2103.0),
];

/// From the tick to the committed alarm, and to what a reader of the Delta table sees; and what the whole way of the rows
/// costs, from the generated source to the tables.
pub fn tick(report: &mut Report, effort: Effort) {
    for (title, scenario, table, goals, spark) in SCENARIOS {
        let example = Example::of(scenario);
        let live = example.open();
        example.batches(&live);
        let (mut committed, mut visible) = (Sample::default(), Sample::default());
        let mut stages = BTreeMap::<String, Sample>::new();
        let rounds = effort.rounds(300);
        let (mut cpu, mut before) = (0.0, 0);
        let events = || -> u64 {
            let streams = live.host.stream_ids();
            let count = |id: &StreamId| example.rows(&live, &format!("select count(*) as n from {}", id.stream));
            streams.iter().map(|id| count(id)[0]["n"].as_u64().unwrap()).sum()
        };
        for round in 0..rounds + 20 {
            if round == 20 {
                (cpu, before) = (cpu_seconds(), events());
            }
            to_the_next_minute(&example, &live);
            let start = Instant::now();
            let (took, parts) = step(&example, &live);
            drain(&live);
            if round >= 20 {
                for (stage, ms) in parts {
                    stages.entry(stage).or_default().push(Duration::from_secs_f64(ms / 1000.0));
                }
                committed.push(took);
                visible.push(start.elapsed());
            }
        }
        let cpu = cpu_seconds() - cpu;
        let events = (events() - before) as f64 / cpu;
        let rows = example.rows(&live, &format!("select count(*) as n from {table}"));
        let least = if scenario == "s3-iptv" { rounds / 10 } else { 2 * rounds } as u64;
        assert!(rows[0]["n"].as_u64() >= Some(least), "every minute's results are in Delta: {rows:?}");
        report.durations(&format!("{title}, tick to committed alarm"), &committed, goals[0]);
        report.durations(&format!("{title}, tick to visible in Delta, flushed at once"), &visible, goals[1]);
        // Queries and rules run inside of detect.
        for (stage, sample) in stages.iter().filter(|(stage, _)| *stage != "total") {
            report.durations(&format!("{title}, of that {stage}"), sample, None);
        }
        let faster = spark * 1000.0 / committed.p50();
        report.figure(
            &format!("{title}, PySpark 4.3 with the same rules took {spark} ms"),
            &format!("{faster:.0} times"),
        );
        report.figure(
            &format!("{title}, events per CPU-second, from the generated source to the tables"),
            &format!("{events:.0}"),
        );
        drop(live);
        report.keep(example.dir);
    }
}

/// One batch up to its commit, which is left out.
fn execute(live: &Live, prepared: &Arc<Prepared>, streams: &Streams, plan: &Plan) -> Executed {
    let reader = live.built.ledger.state(&plan.key).unwrap();
    let inputs = batch::inputs(plan, prepared, streams);
    let faults: Arc<dyn FaultPoints> = Arc::new(NoFaults);
    let current = batch::current_alarms(reader.as_ref()).unwrap();
    batch::execute(plan.clone(), prepared, inputs, reader, &current, &faults).unwrap()
}

/// What the batch that is due consists of.
pub fn ready(example: &Example, live: &Live) -> (Arc<Prepared>, Plan, Streams) {
    let id = example.scenario();
    let prepared = live.built.store.scenario(&id).unwrap().active.unwrap();
    let streams = Streams::from([(stream().stream, live.host.stream(&stream()).unwrap())]);
    let read = BTreeMap::from([(stream().stream, true)]);
    let key = RunKey::live(id);
    let head = live.built.ledger.head(&key).unwrap();
    let due = Due { time: example.clock.now(), skipped: None };
    let plan = batch::plan(key, due, &prepared, head.as_ref(), &streams, &read).unwrap();
    (prepared, plan, streams)
}

/// The batch without commit, with the plugin and with the same code native.
pub fn batch(report: &mut Report, effort: Effort) {
    let example = Example::new();
    let live = example.open();
    example.batches(&live);
    to_the_next_minute(&example, &live);
    let (plugin, plan, streams) = ready(&example, &live);
    let detector = Arc::new(Native::<S1Syslog>::like(plugin.detector.as_ref(), r#"{"repeat":false}"#));
    let native = Arc::new(Prepared { detector, ..Prepared::clone(&plugin) });
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
        swapped.push(step(&example, &live).0);
        drain(&live);
        for _ in 0..5 {
            to_the_next_minute(&example, &live);
            ordinary.push(step(&example, &live).0);
            drain(&live);
        }
    }
    report.durations("S1 batch with commit, ordinary", &ordinary, None);
    report.durations("S1 batch with commit, first after a swapped rule", &swapped, None);
    let pause = crate::report::micros((swapped.p50() - ordinary.p50()).max(0.0));
    report.figure("swap pause: difference of the two medians", &pause);
    drop(live);
    report.keep(example.dir);
}
