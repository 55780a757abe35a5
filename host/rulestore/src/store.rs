//! The store: two threads, one that looks and one that makes ready, and the views that they publish.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_model::port::{Admission, History, Prepared, RuleStore, ScenarioView, StreamView};
use weir_model::service::HistoryEntry;
use weir_model::{Clock, Digest, Fault, FaultKind, Limits, Problem, Ruleset, ScenarioId, StreamId, Time};

use crate::history::{Disk, Keep, Pin, first};
use crate::load::{Pool, in_store};
use crate::state::{Scenario, State, Stream};
use crate::validate::{self, Subject};
use crate::watch::watch;

/// How a store is kept.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// The rule store's folder.
    pub store: PathBuf,
    /// Where rulesets are kept, `<data>/rulesets`.
    pub history: PathBuf,
    /// How long content must stay the same before it counts.
    pub settle: Duration,
    /// How often to look when nobody says that something changed.
    pub poll: Duration,
    /// How long rulesets are kept.
    pub keep: Keep,
    /// The host's limits.
    pub defaults: Limits,
}

/// Stack of the store's threads: engines walk what tenants wrote, as deep as their checks allow.
const STACK_BYTES: usize = 16 << 20;

/// How long a store that is dropped waits for its threads.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// A rule store in a folder.
pub struct FolderStore {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
    _watcher: Option<notify::RecommendedWatcher>,
}

pub(crate) struct Inner {
    pub(crate) config: StoreConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) disk: Disk,
    pub(crate) pool: Pool,
    pub(crate) state: Mutex<State>,
    admission: Arc<dyn Admission>,
    /// One admission at a time: compiling takes cores and memory from batches.
    gate: Mutex<()>,
    views: RwLock<Arc<Views>>,
    epoch: AtomicU64,
    work: Mutex<Work>,
    signal: Condvar,
}

#[derive(Default)]
struct Views {
    scenarios: BTreeMap<ScenarioId, ScenarioView>,
    streams: BTreeMap<StreamId, StreamView>,
}

/// What the threads wait for.
#[derive(Default)]
struct Work {
    /// Looks asked for and looks done.
    asked: u64,
    done: u64,
    now: Option<Time>,
    changed: bool,
    stop: bool,
    jobs: VecDeque<Job>,
    busy: bool,
}

/// Something to make ready.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) id: ScenarioId,
    pub(crate) what: What,
}

#[derive(Clone)]
pub(crate) enum What {
    /// What the folder holds.
    Candidate(Arc<Ruleset>),
    /// The last good one.
    Restore(Digest),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change of the state is complete before its lock is given up, so a panic elsewhere leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FolderStore {
    /// Opens the folder and its history, and starts to look. Rulesets become active one by one as they are made ready;
    /// [`FolderStore::wait`] waits for the first of it.
    pub fn open(config: StoreConfig, admission: Arc<dyn Admission>, clock: Arc<dyn Clock>) -> Result<Arc<Self>, Fault> {
        if !config.store.is_dir() {
            return Err(Fault::host(FaultKind::Config, "the rule store's folder is not there")
                .retry(weir_model::Retry::Never)
                .file(config.store.display())
                .fix("make the folder, or correct the path"));
        }
        let disk = Disk::open(&config.history)?;
        let mut state = State::default();
        for (id, past) in disk.scenarios()? {
            state.scenarios.insert(id, Scenario { past, ..Scenario::default() });
        }
        for (id, text) in disk.streams()? {
            state.streams.insert(id, Stream { stored: Some(text), ..Stream::default() });
        }
        let inner = Arc::new(Inner {
            config,
            clock,
            disk,
            pool: Pool::default(),
            state: Mutex::new(state),
            admission,
            gate: Mutex::new(()),
            views: RwLock::default(),
            epoch: AtomicU64::new(0),
            work: Mutex::new(Work { asked: 1, ..Work::default() }),
            signal: Condvar::new(),
        });
        let weak = Arc::downgrade(&inner);
        let watcher = watch(&inner.config.store, move || {
            if let Some(inner) = weak.upgrade() {
                lock(&inner.work).changed = true;
                inner.signal.notify_all();
            }
        });
        let look: fn(&Inner) = Inner::look_loop;
        let mut threads = Vec::new();
        for (name, body) in [("rulestore-look", look), ("rulestore-admit", Inner::admit_loop)] {
            let inner = Arc::clone(&inner);
            let thread = std::thread::Builder::new()
                .name(name.to_owned())
                .stack_size(STACK_BYTES)
                .spawn(move || body(&inner))
                .map_err(|e| {
                    Fault::host(FaultKind::Internal, format_args!("the thread {name} cannot be started: {e}"))
                })?;
            threads.push(thread);
        }
        Ok(Arc::new(Self { inner, threads, _watcher: watcher }))
    }

    /// Waits until every look asked for so far is done and nothing is being made ready any more. False when that takes
    /// longer than `limit`.
    pub fn wait(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut work = lock(&self.inner.work);
        let asked = work.asked;
        while work.done < asked || work.busy || !work.jobs.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            work = self.inner.signal.wait_timeout(work, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Validates what the folder holds, without settling and without running it. One entry per tenant, stream and scenario,
    /// those without problems too.
    pub fn check(&self, only: Option<&ScenarioId>) -> Vec<(Subject, Vec<Problem>)> {
        let _one_at_a_time = lock(&self.inner.gate);
        validate::check_folder(&self.inner.config.store, &self.inner.config.defaults, &*self.inner.admission, only)
    }
}

impl Drop for FolderStore {
    fn drop(&mut self) {
        lock(&self.inner.work).stop = true;
        self.inner.signal.notify_all();
        // The threads hold what the admission holds, the ledger among it: who opens the data folder next must find it
        // free. One that compiles is not waited for to its end.
        let until = Instant::now() + STOP_WAIT;
        while self.threads.iter().any(|t| !t.is_finished()) && Instant::now() < until {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

impl RuleStore for FolderStore {
    fn look(&self, now: Time) {
        // The look itself is the other thread's: a hanging network volume must not hold up a batch.
        let mut work = lock(&self.inner.work);
        work.asked += 1;
        work.now = Some(now);
        drop(work);
        self.inner.signal.notify_all();
    }
    fn scenarios(&self) -> Vec<ScenarioView> {
        self.inner.views().scenarios.values().cloned().collect()
    }
    fn scenario(&self, id: &ScenarioId) -> Option<ScenarioView> {
        self.inner.views().scenarios.get(id).cloned()
    }
    fn streams(&self) -> Vec<StreamView> {
        self.inner.views().streams.values().cloned().collect()
    }
    fn stored(&self, id: &ScenarioId, digest: Digest) -> Result<Arc<Prepared>, Fault> {
        self.inner.stored(id, digest)
    }
    fn epoch(&self) -> u64 {
        self.inner.epoch.load(Ordering::Acquire)
    }
}

impl History for FolderStore {
    fn history(&self, id: &ScenarioId) -> Result<Vec<HistoryEntry>, Fault> {
        self.inner.known(id)?;
        let mut events = self.inner.disk.events(id);
        events.reverse();
        Ok(events)
    }

    fn rollback(&self, id: &ScenarioId, to: Option<Digest>) -> Result<Digest, Fault> {
        self.inner.known(id)?;
        let before = lock(&self.inner.state).scenarios.get(id).and_then(|s| s.past.before());
        let digest = to.or(before).ok_or_else(|| {
            Fault::tenant(FaultKind::Config, format_args!("{id} has no earlier ruleset to go back to"))
                .fix("weir history lists the rulesets that are kept")
        })?;
        let prepared = self.inner.stored(id, digest)?;
        let now = self.inner.clock.now();
        let mut state = lock(&self.inner.state);
        let scenario = state.scenarios.get_mut(id).ok_or_else(|| Fault::no_scenario(id))?;
        let was = scenario.past.active.map_or_else(|| "nothing".to_owned(), |d| d.short());
        let mut past = scenario.past.clone();
        past.pin = Some(Pin { digest, over: scenario.content });
        past.runs(digest, now);
        self.inner.disk.put(id, &past)?;
        scenario.past = past;
        if !scenario.removed {
            scenario.active = Some(prepared);
        }
        scenario.candidate = None;
        scenario.pending = None;
        let reason = format!("by an operator; before it ran {was}");
        let noted = self.inner.event(id, digest, "pinned", reason, now);
        self.inner.publish(&mut state);
        noted.map(|()| digest)
    }

    fn unpin(&self, id: &ScenarioId) -> Result<(), Fault> {
        self.inner.known(id)?;
        let now = self.inner.clock.now();
        let mut state = lock(&self.inner.state);
        let scenario = state.scenarios.get_mut(id).ok_or_else(|| Fault::no_scenario(id))?;
        let mut past = scenario.past.clone();
        let Some(pin) = past.pin.take() else { return Ok(()) };
        self.inner.disk.put(id, &past)?;
        scenario.past = past;
        // What the folder holds is new to what runs: the next look reads it.
        scenario.seen = None;
        let noted = self.inner.event(id, pin.digest, "unpinned", "by an operator".to_owned(), now);
        self.inner.publish(&mut state);
        drop(state);
        self.look(now);
        noted
    }

    fn forget(&self, id: &ScenarioId) -> Result<(), Fault> {
        self.inner.known(id)?;
        let mut state = lock(&self.inner.state);
        let scenario = state.scenarios.get(id).ok_or_else(|| Fault::no_scenario(id))?;
        let folder = self.inner.config.store.join(id.tenant.as_str()).join(id.scenario.as_str());
        if folder.exists() {
            return Err(Fault::tenant(FaultKind::Config, format_args!("{id} still has its folder in the rule store"))
                .file(id)
                .fix("remove the folder first"));
        }
        self.inner.disk.forget(id, &scenario.past)?;
        state.scenarios.remove(id);
        self.inner.publish(&mut state);
        Ok(())
    }
}

impl Inner {
    fn views(&self) -> Arc<Views> {
        Arc::clone(&self.views.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn known(&self, id: &ScenarioId) -> Result<(), Fault> {
        if lock(&self.state).scenarios.contains_key(id) { Ok(()) } else { Err(Fault::no_scenario(id)) }
    }

    /// Makes the state's views those that others see, as one swap.
    pub(crate) fn publish(&self, state: &mut State) {
        state.dirty = false;
        let views = Views {
            scenarios: state.scenarios.iter().map(|(id, s)| (id.clone(), s.view(id))).collect(),
            streams: state.streams.iter().map(|(id, s)| (id.clone(), s.view(id))).collect(),
        };
        *self.views.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(views);
        self.epoch.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn event(
        &self,
        id: &ScenarioId,
        digest: Digest,
        event: &str,
        reason: String,
        time: Time,
    ) -> Result<(), Fault> {
        self.disk.note(id, HistoryEntry { digest, time, event: event.to_owned(), reason })
    }

    /// Has a ruleset admitted, behind the gate. A panic of an engine is that ruleset's problem, not the thread's end.
    fn admit(&self, ruleset: Arc<Ruleset>) -> Result<Arc<Prepared>, Vec<Problem>> {
        let _one_at_a_time = lock(&self.gate);
        let id = ruleset.scenario.clone();
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.admission.admit(ruleset)));
        answer
            .unwrap_or_else(|_| {
                Err(vec![
                    Problem::new("scenario.toml", "the host failed while making it ready").fix("see the host's log"),
                ])
            })
            .map_err(|problems| problems.into_iter().map(|p| in_store(&id, p)).collect())
    }

    fn stored(&self, id: &ScenarioId, digest: Digest) -> Result<Arc<Prepared>, Fault> {
        if let Some(ready) = lock(&self.state).scenarios.get(id).and_then(|s| s.ready(digest)) {
            return Ok(ready);
        }
        let ruleset = self.disk.load(id, digest, &self.config.defaults, &self.pool)?;
        let prepared = self.admit(Arc::new(ruleset)).map_err(|problems| {
            let why = format!("ruleset {} of {id} is not accepted any more: {}", digest.short(), first(&problems));
            Fault::host(FaultKind::NotReplayable, why).retry(weir_model::Retry::Never)
        })?;
        if let Some(scenario) = lock(&self.state).scenarios.get_mut(id) {
            scenario.remember(&prepared);
        }
        Ok(prepared)
    }

    /// Queues work for the admitting thread; newer work for a scenario replaces older of its kind.
    pub(crate) fn queue(&self, job: Job) {
        let mut work = lock(&self.work);
        let kind = std::mem::discriminant(&job.what);
        work.jobs.retain(|j| j.id != job.id || std::mem::discriminant(&j.what) != kind);
        work.jobs.push_back(job);
        drop(work);
        self.signal.notify_all();
    }

    fn look_loop(&self) {
        let mut rested = Instant::now();
        loop {
            let until = (Instant::now() + self.next_due()).max(rested);
            let mut work = lock(&self.work);
            while !work.stop {
                let wanted = work.asked != work.done || work.changed;
                let left = if wanted { rested } else { until }.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                work = self.signal.wait_timeout(work, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            if work.stop {
                return;
            }
            let (asked, now) = (work.asked, work.now.take());
            work.changed = false;
            drop(work);
            let begun = Instant::now();
            self.look_at_all(now.unwrap_or_else(|| self.clock.now()));
            // A folder that is written without end must not cost more than a fifth of a core.
            rested = Instant::now() + (begun.elapsed() * 4).min(Duration::from_secs(1));
            lock(&self.work).done = asked;
            self.signal.notify_all();
        }
    }

    /// How long nothing is to be done, unless somebody asks.
    fn next_due(&self) -> Duration {
        let (settle, at) = (self.config.settle, self.clock.elapsed());
        let state = lock(&self.state);
        let scenarios = state.scenarios.values().filter_map(|s| s.due(settle));
        let due = scenarios.chain(state.streams.values().filter_map(|s| s.due(settle))).min();
        // Never less than a few milliseconds, so that a folder that never settles cannot take a core.
        due.map_or(self.config.poll, |d| d.saturating_sub(at).min(self.config.poll)).max(Duration::from_millis(5))
    }

    fn admit_loop(&self) {
        let mut last = None;
        loop {
            let mut work = lock(&self.work);
            while work.jobs.is_empty() && !work.stop {
                work = self.signal.wait(work).unwrap_or_else(PoisonError::into_inner);
            }
            if work.stop {
                return;
            }
            // Another tenant than the last one first: one that deploys a lot must not hold up the others.
            let next = work.jobs.iter().position(|j| Some(&j.id.tenant) != last.as_ref()).unwrap_or(0);
            let Some(job) = work.jobs.remove(next) else { continue };
            work.busy = true;
            drop(work);
            last = Some(job.id.tenant.clone());
            match job.what {
                What::Candidate(ruleset) => {
                    let digest = ruleset.digest;
                    let answer = self.admit(ruleset);
                    self.admitted(&job.id, digest, answer);
                }
                What::Restore(digest) => {
                    let answer = self.stored(&job.id, digest);
                    self.restored(&job.id, digest, answer);
                }
            }
            lock(&self.work).busy = false;
            self.signal.notify_all();
        }
    }
}
