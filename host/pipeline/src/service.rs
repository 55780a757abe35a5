//! A host as its users see it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema};
use weir_model::alarm::{AlarmState, AlarmStatus};
use weir_model::batch::{ALARMS, BatchRecord, CURRENT_ALARMS, HOT, SinkCursor};
use weir_model::columns::timestamp_type;
use weir_model::port::{Prepared, ScenarioView, ViewTable};
use weir_model::review::{Held, Review, ReviewAsk};
use weir_model::service::{
    BackfillAsk, BackfillProgress, BatchStatus, Events, FileStatus, HistoryEntry, PluginStatus, Readiness, Rows,
    ScenarioState, ScenarioStatus, Service, SideReport, SinkStatus, Status, StreamStatus,
};
use weir_model::{BatchId, Digest, Fault, FaultKind, Name, Offsets, RunKey, ScenarioId, SinkId, Time};

use crate::alarm_table::AlarmTable;
use crate::backfill;
use crate::batch::Streams;
use crate::host::{Host, alarms_sink};
use crate::output;
use crate::review::{self, Present};
use crate::scenario::{Scenario, Shown};
use crate::side::{self, Side};

impl Service for Host {
    fn status(&self) -> Result<Status, Fault> {
        let engines = &self.engines;
        let views = engines.store.scenarios();
        let sinks = engines.ledger.sinks()?;
        let full = self.room().err();
        let mut scenarios = Vec::new();
        for view in views {
            let mut status = self.scenario_status(&view, full.as_ref())?;
            status.sinks = self.sink_status(&view.id, &sinks, status.last_batch.as_ref(), full.as_ref());
            scenarios.push(status);
        }
        let mut streams = Vec::new();
        for view in engines.store.streams() {
            let open = self.stream(&view.id);
            let size = open.as_ref().map(|s| s.window.size()).unwrap_or_default();
            let (dead_letters, late_rows) = open.as_ref().map(|s| s.put_aside()).unwrap_or_default();
            let lateness = view.def.as_ref().map(|d| d.watermark.get()).unwrap_or_default();
            let flushed = match &open {
                Some(stream) => stream.flushed(),
                None => engines.ledger.bronze(&view.id)?.flushed,
            };
            streams.push(StreamStatus {
                tenant: view.id.tenant.clone(),
                stream: view.id.stream.clone(),
                generation: open.as_ref().map_or(0, |s| s.generation()),
                offsets: open.as_ref().map_or_else(Offsets::default, |s| s.window.offsets()),
                flushed,
                watermark: open.as_ref().and_then(|s| s.window.latest().values().map(|t| t.minus(lateness)).min()),
                window_rows: size.rows,
                window_bytes: size.bytes,
                dead_letters,
                late_rows,
                rejected: view.rejected,
                fault: open
                    .and_then(|s| s.fault())
                    .or_else(|| self.parts().stream_faults.get(&view.id).cloned())
                    .or_else(|| full.clone()),
            });
        }
        let live = self.live.load(Ordering::Acquire);
        let tables = self.upkept().values().cloned().collect();
        let (time, ledger) = (engines.clock.now(), engines.ledger.incarnation());
        Ok(Status { time, live, ledger, scenarios, streams, tables, fault: full })
    }

    fn ready(&self) -> Readiness {
        let mut waiting = Vec::new();
        if !self.looked.load(Ordering::Acquire) {
            waiting.push("the first look at the rule store".to_owned());
        }
        for view in self.engines.store.streams() {
            if view.def.is_some() && self.stream(&view.id).is_none() {
                waiting.push(format!("stream {}", view.id));
            }
        }
        Readiness { ready: waiting.is_empty(), waiting }
    }

    fn alarms(&self, scenario: Option<&ScenarioId>, cleared: bool) -> Result<Vec<AlarmState>, Fault> {
        let ids = match scenario {
            Some(id) => vec![id.clone()],
            None => self.engines.ledger.scenarios()?,
        };
        let mut out = Vec::new();
        for id in ids {
            let alarms = self.engines.ledger.alarms(&id)?;
            out.extend(alarms.into_iter().filter(|a| cleared || a.status != AlarmStatus::Cleared));
        }
        out.sort_by(|a, b| b.severity.cmp(&a.severity).then(a.opened_at.cmp(&b.opened_at)));
        Ok(out)
    }

    fn events(&self, after: &BTreeMap<String, BatchId>, limit: usize, wait_ms: u64) -> Result<Events, Fault> {
        let deadline = Instant::now() + Duration::from_millis(wait_ms);
        let mut seen = *self.commits.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let page = self.page(after, limit)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if !page.events.is_empty() || left.is_zero() || *self.stop.borrow() {
                return Ok(page);
            }
            let guard = self.commits.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Woken early now and then, so that a host that stops does not keep its callers.
            let left = left.min(Duration::from_millis(500));
            let (guard, _) =
                self.commits.1.wait_timeout_while(guard, left, |n| *n == seen).unwrap_or_else(PoisonError::into_inner);
            seen = *guard;
        }
    }

    fn query(&self, tenant: &Name, sql: &str) -> Result<Rows, Fault> {
        let mut views = vec![current_alarms(&self.tenant_alarms(tenant)?)?];
        let streams: Vec<_> = self.parts().streams.values().filter(|s| s.id.tenant == *tenant).cloned().collect();
        for stream in streams {
            let (chunks, _) = stream.window.rows(&Offsets::default(), &stream.window.offsets());
            views.push(ViewTable {
                name: format!("{HOT}{}", stream.id.stream),
                schema: stream.def.positioned_schema(),
                rows: chunks.into_iter().map(|c| c.rows).collect(),
                stands_in: false,
            });
        }
        views.extend(output::own_tables()?);
        output::rows_of(&self.engines.adhoc.query(tenant, sql, views)?)
    }

    fn ledger(&self, key: &RunKey, after: Option<BatchId>, limit: usize) -> Result<Vec<BatchRecord>, Fault> {
        self.known(&key.scenario)?;
        self.engines.ledger.records(key, after, limit)
    }

    fn newest(&self, key: &RunKey, limit: usize) -> Result<Vec<BatchRecord>, Fault> {
        self.known(&key.scenario)?;
        let Some(head) = self.engines.ledger.head(key)? else { return Ok(Vec::new()) };
        let before = head.plan.id.0.saturating_sub(limit as u64);
        self.engines.ledger.records(key, (before > 0).then_some(BatchId(before)), limit)
    }

    fn side(&self, id: &ScenarioId, at: Time, latest: bool) -> Result<SideReport, Fault> {
        let (side, streams) = self.side_of(id, at, latest)?;
        side::run(&self.engines, side, &streams)
    }

    fn review(&self, ask: &ReviewAsk) -> Result<Review, Fault> {
        self.known(&ask.scenario)?;
        let at = match ask.at {
            Some(at) => at,
            None => self.last_time(&ask.scenario)?,
        };
        let (side, streams) = self.side_of(&ask.scenario, at, ask.latest)?;
        review::run(&self.engines, side, &streams, ask, self.present(&ask.scenario)?)
    }

    fn backfill(&self, ask: &BackfillAsk) -> Result<BackfillProgress, Fault> {
        self.known(&ask.scenario)?;
        backfill::step(self, ask)
    }

    fn history(&self, id: &ScenarioId) -> Result<Vec<HistoryEntry>, Fault> {
        self.engines.history.history(id)
    }

    fn rollback(&self, id: &ScenarioId, to: Option<Digest>) -> Result<Digest, Fault> {
        self.engines.history.rollback(id, to)
    }

    fn unpin(&self, id: &ScenarioId) -> Result<(), Fault> {
        self.engines.history.unpin(id)
    }

    fn forget(&self, id: &ScenarioId) -> Result<(), Fault> {
        self.known(id)?;
        if self.engines.store.scenario(id).is_some_and(|v| !v.removed && (v.active.is_some() || v.pending.is_some())) {
            return Err(Fault::tenant(FaultKind::Config, format_args!("scenario {id} is still in the rule store"))
                .fix("remove its folder first; forgetting erases its batches, state and alarms for good"));
        }
        self.parts().scenarios.remove(id);
        self.parts().sinks.retain(|sink, _| sink.key.scenario != *id);
        // First the rows: what the ledger does not know any more, nobody takes out of the table.
        AlarmTable::new(alarms_sink(id)?).forget(&self.engines)?;
        self.engines.ledger.forget(id)?;
        self.engines.history.forget(id)
    }

    fn resume(&self, id: &ScenarioId) -> Result<(), Fault> {
        self.known(id)?;
        let paused = self.engines.ledger.paused(id)?.is_some();
        if paused {
            self.engines.ledger.put_paused(id, None)?;
            tracing::info!(scenario = %id, "resumed");
        }
        match self.scenario(id) {
            Some(scenario) => scenario.resume(),
            // Nothing runs here, and the next host will find it resumed.
            None if paused => {}
            None => {
                return Err(Fault::tenant(FaultKind::NotFound, format_args!("scenario {id} does not run"))
                    .fix("`weir status` says why: it is removed, or no version of it was ever good"));
            }
        }
        Ok(())
    }

    fn pause(&self, id: &ScenarioId) -> Result<(), Fault> {
        self.known(id)?;
        if self.engines.store.scenario(id).is_none_or(|view| view.removed) {
            let removed = format_args!("scenario {id} is not in the rule store any more, and does not tick");
            return Err(Fault::tenant(FaultKind::NotFound, removed).fix("`weir forget` erases what is left of it"));
        }
        if self.engines.ledger.paused(id)?.is_none() {
            self.engines.ledger.put_paused(id, Some(self.engines.clock.now()))?;
            tracing::info!(scenario = %id, "paused");
        }
        Ok(())
    }
}

impl Host {
    /// Refuses a scenario that nobody knows.
    fn known(&self, id: &ScenarioId) -> Result<(), Fault> {
        match self.engines.store.scenario(id).is_some() || self.engines.ledger.scenarios()?.contains(id) {
            true => Ok(()),
            false => Err(Fault::no_scenario(id)),
        }
    }

    /// What a side run is made of, with the streams that it reads.
    fn side_of(&self, id: &ScenarioId, at: Time, latest: bool) -> Result<(Side, Streams), Fault> {
        self.known(id)?;
        if !self.live.load(Ordering::Acquire) {
            self.reconcile()?;
        }
        let (record, prepared) = side::ground(&self.engines, id, at, latest)?;
        let streams = self.streams_of(&prepared).map_err(|name| {
            Fault::external(
                FaultKind::NotReplayable,
                format_args!("stream {name} is not open, or has another schema now"),
            )
            .fix("`weir status` says what is wrong with the stream")
        })?;
        if !self.live.load(Ordering::Acquire) {
            for (name, stream) in &streams {
                // A replay needs no source where its rows are there: it may be of another day.
                let upto = record.as_ref().filter(|_| !latest).and_then(|r| r.plan.streams.get(name)).map(|p| &p.upto);
                if !upto.is_some_and(|upto| stream.window.offsets().reaches(upto)) {
                    stream.read_to_end(&self.engines, self.pace.poll, 10_000)?;
                }
            }
        }
        Ok((side::prepare(&self.engines, id, at, latest, (record, prepared), &streams)?, streams))
    }

    /// T of the last batch.
    fn last_time(&self, id: &ScenarioId) -> Result<Time, Fault> {
        let head = self.engines.ledger.head(&RunKey::live(id.clone()))?;
        head.map(|head| head.plan.time).ok_or_else(|| {
            Fault::tenant(FaultKind::NotFound, format_args!("scenario {id} has no committed batch"))
                .fix("say for which time with --at TIME; `weir status` says what the scenario does")
        })
    }

    /// What the scenario does now, as far as this host can tell.
    fn present(&self, id: &ScenarioId) -> Result<Present, Fault> {
        let Some(view) = self.engines.store.scenario(id) else { return Ok(Present::default()) };
        let status = self.scenario_status(&view, self.room().err().as_ref())?;
        // That nothing holds it is known to a host that runs it only.
        let known = self.live.load(Ordering::Acquire) || status.state != ScenarioState::Running;
        let held = Held { state: known.then_some(status.state), fault: status.fault };
        Ok(Present { held, rejected: status.rejected, paused: status.paused })
    }

    /// `full`: too little disk is free.
    fn scenario_status(&self, view: &ScenarioView, full: Option<&Fault>) -> Result<ScenarioStatus, Fault> {
        let engines = &self.engines;
        let running = self.scenario(&view.id);
        let ticks = running.is_some() || !self.live.load(Ordering::Acquire);
        let known = running.clone().unwrap_or_else(|| Arc::new(Scenario::new(view.id.clone())));
        let Shown { head, last: last_batch, parked, fault, ended, waiting } = known.shown(engines)?;
        let paused = engines.ledger.paused(&view.id)?;
        let state = match &view.active {
            Some(_) if !view.removed && !ended && paused.is_some() => ScenarioState::Paused,
            Some(_) if !view.removed && parked => ScenarioState::Parked,
            Some(_) if !view.removed && !ended => ScenarioState::Running,
            _ => ScenarioState::Stopped,
        };
        // Nothing is active yet where the store has not been looked at for want of room.
        let unread = view.active.is_none() && !view.removed && self.live.load(Ordering::Acquire);
        let held = full.filter(|_| unread || state == ScenarioState::Running && (waiting || !ticks));
        let held = held.map(|full| Fault { message: format!("no batch begins: {}", full.message), ..full.clone() });
        let open = engines.ledger.alarms(&view.id)?.iter().filter(|a| a.status != AlarmStatus::Cleared).count();
        Ok(ScenarioStatus {
            tenant: view.id.tenant.clone(),
            scenario: view.id.scenario.clone(),
            state,
            ruleset: view.active.as_ref().map(|p| p.ruleset.digest),
            active_since: view.active_since,
            plugin: view.active.as_deref().and_then(plugin_status),
            rules: view.active.as_deref().map(rule_status).unwrap_or_default(),
            pending: view.pending.clone(),
            rejected: view.rejected.clone(),
            pinned: view.pinned,
            fault: fault.or(held),
            last_batch,
            skipped_ticks: head.map_or(0, |h| h.plan.skipped_total),
            sinks: Vec::new(),
            open_alarms: open as u64,
            paused,
        })
    }

    /// The live sinks of a scenario: those that the ledger knows, and those that have not drained anything yet.
    fn sink_status(
        &self,
        id: &ScenarioId,
        known: &[(SinkId, Option<SinkCursor>, u64)],
        last: Option<&BatchStatus>,
        full: Option<&Fault>,
    ) -> Vec<SinkStatus> {
        let live = RunKey::live(id.clone());
        let kept = known.iter().filter(|(s, _, _)| s.key == live);
        let mut sinks: BTreeMap<SinkId, (Option<BatchId>, u64)> =
            kept.map(|(s, cursor, behind)| (s.clone(), (cursor.as_ref().map(|c| c.drained_to), *behind))).collect();
        let parts = self.parts();
        for sink in parts.sinks.keys().filter(|s| s.key == live) {
            sinks.entry(sink.clone()).or_default();
        }
        let status = |(sink, (drained_to, behind)): (SinkId, (Option<BatchId>, u64))| {
            // The alarms have no outputs: they are behind by the batches since they were written.
            let batches = last.map_or(0, |b| b.id.0).saturating_sub(drained_to.map_or(0, |n| n.0));
            let behind = if sink.output.as_str() == ALARMS { batches } else { behind };
            SinkStatus {
                fault: parts.sinks.get(&sink).and_then(|s| s.fault()).or_else(|| full.cloned().filter(|_| behind > 0)),
                dead_letters: parts.sinks.get(&sink).map_or(0, |s| s.dead_letters()),
                in_pace: parts.sinks.get(&sink).is_some_and(|s| s.in_pace(self.engines.clock.elapsed())),
                sink: sink.output,
                drained_to,
                behind,
            }
        };
        sinks.into_iter().map(status).collect()
    }

    fn page(&self, after: &BTreeMap<String, BatchId>, limit: usize) -> Result<Events, Fault> {
        let mut out = Events { events: Vec::new(), next: after.clone() };
        for id in self.engines.ledger.scenarios()? {
            let name = id.to_string();
            let key = RunKey::live(id);
            'records: loop {
                let records = self.engines.ledger.records(&key, out.next.get(&name).copied(), 256)?;
                let last_page = records.len() < 256;
                for record in records {
                    if out.events.len() >= limit {
                        break 'records;
                    }
                    out.next.insert(name.clone(), record.plan.id);
                    out.events.extend(record.events);
                }
                if last_page {
                    break;
                }
            }
        }
        out.events.sort_by_key(|e| e.time);
        Ok(out)
    }

    fn tenant_alarms(&self, tenant: &Name) -> Result<Vec<AlarmState>, Fault> {
        let mut out = Vec::new();
        for id in self.engines.ledger.scenarios()?.iter().filter(|id| id.tenant == *tenant) {
            out.extend(self.engines.ledger.alarms(id)?);
        }
        Ok(out)
    }
}

/// None where detection is declared.
fn plugin_status(prepared: &Prepared) -> Option<PluginStatus> {
    prepared.ruleset.manifest.plugin.as_ref()?;
    let d = prepared.detector.description();
    Some(PluginStatus { name: d.name.clone(), version: d.version.clone(), digest: prepared.detector.digest() })
}

fn rule_status(prepared: &Prepared) -> Vec<FileStatus> {
    let files = &prepared.ruleset.manifest.rules;
    prepared
        .rules
        .names()
        .into_iter()
        .map(|(name, digest)| FileStatus { file: files.get(&name).cloned().unwrap_or_default(), name, digest })
        .collect()
}

/// Current alarms as the table `current_alarms`.
fn current_alarms(alarms: &[AlarmState]) -> Result<ViewTable, Fault> {
    let text = |f: &dyn Fn(&AlarmState) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(alarms.iter().map(f)))
    };
    let time = |f: &dyn Fn(&AlarmState) -> Option<Time>| -> ArrayRef {
        let times: TimestampMicrosecondArray = alarms.iter().map(|a| f(a).map(Time::micros)).collect();
        Arc::new(times.with_timezone("UTC"))
    };
    let count = |f: &dyn Fn(&AlarmState) -> u64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(alarms.iter().map(|a| i64::try_from(f(a)).unwrap_or(i64::MAX))))
    };
    let columns: Vec<(&str, DataType, ArrayRef)> = vec![
        ("scenario", DataType::Utf8, text(&|a| a.scenario.to_string())),
        ("alarm", DataType::Utf8, text(&|a| a.name.to_string())),
        ("key", DataType::Utf8, text(&|a| output::key_json(&a.key_names, &a.key).to_string())),
        ("status", DataType::Utf8, text(&|a| a.status.to_string())),
        ("severity", DataType::Utf8, text(&|a| a.severity.to_string())),
        ("message", DataType::Utf8, text(&|a| a.message.clone())),
        ("fields", DataType::Utf8, text(&|a| output::fields_json(&a.fields).to_string())),
        ("opened_at", timestamp_type(), time(&|a| Some(a.opened_at))),
        ("last_seen", timestamp_type(), time(&|a| Some(a.last_seen))),
        ("cleared_at", timestamp_type(), time(&|a| a.cleared_at)),
        ("count", DataType::Int64, count(&|a| a.count)),
        ("batch_id", DataType::Int64, count(&|a| a.batch.0)),
        ("ruleset", DataType::Utf8, text(&|a| a.ruleset.to_string())),
    ];
    let fields: Vec<Field> = columns.iter().map(|(n, ty, _)| Field::new(*n, ty.clone(), true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let arrays = columns.into_iter().map(|(_, _, c)| c).collect();
    let rows = RecordBatch::try_new(schema.clone(), arrays).map_err(Fault::internal)?;
    Ok(ViewTable { name: CURRENT_ALARMS.to_owned(), schema, rows: vec![rows], stands_in: false })
}
