//! The one writer of a table: a task that takes requests in order, so that a caller who goes away cuts nothing short.
//!
//! An append that adds rows to a plain table is a Parquet file and a log entry put under a name that must be free. Before
//! it the latest known entry is looked at; after anything unexpected the log is read anew, and what decides is which
//! versions of the apps it holds. Nothing is tried again without that.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Field, SchemaRef};
use deltalake::kernel::Transaction;
use deltalake::kernel::transaction::CommitBuilder;
use deltalake::protocol::{DeltaOperation, SaveMode};
use tokio::sync::{mpsc, oneshot};
use weir_model::port::{Append, Replace};
use weir_model::{Fault, FaultKind, FaultPoints};

use super::Settings;
use super::create::{create, lacking, plain, quiet, sync_version, widen};
use super::entry::{Reason, encode, entry};
use super::files::LiveFile;
use super::folder::{Folder, Presence, Put, Stamp};
use super::held::{Held, load, open};
use super::rewrite::discard;
use super::tidy::Tidy;
use super::upkeep::{Change, Survey};
use crate::error::delta_fault;
use crate::normalise::adapt;

/// Requests that wait; more make their callers wait.
const QUEUE: usize = 256;
/// Appends that one log entry may take up.
const GROUP: usize = 64;
/// How often an append begins anew because other writers came first.
pub(super) const TRIES: usize = 16;

type Reply<T> = oneshot::Sender<Result<T, Fault>>;

/// What a writer is asked.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Makes or widens the table; answers its id.
    Open(SchemaRef, Reply<String>),
    /// The id of the table that is there now.
    Id(Reply<String>),
    /// The version of an app that the table with this id holds.
    Held(String, String, Reply<Option<i64>>),
    /// Appends to the table with this id.
    Append(Request),
    /// Replaces rows of the table with this id.
    Replace(String, Replace, Reply<()>),
    /// What there is to keep.
    Survey(Reply<Option<Survey>>),
    /// Puts files of the table with this id in the place of others; answers whether these were still there.
    Change(String, Change, Reply<bool>),
}

/// One caller's append.
#[derive(Debug)]
pub(crate) struct Request {
    pub id: String,
    pub items: Vec<Append>,
    pub reply: Reply<()>,
}

/// Starts the writer of a table.
pub(crate) fn start(folder: Folder, settings: Arc<Settings>, faults: Arc<dyn FaultPoints>) -> mpsc::Sender<Ask> {
    let (sender, asks) = mpsc::channel(QUEUE);
    let runtime = settings.runtime.clone();
    let writer = Writer {
        tidy: Tidy::new(folder.clone(), settings.clone()),
        folder,
        settings,
        faults,
        held: None,
        known: false,
    };
    runtime.spawn(writer.run(asks));
    sender
}

pub(super) struct Writer {
    pub(super) folder: Folder,
    pub(super) settings: Arc<Settings>,
    pub(super) faults: Arc<dyn FaultPoints>,
    pub(super) held: Option<Held>,
    /// Whether this process has seen the table: then it is never made anew in its place.
    known: bool,
    tidy: Tidy,
}

/// How an attempt to change the table ended.
pub(super) enum Attempt {
    /// In the log, under this stamp.
    Done { stamp: Stamp, added: Vec<LiveFile>, removed: Vec<LiveFile> },
    /// In the log, by the table format's own way.
    Ordinary,
    /// Another writer's entry came first.
    Taken,
}

impl Writer {
    async fn run(mut self, mut asks: mpsc::Receiver<Ask>) {
        let mut next = asks.recv().await;
        while let Some(ask) = next.take() {
            match ask {
                Ask::Open(schema, reply) => drop(reply.send(self.open(&schema).await)),
                Ask::Id(reply) => drop(reply.send(self.current(&[]).await.map(|held| held.id.clone()))),
                Ask::Held(id, app, reply) => drop(reply.send(self.version_of(&id, &app).await)),
                Ask::Replace(id, what, reply) => drop(reply.send(self.replace(&id, &what).await)),
                Ask::Survey(reply) => drop(reply.send(self.survey().await)),
                Ask::Change(id, change, reply) => drop(reply.send(self.change(&id, &change).await)),
                Ask::Append(first) => {
                    let mut group = vec![first];
                    while group.len() < GROUP {
                        match asks.try_recv() {
                            Ok(Ask::Append(more)) => group.push(more),
                            Ok(other) => {
                                next = Some(other);
                                break;
                            }
                            Err(_) => break,
                        }
                    }
                    self.append(group).await;
                }
            }
            if next.is_none() {
                next = asks.recv().await;
            }
        }
    }

    async fn open(&mut self, schema: &SchemaRef) -> Result<String, Fault> {
        let schema = plain(schema);
        if self.folder.presence()? == Presence::Absent {
            if self.known {
                return Err(self.folder.missing());
            }
            create(&self.folder, &schema, &self.settings).await?;
            self.held = None;
        }
        if !self.known {
            self.folder.clear_temporary();
        }
        let name = self.folder.name.clone();
        for _ in 0..TRIES {
            let held = self.current(&[]).await?;
            let missing = lacking(&held.schema, &schema, &name)?;
            if missing.is_empty() {
                return Ok(held.id.clone());
            }
            self.widen(&missing).await?;
        }
        Err(self.outrun())
    }

    async fn version_of(&mut self, id: &str, app: &str) -> Result<Option<i64>, Fault> {
        let folder = self.folder.clone();
        let held = self.current(&[app]).await?;
        same_table(&folder, held, id)?;
        Ok(held.apps.get(app).copied().flatten())
    }

    /// The table as it is now. The log is read only when it is not where it was left, or when an app is new to us.
    pub(super) async fn current(&mut self, apps: &[&str]) -> Result<&Held, Fault> {
        let fresh = match &self.held {
            Some(held) => apps.iter().all(|app| held.apps.contains_key(*app)) && held.is_latest(&self.folder)?,
            None => false,
        };
        if !fresh {
            let asked: Vec<String> = self.held.take().into_iter().flat_map(|held| held.apps.into_keys()).collect();
            let apps: Vec<&str> = asked.iter().map(String::as_str).chain(apps.iter().copied()).collect();
            let held = load(&self.folder, &apps).await?.ok_or_else(|| self.folder.missing())?;
            // A crash may have left the last entry, or what it names, unsynced.
            sync_version(&self.folder, held.version)?;
            self.known = true;
            self.held = Some(held);
        }
        self.held.as_ref().ok_or_else(|| Fault::internal("a table that was read is not held"))
    }

    pub(super) async fn widen(&mut self, missing: &[Field]) -> Result<(), Fault> {
        let table = open(&self.folder).await?.ok_or_else(|| self.folder.missing())?;
        self.held = None;
        widen(&self.folder, table, missing).await
    }

    async fn append(&mut self, group: Vec<Request>) {
        let mut group = group;
        match self.append_all(&mut group).await {
            Ok(()) => group.into_iter().for_each(|r| drop(r.reply.send(Ok(())))),
            Err(fault) => {
                group.into_iter().for_each(|r| drop(r.reply.send(Err(fault.clone()))));
            }
        }
    }

    /// Appends what is left of the group. Requests that cannot be appended are answered and taken out.
    async fn append_all(&mut self, group: &mut Vec<Request>) -> Result<(), Fault> {
        for _ in 0..TRIES {
            let apps: Vec<String> = group.iter().flat_map(|r| &r.items).map(|i| i.app.clone()).collect();
            let apps: Vec<&str> = apps.iter().map(String::as_str).collect();
            let folder = self.folder.clone();
            self.current(&apps).await?;
            // Taken out: whatever goes wrong below leaves the table to be read anew.
            let Some(held) = self.held.take() else { continue };
            refuse(group, |r| same_table(&folder, &held, &r.id).map(|()| Vec::new()));
            let missing = refuse(group, |r| missing_columns(&held, r, &folder.name));
            if !missing.is_empty() {
                self.widen(&missing).await?;
                continue;
            }
            refuse(group, |r| conform(r, &held, &folder.name).map(|_| Vec::new()));
            let (rows, apps) = pending(group, &held, &folder.name)?;
            if apps.is_empty() {
                self.held = Some(held);
                return Ok(());
            }
            match self.put(&held, rows, &apps).await {
                Ok(Attempt::Taken) => {}
                Ok(done) => {
                    self.done(held, done, &apps);
                    return Ok(());
                }
                Err(fault) => {
                    // A fault that was asked for stands for the end of the process: nobody would look again.
                    if fault.kind == FaultKind::Injected || !self.landed(&held.id, &apps).await {
                        return Err(fault);
                    }
                    return Ok(());
                }
            }
        }
        Err(self.outrun())
    }

    /// Whether an attempt that answered with an error is known to be in the log all the same.
    pub(super) async fn landed(&mut self, id: &str, apps: &[(String, i64)]) -> bool {
        let names: Vec<&str> = apps.iter().map(|(app, _)| app.as_str()).collect();
        let Ok(held) = self.current(&names).await else { return false };
        let reached = |(app, version): &(String, i64)| held.apps.get(app).copied().flatten() >= Some(*version);
        held.id == id && apps.iter().all(reached)
    }

    /// Notes what an attempt put into the log.
    pub(super) fn done(&mut self, mut held: Held, attempt: Attempt, apps: &[(String, i64)]) {
        let Attempt::Done { stamp, added, removed } = attempt else { return };
        held.version += 1;
        held.stamp = stamp;
        held.apps.extend(apps.iter().map(|(app, version)| (app.clone(), Some(*version))));
        if let Some(files) = &mut held.files {
            if !removed.is_empty() {
                let removed: HashSet<&str> = removed.iter().map(|f| f.path.as_str()).collect();
                files.retain(|f| !removed.contains(f.path.as_str()));
            }
            files.extend(added);
        }
        self.tidy.after(held.version, held.checkpoint);
        self.held = Some(held);
    }

    async fn put(&mut self, held: &Held, rows: Vec<RecordBatch>, apps: &[(String, i64)]) -> Result<Attempt, Fault> {
        if !held.plain {
            return self.put_ordinary(held, rows, apps).await;
        }
        let (folder, faults, apps) = (self.folder.clone(), self.faults.clone(), apps.to_vec());
        let (schema, version) = (held.schema.clone(), held.version + 1);
        let work = move || put_plain(&folder, faults.as_ref(), &schema, version, &rows, &apps);
        tokio::task::spawn_blocking(work).await.map_err(Fault::internal)?
    }

    /// The table format's own way, for tables that ask more of a writer than a file and an entry.
    async fn put_ordinary(
        &mut self,
        held: &Held,
        rows: Vec<RecordBatch>,
        apps: &[(String, i64)],
    ) -> Result<Attempt, Fault> {
        let name = self.folder.name.clone();
        let fault = |e| delta_fault(&name, &e);
        let table = open(&self.folder).await?.ok_or_else(|| self.folder.missing())?;
        let apps = apps.iter().map(|(app, version)| Transaction::new(app, *version)).collect();
        let properties = quiet().with_application_transactions(apps);
        if rows.is_empty() {
            let operation = DeltaOperation::Write { mode: SaveMode::Append, partition_by: None, predicate: None };
            let (state, log) = (table.snapshot().map_err(fault)?, table.log_store());
            CommitBuilder::from(properties).build(Some(state), log, operation).await.map_err(fault)?;
        } else {
            let write = table.write(rows).with_save_mode(SaveMode::Append).with_commit_properties(properties);
            write.await.map_err(fault)?;
        }
        self.ordinary_done(held)
    }

    /// After a change by the table format's own way. Others may have written too: everything new is synced, and the log
    /// is read anew by the next request.
    pub(super) fn ordinary_done(&self, held: &Held) -> Result<Attempt, Fault> {
        self.faults.pass("sink.entry-put")?;
        let mut version = held.version + 1;
        while self.folder.look(version)?.is_some() {
            sync_version(&self.folder, version)?;
            version += 1;
        }
        self.tidy.after(version - 1, held.checkpoint);
        Ok(Attempt::Ordinary)
    }

    pub(super) fn outrun(&self) -> Fault {
        Fault::external(FaultKind::Sink, format_args!("other writers came first {TRIES} times")).file(&self.folder.name)
    }
}

fn put_plain(
    folder: &Folder,
    faults: &dyn FaultPoints,
    schema: &SchemaRef,
    version: u64,
    rows: &[RecordBatch],
    apps: &[(String, i64)],
) -> Result<Attempt, Fault> {
    let file = encode(schema, rows)?;
    let added: Vec<LiveFile> = file.iter().map(|f| f.file.clone()).collect();
    let entry = entry(&Reason::Append, &added, &[], apps)?;
    let staged = folder.stage(file.as_ref().map(|f| (f.file.path.as_str(), f.bytes.as_slice())), &entry)?;
    faults.pass("sink.file-written")?;
    match folder.put_entry(version, &staged)? {
        Put::Done(stamp) => {
            faults.pass("sink.entry-put")?;
            Ok(Attempt::Done { stamp, added, removed: Vec::new() })
        }
        Put::Taken => {
            discard(folder, &added);
            Ok(Attempt::Taken)
        }
    }
}

pub(super) fn same_table(folder: &Folder, held: &Held, id: &str) -> Result<(), Fault> {
    if held.id == id {
        return Ok(());
    }
    Err(Fault::external(
        FaultKind::SinkMismatch,
        format_args!("another table stands in its place: it was {id}, it is {}", held.id),
    )
    .file(&folder.name)
    .fix("put the folder back, or take the new table over with weir ledger adopt"))
}

/// Answers requests that `check` refuses and takes them out; gathers what it found for the others.
fn refuse(group: &mut Vec<Request>, check: impl Fn(&Request) -> Result<Vec<Field>, Fault>) -> Vec<Field> {
    let mut found: Vec<Field> = Vec::new();
    let mut kept = Vec::with_capacity(group.len());
    for request in group.drain(..) {
        match check(&request) {
            Ok(fields) => {
                for field in fields {
                    if !found.iter().any(|f| f.name() == field.name()) {
                        found.push(field);
                    }
                }
                kept.push(request);
            }
            Err(fault) => drop(request.reply.send(Err(fault))),
        }
    }
    *group = kept;
    found
}

fn missing_columns(held: &Held, request: &Request, name: &str) -> Result<Vec<Field>, Fault> {
    let mut missing: Vec<Field> = Vec::new();
    for item in &request.items {
        for field in lacking(&held.schema, &plain(item.rows.schema_ref()), name)? {
            if !missing.iter().any(|f| f.name() == field.name()) {
                missing.push(field);
            }
        }
    }
    Ok(missing)
}

fn conform(request: &Request, held: &Held, name: &str) -> Result<Vec<RecordBatch>, Fault> {
    let adapted = request.items.iter().map(|item| adapt(&item.rows, &held.schema, &format!("table {name}")));
    adapted.map(|batch| batch.map_err(|f| Fault { kind: FaultKind::Sink, ..f })).collect()
}

/// Rows that the table does not hold yet, and how far each app is with them.
#[allow(clippy::type_complexity)]
fn pending(group: &[Request], held: &Held, name: &str) -> Result<(Vec<RecordBatch>, Vec<(String, i64)>), Fault> {
    let mut reached: HashMap<&str, i64> = HashMap::new();
    let mut order = Vec::new();
    let mut rows = Vec::new();
    for request in group {
        for (item, batch) in request.items.iter().zip(conform(request, held, name)?) {
            let before = reached.get(item.app.as_str()).copied();
            let before = before.or_else(|| held.apps.get(&item.app).copied().flatten());
            if before.is_some_and(|v| item.version <= v) {
                continue;
            }
            if reached.insert(&item.app, item.version).is_none() {
                order.push(item.app.as_str());
            }
            if batch.num_rows() > 0 {
                rows.push(batch);
            }
        }
    }
    let apps = order.into_iter().map(|app| (app.to_owned(), reached.get(app).copied().unwrap_or(0))).collect();
    Ok((rows, apps))
}
