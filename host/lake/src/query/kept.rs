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

/// `reset_plan_states` does not reset recursion, nor filters that one operator hands to another while it runs.
fn reusable(plan: &Arc<dyn ExecutionPlan>) -> SqlResult<bool> {
    let mut reusable = true;
    plan.apply(|node| {
        let recursive = matches!(node.name(), "RecursiveQueryExec" | "WorkTableExec");
        if recursive || !node.dynamic_expressions_produced().is_empty() {
            reusable = false;
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(reusable)
}
