//! Keeps a table's log short, off the append path: checkpoints, and what lies below them goes. Failing is logged only,
//! because the next checkpoint does the same work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use deltalake::checkpoints::{cleanup_expired_logs_for, create_checkpoint};
use weir_model::Fault;

use super::Settings;
use super::entry::now_millis;
use super::folder::Folder;
use super::held::open;
use crate::error::delta_fault;

/// The upkeep of one table's log.
#[derive(Debug)]
pub(crate) struct Tidy {
    folder: Folder,
    settings: Arc<Settings>,
    running: Arc<AtomicBool>,
    /// Version of the latest checkpoint that was made or tried here.
    done: Arc<AtomicU64>,
}

impl Tidy {
    pub fn new(folder: Folder, settings: Arc<Settings>) -> Self {
        Self { folder, settings, running: Arc::default(), done: Arc::default() }
    }

    /// Told of every version. Starts at most one upkeep at a time, from a fresh handle.
    pub fn after(&self, version: u64, checkpoint: u64) {
        let last = self.done.load(Ordering::Relaxed).max(checkpoint);
        if version < last + self.settings.checkpoint_every || self.running.swap(true, Ordering::AcqRel) {
            return;
        }
        self.done.store(version, Ordering::Relaxed);
        let (folder, running, settings) = (self.folder.clone(), self.running.clone(), self.settings.clone());
        self.settings.runtime.spawn(async move {
            let history = settings.history_of(&folder.name);
            if let Err(fault) = tidy(&folder, history).await {
                tracing::warn!(table = folder.name, %fault, "a checkpoint failed; the next one makes up for it");
            }
            running.store(false, Ordering::Release);
        });
    }
}

async fn tidy(folder: &Folder, history: Duration) -> Result<(), Fault> {
    let fault = |e| delta_fault(&folder.name, &e);
    let Some(table) = open(folder).await? else {
        return Ok(());
    };
    create_checkpoint(&table, None).await.map_err(fault)?;
    // Entries go only after what replaces them is on the disk.
    let files = folder.checkpoint_files(table.version().unwrap_or(0));
    folder.sync_files(&files)?;
    let version = table.version().unwrap_or(0);
    let log = table.log_store();
    let before = now_millis().saturating_sub(i64::try_from(history.as_millis()).unwrap_or(i64::MAX));
    let removed = cleanup_expired_logs_for(version, log.as_ref(), before, None).await.map_err(fault)?;
    tracing::debug!(table = folder.name, version = table.version(), removed, "checkpoint");
    Ok(())
}
