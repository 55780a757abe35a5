//! The JDM rules of a ruleset: load, check, evaluate. Sole owner of zen-engine.
//!
//! A call goes this way: [`Jdm`] loads the files of a ruleset ([`load`](RuleEngine::load): `shape` and `unit` check and
//! compile a file, `program` puts a rule together with those it asks, `cases` tries it); a call is one job on one thread
//! of the `pool`; `input` makes the engine's variables there, `program` evaluates, `answer` makes columns.
//!
//! What is a function of its input stays one: nothing in a rule sees another clock than the batch's T, or randomness but
//! the batch's seed (`script`, `expression`), and rules see no file, no network and no other tenant. What that leaves open:
//!
//! * `rule_memory_bytes` bounds what function nodes in the older form allocate. Rules with function nodes in module form run
//!   in the engine, whose JavaScript allocates in this process without a cap. Expressions have none either.
//! * A function node is stopped after 500 ms, whatever `rule_time` says, but only where JavaScript itself runs: one call of a
//!   builtin over a huge text or array (`'x'.repeat(2**28).split('')`) ends when it ends, and holds its thread until then.
//!   Expressions are never stopped. `rule_time` is CPU time of one evaluation, held against it when it ends; after ten times
//!   that by the wall clock no further function node or asked rule begins.
//! * Objects of more than 32 fields have no order inside the engine: expressions that list their names or values
//!   (`keys`, `values`) see one of chance. Function nodes and answers get them sorted.
//! * An expression that makes the text `now`, or the name of a time zone, at run time and reads it as a date gets the
//!   clock. Dates without a zone are read in the host's zone by expressions, and as UTC by function nodes.
//! * The engine drops fields that are null from objects it passes on, and JavaScript writes NaN and Infinity as null: all of
//!   these are missing in a result, and missing is null in an answer.
//! * Numbers are decimals of 28 digits; what JavaScript returns keeps about 16 of them.
//! * Function nodes in module form are only loaded where an operator grants them: they have a network client.

// A test says by expect what it takes for granted.
#![cfg_attr(test, allow(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

mod answer;
mod base64;
mod cases;
mod expression;
mod heap;
mod input;
mod load;
mod memo;
mod memory;
mod pool;
mod program;
mod realm;
mod schema;
mod script;
mod shape;
mod spare;
mod unit;
mod value;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::runtime::Runtime;
use weir_model::port::{RuleAnswer, RuleCall, RuleContext, RuleEngine, Rules};
use weir_model::{CallError, DataError, Digest, Fault, FaultKind, Limits, Name, Problem, Ruleset};

use crate::answer::Answer;
use crate::input::Inputs;
use crate::load::{Content, Loaded, Units};
use crate::memo::Cache;
use crate::pool::Pool;
use crate::program::{Failure, Memo, Program};

/// Files that are kept compiled, over all rulesets, and bytes of them.
const UNITS: (usize, usize) = (1_024, 64 << 20);
/// Results of pure rules that are kept, and bytes of them.
const RESULTS: (usize, usize) = (8_192, 16 << 20);

/// How rules are evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JdmConfig {
    /// Threads that evaluate, at least one. Each load has a thread of its own, so that it delays no batch.
    pub threads: usize,
}

/// The rule engine.
#[derive(Debug)]
pub struct Jdm {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    pool: Pool,
    units: Units,
    memo: Memo,
}

impl Jdm {
    /// Starts the threads.
    pub fn new(config: JdmConfig) -> Result<Arc<Self>, Fault> {
        if config.threads == 0 {
            return Err(Fault::host(FaultKind::Config, "rules need at least one thread")
                .field("threads")
                .fix("set it to 1 or more"));
        }
        // Function nodes in module form would sign requests with credentials of the host.
        zen_engine::ZEN_CONFIG.http_auth.store(false, Ordering::Relaxed);
        Ok(Arc::new(Self {
            shared: Arc::new(Shared {
                pool: Pool::new(config.threads)?,
                units: Cache::new(UNITS.0, UNITS.1),
                memo: Cache::new(RESULTS.0, RESULTS.1),
            }),
        }))
    }
}

impl RuleEngine for Jdm {
    fn load(&self, ruleset: &Ruleset) -> Result<Arc<dyn Rules>, Vec<Problem>> {
        let content = Content::of(ruleset);
        let shared = self.shared.clone();
        let loaded = pool::alone(move |runtime| load::load(&content, &shared.units, &shared.memo, runtime))
            .map_err(|fault| vec![Problem::new("scenario.toml", fault.message).field("rules")])??;
        Ok(Arc::new(LoadedRules { loaded, limits: ruleset.limits.clone(), shared: self.shared.clone() }))
    }
}

struct LoadedRules {
    loaded: Loaded,
    limits: Limits,
    shared: Arc<Shared>,
}

impl Rules for LoadedRules {
    fn evaluate(&self, name: &str, call: &RuleCall, context: RuleContext) -> Result<RuleAnswer, CallError> {
        let (_, program) = self.loaded.get(name).ok_or(DataError::Undeclared)?;
        let rows = call.each.as_ref().map_or(1, |rows| rows.num_rows()) as u64;
        if rows > self.limits.rule_rows {
            return Err(too_many(program, format_args!("a call asks for {rows} evaluations"), &self.limits).into());
        }
        let (program, call, limits) = (program.clone(), call.clone(), self.limits.clone());
        let shared = self.shared.clone();
        self.shared.pool.run(move |runtime| answer(&program, &call, context, &limits, &shared.memo, runtime))?
    }

    fn names(&self) -> BTreeMap<Name, Digest> {
        self.loaded.iter().map(|(name, (digest, _))| (name.clone(), *digest)).collect()
    }
}

/// A whole call, on a thread of the pool.
fn answer(
    program: &Arc<Program>,
    call: &RuleCall,
    context: RuleContext,
    limits: &Limits,
    memo: &Memo,
    runtime: &Runtime,
) -> Result<RuleAnswer, CallError> {
    let began = Instant::now();
    let inputs = Inputs::new(call, context.zone)?;
    let mut answer = Answer::new(call);
    for row in 0..inputs.len() {
        let got = inputs
            .row(row)
            .map_err(Failure::Evaluation)
            .and_then(|input| program.evaluate(input, row as u64, context, runtime, memo));
        // Rows are counted in 32 bits by the port; more than that has no column.
        let row = u32::try_from(row).unwrap_or(u32::MAX);
        match got {
            Ok(result) => answer.push(row, &result),
            Err(Failure::Evaluation(reason)) => answer.fail(row, &reason),
            Err(Failure::Fault(fault) | Failure::Memory(fault)) => return Err(fault.into()),
        }
        if answer.rows() as u64 > limits.rule_rows {
            let rows = format_args!("an answer has more rows than one evaluation for each row would give").to_string();
            return Err(too_many(program, rows, limits).into());
        }
        if began.elapsed() > limits.deadline.get() {
            let late = format!("a call of a rule takes longer than deadline, which is {}", limits.deadline);
            return Err(Fault::host(FaultKind::Deadline, late).file(&program.path).field("deadline").into());
        }
    }
    let answer = answer.finish()?;
    match (&call.each, answer.failed.first()) {
        (None, Some((_, reason))) => Err(DataError::Failed(reason.clone()).into()),
        _ => Ok(answer),
    }
}

fn too_many(program: &Program, what: impl std::fmt::Display, limits: &Limits) -> Fault {
    let message = format!("{what}, and rule_rows is {}", limits.rule_rows);
    Fault::tenant(FaultKind::RuleLimit, message)
        .file(&program.path)
        .field("rule_rows")
        .fix("give the rule fewer rows, or raise rule_rows under [limits]")
}
