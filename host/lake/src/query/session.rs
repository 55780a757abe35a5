//! The engine's settings, the same for every plan: one thread, no rule that makes a plan good for one execution only.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PhysicalExpr, PlanProperties,
    SendableRecordBatchStream,
};
use datafusion::prelude::SessionConfig;
use futures::{StreamExt, TryStreamExt};

/// Rows in one batch of an execution. Part of what makes equal inputs give equal bytes.
pub(crate) const BATCH_ROWS: usize = 8192;

/// Settings of all sessions.
pub(crate) fn config() -> SessionConfig {
    let mut config =
        SessionConfig::new().with_target_partitions(1).with_batch_size(BATCH_ROWS).with_information_schema(false);
    let options = config.options_mut();
    // A plan that hands filters from one operator to another while it runs is good for one execution. The first of these
    // stands for the other three in a text of settings only: set as a field it turns nothing off.
    options.optimizer.enable_dynamic_filter_pushdown = false;
    options.optimizer.enable_join_dynamic_filter_pushdown = false;
    options.optimizer.enable_topk_dynamic_filter_pushdown = false;
    options.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    options.execution.time_zone = Some("UTC".to_owned());
    config
}

/// The state that all plans are made with.
pub(crate) fn state() -> SessionState {
    let mut rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> = vec![Arc::new(InOrderRule)];
    rules.extend(PhysicalOptimizer::new().rules);
    let mut state = SessionStateBuilder::new()
        .with_config(config())
        .with_default_features()
        .with_physical_optimizer_rules(rules)
        .build();
    for name in AMPLIFYING {
        // Only a registry that cannot change answers an error, and this one can.
        let _ = state.deregister_udf(name);
    }
    state
}

/// Functions that make gigabytes of a few bytes in one call, which neither the memory pool sees nor a deadline interrupts.
pub(crate) const AMPLIFYING: [&str; 5] = ["repeat", "array_repeat", "list_repeat", "array_resize", "list_resize"];

/// Makes the inputs of a union run one after the other. Left alone they are partitions, run by tasks whose rows meet in
/// an order that nobody decided.
#[derive(Debug)]
struct InOrderRule;

impl PhysicalOptimizerRule for InOrderRule {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            if plan.is::<UnionExec>() { Ok(Transformed::yes(InOrder::wrap(plan))) } else { Ok(Transformed::no(plan)) }
        })
        .data()
    }

    fn name(&self) -> &str {
        "in_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// All partitions of its input as one, in their order.
#[derive(Debug)]
pub(crate) struct InOrder {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl InOrder {
    pub fn wrap(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(1),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Arc::new(Self { input, properties: Arc::new(properties) })
    }
}

impl DisplayAs for InOrder {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("InOrder")
    }
}

impl ExecutionPlan for InOrder {
    fn name(&self) -> &'static str {
        "InOrder"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Self::wrap(children.swap_remove(0)))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.clone();
        let parts = input.output_partitioning().partition_count();
        let rows = futures::stream::iter(0..parts).map(move |part| input.execute(part, context.clone())).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}
