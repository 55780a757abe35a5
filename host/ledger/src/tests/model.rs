//! What a ledger is, in forty lines of maps: for the histories to compare with.

use std::collections::BTreeMap;

use weir_model::batch::{Commit, Space, StateValue};
use weir_model::{Digest, Name, Outcome, RunId, RunKey, Time};

pub(super) type State = BTreeMap<(Space, Vec<u8>), StateValue>;

#[derive(Debug, Default)]
pub(super) struct Model {
    pub runs: BTreeMap<RunKey, Run>,
    /// N and attempts at it, by ruleset.
    pub attempts: BTreeMap<RunKey, (u64, BTreeMap<Digest, u32>)>,
}

#[derive(Debug, Default)]
pub(super) struct Run {
    /// Batch N is at N - 1.
    pub batches: Vec<Batch>,
    pub oldest: u64,
    pub state: State,
    pub cursors: BTreeMap<Name, u64>,
    /// The batch of live that the state under a fork is before.
    pub base: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Batch {
    pub commit: Commit,
    pub digest: Digest,
    pub before: State,
}

impl Run {
    pub(super) fn head(&self) -> u64 {
        self.batches.len() as u64
    }
    pub(super) fn head_time(&self) -> Time {
        self.batches.last().map_or(Time(i64::MIN), |b| b.commit.plan.time)
    }
}

impl Model {
    pub(super) fn head(&self, key: &RunKey) -> u64 {
        self.runs.get(key).map_or(0, Run::head)
    }

    pub(super) fn state(&self, key: &RunKey) -> State {
        let of = |key: &RunKey| self.runs.get(key).map(|run| run.state.clone());
        of(key).or_else(|| of(&RunKey::live(key.scenario.clone()))).unwrap_or_default()
    }

    /// Whether what a fork lies on is still there.
    pub(super) fn is_readable(&self, key: &RunKey) -> bool {
        let live = self.runs.get(&RunKey::live(key.scenario.clone()));
        let base = self.runs.get(key).and_then(|run| run.base);
        base.is_none_or(|before| live.is_some_and(|live| before >= live.oldest))
    }

    pub(super) fn begin(&mut self, key: &RunKey, ruleset: Digest) -> u32 {
        let n = self.head(key) + 1;
        let entry = self.attempts.entry(key.clone()).or_default();
        if entry.0 != n {
            *entry = (n, BTreeMap::new());
        }
        let count = entry.1.entry(ruleset).or_default();
        *count += 1;
        *count
    }

    pub(super) fn commit(&mut self, commit: &Commit, digest: Digest) {
        let key = &commit.plan.key;
        let before = self.state(key);
        let live = self.runs.get(&RunKey::live(key.scenario.clone()));
        let base = live.filter(|_| key.run != RunId::Live).map(|live| live.head() + 1);
        let run = self.runs.entry(key.clone()).or_insert_with(|| Run {
            oldest: 1,
            state: before.clone(),
            base,
            ..Run::default()
        });
        if !matches!(commit.outcome, Outcome::Failed(_)) {
            run.state.retain(|_, v| v.expires.is_none_or(|at| at > commit.plan.time));
        }
        for write in &commit.state {
            let at = (write.space.clone(), write.key.clone());
            match &write.after {
                Some(value) => run.state.insert(at, value.clone()),
                None => run.state.remove(&at),
            };
        }
        run.batches.push(Batch { commit: commit.clone(), digest, before });
        self.attempts.remove(key);
    }

    pub(super) fn retain(&mut self, horizon: Time) {
        for run in self.runs.values_mut() {
            let first =
                run.batches.iter().position(|b| b.commit.plan.time >= horizon).map_or(run.head(), |at| at as u64 + 1);
            run.oldest = run.oldest.max(first);
        }
    }
}
