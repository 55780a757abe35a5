//! A plan that is made once and run many times: checked out with its own cell, given back when its rows have all come,
//! thrown away when anything went wrong.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use datafusion::common::Result as SqlResult;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, SendableRecordBatchStream};
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
    /// Whether its streams can be opened before the inputs of the run are there.
    early: bool,
    session: Arc<SessionState>,
    runtime: Handle,
    share: Arc<Share>,
    limits: RunLimits,
    idle: Mutex<Vec<Instance>>,
}

/// One executable copy of the plan.
struct Instance {
    plan: Arc<dyn ExecutionPlan>,
    cell: Arc<Cell>,
    context: Arc<TaskContext>,
    pool: Arc<Pool>,
    runs: u32,
    /// The rows of the next run, which nobody has asked for yet.
    opened: Option<SendableRecordBatchStream>,
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plan, runs, opened, .. } = self;
        f.debug_struct("Instance")
            .field("plan", plan)
            .field("runs", runs)
            .field("opened", &opened.is_some())
            .finish_non_exhaustive()
    }
}

impl Instance {
    /// Begins a run without reading anything. Resetting the operators and opening their streams is a third of what a query
    /// over a few hundred rows takes.
    fn open(&self) -> SqlResult<SendableRecordBatchStream> {
        reset_plan_states(self.plan.clone())?.execute(0, self.context.clone())
    }
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
            early: true,
            session,
            runtime,
            share,
            limits,
            idle: Mutex::default(),
        };
        let mut first = kept.instance()?;
        kept.schema = plain_schema(&first.plan.schema());
        kept.reusable = reusable(&first.plan)?;
        kept.early = kept.reusable && reads_when_asked(&first.plan)?;
        if kept.early {
            // Some aggregates ask for their parameters as soon as they are opened.
            first.opened = kept.open(&first);
            kept.early = first.opened.is_some();
        }
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

    /// Does ahead what the next run need not do then. To be called while nobody waits; whether it was called does not show
    /// in an answer.
    pub fn make_ready(&self) {
        if !self.early {
            return;
        }
        let Some(mut instance) = self.idle().pop() else { return };
        if instance.opened.is_none() {
            instance.opened = self.open(&instance);
        }
        self.give_back(instance);
    }

    /// None: it cannot be opened now. The run says what is wrong.
    fn open(&self, instance: &Instance) -> Option<SendableRecordBatchStream> {
        let _runtime = self.runtime.enter();
        // What unwinds is a copy of the plan, which is gone then.
        catch_unwind(AssertUnwindSafe(|| instance.open())).ok()?.ok()
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
        let opened = instance.opened.take();
        let answer = self
            .runtime
            .block_on(deadline.watch(self.execute(&instance, opened)))?
            .map_err(|e| self.explain(&e, &instance.pool))?;
        instance.cell.set(None);
        instance.runs += 1;
        if self.reusable && instance.runs < RUNS {
            self.give_back(instance);
        }
        Ok(answer)
    }

    async fn execute(&self, instance: &Instance, opened: Option<SendableRecordBatchStream>) -> SqlResult<RecordBatch> {
        let pool = &instance.context.runtime_env().memory_pool;
        let answer_bytes = MemoryConsumer::new("answer").register(pool);
        let mut rows = opened.map_or_else(|| instance.open(), Ok)?;
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
        let all = concat_batches(&rows.schema(), &batches)?;
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
        let idle = self.idle().pop();
        idle.map_or_else(|| self.instance(), Ok)
    }

    fn give_back(&self, instance: Instance) {
        let mut idle = self.idle();
        if idle.len() < IDLE {
            idle.push(instance);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Instance>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
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
        Ok(Instance { plan, cell, context: Arc::new(context), pool, runs: 0, opened: None })
    }
}

/// `reset_plan_states` does not reset recursion, nor filters that one operator hands to another while it runs. That of a
/// sort with a limit it does, and nobody else has it.
fn reusable(plan: &Arc<dyn ExecutionPlan>) -> SqlResult<bool> {
    let keeps = |node: &Arc<dyn ExecutionPlan>| {
        let recursive = matches!(node.name(), "RecursiveQueryExec" | "WorkTableExec");
        let handed = !node.is::<SortExec>() && !node.dynamic_expressions_produced().is_empty();
        Ok(recursive || handed)
    };
    Ok(!plan.exists(keeps)?)
}

/// Operators that bring several partitions together have tasks that read from when they are opened, whoever asks. A union
/// has several, and is read in their order ([`InOrder`]).
fn reads_when_asked(plan: &Arc<dyn ExecutionPlan>) -> SqlResult<bool> {
    let several =
        |node: &Arc<dyn ExecutionPlan>| Ok(node.output_partitioning().partition_count() > 1 && !node.is::<UnionExec>());
    Ok(!plan.exists(several)?)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float64Type, Int64Type};
    use arrow_array::{ArrayRef, Int64Array, StringArray};
    use arrow_schema::{DataType, Field, Schema};
    use datafusion::common::ScalarValue;

    use super::*;
    use crate::query::memory::Tenants;
    use crate::query::order::total;
    use crate::query::plan::draft;
    use crate::query::scan::{Piece, TableRows};
    use crate::query::{session, timestamp};

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8, true), Field::new("n", DataType::Int64, true)]))
    }

    #[test]
    fn a_query_that_needs_its_parameters_to_be_opened_keeps_its_plan() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let kept = kept("SELECT approx_percentile_cont(n, $q) AS m FROM a", &runtime);
        assert!(!kept.early && kept.idle().len() == 1);
        for (q, expected) in [(0.0, 0.0), (1.0, 4.0), (0.0, 0.0)] {
            let bound = Binding { params: vec![ScalarValue::Float64(Some(q))], ..bound(&["a"], &["x"; 5]) };
            let answer = kept.run(bound, Deadline::start(Duration::from_secs(10))).expect("rows");
            assert_eq!(answer.column(0).as_primitive::<Float64Type>().values(), &[expected]);
            kept.make_ready();
            assert_eq!(kept.idle().len(), 1, "the plan is still there");
        }
    }

    fn reusable(sql: &str) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        kept(sql, &runtime).reusable
    }

    fn kept(sql: &str, runtime: &tokio::runtime::Runtime) -> Kept {
        let session = Arc::new(session::state());
        let tables = BTreeMap::from([("a".to_owned(), schema()), ("b".to_owned(), schema())]);
        let plan =
            total(draft(&session, sql, &[("q", DataType::Float64)], &tables).expect("good SQL").plan).expect("a plan");
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

    fn bound(names: &[&str], keys: &[&str]) -> Binding {
        let numbers: Vec<i64> = (0..keys.len() as i64).collect();
        let columns: Vec<ArrayRef> =
            vec![Arc::new(StringArray::from(keys.to_vec())), Arc::new(Int64Array::from(numbers))];
        let batch = RecordBatch::try_new(schema(), columns).expect("rows");
        let rows = Arc::new(TableRows(vec![Piece { batch, keep: None }]));
        let tables = names.iter().map(|name| ((*name).to_owned(), rows.clone())).collect();
        Binding { params: vec![timestamp(0)], tables }
    }

    #[test]
    fn a_run_that_was_made_ready_reads_its_own_inputs() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for (sql, counts) in [
            ("SELECT a.k, count(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY a.k", [4, 1]),
            ("SELECT k, count(*) AS n FROM (SELECT k FROM a UNION ALL SELECT k FROM b) u GROUP BY k", [4, 2]),
            ("SELECT a.k, count(*) AS n FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.n > 5) GROUP BY a.k", [2, 1]),
            ("SELECT k, sum(c) AS n FROM (SELECT k, count(*) OVER (PARTITION BY k) AS c FROM a) w GROUP BY k", [4, 1]),
        ] {
            let kept = kept(sql, &runtime);
            assert!(kept.early, "{sql}");
            let run = |keys: &[&str]| {
                let answer =
                    kept.run(bound(&["a", "b"], keys), Deadline::start(Duration::from_secs(10))).expect("rows");
                let counts = answer.column(1).as_primitive::<Int64Type>().values().to_vec();
                (answer.column(0).as_string::<i32>().value(0).to_owned(), counts)
            };
            for (round, ready) in [true, false, true, true].into_iter().enumerate() {
                if ready {
                    // The first run is ready as soon as there is a plan.
                    (0..2 * round).for_each(|_| kept.make_ready());
                    assert!(kept.idle().last().expect("one waits").opened.is_some(), "{sql}");
                }
                assert_eq!(run(&["x", "x"]), ("x".to_owned(), vec![counts[0]]), "{sql}");
                assert!(kept.idle().last().expect("one waits").opened.is_none(), "a stream is read once");
                assert_eq!(run(&["y"]), ("y".to_owned(), vec![counts[1]]), "{sql}");
            }
        }
    }

    #[test]
    fn a_run_that_fails_leaves_nothing_ready_behind() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let kept = kept("SELECT k, n FROM a", &runtime);
        kept.make_ready();
        let share = kept.share.used();
        let many: Vec<&str> = vec!["x"; 11];
        let refused = kept.run(bound(&["a"], &many), Deadline::start(Duration::from_secs(10)));
        assert!(refused.is_err(), "eleven rows are more than ten");
        assert!(kept.idle().is_empty() && kept.share.used() <= share, "what failed is gone");
        kept.make_ready();
        let answer = kept.run(bound(&["a"], &["x"]), Deadline::start(Duration::from_secs(10))).expect("rows");
        assert_eq!(answer.num_rows(), 1);
        kept.make_ready();
        drop(kept.idle().pop());
        assert_eq!(kept.share.used(), 0, "streams that nobody reads hold nothing once they are gone");
    }

    #[test]
    fn a_limit_of_one_run_does_not_reach_the_next() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let kept = kept("SELECT n FROM a ORDER BY n DESC LIMIT 1", &runtime);
        for least in [100, 10, 1, 200, 20, 2] {
            if least % 100 == 0 {
                kept.make_ready();
            }
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
