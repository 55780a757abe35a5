//! The names that SQL can use: the given tables, and functions whose answer depends on nothing but their arguments.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::TableFunctionArgs;
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::{DFSchema, DataFusionError, Result, TableReference};
use datafusion::config::ConfigOptions;
use datafusion::datasource::provider_as_source;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, TypePlanner};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{AggregateUDF, Expr, HigherOrderUDF, ScalarUDF, TableSource, Volatility, WindowUDF};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

use crate::error::Refusal;

/// What names mean in one query.
pub(crate) struct Names<'a> {
    pub state: &'a SessionState,
    pub tables: &'a BTreeMap<String, Arc<dyn TableSource>>,
}

impl Names<'_> {
    fn table(&self, name: &TableReference) -> Result<Arc<dyn TableSource>> {
        let refuse = |message: String, fix: String| {
            let refusal = Refusal::new(name.table(), message, fix);
            Err(DataFusionError::External(Box::new(refusal)))
        };
        if let Some(refusal) = Refusal::of_schema_before(name) {
            return Err(DataFusionError::External(Box::new(refusal)));
        }
        if let Some(table) = self.tables.get(name.table()) {
            return Ok(table.clone());
        }
        let listed: Vec<&str> = self.tables.keys().map(String::as_str).collect();
        if let Some(near) = listed.iter().find(|n| n.eq_ignore_ascii_case(name.table())) {
            return refuse(
                format!("there is no table {}", name.table()),
                format!("write it as \"{near}\", with the quotes: names without quotes are read as lower case"),
            );
        }
        let message = if listed.is_empty() {
            format!("there is no table {}; there is none at all", name.table())
        } else {
            format!("there is no table {}; there are {}", name.table(), listed.join(", "))
        };
        refuse(
            message,
            "list the stream under inputs, the reference table under tables, or the table parameter under rows"
                .to_owned(),
        )
    }
}

impl ContextProvider for Names<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        self.table(&name)
    }

    fn get_table_function_source(&self, name: &str, args: Vec<Expr>) -> Result<Arc<dyn TableSource>> {
        let Some(function) = self.state.table_functions().get(name) else {
            return Err(DataFusionError::Plan(format!("there is no table function {name}")));
        };
        let context = SimplifyContext::builder().with_config_options(self.state.config_options().clone()).build();
        let simplifier = ExprSimplifier::new(context);
        let empty = DFSchema::empty();
        let args = args
            .into_iter()
            .map(|arg| simplifier.simplify(simplifier.coerce(arg, &empty)?))
            .collect::<Result<Vec<_>>>()?;
        let table = function.create_table_provider_with_args(TableFunctionArgs::new(&args, self.state))?;
        Ok(provider_as_source(table))
    }

    fn create_cte_work_table(&self, name: &str, schema: SchemaRef) -> Result<Arc<dyn TableSource>> {
        Ok(provider_as_source(Arc::new(CteWorkTable::new(name, schema))))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        self.state.expr_planners()
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        None
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        let function = self.state.scalar_functions().get(name)?;
        (function.signature().volatility == Volatility::Immutable).then(|| function.clone())
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.state.higher_order_functions().get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.state.aggregate_functions().get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.state.window_functions().get(name).cloned()
    }

    fn get_variable_type(&self, _: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        self.state.config_options()
    }

    fn udf_names(&self) -> Vec<String> {
        self.state.udfs().into_iter().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        self.state.higher_order_functions().keys().cloned().collect()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.state.aggregate_functions().keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.state.window_functions().keys().cloned().collect()
    }
}
