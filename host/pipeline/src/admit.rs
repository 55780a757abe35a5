//! Admission: a ruleset is made ready by the engines, and what they say is checked against the manifest.

use std::sync::Arc;

use weir_model::port::{Admission, Detectors, Ledger, Prepared, QueryEngine, RuleEngine};
use weir_model::{Fault, Problem, Ruleset, RunKey};

use crate::decide;

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
}

impl Admit {
    fn state_before(&self, ruleset: &Ruleset) -> Result<Option<u32>, Fault> {
        let Some(ledger) = &self.ledger else {
            return Ok(None);
        };
        let head = ledger.head(&RunKey::live(ruleset.scenario.clone()))?;
        Ok(head.and_then(|h| h.plan.state_schema))
    }
}

impl Admission for Admit {
    fn admit(&self, ruleset: Arc<Ruleset>) -> Result<Arc<Prepared>, Vec<Problem>> {
        let mut problems = Vec::new();
        // Cheap engines first, and all of them: one bad file must not hide the next.
        let rules = self.rules.load(&ruleset).map_err(|p| problems.extend(p)).ok();
        let queries = self.queries.plan(&ruleset).map_err(|p| problems.extend(p)).ok();
        let detector = self.detectors.load(&ruleset).map_err(|p| problems.extend(p)).ok();
        if let Some(detector) = &detector {
            match self.state_before(&ruleset) {
                Ok(before) => {
                    problems.extend(decide::admission::problems(detector.description(), &ruleset.manifest, before));
                }
                Err(fault) => problems.push(Problem::new("scenario.toml", fault).field("state").partial()),
            }
        }
        match (detector, rules, queries) {
            (Some(detector), Some(rules), Some(queries)) if problems.is_empty() => {
                Ok(Arc::new(Prepared { ruleset, detector, rules, queries }))
            }
            _ => Err(problems),
        }
    }
}
