//! Each duty of the port, obeyed and violated.

use weir_model::FaultKind;
use weir_model::batch::SinkCursor;
use weir_model::port::{Ledger, StateReader};

use super::*;
use crate::store::{Ks, Source};

fn drained(n: u64) -> SinkCursor {
    SinkCursor { drained_to: BatchId(n), table_id: Some("t".to_owned()) }
}

#[test]
fn a_commit_is_there_with_everything_after_it_is_opened_again() {
    let dir = folder();
    let key = live("t/s");
    let first = Commit {
        state: vec![put("a", "1"), put_until("b", "2", minute(99))],
        outputs: vec![output("o", 1, 3), output("big", 1, 3000)],
        ..commit(&key, 1)
    };
    let ledger = open(dir.path());
    let incarnation = ledger.incarnation();
    let of_scenario = ledger.scenario(&key.scenario).expect("made");
    assert_eq!(ledger.begin(&first.plan).expect("begun"), 1);
    let digest = ledger.commit(&first).expect("committed");
    drop(ledger);

    let ledger = open(dir.path());
    assert_eq!(ledger.incarnation(), incarnation);
    assert_eq!(ledger.scenario(&key.scenario).expect("known"), of_scenario);
    assert_eq!(ledger.scenarios().expect("listed"), std::slice::from_ref(&key.scenario));
    let head = ledger.head(&key).expect("read").expect("there");
    assert_eq!(head.digest, digest);
    assert_eq!(head.plan, first.plan);
    assert_eq!((head.rows_in, head.state_changes), (10, 2));
    assert_eq!(head.outputs.len(), 2);
    let at = ledger.record_at(&key, minute(1)).expect("read");
    assert_eq!(at.as_ref(), Some(&head));
    assert_eq!(ledger.record_at(&key, minute(2)).expect("read"), None);
    assert_eq!(ledger.record(&key, BatchId(1)).expect("read"), Some(head.clone()));
    assert_eq!(ledger.record(&key, BatchId(2)).expect("read"), None);
    assert_eq!(ledger.records(&key, None, 9).expect("read"), [head]);
    let state = ledger.state(&key).expect("read");
    assert_eq!(state.get(&SPACE, b"b").expect("read"), Some(value("2", Some(minute(99)))));
    assert_eq!(state.get(&Space::Plugin(2), b"b").expect("read"), None);
    assert_eq!(state.size(&SPACE).expect("read"), (2, 4));
    for made in &first.outputs {
        let pending = ledger.outputs(&sink(&key, made.output.as_str()), None, 1).expect("read");
        assert_eq!(pending.len(), 1);
        assert_eq!(pending[0].rows, made.rows);
        assert_eq!(pending[0].table, made.table);
        assert_eq!(pending[0].ruleset, first.plan.ruleset);
    }
    assert_eq!(ledger.check().expect("checked").findings, []);
}

#[test]
fn the_same_commit_again_changes_nothing_and_another_one_is_refused() {
    let dir = folder();
    let ledger = open(dir.path());
    let key = live("t/s");
    let first = Commit { state: vec![put("a", "1")], outputs: vec![output("o", 1, 3)], ..commit(&key, 1) };
    let digest = ledger.commit(&first).expect("committed");
    assert_eq!(ledger.commit(&first).expect("again"), digest);
    ledger.commit(&commit(&key, 2)).expect("committed");
    assert_eq!(ledger.commit(&first).expect("below the head"), digest);
    assert_eq!(ledger.sinks().expect("read")[0].2, 1);

    let mut others = vec![first.clone(); 5];
    others[0].rows_in += 1;
    others[1].state = vec![put("a", "2")];
    others[2].state.clear();
    others[3].outputs = vec![output("o", 2, 3)];
    others[4].plan.attempt = 2;
    for other in others {
        assert_eq!(kind(ledger.commit(&other)), FaultKind::Internal);
    }
    assert_eq!(ledger.check().expect("checked").findings, []);
}

#[test]
fn batches_follow_each_other_in_n_and_t() {
    let dir = folder();
    let ledger = open(dir.path());
    let key = live("t/s");
    assert_eq!(kind(ledger.commit(&commit(&key, 2))), FaultKind::Internal);
    assert_eq!(kind(ledger.begin(&plan(&key, 2))), FaultKind::Internal);
    ledger.commit(&commit(&key, 1)).expect("committed");
    assert_eq!(kind(ledger.commit(&commit(&key, 3))), FaultKind::Internal);
    assert_eq!(kind(ledger.begin(&plan(&key, 1))), FaultKind::Internal);
    let mut same_time = commit(&key, 2);
    same_time.plan.time = minute(1);
    assert_eq!(kind(ledger.commit(&same_time)), FaultKind::Internal);
    assert_eq!(ledger.head(&key).expect("read").expect("there").plan.id, BatchId(1));
    let second = commit(&key, 2);
    ledger.commit(&second).expect("committed");
    let records = ledger.records(&key, None, 9).expect("read");
    assert_eq!(records[0].previous, Digest([0; 32]));
    assert_eq!(records[1].previous, records[0].digest);
    assert_eq!(ledger.records(&key, Some(BatchId(1)), 9).expect("read").len(), 1);
    assert_eq!(ledger.records(&key, Some(BatchId(2)), 9).expect("read"), []);
    assert_eq!(ledger.records(&key, None, 1).expect("read").len(), 1);
}

#[test]
fn a_commit_that_cannot_be_kept_is_refused_as_a_whole() {
    let dir = folder();
    let ledger = open(dir.path());
    let key = live("t/s");
    let long = "k".repeat(40_000);
    let zeros = "\0".repeat(40_000);
    for (state, fits) in
        [(vec![put("a", "1"), put("a", "2")], false), (vec![put(&long, "1")], true), (vec![put(&zeros, "1")], false)]
    {
        let n = ledger.head(&key).expect("read").map_or(1, |h| h.plan.id.0 + 1);
        let result = ledger.commit(&Commit { state, ..commit(&key, n) });
        assert_eq!(result.is_ok(), fits, "{result:?}");
    }
    let twice = Commit { outputs: vec![output("o", 1, 1), output("o", 2, 1)], ..commit(&key, 2) };
    assert_eq!(kind(ledger.commit(&twice)), FaultKind::Internal);
    assert_eq!(ledger.check().expect("checked").findings, []);
}

#[test]
fn attempts_are_counted_by_ruleset_until_the_batch_is_committed() {
    let dir = folder();
    let key = live("t/s");
    let mut other = plan(&key, 1);
    other.ruleset = Digest::of(b"another");
    let ledger = open(dir.path());
    assert_eq!(ledger.begin(&plan(&key, 1)).expect("begun"), 1);
    assert_eq!(ledger.begin(&plan(&key, 1)).expect("begun"), 2);
    assert_eq!(ledger.begin(&other).expect("begun"), 1);
    drop(ledger);
    let ledger = open(dir.path());
    assert_eq!(ledger.begin(&plan(&key, 1)).expect("begun"), 3);
    assert_eq!(ledger.begin(&other).expect("begun"), 2);
    ledger.commit(&commit(&key, 1)).expect("committed");
    assert_eq!(ledger.begin(&plan(&key, 2)).expect("begun"), 1);
}

#[test]
fn state_is_seen_as_each_batch_saw_it() {
    let dir = folder();
    let ledger = open(dir.path());
    let key = live("t/s");
    let changes = [
        vec![put("a", "1"), put("b", "1")],
        vec![put("a", "2"), delete("b"), put("c", "1")],
        vec![],
        vec![delete("a"), put("b", "2"), delete("never")],
    ];
    for (n, state) in (1..).zip(changes) {
        let next = Commit { state, ..commit(&key, n) };
        ledger.commit(&next).expect("committed");
    }
    let text = |reader: &dyn StateReader| {
        all(reader, &SPACE)
            .expect("read")
            .into_iter()
            .map(|(k, v)| {
                let text = |b: Vec<u8>| String::from_utf8(b).expect("text");
                format!("{}={}", text(k), text(v.value))
            })
            .collect::<Vec<_>>()
            .join(" ")
    };
    for (n, expected, size) in [
        (1, "", (0, 0)),
        (2, "a=1 b=1", (2, 4)),
        (3, "a=2 c=1", (2, 4)),
        (4, "a=2 c=1", (2, 4)),
        (5, "b=2 c=1", (2, 4)),
    ] {
        let reader = ledger.state_before(&key, BatchId(n)).expect("kept");
        assert_eq!(text(&*reader), expected, "before batch {n}");
        assert_eq!(reader.size(&SPACE).expect("read"), size);
    }
    assert_eq!(text(&*ledger.state(&key).expect("read")), "b=2 c=1");
    for n in [0, 6] {
        assert_eq!(ledger.state_before(&key, BatchId(n)).err().map(|f| f.kind), Some(FaultKind::NotReplayable));
    }
}

#[test]
fn scans_keep_to_prefix_order_and_limit() {
    let dir = folder();
    let ledger = open(dir.path());
    let key = live("t/s");
    let first = Commit {
        state: ["", "a", "a\0", "a\0b", "ab", "b", "~"].iter().map(|k| put(k, "1")).collect(),
        ..commit(&key, 1)
    };
    ledger.commit(&first).expect("committed");
    // A past view and a fork walk several sources; both must scan as the plain one does.
    ledger
        .commit(&Commit { state: vec![put("a\0", "2"), delete("ab"), put("aa", "2")], ..commit(&key, 2) })
        .expect("committed");
    let past = ledger.state_before(&key, BatchId(2)).expect("kept");
    let now = ledger.state(&key).expect("read");
    let scan = |reader: &dyn StateReader, prefix: &str, after: Option<&str>, limit| {
        reader
            .scan(&SPACE, prefix.as_bytes(), after.map(str::as_bytes), limit)
            .expect("read")
            .into_iter()
            .map(|(k, _)| String::from_utf8(k).expect("text"))
            .collect::<Vec<_>>()
    };
    assert_eq!(scan(&*past, "a", None, 9), ["a", "a\0", "a\0b", "ab"]);
    assert_eq!(scan(&*now, "a", None, 9), ["a", "a\0", "a\0b", "aa"]);
    for reader in [&*past, &*now] {
        assert_eq!(scan(reader, "a", Some("a"), 1), ["a\0"]);
        assert_eq!(scan(reader, "a\0", None, 9), ["a\0", "a\0b"]);
        assert_eq!(scan(reader, "a", Some(""), 1), ["a"]);
        assert_eq!(scan(reader, "a", Some("b"), 9), [""; 0]);
        assert_eq!(scan(reader, "b", Some("a"), 9), ["b"]);
        assert_eq!(scan(reader, "", None, 2), ["", "a"]);
        assert_eq!(scan(reader, "", Some("b"), 9), ["~"]);
    }
}

#[test]
fn a_view_stays_as_it_is() {
    let dir = folder();
    let ledger = open(dir.path());
    let key = live("t/s");
    let empty = ledger.state(&key).expect("read");
    ledger.commit(&Commit { state: vec![put("a", "1")], ..commit(&key, 1) }).expect("committed");
    let one = ledger.state(&key).expect("read");
    ledger.commit(&Commit { state: vec![delete("a")], ..commit(&key, 2) }).expect("committed");
    assert_eq!(all(&*empty, &SPACE).expect("read"), []);
    assert_eq!(one.get(&SPACE, b"a").expect("read"), Some(value("1", None)));
    // The store is opened again under the readers, and what they saw is found in before-images.
    ledger.core().sabotage.lie(std::io::ErrorKind::Other);
    ledger.commit(&commit(&key, 3)).expect("committed");
    assert_eq!(ledger.stats().reopened, 1);
    assert_eq!(all(&*empty, &SPACE).expect("read"), []);
    assert_eq!(one.get(&SPACE, b"a").expect("read"), Some(value("1", None)));
    assert_eq!(one.size(&SPACE).expect("read"), (1, 2));
    drop(ledger);
    assert_eq!(kind(one.get(&SPACE, b"a")), FaultKind::Ledger);
    open(dir.path());
}

#[test]
fn expired_values_go_with_the_first_batch_that_cannot_see_them() {
    let dir = folder();
    let ledger = open(dir.path());
    let key = live("t/s");
    let first = Commit {
        state: vec![put_until("a", "1", minute(2)), put_until("b", "1", minute(3)), put_until("c", "1", minute(2))],
        ..commit(&key, 1)
    };
    ledger.commit(&first).expect("committed");
    let mut failed = commit(&key, 2);
    failed.outcome = Outcome::Failed(Fault::internal("a test"));
    ledger.commit(&failed).expect("committed");
    let keys = |reader: &dyn StateReader| {
        let entries = all(reader, &SPACE).expect("read");
        entries.into_iter().map(|(k, _)| String::from_utf8(k).expect("text")).collect::<String>()
    };
    let state = ledger.state(&key).expect("read");
    assert_eq!(keys(&*state), "abc", "a failed batch leaves state alone");
    let third = Commit {
        // A value that has expired can be put again in the same batch.
        state: vec![put("c", "2")],
        ..commit(&key, 3)
    };
    ledger.commit(&third).expect("committed");
    let state = ledger.state(&key).expect("read");
    assert_eq!(keys(&*state), "c");
    assert_eq!(state.size(&SPACE).expect("read"), (1, 2));
    let before = ledger.state_before(&key, BatchId(3)).expect("kept");
    assert_eq!(keys(&*before), "abc");
    assert_eq!(before.size(&SPACE).expect("read"), (3, 6));
    assert_eq!(ledger.check().expect("checked").findings, []);
}

#[test]
fn other_runs_fork_at_their_first_commit_and_never_move_live() {
    let dir = folder();
    let ledger = open(dir.path());
    let (main, side) = (live("t/s"), run("t/s", "side:x"));
    let write = |key: &RunKey, n, state| {
        let next = Commit { state, ..commit(key, n) };
        ledger.commit(&next).expect("committed");
    };
    let get = |key: &RunKey, at: &str| {
        let state = ledger.state(key).expect("read");
        let found = state.get(&SPACE, at.as_bytes()).expect("read");
        found.map(|v| String::from_utf8(v.value).expect("text"))
    };
    write(&main, 1, vec![put("a", "1"), put("b", "1"), put("c", "1")]);
    assert_eq!(get(&side, "a").as_deref(), Some("1"), "reads live");
    write(&side, 1, vec![put("a", "side"), delete("b")]);
    write(&main, 2, vec![put("a", "2"), put("b", "2"), put("c", "2")]);
    assert_eq!(get(&side, "a").as_deref(), Some("side"));
    assert_eq!(get(&side, "b"), None);
    assert_eq!(get(&side, "c").as_deref(), Some("1"), "as at the fork");
    assert_eq!(get(&main, "a").as_deref(), Some("2"));
    let state = ledger.state(&side).expect("read");
    assert_eq!(all(&*state, &SPACE).expect("read").len(), 2);
    assert_eq!(state.size(&SPACE).expect("read"), (2, 7));
    let before = ledger.state_before(&side, BatchId(1)).expect("kept");
    assert_eq!(all(&*before, &SPACE).expect("read").len(), 3);
    assert_eq!(ledger.check().expect("checked").findings, []);

    // What a fork lies on goes with live's before-images.
    write(&main, 3, vec![]);
    ledger.retain(minute(3)).expect("retained");
    assert_eq!(ledger.state(&side).err().map(|f| f.kind), Some(FaultKind::NotReplayable));
    assert_eq!(get(&main, "a").as_deref(), Some("2"));
}

#[test]
fn sinks_drain_in_order_and_bounded() {
    let dir = folder();
    let ledger = open(dir.path());
    let key = live("t/s");
    let to = sink(&key, "o");
    for n in 1..=4 {
        let mut next = commit(&key, n);
        if n != 3 {
            next.outputs.push(output("o", n, 100));
        }
        ledger.commit(&next).expect("committed");
    }
    let batches = |after: Option<u64>, bytes| {
        let found = ledger.outputs(&to, after.map(BatchId), bytes).expect("read");
        found.iter().map(|o| o.batch.0).collect::<Vec<_>>()
    };
    assert_eq!(batches(None, usize::MAX), [1, 2, 4]);
    assert_eq!(batches(None, 0), [1]);
    assert_eq!(batches(Some(1), usize::MAX), [2, 4]);
    assert_eq!(batches(Some(4), usize::MAX), [0; 0]);
    let waiting = || ledger.sinks().expect("read");
    assert_eq!(waiting(), [(to.clone(), None, 3)]);
    ledger.advance(&to, &drained(3)).expect("moved");
    assert_eq!(waiting(), [(to.clone(), Some(drained(3)), 1)]);
    assert_eq!(ledger.cursor(&to).expect("read"), Some(drained(3)));
    assert_eq!(kind(ledger.advance(&to, &drained(2))), FaultKind::Internal);
    assert_eq!(kind(ledger.advance(&to, &drained(5))), FaultKind::Internal);
    let elsewhere = sink(&live("t/other"), "o");
    assert_eq!(kind(ledger.advance(&elsewhere, &drained(1))), FaultKind::Internal);
    assert_eq!(ledger.cursor(&elsewhere).expect("read"), None);
    ledger.advance(&to, &drained(4)).expect("moved");
    assert_eq!(waiting(), [(to, Some(drained(4)), 0)]);
    assert_eq!(ledger.check().expect("checked").findings, []);
}

#[test]
fn retention_keeps_heads_and_what_is_not_drained() {
    let dir = folder();
    let ledger = open(dir.path());
    let key = live("t/s");
    let (fast, slow) = (sink(&key, "fast"), sink(&key, "slow"));
    for n in 1..=5 {
        let next = Commit {
            state: vec![put("a", &n.to_string())],
            outputs: vec![output("fast", n, 3000), output("slow", n, 3)],
            ..commit(&key, n)
        };
        ledger.commit(&next).expect("committed");
    }
    ledger.advance(&fast, &drained(5)).expect("moved");
    ledger.advance(&slow, &drained(1)).expect("moved");
    let files = || std::fs::read_dir(dir.path().join("outputs")).expect("a folder").count();
    assert_eq!(files(), 5);
    ledger.retain(minute(4)).expect("retained");
    let kept = ledger.records(&key, None, 9).expect("read");
    assert_eq!(kept.iter().map(|r| r.plan.id.0).collect::<Vec<_>>(), [4, 5]);
    assert_eq!(ledger.record_at(&key, minute(3)).expect("read"), None);
    assert_eq!(ledger.state_before(&key, BatchId(3)).err().map(|f| f.kind), Some(FaultKind::NotReplayable));
    let state = ledger.state_before(&key, BatchId(4)).expect("kept");
    assert_eq!(state.get(&SPACE, b"a").expect("read"), Some(value("3", None)));
    let of = |sink| {
        let found = ledger.outputs(sink, None, usize::MAX).expect("read");
        found.iter().map(|o| o.batch.0).collect::<Vec<_>>()
    };
    assert_eq!(of(&fast), [4, 5]);
    assert_eq!(of(&slow), [2, 3, 4, 5]);
    assert_eq!(files(), 2);
    ledger.retain(minute(1000)).expect("retained");
    assert_eq!(ledger.records(&key, None, 9).expect("read").len(), 1);
    assert_eq!(ledger.head(&key).expect("read").expect("kept").plan.id, BatchId(5));
    assert_eq!(of(&slow), [2, 3, 4, 5]);
    assert_eq!(
        kind(ledger.commit(&commit(&key, 3))),
        FaultKind::Internal,
        "of a batch that was dropped nobody knows whether it is the same"
    );
    ledger.commit(&commit(&key, 6)).expect("committed");
    assert_eq!(ledger.check().expect("checked").findings, []);
}

#[test]
fn a_forgotten_scenario_leaves_nothing() {
    let dir = folder();
    let ledger = open(dir.path());
    let (gone, stays) = (live("t/s"), live("t/s2"));
    let identity = ledger.scenario(&gone.scenario).expect("made");
    for key in [&gone, &stays, &run("t/s", "side:x")] {
        let next = Commit {
            state: vec![put("a", "1"), put_until("b", "1", minute(9))],
            outputs: vec![output("o", 1, 3), output("big", 1, 3000)],
            ..commit(key, 1)
        };
        ledger.commit(&next).expect("committed");
    }
    ledger.advance(&sink(&gone, "o"), &drained(1)).expect("moved");
    ledger.begin(&plan(&gone, 2)).expect("begun");
    ledger.forget(&gone.scenario).expect("forgotten");
    assert_eq!(ledger.scenarios().expect("read"), std::slice::from_ref(&stays.scenario));
    assert_eq!(ledger.head(&gone).expect("read"), None);
    assert_eq!(ledger.cursor(&sink(&gone, "o")).expect("read"), None);
    assert_eq!(ledger.sinks().expect("read").len(), 2);
    assert_eq!(all(&*ledger.state(&gone).expect("read"), &SPACE).expect("read"), []);
    assert_ne!(ledger.scenario(&gone.scenario).expect("made"), identity);
    assert_eq!(ledger.begin(&plan(&gone, 1)).expect("begun"), 1);
    ledger.commit(&commit(&gone, 1)).expect("committed");
    let files = std::fs::read_dir(dir.path().join("outputs")).expect("a folder");
    assert_eq!(files.count(), 1);
    let left: usize = Ks::OF_RUNS
        .iter()
        .map(|ks| ledger.core().read(|p| p.scan(*ks, &crate::keys::ALL, usize::MAX)).expect("read").len())
        .sum();
    // One batch of each of the two: batch, time, changes; two cells, two before-images, one expiry, two outputs, one
    // payload of the one that stays.
    assert_eq!(left, 2 * 3 + 2 + 2 + 1 + 2 + 1);
    assert_eq!(ledger.check().expect("checked").findings, []);
}
