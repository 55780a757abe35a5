//! Folders that are not what they must be.

use std::fs;

use weir_model::FaultKind;
use weir_model::batch::SinkCursor;
use weir_model::port::Ledger;

use super::*;
use crate::codec::StoredBatch;
use crate::keys;
use crate::store::{Ks, Source};
use crate::tasks::Task;

fn refusal(dir: &Path) -> Fault {
    FjallLedger::open(dir, small(), Arc::new(NoFaults)).expect_err("refused")
}

fn committed(ledger: &FjallLedger, key: &RunKey, range: std::ops::RangeInclusive<u64>) {
    for n in range {
        let next = Commit { state: vec![put("a", &n.to_string())], outputs: vec![output("o", n, 3)], ..commit(key, n) };
        ledger.commit(&next).expect("committed");
    }
}

/// Everything in a folder with its bytes, except for the lock.
fn bytes_of(dir: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            out.extend(bytes_of(&path));
        } else if !path.ends_with("LOCK") {
            out.push((path.clone(), fs::read(&path).expect("a file")));
        }
    }
    out.sort();
    out
}

#[test]
fn a_second_host_is_told_who_holds_the_folder() {
    let dir = folder();
    let ledger = open(dir.path());
    let fault = refusal(dir.path());
    assert_eq!(fault.kind, FaultKind::Ledger);
    let holder = format!(
        "ledger: another host holds the data folder (process {}); stop it, or give this host a data folder of its own",
        std::process::id()
    );
    assert_eq!(fault.to_string(), holder);
    drop(ledger);
    open(dir.path());
}

#[test]
fn another_format_is_refused_and_nothing_is_touched() {
    let dir = folder();
    committed(&open(dir.path()), &live("t/s"), 1..=3);
    fs::write(dir.path().join("FORMAT"), "weir-ledger 2\n").expect("written");
    let before = bytes_of(dir.path());
    assert_eq!(
        refusal(dir.path()).to_string(),
        "ledger: the ledger has the format 'weir-ledger 2', this host knows only 'weir-ledger 1'; run the version of the host that wrote it"
    );
    assert!(before == bytes_of(dir.path()), "something was touched");
    fs::remove_file(dir.path().join("FORMAT")).expect("removed");
    assert!(refusal(dir.path()).message.contains("FORMAT file is gone"));
}

#[test]
fn a_folder_whose_making_was_cut_short_is_made_again() {
    let dir = folder();
    fs::write(dir.path().join("FORMAT"), "weir-ledger 1\n").expect("written");
    committed(&open(dir.path()), &live("t/s"), 1..=1);
    open(dir.path());
}

#[test]
fn a_journal_that_lost_its_end_is_noticed_and_only_its_run_stops() {
    let dir = folder();
    let (cut, whole) = (live("t/cut"), live("t/whole"));
    let ledger = open(dir.path());
    committed(&ledger, &whole, 1..=2);
    committed(&ledger, &cut, 1..=5);
    drop(ledger);
    let journal = newest_journal(dir.path());
    let bytes = fs::read(&journal).expect("the journal");
    // The last commit is gone, as after bad sectors: fjall opens it without a word.
    let end = bytes.iter().rposition(|b| *b != 0).expect("something");
    fs::write(&journal, &bytes[..end - 100]).expect("cut");

    let ledger = open(dir.path());
    let fault = ledger.head(&cut).expect_err("damaged");
    assert_eq!(fault.kind, FaultKind::Ledger);
    assert_eq!(
        fault.to_string(),
        "ledger: t/cut@live: the journal was cut: batch 5 was committed, but 4 is the latest one that is kept; \
         restore the data folder from a backup, or erase the scenario's history with `weir forget`"
    );
    let o = sink(&cut, "o");
    let cursor = SinkCursor { drained_to: BatchId(1), table_id: None };
    assert!(ledger.begin(&plan(&cut, 5)).is_err());
    assert!(ledger.commit(&commit(&cut, 5)).is_err());
    assert!(ledger.record(&cut, BatchId(1)).is_err());
    assert!(ledger.record_at(&cut, minute(1)).is_err());
    assert!(ledger.records(&cut, None, 1).is_err());
    assert!(ledger.state(&cut).is_err());
    assert!(ledger.state_before(&cut, BatchId(1)).is_err());
    assert!(ledger.alarms(&cut.scenario).is_err());
    assert!(ledger.outputs(&o, None, 1).is_err());
    assert!(ledger.cursor(&o).is_err());
    assert!(ledger.advance(&o, &cursor).is_err());
    committed(&ledger, &whole, 3..=3);
    ledger.retain(minute(99)).expect("leaves it alone");
    let found = ledger.check().expect("checked").findings;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].run.as_ref(), found[0].batch), (Some(&cut), Some(BatchId(5))));

    ledger.forget(&cut.scenario).expect("the way out");
    committed(&ledger, &cut, 1..=2);
    drop(ledger);
    let ledger = open(dir.path());
    assert_eq!(ledger.records(&cut, None, 9).expect("read").len(), 2);
    assert_eq!(ledger.check().expect("checked").findings, []);
}

fn newest_journal(dir: &Path) -> std::path::PathBuf {
    fs::read_dir(dir.join("store"))
        .expect("a folder")
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "jnl"))
        .max_by_key(|p| {
            let number = p.file_stem().and_then(|s| s.to_str());
            number.and_then(|n| n.parse::<u64>().ok())
        })
        .expect("a journal")
}

#[test]
fn a_journal_with_a_changed_byte_is_an_error_or_a_noticed_cut() {
    let dir = folder();
    let key = live("t/s");
    let ledger = open(dir.path());
    committed(&ledger, &key, 1..=5);
    let whole = ledger.records(&key, None, 9).expect("read");
    drop(ledger);
    let journal = newest_journal(dir.path());
    let good = fs::read(&journal).expect("the journal");
    let end = good.iter().rposition(|b| *b != 0).expect("something");
    let mut refused = 0;
    let first = good.windows(4).position(|w| w == b"live").expect("the first run");
    for at in (first..end).step_by((end - first) / 20) {
        let mut bad = good.clone();
        bad[at] ^= 0x55;
        let copy = folder();
        copy_folder(dir.path(), copy.path());
        let path = copy.path().join(journal.strip_prefix(dir.path()).expect("inside"));
        fs::write(path, &bad).expect("damaged");
        match FjallLedger::open(copy.path(), small(), Arc::new(NoFaults)) {
            Err(fault) => {
                assert_eq!(fault.kind, FaultKind::Ledger, "{fault}");
                refused += 1;
            }
            // Some bytes say nothing: a second copy of a length. Then everything must be as it was. A run whose beginning
            // is lost is not there any more.
            Ok(ledger) => match ledger.records(&key, None, 9) {
                Err(fault) => assert_eq!(fault.kind, FaultKind::Ledger, "{fault}"),
                Ok(seen) if seen.is_empty() => {}
                Ok(seen) => {
                    assert!(seen == whole, "byte {at}: the records differ");
                    assert_eq!(ledger.check().expect("checked").findings, [], "byte {at}");
                    let state = ledger.state(&key).expect("read").get(&SPACE, b"a").expect("read");
                    assert_eq!(state, Some(value("5", None)), "byte {at}");
                }
            },
        }
    }
    assert!(refused > 0, "fjall's own sums notice most");
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            fs::copy(&path, &target).expect("copied");
        }
    }
}

/// Changes the store behind the ledger's back.
fn meddle(ledger: &FjallLedger, changes: Vec<(Ks, Vec<u8>, Option<Vec<u8>>)>) {
    for (ks, key, value) in changes {
        let task = match value {
            Some(value) => Task::Put { ks, key, value: value.into(), durable: true },
            None => Task::Remove(vec![(ks, key)]),
        };
        ledger.ask(task).expect("meddled");
    }
}

fn kept(ledger: &FjallLedger, ks: Ks, key: &[u8]) -> Vec<u8> {
    let found = ledger.core().read(|p| p.get(ks, key)).expect("read");
    found.expect("there").to_vec()
}

#[test]
fn damage_inside_shows_when_it_is_opened_or_checked() {
    // The first run of a ledger has the number 1.
    let body = |ledger: &FjallLedger, n: u64, change: fn(&mut StoredBatch)| {
        let at = keys::batch(1, n);
        let mut batch = StoredBatch::decode(&kept(ledger, Ks::Batches, &at)).expect("a batch");
        change(&mut batch);
        vec![(Ks::Batches, at, Some(batch.encode().expect("bytes")))]
    };
    type Change = Box<dyn Fn(&FjallLedger) -> Vec<(Ks, Vec<u8>, Option<Vec<u8>>)>>;
    let o = name("o");
    let of_o = move |n| keys::output(1, &o, n);
    let payload = of_o(2);
    let entry = of_o(3);
    let stray = of_o(9);
    let cases: Vec<(&str, bool, Change)> = vec![
        ("batch 2 is missing", true, Box::new(|_| vec![(Ks::Batches, keys::batch(1, 2), None)])),
        ("batch 3 is not what was committed", true, Box::new(move |l| body(l, 3, |b| b.state.0[0] ^= 1))),
        (
            "batch 3 does not follow the one before it",
            true,
            Box::new(move |l| {
                body(l, 3, |b| {
                    b.previous.0[0] ^= 1;
                    b.digest = crate::codec::chained(b.previous, crate::codec::content(&b.body, b.state));
                })
            }),
        ),
        ("batch 3 is not found by its T", true, Box::new(|_| vec![(Ks::Times, keys::time(1, minute(3)), None)])),
        (
            "the journal was cut: batch 5 is kept, but the run's head is 4",
            true,
            Box::new(|l| {
                let fourth = kept(l, Ks::Batches, &keys::batch(1, 4));
                vec![(Ks::Batches, keys::batch(1, 5), Some(fourth))]
            }),
        ),
        (
            "4 batches are kept, 5 are found by T",
            false,
            Box::new(|_| {
                let stray = 9u64.to_be_bytes().to_vec();
                vec![(Ks::Times, keys::time(1, minute(9)), Some(stray))]
            }),
        ),
        (
            "a before-image of batch 2 is missing",
            false,
            Box::new(|_| vec![(Ks::Before, keys::before(1, &SPACE, b"a", 2), None)]),
        ),
        (
            "1 before-images belong to no batch",
            false,
            Box::new(|_| vec![(Ks::Before, keys::before(1, &SPACE, b"z", 2), Some(vec![3]))]),
        ),
        (
            "state has the sizes {Plugin(1): (2, 4)}, kept are {Plugin(1): (1, 2)}",
            false,
            Box::new(|_| vec![(Ks::State, keys::state(1, &SPACE, b"z"), Some(vec![1, 0]))]),
        ),
        (
            "0 values expire, 1 are found by time",
            false,
            Box::new(|_| vec![(Ks::Expiry, keys::expiry(1, minute(9), &SPACE, b"a"), Some(vec![]))]),
        ),
        (
            "the output of batch 2 for t/s@live#o is missing",
            false,
            Box::new(move |_| vec![(Ks::Payloads, payload.clone(), None)]),
        ),
        (
            "3 outputs wait for the sink o, it counts 4",
            false,
            Box::new(move |_| vec![(Ks::Outputs, entry.clone(), None)]),
        ),
        (
            "the output of batch 9 for t/s@live#o is missing",
            false,
            Box::new(move |l| {
                let first = kept(l, Ks::Outputs, &keys::output(1, &name("o"), 1));
                vec![(Ks::Outputs, stray.clone(), Some(first))]
            }),
        ),
        (
            "there are entries of run 7, which is not there",
            false,
            Box::new(|_| vec![(Ks::State, keys::state(7, &SPACE, b"a"), Some(vec![1]))]),
        ),
        (
            "there is a sink of a run that is not there",
            false,
            Box::new(|l| {
                let state = kept(l, Ks::Sinks, &keys::sink(&sink(&live("t/s"), "o")));
                let key = keys::sink(&sink(&live("t/ghost"), "o"));
                vec![(Ks::Sinks, key, Some(state))]
            }),
        ),
    ];
    for (message, at_open, changes) in cases {
        let dir = folder();
        let key = live("t/s");
        let ledger = open(dir.path());
        committed(&ledger, &key, 1..=4);
        assert_eq!(ledger.check().expect("checked").findings, []);
        meddle(&ledger, changes(&ledger));
        drop(ledger);
        let ledger = open(dir.path());
        let found = ledger.check().expect("checked").findings;
        let messages: Vec<_> = found.iter().map(|f| f.message.as_str()).collect();
        assert!(messages.contains(&message), "{message}: {messages:?}");
        let head = ledger.head(&key);
        assert_eq!(head.is_err(), at_open, "{message}: {head:?}");
    }
}

#[test]
fn an_output_whose_bytes_went_bad_is_never_handed_out() {
    let dir = folder();
    let key = live("t/s");
    let ledger = open(dir.path());
    let next = Commit { outputs: vec![output("small", 1, 3), output("big", 1, 3000)], ..commit(&key, 1) };
    ledger.commit(&next).expect("committed");
    let at = keys::output(1, &name("small"), 1);
    let mut payload = kept(&ledger, Ks::Payloads, &at);
    payload[9] ^= 1;
    meddle(&ledger, vec![(Ks::Payloads, at, Some(payload))]);
    let file =
        fs::read_dir(dir.path().join("outputs")).expect("a folder").next().expect("a file").expect("an entry").path();
    let mut bytes = fs::read(&file).expect("a file");
    bytes[99] ^= 1;
    fs::write(&file, bytes).expect("damaged");
    for output in ["small", "big"] {
        let fault = ledger.outputs(&sink(&key, output), None, 9).expect_err("damaged");
        assert!(fault.message.contains("its digest differs"), "{fault}");
    }
}

#[test]
fn files_that_no_batch_names_are_swept() {
    let dir = folder();
    let key = live("t/s");
    let faults = Arc::new(OneFault::default());
    let ledger = FjallLedger::open(dir.path(), small(), faults.clone()).expect("opened");
    let with_file = |n| Commit { outputs: vec![output("o", n, 3000)], ..commit(&key, n) };
    ledger.commit(&with_file(1)).expect("committed");
    // The process ends between the file and its commit.
    faults.arm("commit.before");
    ledger.commit(&with_file(2)).expect_err("asked for");
    let outputs = dir.path().join("outputs");
    fs::write(outputs.join("half-written.arrow.new"), b"x").expect("written");
    let files = || fs::read_dir(&outputs).expect("a folder").count();
    assert_eq!(files(), 3);
    drop(ledger);
    let ledger = open(dir.path());
    assert_eq!(files(), 1);
    assert_eq!(ledger.check().expect("checked").findings, []);
    ledger.commit(&with_file(2)).expect("committed");
    assert_eq!(ledger.check().expect("checked").findings, []);
}
