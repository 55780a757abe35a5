//! From SQL text to a plan whose every name and type is known: shared by named queries and `generate` sources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_schema::{DataType, Field, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{LogicalPlan, TableSource};
use datafusion::prelude::SQLOptions;
use datafusion::sql::planner::{ParserOptions, PlannerContext, SqlToRel};
use weir_model::columns::timestamp_type;

use super::check::{TIME, check};
use super::names::Names;
use super::scan::BoundTable;
use crate::error::Refusal;

/// A planned statement, not yet ordered or optimised.
#[derive(Debug)]
pub(crate) struct Draft {
    pub plan: LogicalPlan,
    /// Parameters that the SQL names.
    pub params: BTreeSet<String>,
}

/// Plans one SELECT over `tables`. Parameter i of `params` is `$i+1` in the plan, and the one after the last is the time.
pub(crate) fn draft(
    session: &SessionState,
    sql: &str,
    params: &[(&str, DataType)],
    tables: &BTreeMap<String, SchemaRef>,
) -> Result<Draft, Vec<Refusal>> {
    let known: Vec<&str> = params.iter().map(|(name, _)| *name).collect();
    let checked = check(sql, &known)?;
    let tables: BTreeMap<String, Arc<dyn TableSource>> = tables
        .iter()
        .map(|(name, schema)| {
            let table = BoundTable { name: name.clone(), schema: schema.clone() };
            (name.clone(), provider_as_source(Arc::new(table)))
        })
        .collect();
    let names = Names { state: session, tables: &tables };
    let options = ParserOptions::new().with_map_string_types_to_utf8view(false);
    let types = params
        .iter()
        .cloned()
        .chain([(TIME, timestamp_type())])
        .map(|(name, ty)| Some(Arc::new(Field::new(name, ty, true))))
        .collect();
    let mut context = PlannerContext::new().with_prepare_param_data_types(types);
    let plan = SqlToRel::new_with_options(&names, options)
        .sql_statement_to_plan_with_context(checked.statement, &mut context)
        .map_err(|e| vec![Refusal::of(&e)])?;
    SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false)
        .verify_plan(&plan)
        .map_err(|e| vec![Refusal::of(&e)])?;
    one_name_each(&plan)?;
    Ok(Draft { plan, params: checked.params })
}

/// A guest asks for columns by name.
fn one_name_each(plan: &LogicalPlan) -> Result<(), Vec<Refusal>> {
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<&String> =
        plan.schema().fields().iter().map(|f| f.name()).filter(|name| !seen.insert(*name)).collect();
    if twice.is_empty() {
        return Ok(());
    }
    Err(twice
        .into_iter()
        .map(|name| {
            Refusal::new(
                name,
                format!("two columns of the answer are named {name}"),
                "give one of them another name with AS",
            )
        })
        .collect())
}

/// Which columns of its tables a plan reads, by table; indices into the table's schema.
pub(crate) fn columns_read(plan: &LogicalPlan) -> datafusion::common::Result<BTreeMap<String, BTreeSet<usize>>> {
    let mut read: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    plan.apply_with_subqueries(|node| {
        // Table functions and recursion scan too, under names of their own.
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
            && let Some(table) = provider.downcast_ref::<BoundTable>()
        {
            let columns = read.entry(table.name.clone()).or_default();
            match &scan.projection {
                Some(projection) => columns.extend(projection),
                None => columns.extend(0..scan.source.schema().fields().len()),
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(read)
}
