//! Gives every answer a total order, so that equal inputs give equal bytes.

use std::sync::Arc;

use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Expr, Limit, LogicalPlan, LogicalPlanBuilder, Projection, Sort, SortExpr};

use crate::normalise::plain_type;

/// The plan with its own ordering first and all its columns as tie breakers; sorted by all columns where it has none.
pub(crate) fn total(plan: LogicalPlan) -> Result<LogicalPlan> {
    if is_sorted(&plan) {
        break_ties(plan)
    } else {
        let ties = columns(&plan, &[]);
        if ties.is_empty() {
            return Ok(plan);
        }
        LogicalPlanBuilder::from(plan).sort(ties)?.build()
    }
}

/// Whether the plan's rows come out in an order that its author wrote.
fn is_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        // A column of ORDER BY that is not selected is dropped by a projection above the sort.
        LogicalPlan::Projection(p) => is_sorted(&p.input),
        LogicalPlan::Limit(limit) => is_sorted(&limit.input),
        _ => false,
    }
}

fn break_ties(plan: LogicalPlan) -> Result<LogicalPlan> {
    Ok(match plan {
        LogicalPlan::Sort(sort) => {
            let ties = columns(&sort.input, &sort.expr);
            let expr = sort.expr.into_iter().chain(ties).collect();
            LogicalPlan::Sort(Sort { expr, input: sort.input, fetch: sort.fetch })
        }
        LogicalPlan::Projection(p) => {
            let input = break_ties(Arc::unwrap_or_clone(p.input))?;
            LogicalPlan::Projection(Projection::try_new_with_schema(p.expr, Arc::new(input), p.schema)?)
        }
        LogicalPlan::Limit(limit) => {
            LogicalPlan::Limit(Limit { input: Arc::new(break_ties(Arc::unwrap_or_clone(limit.input))?), ..limit })
        }
        other => other,
    })
}

/// All columns that can be compared and are no key yet.
fn columns(plan: &LogicalPlan, keys: &[SortExpr]) -> Vec<SortExpr> {
    plan.schema()
        .iter()
        .filter(|(_, field)| !plain_type(field.data_type()).is_nested())
        .map(|pair| Expr::Column(Column::from(pair)))
        .filter(|column| !keys.iter().any(|key| key.expr == *column))
        .map(|column| column.sort(true, false))
        .collect()
}
