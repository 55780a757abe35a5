//! Reference tables in the lake: the latest version when a batch is planned, read whole and kept until there is another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_ord::sort::{SortColumn, lexsort_to_indices};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use datafusion::common::Column;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::Expr;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use tokio::runtime::Handle;
use weir_model::rows::fit;
use weir_model::stream::Columns;
use weir_model::{CallError, Fault, FaultKind, Name};

use crate::error::call_error;
use crate::normalise::with_rows;
use crate::query::{Deadline, Piece, TableRows, config};
use crate::table::{Opened, Reader};

/// Rows of one version of a table.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub version: String,
    pub rows: Arc<TableRows>,
    /// About how much they take.
    pub bytes: usize,
}

/// What all scenarios have loaded: equal tables are held once.
#[derive(Debug, Default)]
pub(crate) struct Shared(Mutex<HashMap<String, Weak<Loaded>>>);

/// What reading may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// Bytes of rows.
    pub memory: usize,
    /// CPU time.
    pub time: Duration,
}

/// A reference table in the lake.
#[derive(Debug)]
pub(crate) struct InLake {
    tenant: Name,
    table: Name,
    columns: Columns,
    schema: SchemaRef,
    /// Manifest and field, for faults.
    place: (String, String),
    reader: Arc<Reader>,
    runtime: Handle,
    shared: Arc<Shared>,
    /// What the latest plan pinned.
    latest: Mutex<Option<Arc<Loaded>>>,
}

impl InLake {
    pub fn new(
        (tenant, table): (Name, Name),
        (columns, schema): (Columns, SchemaRef),
        place: (String, String),
        (reader, runtime, shared): (Arc<Reader>, Handle, Arc<Shared>),
    ) -> Self {
        Self { tenant, table, columns, schema, place, reader, runtime, shared, latest: Mutex::default() }
    }

    /// The version that there is now, with its rows at hand. Costs two looks at the log when nothing has changed.
    pub fn now(&self, budget: Budget) -> Result<Arc<Loaded>, Fault> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let loaded = self.wait(budget, async {
            let Some(opened) = self.reader.open(&self.tenant, &self.table).await? else {
                return Err(Failed::Fault(
                    Fault::external(FaultKind::Source, format_args!("there is no table {}", self.name()))
                        .fix("make it, or name another; batches wait until it is there"),
                ));
            };
            match latest.filter(|l| l.version == opened.pin() && l.bytes <= budget.memory) {
                Some(loaded) => Ok(loaded),
                None => self.load(&opened, budget.memory).await,
            }
        });
        let loaded = loaded.map_err(|e| e.fault(&self.name())).map_err(|f| self.placed(f))?;
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(loaded.clone());
        Ok(loaded)
    }

    /// The rows of a version that was pinned. What has been cleaned up since cannot be replayed.
    pub fn at(&self, pin: &str, budget: Budget) -> Result<Arc<TableRows>, Fault> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(loaded) = latest.filter(|l| l.version == pin) {
            return Ok(loaded.rows.clone());
        }
        let gone = |why: &str| {
            let message = format!("table {} cannot be read as the batch saw it, at version {pin}: {why}", self.name());
            Fault::external(FaultKind::NotReplayable, message)
                .fix("keep the table's old versions and their files as long as batches shall be replayed")
        };
        let loaded = self.wait(budget, async {
            let number = pin.split_once('@').and_then(|(number, _)| number.parse().ok());
            let number = number.ok_or_else(|| Fault::internal(format_args!("{pin} is no version of a table")))?;
            let Some(opened) = self.reader.open_at(&self.tenant, &self.table, number).await? else {
                return Err(Failed::Fault(gone("its log does not go back so far")));
            };
            if opened.pin() != pin {
                return Err(Failed::Fault(gone("the table was made anew since")));
            }
            let loaded = self.load(&opened, budget.memory).await;
            // What the engine says of a missing file is a text of several layers, so the files are looked at.
            if matches!(loaded, Err(Failed::Sql(_)))
                && opened.lacks_a_file(self.reader.root(), &self.tenant, &self.table)
            {
                return Err(Failed::Fault(gone("its files have been removed")));
            }
            loaded
        });
        match loaded {
            Ok(loaded) => Ok(loaded.rows.clone()),
            Err(e) => Err(self.placed(e.fault(&self.name()))),
        }
    }

    fn name(&self) -> String {
        format!("{}/{}", self.tenant, self.table)
    }

    fn placed(&self, fault: Fault) -> Fault {
        fault.file(&self.place.0).field(&self.place.1)
    }

    fn wait<T>(&self, budget: Budget, work: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
        let deadline = Deadline::start(budget.time);
        let wait = budget.time.saturating_mul(10);
        let done = self.runtime.block_on(async { tokio::time::timeout(wait, deadline.watch(work)).await });
        match done {
            Ok(Ok(done)) => done,
            Ok(Err(fault)) => Err(fault.into()),
            Err(_) => {
                let message = format!("table {} did not answer within {wait:?}", self.name());
                Err(Fault::external(FaultKind::Deadline, message).into())
            }
        }
    }

    async fn load(&self, opened: &Opened, memory: usize) -> Result<Arc<Loaded>, Failed> {
        let key = format!("{} {} {:?}", self.name(), opened.pin(), self.columns);
        if let Some(loaded) = self.shared.get(&key).filter(|l| l.bytes <= memory) {
            return Ok(loaded);
        }
        let there = opened.provider.schema();
        let names: Vec<&str> = there.fields().iter().map(|f| f.name().as_str()).collect();
        if let Some(column) = self.columns.0.iter().find(|c| !names.contains(&c.name.as_str())) {
            let message = format!("table {} has no column {}; it has {}", self.name(), column.name, names.join(", "));
            let fault = Fault::tenant(FaultKind::Config, message);
            return Err(fault.fix("correct the schema of the reference table").into());
        }
        let context = SessionContext::new_with_config(config());
        opened.prepare(&context)?;
        let columns: Vec<Expr> = self.columns.0.iter().map(|c| Expr::Column(Column::from_name(&c.name))).collect();
        let frame = context.read_table(opened.provider.clone())?.select(columns)?;
        let mut rows = frame.execute_stream().await?;
        let (mut batches, mut bytes) = (Vec::new(), 0);
        while let Some(batch) = rows.try_next().await? {
            let batch = self.fitted(&batch)?;
            bytes += batch.get_array_memory_size();
            if bytes > memory {
                let message = format!("the rows of table {} take more than {memory} bytes", self.name());
                let fault = Fault::tenant(FaultKind::SqlLimit, message).field("table_bytes");
                return Err(fault.fix("make it smaller, or ask the operator for more table_bytes").into());
            }
            batches.push(batch);
        }
        // Files of a table have no order that its log promises.
        let batch = sorted(&self.schema, &batches).map_err(DataFusionError::from)?;
        let bytes = batch.get_array_memory_size();
        let rows = Arc::new(TableRows(vec![Piece { batch, keep: None }]));
        let loaded = Arc::new(Loaded { version: opened.pin(), rows, bytes });
        self.shared.put(key, &loaded);
        Ok(loaded)
    }

    fn fitted(&self, batch: &RecordBatch) -> Result<RecordBatch, Failed> {
        let refuse = |reason: &str| {
            let fault = Fault::external(FaultKind::Source, format_args!("table {}: {reason}", self.name()));
            Failed::Fault(fault.fix("correct the table, or the schema of the reference table"))
        };
        let mut columns = Vec::new();
        for (column, values) in self.columns.0.iter().zip(batch.columns()) {
            let fitted = fit(column, Some(values), batch.num_rows()).map_err(|reason| refuse(&reason))?;
            if let Some((_, reason)) = fitted.bad.first() {
                return Err(refuse(reason));
            }
            columns.push(fitted.values);
        }
        Ok(with_rows(self.schema.clone(), columns, batch.num_rows()).map_err(DataFusionError::from)?)
    }
}

impl Shared {
    fn get(&self, key: &str) -> Option<Arc<Loaded>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).and_then(Weak::upgrade)
    }

    fn put(&self, key: String, loaded: &Arc<Loaded>) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, weak| weak.strong_count() > 0);
        held.insert(key, Arc::downgrade(loaded));
    }
}

/// All rows in an order that depends on nothing but their values.
fn sorted(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<RecordBatch, ArrowError> {
    let all = concat_batches(schema, batches)?;
    let keys: Vec<SortColumn> =
        all.columns().iter().map(|values| SortColumn { values: values.clone(), options: None }).collect();
    if keys.is_empty() || all.num_rows() < 2 {
        return Ok(all);
    }
    take_record_batch(&all, &lexsort_to_indices(&keys, None)?)
}

/// A failure of reading, before it is told of.
enum Failed {
    Fault(Fault),
    Sql(DataFusionError),
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<DataFusionError> for Failed {
    fn from(e: DataFusionError) -> Self {
        Self::Sql(e)
    }
}

impl Failed {
    /// What cannot be read now may be readable later.
    fn fault(self, table: &str) -> Fault {
        match self {
            Self::Fault(fault) => fault,
            Self::Sql(e) => match call_error(&e) {
                CallError::Fault(fault) if fault.kind == FaultKind::Sink => {
                    Fault::external(FaultKind::Source, format_args!("table {table}: {}", fault.message))
                }
                CallError::Fault(fault) => fault,
                CallError::Data(data) => Fault::external(FaultKind::Source, format_args!("table {table}: {data}")),
            },
        }
    }
}
