//! Delta tables: one writer task each, flat appends, and reads that prune.
//!
//! ```text
//! append:  writer (order, idempotence) -> entry (file, statistics, log entry) -> folder (written, synced, put)
//! replace: writer -> replace (which files by their statistics) -> rewrite (rows that stay) -> entry -> folder
//! upkeep:  choose (which files) -> rewrite, beside the writer -> writer -> entry -> folder
//! else:    create (make, widen) · held, files (what the log says) · tidy (checkpoints) · read (bronze, ad hoc)
//! ```

mod choose;
mod create;
mod entry;
mod files;
mod folder;
mod held;
mod read;
mod replace;
mod rewrite;
mod stats;
mod tidy;
mod upkeep;
mod writer;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow_schema::SchemaRef;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use weir_model::batch::ALARMS;
use weir_model::port::{Append, Replace, Table, Upkeep, Upkept};
use weir_model::time::BoxFuture;
use weir_model::{Fault, FaultKind, FaultPoints, Name, Time};

use folder::{Folder, Presence};
pub(crate) use read::{Opened, Reader};
use writer::{Ask, Request};

/// How often a table's folder is looked through while a version can be read.
const LOOKS: u32 = 6;

/// How long older versions of the table of current alarms can be read, at most. A scenario's rows in it are replaced every few
/// seconds, so an hour of them makes a log that takes readers longer to list than the table does to read; what an alarm was
/// before is in `alarm_events`.
const CURRENT_ALARMS: Duration = Duration::from_secs(600);

/// What all tables of a lake are kept with.
#[derive(Debug)]
pub(crate) struct Settings {
    pub runtime: Handle,
    /// Versions between two checkpoints.
    pub checkpoint_every: u64,
    /// How long log entries below a checkpoint are kept.
    pub log_retention: Duration,
    /// About how many bytes a file of rows gets where rows are written anew.
    pub file_bytes: u64,
    /// How many files of about the same size are put together.
    pub merge_files: usize,
    /// How long versions of tables that batches are pinned to can be read.
    pub replay_horizon: Duration,
    /// Tables that batches are pinned to versions of, as `tenant/table`.
    pub pinned: Mutex<BTreeSet<String>>,
}

impl Settings {
    /// How long older versions of a table, `tenant/table`, can be read: their log entries and files stay.
    pub fn history_of(&self, table: &str) -> Duration {
        let pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner).contains(table);
        match table.split_once('/') {
            _ if pinned => self.log_retention.max(self.replay_horizon),
            Some((_, ALARMS)) => self.log_retention.min(CURRENT_ALARMS),
            _ => self.log_retention,
        }
    }
}

/// The writers of a lake, by table.
#[derive(Debug)]
pub(crate) struct Tables {
    root: PathBuf,
    settings: Arc<Settings>,
    faults: Arc<dyn FaultPoints>,
    writers: Mutex<HashMap<String, mpsc::Sender<Ask>>>,
    /// One upkeep at a time; when the folders of tables were last looked through.
    upkeep: tokio::sync::Mutex<HashMap<String, Time>>,
}

impl Tables {
    pub fn new(root: PathBuf, settings: Settings, faults: Arc<dyn FaultPoints>) -> Self {
        Self {
            root,
            settings: Arc::new(settings),
            faults,
            writers: Mutex::default(),
            upkeep: tokio::sync::Mutex::default(),
        }
    }

    /// The table, made when it is not there, widened when it lacks columns.
    pub async fn table(&self, tenant: &Name, table: &Name, schema: SchemaRef) -> Result<Arc<dyn Table>, Fault> {
        let folder = Folder::new(&self.root, tenant, table);
        let asks = self.writer(&folder);
        let id = ask(&asks, |reply| Ask::Open(schema, reply)).await?;
        Ok(Arc::new(Handed { asks, id }))
    }

    /// The upkeep of a table that is there. One table at a time.
    pub async fn upkeep(&self, tenant: &Name, table: &Name, what: Upkeep) -> Result<Upkept, Fault> {
        let mut looked = self.upkeep.lock().await;
        let folder = Folder::new(&self.root, tenant, table);
        if folder.presence()? == Presence::Absent {
            return Ok(Upkept::default());
        }
        let asks = self.writer(&folder);
        let before = looked.get(&folder.name).copied().unwrap_or(what.now);
        let looks = !looked.contains_key(&folder.name)
            || what.now.since(before) >= self.settings.history_of(&folder.name) / LOOKS;
        if looks {
            looked.insert(folder.name.clone(), what.now);
        }
        upkeep::keep(&folder, &self.settings, &self.faults, &asks, &what, looks).await
    }

    /// From now on batches are pinned to versions of this table: these stay readable for the replay horizon. Until the
    /// process ends, because batches of a ruleset that is not active any more are replayed too.
    pub fn pin(&self, tenant: &Name, table: &Name) {
        let mut pinned = self.settings.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        pinned.insert(Folder::new(&self.root, tenant, table).name);
    }

    /// Whether rows of this schema could be appended.
    pub async fn fits(&self, tenant: &Name, table: &Name, schema: SchemaRef) -> Result<(), Fault> {
        let (folder, schema) = (Folder::new(&self.root, tenant, table), create::plain(&schema));
        create::possible(&schema)?;
        match held::load(&folder, &[]).await? {
            Some(held) => create::lacking(&held.schema, &schema, &folder.name).map(|_| ()),
            None => Ok(()),
        }
    }

    /// A time at or before that of the earliest row.
    pub async fn oldest(&self, tenant: &Name, table: &Name, column: &str) -> Result<Option<Time>, Fault> {
        let folder = Folder::new(&self.root, tenant, table);
        if folder.presence()? == Presence::Absent {
            return Ok(None);
        }
        match ask(&self.writer(&folder), Ask::Survey).await? {
            Some(survey) => Ok(survey.oldest(column)),
            // Its rows are not in files that we know: they may be of any time.
            None => Ok(Some(Time(i64::MIN))),
        }
    }

    fn writer(&self, folder: &Folder) -> mpsc::Sender<Ask> {
        let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        let start = || writer::start(folder.clone(), self.settings.clone(), self.faults.clone());
        writers.entry(folder.name.clone()).or_insert_with(start).clone()
    }
}

/// A table as it was when it was asked for: appends go to that one only.
#[derive(Debug)]
struct Handed {
    asks: mpsc::Sender<Ask>,
    id: String,
}

impl Table for Handed {
    fn id(&self) -> BoxFuture<'_, Result<String, Fault>> {
        Box::pin(ask(&self.asks, Ask::Id))
    }

    fn held<'a>(&'a self, app: &'a str) -> BoxFuture<'a, Result<Option<i64>, Fault>> {
        let (id, app) = (self.id.clone(), app.to_owned());
        Box::pin(ask(&self.asks, move |reply| Ask::Held(id, app, reply)))
    }

    fn append(&self, items: Vec<Append>) -> BoxFuture<'_, Result<(), Fault>> {
        let id = self.id.clone();
        Box::pin(ask(&self.asks, move |reply| Ask::Append(Request { id, items, reply })))
    }

    fn replace(&self, what: Replace) -> BoxFuture<'_, Result<(), Fault>> {
        let id = self.id.clone();
        Box::pin(ask(&self.asks, move |reply| Ask::Replace(id, what, reply)))
    }
}

async fn ask<T>(
    asks: &mpsc::Sender<Ask>,
    make: impl FnOnce(oneshot::Sender<Result<T, Fault>>) -> Ask,
) -> Result<T, Fault> {
    let stopped = || Fault::host(FaultKind::Cancelled, "the table's writer has stopped");
    let (reply, answer) = oneshot::channel();
    asks.send(make(reply)).await.map_err(|_| stopped())?;
    answer.await.map_err(|_| stopped())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn current_alarms_have_ten_minutes_of_history_at_most() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let hours = |n: u64| Duration::from_secs(3600 * n);
        let mut settings = Settings {
            runtime: runtime.handle().clone(),
            checkpoint_every: 100,
            log_retention: hours(1),
            file_bytes: 1,
            merge_files: 2,
            replay_horizon: hours(24),
            pinned: Mutex::new(BTreeSet::from(["acme/inventory".to_owned()])),
        };
        let of = |settings: &Settings| {
            ["acme/s1_results", "acme/inventory", "acme/alarms", "acme/alarm_events"].map(|t| settings.history_of(t))
        };
        assert_eq!(of(&settings), [hours(1), hours(24), Duration::from_secs(600), hours(1)]);
        settings.log_retention = Duration::from_secs(60);
        assert_eq!(settings.history_of("acme/alarms"), Duration::from_secs(60));
        settings.pinned = Mutex::new(BTreeSet::from(["acme/alarms".to_owned()]));
        assert_eq!(settings.history_of("acme/alarms"), hours(24), "a batch may have to read that version again");
    }
}
