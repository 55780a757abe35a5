//! A data folder on a disk that is full: batches wait, nothing is damaged, and it goes on by itself when there is room.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::binary::{S1, Site, assert_contiguous, assert_tables, pause, until};

/// A small file system of its own; it is unmounted when this is dropped.
struct Disk(PathBuf);

impl Disk {
    /// None where this process may not mount.
    fn mount(at: &Path, megabytes: u32) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let size = format!("size={megabytes}m");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).output().ok()?;
        mount.status.success().then(|| Self(at.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a test that panics may have files open there.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Writes `bytes`, or until there is no room, and says how much that was.
fn fill(file: &Path, bytes: usize) -> usize {
    use std::io::Write as _;
    let mut file = std::fs::File::create(file).unwrap();
    let mut written = 0;
    for size in [65_536, 512] {
        while written + size <= bytes && file.write_all(&vec![0; size]).is_ok() {
            written += size;
        }
    }
    written
}

/// The positions of the example's stream.
fn stream(site: &Site) -> Value {
    site.json(&["status"]).remove(0)["streams"][0].clone()
}

/// Runs on a small disk with this floor, fills it with so many bytes, waits until `says` stands in the log, and makes room again.
fn runs_through_a_full_disk(floor: u64, filling: usize, says: &str, batches_stop: bool) {
    let mut site = Site::new("200ms", &format!("[ledger]\ndisk_floor_bytes = {floor}\n"));
    let Some(disk) = Disk::mount(&site.dir.path().join("disk"), 24) else {
        eprintln!(
            "NOTICE: nothing was tested: a full disk needs a mount, and this process may not mount (run it as root)"
        );
        return;
    };
    site.data = disk.0.join("data");
    let mut host = site.run();
    host.address();
    let before = site.batch_after(2);

    let filler = disk.0.join("filler");
    assert!(fill(&filler, filling) > 8 << 20);
    until("the host says that the disk is full", || site.told().contains(says).then_some(()));
    // Long enough for several ticks of the trigger and one of the source.
    pause(Duration::from_secs(6));
    assert!(host.child.try_wait().unwrap().is_none(), "the host lives: {}", site.told());
    let full = site.s1();
    assert_eq!((&full["state"], &full["rejected"]), (&"running".into(), &Value::Null), "it is not parked: {full}");
    let at = full["last_batch"]["id"].as_u64().unwrap();
    if batches_stop {
        pause(Duration::from_secs(1));
        assert_eq!(site.s1()["last_batch"]["id"], at, "no batch commits on a full disk");
    } else {
        assert!(at > before + 5, "the ledger's room is not touched by the floor: batches go on");
    }

    std::fs::remove_file(filler).unwrap();
    site.batch_after(at + 5);
    // Rows that came after the disk was full reach the table too.
    let held = stream(&site)["offsets"]["0"].as_u64().unwrap();
    until("ingest and bronze go on", || {
        let stream = stream(&site);
        (stream["flushed"] == stream["offsets"] && stream["offsets"]["0"].as_u64().unwrap() > held).then_some(())
    });
    let after = site.s1();
    assert!(after["sinks"].as_array().unwrap().iter().all(|s| s["fault"].is_null()), "{after}");
    assert_eq!(host.stop().code(), Some(0), "{}", site.told());

    let batches = site.json(&["ledger", S1]);
    assert_contiguous(&batches);
    assert!(batches.iter().all(|b| b["outcome"] == "judged"), "a full disk is no batch's failure");
    assert_tables(&site, &batches);
}

#[test]
fn a_full_disk_stops_batches_and_room_lets_them_go_on() {
    runs_through_a_full_disk(0, usize::MAX, "there is no room for what is to be written", true);
}

#[test]
fn below_the_floor_tables_and_ingest_wait_and_batches_go_on() {
    runs_through_a_full_disk(12 << 20, 14 << 20, "must stay free", false);
}

/// A host that begins below the floor runs nothing, and does not look as if there were nothing to run.
#[test]
fn a_host_that_starts_below_the_floor_says_that_nothing_begins_and_why() {
    let site = Site::new("200ms", "");
    let mut host = site.run();
    host.address();
    site.batch_after(1);
    assert_eq!(host.stop().code(), Some(0), "{}", site.told());
    let committed = site.json(&["ledger", S1]).len() as u64;
    let settings = std::fs::read_to_string(site.config()).unwrap();
    std::fs::write(site.config(), format!("{settings}[ledger]\ndisk_floor_bytes = {}\n", 1_u64 << 50)).unwrap();
    let mut host = site.run();
    host.address();
    let status = site.json(&["status"]).remove(0);
    assert_eq!((&status["live"], &status["fault"]["kind"]), (&true.into(), &"disk".into()), "{status}");
    // What was active before the restart is made ready, and then would run.
    let scenario = until("the ruleset is ready", || Some(site.s1()).filter(|s| s["state"] == "running"));
    assert!(scenario["fault"]["message"].as_str().unwrap().starts_with("no batch begins: "), "{scenario}");
    let told = String::from_utf8(site.ask(&["status"]).stdout).unwrap();
    assert!(told.lines().nth(1).is_some_and(|l| l.starts_with("held up: ") && l.contains("must stay free")), "{told}");
    assert!(told.contains("netops/s1-syslog  held up"), "{told}");
    let line = told.lines().find(|l| l.starts_with("  netops/s1-syslog: held up: ")).unwrap();
    assert!(line.contains("no batch begins: ") && line.contains("make room"), "{told}");
    assert_eq!(site.json(&["ledger", S1]).len() as u64, committed, "nothing begins");
    assert_eq!(host.stop().code(), Some(0), "{}", site.told());
}
