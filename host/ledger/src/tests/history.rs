//! Random histories, compared with the model step by step: whatever is done, and wherever the process ends, the ledger
//! says what the model says.

use weir_model::FaultKind;
use weir_model::batch::{ALARM_EVENTS, SinkCursor};
use weir_model::port::{Ledger, StateReader};

use super::model::{Model, State};
use super::*;

const SEEDS: u64 = 200;
const STEPS: usize = 40;

#[test]
fn the_ledger_says_what_the_model_says() {
    for seed in 0..SEEDS {
        let told = std::panic::catch_unwind(|| History::new(seed).play());
        if told.is_err() {
            panic!("seed {seed}: see above");
        }
    }
}

/// splitmix64: small, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}

struct History {
    dice: Dice,
    dir: TempDir,
    faults: Arc<OneFault>,
    ledger: Option<Arc<FjallLedger>>,
    model: Model,
    keys: Vec<RunKey>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut history = Self {
            dice: Dice(seed),
            dir: folder(),
            faults: Arc::default(),
            ledger: None,
            model: Model::default(),
            keys: vec![live("t/a"), live("t/b"), run("t/a", "side:x"), run("t/a", "backfill:y")],
        };
        history.open();
        history
    }

    fn open(&mut self) {
        self.ledger = None;
        let ledger = FjallLedger::open(self.dir.path(), small(), self.faults.clone());
        self.ledger = Some(ledger.expect("the ledger opens"));
    }

    fn ledger(&self) -> &Arc<FjallLedger> {
        self.ledger.as_ref().expect("it is open")
    }

    fn play(mut self) {
        for _ in 0..STEPS {
            self.step();
            let key = self.dice.pick(&self.keys).clone();
            self.compare(&key);
        }
        self.open();
        for key in self.keys.clone() {
            self.compare(&key);
        }
        assert_eq!(self.ledger().check().expect("checked").findings, []);
    }

    fn step(&mut self) {
        let key = self.dice.pick(&self.keys).clone();
        match self.dice.below(20) {
            0..8 => self.commit(&key),
            8 => self.begin(&key),
            9 => self.commit_again(&key),
            10 => self.commit_wrong(&key),
            11..14 => self.advance(&key),
            14 => self.open(),
            15 | 16 => self.crash(&key),
            17 => self.sabotage(&key),
            18 => self.retain(),
            _ => {
                if self.dice.below(4) == 0 {
                    self.forget(&key);
                }
            }
        }
    }

    fn next(&mut self, key: &RunKey) -> Commit {
        let n = self.model.head(key) + 1;
        let after = self.model.runs.get(key).map_or(minute(0), |r| r.head_time());
        let mut next = commit(key, n);
        next.plan.time = Time(after.micros() + 60_000_000 * (1 + self.dice.below(3) as i64));
        next.rows_in = self.dice.below(1000);
        if self.dice.below(8) == 0 {
            next.outcome = Outcome::Failed(Fault::internal("a test"));
        } else {
            next.state = self.changes(next.plan.time);
        }
        for output_name in ["o", "p", ALARM_EVENTS] {
            if self.dice.below(3) == 0 {
                let rows = if self.dice.below(6) == 0 { 3000 } else { self.dice.below(4) };
                next.outputs.push(output(output_name, self.dice.below(1000), rows as usize));
            }
        }
        next
    }

    fn changes(&mut self, time: Time) -> Vec<StateWrite> {
        let mut out: Vec<StateWrite> = Vec::new();
        for _ in 0..self.dice.below(5) {
            let space = self.dice.pick(&[SPACE, Space::Plugin(2), Space::Alarms]).clone();
            let key = self.dice.pick::<&[u8]>(&[b"", b"a", b"a\0", b"a\0b", b"ab", b"b", b"\xff"]);
            let text = "v".repeat(self.dice.below(5) as usize);
            let minutes = [None, None, Some(0), Some(1), Some(2), Some(5), Some(20)];
            let expires = self.dice.pick(&minutes).map(|m: i64| Time(time.micros() + m * 60_000_000));
            let after = (self.dice.below(4) > 0).then(|| value(&text, expires));
            if !out.iter().any(|w| w.space == space && w.key == *key) {
                out.push(StateWrite { space, key: key.to_vec(), after });
            }
        }
        out
    }

    fn commit(&mut self, key: &RunKey) {
        let next = self.next(key);
        let told = self.ledger().commit(&next);
        if self.model.is_readable(key) {
            self.model.commit(&next, told.expect("committed"));
        } else {
            assert_eq!(told.expect_err("unreadable").kind, FaultKind::NotReplayable);
        }
    }

    fn begin(&mut self, key: &RunKey) {
        let mut plan = plan(key, self.model.head(key) + 1);
        plan.ruleset = Digest::of(&[self.dice.below(2) as u8]);
        let attempt = self.ledger().begin(&plan).expect("begun");
        assert_eq!(attempt, self.model.begin(key, plan.ruleset));
    }

    fn commit_again(&mut self, key: &RunKey) {
        let Some(run) = self.model.runs.get(key) else {
            return;
        };
        let n = run.oldest + self.dice.below(run.head() + 1 - run.oldest);
        let batch = &run.batches[n as usize - 1];
        let told = self.ledger().commit(&batch.commit);
        assert_eq!(told.expect("the same again"), batch.digest);
        let mut other = batch.commit.clone();
        other.raised += 1;
        let told = self.ledger().commit(&other);
        assert_eq!(told.expect_err("other bytes").kind, FaultKind::Internal);
    }

    fn commit_wrong(&mut self, key: &RunKey) {
        let mut next = self.next(key);
        if self.dice.below(2) == 0 || self.model.head(key) == 0 {
            next.plan.id.0 += 1;
        } else {
            next.plan.time = self.model.runs[key].head_time();
        }
        let told = self.ledger().commit(&next);
        assert_eq!(told.expect_err("out of order").kind, FaultKind::Internal);
    }

    fn advance(&mut self, key: &RunKey) {
        let Some(run) = self.model.runs.get_mut(key) else {
            return;
        };
        let output = name(self.dice.pick::<&str>(&["o", "p", ALARM_EVENTS]));
        let at = run.cursors.get(&output).copied().unwrap_or(0);
        let to = at + self.dice.below(run.head() + 1 - at);
        run.cursors.insert(output.clone(), to);
        let cursor = SinkCursor { drained_to: BatchId(to), table_id: None };
        let sink = sink(key, output.as_str());
        self.ledger().advance(&sink, &cursor).expect("moved");
    }

    /// The process ends in the middle of a commit.
    fn crash(&mut self, key: &RunKey) {
        if !self.model.is_readable(key) {
            return;
        }
        let next = self.next(key);
        let points = ["commit.before", "commit.written", "commit.synced", "commit.replied"];
        let point = *self.dice.pick(&points);
        self.faults.arm(point);
        let fault = self.ledger().commit(&next).expect_err("asked for");
        assert_eq!(fault.kind, FaultKind::Injected);
        // Sometimes nobody notices and the ledger is simply called again.
        if self.dice.below(3) > 0 {
            self.open();
        }
        if point != "commit.before" {
            let head = self.ledger().head(key).expect("read").expect("there");
            self.model.commit(&next, head.digest);
        }
    }

    /// The store fails in the middle of a commit.
    fn sabotage(&mut self, key: &RunKey) {
        if !self.model.is_readable(key) {
            return;
        }
        let next = self.next(key);
        let (which, kind) = (self.dice.below(3), std::io::ErrorKind::Other);
        let sabotage = &self.ledger().core().sabotage;
        match which {
            0 => sabotage.lose(kind),
            1 => sabotage.lie(kind),
            _ => {
                sabotage.lose(kind);
                sabotage.lie(kind);
            }
        }
        let digest = self.ledger().commit(&next).expect("committed in the end");
        self.model.commit(&next, digest);
    }

    fn retain(&mut self) {
        let latest = self.model.runs.values().map(|r| r.head_time().micros()).max();
        let back = self.dice.below(10) as i64 * 60_000_000;
        let horizon = Time(latest.unwrap_or(0) - back);
        self.ledger().retain(horizon).expect("retained");
        self.model.retain(horizon);
    }

    fn forget(&mut self, key: &RunKey) {
        self.ledger().forget(&key.scenario).expect("forgotten");
        self.model.runs.retain(|k, _| k.scenario != key.scenario);
        self.model.attempts.retain(|k, _| k.scenario != key.scenario);
    }

    /// Everything that can be asked about a run.
    fn compare(&mut self, key: &RunKey) {
        let ledger = self.ledger().clone();
        let records = ledger.records(key, None, usize::MAX).expect("read");
        let head = ledger.head(key).expect("read");
        assert_eq!(records.last(), head.as_ref());
        let Some(run) = self.model.runs.get(key) else {
            assert_eq!(head, None);
            let state = ledger.state(key).expect("read");
            self.compare_state(key, &*state, &self.model.state(key), None);
            return;
        };
        assert_eq!(records.len() as u64, run.head() + 1 - run.oldest);
        for (record, batch) in records.iter().zip(&run.batches[run.oldest as usize - 1..]) {
            assert_eq!(record.digest, batch.digest);
            assert_eq!(record.plan, batch.commit.plan);
            assert_eq!(record.outcome, batch.commit.outcome);
            let at = ledger.record_at(key, record.plan.time).expect("read");
            assert_eq!(at.as_ref(), Some(record));
        }
        self.compare_sinks(&ledger, key);
        if !self.model.is_readable(key) {
            let told = ledger.state(key).err().map(|f| f.kind);
            assert_eq!(told, Some(FaultKind::NotReplayable));
            return;
        }
        let state = ledger.state(key).expect("read");
        self.compare_state(key, &*state, &run.state, Some(run.head_time()));
        let n = 1 + self.dice.below(run.head() + 1);
        let told = ledger.state_before(key, BatchId(n));
        let run = &self.model.runs[key];
        if n < run.oldest {
            assert_eq!(told.err().map(|f| f.kind), Some(FaultKind::NotReplayable));
        } else if let Some(batch) = run.batches.get(n as usize - 1) {
            let told = told.expect("kept");
            self.compare_state(key, &*told, &batch.before, Some(batch.commit.plan.time));
        }
    }

    /// Expired values of what a fork lies on stay until the fork writes them, where the model has let them go; no batch
    /// sees either. So forks are compared by what a batch at `time` sees.
    fn compare_state(&self, key: &RunKey, told: &dyn StateReader, state: &State, time: Option<Time>) {
        let forks = key.run != weir_model::RunId::Live;
        let seen = |v: &StateValue| !forks || v.expires.is_none_or(|at| time.is_none_or(|time| at > time));
        for space in [SPACE, Space::Plugin(2), Space::Alarms] {
            let expected: Vec<_> = state
                .iter()
                .filter(|((s, _), v)| *s == space && seen(v))
                .map(|((_, k), v)| (k.clone(), v.clone()))
                .collect();
            let mut found = all(told, &space).expect("read");
            found.retain(|(_, v)| seen(v));
            assert_eq!(found, expected);
            for (k, v) in &expected {
                assert_eq!(told.get(&space, k).expect("read").as_ref(), Some(v));
            }
            if !forks {
                let bytes = expected.iter().map(|(k, v)| k.len() + v.value.len());
                let size = (expected.len() as u64, bytes.sum::<usize>() as u64);
                assert_eq!(told.size(&space).expect("read"), size);
            }
        }
    }

    fn compare_sinks(&self, ledger: &FjallLedger, key: &RunKey) {
        let run = &self.model.runs[key];
        let sinks = ledger.sinks().expect("read");
        for output_name in ["o", "p", ALARM_EVENTS] {
            let sink = sink(key, output_name);
            let cursor = run.cursors.get(&sink.output).copied();
            let told = ledger.cursor(&sink).expect("read");
            assert_eq!(told.map(|c| c.drained_to.0), cursor);
            let expected: Vec<_> = run
                .batches
                .iter()
                .filter(|b| b.commit.plan.id.0 > cursor.unwrap_or(0))
                .filter_map(|b| {
                    let made = b.commit.outputs.iter().find(|o| o.output == sink.output)?;
                    Some((b.commit.plan.id, made.rows.clone()))
                })
                .collect();
            let found = ledger.outputs(&sink, cursor.map(BatchId), usize::MAX).expect("read");
            let found: Vec<_> = found.into_iter().map(|o| (o.batch, o.rows)).collect();
            assert_eq!(found, expected);
            let waiting = sinks.iter().find(|(s, ..)| *s == sink).map_or(0, |s| s.2);
            assert_eq!(waiting, expected.len() as u64);
        }
    }
}
