//! One real host for some minutes: S1, S2 and S3 at a trigger of a second with the injector's streams. What an operator
//! would ask after a night: is a batch still as fast, does memory grow, do files, do tables still open at once?

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_model::Time;

use crate::report::{Report, Sample, micros};
use crate::support::example::{assemble, copy_tree, repository};

/// Before the first look: compilation, the streams' history and the first tables are over by then.
const SETTLES: Duration = Duration::from_secs(60);
const TENANT: &str = "netops";

/// Real time for another process.
#[allow(clippy::disallowed_methods)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// The host, ended by a signal when it goes out of scope.
struct Host {
    child: Child,
    data: PathBuf,
}

impl Host {
    fn start(folder: &Path) -> (Self, Receiver<(String, Batch)>) {
        let (store, data) = (folder.join("store"), folder.join("data"));
        assemble(&store);
        copy_tree(&repository().join("examples/network-cep/injector"), &store.join(TENANT).join("streams"));
        for scenario in std::fs::read_dir(store.join(TENANT)).unwrap().map(|e| e.unwrap().path()) {
            let manifest = scenario.join("scenario.toml");
            let Ok(text) = std::fs::read_to_string(&manifest) else { continue };
            let faster = text.replace("trigger = { interval = \"10s\" }", "trigger = { interval = \"1s\" }");
            assert_ne!(text, faster, "{} has another trigger", manifest.display());
            std::fs::write(manifest, faster).unwrap();
        }
        let weir = std::env::current_exe().unwrap().with_file_name("weir");
        assert!(weir.is_file(), "there is no {}: run this by `cargo xtask soak`", weir.display());
        let mut child = Command::new(weir)
            .args(["run", "--log", "json", "--listen", "127.0.0.1:0", "--store"])
            .arg(&store)
            .arg("--data")
            .arg(&data)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (told, batches) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
                match Batch::of(&line) {
                    Some(batch) => drop(told.send(batch)),
                    None if line["level"] == "INFO" => {}
                    None => eprintln!("{line}"),
                }
            }
        });
        (Self { child, data }, batches)
    }

    /// Resident memory in MB: all of it, what of it was allocated (the rest is the program itself, whose pages come in as
    /// they are first used), and all of it at most.
    fn memory(&self) -> Memory {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let of = |field: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(field));
            let kilobytes = line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok());
            kilobytes.unwrap_or(f64::NAN) / 1024.0
        };
        Memory { resident: of("VmRSS:"), allocated: of("RssAnon:"), most: of("VmHWM:") }
    }
}

/// Megabytes.
struct Memory {
    resident: f64,
    allocated: f64,
    most: f64,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One batch as the log tells of it: when it was due, when it had been committed, and what of that was the batch's own.
struct Batch {
    due: Time,
    lag: Duration,
    own: Duration,
}

impl Batch {
    fn of(line: &Value) -> Option<(String, Self)> {
        let progress = line.get("progress")?;
        let due: Time = progress["timestamp"].as_str()?.parse().ok()?;
        let said: Time = line["timestamp"].as_str()?.parse().ok()?;
        let own = Duration::from_secs_f64(progress["durationMs"]["total"].as_f64()? / 1e3);
        Some((progress["name"].as_str()?.to_owned(), Self { due, lag: said.since(due), own }))
    }
}

/// Files that each table has, as the host's latest upkeep left it.
fn kept(data: &Path) -> BTreeMap<String, u64> {
    let weir = std::env::current_exe().unwrap().with_file_name("weir");
    let output = Command::new(weir).args(["status", "--json", "--data"]).arg(data).output().unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let tables = status["tables"].as_array().cloned().unwrap_or_default();
    tables.iter().filter_map(|t| Some((t["table"].as_str()?.to_owned(), t["files"].as_u64()?))).collect()
}

/// Files of each table's folder now, and how long Python's deltalake takes to open each, where there is one.
struct Tables {
    files: BTreeMap<String, usize>,
    open: Sample,
}

/// Opens the tables that are given three times each and prints microseconds.
const OPEN: &str = "import sys, time\nfrom deltalake import DeltaTable\nfor path in sys.argv[1:]:\n  for _ in range(3):\n    \
                    begun = time.perf_counter()\n    DeltaTable(path)\n    print((time.perf_counter() - begun) * 1e6)";

fn tables(data: &Path) -> Tables {
    let mut found = Tables { files: BTreeMap::new(), open: Sample::default() };
    let folders: Vec<PathBuf> =
        std::fs::read_dir(data.join("lake").join(TENANT)).unwrap().map(|e| e.unwrap().path()).collect();
    for folder in &folders {
        let table = folder.file_name().unwrap().to_string_lossy().into_owned();
        let listed = std::fs::read_dir(folder).unwrap().flatten();
        found.files.insert(table, listed.filter(|e| e.path().extension().is_some_and(|e| e == "parquet")).count());
    }
    if let Some(python) = std::env::var_os("WEIR_PYTHON") {
        let output = Command::new(python).args(["-c", OPEN]).args(&folders).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            found.open.push(Duration::from_secs_f64(line.parse::<f64>().unwrap() / 1e6));
        }
    }
    found
}

/// Runs it for so many minutes.
pub fn run(report: &mut Report, minutes: u64) {
    let folder = tempfile::tempdir().unwrap();
    let (host, batches) = Host::start(folder.path());
    pause(SETTLES);
    let (begun, start, opened_first) = (Instant::now(), host.memory(), tables(&host.data));
    let warm = batches.try_iter().count();
    assert!(warm > 0, "the host committed no batch within a minute");
    let mut by: BTreeMap<String, (Sample, Sample)> = BTreeMap::new();
    let mut due: BTreeMap<String, Vec<Time>> = BTreeMap::new();
    let mut half_way = None;
    while begun.elapsed() < Duration::from_secs(60 * minutes) {
        if half_way.is_none() && begun.elapsed() > Duration::from_secs(30 * minutes) {
            half_way = Some((host.memory(), tables(&host.data).open.p50()));
        }
        if let Ok((scenario, batch)) = batches.recv_timeout(Duration::from_secs(5)) {
            let (lag, own) = by.entry(scenario.clone()).or_default();
            lag.push(batch.lag);
            own.push(batch.own);
            due.entry(scenario).or_default().push(batch.due);
        }
    }
    let (end, opened_last, kept) = (host.memory(), tables(&host.data), kept(&host.data));
    let (mut all, mut all_own) = (Sample::default(), Sample::default());
    for (scenario, (lag, own)) in by {
        report.durations(&format!("{scenario}: tick to committed and logged, at a 1 s trigger"), &lag, None);
        let times = &due[&scenario];
        let skipped = times.windows(2).filter(|t| t[1].since(t[0]) > Duration::from_secs(1)).count();
        report.figure(&format!("{scenario}: gaps between its ticks"), &skipped.to_string());
        all.extend(lag);
        all_own.extend(own);
    }
    report.durations("all three: tick to committed and logged", &all, None);
    report.durations("of that the batch itself, plan to commit", &all_own, None);
    let (then, open_then) = half_way.expect("a loop of some minutes passes its middle");
    report.figure(
        &format!("allocated memory after one minute, half way, and {minutes} minutes later"),
        &format!(
            "{:.0} MB, {:.0} MB, {:.0} MB ({:+.0} MB)",
            start.allocated,
            then.allocated,
            end.allocated,
            end.allocated - then.allocated
        ),
    );
    report.figure(
        "resident memory, which is that and the pages of the program that were used",
        &format!(
            "{:.0} MB, {:.0} MB, {:.0} MB; at most {:.0} MB",
            start.resident, then.resident, end.resident, end.most
        ),
    );
    report.figure(
        "a table opened by Python's deltalake, median, after one minute, half way, and at the end",
        &format!("{}, {}, {}", micros(opened_first.open.p50()), micros(open_then), micros(opened_last.open.p50())),
    );
    for (table, files) in &opened_last.files {
        let live = opened_first.files.get(table).copied().unwrap_or(0);
        let has = kept.get(table).copied().unwrap_or(0);
        let what =
            format!("{table}: files that it has; with those of versions of the last hour, after one minute and now");
        report.figure(&what, &format!("{has}; {live}, {files}"));
    }
}
