//! What the ledger keeps beside batches: streams, and the alarms of live state.

use weir_model::alarm::{AlarmState, AlarmStatus};
use weir_model::batch::alarm_key;
use weir_model::id::Incarnation;
use weir_model::port::Ledger;
use weir_model::stream::{BronzeCursor, Offsets, StreamMeta};
use weir_model::{FaultKind, Severity};

use super::*;

#[test]
fn streams_have_their_meta_cursor_and_journal() {
    let dir = folder();
    let ledger = open(dir.path());
    let id: weir_model::StreamId = "t/in".parse().expect("a stream");
    let other: weir_model::StreamId = "t/in2".parse().expect("a stream");
    assert_eq!(ledger.stream(&id).expect("read"), None);
    assert_eq!(ledger.bronze(&id).expect("read"), BronzeCursor::default());
    let meta = StreamMeta {
        incarnation: Incarnation("x".to_owned()),
        generation: 2,
        definition: Digest::of(b"definition"),
        anchor: minute(1),
        start: Offsets::of(3, 7),
    };
    let cursor = BronzeCursor { flushed: Offsets::of(3, 9), max_time: [(3, minute(2))].into(), table_id: None };
    ledger.put_stream(&id, &meta).expect("kept");
    ledger.put_bronze(&id, &cursor).expect("kept");
    let journal = ledger.journal(&id);
    for (number, bytes) in [(300, "c"), (2, "b"), (1, "a"), (2, "B")] {
        journal.put(number, bytes.as_bytes()).expect("kept");
    }
    journal.remove(1).expect("removed");
    journal.remove(77).expect("nothing to remove");
    ledger.journal(&other).put(1, b"other").expect("kept");
    drop(ledger);
    assert_eq!(kind(journal.put(4, b"d")), FaultKind::Ledger);
    let ledger = open(dir.path());
    assert_eq!(ledger.stream(&id).expect("read"), Some(meta));
    assert_eq!(ledger.bronze(&id).expect("read"), cursor);
    assert_eq!(ledger.journal(&id).entries().expect("read"), [(2, b"B".to_vec()), (300, b"c".to_vec())]);
    assert_eq!(ledger.stream(&other).expect("read"), None);
}

#[test]
fn alarms_are_those_of_live_state() {
    let dir = folder();
    let ledger = open(dir.path());
    let key = live("t/s");
    let alarm = |name: &str, id: u32| AlarmState {
        scenario: key.scenario.clone(),
        name: super::name(name),
        key_names: vec!["id".to_owned()],
        key: vec![id.to_string()],
        status: AlarmStatus::Cleared,
        severity: Severity::Minor,
        message: String::new(),
        fields: Vec::new(),
        opened_at: minute(1),
        last_seen: minute(1),
        cleared_at: Some(minute(1)),
        count: 1,
        quiet: 0,
        ruleset: Digest::of(b"ruleset"),
        batch: BatchId(1),
        peak: Severity::Major,
    };
    // More than a page of the scan inside.
    let alarms: Vec<_> = (0..1500).map(|id| alarm("high", id)).collect();
    let state = alarms
        .iter()
        .map(|a| StateWrite {
            space: Space::Alarms,
            key: alarm_key(a.name.as_str(), &a.key),
            after: Some(StateValue { value: serde_json::to_vec(a).expect("json"), expires: None }),
        })
        .collect();
    ledger.commit(&Commit { state, ..commit(&key, 1) }).expect("committed");
    let mut found = ledger.alarms(&key.scenario).expect("read");
    found.sort_by_key(|a| a.key[0].parse::<u32>().expect("a number"));
    assert_eq!(found, alarms);
    let nobody = "t/other".parse().expect("a scenario");
    assert_eq!(ledger.alarms(&nobody).expect("read"), []);
}

#[test]
fn a_pause_survives_and_ends_with_resume_or_forget() {
    let dir = folder();
    let (one, other) = (live("t/s").scenario, live("t/other").scenario);
    let ledger = open(dir.path());
    assert_eq!(ledger.paused(&one).expect("read"), None);
    for id in [&one, &other] {
        ledger.put_paused(id, Some(minute(3))).expect("kept");
    }
    drop(ledger);
    let ledger = open(dir.path());
    assert_eq!(ledger.paused(&one).expect("read"), Some(minute(3)));
    ledger.put_paused(&one, None).expect("taken away");
    assert_eq!(ledger.paused(&one).expect("read"), None);
    assert_eq!(ledger.paused(&other).expect("read"), Some(minute(3)));
    ledger.forget(&other).expect("forgotten");
    assert_eq!(ledger.paused(&other).expect("read"), None);
}
