//! Tables, and SQL at a prompt.

use crate::fault::Fault;
use crate::id::Name;
use crate::stream::Offsets;
use crate::time::BoxFuture;
use crate::time::Time;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use std::sync::Arc;

/// An in-memory table beside the lake's, for an ad-hoc query.
#[derive(Debug, Clone)]
pub struct ViewTable {
    /// Its name in SQL.
    pub name: String,
    /// Its schema.
    pub schema: SchemaRef,
    /// Its rows.
    pub rows: Vec<RecordBatch>,
    /// It only stands in: where the lake has a table of this name, that one is read.
    pub stands_in: bool,
}

/// SQL that people write at a prompt.
pub trait AdHoc: Send + Sync {
    /// One SELECT over a tenant's lake tables, by name, and the given ones, which come first. Bounded in memory, rows
    /// and time.
    fn query(&self, tenant: &Name, sql: &str, views: Vec<ViewTable>) -> Result<RecordBatch, Fault>;
}

/// Rows for a table. `version` grows strictly per `app`; the table remembers the latest of each app.
#[derive(Debug, Clone)]
pub struct Append {
    /// Who appends: a sink's id with all incarnations in it.
    pub app: String,
    /// Which of its appends this is: N of a batch, or an offset.
    pub version: i64,
    /// The rows.
    pub rows: RecordBatch,
}

/// Rows a page at a time, because all of them may not fit in memory. They may be asked for more than once: a change that
/// another writer was faster than begins anew.
pub trait Pages: std::fmt::Debug + Send + Sync {
    /// That of every page; none when there is no page.
    fn schema(&self) -> Option<SchemaRef>;
    /// Hands over every page, in the same order each time, up to the first error. Blocks.
    fn each(&self, take: &mut dyn FnMut(RecordBatch) -> Result<(), Fault>) -> Result<(), Fault>;
}

impl Pages for Vec<RecordBatch> {
    fn schema(&self) -> Option<SchemaRef> {
        self.first().map(RecordBatch::schema)
    }
    fn each(&self, take: &mut dyn FnMut(RecordBatch) -> Result<(), Fault>) -> Result<(), Fault> {
        self.iter().cloned().try_for_each(take)
    }
}

/// Rows that take the place of others.
#[derive(Debug, Clone)]
pub struct Replace {
    /// Who replaces, as in [`Append`].
    pub app: String,
    /// Which of its changes this is: grows strictly per `app`, as in [`Append`].
    pub version: i64,
    /// The new rows, each of them inside of `matching` and `between`. None: the others are only taken away.
    pub rows: Arc<dyn Pages>,
    /// Rows with all of these are taken away: text column = value. Rows without a value stay.
    pub matching: Vec<(String, String)>,
    /// And with this timestamp column in [from, to), if given.
    pub between: Option<(String, Time, Time)>,
}

/// One lake table with its one writer.
///
/// Duties: an append is atomic over all its items, and idempotent: items at or below the version that the table holds for
/// their app are left out. When it returns `Ok`, files and folders are synced. After an error nothing is known; the same
/// items can be given again.
pub trait Table: Send + Sync {
    /// Identity of the table: another one after it was deleted and made again.
    fn id(&self) -> BoxFuture<'_, Result<String, Fault>>;
    /// The latest version of an app that the table holds.
    fn held<'a>(&'a self, app: &'a str) -> BoxFuture<'a, Result<Option<i64>, Fault>>;
    /// Appends, all in one transaction. Columns that the table lacks are added (nullable); others are refused.
    fn append(&self, items: Vec<Append>) -> BoxFuture<'_, Result<(), Fault>>;
    /// Takes rows away and adds others, all in one transaction, with the duties of an append. Files whose statistics
    /// exclude a row that is taken away are not read. Empty `matching` and no `between` mean every row.
    fn replace(&self, what: Replace) -> BoxFuture<'_, Result<(), Fault>>;
}

/// Which rows of a bronze table.
#[derive(Debug, Clone)]
pub struct BronzeRange {
    /// Event-time column.
    pub event_time: String,
    /// Event time at or after.
    pub from: Time,
    /// Event time before; none: no bound.
    pub to: Option<Time>,
    /// Only offsets at or above ...
    pub above: Offsets,
    /// ... and below these.
    pub below: Offsets,
    /// Bytes of rows; more are a fault of kind [`crate::FaultKind::SqlLimit`]. None: no bound.
    pub memory: Option<usize>,
}

/// What a table's upkeep goes by.
#[derive(Debug, Clone)]
pub struct Upkeep {
    /// Now.
    pub now: Time,
    /// The timestamp column that says how old a row is; none: how long ago it was written does.
    pub column: Option<String>,
    /// How long rows are kept; none: for good. Rows go with their file, which holds rows of about one day.
    pub keep: Option<std::time::Duration>,
    /// Whether small files are put together, which takes room on the disk before it gives some back.
    pub merge: bool,
}

/// What an upkeep did, and what the table is after it. All zero for a table that is not there, or that others made and
/// that asks for more than plain files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Upkept {
    /// Files of the table before.
    pub files_before: usize,
    /// Files that were put together with others.
    pub merged_files: usize,
    /// Files whose rows were too old.
    pub expired_files: usize,
    /// Rows that were too old.
    pub expired_rows: u64,
    /// Files that were taken from the disk because no version that can be read has them.
    pub removed_files: usize,
    /// Files of the table.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Their rows, as far as is known.
    pub rows: u64,
}

/// The tables of all tenants.
pub trait Lake: Send + Sync {
    /// The table, made when it is not there, its schema widened when it lacks columns.
    fn table<'a>(
        &'a self,
        tenant: &'a Name,
        table: &'a Name,
        schema: SchemaRef,
    ) -> BoxFuture<'a, Result<Arc<dyn Table>, Fault>>;
    /// Rows of a bronze table, in (partition, offset) order. Empty when the table is not there.
    fn bronze<'a>(
        &'a self,
        tenant: &'a Name,
        table: &'a Name,
        schema: SchemaRef,
        range: BronzeRange,
    ) -> BoxFuture<'a, Result<Vec<RecordBatch>, Fault>>;
    /// Keeps a table in shape: takes rows away that are too old, puts small files together, and takes files from the disk
    /// that nobody can read any more. Loses and doubles nothing wherever it is cut short, and delays appends by a log
    /// entry only. To be called again and again: one call does a bounded piece of work.
    fn upkeep<'a>(&'a self, tenant: &'a Name, table: &'a Name, what: Upkeep) -> BoxFuture<'a, Result<Upkept, Fault>>;
    /// Whether rows of this schema could be appended to the table: the fault that an append would answer, if it is there
    /// and has a column of another type.
    fn fits<'a>(&'a self, tenant: &'a Name, table: &'a Name, schema: SchemaRef) -> BoxFuture<'a, Result<(), Fault>>;
    /// A time at or before that of the earliest row in this timestamp column, from statistics alone. None: there is no
    /// row.
    fn oldest<'a>(
        &'a self,
        tenant: &'a Name,
        table: &'a Name,
        column: &'a str,
    ) -> BoxFuture<'a, Result<Option<Time>, Fault>>;
}
