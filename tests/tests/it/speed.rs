//! Time that runs faster than the machine's, on the real binary: `weir run --speed`.

use std::time::{Duration, Instant};

use weir_model::Time;

use crate::support::binary::{S1, Site, assert_contiguous, assert_tables, text, until};

/// T of S1's latest batch.
fn latest(site: &Site) -> Option<Time> {
    site.s1()["last_batch"]["time"].as_str().map(|t| t.parse().unwrap())
}

/// The times of all batches, in their order.
fn times(site: &Site) -> Vec<Time> {
    let time = |batch: &serde_json::Value| batch["timestamp"].as_str().unwrap().parse().unwrap();
    site.json(&["ledger", S1]).iter().map(time).collect()
}

#[test]
fn time_runs_faster_goes_on_where_it_was_and_never_back() {
    let site = Site::new("10s", "");
    let began = Instant::now();
    let mut host = site.run_with(&["--speed", "300"]);
    host.address();
    let first = until("a batch", || latest(&site));
    // Twenty minutes in four seconds.
    let far =
        until("twenty minutes have passed", || latest(&site).filter(|t| t.since(first) > Duration::from_secs(1_200)));
    let (data, real) = (far.since(first), began.elapsed());
    assert!(real * 3 < data, "{data:?} of data took {real:?}");
    assert!(site.told().contains("time runs 300 times as fast"), "{}", site.told());

    // Ended without a word, and found again by a command: its time is where it was, and tables hold every minute.
    host.kill();
    let before = times(&site);
    let told = site.json(&["status"]).remove(0)["time"].as_str().unwrap().parse::<Time>().unwrap();
    assert!(told >= *before.last().unwrap(), "{told} {before:?}");
    let text_of = |output: &std::process::Output| text(&output.stderr);
    assert_eq!(text_of(&site.ask(&["status"])), "", "a command has no reason to tell of it");

    // At ordinary speed it keeps its lead, and a faster one is taken up again.
    let mut host = site.run();
    host.address();
    let count = before.len();
    let slow = until("a batch at ordinary speed", || Some(times(&site)).filter(|t| t.len() > count));
    let step = slow[count].since(slow[count - 1]);
    assert!(step >= Duration::from_secs(10) && step <= Duration::from_secs(60), "{step:?}");
    assert!(site.told().contains("ahead of the machine's, and goes on from"), "{}", site.told());
    assert!(host.stop().success());
    let mut host = site.run_with(&["--speed", "300"]);
    host.address();
    let slow = *slow.last().unwrap();
    until("ten more minutes", || latest(&site).filter(|t| t.since(slow) > Duration::from_secs(600)));
    assert!(host.stop().success());

    let batches = site.json(&["ledger", S1]);
    assert_contiguous(&batches);
    assert!(times(&site).iter().all(|t| t.micros() % 10_000_000 == 0), "ticks are on the grid");
    assert_tables(&site, &batches);
}

#[test]
fn a_folder_of_ordinary_time_is_not_made_to_hurry() {
    let site = Site::new("500ms", "");
    let mut host = site.run();
    host.address();
    site.batch_after(1);
    assert!(host.stop().success());
    let before = times(&site);
    let refused = site.run_command(&["--listen", "127.0.0.1:0", "--speed", "60"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let told = text(&refused.stderr);
    assert!(told.contains("--speed") && told.contains("a data folder of its own"), "{told}");
    // And nothing of it is remembered: the next host goes by the machine's clock.
    let mut host = site.run();
    host.address();
    site.batch_after(before.len() as u64);
    assert!(host.stop().success());
    assert!(!site.told().contains("ahead of the machine's"), "{}", site.told());
}
