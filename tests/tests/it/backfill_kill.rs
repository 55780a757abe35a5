//! History, backfill and kill -9 with the real binary: without a host, beside one, and over the end of one.

use std::io::Read as _;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;
use weir_model::{Clock as _, Time};

use crate::support::binary::{Running, S1, Site, assert_contiguous, get, pause, text, until};

const HOURS: u64 = 24;

struct Past {
    site: Site,
    from: String,
    to: String,
}

impl Past {
    /// A data folder with the last day in its bronze table, which no host has ever held.
    fn new() -> Self {
        let site = Site::new("1m", "");
        let minute = Duration::from_secs(60);
        let now: Time = weir::clock::SystemClock::new().now().floor(minute, Duration::ZERO);
        let past = Self { from: now.minus(HOURS as u32 * 60 * minute).to_string(), to: now.to_string(), site };
        let mut command = past.site.command(&["generate", "network-cep", "--from", &past.from, "--to", &past.to]);
        let output = command.arg("--store").arg(past.site.store()).arg("--data").arg(&past.site.data).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        past
    }
    fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let mut all = vec!["backfill", S1, "--from", &self.from, "--to", &self.to, "--name", "all"];
        all.extend(more);
        all
    }
    /// A host that has its streams and the scenario's ruleset.
    fn host(&self) -> Running {
        let mut host = self.site.run();
        let address = host.address();
        until("the host is ready", || (get(&address, "/readyz").0 == 200).then_some(()));
        until("the ruleset is active", || (!self.site.s1()["ruleset"].is_null()).then_some(()));
        host
    }
    fn begin(&self) -> Child {
        let mut command = self.site.command(&self.args(&["--json"]));
        command.arg("--data").arg(&self.site.data).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
    /// Committed batches of the run.
    fn batches(&self) -> Option<usize> {
        let output = self.site.ask(&["ledger", S1, "--run", "backfill:all", "--json"]);
        match output.status.code() {
            Some(0) => Some(text(&output.stdout).lines().count()),
            // Not begun.
            Some(4) => Some(0),
            _ => None,
        }
    }
}

#[test]
fn a_backfill_that_is_killed_and_loses_its_host_goes_on_and_is_published_once() {
    let past = Past::new();
    let total = usize::try_from(HOURS * 60).unwrap();

    // The process that does the work itself is killed.
    let mut done = 0;
    for wait in 1..20 {
        let mut child = past.begin();
        pause(Duration::from_millis(500 * wait));
        child.kill().unwrap();
        child.wait().unwrap();
        done = past.batches().expect("the folder can be opened after a kill");
        if done > 0 {
            break;
        }
    }
    assert!(done > 0 && done < total, "{done} batches before the kill");

    // A host does the work and is killed.
    let host = past.host();
    let mut child = past.begin();
    let more = until("the run goes on", || {
        if let Some(ended) = child.try_wait().unwrap() {
            let mut told = String::new();
            child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
            panic!("it ended with {ended} after {done} batches: {told}");
        }
        past.batches().filter(|n| *n > done)
    });
    host.kill();
    let ended = child.wait().unwrap();
    assert!(more < total && ended.code() == Some(3), "{more} batches, then {ended}");

    let host = past.host();
    let progress = past.site.json(&past.args(&["--publish"])).remove(0);
    assert_eq!((progress["batches"].as_u64(), progress["published"].as_bool()), (Some(HOURS * 60), Some(true)));
    let batches = past.site.json(&["ledger", S1, "--run", "backfill:all"]);
    assert_contiguous(&batches);
    assert_eq!(batches.len(), total);
    assert!(batches[1..].iter().all(|b| b["numInputRows"] == 98), "each minute's rows were read once");

    // The first T sees no minute, each other one the minute before it: 50 messages of one router, 10 of another.
    let results = || {
        let sql = format!(
            "select router_ip, error_count, severity, count(*) n, count(distinct processing_time) minutes from s1_results \
             where _batch_time < timestamp '{}' group by 1, 2, 3 order by 1",
            past.to
        );
        past.site.query(&sql)
    };
    let minutes = HOURS * 60 - 1;
    let row = |ip: &str, n: u64, severity: &str| serde_json::json!({"router_ip": ip, "error_count": n, "severity": severity, "n": minutes, "minutes": minutes});
    let expected: Vec<Value> = vec![row("203.0.113.33", 10, "Warning"), row("203.0.113.34", 50, "Critical")];
    assert_eq!(results(), expected);
    let again = past.site.json(&past.args(&["--publish"])).remove(0);
    assert_eq!((again["batches"].as_u64(), again["rows_in"].as_u64()), (Some(HOURS * 60), Some(0)));
    assert_eq!(results(), expected);
    assert_eq!(host.stop().code(), Some(0), "{}", past.site.told());

    let mut command = past.site.command(&["generate", "network-cep", "--from", &past.from, "--to", &past.to]);
    let output = command.arg("--store").arg(past.site.store()).arg("--data").arg(&past.site.data).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "history goes into a folder that is still empty");
}
