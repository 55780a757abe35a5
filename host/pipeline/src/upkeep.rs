//! Upkeep of the tables that the host writes: which there are and how long their rows are kept. The lake does the work,
//! one table at a time, beside batches and sinks.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_model::batch::{ALARM_EVENTS, ALARMS, BATCH_TIME, DEAD_LETTERS, HOST_OUTPUTS};
use weir_model::port::{Upkeep, Upkept};
use weir_model::service::TableStatus;
use weir_model::{Fault, FaultKind, Name, RunId};

use crate::host::Host;
use crate::side::DAY;
use crate::stream::table_name;

/// How long rows are kept where no definition says it.
#[derive(Debug, Clone)]
pub struct Keeping {
    /// How often each table is kept.
    pub every: Duration,
    /// Rows of result tables, without a `keep_days` of the output.
    pub results: Duration,
    /// Changes of alarms.
    pub alarms: Duration,
    /// Dead letters, from when they were written.
    pub dead_letters: Duration,
}

impl Default for Keeping {
    fn default() -> Self {
        Self { every: Duration::from_secs(60), results: 365 * DAY, alarms: 365 * DAY, dead_letters: 30 * DAY }
    }
}

/// One table, and how long its rows are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    tenant: Name,
    table: Name,
    column: Option<String>,
    keep: Option<Duration>,
}

/// Tables by tenant and name, each with what its rows grow old by and how long they are kept.
#[derive(Default)]
struct Found(BTreeMap<(Name, Name), (Option<String>, Option<Duration>)>);

impl Found {
    fn add(&mut self, tenant: &Name, table: Name, column: Option<&str>, keep: Option<Duration>) {
        let entry = self.0.entry((tenant.clone(), table)).or_insert_with(|| (column.map(str::to_owned), keep));
        // Two that write to one table: what the more careful one keeps stays.
        entry.1 = entry.1.zip(keep).map(|(a, b)| a.max(b));
    }

    /// The tables that the host writes for every tenant.
    fn add_of_host(&mut self, tenant: &Name, keeping: &Keeping) {
        let tables = [
            (ALARM_EVENTS, Some("time"), Some(keeping.alarms)),
            (ALARMS, None, None),
            (DEAD_LETTERS, None, Some(keeping.dead_letters)),
        ];
        for (table, column, keep) in tables {
            if let Ok(table) = Name::new(table) {
                self.add(tenant, table, column, keep);
            }
        }
    }
}

impl Host {
    /// Every table that streams and active rulesets write to, in order.
    pub(crate) fn tables(&self) -> Vec<Kept> {
        let mut found = Found::default();
        let keeping = &self.pace.keeping;
        let (streams, sinks) = {
            let parts = self.parts();
            (parts.streams.clone(), parts.sinks.keys().cloned().collect::<Vec<_>>())
        };
        for (id, stream) in &streams {
            let keep = DAY * stream.def.keep_days;
            found.add(&id.tenant, table_name(id, &stream.def), Some(&stream.def.event_time), Some(keep));
            found.add_of_host(&id.tenant, keeping);
        }
        for view in self.engines.store.scenarios() {
            let Some(active) = view.active.filter(|_| !view.removed) else { continue };
            let outputs = &active.ruleset.manifest.outputs;
            let mut names: Vec<Name> = outputs.keys().cloned().collect();
            let own = sinks.iter().filter(|s| s.key.scenario == view.id && s.key.run == RunId::Live);
            names.extend(own.map(|s| s.output.clone()));
            for name in names {
                if HOST_OUTPUTS.contains(&name.as_str()) {
                    continue;
                }
                let def = outputs.get(&name);
                let keep = def.and_then(|d| d.keep_days).map_or(keeping.results, |days| DAY * days);
                let table = def.map_or_else(|| name.clone(), |d| d.table.clone());
                found.add(&view.id.tenant, table, Some(BATCH_TIME), Some(keep));
            }
            found.add_of_host(&view.id.tenant, keeping);
        }
        let kept = |((tenant, table), (column, keep))| Kept { tenant, table, column, keep };
        found.0.into_iter().map(kept).collect()
    }

    /// Keeps every table once. Blocks. Answers the faults that were met.
    pub fn upkeep(&self) -> Result<Vec<Fault>, Fault> {
        let mut faults = Vec::new();
        for kept in self.tables() {
            match self.upkeep_of(kept) {
                Err(fault) if fault.kind == FaultKind::Injected => return Err(fault),
                Err(fault) => faults.push(fault),
                Ok(_) => {}
            }
        }
        Ok(faults)
    }

    /// Keeps one table. Blocks.
    pub(crate) fn upkeep_of(&self, kept: Kept) -> Result<Upkept, Fault> {
        let now = self.engines.clock.now();
        // Rows and files that go make room on a disk that is full; putting files together takes some first.
        let what = Upkeep { now: self.age_now(), column: kept.column, keep: kept.keep, merge: self.room().is_ok() };
        let done = self.engines.runtime.block_on(self.engines.lake.upkeep(&kept.tenant, &kept.table, what));
        let mut upkept = self.upkept();
        let key = (kept.tenant.clone(), kept.table.clone());
        let status =
            upkept.entry(key).or_insert_with(|| TableStatus::new(kept.tenant.clone(), kept.table.clone(), now));
        status.at = now;
        match &done {
            Ok(done) => {
                let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
                status.files = count(done.files);
                status.bytes = done.bytes;
                status.rows = done.rows;
                status.merged_files += count(done.merged_files);
                status.expired_rows += done.expired_rows;
                status.removed_files += count(done.removed_files);
                status.fault = None;
                let (tenant, table) = (&kept.tenant, &kept.table);
                if done.expired_files > 0 {
                    let (files, rows) = (done.expired_files, done.expired_rows);
                    tracing::info!(%tenant, %table, files, rows, "rows that were kept long enough were removed");
                }
                if done.merged_files > 0 || done.removed_files > 0 {
                    let (merged, removed) = (done.merged_files, done.removed_files);
                    tracing::debug!(%tenant, %table, files = done.files, merged, removed, "upkeep");
                }
            }
            Err(fault) => {
                if status.fault.is_none() {
                    tracing::warn!(tenant = %kept.tenant, table = %kept.table, "upkeep: {fault}");
                }
                status.fault = Some(fault.clone());
            }
        }
        done
    }
}
