//! Loading the rules of a ruleset: every file once, every problem of all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Runtime;
use weir_model::ruleset::FunctionGrant;
use weir_model::{Digest, Limits, Name, Problem, Ruleset};

use crate::cases;
use crate::memo::Cache;
use crate::program::{MAX_DEPTH, Memo, Program};
use crate::unit::Unit;

/// The folder whose rules may be asked by other rules.
const FOLDER: &str = "rules/";
/// Problems of one file that are said one by one.
const PROBLEMS: usize = 100;

/// Checked and compiled files by digest.
pub(crate) type Units = Cache<Arc<Unit>>;

/// What is needed of a ruleset to load its rules, owned by the thread that does.
pub(crate) struct Content {
    /// Rules by name, with their file or the problem that there is none.
    rules: BTreeMap<Name, Result<String, Problem>>,
    files: BTreeMap<String, Arc<[u8]>>,
    limits: Limits,
    native: bool,
}

impl Content {
    pub(crate) fn of(ruleset: &Ruleset) -> Self {
        let rules = ruleset.manifest.rules.iter().map(|(name, path)| {
            let file = ruleset.file(path, &format!("rules.{name}"));
            (name.clone(), file.map(|_| path.clone()))
        });
        let rules: BTreeMap<_, _> = rules.collect();
        let wanted = |path: &str| {
            path.starts_with(FOLDER)
                || rules.values().flatten().any(|rule| path == rule || path == cases::file_of(rule))
        };
        let files = ruleset.content.iter().filter(|(path, _)| wanted(path));
        Self {
            files: files.map(|(path, bytes)| (path.clone(), bytes.clone())).collect(),
            rules,
            limits: ruleset.limits.clone(),
            native: ruleset.tenant.grants.functions == Some(FunctionGrant::Native),
        }
    }
}

/// A rule by its name, and the digest of its file.
pub(crate) type Loaded = BTreeMap<Name, (Digest, Arc<Program>)>;

/// Loads, checks and compiles all rules and runs their sample cases.
pub(crate) fn load(content: &Content, units: &Units, memo: &Memo, runtime: &Runtime) -> Result<Loaded, Vec<Problem>> {
    let mut load = Load {
        content,
        units,
        runtime,
        files: BTreeMap::new(),
        problems: Vec::new(),
        until: Instant::now() + content.limits.compile_time.get(),
    };
    let mut programs: BTreeMap<&str, Arc<Program>> = BTreeMap::new();
    for rule in content.rules.values() {
        match rule {
            Ok(path) => {
                if let Some(program) = load.program(path) {
                    programs.insert(path, program);
                }
            }
            Err(problem) => load.problems.push(problem.clone()),
        }
    }
    // Rules that are only asked may have cases of their own.
    let asked: Vec<String> = load.files.keys().filter(|path| !programs.contains_key(path.as_str())).cloned().collect();
    let asked: Vec<_> = asked.iter().filter_map(|path| load.program(path)).collect();
    for program in programs.values().chain(&asked) {
        load.cases(program, memo);
    }
    if !load.problems.is_empty() {
        return Err(load.problems);
    }
    let rules = content.rules.iter().filter_map(|(name, rule)| {
        let program = programs.get(rule.as_ref().ok()?.as_str())?;
        Some((name.clone(), (program.entry.digest, program.clone())))
    });
    Ok(rules.collect())
}

/// What a rule asks, and what these ask.
#[derive(Default)]
struct Asks {
    /// By the keys under which they are asked.
    units: BTreeMap<String, Arc<Unit>>,
    /// How many rules ask one another in a row from a file on; none: one of them is bad.
    heights: BTreeMap<String, Option<usize>>,
}

struct Load<'a> {
    content: &'a Content,
    units: &'a Units,
    runtime: &'a Runtime,
    /// Files that have been loaded; none: with problems, which have been said.
    files: BTreeMap<String, Option<Arc<Unit>>>,
    problems: Vec<Problem>,
    /// Nothing of the tenant's is begun after this.
    until: Instant,
}

impl Load<'_> {
    fn program(&mut self, path: &str) -> Option<Arc<Program>> {
        let mut asks = Asks::default();
        let height = self.follow(path, &mut vec![path.to_owned()], &mut asks)?;
        if height > usize::from(MAX_DEPTH) {
            let message = format!("more than {MAX_DEPTH} rules ask one another in a row");
            self.say(Problem::new(path, message).fix("ask rules in fewer steps"));
            return None;
        }
        let entry = self.file(path)?;
        let program = Program::new(path, entry, asks.units, &self.content.limits);
        Some(Arc::new(program))
    }

    /// Collects what the rule at the end of a chain asks, each rule once. Answers how many rules ask one another in a row
    /// from there on, or none when one of them is bad.
    fn follow(&mut self, path: &str, chain: &mut Vec<String>, asks: &mut Asks) -> Option<usize> {
        let unit = self.file(path)?;
        let mut height = Some(1);
        for (node, key) in &unit.asks {
            let above = match self.target(key, chain) {
                Ok(target) => {
                    let known = asks.heights.get(&target).copied();
                    let above = known.unwrap_or_else(|| {
                        chain.push(target.clone());
                        let above = self.follow(&target, chain, asks);
                        chain.pop();
                        above
                    });
                    asks.units.extend(self.file(&target).map(|unit| (key.clone(), unit)));
                    above
                }
                Err((message, fix)) => {
                    self.say(Problem::new(path, message).field(node).fix(fix));
                    None
                }
            };
            height = height.zip(above).map(|(height, above)| height.max(above + 1));
        }
        asks.heights.insert(path.to_owned(), height);
        height
    }

    /// Says a problem once: a rule that two rules ask is looked at twice.
    fn say(&mut self, problem: Problem) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// The file that a key leads to from the end of a chain, or what is wrong with it and what to do.
    fn target(&self, key: &str, chain: &[String]) -> Result<String, (String, &'static str)> {
        let Some(target) = self.resolve(key) else {
            return Err((
                format!("there is no rule '{key}' in the rules folder"),
                "write the file's path in the rules folder, with or without .json, or a rule's name",
            ));
        };
        match chain.iter().position(|earlier| *earlier == target) {
            None => Ok(target),
            Some(at) => {
                let circle = chain[at..].join(" -> ");
                let message = format!("rules ask one another in a circle: {circle} -> {target}");
                Err((message, "break the circle"))
            }
        }
    }

    /// The file that a key means.
    fn resolve(&self, key: &str) -> Option<String> {
        let plain = key.split('/').all(|part| !matches!(part, "" | "." | "..")) && !key.contains('\\');
        if !plain {
            return None;
        }
        let inside = key.strip_prefix(FOLDER).unwrap_or(key);
        let paths = [format!("{FOLDER}{inside}"), format!("{FOLDER}{inside}.json")];
        let named = self.content.rules.get(key).and_then(|rule| rule.as_ref().ok());
        let mut candidates = paths.iter().chain(named.filter(|path| path.starts_with(FOLDER)));
        candidates.find(|path| self.content.files.contains_key(*path)).cloned()
    }

    /// A file, checked and compiled.
    fn file(&mut self, path: &str) -> Option<Arc<Unit>> {
        if let Some(done) = self.files.get(path) {
            return done.clone();
        }
        let unit = self.read(path).map_err(|problems| self.problems.extend(problems)).ok();
        self.files.insert(path.to_owned(), unit.clone());
        unit
    }

    fn read(&self, path: &str) -> Result<Arc<Unit>, Vec<Problem>> {
        let bytes = self.bounded(path).map_err(|problem| vec![problem])?;
        let digest = Digest::of(bytes);
        let unit = match self.units.get(&digest) {
            Some(unit) => unit,
            None => {
                let unit = Arc::new(Unit::load(path, bytes, self.runtime, self.until).map_err(some)?);
                self.units.put(digest, unit.clone(), bytes.len());
                unit
            }
        };
        let modules: Vec<Problem> = unit
            .modules()
            .filter(|_| !self.content.native)
            .map(|node| {
                Problem::new(path, "a function node in module form may reach the network, which is not granted")
                    .field(node)
                    .fix("write function handler(input) {...} as plain text, or have functions = \"native\" granted in tenant.toml")
            })
            .collect();
        if modules.is_empty() { Ok(unit) } else { Err(modules) }
    }

    fn bounded(&self, path: &str) -> Result<&[u8], Problem> {
        let Some(bytes) = self.content.files.get(path) else {
            return Err(Problem::new(path, "the file is missing").fix("add it").partial());
        };
        let (size, limit) = (bytes.len() as u64, self.content.limits.rule_bytes);
        if size <= limit {
            return Ok(bytes);
        }
        Err(Problem::new(path, format_args!("the file has {size} bytes, and rule_bytes is {limit}"))
            .field("rule_bytes")
            .fix("split the rule, or raise rule_bytes under [limits]"))
    }

    fn cases(&mut self, program: &Arc<Program>, memo: &Memo) {
        let path = cases::file_of(&program.path);
        if !self.content.files.contains_key(&path) {
            return;
        }
        match self.bounded(&path) {
            Ok(bytes) => {
                let problems = cases::run(&path, bytes, program, self.runtime, memo, self.until);
                self.problems.extend(problems);
            }
            Err(problem) => self.problems.push(problem),
        }
    }
}

/// The first problems of a file: a file can have one for each of its cells.
fn some(mut problems: Vec<Problem>) -> Vec<Problem> {
    let more = problems.len().saturating_sub(PROBLEMS);
    if more > 0 {
        let file = problems[0].file.clone();
        problems.truncate(PROBLEMS);
        problems.push(Problem::new(file, format_args!("there are {more} more problems in this file")));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_compiled_once_for_all_rulesets() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (units, memo) = (Cache::new(10, 100_000), Cache::new(10, 100_000));
        let rule = br#"{"nodes": [{"id": "i", "name": "In", "type": "inputNode"}], "edges": []}"#;
        let load = |path: &str| {
            let content = Content {
                rules: BTreeMap::from([(Name::new("r").expect("a name"), Ok(path.to_owned()))]),
                files: BTreeMap::from([(path.to_owned(), Arc::from(&rule[..]))]),
                limits: Limits::defaults(),
                native: false,
            };
            let mut loaded = load(&content, &units, &memo, &runtime).expect("a good rule");
            loaded.remove("r").expect("it is there").1.entry.clone()
        };
        assert!(Arc::ptr_eq(&load("rules/a.json"), &load("rules/b.json")));
    }
}
