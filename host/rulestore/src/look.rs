//! One look at the store, and what becomes of what it finds. The choices are made in `decide`.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use weir_model::port::Prepared;
use weir_model::{Digest, Fault, Name, Problem, ScenarioId, StreamId, Time};

use crate::decide::{Candidate, Checked, Look, Step, step};
use crate::history::first;
use crate::load::{self, Again, Loaded, in_store};
use crate::state::{Scenario, State, Stream, changes, notice};
use crate::store::{Inner, Job, What};
use crate::tree::{self, Entry, Tenant, Tree};

/// When a look is made.
#[derive(Clone, Copy)]
struct When {
    /// For people.
    now: Time,
    /// For distances: this clock does not jump.
    at: Duration,
}

impl Inner {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn look_at_all(&self, now: Time) {
        let when = When { now, at: self.clock.elapsed() };
        let Some(tree) = self.tree() else { return };
        let streams: Vec<StreamId> = self.state().streams.keys().cloned().collect();
        for id in streams {
            let there = tree.tenants.get(&id.tenant);
            if there.is_none_or(|t| !t.unreadable && !t.streams.contains_key(&id.stream)) {
                self.stream_gone(&id, when);
            }
        }
        for (name, tenant) in tree.tenants.iter().filter(|(_, t)| !t.unreadable) {
            for (stream, entry) in &tenant.streams {
                self.look_at_stream(&StreamId::new(name.clone(), stream.clone()), entry, when);
            }
        }
        let known: Vec<ScenarioId> = self.state().scenarios.keys().cloned().collect();
        for id in known {
            let there = tree.tenants.get(&id.tenant);
            if there.is_none_or(|t| !t.unreadable && !t.scenarios.contains_key(&id.scenario)) {
                self.gone(&id, when);
            }
        }
        for (name, tenant) in tree.tenants.iter().filter(|(_, t)| !t.unreadable) {
            for scenario in tenant.scenarios.keys() {
                self.look_at(&ScenarioId::new(name.clone(), scenario.clone()), tenant, when);
            }
        }
        let mut state = self.state();
        if state.dirty {
            self.publish(&mut state);
        }
    }

    /// What is there; none when that cannot be told, which must not look like everything being removed.
    fn tree(&self) -> Option<Tree> {
        let found = tree::scan(&self.config.store);
        let mut state = self.state();
        let (tree, told) = match found {
            Err(e) => (None, vec![format!("the rule store cannot be read, what runs goes on: {e}")]),
            Ok(tree) if tree.tenants.is_empty() && state.device.is_some_and(|d| d != tree.device) => {
                (None, vec!["the rule store's volume is gone, what runs goes on".to_owned()])
            }
            Ok(tree) => {
                state.device = Some(tree.device);
                let tenants = tree.tenants.values().flat_map(|t| &t.problems);
                let told = tree.strays.iter().chain(tenants).map(ToString::to_string).collect();
                (Some(tree), told)
            }
        };
        if state.told != told {
            for text in &told {
                tracing::warn!(store = %self.config.store.display(), "{text}");
            }
            state.told = told;
        }
        tree
    }

    fn look_at(&self, id: &ScenarioId, tenant: &Tenant, when: When) {
        let Some(folder) = tenant.scenarios.get(&id.scenario) else { return };
        let fingerprint = |inputs: &std::collections::BTreeSet<Name>| {
            let beside = inputs.iter().map(|name| tenant.streams.get(name));
            folder.fingerprint(std::iter::once(tenant.config.as_ref()).chain(beside))
        };
        {
            let mut state = self.state();
            let scenario = state.scenarios.entry(id.clone()).or_default();
            if !scenario.must_read(fingerprint(&scenario.inputs), when.at, self.config.settle) {
                return;
            }
        }
        // Read without the lock: a slow volume holds up neither operators nor what is being made ready.
        let loaded = load::scenario(id, tenant, folder, &self.config.defaults, &self.pool);
        let mut state = self.state();
        state.dirty = true;
        let Some(scenario) = state.scenarios.get_mut(id) else { return };
        match loaded {
            Err(Again) => {
                scenario.seen = None;
                scenario.candidate = None;
                scenario.wait_for(format!("{id}"), "its files are changing".to_owned(), when.now, Vec::new());
            }
            Ok(loaded) => {
                scenario.seen = Some(fingerprint(&loaded.inputs));
                scenario.inputs.clone_from(&loaded.inputs);
                self.found(id, scenario, loaded, when);
            }
        }
    }

    fn found(&self, id: &ScenarioId, scenario: &mut Scenario, loaded: Loaded, when: When) {
        scenario.gone = None;
        scenario.removed = false;
        scenario.content = Some(loaded.digest);
        // A pin made without a look at the folder is over whatever the folder holds first.
        if let Some(pin) = &mut scenario.past.pin
            && pin.over.is_none()
        {
            pin.over = Some(loaded.digest);
            self.written(id, scenario);
        }
        let pinned_over = scenario.past.pin.as_ref().and_then(|p| p.over);
        let runs = scenario.active.as_ref().map(|p| p.ruleset.digest);
        let next = step(&Look {
            digest: loaded.digest,
            at: when.at,
            settle: self.config.settle,
            current: if scenario.past.pin.is_some() { pinned_over } else { runs },
            rejected: scenario.rejected.as_ref().map(|(digest, _)| *digest),
            trusted: scenario.past.active.filter(|_| runs.is_none() && scenario.past.pin.is_none()),
            candidate: scenario.candidate.as_ref(),
        });
        match next {
            Step::Current => {
                if scenario.past.pin.is_none() {
                    scenario.rejected = None;
                }
                scenario.candidate = None;
                scenario.pending = None;
                self.restore(id, scenario);
            }
            Step::KnownBad => {
                scenario.candidate = None;
                scenario.pending = None;
                self.restore(id, scenario);
            }
            Step::Note => {
                if scenario.candidate.is_some() {
                    // It never settles, so a host that starts must not wait for it.
                    self.restore(id, scenario);
                }
                scenario.candidate =
                    Some(Candidate { digest: loaded.digest, seen: when.at, since: when.now, checked: Checked::No });
                let reason = format!("it changed; it counts when it stays the same for {:?}", self.config.settle);
                scenario.wait_for(id.to_string(), reason, when.now, Vec::new());
            }
            Step::Settle | Step::Wait => {}
            Step::Check => self.check_settled(id, scenario, loaded, when),
            Step::Hold | Step::Reject => self.bad(id, scenario, when),
        }
    }

    /// The folder's content is stable.
    fn check_settled(&self, id: &ScenarioId, scenario: &mut Scenario, loaded: Loaded, when: When) {
        if let Some(pin) = scenario.past.pin.take() {
            self.written(id, scenario);
            self.told(self.event(id, pin.digest, "unpinned", "the folder changed".to_owned(), when.now));
            if scenario.active.as_ref().is_some_and(|p| p.ruleset.digest == loaded.digest) {
                scenario.candidate = None;
                scenario.pending = None;
                return;
            }
        }
        let since = scenario.candidate.as_ref().map_or(when.now, |c| c.since);
        let seen = scenario.candidate.as_ref().map_or(when.at, |c| c.seen);
        let mut candidate = Candidate { digest: loaded.digest, seen, since, checked: Checked::Running };
        match loaded.ruleset {
            Err(problems) => {
                let problems = problems.into_iter().map(|p| in_store(id, p)).collect();
                candidate.checked = Checked::Bad { found: when.at, problems };
                scenario.candidate = Some(candidate);
                self.bad(id, scenario, when);
            }
            Ok(ruleset) => {
                scenario.candidate = Some(candidate);
                match scenario.ready(loaded.digest) {
                    Some(ready) => self.activate(id, scenario, &ready, when),
                    None => {
                        scenario.wait_for(id.to_string(), "it is being made ready".to_owned(), when.now, Vec::new());
                        self.queue(Job { id: id.clone(), what: What::Candidate(Arc::new(ruleset)) });
                    }
                }
            }
        }
    }

    /// The candidate is bad: hold it a while, or reject it.
    fn bad(&self, id: &ScenarioId, scenario: &mut Scenario, when: When) {
        let Some(Candidate { digest, checked: Checked::Bad { found, problems }, .. }) = scenario.candidate.clone()
        else {
            return;
        };
        let partial = problems.iter().any(|p| p.may_be_partial);
        if partial && when.at.saturating_sub(found) < self.config.settle {
            let held = notice(problems.clone(), when.now);
            scenario.wait_for(held.file, format!("it may not be complete: {}", held.reason), when.now, problems);
        } else {
            tracing::warn!(scenario = %id, ruleset = %digest.short(), problem = %first(&problems), "ruleset rejected");
            self.told(self.event(id, digest, "rejected", first(&problems), when.now));
            scenario.rejected = Some((digest, notice(problems, when.now)));
            scenario.candidate = None;
            scenario.pending = None;
        }
        self.restore(id, scenario);
    }

    /// Starts the last good ruleset when nothing runs.
    fn restore(&self, id: &ScenarioId, scenario: &mut Scenario) {
        if scenario.active.is_some() || scenario.restoring {
            return;
        }
        if let Some(digest) = scenario.past.active {
            scenario.restoring = true;
            self.queue(Job { id: id.clone(), what: What::Restore(digest) });
        }
    }

    /// The last good ruleset is ready, or it is not good any more.
    pub(crate) fn restored(&self, id: &ScenarioId, digest: Digest, answer: Result<Arc<Prepared>, Fault>) {
        let mut state = self.state();
        let Some(scenario) = state.scenarios.get_mut(id) else { return };
        // Something newer may have become active meanwhile, or the folder was removed.
        if scenario.active.is_some() || scenario.removed {
            return;
        }
        match answer {
            Ok(prepared) => {
                tracing::info!(scenario = %id, ruleset = %digest.short(), "the last good ruleset runs");
                scenario.active = Some(prepared);
            }
            Err(fault) => {
                tracing::warn!(scenario = %id, ruleset = %digest.short(), error = %fault, "the last good ruleset cannot run");
                let problem =
                    Problem::new(id, fault.message).fix("correct the folder's content; it is loaded when it is good");
                scenario.rejected.get_or_insert((digest, notice(vec![problem], self.clock.now())));
            }
        }
        self.publish(&mut state);
    }

    /// An admission has ended.
    pub(crate) fn admitted(&self, id: &ScenarioId, digest: Digest, answer: Result<Arc<Prepared>, Vec<Problem>>) {
        let when = When { now: self.clock.now(), at: self.clock.elapsed() };
        let mut state = self.state();
        let Some(scenario) = state.scenarios.get_mut(id) else { return };
        if let Ok(prepared) = &answer {
            scenario.remember(prepared);
        }
        // The folder may have moved on meanwhile; then this answer is only kept for a way back.
        let Some(candidate) = scenario.candidate.as_mut().filter(|c| c.digest == digest) else { return };
        match answer {
            Ok(prepared) => self.activate(id, scenario, &prepared, when),
            Err(problems) => {
                candidate.checked = Checked::Bad { found: when.at, problems };
                self.bad(id, scenario, when);
            }
        }
        self.publish(&mut state);
    }

    /// Makes a ruleset the one that runs. It is kept on disk first: a batch must never name a ruleset that nobody has.
    fn activate(&self, id: &ScenarioId, scenario: &mut Scenario, prepared: &Arc<Prepared>, when: When) {
        scenario.remember(prepared);
        let ruleset = &prepared.ruleset;
        let before = scenario.active.as_ref().map(|p| Arc::clone(&p.ruleset));
        let again = scenario.past.active == Some(ruleset.digest);
        let mut past = scenario.past.clone();
        past.became(ruleset.digest, when.now);
        let kept = self.disk.save(ruleset, when.now, before.as_deref()).and_then(|()| {
            self.disk.retain(&mut past, self.config.keep, when.now);
            self.disk.put(id, &past)
        });
        if let Err(fault) = kept {
            tracing::error!(scenario = %id, error = %fault, "a ruleset cannot be kept, so it does not run");
            if let Some(candidate) = &mut scenario.candidate {
                candidate.checked = Checked::No;
                candidate.seen = when.at;
            }
            scenario.wait_for(id.to_string(), fault.to_string(), when.now, Vec::new());
            self.restore(id, scenario);
            return;
        }
        scenario.past = past;
        if !again {
            tracing::info!(scenario = %id, ruleset = %ruleset.digest.short(), "ruleset active");
            self.told(self.event(id, ruleset.digest, "active", changes(before.as_deref(), ruleset), when.now));
        }
        scenario.active = Some(Arc::clone(prepared));
        scenario.candidate = None;
        scenario.pending = None;
        scenario.rejected = None;
    }

    fn written(&self, id: &ScenarioId, scenario: &Scenario) {
        self.told(self.disk.put(id, &scenario.past));
    }

    /// What could not be written is of the kind that costs a line of the history, not the work.
    fn told(&self, result: Result<(), Fault>) {
        if let Err(fault) = result {
            tracing::error!(error = %fault, "the history of rulesets is not complete");
        }
    }

    /// A scenario without a folder.
    fn gone(&self, id: &ScenarioId, when: When) {
        let mut state = self.state();
        let Some(scenario) = state.scenarios.get_mut(id) else { return };
        if scenario.removed {
            return;
        }
        let since = *scenario.gone.get_or_insert(when.at);
        scenario.seen = None;
        scenario.candidate = None;
        if when.at.saturating_sub(since) < self.config.settle {
            let reason = format!("its folder is gone; it stops when that stays so for {:?}", self.config.settle);
            scenario.wait_for(id.to_string(), reason, when.now, Vec::new());
        } else {
            tracing::info!(scenario = %id, "its folder was removed, so it stops; its state and history are kept");
            scenario.removed = true;
            scenario.active = None;
            scenario.restoring = false;
            scenario.pending = None;
            scenario.rejected = None;
            let never =
                scenario.past.kept.is_empty() && scenario.past.active.is_none() && self.disk.events(id).is_empty();
            if never {
                state.scenarios.remove(id);
            }
        }
        state.dirty = true;
    }

    fn look_at_stream(&self, id: &StreamId, entry: &Entry, when: When) {
        let settle = self.config.settle;
        {
            let mut state = self.state();
            let stream = state.streams.entry(id.clone()).or_default();
            let waits = stream.candidate.is_some_and(|(_, seen)| when.at.saturating_sub(seen) >= settle);
            if stream.seen == Some(entry.stamp) && !waits && stream.gone.is_none() {
                return;
            }
        }
        let file = format!("{}/streams/{}.toml", id.tenant, id.stream);
        let loaded = load::stream(&file, entry);
        let mut state = self.state();
        state.dirty = true;
        let taken = tables(&state, id);
        let Some(stream) = state.streams.get_mut(id) else { return };
        stream.gone = None;
        let Ok(loaded) = loaded else {
            stream.seen = None;
            stream.candidate = None;
            return;
        };
        stream.seen = Some(entry.stamp);
        let trusted = stream.def.is_none()
            && stream
                .stored
                .as_ref()
                .is_some_and(|text| load::stream_text(&file, text.clone()).digest == loaded.digest);
        if stream.digest == Some(loaded.digest) {
            stream.candidate = None;
            stream.rejected = None;
        } else if stream.rejected.as_ref().is_some_and(|(bad, _)| *bad == loaded.digest) {
            stream.candidate = None;
        } else {
            let seen = match stream.candidate {
                Some((digest, seen)) if digest == loaded.digest => seen,
                _ => {
                    stream.candidate = Some((loaded.digest, when.at));
                    when.at
                }
            };
            if !trusted && when.at.saturating_sub(seen) < settle {
                return;
            }
            stream.candidate = None;
            let def = loaded.def.and_then(|def| {
                let table = def.table.clone().unwrap_or_else(|| id.stream.clone());
                match taken.get(&table) {
                    None => Ok(def),
                    Some(other) => {
                        let text = format!("{table} is the bronze table of stream {other} already");
                        Err(vec![Problem::new(&file, text).field("table").fix("name another table")])
                    }
                }
            });
            match def {
                Ok(def) => {
                    self.told(self.disk.put_stream(id, &loaded.text));
                    stream.def = Some(Arc::new(def));
                    stream.digest = Some(loaded.digest);
                    stream.stored = Some(loaded.text);
                    stream.rejected = None;
                }
                Err(problems) => {
                    tracing::warn!(stream = %id, problem = %first(&problems), "stream definition rejected");
                    stream.rejected = Some((loaded.digest, notice(problems, when.now)));
                    stream.use_stored(&file);
                }
            }
        }
    }

    /// A stream without a file: it ends when no running scenario reads it any more.
    fn stream_gone(&self, id: &StreamId, when: When) {
        let mut state = self.state();
        // A scenario that is still being made ready may read it too.
        let reads = |s: &Scenario| match &s.active {
            Some(prepared) => prepared.ruleset.streams.contains_key(&id.stream),
            None => !s.removed && (s.past.active.is_some() || s.candidate.is_some()),
        };
        let read = state.scenarios.iter().any(|(scenario, s)| scenario.tenant == id.tenant && reads(s));
        let Some(stream) = state.streams.get_mut(id) else { return };
        let file = format!("{}/streams/{}.toml", id.tenant, id.stream);
        let since = *stream.gone.get_or_insert(when.at);
        stream.seen = None;
        stream.candidate = None;
        // What ran on it before a restart may still be on its way.
        if stream.def.is_none() {
            stream.use_stored(&file);
            state.dirty = true;
            return;
        }
        if when.at.saturating_sub(since) < self.config.settle {
            return;
        }
        if read {
            if stream.rejected.is_none() {
                let problem = Problem::new(&file, "the file is gone, and scenarios still read the stream")
                    .fix("put it back, or remove it from the scenarios' inputs");
                stream.rejected = Some((Digest::of(b""), notice(vec![problem], when.now)));
                state.dirty = true;
            }
        } else {
            state.streams.remove(id);
            self.disk.remove_stream(id);
            state.dirty = true;
        }
    }
}

impl Stream {
    /// Takes the last good definition of an earlier life of the host, when there is no other.
    fn use_stored(&mut self, file: &str) {
        if let (None, Some(text)) = (&self.def, &self.stored) {
            let loaded = load::stream_text(file, text.clone());
            if let Ok(def) = loaded.def {
                self.def = Some(Arc::new(def));
                self.digest = Some(loaded.digest);
            }
        }
    }
}

/// Bronze tables of the tenant's other streams.
fn tables(state: &State, id: &StreamId) -> BTreeMap<Name, Name> {
    let others = state.streams.iter().filter(|(other, _)| other.tenant == id.tenant && *other != id);
    others
        .filter_map(|(other, s)| {
            let def = s.def.as_ref()?;
            Some((def.table.clone().unwrap_or_else(|| other.stream.clone()), other.stream.clone()))
        })
        .collect()
}
