//! The lake: SQL over what a batch sees, and Delta tables. Sole owner of DataFusion and deltalake.
//!
//! - [`WeirLake`] is all that others see: it plans queries ([`QueryEngine`]), keeps tables ([`Lake`]), and answers
//!   questions at a prompt ([`AdHoc`]).
//! - Queries are planned once per ruleset and bound to each batch's rows; hot windows belong to the pipeline.
//! - Every table has one writer; an append costs the same however long the table's history is.

mod adhoc;
mod error;
mod files;
mod generate;
mod normalise;
mod query;
mod reference;
mod table;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::execution::session_state::SessionState;
use tokio::runtime::Handle;
use weir_model::port::{AdHoc, BronzeRange, Lake, Queries, QueryEngine, RowMaker, Table, Upkeep, Upkept, ViewTable};
use weir_model::time::BoxFuture;
use weir_model::{Fault, FaultKind, FaultPoints, Limits, Name, Problem, Ruleset, Time};

pub use files::parquet;

use query::{RunLimits, Tenants};
use table::{Reader, Settings, Tables};

/// How a lake is kept.
#[derive(Debug, Clone)]
pub struct LakeConfig {
    /// The folder of all tables: `<root>/<tenant>/<table>/`. Absolute; made if its parent is there.
    pub root: PathBuf,
    /// Where writers and reads run: multi-threaded, with I/O and time enabled.
    pub runtime: Handle,
    /// Versions of a table between two checkpoints.
    pub checkpoint_every: u64,
    /// How long older versions of a table can be read: log entries below a checkpoint, and files that are not in the
    /// table any more, are kept for that long.
    pub log_retention: Duration,
    /// About how many bytes a file of rows gets where rows are written anew: when small files are put together, and when
    /// rows are replaced.
    pub file_bytes: u64,
    /// How many files of about the same size are put together by the upkeep; at least 2.
    pub merge_files: usize,
    /// How long batches can be replayed: tables that they are pinned to versions of keep these for as long.
    pub replay_horizon: Duration,
    /// Memory that one question at the prompt may use, in bytes.
    pub adhoc_memory_bytes: u64,
    /// Rows that one question at the prompt may answer.
    pub adhoc_rows: u64,
    /// CPU time that one question at the prompt may take.
    pub adhoc_time: Duration,
}

impl LakeConfig {
    /// With defaults: a checkpoint every 25 versions, log entries kept for an hour, questions with the limits of a query.
    pub fn new(root: PathBuf, runtime: Handle) -> Self {
        let limits = Limits::defaults();
        Self {
            root,
            runtime,
            checkpoint_every: 25,
            log_retention: Duration::from_secs(3600),
            file_bytes: 32 << 20,
            merge_files: 8,
            replay_horizon: Duration::from_secs(7 * 24 * 3600),
            adhoc_memory_bytes: limits.sql_memory_bytes,
            adhoc_rows: limits.sql_rows,
            adhoc_time: limits.sql_time.get(),
        }
    }
}

/// Queries and tables of all tenants. Its calls that are not futures block and must come from threads that may.
pub struct WeirLake {
    runtime: Handle,
    session: Arc<SessionState>,
    tenants: Tenants,
    reader: Arc<Reader>,
    shared: Arc<reference::Shared>,
    tables: Tables,
    adhoc: RunLimits,
}

impl fmt::Debug for WeirLake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeirLake").field("root", self.reader.root()).finish_non_exhaustive()
    }
}

impl WeirLake {
    /// Opens a lake; its folder is made when it is not there, the tables are opened when they are asked for.
    pub fn open(config: LakeConfig, faults: Arc<dyn FaultPoints>) -> Result<Arc<Self>, Fault> {
        let wrong = |message: String| Fault::host(FaultKind::Disk, message);
        match std::fs::create_dir(&config.root) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(wrong(format!("the lake's folder {} cannot be made: {e}", config.root.display()))),
        }
        let root = config
            .root
            .canonicalize()
            .map_err(|e| wrong(format!("the lake's folder {}: {e}", config.root.display())))?;
        if !root.is_dir() {
            return Err(wrong(format!("the lake's folder {} is a file", root.display())));
        }
        let settings = Settings {
            runtime: config.runtime.clone(),
            checkpoint_every: config.checkpoint_every.max(1),
            log_retention: config.log_retention,
            file_bytes: config.file_bytes.max(1),
            merge_files: config.merge_files.max(2),
            replay_horizon: config.replay_horizon,
            pinned: Mutex::default(),
        };
        Ok(Arc::new(Self {
            session: Arc::new(query::state()),
            tenants: Tenants::default(),
            reader: Arc::new(Reader::new(root.clone())),
            shared: Arc::default(),
            tables: Tables::new(root, settings, faults),
            runtime: config.runtime,
            adhoc: RunLimits {
                memory: query::to_usize(config.adhoc_memory_bytes),
                rows: query::to_usize(config.adhoc_rows),
                time: config.adhoc_time,
            },
        }))
    }
}

impl QueryEngine for WeirLake {
    fn plan(&self, ruleset: &Ruleset) -> Result<Arc<dyn Queries>, Vec<Problem>> {
        // Before the first batch is pinned to a version of one.
        for table in ruleset.manifest.tables.values().filter_map(|def| def.lake.as_ref()) {
            self.tables.pin(&ruleset.scenario.tenant, table);
        }
        let memory = query::to_usize(ruleset.limits.sql_memory_bytes);
        let tools = query::Tools {
            session: self.session.clone(),
            runtime: self.runtime.clone(),
            share: self.tenants.share(&ruleset.scenario.tenant, memory),
            reader: self.reader.clone(),
            shared: self.shared.clone(),
        };
        Ok(Arc::new(query::plan_all(ruleset, tools)?))
    }

    fn row_maker(&self, sql: &str, schema: SchemaRef, file: &str) -> Result<Arc<dyn RowMaker>, Problem> {
        generate::row_maker(self.session.clone(), self.runtime.clone(), sql, schema, file)
    }
}

impl Lake for WeirLake {
    fn table<'a>(
        &'a self,
        tenant: &'a Name,
        table: &'a Name,
        schema: SchemaRef,
    ) -> BoxFuture<'a, Result<Arc<dyn Table>, Fault>> {
        Box::pin(self.tables.table(tenant, table, schema))
    }

    fn bronze<'a>(
        &'a self,
        tenant: &'a Name,
        table: &'a Name,
        schema: SchemaRef,
        range: BronzeRange,
    ) -> BoxFuture<'a, Result<Vec<RecordBatch>, Fault>> {
        Box::pin(self.reader.bronze(tenant, table, schema, range))
    }

    fn upkeep<'a>(&'a self, tenant: &'a Name, table: &'a Name, what: Upkeep) -> BoxFuture<'a, Result<Upkept, Fault>> {
        Box::pin(self.tables.upkeep(tenant, table, what))
    }

    fn fits<'a>(&'a self, tenant: &'a Name, table: &'a Name, schema: SchemaRef) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(self.tables.fits(tenant, table, schema))
    }

    fn oldest<'a>(
        &'a self,
        tenant: &'a Name,
        table: &'a Name,
        column: &'a str,
    ) -> BoxFuture<'a, Result<Option<Time>, Fault>> {
        Box::pin(self.tables.oldest(tenant, table, column))
    }
}

impl AdHoc for WeirLake {
    fn query(&self, tenant: &Name, sql: &str, views: Vec<ViewTable>) -> Result<RecordBatch, Fault> {
        adhoc::query(&self.reader, &self.runtime, self.adhoc, tenant, sql, views)
    }
}
