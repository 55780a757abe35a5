//! Reads tables. A table that has not changed is not read again: its snapshot is kept per version.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use datafusion::catalog::TableProvider;
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::{Expr, lit};
use datafusion::prelude::SessionContext;
use deltalake::DeltaTable;
use futures::TryStreamExt;
use weir_model::port::BronzeRange;
use weir_model::stream::{OFFSET, PARTITION};
use weir_model::{CallError, Fault, FaultKind, Name};

use super::folder::{Folder, Presence, Stamp};
use super::held::{open_at, open_once, steady};
use crate::error::{call_error, delta_fault};
use crate::normalise::adapt;
use crate::query::{config, in_order, timestamp};

/// Snapshots that are kept.
const KEPT: usize = 64;

/// A table at a version.
#[derive(Debug)]
pub(crate) struct Opened {
    version: u64,
    id: String,
    stamp: Option<Stamp>,
    table: DeltaTable,
    pub provider: Arc<dyn TableProvider>,
}

/// Reads the tables of a lake.
#[derive(Debug)]
pub(crate) struct Reader {
    root: PathBuf,
    kept: Mutex<HashMap<String, Arc<Opened>>>,
}

impl Reader {
    pub fn new(root: PathBuf) -> Self {
        Self { root, kept: Mutex::default() }
    }

    pub fn root(&self) -> &PathBuf {
        &self.root
    }

    /// Names of the tenant's tables. What cannot be looked at is left out.
    pub fn names(&self, tenant: &Name) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(tenant.as_str())).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let is_table = |name: &String| {
            let folder = Name::new(name).map(|table| Folder::new(&self.root, tenant, &table));
            folder.is_ok_and(|folder| matches!(folder.presence(), Ok(Presence::Table)))
        };
        names.filter(is_table).collect()
    }

    /// The table at its latest version; none when there is none.
    pub async fn open(&self, tenant: &Name, table: &Name) -> Result<Option<Arc<Opened>>, Fault> {
        let folder = Folder::new(&self.root, tenant, table);
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(&folder.name).cloned();
        if let Some(opened) = kept
            && opened.stamp.is_some()
            && folder.look(opened.version)? == opened.stamp
            && folder.look(opened.version + 1)?.is_none()
        {
            return Ok(Some(opened));
        }
        let latest = || async {
            let Some(table) = open_once(&folder).await? else {
                return Ok(None);
            };
            let version = table.version().unwrap_or(0);
            let stamp = folder.look(version)?.ok_or_else(|| folder.missing())?;
            Opened::new(table, version, Some(stamp), &folder.name).await.map(Some)
        };
        let Some(opened) = steady(&folder, latest).await? else {
            return Ok(None);
        };
        let opened = Arc::new(opened);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(folder.name, opened.clone());
        Ok(Some(opened))
    }

    /// The table at a version that it had; none when its log does not go back so far, or it is not there.
    pub async fn open_at(&self, tenant: &Name, table: &Name, version: u64) -> Result<Option<Arc<Opened>>, Fault> {
        let folder = Folder::new(&self.root, tenant, table);
        if folder.presence()? == Presence::Absent {
            return Ok(None);
        }
        match open_at(&folder, version).await {
            Ok(table) if table.version() == Some(version) => {
                Ok(Some(Arc::new(Opened::new(table, version, None, &folder.name).await?)))
            }
            Ok(_) => Ok(None),
            // What is wrong with an entry that is there is worth telling.
            Err(_) if folder.look(version)?.is_none() => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Rows of a bronze table with the columns of `schema`, in (partition, offset) order, as one batch or none.
    pub async fn bronze(
        &self,
        tenant: &Name,
        table: &Name,
        schema: SchemaRef,
        range: BronzeRange,
    ) -> Result<Vec<RecordBatch>, Fault> {
        if range.to.is_some_and(|to| to <= range.from) {
            return Ok(Vec::new());
        }
        let (Some(positions), Some(opened)) = (positions(&range), self.open(tenant, table).await?) else {
            return Ok(Vec::new());
        };
        let what = format!("table {tenant}/{table}");
        let there = opened.provider.schema();
        let column = |name: &str| Expr::Column(Column::from_name(name));
        for needed in [range.event_time.as_str(), PARTITION, OFFSET] {
            if there.index_of(needed).is_err() {
                let message = format!("{what} has no column {needed}, so it is no bronze table of this stream");
                return Err(Fault::tenant(FaultKind::SinkMismatch, message).field(needed));
            }
        }
        let time = column(&range.event_time);
        let mut filter = time.clone().gt_eq(lit(timestamp(range.from.micros()))).and(positions);
        if let Some(to) = range.to {
            filter = filter.and(time.lt(lit(timestamp(to.micros()))));
        }
        let mut columns: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        columns.retain(|name| there.index_of(name).is_ok());
        for name in [PARTITION, OFFSET] {
            if !columns.contains(&name) {
                columns.push(name);
            }
        }
        let context = SessionContext::new_with_config(config());
        opened.prepare(&context)?;
        let columns: Vec<Expr> = columns.into_iter().map(column).collect();
        let rows = async {
            let frame = context.read_table(opened.provider.clone())?.filter(filter)?.select(columns)?;
            frame.execute_stream().await
        };
        let fault = |e| as_fault(call_error(&e), &what);
        let mut rows = rows.await.map_err(fault)?;
        let (mut batches, mut bytes) = (Vec::new(), 0);
        while let Some(batch) = rows.try_next().await.map_err(fault)? {
            bytes += batch.get_array_memory_size();
            if range.memory.is_some_and(|limit| bytes > limit) {
                let message = format!("{what} has more than {bytes} bytes in the period that is read");
                return Err(Fault::tenant(FaultKind::SqlLimit, message).field("sql_memory_bytes"));
            }
            batches.push(batch);
        }
        if batches.iter().all(|b| b.num_rows() == 0) {
            return Ok(Vec::new());
        }
        let all = concat_batches(&rows.schema(), &batches).and_then(|all| in_order(&all));
        let all = all.map_err(|e| Fault::internal(format_args!("{what}: {e}")))?;
        Ok(vec![adapt(&all, &schema, &what)?])
    }
}

impl Opened {
    async fn new(table: DeltaTable, version: u64, stamp: Option<Stamp>, name: &str) -> Result<Self, Fault> {
        let fault = |e| delta_fault(name, &e);
        let provider = table.table_provider().await.map_err(|e| fault(e.into()))?;
        let id = table.snapshot().map_err(fault)?.metadata().id().to_owned();
        Ok(Self { version, id, stamp, table, provider })
    }

    /// Version and identity, as a plan pins them: a table that was made anew counts its versions anew.
    pub fn pin(&self) -> String {
        format!("{}@{}", self.version, self.id)
    }

    /// Whether a file of rows that the log names is not there. `lake` is the folder of all tables.
    pub fn lacks_a_file(&self, lake: &std::path::Path, tenant: &Name, table: &Name) -> bool {
        let root = lake.join(tenant.as_str()).join(table.as_str());
        let Ok(snapshot) = self.table.snapshot() else { return false };
        let paths: Vec<String> = snapshot.log_data().into_iter().map(|f| f.object_store_path().to_string()).collect();
        paths.iter().any(|path| root.join(path).try_exists().is_ok_and(|there| !there))
    }

    /// Lets a session reach the table's files.
    pub fn prepare(&self, context: &SessionContext) -> Result<(), Fault> {
        self.table.update_datafusion_session(&context.state()).map_err(|e| delta_fault("", &e))
    }
}

fn as_fault(error: CallError, what: &str) -> Fault {
    match error {
        CallError::Fault(fault) => fault,
        CallError::Data(data) => Fault::external(FaultKind::Sink, format_args!("{what}: {data}")),
    }
}

/// Offsets inside of the range, by partition. None: no row can be.
fn positions(range: &BronzeRange) -> Option<Expr> {
    let column = |name: &str| Expr::Column(Column::from_name(name));
    let offset = |at: u64| lit(ScalarValue::Int64(Some(i64::try_from(at).unwrap_or(i64::MAX))));
    let parts = range.below.0.iter().filter_map(|(partition, below)| {
        let above = range.above.get(*partition);
        let number = i32::try_from(*partition).ok()?;
        (above < *below).then(|| {
            column(PARTITION)
                .eq(lit(number))
                .and(column(OFFSET).gt_eq(offset(above)))
                .and(column(OFFSET).lt(offset(*below)))
        })
    });
    parts.reduce(Expr::or)
}
