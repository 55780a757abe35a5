//! Delta tables: one writer task each, flat appends, and reads that prune.
//!
//! ```text
//! append:  writer (order, idempotence) -> entry (file, statistics, log entry) -> folder (written, synced, put)
//! replace: writer -> replace (which files by their statistics) -> rewrite (rows that stay) -> entry -> folder
//! else:    create (make, widen) · held, files (what the log says) · tidy (checkpoints) · read (bronze, ad hoc)
//! ```

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
mod writer;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow_schema::SchemaRef;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use weir_model::port::{Append, Replace, Table};
use weir_model::time::BoxFuture;
use weir_model::{Fault, FaultKind, FaultPoints, Name};

use folder::Folder;
pub(crate) use read::{Opened, Reader};
use writer::{Ask, Request};

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
}

/// The writers of a lake, by table.
#[derive(Debug)]
pub(crate) struct Tables {
    root: PathBuf,
    settings: Arc<Settings>,
    faults: Arc<dyn FaultPoints>,
    writers: Mutex<HashMap<String, mpsc::Sender<Ask>>>,
}

impl Tables {
    pub fn new(root: PathBuf, settings: Settings, faults: Arc<dyn FaultPoints>) -> Self {
        Self { root, settings: Arc::new(settings), faults, writers: Mutex::default() }
    }

    /// The table, made when it is not there, widened when it lacks columns.
    pub async fn table(&self, tenant: &Name, table: &Name, schema: SchemaRef) -> Result<Arc<dyn Table>, Fault> {
        let folder = Folder::new(&self.root, tenant, table);
        let asks = {
            let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
            let start = || writer::start(folder.clone(), self.settings.clone(), self.faults.clone());
            writers.entry(folder.name.clone()).or_insert_with(start).clone()
        };
        let id = ask(&asks, |reply| Ask::Open(schema, reply)).await?;
        Ok(Arc::new(Handed { asks, id }))
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
