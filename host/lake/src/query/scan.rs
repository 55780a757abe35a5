//! Tables of a kept plan: what they hold is taken from the plan's cell when the plan runs.

use std::pin::Pin;
use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::SchemaRef;
use arrow_select::coalesce::BatchCoalescer;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties, SendableRecordBatchStream,
};

use futures::TryStreamExt;

use super::params::Cell;
use super::session::BATCH_ROWS;
use crate::normalise::with_rows;

/// Some rows, and which of them count.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub batch: RecordBatch,
    /// None: all of them.
    pub keep: Option<BooleanArray>,
}

impl Piece {
    fn rows(&self) -> usize {
        self.keep.as_ref().map_or(self.batch.num_rows(), BooleanArray::true_count)
    }
}

/// What a table holds in one run. Every piece has at least the columns that the plan reads.
#[derive(Debug, Default)]
pub(crate) struct TableRows(pub Vec<Piece>);

/// A table of a query: a name and a schema.
#[derive(Debug)]
pub(crate) struct BoundTable {
    pub name: String,
    pub schema: SchemaRef,
}

impl BoundTable {
    fn plan(&self, session: &dyn Session, projection: Option<&Vec<usize>>) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(cell) = session.config().get_extension::<Cell>() else {
            return internal_err!("a table is planned without a cell");
        };
        let schema = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => self.schema.clone(),
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Arc::new(BoundScan { table: self.name.clone(), schema, cell, properties: Arc::new(properties) }))
    }
}

impl TableProvider for BoundTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    // What the trait's async_trait attribute makes of `async fn scan`, without its crate.
    fn scan<'a, 'b, 'c, 'd, 'async_trait>(
        &'a self,
        session: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        _: &'d [Expr],
        _: Option<usize>,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<dyn ExecutionPlan>>> + Send + 'async_trait>>
    where
        'a: 'async_trait,
        'b: 'async_trait,
        'c: 'async_trait,
        'd: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(std::future::ready(self.plan(session, projection)))
    }
}

#[derive(Debug)]
struct BoundScan {
    table: String,
    schema: SchemaRef,
    cell: Arc<Cell>,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for BoundScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "BoundScan: {}", self.table)
    }
}

impl ExecutionPlan for BoundScan {
    fn name(&self) -> &'static str {
        "BoundScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    /// Looks into the cell when the first rows are asked for: a stream may be opened before there is anything in it.
    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (table, schema, cell) = (self.table.clone(), self.schema.clone(), self.cell.clone());
        let rows = futures::stream::once(async move {
            let batches = Batches {
                rows: cell.table(&table)?,
                next: 0,
                out: BatchCoalescer::new(schema.clone(), BATCH_ROWS),
                counted: None,
                schema,
            };
            Ok::<_, DataFusionError>(futures::stream::iter(batches))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), rows.try_flatten())))
    }
}

/// Batches of [`BATCH_ROWS`], wherever the pieces begin and end: how a window was filled must not show in an answer.
struct Batches {
    schema: SchemaRef,
    rows: Arc<TableRows>,
    next: usize,
    out: BatchCoalescer,
    /// Rows still to be told of, where no column is read.
    counted: Option<usize>,
}

impl Batches {
    fn columns(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.out.next_completed_batch() {
                return Ok(Some(batch));
            }
            let Some(piece) = self.rows.0.get(self.next) else {
                if self.out.is_empty() {
                    return Ok(None);
                }
                self.out.finish_buffered_batch()?;
                continue;
            };
            self.next += 1;
            let columns = self
                .schema
                .fields()
                .iter()
                .map(|f| piece.batch.schema_ref().index_of(f.name()))
                .collect::<std::result::Result<Vec<_>, _>>()?;
            let batch = with_rows(
                self.schema.clone(),
                columns.into_iter().map(|i| piece.batch.column(i).clone()).collect(),
                piece.batch.num_rows(),
            )?;
            match &piece.keep {
                Some(keep) => self.out.push_batch_with_filter(batch, keep)?,
                None => self.out.push_batch(batch)?,
            }
        }
    }

    fn counts(&mut self) -> Result<Option<RecordBatch>> {
        let all = || self.rows.0.iter().map(Piece::rows).sum();
        let left = self.counted.unwrap_or_else(all);
        let now = left.min(BATCH_ROWS);
        self.counted = Some(left - now);
        if now == 0 {
            return Ok(None);
        }
        Ok(Some(with_rows(self.schema.clone(), Vec::new(), now)?))
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.schema.fields().is_empty() { self.counts().transpose() } else { self.columns().transpose() }
    }
}
