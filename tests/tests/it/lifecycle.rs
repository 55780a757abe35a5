//! The life of alarms against a small model: a thousand random histories of raises and clears, with swaps of the ruleset,
//! batches that fail or come to no verdict, sources that cannot be read, and downtime; a part of them on a host with a real
//! ledger that ends at any step and is started again.
//!
//! The model keeps spells instead of states: when an alarm was raised, in one list for each time it was open. All that is
//! said of an alarm is counted from that list.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir_model::alarm::{AlarmAction, AlarmChange, AlarmEvent, AlarmRaise, AlarmState, AlarmStatus, Severity};
use weir_model::batch::{ALARM_EVENTS, ALARMS, BatchRecord, Plan, Space, StateValue, StreamPin};
use weir_model::port::{
    AdHoc, AlarmType, BatchHost, BatchInputs, Journal, Ledger, OpenSource, PollLimit, Polled, RuleStore, Source,
    Sources, StateReader, Verdict,
};
use weir_model::service::Service;
use weir_model::stream::StreamMeta;
use weir_model::{
    BatchId, Clock, Fault, FaultKind, FaultPoints, NoFaults, Offsets, Outcome, RunKey, StreamDef, StreamId, Time,
    VirtualClock,
};
use weir_pipeline::batch;
use weir_pipeline::scenario::Step;

use crate::support::engines::{Opened, open};
use crate::support::fakes::{AsIs, FakeDetector, OneScenario, Seeded, detection, fake, name, quick_folder};

const MINUTE: i64 = 60_000_000;
const DAY: i64 = 24 * 60 * MINUTE;
const TYPES: [&str; 3] = ["lease", "link", "fan"];
const SEVERITIES: [Severity; 3] = [Severity::Warning, Severity::Major, Severity::Critical];
/// What each ruleset declares, and after how many quiet batches it clears.
const RULESETS: [&[(&str, Option<u32>)]; 3] = [
    &[("lease", Some(2)), ("link", None)],
    &[("lease", Some(1))],
    &[("lease", None), ("link", Some(3)), ("fan", Some(1))],
];

/// One batch of a history.
#[derive(Debug, Clone)]
struct Act {
    time: Time,
    ruleset: usize,
    judged: bool,
    fails: bool,
    unread: bool,
    says: Vec<Word>,
}

#[derive(Debug, Clone)]
struct Word {
    ty: &'static str,
    key: String,
    /// None: it is over.
    severity: Option<Severity>,
    message: String,
}

struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

fn history(seed: u64) -> Vec<Act> {
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (mut time, mut ruleset) = (0, 0);
    (0..12 + draw.below(20))
        .map(|i| {
            time += match draw.below(25) {
                0 => DAY - 3 * MINUTE,
                1 => DAY + MINUTE,
                2 => 5 * MINUTE,
                _ => MINUTE,
            };
            if draw.one_in(7) {
                ruleset = usize::try_from(draw.below(3)).unwrap();
            }
            let says = (0..draw.below(4))
                .map(|n| Word {
                    ty: draw.pick(RULESETS[ruleset]).0,
                    key: ["a", "b", "c"][usize::try_from(draw.below(3)).unwrap()].to_owned(),
                    severity: (!draw.one_in(4)).then(|| *draw.pick(&SEVERITIES)),
                    message: if draw.one_in(3) { String::new() } else { format!("batch {i}, word {n}") },
                })
                .collect();
            let (judged, fails, unread) = (!draw.one_in(8), draw.one_in(10), draw.one_in(6));
            Act { time: Time(time), ruleset, judged, fails, unread, says }
        })
        .collect()
}

// The model.

/// One time that an alarm was open.
#[derive(Default, Clone)]
struct Spell {
    /// Each batch that raised it.
    raised: Vec<(Time, Severity)>,
    /// Quiet batches since the last of them.
    quiet: u32,
    over: Option<Time>,
    unsure: bool,
    message: String,
}

#[derive(Default)]
struct Model {
    /// Spells of an alarm, oldest first, as long as it is remembered.
    spells: BTreeMap<(&'static str, String), Vec<Spell>>,
}

/// Type, key, change, severity before and after.
type Told = (&'static str, String, AlarmChange, Option<Severity>, Severity);

impl Model {
    fn batch(&mut self, act: &Act) -> Vec<Told> {
        let mut told = Vec::new();
        for ty in TYPES {
            for key in ["a", "b", "c"] {
                let spells = self.spells.entry((ty, key.to_owned())).or_default();
                let word = act.says.iter().rev().find(|w| w.ty == ty && w.key == key).filter(|_| !act.fails);
                let before = spells.last().and_then(|s| s.raised.last()).map(|(_, severity)| *severity);
                let change = match word {
                    Some(word) => named(spells, word, act.time),
                    None => unnamed(spells, ty, act),
                };
                if let Some(change) = change {
                    let after = spells.last().unwrap().raised.last().unwrap().1;
                    told.push((ty, key.to_owned(), change, before, after));
                }
            }
        }
        told.sort_by_key(|t| (t.0, t.1.clone()));
        told
    }

    /// Status, severity, opened, last seen, cleared, count, peak and message of all that is remembered.
    fn now(&self) -> BTreeMap<(String, String), String> {
        let known = self.spells.iter().filter(|(_, spells)| !spells.is_empty());
        known
            .map(|((ty, key), spells)| {
                let spell = spells.last().unwrap();
                let status = match (spell.over, spell.unsure) {
                    (Some(_), _) => AlarmStatus::Cleared,
                    (None, true) => AlarmStatus::Stale,
                    (None, false) => AlarmStatus::Open,
                };
                let (first, last) = (spell.raised.first().unwrap(), spell.raised.last().unwrap());
                let peak = spell.raised.iter().map(|(_, s)| *s).max().unwrap();
                let count = spell.raised.len() as u64;
                let text = words(status, last.1, first.0, last.0, spell.over, count, peak, &spell.message);
                (((*ty).to_owned(), key.clone()), text)
            })
            .collect()
    }
}

/// The batch raises it or says that it is over.
fn named(spells: &mut Vec<Spell>, word: &Word, time: Time) -> Option<AlarmChange> {
    let open = spells.last_mut().filter(|s| s.over.is_none());
    match (word.severity, open) {
        (None, None) => None,
        (None, Some(spell)) => {
            spell.over = Some(time);
            if !word.message.is_empty() {
                spell.message.clone_from(&word.message);
            }
            Some(AlarmChange::Cleared)
        }
        (Some(severity), None) => {
            let again = !spells.is_empty();
            let message = word.message.clone();
            spells.push(Spell { raised: vec![(time, severity)], message, ..Spell::default() });
            Some(if again { AlarmChange::Reopened } else { AlarmChange::Opened })
        }
        (Some(severity), Some(spell)) => {
            let was = spell.raised.last().unwrap().1;
            let unsure = std::mem::take(&mut spell.unsure);
            spell.raised.push((time, severity));
            spell.quiet = 0;
            spell.message.clone_from(&word.message);
            match severity.cmp(&was) {
                std::cmp::Ordering::Greater => Some(AlarmChange::Escalated),
                std::cmp::Ordering::Less => Some(AlarmChange::Lowered),
                std::cmp::Ordering::Equal => unsure.then_some(AlarmChange::Fresh),
            }
        }
    }
}

/// The batch does not speak of it.
fn unnamed(spells: &mut Vec<Spell>, ty: &str, act: &Act) -> Option<AlarmChange> {
    let spell = spells.last_mut()?;
    if let Some(over) = spell.over {
        if act.time.micros() - over.micros() > DAY {
            spells.clear();
        }
        return None;
    }
    let setting = RULESETS[act.ruleset].iter().find(|(declared, _)| *declared == ty);
    let can_tell = act.judged && !act.fails && !act.unread && setting.is_some();
    if setting.is_none() && act.time.micros() - spell.raised.last().unwrap().0.micros() > DAY {
        spell.over = Some(act.time);
        return Some(AlarmChange::Cleared);
    }
    let was_unsure = std::mem::replace(&mut spell.unsure, !can_tell);
    if !can_tell {
        return (!was_unsure).then_some(AlarmChange::Stale);
    }
    spell.quiet += 1;
    if setting.and_then(|(_, after)| *after).is_some_and(|after| spell.quiet >= after) {
        spell.over = Some(act.time);
        return Some(AlarmChange::Cleared);
    }
    was_unsure.then_some(AlarmChange::Fresh)
}

#[allow(clippy::too_many_arguments)]
fn words(
    status: AlarmStatus,
    severity: Severity,
    opened: Time,
    seen: Time,
    cleared: Option<Time>,
    count: u64,
    peak: Severity,
    message: &str,
) -> String {
    format!("{status:?} {severity} opened {opened} seen {seen} cleared {cleared:?} {count}x peak {peak} '{message}'")
}

// What is compared with it.

fn states(alarms: &[AlarmState]) -> BTreeMap<(String, String), String> {
    alarms
        .iter()
        .map(|a| {
            let text = words(
                a.status,
                a.severity,
                a.opened_at,
                a.last_seen,
                a.cleared_at,
                a.count,
                a.peak.max(a.severity),
                &a.message,
            );
            ((a.name.to_string(), a.key[0].clone()), text)
        })
        .collect()
}

fn told(events: &[AlarmEvent]) -> Vec<Told> {
    let of = |e: &AlarmEvent| {
        let ty = TYPES.into_iter().find(|t| *t == e.alarm.name.as_str()).unwrap();
        (ty, e.alarm.key[0].clone(), e.change, e.before, e.alarm.severity)
    };
    let mut all: Vec<Told> = events.iter().map(of).collect();
    all.sort_by_key(|t| (t.0, t.1.clone()));
    all
}

/// A plugin that says at each T what the history has for it, with the types of one ruleset.
fn scripted(acts: &Arc<Vec<Act>>, ruleset: usize) -> Arc<FakeDetector> {
    let acts = acts.clone();
    let detect = move |host: &dyn BatchHost| {
        let act = acts.iter().find(|a| a.time == host.time()).unwrap();
        if act.fails {
            return Err(Fault::tenant(FaultKind::Trap, "unreachable"));
        }
        let raise = |w: &Word| AlarmRaise {
            name: name(w.ty),
            key: vec![w.key.clone()],
            action: w.severity.map_or(AlarmAction::Clear, AlarmAction::Raise),
            message: w.message.clone(),
            fields: Vec::new(),
            because: Vec::new(),
        };
        let mut done = detection(&[("x", 1)], act.says.iter().map(raise).collect());
        done.outputs.clear();
        if !act.judged {
            done.verdict = Verdict::NoVerdict;
        }
        Ok(done)
    };
    let mut detector = fake(&["x"], None, Box::new(detect));
    Arc::get_mut(&mut detector).unwrap().description.alarms =
        RULESETS[ruleset].iter().map(|(ty, _)| AlarmType { name: name(ty), key: vec!["which".into()] }).collect();
    detector
}

fn manifest(ruleset: usize) -> String {
    let settings = RULESETS[ruleset]
        .iter()
        .filter_map(|(ty, after)| after.map(|n| format!("[alarms.{ty}]\nclear_after = {n}\n")))
        .collect::<String>();
    format!("on_failure = \"skip\"\nattempts = 100\n{settings}")
}

fn store(acts: &Arc<Vec<Act>>) -> Arc<OneScenario> {
    let store = OneScenario::new(&manifest(0), scripted(acts, 0));
    for ruleset in 1..RULESETS.len() {
        store.add(&manifest(ruleset), scripted(acts, ruleset));
    }
    store
}

/// Alarms as the ledger would keep them.
#[derive(Clone, Default)]
struct Kept(BTreeMap<Vec<u8>, StateValue>);

impl StateReader for Kept {
    fn get(&self, _: &Space, key: &[u8]) -> Result<Option<StateValue>, Fault> {
        Ok(self.0.get(key).cloned())
    }
    fn scan(&self, _: &Space, _: &[u8], _: Option<&[u8]>, _: usize) -> Result<Vec<(Vec<u8>, StateValue)>, Fault> {
        Ok(self.0.iter().map(|(k, v)| (k.clone(), v.clone())).collect())
    }
    fn size(&self, _: &Space) -> Result<(u64, u64), Fault> {
        Ok((0, 0))
    }
}

/// The batches of a history without a host: what would be committed.
fn on_its_own(seed: u64) -> u64 {
    let acts = Arc::new(history(seed));
    let store = store(&acts);
    let faults: Arc<dyn FaultPoints> = Arc::new(NoFaults);
    let (mut model, mut kept, mut changes) = (Model::default(), Kept::default(), 0);
    for (i, act) in acts.iter().enumerate() {
        store.activate(act.ruleset);
        let prepared = store.scenario(&store.id()).unwrap().active.unwrap();
        let pin = StreamPin {
            generation: 1,
            from: Offsets::default(),
            upto: Offsets::default(),
            floor: Time::EPOCH,
            watermark: None,
            read: !act.unread,
            only: None,
        };
        let plan = Plan {
            key: RunKey::live(store.id()),
            id: BatchId(i as u64 + 1),
            time: act.time,
            ruleset: prepared.ruleset.digest,
            attempt: 1,
            streams: BTreeMap::from([(name("events"), pin)]),
            tables: BTreeMap::new(),
            skipped: None,
            skipped_total: 0,
            state_schema: None,
            backfill: None,
        };
        let inputs = BatchInputs { time: act.time, streams: BTreeMap::new(), tables: BTreeMap::new() };
        let mut current = batch::current_alarms(&kept).unwrap();
        let commit = match batch::execute(plan.clone(), &prepared, inputs, Box::new(kept.clone()), &current, &faults) {
            Ok(done) => done.commit,
            Err(failure) => batch::failed(plan, &prepared, failure.fault, &current).unwrap(),
        };
        assert_eq!(told(&commit.events), model.batch(act), "seed {seed}, batch {i}: {act:?}");
        batch::after(&mut current, &commit).unwrap();
        for write in commit.state {
            assert_eq!(write.space, Space::Alarms);
            match write.after {
                Some(value) => kept.0.insert(write.key, value),
                None => kept.0.remove(&write.key),
            };
        }
        assert_eq!(current, batch::current_alarms(&kept).unwrap(), "what a host holds is what a restart reads");
        let alarms: Vec<AlarmState> = current.into_values().collect();
        assert_eq!(states(&alarms), model.now(), "seed {seed}, after batch {i}: {act:?}");
        changes += commit.events.len() as u64;
    }
    changes
}

/// A source that has nothing, or cannot be read.
struct Quiet(Arc<AtomicBool>);

impl Source for Quiet {
    fn poll(&mut self, _: Time, _: PollLimit, _: Duration) -> Result<Option<Polled>, Fault> {
        if self.0.load(Ordering::Acquire) {
            return Err(Fault::external(FaultKind::Source, "it cannot be read"));
        }
        Ok(None)
    }
    fn at_end(&self) -> bool {
        true
    }
    fn release(&mut self, _: &Offsets) -> Result<(), Fault> {
        Ok(())
    }
}

pub(super) struct QuietSources(pub(super) Arc<AtomicBool>);

impl Sources for QuietSources {
    fn open(
        &self,
        _: &StreamId,
        _: &StreamDef,
        _: &StreamMeta,
        _: &Offsets,
        _: Arc<dyn Journal>,
    ) -> Result<OpenSource, Fault> {
        Ok((Box::new(Quiet(self.0.clone())), Box::new(AsIs)))
    }
}

/// The same on a host that ends at drawn points and is started again.
fn on_a_host(seed: u64, runtime: &tokio::runtime::Handle) -> u64 {
    let acts = Arc::new(history(seed));
    let store = store(&acts);
    let dir = quick_folder();
    let clock = VirtualClock::new(Time::EPOCH);
    let faults = Seeded::new(seed, 17, 12);
    let unread = Arc::new(AtomicBool::new(false));
    let start = || -> Opened {
        loop {
            let clock: Arc<dyn Clock> = Arc::new(clock.clone());
            let sources = Arc::new(QuietSources(unread.clone()));
            let opened = open(dir.path(), clock, runtime.clone(), faults.clone(), sources, store.clone());
            match opened.and_then(|o| o.host.reconcile().map(|()| o)) {
                Ok(opened) => return opened,
                Err(fault) => assert_eq!(fault.kind, FaultKind::Injected, "{fault}"),
            }
        }
    };
    let mut opened = start();
    let mut model = Model::default();
    let key = RunKey::live(store.id());
    for (i, act) in acts.iter().enumerate() {
        clock.advance(act.time.since(clock.now()));
        store.activate(act.ruleset);
        unread.store(act.unread, Ordering::Release);
        let record: BatchRecord = loop {
            match opened.host.step(&store.id()) {
                Ok(Step::Committed(record)) => break *record,
                // It ended after the commit and before it knew.
                Ok(Step::NotDue(_)) => break opened.ledger.record_at(&key, act.time).unwrap().unwrap(),
                Ok(other) => panic!("seed {seed}, batch {i}: {other:?}"),
                Err(fault) => {
                    assert_eq!(fault.kind, FaultKind::Injected, "seed {seed}: {fault}");
                    drop(opened);
                    opened = start();
                }
            }
        };
        assert_eq!(matches!(record.outcome, Outcome::Failed(_)), act.fails, "seed {seed}, batch {i}");
        assert_eq!(told(&record.events), model.batch(act), "seed {seed}, batch {i}: {act:?}");
        let alarms = opened.host.alarms(None, true).unwrap();
        assert_eq!(states(&alarms), model.now(), "seed {seed}, after batch {i}: {act:?}");
        while i % 5 == 4 || i + 1 == acts.len() {
            match opened.host.settle() {
                Ok(faults) => {
                    assert_eq!(faults, Vec::new(), "seed {seed}");
                    assert_eq!(in_table(&opened), model.now(), "seed {seed}, table after batch {i}");
                    break;
                }
                Err(fault) => {
                    assert_eq!(fault.kind, FaultKind::Injected, "seed {seed}: {fault}");
                    drop(opened);
                    opened = start();
                }
            }
        }
    }
    folded(&opened, &acts, seed);
    faults.injected.lock().unwrap().values().sum()
}

/// The table of current alarms.
fn in_table(opened: &Opened) -> BTreeMap<(String, String), String> {
    if opened.ledger.cursor(&opened.sink(ALARMS)).unwrap().is_none() {
        return BTreeMap::new();
    }
    let sql = "select alarm, key, status, severity, opened_at, last_seen, cleared_at, count, message from alarms";
    let rows = opened.lake.query(&name("t"), sql, Vec::new()).unwrap();
    let of = |row: &serde_json::Map<String, serde_json::Value>| {
        let text = |column: &str| row[column].as_str().unwrap().to_owned();
        let time = |column: &str| row[column].as_str().map(|t| t.parse::<Time>().unwrap());
        let key: serde_json::Value = serde_json::from_str(&text("key")).unwrap();
        let key = (text("alarm"), key["which"].as_str().unwrap().to_owned());
        let current = opened.host.alarms(None, true).unwrap();
        let state = current.iter().find(|a| (a.name.to_string(), a.key[0].clone()) == key).unwrap();
        let status = [AlarmStatus::Open, AlarmStatus::Stale, AlarmStatus::Cleared];
        let severity = SEVERITIES.into_iter().find(|s| s.to_string() == text("severity")).unwrap();
        let text = words(
            status.into_iter().find(|s| s.to_string() == text("status")).unwrap(),
            severity,
            time("opened_at").unwrap(),
            time("last_seen").unwrap(),
            time("cleared_at"),
            row["count"].as_u64().unwrap(),
            // The table has no peak.
            state.peak.max(state.severity),
            &text("message"),
        );
        (key, text)
    };
    weir_pipeline::output::objects(&rows).unwrap().iter().map(of).collect()
}

/// A reader of `alarm_events` alone knows which alarms are open and how bad they are.
fn folded(opened: &Opened, acts: &[Act], seed: u64) {
    let last = acts.last().unwrap().time.micros();
    let mut expected = BTreeMap::new();
    for a in opened.host.alarms(None, true).unwrap() {
        let status = format!("{:?}", a.status).to_lowercase();
        expected.insert((a.name.to_string(), a.key[0].clone()), (status, a.severity.to_string()));
    }
    let mut found = BTreeMap::new();
    if opened.ledger.outputs(&opened.sink(ALARM_EVENTS), None, 1).unwrap().is_empty() {
        return assert!(expected.is_empty());
    }
    let sql = "select alarm, key, change, severity, time from alarm_events order by _batch_id";
    let rows = opened.lake.query(&name("t"), sql, Vec::new()).unwrap();
    for row in weir_pipeline::output::objects(&rows).unwrap() {
        let text = |column: &str| row[column].as_str().unwrap().to_owned();
        let key: serde_json::Value = serde_json::from_str(&text("key")).unwrap();
        let status = match text("change").as_str() {
            "stale" => "stale",
            "cleared" => "cleared",
            _ => "open",
        };
        let at: Time = text("time").parse().unwrap();
        let forgotten = status == "cleared" && last - at.micros() > DAY;
        let key = (text("alarm"), key["which"].as_str().unwrap().to_owned());
        if forgotten {
            found.remove(&key);
        } else {
            found.insert(key, (status.to_owned(), text("severity")));
        }
    }
    // One that was cleared a day ago may still be there, when no batch came since that could forget it.
    expected.retain(|key, (status, _)| status != "cleared" || found.contains_key(key));
    assert_eq!(found, expected, "seed {seed}");
}

#[test]
fn a_thousand_random_histories_agree_with_the_model() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let changes: u64 = (1..=1000).map(on_its_own).sum();
    assert!(changes > 10_000, "{changes} changes: the histories say too little");
    let ends: u64 = (1..=1000).step_by(20).map(|seed| on_a_host(seed, runtime.handle())).sum();
    assert!(ends > 50, "the host ended {ends} times only");
    println!("seeds 1 to 1000, {changes} changes of alarms; every twentieth on a host that ended {ends} times in all");
}
