//! Rows of `generate` sources: one SELECT over `$tick` and `$now`, planned once, its columns cast to the stream's.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};
use datafusion::common::{Column, DataFusionError, ScalarValue};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit};
use tokio::runtime::Handle;
use weir_model::columns::timestamp_type;
use weir_model::port::RowMaker;
use weir_model::{CallError, Fault, FaultKind, Limits, Problem, Time};

use crate::error::Refusal;
use crate::normalise::adapt;
use crate::query::{Binding, Deadline, Kept, RunLimits, Tenants, draft, timestamp, to_usize, total};

/// Rows that a tick may make: an offset is `tick * 2^20 + index`.
const ROWS: usize = 1 << 20;

#[derive(Debug)]
struct Maker {
    kept: Kept,
    schema: SchemaRef,
    file: String,
    limits: RunLimits,
}

/// Plans the SQL of a source.
pub(crate) fn row_maker(
    session: Arc<SessionState>,
    runtime: Handle,
    sql: &str,
    schema: SchemaRef,
    file: &str,
) -> Result<Arc<dyn RowMaker>, Problem> {
    let defaults = Limits::defaults();
    let limits = RunLimits { memory: to_usize(defaults.sql_memory_bytes), rows: ROWS, time: defaults.sql_time.get() };
    let problem = |refusal: Refusal| {
        let part = refusal.part.clone();
        let mut problem = refusal.problem(file, "").field("source.sql");
        if !part.is_empty() && !problem.message.contains(&part) {
            problem.message = format!("{part}: {}", problem.message);
        }
        problem
    };
    let refused = |e: DataFusionError| problem(Refusal::of(&e));
    let params = [("tick", DataType::Int64), ("now", timestamp_type())];
    let draft = draft(&session, sql, &params, &BTreeMap::new()).map_err(|all| match all.into_iter().next() {
        Some(first) => problem(first),
        None => Problem::new(file, "it cannot be planned").field("source.sql"),
    })?;
    let plan = total(as_stream(draft.plan, &schema).map_err(problem)?).map_err(refused)?;
    // A stream belongs to one tenant, and ticks come one at a time: a share of its own is enough.
    let share = Tenants::share_alone(limits.memory);
    let kept = Kept::new(&plan, session, runtime, share, limits).map_err(refused)?;
    Ok(Arc::new(Maker { kept, schema, file: file.to_owned(), limits }))
}

/// The stream's columns, by name, in its order and types.
fn as_stream(plan: LogicalPlan, schema: &SchemaRef) -> Result<LogicalPlan, Refusal> {
    let refused = |e: DataFusionError| Refusal::of(&e);
    let there = plan.schema().clone();
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    for field in there.fields() {
        if schema.index_of(field.name()).is_err() {
            let message =
                format!("column {} is not in the stream's schema, which has {}", field.name(), names.join(", "));
            let near = names.iter().find(|n| n.eq_ignore_ascii_case(field.name()));
            let fix = near.map_or("leave it out, or add it to the schema".to_owned(), |n| {
                format!("write AS \"{n}\", with the quotes: names without quotes are read as lower case")
            });
            return Err(Refusal::new(field.name(), message, fix));
        }
    }
    let mut columns = Vec::new();
    for field in schema.fields() {
        let found = there.iter().find(|(_, f)| f.name() == field.name());
        let expr = match found {
            Some(pair) => {
                Expr::Column(Column::from(pair)).cast_to(field.data_type(), there.as_ref()).map_err(refused)?
            }
            None if field.is_nullable() => lit(ScalarValue::try_from(field.data_type()).map_err(refused)?),
            None => {
                return Err(Refusal::new(
                    field.name(),
                    format!("required column {} is missing", field.name()),
                    "select it, with AS to name it",
                ));
            }
        };
        columns.push(expr.alias(field.name()));
    }
    LogicalPlanBuilder::from(plan).project(columns).and_then(LogicalPlanBuilder::build).map_err(refused)
}

impl RowMaker for Maker {
    fn rows(&self, tick: u64, now: Time) -> Result<RecordBatch, Fault> {
        let tick = i64::try_from(tick).map_err(Fault::internal)?;
        let now = timestamp(now.micros());
        let params = vec![ScalarValue::Int64(Some(tick)), now.clone(), now];
        let binding = Binding { params, ..Binding::default() };
        let placed = |fault: Fault| fault.file(&self.file).field("source.sql");
        let rows = self.kept.run(binding, Deadline::start(self.limits.time)).map_err(|error| match error {
            CallError::Fault(fault) => placed(fault),
            CallError::Data(data) => placed(Fault::tenant(FaultKind::Sql, data)),
        })?;
        adapt(&rows, &self.schema, &self.file)
    }
}
