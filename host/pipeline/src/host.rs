//! All streams, scenarios and sinks of a host together. Each can be moved by one step (tests do that, in any order), or
//! all run as loops on a clock (`loops.rs`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_model::batch::ALARMS;
use weir_model::port::{PollLimit, Prepared};
use weir_model::service::TableStatus;
use weir_model::{Fault, FaultKind, Name, RunId, RunKey, ScenarioId, SinkId, Span, StreamId, Time};

use crate::batch::Streams;
use crate::drain::Drained;
use crate::engines::Engines;
use crate::scenario::{Scenario, Step};
use crate::share::Share;
use crate::side::DAY;
use crate::sink::Sink;
use crate::stream::{Ingested, Stream};
use crate::upkeep::Keeping;

/// How a host paces itself.
#[derive(Debug, Clone)]
pub struct Pace {
    /// Most that one read of a source brings.
    pub poll: PollLimit,
    /// How often sources without a due time are read, and how soon a stopped loop notices.
    pub idle: Duration,
    /// How often the rule store is looked at beside the look before every batch.
    pub look: Duration,
    /// How often a stream is appended to its bronze table.
    pub bronze_flush: Duration,
    /// How long outputs may wait for others to share their transaction; zero drains at once.
    pub sink_wait: Duration,
    /// How far the table of current alarms may be behind: each change of it writes its rows anew.
    pub alarms_wait: Duration,
    /// Most bytes in one transaction of a sink.
    pub sink_bytes: usize,
    /// Blocking work at the same time: batches, reads, drains.
    pub workers: usize,
    /// How long records, before-images and rulesets are kept for replays.
    pub replay_horizon: Duration,
    /// The disk that must keep room, and how many bytes. With less, ingest, compilation and tables stop; the ledger, which
    /// has to say what has happened, does not.
    pub disk_floor: Option<(std::path::PathBuf, u64)>,
    /// How tables are kept in shape.
    pub keeping: Keeping,
    /// Bytes that the hot windows of a tenant may hold together. Beyond, its streams are not read on.
    pub window_bytes: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            poll: PollLimit { rows: 65_536, bytes: 8 << 20 },
            idle: Duration::from_millis(200),
            look: Duration::from_secs(1),
            bronze_flush: Duration::from_secs(10),
            sink_wait: Duration::ZERO,
            alarms_wait: Duration::from_secs(5),
            sink_bytes: 32 << 20,
            workers: 4,
            replay_horizon: Duration::from_secs(7 * 24 * 3600),
            disk_floor: None,
            keeping: Keeping::default(),
            window_bytes: 512 << 20,
        }
    }
}

/// A host.
pub struct Host {
    /// What it runs on.
    pub engines: Engines,
    /// How it paces itself.
    pub pace: Pace,
    pub(crate) inner: Mutex<Parts>,
    pub(crate) commits: (Mutex<u64>, Condvar),
    pub(crate) committed: tokio::sync::watch::Sender<u64>,
    pub(crate) stop: tokio::sync::watch::Sender<bool>,
    pub(crate) looked: AtomicBool,
    /// The disk is below its floor, and that was said.
    full: AtomicBool,
    pub(crate) live: AtomicBool,
    pub(crate) backfills: crate::backfill::Open,
    /// What the upkeep of each table came to.
    upkept: Mutex<BTreeMap<(Name, Name), TableStatus>>,
    /// Wall and monotonic time when it was made.
    began: (Time, Duration),
}

/// What it consists of now.
#[derive(Default)]
pub(crate) struct Parts {
    pub streams: BTreeMap<StreamId, Arc<Stream>>,
    pub stream_faults: BTreeMap<StreamId, Fault>,
    pub scenarios: BTreeMap<ScenarioId, Arc<Scenario>>,
    pub sinks: BTreeMap<SinkId, Arc<Sink>>,
    /// Whether the sinks that the ledger knows from before were added.
    pub ledger_sinks: bool,
    /// Memory of each tenant's hot windows.
    shares: BTreeMap<Name, Arc<Share>>,
}

impl Host {
    /// A host at rest.
    pub fn new(engines: Engines, pace: Pace) -> Arc<Self> {
        let (committed, _) = tokio::sync::watch::channel(0);
        let (stop, _) = tokio::sync::watch::channel(false);
        let began = (engines.clock.now(), engines.clock.monotonic());
        Arc::new(Self {
            began,
            engines,
            pace,
            inner: Mutex::new(Parts::default()),
            commits: (Mutex::new(0), Condvar::new()),
            committed,
            stop,
            looked: AtomicBool::new(false),
            full: AtomicBool::new(false),
            live: AtomicBool::new(false),
            backfills: crate::backfill::Open::default(),
            upkept: Mutex::default(),
        })
    }

    /// Now, as far as it says that something has been kept long enough. A clock that was set forward must not take everything
    /// away that is dear: until the next start it counts for a day more than has passed.
    pub(crate) fn age_now(&self) -> Time {
        let (wall, monotonic) = self.began;
        let passed = self.engines.clock.monotonic().saturating_sub(monotonic);
        self.engines.clock.now().min(wall.plus(passed).plus(DAY))
    }

    /// Looks at the rule store and opens what is new or has changed: streams, scenarios, sinks. Blocks. A stream that
    /// cannot be opened is tried again at the next call; only an injected fault comes out as `Err`.
    pub fn reconcile(&self) -> Result<(), Fault> {
        if let Err(full) = self.room() {
            // What is active goes on; only what is new waits.
            if !self.full.swap(true, Ordering::AcqRel) {
                tracing::error!("{full}");
            }
            self.looked.store(true, Ordering::Release);
            return Ok(());
        }
        self.full.store(false, Ordering::Release);
        self.engines.store.look(self.engines.clock.now());
        self.reconcile_streams()?;
        for view in self.engines.store.scenarios() {
            if view.active.is_some() && !view.removed {
                self.parts().scenarios.entry(view.id.clone()).or_insert_with(|| Arc::new(Scenario::new(view.id)));
            } else if view.removed {
                self.parts().scenarios.remove(&view.id);
            }
        }
        if !self.parts().ledger_sinks {
            for (sink, _, _) in self.engines.ledger.sinks()? {
                self.add_sink(sink);
            }
            // A host that ended before this sink's first drain left no cursor of it.
            for id in self.engines.ledger.scenarios()? {
                if !self.engines.ledger.alarms(&id)?.is_empty() {
                    self.add_sink(alarms_sink(&id)?);
                }
            }
            self.parts().ledger_sinks = true;
        }
        self.looked.store(true, Ordering::Release);
        Ok(())
    }

    fn reconcile_streams(&self) -> Result<(), Fault> {
        for view in self.engines.store.streams() {
            let (Some(def), Some(digest)) = (view.def, view.digest) else {
                continue;
            };
            let before = self.parts().streams.get(&view.id).cloned();
            if before.as_ref().is_some_and(|s| s.definition == digest) {
                continue;
            }
            let tenant = view.id.tenant.clone();
            let share = self.parts().shares.entry(tenant).or_insert_with(|| Share::new(self.pace.window_bytes)).clone();
            let opened = match &before {
                // The rows read under the old definition go to bronze first: they cannot be read again under the new one.
                Some(old) => old
                    .flush(&self.engines)
                    .and_then(|()| Stream::open(&self.engines, view.id.clone(), def, digest, share)),
                None => Stream::open(&self.engines, view.id.clone(), def, digest, share),
            };
            match opened {
                Ok(stream) => {
                    tracing::info!(stream = %view.id, generation = stream.generation(), "stream opened");
                    let mut parts = self.parts();
                    parts.stream_faults.remove(&view.id);
                    parts.streams.insert(view.id, Arc::new(stream));
                }
                Err(fault) if fault.kind == FaultKind::Injected => return Err(fault),
                Err(fault) => {
                    tracing::error!(stream = %view.id, "stream cannot be opened: {fault}");
                    self.parts().stream_faults.insert(view.id, fault);
                }
            }
        }
        Ok(())
    }

    /// Runs a scenario's batch, if one is due, on the ruleset that is active now. Blocks. It does not look at the rule store,
    /// which [`Host::reconcile`] does between batches: the look would take a core from the batch that is due.
    pub fn step(&self, id: &ScenarioId) -> Result<Step, Fault> {
        let Some(scenario) = self.scenario(id) else {
            return Ok(Step::Ended);
        };
        let Some(prepared) = self.engines.store.scenario(id).filter(|v| !v.removed).and_then(|v| v.active) else {
            return Ok(Step::Ended);
        };
        let streams = match self.streams_of(&prepared) {
            Ok(streams) => streams,
            Err(name) => return Ok(Step::Waiting(name)),
        };
        let step = scenario.step(&self.engines, &prepared, &streams, self.pace.poll)?;
        if let Step::Committed(record) = &step {
            for output in &record.outputs {
                self.add_sink(SinkId { key: RunKey::live(id.clone()), output: output.output.clone() });
            }
            if !record.events.is_empty() {
                self.add_sink(alarms_sink(id)?);
            }
            self.note_commit();
        }
        Ok(step)
    }

    /// Does ahead what the scenario's next batch need not do then. For after a batch, when nobody waits; what a batch comes
    /// to does not show whether it was done.
    pub fn make_ready(&self, id: &ScenarioId) {
        if let Some(prepared) = self.engines.store.scenario(id).and_then(|view| view.active) {
            prepared.queries.make_ready();
        }
    }

    /// The open streams that a ruleset reads; `Err` names one that is not open, or is open with another schema.
    pub(crate) fn streams_of(&self, prepared: &Prepared) -> Result<Streams, Name> {
        let parts = self.parts();
        let tenant = &prepared.ruleset.scenario.tenant;
        let mut out = Streams::new();
        for (name, def) in &prepared.ruleset.streams {
            let stream = parts.streams.get(&StreamId::new(tenant.clone(), name.clone()));
            match stream.filter(|s| s.def.schema == def.schema && s.def.event_time == def.event_time) {
                Some(stream) => out.insert(name.clone(), stream.clone()),
                None => return Err(name.clone()),
            };
        }
        Ok(out)
    }

    /// Whether the disk has the room that everything but the ledger leaves free.
    pub fn room(&self) -> Result<(), Fault> {
        let Some((path, floor)) = &self.pace.disk_floor else { return Ok(()) };
        let free = rustix::fs::statvfs(path).map(|s| s.f_bavail.saturating_mul(s.f_frsize)).unwrap_or(u64::MAX);
        if free >= *floor {
            return Ok(());
        }
        Err(Fault::host(
            FaultKind::Disk,
            format_args!(
                "{free} bytes of disk are free, and {floor} must stay free: ingest, compilation and tables wait"
            ),
        )
        .file(path.display())
        .field("ledger.disk_floor_bytes")
        .fix("make room; everything goes on by itself then"))
    }

    /// Reads a stream's source once, if there is room for what it brings. None: there is no such stream. Blocks.
    pub fn ingest(&self, id: &StreamId) -> Option<Result<Ingested, Fault>> {
        let stream = self.stream(id)?;
        Some(self.room().and_then(|()| stream.ingest(&self.engines, self.pace.poll, Duration::ZERO)))
    }

    /// Appends a stream to its bronze table, if there is room. None: there is no such stream. Blocks.
    pub fn flush(&self, id: &StreamId) -> Option<Result<(), Fault>> {
        let stream = self.stream(id)?;
        Some(self.room().and_then(|()| stream.flush(&self.engines)))
    }

    /// Drains a sink until nothing waits. Blocks.
    pub fn drain(&self, sink: &SinkId) -> Result<(), Fault> {
        let Some(drain) = self.sink(sink) else { return Ok(()) };
        // Whoever is told needs no room here; a full disk is what they should hear of.
        if !matches!(*drain, Sink::Notify(_)) {
            self.room()?;
        }
        while drain.drain(&self.engines)? != Drained::Nothing {}
        Ok(())
    }

    /// Everything once, as `weir run --once`: what is due for every scenario, then bronze, then the sinks. Blocks. Answers
    /// the faults that were met.
    pub fn once(&self) -> Result<Vec<Fault>, Fault> {
        let mut faults = Vec::new();
        self.reconcile()?;
        faults.extend(self.parts().stream_faults.values().cloned());
        for id in self.scenario_ids() {
            loop {
                match self.step(&id)? {
                    Step::Committed(record) => {
                        if let weir_model::Outcome::Failed(fault) = record.outcome {
                            faults.push(fault);
                        }
                    }
                    Step::Retry(fault) if fault.retry == weir_model::Retry::Later && faults.len() < 100 => {
                        faults.push(fault)
                    }
                    Step::Retry(fault) | Step::Parked(fault) => {
                        faults.push(fault);
                        break;
                    }
                    Step::Waiting(stream) => {
                        let fault = Fault::external(
                            FaultKind::Source,
                            format_args!("{id}: stream {stream} is not where the last batch saw it"),
                        );
                        faults.push(fault);
                        break;
                    }
                    Step::NotDue(_) | Step::Ended | Step::Paused => break,
                }
            }
        }
        faults.extend(self.settle()?);
        // A host that only ever runs like this has no other time for it.
        faults.extend(self.upkeep()?);
        Ok(faults)
    }

    /// Flushes all streams and drains all sinks, as far as they can. Blocks.
    pub fn settle(&self) -> Result<Vec<Fault>, Fault> {
        let mut faults = self.settle_tables()?;
        for id in self.sink_ids() {
            if self.sink(&id).is_some_and(|s| matches!(*s, Sink::Notify(_))) {
                keep(self.drain(&id), &mut faults)?;
            }
        }
        Ok(faults)
    }

    /// Flushes all streams and drains the sinks that are tables, as far as they can. Blocks.
    pub fn settle_tables(&self) -> Result<Vec<Fault>, Fault> {
        let mut faults = Vec::new();
        for id in self.stream_ids() {
            keep(self.flush(&id).unwrap_or(Ok(())), &mut faults)?;
        }
        for id in self.sink_ids() {
            if self.sink(&id).is_some_and(|s| !matches!(*s, Sink::Notify(_))) {
                keep(self.drain(&id), &mut faults)?;
            }
        }
        Ok(faults)
    }

    /// Asks all loops to stop: each finishes what it is at, or leaves it undone.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// A backfill's outputs are published, or nothing is done with them: only a live run's sinks drain by themselves.
    pub(crate) fn add_sink(&self, sink: SinkId) {
        if sink.key.run != RunId::Live {
            return;
        }
        let bytes = self.pace.sink_bytes;
        self.parts().sinks.entry(sink.clone()).or_insert_with(|| Arc::new(Sink::new(sink, bytes)));
    }

    fn note_commit(&self) {
        let mut count = self.commits.0.lock().unwrap_or_else(PoisonError::into_inner);
        *count += 1;
        self.commits.1.notify_all();
        self.committed.send_replace(*count);
    }

    /// A scenario by id.
    pub fn scenario(&self, id: &ScenarioId) -> Option<Arc<Scenario>> {
        self.parts().scenarios.get(id).cloned()
    }
    /// A stream by id.
    pub fn stream(&self, id: &StreamId) -> Option<Arc<Stream>> {
        self.parts().streams.get(id).cloned()
    }
    /// Scenarios that run.
    pub fn scenario_ids(&self) -> Vec<ScenarioId> {
        self.parts().scenarios.keys().cloned().collect()
    }
    /// A sink by id.
    pub fn sink(&self, id: &SinkId) -> Option<Arc<Sink>> {
        self.parts().sinks.get(id).cloned()
    }
    /// Sinks that were seen.
    pub fn sink_ids(&self) -> Vec<SinkId> {
        self.parts().sinks.keys().cloned().collect()
    }
    /// Streams that are open.
    pub fn stream_ids(&self) -> Vec<StreamId> {
        self.parts().streams.keys().cloned().collect()
    }

    pub(crate) fn upkept(&self) -> MutexGuard<'_, BTreeMap<(Name, Name), TableStatus>> {
        self.upkept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn parts(&self) -> MutexGuard<'_, Parts> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sink that keeps a scenario's current alarms in their table.
pub(crate) fn alarms_sink(id: &ScenarioId) -> Result<SinkId, Fault> {
    Ok(SinkId { key: RunKey::live(id.clone()), output: Name::new(ALARMS).map_err(Fault::internal)? })
}

/// Keeps a fault and goes on, unless the host ends there.
fn keep(result: Result<(), Fault>, faults: &mut Vec<Fault>) -> Result<(), Fault> {
    match result {
        Err(fault) if fault.kind == FaultKind::Injected => Err(fault),
        Err(fault) => {
            faults.push(fault);
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// How long to wait after the n-th failure in a row: doubling from 200 ms, at most 30 s.
pub fn backoff(failures: u32) -> Span {
    Span::millis(200u64.saturating_mul(1 << failures.min(10)).min(30_000))
}
