//! Notification sinks against a real HTTP server that misbehaves: what reaches it, how often, and what becomes of the rest.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use weir_model::alarm::AlarmAction;
use weir_model::port::{BatchHost, Ledger};
use weir_model::service::{Service, SinkStatus};
use weir_model::{
    AlarmRaise, BatchId, Clock, Fault, FaultKind, FaultPoints, NoFaults, Severity, Time, VirtualClock, Whose,
};
use weir_pipeline::notify::Next;
use weir_pipeline::scenario::Step;
use weir_pipeline::sink::Sink;

use crate::support::engines::{Opened, open};
use crate::support::fakes::{CountingSources, FakeDetector, OneScenario, Seeded, detection, fake, name, quick_folder};
use crate::support::hook::{Does, Hook};

/// Three new alarms in each minute, warning, major and critical; those of the minute before are over.
fn plugin() -> Arc<FakeDetector> {
    let detect = |host: &dyn BatchHost| {
        let minute = host.time().micros() / 60_000_000;
        let mut alarms = Vec::new();
        for (severity, key) in [(Severity::Warning, "w"), (Severity::Major, "m"), (Severity::Critical, "c")] {
            for (at, action) in [(minute, AlarmAction::Raise(severity)), (minute - 1, AlarmAction::Clear)] {
                alarms.push(AlarmRaise {
                    name: name("parity"),
                    key: vec![format!("{key}{at}")],
                    action,
                    message: String::new(),
                    fields: Vec::new(),
                    because: Vec::new(),
                });
            }
        }
        Ok(detection(&[("x", 1)], alarms))
    };
    fake(&["x"], None, Box::new(detect))
}

struct World {
    dir: TempDir,
    clock: VirtualClock,
    runtime: Runtime,
    store: Arc<OneScenario>,
    faults: Arc<dyn FaultPoints>,
}

const GRANTS: &str = "[grants]\nwebhooks = ['http://127.0.0.1']\nenv = ['HOOK_TOKEN']";

impl World {
    /// A scenario with the sink `oncall`, which is told of major and critical alarms that open.
    fn new(address: SocketAddr, more: &str) -> Self {
        Self::patient(address, "500ms", more)
    }
    fn patient(address: SocketAddr, timeout: &str, more: &str) -> Self {
        let grants = GRANTS.replace("127.0.0.1", &address.to_string());
        let manifest = format!(
            "attempts = 100\n[notify.oncall]\ntype = 'webhook'\nurl = 'http://{address}/team/x'\nmin_severity = 'major'\n\
             changes = ['opened']\ntimeout = '{timeout}'\nheaders = {{ Authorization = 'Bearer ${{HOOK_TOKEN}}' }}\n{more}"
        );
        let store = OneScenario::new("", plugin());
        store.add_granted(&manifest, &grants, plugin());
        store.activate(1);
        Self {
            dir: quick_folder(),
            clock: VirtualClock::new(Time(0)),
            runtime: Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
            store,
            faults: Arc::new(NoFaults),
        }
    }
    fn open(&self) -> Opened {
        loop {
            let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
            let (runtime, faults) = (self.runtime.handle().clone(), self.faults.clone());
            match open(self.dir.path(), clock, runtime, faults, Arc::new(CountingSources), self.store.clone())
                .and_then(|o| o.host.reconcile().map(|()| o))
            {
                Ok(opened) => return opened,
                Err(fault) => assert_eq!(fault.kind, FaultKind::Injected, "{fault}"),
            }
        }
    }
    fn minutes(&self, opened: &Opened, n: u64) {
        for _ in 0..n {
            self.clock.advance(Duration::from_secs(60));
            assert!(matches!(opened.host.step(&self.store.id()).unwrap(), Step::Committed(_)));
        }
    }
}

fn tell(opened: &Opened) -> Result<(), Fault> {
    opened.host.drain(&opened.sink("notify-oncall"))
}

fn status(opened: &Opened) -> SinkStatus {
    let scenario = opened.host.status().unwrap().scenarios.remove(0);
    scenario.sinks.into_iter().find(|s| s.sink == name("notify-oncall")).unwrap()
}

/// What becomes of batches `from..=to`: the second and third of their three openings, each once.
fn openings(opened: &Opened, from: u64, to: u64) -> Vec<String> {
    let ledger = opened.ledger.incarnation();
    let scenario = opened.ledger.scenario(&"t/s".parse().unwrap()).unwrap();
    let mut out = Vec::new();
    for batch in from..=to {
        let record = opened.ledger.record(&opened.sink("x").key, BatchId(batch)).unwrap().unwrap();
        for (i, e) in record.events.iter().enumerate() {
            if e.change == weir_model::alarm::AlarmChange::Opened && e.alarm.severity >= Severity::Major {
                out.push(format!("{ledger}/{scenario}/t/s@live#notify-oncall/{batch}/{i}"));
            }
        }
    }
    assert_eq!(out.len() as u64, 2 * (to + 1 - from));
    out.sort();
    out
}

fn dead(opened: &Opened) -> Vec<Value> {
    let sql = "select origin, source, \"offset\", reason, raw from dead_letters order by \"offset\", raw";
    opened.host.query(&name("t"), sql).unwrap().rows.into_iter().map(Value::Object).collect()
}

#[test]
fn a_message_says_what_happened_where_it_was_asked_for() {
    let hook = Hook::new(&[]);
    let world = World::new(hook.address, "");
    let opened = world.open();
    world.minutes(&opened, 1);
    tell(&opened).unwrap();
    let got = hook.got();
    assert_eq!(got.iter().map(|g| g.id.clone()).collect::<Vec<_>>(), openings(&opened, 1, 1));
    assert_eq!(got[0].path, "POST /team/x HTTP/1.1");
    assert_eq!(got[0].token.as_deref(), Some("Bearer s3cret"));
    let alarm = &opened.host.alarms(None, false).unwrap()[0];
    let ruleset = alarm.ruleset.to_string();
    let id = weir_pipeline::output::alarm_id(alarm);
    let expected = json!({
        "id": got[1].id, "tenant": "t", "scenario": "s", "alarm": "parity", "alarm_id": id, "key": {"which": "c1"},
        "change": "opened", "status": "open", "severity": "critical", "severity_before": null, "message": "",
        "fields": {}, "time": "1970-01-01T00:01:00Z", "opened_at": "1970-01-01T00:01:00Z",
        "last_seen": "1970-01-01T00:01:00Z", "cleared_at": null, "count": 1, "batch": 1, "ruleset": ruleset,
    });
    assert_eq!(got[1].body, expected);
    assert_eq!((status(&opened).drained_to, status(&opened).behind), (Some(BatchId(1)), 0));
    tell(&opened).unwrap();
    assert_eq!(hook.got().len(), 2, "and once only");
}

#[test]
fn what_is_down_slow_broken_or_busy_is_tried_again_and_the_rest_of_the_host_goes_on() {
    let hook = Hook::new(&[Does::Status(500), Does::Drops, Does::Hangs, Does::Busy(120), Does::Status(503)]);
    let world = World::new(hook.address, "");
    let opened = world.open();
    world.minutes(&opened, 2);
    for why in ["answers 500", "request failed", "no answer in time", "answers 429", "answers 503"] {
        let fault = tell(&opened).unwrap_err();
        assert_eq!((fault.kind, fault.whose), (FaultKind::Sink, Whose::External), "{fault}");
        assert!(fault.message.contains(why), "{fault}");
        assert!(!fault.message.contains("/team/x"), "a URL may be a secret: {fault}");
        assert_eq!(status(&opened).fault.as_ref(), Some(&fault));
        world.minutes(&opened, 1);
        assert_eq!(opened.host.settle_tables().unwrap(), Vec::<Fault>::new());
    }
    tell(&opened).unwrap();
    let taken = hook.taken();
    assert_eq!(taken.keys().cloned().collect::<Vec<_>>(), openings(&opened, 1, 7));
    // The first message was taken when the server dropped the connection and when it hung, and then for good.
    let first = &openings(&opened, 1, 1)[0];
    assert_eq!(taken[first], 3);
    assert_eq!(taken.values().sum::<usize>(), 14 + 2);
    let got = hook.got();
    let same: Vec<&Value> = got.iter().filter(|g| g.id == *first).map(|g| &g.body).collect();
    assert!(same.len() == 6 && same.iter().all(|b| *b == same[0]), "the same message each time");
    assert_eq!((status(&opened).behind, status(&opened).dead_letters, status(&opened).fault), (0, 0, None));
}

#[test]
fn nobody_there_is_waited_for() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = gone.local_addr().unwrap();
    drop(gone);
    let world = World::new(address, "");
    let opened = world.open();
    world.minutes(&opened, 3);
    let fault = tell(&opened).unwrap_err();
    assert!(fault.message.contains("no connection"), "{fault}");
    assert_eq!((status(&opened).drained_to, status(&opened).behind), (None, 3));
    let hook = Hook::at(address, &[]);
    tell(&opened).unwrap();
    assert_eq!(hook.taken().into_keys().collect::<Vec<_>>(), openings(&opened, 1, 3));
}

#[test]
fn what_is_refused_is_a_dead_letter_at_once_and_the_next_goes_out() {
    let hook = Hook::new(&[Does::Status(400), Does::Status(204), Does::Redirects]);
    let world = World::new(hook.address, "");
    let opened = world.open();
    world.minutes(&opened, 2);
    tell(&opened).unwrap();
    let expected = openings(&opened, 1, 2);
    assert_eq!(hook.taken().into_keys().collect::<Vec<_>>(), [expected[1].clone(), expected[3].clone()]);
    assert_eq!(hook.got().len(), 4, "no second time");
    let dead = dead(&opened);
    assert_eq!(dead.len(), 2);
    for (letter, (batch, id, why)) in
        dead.iter().zip([(1, &expected[0], "it answers 400"), (2, &expected[2], "redirects are not followed")])
    {
        assert_eq!((&letter["origin"], &letter["source"]), (&json!("t/s"), &json!("notify:oncall")));
        assert_eq!(letter["offset"], json!(batch));
        assert!(letter["reason"].as_str().unwrap().contains(why), "{letter}");
        let raw: Value = serde_json::from_str(letter["raw"].as_str().unwrap()).unwrap();
        assert_eq!(raw["id"], json!(id));
    }
    let status = status(&opened);
    assert_eq!((status.behind, status.dead_letters, status.fault), (0, 2, None));
}

#[test]
fn a_receiver_that_asks_for_time_gets_it_and_no_more_than_five_minutes() {
    let hook = Hook::new(&[Does::Busy(120), Does::Busy(100_000)]);
    let world = World::new(hook.address, "");
    let opened = world.open();
    world.minutes(&opened, 1);
    let sink = opened.host.sink(&opened.sink("notify-oncall")).unwrap();
    let Sink::Notify(sink) = &*sink else { panic!("another kind of sink") };
    for seconds in [120, 300] {
        let Next::Send(notifier, message) = sink.next(&opened.host.engines).unwrap() else { panic!("nothing to send") };
        let delivery = world.runtime.block_on(notifier.send(&message));
        let wait = sink.finish(&opened.host.engines, delivery).unwrap();
        assert_eq!(wait, Some(Duration::from_secs(seconds)));
    }
}

#[test]
fn a_backlog_is_bounded_in_rows_and_in_age() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = gone.local_addr().unwrap();
    drop(gone);
    let world = World::new(address, "backlog_rows = 5\nbacklog_age = '10m'");
    let opened = world.open();
    world.minutes(&opened, 4);
    tell(&opened).unwrap_err();
    let expected = openings(&opened, 1, 4);
    let ids = |letters: &[Value]| -> Vec<String> {
        let id = |l: &Value| {
            serde_json::from_str::<Value>(l["raw"].as_str().unwrap()).unwrap()["id"].as_str().unwrap().to_owned()
        };
        letters.iter().map(id).collect()
    };
    let letters = dead(&opened);
    assert_eq!(ids(&letters), expected[..3], "eight wait and five may");
    assert!(letters[0]["reason"].as_str().unwrap().contains("more than 5 notifications"), "{letters:?}");
    assert_eq!((status(&opened).drained_to, status(&opened).dead_letters), (Some(BatchId(1)), 3));
    // Batches 2 and 3 are older than ten minutes then, batch 4 is not.
    world.clock.advance(Duration::from_secs(600) - Duration::from_secs(1));
    tell(&opened).unwrap_err();
    let letters = dead(&opened);
    assert_eq!(ids(&letters), expected[..6]);
    assert!(letters[5]["reason"].as_str().unwrap().contains("longer than 10m"), "{letters:?}");
    // A new host knows what is a dead letter already, and sends the rest.
    drop(opened);
    let opened = world.open();
    let hook = Hook::at(address, &[]);
    tell(&opened).unwrap();
    assert_eq!(hook.taken().into_keys().collect::<Vec<_>>(), expected[6..]);
    assert_eq!(dead(&opened).len(), 6);
}

#[test]
fn with_wait_nothing_is_lost_however_long_it_takes() {
    let hook = Hook::new(&[Does::Status(500)]);
    let world = World::new(hook.address, "backlog_rows = 1\nbacklog_age = '1m'\non_full = 'wait'");
    let opened = world.open();
    world.minutes(&opened, 5);
    tell(&opened).unwrap_err();
    world.clock.advance(Duration::from_secs(7_200));
    tell(&opened).unwrap();
    assert_eq!(hook.taken().into_keys().collect::<Vec<_>>(), openings(&opened, 1, 5));
}

#[test]
fn what_an_operator_takes_away_holds_at_once_and_a_sink_that_is_removed_is_drained() {
    let hook = Hook::new(&[]);
    let world = World::new(hook.address, "");
    let opened = world.open();
    world.minutes(&opened, 1);
    world.store.activate(0);
    // The active ruleset has neither the sink nor the grant.
    world.minutes(&opened, 1);
    tell(&opened).unwrap();
    assert_eq!(hook.got().len(), 0);
    let letters = dead(&opened);
    assert_eq!(letters.len(), 2);
    assert!(letters[0]["reason"].as_str().unwrap().contains("granted no webhooks"), "{letters:?}");

    world.store.activate(1);
    world.minutes(&opened, 1);
    let grants = GRANTS.replace("127.0.0.1", &hook.address.to_string());
    world.store.add_granted("description = 'without a sink'", &grants, plugin());
    world.store.activate(2);
    world.minutes(&opened, 1);
    tell(&opened).unwrap();
    assert_eq!(hook.taken().into_keys().collect::<Vec<_>>(), openings(&opened, 3, 3));
}

#[test]
fn each_once_by_its_identity_wherever_the_host_ends() {
    let mut repeated = 0;
    let mut ended = 0;
    for seed in 1..=40 {
        let hook = Hook::new(&[Does::Status(204), Does::Drops, Does::Status(204), Does::Status(500)]);
        let more = "[notify.log]\ntype = 'file'\nmin_severity = 'major'\nchanges = ['opened']";
        let mut world = World::new(hook.address, more);
        let seeded = Seeded::new(seed, 11, 8);
        world.faults = seeded.clone();
        let mut opened = world.open();
        let log = opened.sink("notify-log");
        for minute in 1..=6 {
            world.clock.advance(Duration::from_secs(60));
            loop {
                let moved = opened.host.step(&world.store.id()).and_then(|step| {
                    assert!(matches!(step, Step::NotDue(_) | Step::Committed(_)), "seed {seed}: {step:?}");
                    tell(&opened)?;
                    opened.host.drain(&log)?;
                    Ok(matches!(step, Step::NotDue(_)))
                });
                match moved {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(fault) if fault.kind == FaultKind::Sink => {}
                    Err(fault) => {
                        assert_eq!(fault.kind, FaultKind::Injected, "seed {seed}, minute {minute}: {fault}");
                        drop(opened);
                        opened = world.open();
                    }
                }
            }
        }
        let expected = openings(&opened, 1, 6);
        let taken = hook.taken();
        assert_eq!(taken.keys().cloned().collect::<Vec<_>>(), expected, "seed {seed}: {:?}", seeded.injected);
        repeated += taken.values().filter(|n| **n > 1).count();
        ended += seeded.injected.lock().unwrap().values().sum::<u64>();
        let file = std::fs::read_to_string(world.dir.path().join("notify/t/s/log.jsonl")).unwrap();
        let lines: Vec<String> = file
            .lines()
            .map(|l| {
                serde_json::from_str::<Value>(l).unwrap()["id"].as_str().unwrap().replace("notify-log", "notify-oncall")
            })
            .collect();
        assert_eq!(lines, expected, "seed {seed}: the file has each once and in order");
    }
    assert!(
        repeated > 40 && ended > 40,
        "{repeated} were sent again and the host ended {ended} times: too little to tell"
    );
}

#[test]
fn a_slow_receiver_holds_up_nobody_on_a_host_of_one_worker() {
    let hook = Hook::new(&[Does::Hangs]);
    let world = World::patient(hook.address, "60s", "");
    let opened = world.open();
    let mut pace = opened.host.pace.clone();
    pace.workers = 1;
    let host = weir_pipeline::Host::new(opened.host.engines.clone(), pace);
    let task = world.runtime.spawn(weir_pipeline::loops::run(host.clone()));
    let (never, nothing) = std::sync::mpsc::channel::<()>();
    let wait = |what: &str, done: &dyn Fn() -> bool| {
        for _ in 0..4_000 {
            if done() {
                return;
            }
            world.clock.advance(Duration::from_millis(100));
            // The loops run on threads of their own, and need some time there for what is due.
            let _ = nothing.recv_timeout(Duration::from_millis(5));
        }
        panic!("waited too long: {what}");
    };
    let head = || opened.ledger.head(&opened.sink("x").key).unwrap().map_or(0, |h| h.plan.id.0);
    let drained = || opened.ledger.cursor(&opened.sink("sums")).unwrap().map_or(0, |c| c.drained_to.0);
    wait("a message is under way", &|| !hook.got().is_empty());
    let (batch, rows) = (head(), drained());
    wait("batches are committed and their rows are in the table", &|| head() > batch + 1 && drained() > rows + 1);
    assert_eq!(hook.got().len(), 1, "all this while the first message hangs");
    // It does not hold up the end of the host either, and the next one sends the message again.
    host.stop();
    world.runtime.block_on(task).unwrap();
    drop((never, host, opened));
    let opened = world.open();
    tell(&opened).unwrap();
    assert_eq!(hook.taken()[&hook.got()[0].id], 2);
}
