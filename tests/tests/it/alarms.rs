//! The table of current alarms: behind the ledger by as much as its sink is, and empty of what is forgotten.

use std::sync::Arc;
use std::time::Duration;

use weir_model::alarm::AlarmAction;
use weir_model::batch::ALARMS;
use weir_model::port::{BatchHost, Ledger};
use weir_model::service::Service;
use weir_model::{AlarmRaise, BatchId, Clock, Fault, NoFaults, Severity, Time, VirtualClock};
use weir_pipeline::scenario::Step;

use crate::support::engines::{Opened, open};
use crate::support::fakes::{CountingSources, FakeDetector, OneScenario, detection, fake, name, quick_folder};

/// Raises `a` in each minute, and `b` in even ones; says that `a` is over in minute 4.
fn plugin() -> Arc<FakeDetector> {
    let detect = |host: &dyn BatchHost| {
        let minute = host.time().micros() / 60_000_000;
        let alarm = |key: &str, action| AlarmRaise {
            name: name("parity"),
            key: vec![key.into()],
            action,
            message: format!("minute {minute}"),
            fields: vec![("minute".into(), weir_model::Scalar::Int64(minute))],
            because: Vec::new(),
        };
        let a = if minute == 4 { AlarmAction::Clear } else { AlarmAction::Raise(Severity::Critical) };
        let mut alarms = vec![alarm("a", a)];
        if minute % 2 == 0 {
            alarms.push(alarm("b", AlarmAction::Raise(Severity::Warning)));
        }
        Ok(detection(&[("x", 1)], alarms))
    };
    fake(&["x"], None, Box::new(detect))
}

fn rows(opened: &Opened, sql: &str) -> Vec<serde_json::Value> {
    opened.host.query(&name("t"), sql).unwrap().rows.into_iter().map(serde_json::Value::Object).collect()
}

#[test]
fn the_table_follows_the_ledger_at_its_sinks_pace_and_forgets_with_it() {
    let dir = quick_folder();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let clock = VirtualClock::new(Time(0));
    let store = OneScenario::new("", plugin());
    let start = || {
        let clock: Arc<dyn Clock> = Arc::new(clock.clone());
        let (handle, sources) = (runtime.handle().clone(), Arc::new(CountingSources));
        let opened = open(dir.path(), clock, handle, Arc::new(NoFaults), sources, store.clone()).unwrap();
        opened.host.reconcile().unwrap();
        opened
    };
    let opened = start();
    let minute = |opened: &Opened| {
        clock.advance(Duration::from_secs(60));
        assert!(matches!(opened.host.step(&store.id()).unwrap(), Step::Committed(_)));
    };
    minute(&opened);
    minute(&opened);
    // Nothing is drained yet: the ledger tells, the table is not there.
    let now = "select alarm, key, status, severity, count from current_alarms order by key";
    assert_eq!(
        rows(&opened, now),
        [
            serde_json::json!({"alarm": "parity", "key": r#"{"which":"a"}"#, "status": "open", "severity": "critical", "count": 2}),
            serde_json::json!({"alarm": "parity", "key": r#"{"which":"b"}"#, "status": "open", "severity": "warning", "count": 1}),
        ]
    );
    let sink = |opened: &Opened| {
        let status = opened.host.status().unwrap().scenarios.remove(0);
        status.sinks.into_iter().find(|s| s.sink == name(ALARMS)).unwrap()
    };
    assert_eq!((sink(&opened).drained_to, sink(&opened).behind), (None, 2));
    // The host ends before the sink's first drain, and the next one finds it.
    drop(opened);
    let opened = start();
    assert_eq!(opened.host.settle().unwrap(), Vec::<Fault>::new());
    assert_eq!((sink(&opened).drained_to, sink(&opened).behind), (Some(BatchId(2)), 0));
    let table = "select alarm_id, key, status, severity, message, fields, opened_at, last_seen, cleared_at, count, \
                 _batch_id, _batch_time, _scenario from alarms order by key";
    let found = rows(&opened, table);
    let id = rows(&opened, "select distinct alarm_id from alarm_events where key like '%\"a\"%'");
    assert_eq!(
        found[0],
        serde_json::json!({
            "alarm_id": id[0]["alarm_id"], "key": r#"{"which":"a"}"#, "status": "open", "severity": "critical",
            "message": "minute 2", "fields": r#"{"minute":2}"#, "opened_at": "1970-01-01T00:01:00Z",
            "last_seen": "1970-01-01T00:02:00Z", "cleared_at": null, "count": 2, "_batch_id": 2,
            "_batch_time": "1970-01-01T00:02:00Z", "_scenario": "t/s",
        })
    );
    assert_eq!(found.len(), 2);

    minute(&opened);
    minute(&opened);
    assert_eq!(rows(&opened, "select count from alarms order by key"), found_counts(&[2, 1]), "not drained yet");
    opened.host.drain(&opened.sink(ALARMS)).unwrap();
    let found = rows(&opened, "select key, status, cleared_at, count, _batch_id from alarms order by key");
    assert_eq!(
        found,
        [
            serde_json::json!({"key": r#"{"which":"a"}"#, "status": "cleared", "cleared_at": "1970-01-01T00:04:00Z", "count": 3, "_batch_id": 3}),
            serde_json::json!({"key": r#"{"which":"b"}"#, "status": "open", "cleared_at": null, "count": 2, "_batch_id": 4}),
        ]
    );
    // A second drain finds nothing to do, and one after a restart neither.
    opened.host.drain(&opened.sink(ALARMS)).unwrap();
    drop(opened);
    let opened = start();
    opened.host.settle().unwrap();
    assert_eq!(rows(&opened, "select count from alarms order by key"), found_counts(&[3, 2]));

    store.remove();
    opened.host.forget(&store.id()).unwrap();
    assert_eq!(rows(&opened, "select * from alarms"), Vec::<serde_json::Value>::new());
    assert_eq!(opened.ledger.alarms(&store.id()).unwrap(), Vec::new());
    assert_eq!(rows(&opened, "select count(*) as n from alarm_events"), [serde_json::json!({"n": 3})], "history stays");
}

fn found_counts(counts: &[i64]) -> Vec<serde_json::Value> {
    counts.iter().map(|n| serde_json::json!({"count": n})).collect()
}
