//! Admission: a ruleset is made ready by the engines, and what they say is checked against the manifest.

use std::sync::Arc;

use tokio::runtime::Handle;
use weir_model::port::{
    Admission, Description, Detector, Detectors, Lake, Ledger, Prepared, Queries, QueryEngine, RuleEngine,
};
use weir_model::{Fault, Problem, Ruleset, RunKey, Whose};

use crate::output::table_schema;
use crate::{decide, declared};

/// Makes rulesets ready with the engines it is given.
pub struct Admit {
    /// For plugins.
    pub detectors: Arc<dyn Detectors>,
    /// For rules.
    pub rules: Arc<dyn RuleEngine>,
    /// For queries.
    pub queries: Arc<dyn QueryEngine>,
    /// For the schema of kept state; none where nothing is kept (`weir check`).
    pub ledger: Option<Arc<dyn Ledger>>,
    /// For the tables that outputs go to, and what drives it; none where nothing is kept.
    pub lake: Option<(Arc<dyn Lake>, Handle)>,
}

impl Admit {
    /// The plugin, or what the manifest declares in its place. That needs the columns of its query.
    fn detector(
        &self,
        ruleset: &Ruleset,
        queries: Option<&dyn Queries>,
        problems: &mut Vec<Problem>,
    ) -> Option<Arc<dyn Detector>> {
        match (&ruleset.manifest.detect, queries) {
            (None, _) => self.detectors.load(ruleset).map_err(|p| problems.extend(p)).ok(),
            (Some(def), Some(queries)) => match declared::load(ruleset, def, queries) {
                Ok(declared) => Some(Arc::new(declared)),
                Err(found) => {
                    problems.extend(found);
                    None
                }
            },
            (Some(_), None) => None,
        }
    }

    fn state_before(&self, ruleset: &Ruleset) -> Result<Option<u32>, Fault> {
        let Some(ledger) = &self.ledger else {
            return Ok(None);
        };
        let head = ledger.head(&RunKey::live(ruleset.scenario.clone()))?;
        Ok(head.and_then(|h| h.plan.state_schema))
    }

    /// Outputs whose columns do not fit the table that is there: their sink would stop at its first rows. A table that
    /// cannot be read now is no fault of the ruleset.
    fn misfits(&self, ruleset: &Ruleset, description: &Description) -> Vec<Problem> {
        let Some((lake, runtime)) = &self.lake else { return Vec::new() };
        let mut problems = Vec::new();
        for output in &description.outputs {
            let def = ruleset.manifest.outputs.get(&output.name);
            let table = def.map_or(&output.name, |def| &def.table);
            let fits = table_schema(&output.fields, &output.name, def)
                .and_then(|schema| runtime.block_on(lake.fits(&ruleset.scenario.tenant, table, schema)));
            match fits {
                Err(fault) if fault.whose == Whose::Tenant => problems.push(
                    Problem::new(
                        "scenario.toml",
                        format_args!("output {} does not fit table {table}: {}", output.name, fault.message),
                    )
                    .field(format_args!("outputs.{}.table", output.name))
                    .fix(fault.fix.unwrap_or_else(|| "give the output a table of another name".to_owned())),
                ),
                Err(fault) => {
                    tracing::warn!(scenario = %ruleset.scenario, %table, "its columns cannot be compared: {fault}")
                }
                Ok(()) => {}
            }
        }
        problems
    }
}

impl Admission for Admit {
    fn admit(&self, ruleset: Arc<Ruleset>) -> Result<Arc<Prepared>, Vec<Problem>> {
        let mut problems = Vec::new();
        // Cheap engines first, and all of them: one bad file must not hide the next.
        let rules = self.rules.load(&ruleset).map_err(|p| problems.extend(p)).ok();
        let queries = self.queries.plan(&ruleset).map_err(|p| problems.extend(p)).ok();
        let detector = self.detector(&ruleset, queries.as_deref(), &mut problems);
        if let Some(detector) = &detector {
            match self.state_before(&ruleset) {
                Ok(before) => {
                    problems.extend(decide::admission::problems(detector.description(), &ruleset.manifest, before));
                }
                Err(fault) => problems.push(Problem::new("scenario.toml", fault).field("state").partial()),
            }
            problems.extend(self.misfits(&ruleset, detector.description()));
        }
        match (detector, rules, queries) {
            (Some(detector), Some(rules), Some(queries)) if problems.is_empty() => {
                Ok(Arc::new(Prepared { ruleset, detector, rules, queries }))
            }
            _ => Err(problems),
        }
    }
}
