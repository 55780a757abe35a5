//! The embedded store: the only file that knows fjall's way of opening, writing and failing.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Iter, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Slice, Snapshot};
use weir_model::{Fault, FaultKind, Incarnation};

use crate::LedgerConfig;
use crate::keys::{self, KeyRange};
use crate::staging::Writes;

/// The keyspaces; see `format.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ks {
    Meta,
    Runs,
    Attempts,
    Batches,
    Times,
    Touched,
    Before,
    State,
    Expiry,
    Outputs,
    Payloads,
    Sinks,
    Streams,
}

impl Ks {
    pub(crate) const ALL: [Self; 13] = [
        Self::Meta,
        Self::Runs,
        Self::Attempts,
        Self::Batches,
        Self::Times,
        Self::Touched,
        Self::Before,
        Self::State,
        Self::Expiry,
        Self::Outputs,
        Self::Payloads,
        Self::Sinks,
        Self::Streams,
    ];

    /// Those whose keys begin with a run's number.
    pub(crate) const OF_RUNS: [Self; 8] = [
        Self::Batches,
        Self::Times,
        Self::Touched,
        Self::Before,
        Self::State,
        Self::Expiry,
        Self::Outputs,
        Self::Payloads,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Runs => "runs",
            Self::Attempts => "attempts",
            Self::Batches => "batches",
            Self::Times => "times",
            Self::Touched => "touched",
            Self::Before => "before",
            Self::State => "state",
            Self::Expiry => "expiry",
            Self::Outputs => "outputs",
            Self::Payloads => "payloads",
            Self::Sinks => "sinks",
            Self::Streams => "streams",
        }
    }

    /// Memtables are what a flush writes at once, so their size bounds how long it stalls; small ones for keyspaces that
    /// see little, because all of them together are the ledger's memory.
    fn options(self, config: &LedgerConfig) -> KeyspaceCreateOptions {
        let memtable = match self {
            Self::State | Self::Before | Self::Payloads | Self::Batches => config.memtable_bytes,
            _ => (config.memtable_bytes / 4).max(1 << 20),
        };
        let options = KeyspaceCreateOptions::default().max_memtable_size(memtable);
        match self {
            // Compressed by Arrow already.
            Self::Payloads => options.data_block_compression_policy(CompressionPolicy::disabled()),
            _ => options,
        }
    }
}

/// What can be read: a snapshot, or the keyspaces with a group's writes over them.
pub(crate) trait Source {
    /// The store that is read.
    fn store(&self) -> &Store;
    fn get(&self, ks: Ks, key: &[u8]) -> Result<Option<Slice>, Fault>;
    /// Entries of a range in order, at most `limit`.
    fn scan(&self, ks: Ks, range: &KeyRange, limit: usize) -> Result<Vec<(Slice, Slice)>, Fault>;
}

/// An open store. Dropping it closes it, unlocks it and makes way for another one in the same folder.
pub(crate) struct Store {
    /// Counts openings in this process.
    pub generation: u64,
    pub incarnation: Incarnation,
    /// Numbers of runs whose batches are not what they must be, with the fault that every call for them answers.
    pub damaged: HashMap<u64, Fault>,
    // Handles hold fjall's lock file, so none may be kept outside of this struct.
    keyspaces: Vec<Keyspace>,
    published: Mutex<Snapshot>,
    db: Database,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("generation", &self.generation).finish_non_exhaustive()
    }
}

/// How long a commit waits for fjall's flushes before the store is taken for stuck and opened again.
const FLUSH_PATIENCE: Duration = Duration::from_secs(20);
/// Sealed memtables of a keyspace beyond which a commit waits. At 4 fjall itself waits, without end when its workers
/// have died; one commit can add two.
const SEALED_MAX: usize = 1;
/// Tables of level 0 beyond which a commit waits. From 20 runs on fjall itself waits, at 30 without end.
const LEVEL0_MAX: usize = 18;

impl Store {
    /// Opens it, or makes it. Everything that fjall replays is durable when this returns.
    pub(crate) fn open(path: &Path, config: &LedgerConfig, generation: u64) -> Result<Self, fjall::Error> {
        let db = Database::builder(path)
            // fjall checks a journal's sum by compressing its values anew: another version of the compressor would
            // make a good journal look damaged.
            .journal_compression(CompressionType::None)
            .max_journaling_size(config.journal_bytes.max(64 << 20))
            .cache_size(config.cache_bytes)
            .worker_threads(2)
            .open()?;
        let keyspaces =
            Ks::ALL.iter().map(|ks| db.keyspace(ks.name(), || ks.options(config))).collect::<Result<Vec<_>, _>>()?;
        let meta = &keyspaces[Ks::Meta as usize];
        let incarnation = match meta.get(keys::INCARNATION)? {
            Some(text) => String::from_utf8_lossy(&text).into_owned(),
            None => {
                let fresh = fresh_incarnation().0;
                meta.insert(keys::INCARNATION, fresh.as_str())?;
                db.persist(PersistMode::SyncAll)?;
                fresh
            }
        };
        let published = Mutex::new(db.snapshot());
        Ok(Self {
            generation,
            incarnation: Incarnation(incarnation),
            damaged: HashMap::new(),
            keyspaces,
            published,
            db,
        })
    }

    fn ks(&self, ks: Ks) -> &Keyspace {
        &self.keyspaces[ks as usize]
    }

    /// What readers may see: the latest state that is durable.
    pub(crate) fn published(&self) -> Pinned<'_> {
        let snapshot = self.published.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Pinned { store: self, snapshot }
    }

    /// Reads through a snapshot that was taken of this opening of the store.
    pub(crate) fn pinned(&self, snapshot: Snapshot) -> Pinned<'_> {
        Pinned { store: self, snapshot }
    }

    /// Lets readers see what has been written so far.
    pub(crate) fn publish(&self) {
        let fresh = self.db.snapshot();
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
    }

    /// The latest value, published or not.
    pub(crate) fn latest(&self, ks: Ks, key: &[u8]) -> Result<Option<Slice>, Fault> {
        self.ks(ks).get(key).map_err(|e| read_fault(&e))
    }

    /// The latest entries, published or not.
    pub(crate) fn latest_range(&self, ks: Ks, range: &KeyRange) -> Entries {
        Entries((!keys::is_empty(range)).then(|| self.ks(ks).range(range.clone())))
    }

    /// Writes a group as one atomic batch into the journal and the operating system's hands. After an error this store
    /// takes no more writes.
    pub(crate) fn write(&self, writes: &Writes) -> Result<(), fjall::Error> {
        let mut batch = self.db.batch().durability(Some(PersistMode::Buffer));
        for ((ks, key), value) in writes {
            match value {
                Some(value) => batch.insert(self.ks(*ks), key.as_slice(), value.clone()),
                None => batch.remove(self.ks(*ks), key.as_slice()),
            }
        }
        batch.commit()
    }

    /// Makes everything written so far durable.
    pub(crate) fn sync(&self) -> Result<(), fjall::Error> {
        self.db.persist(PersistMode::SyncAll)
    }

    /// Waits until fjall's background work has caught up, so that a write will not wait inside fjall: its own wait does
    /// not notice that its workers have died.
    pub(crate) fn settle(&self) -> Result<(), fjall::Error> {
        let begun = Instant::now();
        while self
            .keyspaces
            .iter()
            .any(|ks| ks.sealed_memtable_count() > SEALED_MAX || ks.l0_table_count() > LEVEL0_MAX)
        {
            // Writes nothing, but answers whether a worker has died.
            self.db.persist(PersistMode::Buffer)?;
            if begun.elapsed() > FLUSH_PATIENCE {
                return Err(fjall::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "the store does not flush")));
            }
            #[expect(clippy::disallowed_methods, reason = "fjall tells nobody when it has flushed")]
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

/// A snapshot with the store it was taken of.
#[derive(Clone)]
pub(crate) struct Pinned<'a> {
    store: &'a Store,
    snapshot: Snapshot,
}

impl Pinned<'_> {
    /// The snapshot alone. It holds no lock of fjall and may outlive the store; then it is good for nothing.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.snapshot.clone()
    }

    /// Entries of a range in order.
    pub(crate) fn range(&self, ks: Ks, range: &KeyRange) -> Entries {
        Entries((!keys::is_empty(range)).then(|| self.snapshot.range(self.store.ks(ks), range.clone())))
    }
}

impl Source for Pinned<'_> {
    fn store(&self) -> &Store {
        self.store
    }
    fn get(&self, ks: Ks, key: &[u8]) -> Result<Option<Slice>, Fault> {
        self.snapshot.get(self.store.ks(ks), key).map_err(|e| read_fault(&e))
    }
    fn scan(&self, ks: Ks, range: &KeyRange, limit: usize) -> Result<Vec<(Slice, Slice)>, Fault> {
        self.range(ks, range).take(limit).collect()
    }
}

/// Entries of a keyspace in order.
pub(crate) struct Entries(Option<Iter>);

impl Iterator for Entries {
    type Item = Result<(Slice, Slice), Fault>;
    fn next(&mut self) -> Option<Self::Item> {
        let guard = self.0.as_mut()?.next()?;
        Some(guard.into_inner().map_err(|e| read_fault(&e)))
    }
}

/// 128 random bits, as hexadecimal digits.
pub(crate) fn fresh_incarnation() -> Incarnation {
    Incarnation(uuid::Uuid::new_v4().simple().to_string())
}

/// A fault of the ledger.
pub(crate) fn ledger_fault(message: impl fmt::Display) -> Fault {
    Fault::host(FaultKind::Ledger, message).file("ledger")
}

/// Too little room.
pub(crate) fn disk_fault(message: impl fmt::Display) -> Fault {
    Fault::host(FaultKind::Disk, message)
        .file("ledger")
        .fix("make room on the disk of the data folder; the host then goes on by itself")
}

/// An error of a file of the ledger.
pub(crate) fn io_fault(what: &str, e: &io::Error) -> Fault {
    if is_full(e) { disk_fault(format_args!("{what}: {e}")) } else { ledger_fault(format_args!("{what}: {e}")) }
}

/// An error of the store.
pub(crate) fn store_fault(what: &str, e: &fjall::Error) -> Fault {
    match io_cause(e) {
        Some(e) => io_fault(what, e),
        None => ledger_fault(format_args!("{what}: {e:?}")),
    }
}

fn read_fault(e: &fjall::Error) -> Fault {
    store_fault("the store cannot be read", e)
}

fn io_cause(e: &fjall::Error) -> Option<&io::Error> {
    match e {
        fjall::Error::Io(e) | fjall::Error::Storage(fjall::LsmError::Io(e)) => Some(e),
        _ => None,
    }
}

fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
