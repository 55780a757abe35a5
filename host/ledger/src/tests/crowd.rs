//! Many scenarios at once: every commit is durable, and they share syncs.

use std::sync::Barrier;

use weir_model::port::Ledger;

use super::*;

const THREADS: u64 = 8;
const BATCHES: u64 = 25;

fn of(thread: u64, n: u64) -> Commit {
    let key = live(&format!("t{}/s{thread}", thread % 3));
    Commit {
        state: vec![put("shared", &format!("{thread}.{n}")), put(&n.to_string(), "1")],
        outputs: vec![output("o", thread * 1000 + n, 5)],
        ..commit(&key, n)
    }
}

#[test]
fn all_are_there_after_it_is_opened_again_and_they_shared_syncs() {
    let dir = folder();
    let ledger = open(dir.path());
    let together = Barrier::new(THREADS as usize);
    std::thread::scope(|s| {
        for thread in 0..THREADS {
            let (ledger, together) = (&ledger, &together);
            s.spawn(move || {
                for n in 1..=BATCHES {
                    // Gathered anew for each batch, so that a group has somebody to wait for.
                    together.wait();
                    let next = of(thread, n);
                    assert_eq!(ledger.begin(&next.plan).expect("begun"), 1);
                    let digest = ledger.commit(&next).expect("committed");
                    let head = ledger.head(&next.plan.key).expect("read").expect("there");
                    assert_eq!(head.digest, digest);
                    let to = sink(&next.plan.key, "o");
                    let cursor = weir_model::batch::SinkCursor { drained_to: BatchId(n), table_id: None };
                    ledger.advance(&to, &cursor).expect("moved");
                }
            });
        }
    });
    let stats = ledger.stats();
    assert_eq!(stats.commits, THREADS * BATCHES);
    assert!(stats.largest_group > 1, "{stats:?}");
    // Each commit and each cursor waits for a sync; alone each would have one of its own.
    assert!(stats.syncs < 2 * stats.commits, "{stats:?}");
    drop(ledger);

    let ledger = open(dir.path());
    for thread in 0..THREADS {
        let last = of(thread, BATCHES);
        let key = last.plan.key.clone();
        let records = ledger.records(&key, None, usize::MAX).expect("read");
        assert_eq!(records.len() as u64, BATCHES);
        let state = ledger.state(&key).expect("read");
        let shared = state.get(&SPACE, b"shared").expect("read");
        assert_eq!(shared, Some(value(&format!("{thread}.{BATCHES}"), None)));
        assert_eq!(state.size(&SPACE).expect("read").0, BATCHES + 1);
    }
    assert_eq!(ledger.scenarios().expect("read").len() as u64, THREADS);
    assert_eq!(ledger.check().expect("checked").findings, []);
}

#[test]
fn a_group_is_bounded_in_tasks_and_bytes() {
    for config in [LedgerConfig { group_tasks: 1, ..small() }, LedgerConfig { group_bytes: 1, ..small() }] {
        let dir = folder();
        let ledger = FjallLedger::open(dir.path(), config, Arc::new(NoFaults)).expect("opened");
        let together = Barrier::new(4);
        std::thread::scope(|s| {
            for thread in 0..4 {
                let (ledger, together) = (&ledger, &together);
                s.spawn(move || {
                    for n in 1..=5 {
                        together.wait();
                        ledger.commit(&of(thread, n)).expect("committed");
                    }
                });
            }
        });
        assert_eq!(ledger.stats().largest_group, 1);
        assert_eq!(ledger.stats().syncs, 20);
    }
}

#[test]
fn commits_of_one_run_that_meet_in_a_group_follow_each_other() {
    let dir = folder();
    let ledger = open(dir.path());
    let key = live("t/s");
    // Each caller commits again until its turn has come.
    std::thread::scope(|s| {
        for n in (1..=6).rev() {
            let (ledger, key) = (&ledger, &key);
            s.spawn(move || {
                let next = Commit { state: vec![put("a", &n.to_string())], ..commit(key, n) };
                while ledger.commit(&next).is_err() {}
            });
        }
    });
    for n in 2..=6 {
        let state = ledger.state_before(&key, BatchId(n)).expect("kept");
        let found = state.get(&SPACE, b"a").expect("read");
        assert_eq!(found, Some(value(&(n - 1).to_string(), None)));
    }
    assert_eq!(ledger.check().expect("checked").findings, []);
}

#[test]
fn commits_go_on_while_much_is_taken_away() {
    let dir = folder();
    let ledger = open(dir.path());
    let (big, small) = (live("t/big"), live("t/small"));
    for n in 1..=60 {
        let state = (0..100).map(|k| put(&format!("{n}.{k}"), "1")).collect();
        let next = Commit { state, ..commit(&big, n) };
        ledger.commit(&next).expect("committed");
    }
    std::thread::scope(|s| {
        let away = s.spawn(|| {
            ledger.retain(minute(50)).expect("retained");
            ledger.forget(&big.scenario).expect("forgotten");
        });
        for n in 1..=20 {
            let mut next = commit(&small, n);
            // After the horizon: whenever retention comes, these stay.
            next.plan.time = minute(100 + n);
            ledger.commit(&next).expect("committed");
        }
        away.join().expect("no panic");
    });
    assert_eq!(ledger.head(&big).expect("read"), None);
    assert_eq!(ledger.records(&small, None, 99).expect("read").len(), 20);
    assert_eq!(ledger.check().expect("checked").findings, []);
}
