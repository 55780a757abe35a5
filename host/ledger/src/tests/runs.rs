//! Runs over a past period: what they begin with, and commits that come together.

use weir_model::FaultKind;
use weir_model::port::Ledger;

use super::*;

fn backfilled(key: &RunKey, n: u64, base: Option<u64>) -> Commit {
    let mut next = commit(key, n);
    let range = weir_model::batch::Between { from: minute(1), to: minute(9) };
    let every = weir_model::Span::secs(60);
    next.plan.backfill = Some(weir_model::batch::Backfill { range, every, base: base.map(BatchId) });
    next
}

#[test]
fn a_backfill_begins_with_the_state_that_its_plan_names() {
    let dir = folder();
    let ledger = open(dir.path());
    let main = live("t/s");
    for n in 1..=3 {
        let text = n.to_string();
        let state = vec![put("a", &text), put(&format!("only {n}"), &text)];
        ledger.commit(&Commit { state, ..commit(&main, n) }).expect("committed");
    }
    let keys = |key: &RunKey| {
        let state = ledger.state(key).expect("read");
        let all = all(&*state, &SPACE).expect("read");
        assert_eq!(state.size(&SPACE).expect("read").0, all.len() as u64);
        all.into_iter().map(|(k, v)| format!("{}={}", text(k), text(v.value))).collect::<Vec<_>>()
    };
    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).expect("text")
    }
    for (name, base, expected) in [
        ("backfill:none", None, vec!["own=x"]),
        ("backfill:first", Some(1), vec!["own=x"]),
        ("backfill:past", Some(3), vec!["a=2", "only 1=1", "only 2=2", "own=x"]),
        ("backfill:head", Some(4), vec!["a=3", "only 1=1", "only 2=2", "only 3=3", "own=x"]),
    ] {
        let key = run("t/s", name);
        let first = Commit { state: vec![put("own", "x")], ..backfilled(&key, 1, base) };
        ledger.commit(&first).expect("committed");
        assert_eq!(keys(&key), expected, "{name}");
    }
    // What live does after that does not show.
    ledger.commit(&Commit { state: vec![put("a", "4"), delete("only 1")], ..commit(&main, 4) }).expect("committed");
    assert_eq!(keys(&run("t/s", "backfill:head"))[0], "a=3");
    assert_eq!(keys(&run("t/s", "backfill:past")).len(), 4);
    let beyond = backfilled(&run("t/s", "backfill:beyond"), 1, Some(9));
    assert_eq!(kind(ledger.commit(&beyond)), FaultKind::NotReplayable);
    ledger.retain(minute(4)).expect("retained");
    let dropped = backfilled(&run("t/s", "backfill:dropped"), 1, Some(2));
    assert_eq!(kind(ledger.commit(&dropped)), FaultKind::NotReplayable);
    assert_eq!(ledger.check().expect("checked").findings, []);
}

#[test]
fn batches_that_are_committed_together_are_as_if_they_came_alone_and_share_syncs() {
    let (one, many) = (folder(), folder());
    let (one, many) = (open(one.path()), open(many.path()));
    let key = run("t/s", "backfill:b");
    let commits: Vec<Commit> = (1..=50)
        .map(|n| Commit {
            state: vec![put("count", &n.to_string()), put_until(&format!("k{n}"), "x", minute(n + 3))],
            outputs: vec![output("o", n, 3)],
            ..backfilled(&key, n, None)
        })
        .collect();
    for commit in &commits {
        one.commit(commit).expect("committed");
    }
    let before = many.stats().syncs;
    many.commit_all(&commits[..30]).expect("committed");
    many.commit_all(&commits[20..]).expect("what is there already is found");
    assert!(many.stats().syncs - before < 30, "{:?}", many.stats());
    let records = |ledger: &FjallLedger| ledger.records(&key, None, 99).expect("read");
    assert_eq!(records(&many), records(&one));
    let of = |ledger: &FjallLedger| all(&*ledger.state(&key).expect("read"), &SPACE).expect("read");
    assert_eq!(of(&many), of(&one));
    assert_eq!(many.check().expect("checked").findings, []);
    // One that does not fit ends it there: what comes before it has happened.
    let next = [backfilled(&key, 51, None), backfilled(&key, 53, None), backfilled(&key, 54, None)];
    assert_eq!(kind(many.commit_all(&next)), FaultKind::Internal);
    assert_eq!(many.head(&key).expect("read").map(|h| h.plan.id), Some(BatchId(51)));
}
