//! One component with many behaviours, for the host's tests: its configuration says what it does. `tests/guests/README.md`
//! lists them.

// A guest's job here is to do what a host forbids; its clocks are the sandbox's.
#![allow(clippy::disallowed_methods)]

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use weir_sdk::{
    Alarm, Batch, Description, Detector, Fault, Frame, Kind::*, Severity, Verdict, config, log, state::key,
};

/// What it does.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
enum Behaviour {
    // limits of the component
    Spin { rounds: Option<u64> },
    Allocate { bytes: usize },
    Recurse,
    Panic { message: Option<String> },
    Exit,
    Sleep { millis: u64 },
    // limits of what crosses
    ReturnBig { rows: usize },
    HostCallBytes { bytes: usize },
    HostCalls { count: u64 },
    Handles { count: usize },
    Frames { count: usize },
    // limits of what is left
    Alarms { count: usize, bytes: Option<usize>, fields: Option<usize> },
    Log { lines: u64, bytes: Option<usize> },
    Print { lines: u64 },
    State { keys: u64, bytes: usize },
    // answers
    Judged,
    NoVerdict,
    Fault { kind: Kind },
    Undeclared { what: String },
    WrongOutput,
    Rejects { reason: String },
    // what a batch offers
    Echo,
    Query,
    Rule,
    Count,
    Clock,
    Raise { key: String, severity: String },
    Clear { key: String },
    FilterGroup,
    // what goes wrong before detect
    PrepareSpin,
    PreparePanic,
    PrepareFault,
    PrepareLog,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Config,
    Input,
    Data,
    Internal,
}

/// The detector, which is its behaviour.
pub struct Probe(Behaviour);

weir_sdk::export!(Probe);

impl Detector for Probe {
    fn describe() -> Description {
        Description::new("probe", "0.1.0")
            .input("events")
            .query("rows")
            .rule("judge")
            .output("probe", |o| o.column("n", Int64).nullable("text", Text).nullable("at", Timestamp))
            .alarm("probe", ["key"])
            .state(1)
    }

    fn prepare(json: &str) -> Result<Self, Fault> {
        let behaviour = config(json)?;
        match behaviour {
            Behaviour::PrepareSpin => spin(None),
            Behaviour::PreparePanic => panic("prepare was asked to"),
            Behaviour::PrepareFault => return Err(Fault::config("prepare was asked to")),
            Behaviour::PrepareLog => log::warn("prepare was asked to"),
            _ => {}
        }
        Ok(Self(behaviour))
    }

    fn detect(&self, b: &Batch) -> Result<Verdict, Fault> {
        self.act(b)?;
        Ok(match self.0 {
            Behaviour::NoVerdict => Verdict::NoVerdict,
            _ => Verdict::Judged,
        })
    }
}

impl Probe {
    fn act(&self, b: &Batch) -> Result<(), Fault> {
        match &self.0 {
            Behaviour::Spin { rounds } => spin(*rounds),
            Behaviour::Allocate { bytes } => allocate(*bytes),
            Behaviour::Recurse => {
                black_box(recurse(1));
            }
            Behaviour::Panic { message } => panic(message.as_deref().unwrap_or("it was asked to")),
            Behaviour::Exit => std::process::exit(3),
            Behaviour::Sleep { millis } => std::thread::sleep(Duration::from_millis(*millis)),
            Behaviour::ReturnBig { rows } => return write(b, (0..*rows as i64).map(|n| (n, None))),
            Behaviour::HostCallBytes { bytes } => log::info("x".repeat(*bytes)),
            Behaviour::HostCalls { count } => (0..*count).for_each(|_| {
                black_box(b.time());
            }),
            Behaviour::Handles { count } => {
                let held: Vec<_> = (0..*count).map(|_| b.output("probe")).collect();
                black_box(held.len());
            }
            Behaviour::Frames { count } => {
                let held = (0..*count).map(|_| b.input("events")).collect::<Result<Vec<_>, _>>()?;
                black_box(held.len());
            }
            Behaviour::Alarms { count, bytes, fields } => return alarms(b, *count, *bytes, *fields),
            Behaviour::Log { lines, bytes } => {
                (0..*lines).for_each(|n| log::info(format!("{n} {}", "x".repeat(bytes.unwrap_or(0)))));
            }
            Behaviour::Print { lines } => (0..*lines).for_each(print),
            Behaviour::State { keys, bytes } => {
                let value = "x".repeat(*bytes);
                return b.state().put_many((0..*keys).map(|n| (format!("{n:08}"), &value)), None);
            }
            Behaviour::Fault { kind } => return Err(fault(*kind)),
            Behaviour::Undeclared { what } => return undeclared(b, what),
            Behaviour::WrongOutput => {
                b.output("probe").blobs("text", ["n is required and missing"])?.finish()?;
            }
            Behaviour::Rejects { reason } => {
                let events = b.input("events")?;
                return b.reject((0..events.rows()).map(|row| events.row(row)), reason);
            }
            Behaviour::Echo => return echo(b, &b.input("events")?),
            Behaviour::Query => return echo(b, &b.query("rows").bind("to", b.time()).run()?),
            Behaviour::Rule => return judge(b),
            Behaviour::Count => return count(b),
            Behaviour::Clock => return clock(b),
            Behaviour::Raise { key, severity } => {
                let severity = severity.parse().map_err(Fault::Config)?;
                return b.alarms([Alarm::raise("probe", [key], severity).message("it was asked to")]);
            }
            Behaviour::Clear { key } => return b.alarms([Alarm::clear("probe", [key])]),
            Behaviour::FilterGroup => return filter_group(b),
            Behaviour::Judged
            | Behaviour::NoVerdict
            | Behaviour::PrepareSpin
            | Behaviour::PreparePanic
            | Behaviour::PrepareFault
            | Behaviour::PrepareLog => {}
        }
        Ok(())
    }
}

/// Work that the compiler can neither leave out nor compute itself. Without rounds it does not end.
fn spin(rounds: Option<u64>) {
    let mut x = black_box(1u64);
    let mut left = rounds.unwrap_or(u64::MAX);
    while left > 0 {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        left -= u64::from(rounds.is_some());
    }
}

/// Touches every page, so that the memory is really there.
fn allocate(bytes: usize) {
    let mut memory = vec![0u8; bytes];
    for page in memory.chunks_mut(4096) {
        page[0] = 1;
    }
    black_box(&memory);
}

#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 16]);
    if frame[0] == 0 { 0 } else { recurse(depth + 1) + black_box(frame[1]) }
}

/// What this crate is for.
#[allow(clippy::panic)]
fn panic(message: &str) {
    panic!("{message}")
}

/// Stdout and stderr belong to the log as well.
#[allow(clippy::print_stdout)]
fn print(n: u64) {
    println!("stdout {n}");
    eprintln!("stderr {n}");
}

fn fault(kind: Kind) -> Fault {
    match kind {
        Kind::Config => Fault::config("it was asked to"),
        Kind::Input => Fault::input("it was asked to"),
        Kind::Data => weir_sdk::DataError::Malformed.into(),
        Kind::Internal => Fault::internal("it was asked to"),
    }
}

/// Asks for something that describe does not list.
fn undeclared(b: &Batch, what: &str) -> Result<(), Fault> {
    match what {
        "input" => b.input("other").map(drop),
        "window" => b.window("other").map(drop),
        "query" => b.query("other").run().map(drop),
        "rule" => b.rule("other").run().map(drop),
        "output" => b.output("other").int64s("n", [1])?.finish().map(drop),
        "alarm" => b.alarms([Alarm::raise("other", ["k"], Severity::Info)]),
        _ => Err(Fault::config("what: input, window, query, rule, output or alarm")),
    }
}

fn write(b: &Batch, rows: impl Iterator<Item = (i64, Option<String>)>) -> Result<(), Fault> {
    let (n, text): (Vec<i64>, Vec<_>) = rows.unzip();
    b.output("probe").fill([("at", b.time())], n.len())?.int64s("n", &n)?.blobs("text", text)?.finish()?;
    Ok(())
}

/// Each row as JSON, with its number.
fn echo(b: &Batch, rows: &Frame) -> Result<(), Fault> {
    let fields = rows.fields();
    let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    let texts = (0..rows.rows()).map(|row| rows.slice(row, 1)?.json(&names));
    let texts = texts.collect::<Result<Vec<_>, Fault>>()?;
    write(b, texts.into_iter().enumerate().map(|(n, text)| (n as i64, Some(text))))
}

/// The whole answer of the rule to each event, failed ones put aside.
fn judge(b: &Batch) -> Result<(), Fault> {
    let events = b.input("events")?;
    let answer = b.rule("judge").each(&events).want("", Json).run()?;
    b.reject_failed(&events, &answer)?;
    let answers = answer.texts("")?;
    write(b, (0..answers.len()).map(|row| (row as i64, answers.get(row).map(str::to_owned))))
}

/// How many batches this state has seen.
fn count(b: &Batch) -> Result<(), Fault> {
    let seen = b.state().get("count")?.unwrap_or_default();
    let seen: i64 = String::from_utf8_lossy(&seen).parse().unwrap_or(0);
    b.state().put("count", (seen + 1).to_string(), None)?;
    write(b, std::iter::once((seen + 1, None)))
}

/// Two looks at each clock with a sleep in between, and two random numbers: microseconds, nanoseconds, bits.
fn clock(b: &Batch) -> Result<(), Fault> {
    let wall = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(-1, |d| d.as_micros() as i64);
    let random = || RandomState::new().hash_one(0u8) as i64;
    let (start, wall_before) = (Instant::now(), wall());
    std::thread::sleep(Duration::from_millis(1));
    let slept = start.elapsed().as_nanos() as i64;
    let looks = [("wall", wall_before), ("wall", wall()), ("slept", slept), ("random", random()), ("random", random())];
    write(b, looks.into_iter().map(|(what, n)| (n, Some(what.to_owned()))))
}

fn alarms(b: &Batch, count: usize, bytes: Option<usize>, fields: Option<usize>) -> Result<(), Fault> {
    let message = "x".repeat(bytes.unwrap_or(1));
    b.alarms((0..count).map(|n| {
        let alarm = Alarm::raise("probe", [n.to_string()], Severity::Minor).message(&message);
        (0..fields.unwrap_or(0)).fold(alarm, |alarm, field| alarm.field(&format!("f{field}"), n as i64))
    }))
}

/// The benchmark: events with `err_cnt` of 50 or more, grouped by `ip`: how many, and their mean (rounded down), in the
/// order in which addresses first appear.
fn filter_group(b: &Batch) -> Result<(), Fault> {
    let events = b.input("events")?;
    let (counts, ips) = (events.int64s("err_cnt")?, events.texts("ip")?);
    let (mut places, mut groups) = (HashMap::new(), Vec::<(&str, i64, i64)>::new());
    for (row, count) in counts.values().iter().enumerate().filter(|(_, count)| **count >= 50) {
        let place = *places.entry(&ips[row]).or_insert(groups.len());
        if place == groups.len() {
            groups.push((&ips[row], 0, 0));
        }
        groups[place].1 += 1;
        groups[place].2 += count;
    }
    write(b, groups.into_iter().map(|(ip, n, sum)| (n, Some(key([ip, &(sum / n).to_string()])))))
}
