//! A store that fails, and a process that ends, at the worst moments.

use std::io::ErrorKind;

use weir_model::FaultKind;
use weir_model::port::Ledger;

use super::*;

/// Attempts that a group gets.
const ATTEMPTS: u32 = 3;

#[test]
fn a_lost_write_is_written_again() {
    let dir = folder();
    let ledger = open(dir.path());
    let key = live("t/s");
    let first = Commit { state: vec![put("a", "1")], outputs: vec![output("o", 1, 3)], ..commit(&key, 1) };
    assert_eq!(ledger.begin(&first.plan).expect("begun"), 1);
    ledger.core().sabotage.lose(ErrorKind::Other);
    ledger.commit(&first).expect("committed by the second attempt");
    assert_eq!(ledger.stats().reopened, 1);
    assert_eq!(ledger.sinks().expect("read")[0].2, 1);
    assert_eq!(ledger.check().expect("checked").findings, []);
}

#[test]
fn a_write_that_lied_is_found_and_not_written_again() {
    let dir = folder();
    let ledger = open(dir.path());
    let key = live("t/s");
    let first = Commit { state: vec![put("a", "1")], outputs: vec![output("o", 1, 3)], ..commit(&key, 1) };
    ledger.core().sabotage.lie(ErrorKind::Other);
    let digest = ledger.commit(&first).expect("found");
    assert_eq!(ledger.head(&key).expect("read").expect("there").digest, digest);
    assert_eq!(ledger.stats().reopened, 1);
    assert_eq!(ledger.sinks().expect("read")[0].2, 1);
    assert_eq!(ledger.check().expect("checked").findings, []);
}

#[test]
fn an_attempt_is_counted_once_whatever_the_store_does() {
    let dir = folder();
    let ledger = open(dir.path());
    let key = live("t/s");
    ledger.core().sabotage.lie(ErrorKind::Other);
    assert_eq!(ledger.begin(&plan(&key, 1)).expect("begun"), 1);
    ledger.core().sabotage.lose(ErrorKind::Other);
    assert_eq!(ledger.begin(&plan(&key, 1)).expect("begun"), 2);
}

#[test]
fn a_full_disk_is_said_and_nothing_is_lost() {
    let dir = folder();
    let ledger = open(dir.path());
    let key = live("t/s");
    ledger.commit(&commit(&key, 1)).expect("committed");
    let second = Commit { state: vec![put("a", "1")], ..commit(&key, 2) };
    for _ in 0..ATTEMPTS {
        ledger.core().sabotage.lose(ErrorKind::StorageFull);
    }
    let fault = ledger.commit(&second).expect_err("no room");
    assert_eq!((fault.kind, fault.stage), (FaultKind::Disk, Some(weir_model::Stage::Commit)));
    assert_eq!(ledger.head(&key).expect("read").expect("there").plan.id, BatchId(1));
    // Somebody has made room.
    ledger.commit(&second).expect("committed");
    assert_eq!(ledger.check().expect("checked").findings, []);
}

#[test]
fn a_failing_disk_that_wrote_after_all_is_a_commit() {
    let dir = folder();
    let ledger = open(dir.path());
    let key = live("t/s");
    for _ in 1..ATTEMPTS {
        ledger.core().sabotage.lose(ErrorKind::Other);
    }
    ledger.core().sabotage.lie(ErrorKind::StorageFull);
    ledger.commit(&commit(&key, 1)).expect("found at the last look");
    assert_eq!(ledger.check().expect("checked").findings, []);
}

#[test]
fn a_commit_is_unknown_only_while_the_store_cannot_be_opened() {
    let dir = folder();
    let ledger = open(dir.path());
    let key = live("t/s");
    ledger.commit(&commit(&key, 1)).expect("committed");
    let marker = dir.path().join("store/version");
    let good = std::fs::read(&marker).expect("fjall's marker");
    let breaks = marker.clone();
    ledger.core().sabotage.next(move |write| {
        write()?;
        std::fs::write(&breaks, b"no store").expect("broken");
        Err(fjall::Error::Io(ErrorKind::Other.into()))
    });
    let second = commit(&key, 2);
    let fault = ledger.commit(&second).expect_err("nobody knows");
    assert_eq!(fault.kind, FaultKind::Unknown);
    let fault = ledger.head(&key).expect_err("it cannot be read either");
    assert_eq!(fault.kind, FaultKind::Ledger);
    let fault = ledger.begin(&plan(&key, 3)).expect_err("nor written");
    assert_eq!(fault.kind, FaultKind::Ledger);

    std::fs::write(&marker, good).expect("repaired");
    let digest = ledger.commit(&second).expect("it was there");
    assert_eq!(ledger.head(&key).expect("read").expect("there").digest, digest);
    assert_eq!(ledger.check().expect("checked").findings, []);
}

#[test]
fn one_bad_commit_does_not_spoil_a_retried_group() {
    let dir = folder();
    let ledger = open(dir.path());
    let key = live("t/s");
    ledger.core().sabotage.lose(ErrorKind::Other);
    std::thread::scope(|s| {
        let good = s.spawn(|| ledger.commit(&commit(&key, 1)));
        let bad = s.spawn(|| ledger.commit(&commit(&live("t/other"), 7)));
        good.join().expect("no panic").expect("committed");
        let fault = bad.join().expect("no panic").expect_err("out of order");
        assert_eq!(fault.kind, FaultKind::Internal);
    });
}

#[test]
fn an_injected_fault_looks_like_the_end_of_the_process() {
    for (point, is_there) in
        [("commit.before", false), ("commit.written", true), ("commit.synced", true), ("commit.replied", true)]
    {
        let dir = folder();
        let faults = Arc::new(OneFault::default());
        let ledger = FjallLedger::open(dir.path(), small(), faults.clone()).expect("opened");
        let key = live("t/s");
        ledger.commit(&commit(&key, 1)).expect("committed");
        let second = commit(&key, 2);
        faults.arm(point);
        let fault = ledger.commit(&second).expect_err("asked for");
        assert_eq!(fault.kind, FaultKind::Injected, "{point}");
        drop(ledger);
        let ledger = open(dir.path());
        let head = ledger.head(&key).expect("read").expect("there");
        assert_eq!(head.plan.id.0 == 2, is_there, "{point}");
        ledger.commit(&second).expect("the same answer as ever");
        assert_eq!(ledger.records(&key, None, 9).expect("read").len(), 2);
        assert_eq!(ledger.check().expect("checked").findings, []);
    }
}

#[test]
fn after_an_injected_fault_the_ledger_can_be_called_again() {
    for point in ["commit.before", "commit.written", "commit.synced", "commit.replied"] {
        let dir = folder();
        let faults = Arc::new(OneFault::default());
        let ledger = FjallLedger::open(dir.path(), small(), faults.clone()).expect("opened");
        let key = live("t/s");
        let first = commit(&key, 1);
        faults.arm(point);
        ledger.commit(&first).expect_err("asked for");
        let digest = ledger.commit(&first).expect("committed");
        let head = ledger.head(&key).expect("read").expect("there");
        assert_eq!(head.digest, digest, "{point}");
    }
}

#[test]
fn what_is_not_synced_is_not_seen() {
    let dir = folder();
    let faults = Arc::new(Watch::default());
    let ledger = FjallLedger::open(dir.path(), small(), faults.clone()).expect("opened");
    *faults.0.lock().expect("unpoisoned") = Some(Arc::downgrade(&ledger));
    let key = live("t/s");
    ledger.commit(&Commit { outputs: vec![output("o", 1, 3)], ..commit(&key, 1) }).expect("committed");
    assert!(ledger.head(&key).expect("read").is_some());
}

/// Looks for the batch when it has been written and not synced.
#[derive(Debug, Default)]
struct Watch(Mutex<Option<std::sync::Weak<FjallLedger>>>);

impl FaultPoints for Watch {
    fn pass(&self, point: &'static str) -> Result<(), Fault> {
        let ledger = self.0.lock().expect("unpoisoned").as_ref().and_then(|l| l.upgrade());
        if let ("commit.written", Some(ledger)) = (point, ledger) {
            let key = live("t/s");
            assert_eq!(ledger.head(&key)?, None);
            assert_eq!(ledger.outputs(&sink(&key, "o"), None, 9)?.len(), 0);
        }
        Ok(())
    }
}
