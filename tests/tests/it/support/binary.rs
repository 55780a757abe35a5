//! The real binary on the example store, as an operator runs it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::example::assemble_only;

/// The scenario of the example.
pub const S1: &str = "netops/s1-syslog";
/// Until a host has done what a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary beside the tests' own.
pub fn weir() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.parent().and_then(Path::parent).unwrap().join("weir");
    assert!(
        path.is_file(),
        "there is no {}: run the tests by `cargo xtask test` or `cargo test --workspace`, which build it, or `cargo build -p weir -p weir-tests --bin weir`",
        path.display()
    );
    path
}

/// Real time for another process.
#[allow(clippy::disallowed_methods)]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Asks until there is an answer.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        pause(Duration::from_millis(50));
    }
}

/// A rule store, a data folder and a configuration file.
pub struct Site {
    pub dir: TempDir,
    pub data: PathBuf,
}

impl Site {
    /// S1 of the example with a trigger of `trigger`, and a host that is quick to look and to flush. `config` is put before
    /// the configuration's tables.
    pub fn new(trigger: &str, config: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let site = Self { data: dir.path().join("data"), dir };
        assemble_only(&site.store(), &["s1-syslog"]);
        let trigger = format!("interval = \"{trigger}\"");
        site.edit("netops/s1-syslog/scenario.toml", "interval = \"10s\"", &trigger);
        let tables = "[ingest]\nflush = \"200ms\"\n[rule_store]\npoll = \"100ms\"\nsettle = \"200ms\"\n";
        std::fs::write(site.config(), format!("{tables}{config}")).unwrap();
        site
    }
    pub fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }
    pub fn config(&self) -> PathBuf {
        self.dir.path().join("weir.toml")
    }
    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }
    /// What the hosts said on stderr so far.
    pub fn told(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }
    /// Replaces a text that must be there.
    pub fn edit(&self, file: &str, from: &str, to: &str) {
        let path = self.store().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} does not contain {from}");
        std::fs::write(path, text.replace(from, to)).unwrap();
    }

    /// A command of the binary, with nothing of the environment's settings.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(weir());
        for set in ["WEIR_STORE", "WEIR_DATA", "WEIR_CONFIG", "WEIR_LOG", "WEIR_LOG_FORMAT", "WEIR_TOKEN"] {
            command.env_remove(set);
        }
        command.args(args).arg("--config").arg(self.config());
        command
    }
    /// `weir run` with further arguments, on this store and data folder.
    pub fn run_command(&self, more: &[&str]) -> Command {
        let mut command = self.command(&["run", "--json"]);
        command.args(more).arg("--store").arg(self.store()).arg("--data").arg(&self.data);
        command
    }
    /// A host on a free port of this machine. It does not have to be ready.
    pub fn run(&self) -> Running {
        self.run_with(&[])
    }
    /// The same with further arguments.
    pub fn run_with(&self, more: &[&str]) -> Running {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log()).unwrap();
        let mut command = self.run_command(&["--listen", "127.0.0.1:0"]);
        command.args(more);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        Running { child }
    }
    /// What a command about the data folder answers, and its exit code.
    pub fn ask(&self, args: &[&str]) -> Output {
        self.command(args).arg("--data").arg(&self.data).output().unwrap()
    }
    /// The JSON objects that it answers; it has to end with 0.
    pub fn json(&self, args: &[&str]) -> Vec<Value> {
        let mut all = args.to_vec();
        all.push("--json");
        let output = self.ask(&all);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}{}", text(&output.stderr), self.told());
        text(&output.stdout).lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }
    pub fn query(&self, sql: &str) -> Vec<Value> {
        self.json(&["query", sql])
    }
    /// S1 in `weir status --json`.
    pub fn s1(&self) -> Value {
        let status = self.json(&["status"]).remove(0);
        status["scenarios"]
            .as_array()
            .unwrap()
            .iter()
            .find(|s| s["scenario"] == "s1-syslog")
            .cloned()
            .unwrap_or_default()
    }
    /// Waits for a batch after this one; answers the last one.
    pub fn batch_after(&self, after: u64) -> u64 {
        until(&format!("a batch after {after}"), || self.s1()["last_batch"]["id"].as_u64().filter(|id| *id > after))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let told = self.told();
            let last: Vec<&str> = told.lines().rev().take(60).collect();
            eprintln!("the hosts said last:");
            last.iter().rev().for_each(|line| eprintln!("  {line}"));
        }
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A host of its own process; it is killed when this is dropped.
pub struct Running {
    pub child: Child,
}

impl Running {
    /// Waits until it listens; answers the address.
    pub fn address(&mut self) -> String {
        let mut line = String::new();
        let mut stdout = BufReader::new(self.child.stdout.take().expect("asked once"));
        stdout.read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("the host did not start: {e}: {line}"));
        told["listen"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned()
    }
    /// kill -9.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
    /// SIGTERM, and waits.
    pub fn stop(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        until("the host stops", || self.child.try_wait().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// GET over plain TCP: status and body.
pub fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = text(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Asserts that the batches of a scenario are complete: ids from 1, times that rise, an unbroken chain of digests.
pub fn assert_contiguous(batches: &[Value]) {
    let mut previous = (String::new(), "0".repeat(64));
    for (batch, id) in batches.iter().zip(1_u64..) {
        assert_eq!(batch["batchId"], id, "ids are contiguous");
        let time = batch["batchTimestampMs"].as_u64().unwrap();
        assert!(format!("{time:020}") > previous.0, "times rise: {batch}");
        assert_eq!(batch["previousDigest"], previous.1, "the chain is whole at {id}");
        previous = (format!("{time:020}"), batch["digest"].as_str().unwrap().to_owned());
    }
}

/// Asserts that the tables hold what S1's batches wrote, once, and every full minute of the bronze table.
pub fn assert_tables(site: &Site, batches: &[Value]) {
    let twice = site.query(
        "select processing_time, router_ip, severity, count(*) n from s1_results where _scenario = 'netops/s1-syslog' \
         group by 1, 2, 3 having count(*) > 1",
    );
    assert_eq!(twice, [] as [Value; 0], "each router's minute is reported once");
    let wrong = site.query(
        "select * from s1_results where (router_ip, error_count, severity) not in \
         (('203.0.113.34', 50, 'Critical'), ('203.0.113.33', 10, 'Warning'))",
    );
    assert_eq!(wrong, [] as [Value; 0], "nothing but what the data says is reported");
    assert_written(site, "s1_results", batches);

    let bronze = site.query("select count(*) n, count(distinct _offset) d from s1_router_syslog_events").remove(0);
    assert_eq!(bronze["n"], bronze["d"], "each row is in the bronze table once");
    assert!(bronze["n"].as_u64().unwrap() > 1000, "{bronze}");
    let wrong = site.query(
        "with m as (select date_trunc('minute', collected_at) t, router_ip r from s1_router_syslog_events \
            where syslog_message like '%sapDHCPLseStatePopulateErr%'), \
         e as (select date_trunc('minute', min(collected_at)) a, date_trunc('minute', max(collected_at)) b \
            from s1_router_syslog_events) \
         select t, count(*) n, sum(case r when '203.0.113.34' then 1 else 0 end) r34, \
            sum(case r when '203.0.113.33' then 1 else 0 end) r33, sum(case r when '203.0.113.36' then 1 else 0 end) r36 \
         from m, e where t > a and t < b group by t order by t",
    );
    assert!(wrong.len() >= 13, "a quarter of an hour is there: {wrong:?}");
    for minute in wrong {
        let counts = ["n", "r34", "r33", "r36"].map(|c| minute[c].as_u64().unwrap());
        assert_eq!(counts, [62, 50, 10, 2], "{minute}");
    }

    let events = site.query(
        "select key, change, _batch_id from alarm_events where _scenario = 'netops/s1-syslog' order by key, _batch_id",
    );
    let mut open: Option<(String, bool)> = None;
    for event in &events {
        let (key, change) = (event["key"].to_string(), event["change"].as_str().unwrap());
        let was = open.take().filter(|(k, _)| *k == key);
        match change {
            "opened" => assert_eq!(was, None, "an alarm is opened once: {events:?}"),
            "reopened" => {
                assert_eq!(was.as_ref().map(|w| w.1), Some(false), "only what was cleared re-opens: {events:?}")
            }
            _ => assert_eq!(was.as_ref().map(|w| w.1), Some(true), "only what is open changes: {events:?}"),
        }
        open = Some((key, change != "cleared"));
    }
    assert_eq!(events.iter().filter(|e| e["change"] == "opened").count(), 2, "{events:?}");
}

/// Asserts that a table of a scenario holds as many rows of each batch as the ledger says.
pub fn assert_written(site: &Site, table: &str, batches: &[Value]) {
    let scenario = batches[0]["name"].as_str().unwrap();
    let sql =
        format!("select _batch_id b, count(*) n from {table} where _scenario = '{scenario}' group by 1 order by 1");
    let found: Vec<(u64, u64)> =
        site.query(&sql).iter().map(|r| (r["b"].as_u64().unwrap(), r["n"].as_u64().unwrap())).collect();
    let mut told = Vec::new();
    for batch in batches {
        for output in batch["sink"]["outputs"].as_array().unwrap().iter().filter(|o| o["table"] == table) {
            told.push((batch["batchId"].as_u64().unwrap(), output["rows"].as_u64().unwrap()));
        }
    }
    told.retain(|(_, rows)| *rows > 0);
    assert_eq!(found, told, "{table} holds what was committed, once");
}
