//! What is known of a table from its log: who it is, where it stands, what its rows look like.

use std::collections::HashMap;
use std::future::Future;

use arrow_schema::SchemaRef;
use deltalake::kernel::{Metadata, Protocol};
use deltalake::{DeltaTable, DeltaTableBuilder};
use weir_model::Fault;

use super::files::{LiveFile, live_files};
use super::folder::{Folder, Presence, Stamp};
use crate::error::delta_fault;
use crate::normalise::plain_schema;

/// A table as its log has it.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    /// The table's id.
    pub id: String,
    /// The latest version.
    pub version: u64,
    /// Of that version's log entry.
    pub stamp: Stamp,
    /// Columns in plain types.
    pub schema: SchemaRef,
    /// Whether appending rows asks for nothing but a file and a log entry.
    pub plain: bool,
    /// Version of the latest checkpoint.
    pub checkpoint: u64,
    /// Latest transaction versions of the apps that were asked for.
    pub apps: HashMap<String, Option<i64>>,
    /// Whether the table's owner forbids to take rows away.
    pub append_only: bool,
    /// Its files, oldest first, once somebody needed them.
    pub files: Option<Vec<LiveFile>>,
}

impl Held {
    /// Whether the log still ends where it did when this was read.
    pub fn is_latest(&self, folder: &Folder) -> Result<bool, Fault> {
        Ok(folder.look(self.version)? == Some(self.stamp) && folder.look(self.version + 1)?.is_none())
    }
}

/// How often a log is read again because entries of it were cleaned up meanwhile.
const READS: usize = 8;

/// Reads a log beside those who clean it up. A reader first lists the entries and then opens them; one that lies below a
/// checkpoint which was made in between may be gone by then, and what was read of the log is of no use. The next
/// reading begins at that checkpoint. Any other failure is the answer.
pub(crate) async fn steady<T, F>(folder: &Folder, read: impl Fn() -> F) -> Result<T, Fault>
where
    F: Future<Output = Result<T, Fault>>,
{
    for _ in 1..READS {
        let before = folder.log_names();
        match read().await {
            Err(fault) if !folder.log_names().is_superset(&before) => {
                tracing::debug!(table = folder.name, %fault, "the log was cleaned up while it was read; once more");
            }
            done => return done,
        }
    }
    read().await
}

/// Opens the table at its latest version; none when there is none.
pub(crate) async fn open(folder: &Folder) -> Result<Option<DeltaTable>, Fault> {
    steady(folder, || open_once(folder)).await
}

/// The same for a reading that is repeated as a whole.
pub(crate) async fn open_once(folder: &Folder) -> Result<Option<DeltaTable>, Fault> {
    if folder.presence()? == Presence::Absent {
        return Ok(None);
    }
    let fault = |e| delta_fault(&folder.name, &e);
    let table = DeltaTableBuilder::from_url(folder.url()?).map_err(fault)?.load().await.map_err(fault)?;
    Ok(Some(table))
}

/// Opens the table at a version.
pub(crate) async fn open_at(folder: &Folder, version: u64) -> Result<DeltaTable, Fault> {
    let fault = |e| delta_fault(&folder.name, &e);
    let open = || async {
        let builder = DeltaTableBuilder::from_url(folder.url()?).map_err(fault)?;
        builder.with_version(version).load().await.map_err(fault)
    };
    steady(folder, open).await
}

/// Reads the log anew, with the transaction versions of `apps`.
pub(crate) async fn load(folder: &Folder, apps: &[&str]) -> Result<Option<Held>, Fault> {
    steady(folder, || load_once(folder, apps)).await
}

async fn load_once(folder: &Folder, apps: &[&str]) -> Result<Option<Held>, Fault> {
    let Some(table) = open_once(folder).await? else {
        return Ok(None);
    };
    let fault = |e| delta_fault(&folder.name, &e);
    let snapshot = table.snapshot().map_err(fault)?;
    let version = snapshot.version();
    let stamp = folder.look(version)?.ok_or_else(|| folder.missing())?;
    let log = table.log_store();
    let mut known = HashMap::new();
    for app in apps {
        if !known.contains_key(*app) {
            let held = snapshot.transaction_version(log.as_ref(), app).await.map_err(fault)?;
            known.insert((*app).to_owned(), held);
        }
    }
    let metadata = snapshot.metadata();
    Ok(Some(Held {
        id: metadata.id().to_owned(),
        version,
        stamp,
        schema: plain_schema(&snapshot.snapshot().arrow_schema()),
        plain: is_plain(snapshot.protocol(), metadata),
        checkpoint: folder.checkpoint(),
        apps: known,
        append_only: metadata.configuration().get("delta.appendOnly").is_some_and(|v| v == "true"),
        files: None,
    }))
}

/// Reads which files the table has, where that is not known. False when other than whole files hold its rows.
pub(crate) async fn read_files(folder: &Folder, held: &mut Held) -> Result<bool, Fault> {
    if held.files.is_some() {
        return Ok(true);
    }
    held.files = live_files(folder, &open_at(folder, held.version).await?)?;
    Ok(held.files.is_some())
}

/// Features that ask nothing of a writer that only adds whole files of valid rows.
const HARMLESS: [&str; 2] = ["appendOnly", "invariants"];

fn is_plain(protocol: &Protocol, metadata: &Metadata) -> bool {
    let features = match protocol.min_writer_version() {
        ..=2 => true,
        // Below 7, every feature of the version is in force; one of these is change data feed or generated columns.
        3..=6 => false,
        _ => protocol.writer_features().unwrap_or_default().iter().all(|f| HARMLESS.contains(&f.as_ref())),
    };
    let schema = metadata.schema_string();
    // Rules that a column carries in its metadata. Looked for as text: a false alarm only takes the slower path.
    let rules = ["delta.invariants", "delta.generationExpression", "delta.identity", "delta.columnMapping"];
    let constraints = metadata
        .configuration()
        .keys()
        .any(|key| key.starts_with("delta.constraints.") || key == "delta.columnMapping.mode");
    features
        && metadata.partition_columns().is_empty()
        && !constraints
        && !rules.iter().any(|rule| schema.contains(rule))
}
