//! A plan that is made once and run many times: checked out with its own cell, given back when its rows have all come,
//! thrown away when anything went wrong.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use datafusion::common::Result as SqlResult;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::TryStreamExt;
use tokio::runtime::Handle;
use weir_model::{CallError, Fault, FaultKind};

use super::deadline::Deadline;
use super::memory::{Pool, Share};
use super::params::{Binding, Cell, bind};
use super::session::InOrder;
use crate::error::{call_error, sql_text};
use crate::normalise::{cast_batch, plain_schema};

/// Plans that wait for the next run. More runs at a time than these make their own and drop them.
const IDLE: usize = 4;
/// Runs after which a plan is made anew: whatever an operator might gather per execution is bounded.
const RUNS: u32 = 10_000;

/// What one run may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunLimits {
    pub memory: usize,
    pub rows: usize,
    pub time: Duration,
}

/// A kept plan.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Optimised, parameters still placeholders.
    logical: LogicalPlan,
    /// Of the answer, in the plain form.
    pub schema: SchemaRef,
    /// Whether a physical plan can run more than once.
    reusable: bool,
    session: Arc<SessionState>,
    runtime: Handle,
    share: Arc<Share>,
    limits: RunLimits,
    idle: Mutex<Vec<Instance>>,
}

/// One executable copy of the plan.
#[derive(Debug)]
struct Instance {
    plan: Arc<dyn ExecutionPlan>,
    cell: Arc<Cell>,
    context: Arc<TaskContext>,
    pool: Arc<Pool>,
    runs: u32,
}

impl Kept {
    /// Optimises and plans. `plan` has placeholders with types.
    pub fn new(
        plan: &LogicalPlan,
        session: Arc<SessionState>,
        runtime: Handle,
        share: Arc<Share>,
        limits: RunLimits,
    ) -> SqlResult<Self> {
        let mut kept = Self {
            logical: session.optimize(plan)?,
            schema: plain_schema(plan.schema().as_arrow()),
            reusable: true,
            session,
            runtime,
            share,
            limits,
            idle: Mutex::default(),
        };
        let first = kept.instance()?;
        kept.schema = plain_schema(&first.plan.schema());
        kept.reusable = reusable(&first.plan)?;
        if kept.reusable {
            kept.give_back(first);
        } else {
            tracing::debug!("a plan with recursion is made anew for each run");
        }
        Ok(kept)
    }

    /// The optimised plan.
    pub fn logical(&self) -> &LogicalPlan {
        &self.logical
    }

    /// Runs on the calling thread, which must be one that may block.
    pub fn run(&self, binding: Binding, deadline: Deadline) -> Result<RecordBatch, CallError> {
        // An instance that unwinds is dropped with the closure, so nothing half done is seen again.
        catch_unwind(AssertUnwindSafe(|| self.run_once(binding, deadline))).unwrap_or_else(|panic| {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("it panicked");
            Err(CallError::Fault(Fault::internal(format_args!("the SQL engine failed: {text}"))))
        })
    }

    fn run_once(&self, binding: Binding, deadline: Deadline) -> Result<RecordBatch, CallError> {
        let mut instance = self.check_out().map_err(|e| call_error(&e))?;
        instance.cell.set(Some(Arc::new(binding)));
        let answer = self
            .runtime
            .block_on(deadline.watch(self.execute(&instance)))?
            .map_err(|e| self.explain(&e, &instance.pool))?;
        instance.cell.set(None);
        instance.runs += 1;
        if self.reusable && instance.runs < RUNS {
            self.give_back(instance);
        }
        Ok(answer)
    }

    async fn execute(&self, instance: &Instance) -> SqlResult<RecordBatch> {
        let plan = reset_plan_states(instance.plan.clone())?;
        let pool = &instance.context.runtime_env().memory_pool;
        let answer_bytes = MemoryConsumer::new("answer").register(pool);
        let mut rows = plan.execute(0, instance.context.clone())?;
        let mut batches = Vec::new();
        let mut count = 0;
        while let Some(batch) = rows.try_next().await? {
            count += batch.num_rows();
            if count > self.limits.rows {
                return Err(DataFusionError::External(Box::new(self.too_many_rows())));
            }
            if batch.num_rows() > 0 {
                answer_bytes.try_grow(batch.get_array_memory_size())?;
                batches.push(batch);
            }
        }
        let all = concat_batches(&plan.schema(), &batches)?;
        Ok(cast_batch(&all, &self.schema)?)
    }

    fn explain(&self, error: &DataFusionError, pool: &Pool) -> CallError {
        if let DataFusionError::ResourcesExhausted(_) = error.find_root() {
            return CallError::Fault(pool.fault(&sql_text(error)));
        }
        call_error(error)
    }

    fn too_many_rows(&self) -> Fault {
        Fault::tenant(FaultKind::SqlLimit, format_args!("a query answers more than {} rows", self.limits.rows))
            .field("sql_rows")
            .fix("aggregate or filter in SQL, or ask the operator for more sql_rows")
    }

    fn check_out(&self) -> SqlResult<Instance> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| self.instance(), Ok)
    }

    fn give_back(&self, instance: Instance) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE {
            idle.push(instance);
        }
    }

    fn instance(&self) -> SqlResult<Instance> {
        let cell = Arc::new(Cell::default());
        let pool = Pool::new(self.limits.memory, self.share.clone());
        let mut session = self.session.as_ref().clone();
        *session.config_mut() = session.config().clone().with_extension(cell.clone());
        let bound = bind(self.logical.clone(), &cell)?;
        // Planning reads nothing and waits for nothing, so any executor will do.
        let plan = futures::executor::block_on(session.query_planner().create_physical_plan(&bound, &session))?;
        let plan = if plan.output_partitioning().partition_count() == 1 { plan } else { InOrder::wrap(plan) };
        let context = TaskContext::from(&session).with_runtime(pool.runtime()?);
        Ok(Instance { plan, cell, context: Arc::new(context), pool, runs: 0 })
    }
}

/// `reset_plan_states` does not reset recursion, nor filters that one operator hands to another while it runs. That of a
/// sort with a limit it does, and nobody else has it.
fn reusable(plan: &Arc<dyn ExecutionPlan>) -> SqlResult<bool> {
    let mut reusable = true;
    plan.apply(|node| {
        let recursive = matches!(node.name(), "RecursiveQueryExec" | "WorkTableExec");
        let handed = !node.is::<SortExec>() && !node.dynamic_expressions_produced().is_empty();
        if recursive || handed {
            reusable = false;
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(reusable)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use arrow_array::Int64Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_schema::{DataType, Field, Schema};

    use super::*;
    use crate::query::memory::Tenants;
    use crate::query::order::total;
    use crate::query::plan::draft;
    use crate::query::scan::{Piece, TableRows};
    use crate::query::{session, timestamp};

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8, true), Field::new("n", DataType::Int64, true)]))
    }

    fn reusable(sql: &str) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        kept(sql, &runtime).reusable
    }

    fn kept(sql: &str, runtime: &tokio::runtime::Runtime) -> Kept {
        let session = Arc::new(session::state());
        let tables = BTreeMap::from([("a".to_owned(), schema()), ("b".to_owned(), schema())]);
        let plan = total(draft(&session, sql, &[], &tables).expect("good SQL").plan).expect("a plan");
        let limits = RunLimits { memory: 1 << 20, rows: 10, time: Duration::from_secs(1) };
        let share = Tenants::share_alone(limits.memory);
        Kept::new(&plan, session, runtime.handle().clone(), share, limits).expect("a plan")
    }

    #[test]
    fn only_recursion_makes_a_plan_anew_for_each_run() {
        for sql in [
            "SELECT a.k, b.n FROM a JOIN b ON a.k = b.k",
            "SELECT a.k FROM a LEFT JOIN b ON a.k = b.k WHERE b.n > 1",
            "SELECT a.k FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
            "SELECT k, min(n) AS least, max(n) AS most FROM a GROUP BY k",
            "SELECT min(n) AS least FROM a",
            "SELECT k, n FROM a ORDER BY n LIMIT 3",
            "SELECT k FROM a UNION ALL SELECT k FROM b",
        ] {
            assert!(reusable(sql), "{sql}");
        }
        let counting = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r";
        assert!(!reusable(counting));
    }

    #[test]
    fn a_limit_of_one_run_does_not_reach_the_next() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let kept = kept("SELECT n FROM a ORDER BY n DESC LIMIT 1", &runtime);
        for least in [100, 10, 1] {
            let rows: Vec<i64> = (least..least + 5_000).collect();
            let schema = schema();
            let keys = arrow_array::new_null_array(&DataType::Utf8, rows.len());
            let batch = RecordBatch::try_new(schema, vec![keys, Arc::new(Int64Array::from(rows))]).expect("rows");
            let rows = Arc::new(TableRows(vec![Piece { batch, keep: None }]));
            let binding = Binding { params: vec![timestamp(0)], tables: HashMap::from([("a".to_owned(), rows)]) };
            let answer = kept.run(binding, Deadline::start(Duration::from_secs(10))).expect("rows");
            assert_eq!(answer.column(0).as_primitive::<Int64Type>().values(), &[least + 4_999]);
        }
    }
}
