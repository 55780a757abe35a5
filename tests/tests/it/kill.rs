//! kill -9 at any moment: nothing that was committed is lost, nothing is written twice.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::support::binary::{S1, Site, assert_contiguous, assert_tables, assert_written, pause, until};
use crate::support::example::copy_tree;

const KILLS: u32 = 20;
const AGAIN: &str = "netops/s1-again";

#[test]
fn a_host_that_is_killed_twenty_times_goes_on_as_if_it_had_not_been() {
    let seed: u64 = std::env::var("WEIR_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random);
    println!("WEIR_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);

    let site = Site::new("100ms", "");
    // S1 reports a minute once. This second scenario reports it in every batch, so that every batch writes rows.
    copy_tree(&site.store().join(S1), &site.store().join(AGAIN));
    let manifest = format!("{AGAIN}/scenario.toml");
    site.edit(&manifest, "repeat = false", "repeat = true");
    site.edit(&manifest, "table = \"s1_results\"", "table = \"s1_again\"");

    // The first one lives until the plugin is compiled and cached: that takes longer than the others have.
    let mut host = site.run();
    host.address();
    site.batch_after(0);
    host.kill();
    for _ in 1..KILLS {
        let host = site.run();
        pause(Duration::from_millis(random.random_range(30..1_200)));
        host.kill();
    }

    // Read from the folder itself, as the last kill left it.
    let before = site.json(&["ledger", S1]);
    let mut host = site.run();
    // Before it listens, a question would open the folder itself, and the host would find it held.
    host.address();
    site.batch_after(before.len() as u64 + 10);
    // All that was made so far is flushed too.
    until("the bronze table has all rows", || {
        let stream = site.json(&["status"]).remove(0)["streams"][0].clone();
        (stream["offsets"] == stream["flushed"]).then_some(())
    });
    assert_eq!(host.stop().code(), Some(0), "{}", site.told());

    let batches = site.json(&["ledger", S1]);
    assert_eq!(batches[..before.len()], before[..], "what was committed stays as it was");
    assert_contiguous(&batches);
    assert_tables(&site, &batches);
    let again = site.json(&["ledger", AGAIN]);
    assert_contiguous(&again);
    assert_written(&site, "s1_again", &again);
    assert!(again.iter().all(|b| b["alarms"] == 2), "every batch saw two minutes of two routers");
    println!("{} batches before the last kill, {} and {} in all", before.len(), batches.len(), again.len());
}
