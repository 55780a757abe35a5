//! The one place where the store stands, so that it can be dropped and opened again under everybody's feet.
//!
//! fjall takes no write after one has failed: the only way on is to close the store and replay its journal. Whoever
//! reads holds the slot's read lock for the length of one call and keeps no handle beyond it.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use weir_model::{Fault, FaultPoints, Incarnation, Retry};

use crate::format::{Folder, patiently};
use crate::store::{Pinned, Store, disk_fault, io_fault, ledger_fault, store_fault};
use crate::witness::Witness;
use crate::{LedgerConfig, check, fsguard};

/// Everything of a ledger except the way to its writer.
#[derive(Debug)]
pub(crate) struct Core {
    pub folder: Folder,
    pub config: LedgerConfig,
    pub incarnation: Incarnation,
    pub witness: Witness,
    pub faults: Arc<dyn FaultPoints>,
    pub counters: Counters,
    #[cfg(test)]
    pub sabotage: crate::tests::Sabotage,
    slot: RwLock<Option<Store>>,
    /// Held, never read. Released last.
    _lock: File,
}

/// What the writer has done since the ledger was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub groups: AtomicU64,
    pub commits: AtomicU64,
    pub syncs: AtomicU64,
    pub largest_group: AtomicU64,
    pub reopened: AtomicU64,
}

impl Core {
    /// Opens a ledger's folder: see [`crate::FjallLedger::open`].
    pub(crate) fn open(folder: Folder, config: LedgerConfig, faults: Arc<dyn FaultPoints>) -> Result<Self, Fault> {
        let lock = folder.lock()?;
        folder.prepare()?;
        let mut store = open_store(&folder, &config, 1)?;
        let witness = Witness::open(&folder.heads(), store.incarnation.clone())
            .map_err(|e| io_fault("the ledger's heads cannot be opened", &e))?;
        look_over(&mut store, &witness, &config)?;
        Ok(Self {
            folder,
            config,
            incarnation: store.incarnation.clone(),
            witness,
            faults,
            counters: Counters::default(),
            #[cfg(test)]
            sabotage: crate::tests::Sabotage::default(),
            slot: RwLock::new(Some(store)),
            _lock: lock,
        })
    }

    /// Uses the open store; opens it first when it is closed. Must not be called inside of `f`.
    pub(crate) fn with_store<T, E: From<Fault>>(&self, f: impl FnOnce(&Store) -> Result<T, E>) -> Result<T, E> {
        loop {
            if let Some(store) = &*self.slot.read().unwrap_or_else(PoisonError::into_inner) {
                return f(store);
            }
            let mut slot = self.slot.write().unwrap_or_else(PoisonError::into_inner);
            if slot.is_none() {
                let reopened = self.counters.reopened.load(Relaxed) + 1;
                let mut store = open_store(&self.folder, &self.config, 1 + reopened)?;
                look_over(&mut store, &self.witness, &self.config)?;
                *slot = Some(store);
                self.counters.reopened.store(reopened, Relaxed);
            }
        }
    }

    /// Closes the store, because it failed. The next call opens it again.
    pub(crate) fn close(&self) {
        *self.slot.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Reads what is durable, at one moment.
    pub(crate) fn read<T>(&self, f: impl FnOnce(&Pinned<'_>) -> Result<T, Fault>) -> Result<T, Fault> {
        self.with_store(|store| f(&store.published()))
    }

    /// The fault for a store that failed to write `bytes`. A worker of fjall that met a full disk only leaves a
    /// poisoned store behind; then the disk itself is asked.
    pub(crate) fn write_fault(&self, e: &fjall::Error, bytes: u64) -> Fault {
        let needed = bytes.max(self.config.memtable_bytes);
        match e {
            fjall::Error::Poisoned if self.lacks(needed) => disk_fault("the store has no room"),
            e => store_fault("the store cannot be written", e),
        }
    }

    /// Whether the disk has less room than this.
    pub(crate) fn lacks(&self, bytes: u64) -> bool {
        fsguard::free_bytes(self.folder.path()).is_some_and(|free| free < bytes)
    }
}

fn open_store(folder: &Folder, config: &LedgerConfig, generation: u64) -> Result<Store, Fault> {
    let open = || Store::open(&folder.store(), config, generation);
    patiently(open, |opened| matches!(opened, Err(fjall::Error::Locked))).map_err(|e| match e {
        fjall::Error::Locked => ledger_fault("another host holds the data folder"),
        e @ (fjall::Error::JournalRecovery(_) | fjall::Error::Unrecoverable | fjall::Error::InvalidVersion(_)) => {
            ledger_fault(format_args!("the store is damaged: {e:?}"))
                .retry(Retry::Never)
                .fix("restore the data folder from a backup")
        }
        e => store_fault("the store cannot be opened", &e),
    })
}

/// Looks for damage, and remembers it in the store.
fn look_over(store: &mut Store, witness: &Witness, config: &LedgerConfig) -> Result<(), Fault> {
    store.damaged = check::quick(&store.published(), witness, config.open_walk)?;
    for fault in store.damaged.values() {
        tracing::error!(%fault, "a run of the ledger is damaged");
    }
    Ok(())
}
