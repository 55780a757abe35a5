//! What can be set, and what can be watched.

use std::sync::atomic::Ordering::Relaxed;

use serde::{Deserialize, Serialize};

use crate::slot::Counters;

/// Bounds of a ledger. How long things are kept is not here: that is [`weir_model::port::Ledger::retain`]'s horizon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LedgerConfig {
    /// Bytes that share one sync, about. A single commit may be larger. Default 16 MiB.
    pub group_bytes: usize,
    /// Commits and other changes that share one sync. Default 256.
    pub group_tasks: usize,
    /// Changes that may wait for the writer; further callers block. Default 1024.
    pub queue: usize,
    /// An encoded output that is larger becomes a file of its own. The store writes a value about three times (journal,
    /// flush, compaction), a file is written once but costs two syncs. Default 1 MiB.
    pub spill_bytes: usize,
    /// Attempts at a group after the first one failed; the store is opened again before each. Default 2.
    pub retries: u32,
    /// Cached blocks of the store; the system caches its files besides. Default 8 MiB.
    pub cache_bytes: u64,
    /// Journals that may pile up before the store flushes what holds them. Bounds what is replayed at start. At least
    /// 64 MiB, which is the default.
    pub journal_bytes: u64,
    /// Memory for unflushed values of one large keyspace; the small ones take a quarter. Bounds how long a flush stalls
    /// commits, and what a host that writes little keeps. Default 4 MiB.
    pub memtable_bytes: u64,
    /// Batches of each run, from the head back, whose chain is walked when the ledger is opened. `check` walks all.
    /// Default 256.
    pub open_walk: u64,
}

impl Default for LedgerConfig {
    fn default() -> Self {
        Self {
            group_bytes: 16 << 20,
            group_tasks: 256,
            queue: 1024,
            spill_bytes: 1 << 20,
            retries: 2,
            cache_bytes: 8 << 20,
            journal_bytes: 64 << 20,
            memtable_bytes: 4 << 20,
            open_walk: 256,
        }
    }
}

/// What the writer has done since the ledger was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LedgerStats {
    /// Groups that were written. `commits / groups` says how well commits share syncs.
    pub groups: u64,
    /// Commits that were answered with their digest.
    pub commits: u64,
    /// Syncs of the journal.
    pub syncs: u64,
    /// Changes in the largest group.
    pub largest_group: u64,
    /// How often the store was opened again because it had failed.
    pub reopened: u64,
}

impl Counters {
    pub(crate) fn stats(&self) -> LedgerStats {
        LedgerStats {
            groups: self.groups.load(Relaxed),
            commits: self.commits.load(Relaxed),
            syncs: self.syncs.load(Relaxed),
            largest_group: self.largest_group.load(Relaxed),
            reopened: self.reopened.load(Relaxed),
        }
    }
}
