//! Validates a store's folder without running it: what `weir check` answers.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use weir_model::port::Admission;
use weir_model::ruleset::TenantConfig;
use weir_model::{Limits, Name, Problem, ScenarioId, StreamId};

use crate::load::{self, Pool, checked, in_store};
use crate::{check, toml_file, tree};

/// What was validated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The store as a whole.
    Store,
    /// A tenant's configuration and the names in its folder.
    Tenant(Name),
    /// A stream.
    Stream(StreamId),
    /// A scenario.
    Scenario(ScenarioId),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store => f.write_str("rule store"),
            Self::Tenant(name) => write!(f, "tenant {name}"),
            Self::Stream(id) => write!(f, "stream {id}"),
            Self::Scenario(id) => write!(f, "scenario {id}"),
        }
    }
}

/// Validates everything in the folder, or one scenario. Everything that was looked at is listed, also what is good; nothing
/// at all when there is no such scenario. Blocks as long as compiling takes.
pub fn check_folder(
    store: &Path,
    defaults: &Limits,
    admission: &dyn Admission,
    only: Option<&ScenarioId>,
) -> Vec<(Subject, Vec<Problem>)> {
    let tree = match tree::scan(store) {
        Ok(tree) => tree,
        Err(e) => {
            let problem = Problem::new(store.display(), format_args!("the rule store cannot be read: {e}"));
            return vec![(Subject::Store, vec![problem])];
        }
    };
    let (pool, mut out) = (Pool::default(), Vec::new());
    let changing = |file: String| vec![Problem::new(file, "it is changing").fix("try again").partial()];
    if only.is_none() && !tree.strays.is_empty() {
        out.push((Subject::Store, tree.strays.clone()));
    }
    for (name, tenant) in &tree.tenants {
        if only.is_none() {
            out.push((Subject::Tenant(name.clone()), tenant_problems(name, tenant, defaults)));
            for (stream, entry) in &tenant.streams {
                let file = format!("{name}/streams/{stream}.toml");
                let problems = match load::stream(&file, entry) {
                    Ok(loaded) => loaded.def.err().unwrap_or_default(),
                    Err(load::Again) => changing(file),
                };
                out.push((Subject::Stream(StreamId::new(name.clone(), stream.clone())), problems));
            }
        }
        for (scenario, folder) in &tenant.scenarios {
            let id = ScenarioId::new(name.clone(), scenario.clone());
            if only.is_some_and(|only| *only != id) {
                continue;
            }
            let problems = match load::scenario(&id, tenant, folder, defaults, &pool) {
                Ok(loaded) => {
                    loaded.ruleset.and_then(|r| admission.admit(Arc::new(r)).map(|_| ())).err().unwrap_or_default()
                }
                Err(load::Again) => changing("scenario.toml".to_owned()),
            };
            let problems = problems.into_iter().map(|p| in_store(&id, p)).collect();
            out.push((Subject::Scenario(id), problems));
        }
    }
    out
}

fn tenant_problems(name: &Name, tenant: &tree::Tenant, defaults: &Limits) -> Vec<Problem> {
    let file = format!("{name}/tenant.toml");
    let mut problems = tenant.problems.clone();
    if let Some(entry) = &tenant.config {
        match load::text(&file, entry) {
            Ok(Ok(bytes)) => {
                let read = toml_file::read::<TenantConfig>(&file, &bytes);
                checked(read, &mut problems, |c| check::tenant(&file, c, defaults));
            }
            Ok(Err(problem)) => problems.push(problem),
            Err(load::Again) => problems.push(Problem::new(file, "it is changing").fix("try again")),
        }
    }
    problems
}
