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
                || rules
                    .values()
                    .flatten()
                    .any(|rule| path == rule || path == cases::file_of(rule))
        };
        let files = ruleset.content.iter().filter(|(path, _)| wanted(path));
        Self {
            files: files
                .map(|(path, bytes)| (path.clone(), bytes.clone()))
                .collect(),
            rules,
            limits: ruleset.limits.clone(),
            native: ruleset.tenant.grants.functions == Some(FunctionGrant::Native),
        }
    }
}

/// A rule by its name, and the digest of its file.
pub(crate) type Loaded = BTreeMap<Name, (Digest, Arc<Program>)>;

/// Loads, checks and compiles all rules and runs their sample cases.
pub(crate) fn load(
    content: &Content,
    units: &Units,
    memo: &Memo,
    runtime: &Runtime,
) -> Result<Loaded, Vec<Problem>> {
    let mut load = Load {
        content,
        units,
        runtime,
        files: BTreeMap::new(),
        problems: Vec::new(),
        began: Instant::now(),
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
    let asked: Vec<String> = load
        .files
        .keys()
        .filter(|path| !programs.contains_key(path.as_str()))
        .cloned()
        .collect();
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

struct Load<'a> {
    content: &'a Content,
    units: &'a Units,
    runtime: &'a Runtime,
    /// Files that have been loaded; none: with problems, which have been said.
    files: BTreeMap<String, Option<Arc<Unit>>>,
    problems: Vec<Problem>,
    began: Instant,
}

impl Load<'_> {
    fn program(&mut self, path: &str) -> Option<Arc<Program>> {
        let entry = self.file(path)?;
        let mut asked = BTreeMap::new();
        let whole = self.follow(path, &entry, &mut vec![path.to_owned()], &mut asked);
        whole.then(|| Arc::new(Program::new(path, entry, asked, &self.content.limits)))
    }

    /// Collects the rules that a rule asks, and answers whether all of them are good. `chain` leads from the entry to it.
    fn follow(
        &mut self,
        path: &str,
        unit: &Unit,
        chain: &mut Vec<String>,
        asked: &mut BTreeMap<String, Arc<Unit>>,
    ) -> bool {
        let mut whole = true;
        for (node, key) in &unit.asks {
            match self.step(key, chain) {
                Ok(target) => {
                    // Also when it was met before: the chain that leads here may be a longer one.
                    chain.push(target.clone());
                    let found = self.file(&target);
                    whole &= found
                        .as_ref()
                        .is_some_and(|unit| self.follow(&target, unit, chain, asked));
                    chain.pop();
                    asked.extend(found.map(|unit| (key.clone(), unit)));
                }
                Err((message, fix)) => {
                    whole = false;
                    let problem = Problem::new(path, message).field(node).fix(fix);
                    // A rule that two rules ask is looked at twice.
                    if !self.problems.contains(&problem) {
                        self.problems.push(problem);
                    }
                }
            }
        }
        whole
    }

    /// The file that a key leads to from the end of a chain, or what is wrong with it and what to do.
    fn step(&self, key: &str, chain: &[String]) -> Result<String, (String, &'static str)> {
        let Some(target) = self.resolve(key) else {
            return Err((
                format!("there is no rule '{key}' in the rules folder"),
                "write the file's path in the rules folder, with or without .json, or a rule's name",
            ));
        };
        if let Some(at) = chain.iter().position(|earlier| *earlier == target) {
            let circle = chain[at..].join(" -> ");
            return Err((
                format!("rules ask one another in a circle: {circle} -> {target}"),
                "break the circle",
            ));
        }
        if chain.len() >= usize::from(MAX_DEPTH) {
            return Err((
                format!("more than {MAX_DEPTH} rules ask one another in a row"),
                "ask rules in fewer steps",
            ));
        }
        Ok(target)
    }

    /// The file that a key means.
    fn resolve(&self, key: &str) -> Option<String> {
        let plain =
            key.split('/').all(|part| !matches!(part, "" | "." | "..")) && !key.contains('\\');
        if !plain {
            return None;
        }
        let inside = key.strip_prefix(FOLDER).unwrap_or(key);
        let paths = [
            format!("{FOLDER}{inside}"),
            format!("{FOLDER}{inside}.json"),
        ];
        let named = self
            .content
            .rules
            .get(key)
            .and_then(|rule| rule.as_ref().ok());
        let mut candidates = paths
            .iter()
            .chain(named.filter(|path| path.starts_with(FOLDER)));
        candidates
            .find(|path| self.content.files.contains_key(*path))
            .cloned()
    }

    /// A file, checked and compiled.
    fn file(&mut self, path: &str) -> Option<Arc<Unit>> {
        if let Some(done) = self.files.get(path) {
            return done.clone();
        }
        let unit = self
            .read(path)
            .map_err(|problems| self.problems.extend(problems))
            .ok();
        self.files.insert(path.to_owned(), unit.clone());
        unit
    }

    fn read(&self, path: &str) -> Result<Arc<Unit>, Vec<Problem>> {
        let bytes = self.bounded(path).map_err(|problem| vec![problem])?;
        let digest = Digest::of(bytes);
        let unit = match self.units.get(&digest) {
            Some(unit) => unit,
            None => {
                let unit = Arc::new(Unit::load(path, bytes, self.runtime)?);
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
        if modules.is_empty() {
            Ok(unit)
        } else {
            Err(modules)
        }
    }

    fn bounded(&self, path: &str) -> Result<&[u8], Problem> {
        let Some(bytes) = self.content.files.get(path) else {
            return Err(Problem::new(path, "the file is missing")
                .fix("add it")
                .partial());
        };
        let (size, limit) = (bytes.len() as u64, self.content.limits.rule_bytes);
        if size <= limit {
            return Ok(bytes);
        }
        Err(Problem::new(
            path,
            format_args!("the file has {size} bytes, and rule_bytes is {limit}"),
        )
        .field("rule_bytes")
        .fix("split the rule, or raise rule_bytes under [limits]"))
    }

    fn cases(&mut self, program: &Arc<Program>, memo: &Memo) {
        let path = cases::file_of(&program.path);
        if !self.content.files.contains_key(&path) {
            return;
        }
        let until = self.began + self.content.limits.compile_time.get();
        match self.bounded(&path) {
            Ok(bytes) => {
                let problems = cases::run(&path, bytes, program, self.runtime, memo, until);
                self.problems.extend(problems);
            }
            Err(problem) => self.problems.push(problem),
        }
    }
}
