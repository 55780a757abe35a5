//! A rule with the rules that it asks, and one evaluation of it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use weir_model::port::RuleContext;
use weir_model::{Digest, Fault, FaultKind, Limits, Span};
use zen_engine::loader::{DecisionLoader, LoaderError, LoaderResponse};
use zen_engine::model::DecisionContent;
use zen_engine::{Decision, EvaluationError, EvaluationOptions};
use zen_expression::Variable;

use crate::memo::Cache;
use crate::memory::Memory;
use crate::realm::{Functions, cpu_time, monotonic_ms};
use crate::script::{CLOCK_WANTED, Clock, Draw, OUT_OF_TIME};
use crate::unit::{Unit, Where};
use crate::value::{Value, fingerprint};

/// Rules that ask rules that ask rules: how long the chain may be, the first one counted.
pub(crate) const MAX_DEPTH: u8 = 10;
/// The engine stops a function node after this, a constant of its own.
const ENGINE_LIMIT: Duration = Duration::from_millis(500);

/// How many times `rule_time` an evaluation may take by the wall clock.
const BACKSTOP: u32 = 10;

/// Results of pure evaluations.
pub(crate) type Memo = Cache<Arc<Value>>;

/// A rule, ready to be evaluated.
#[derive(Debug)]
pub(crate) struct Program {
    /// The rule's file.
    pub(crate) path: String,
    pub(crate) entry: Arc<Unit>,
    /// The rules that it asks, and those that these ask, by the keys under which they do.
    asked: BTreeMap<String, Arc<Unit>>,
    /// Of all of it.
    digest: Digest,
    runs: Runs,
    /// Whether an evaluation has looked for the clock: then the next is not tried without one.
    wants_clock: AtomicBool,
    limit: Span,
    /// Of memory.
    limit_bytes: u64,
}

/// What an evaluation runs, which tells how its results may be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runs {
    /// Expressions only: quicker to evaluate than to remember.
    Expressions,
    /// Function nodes, which tell when they look for clock or randomness.
    Functions,
    /// Function nodes in module form: they may do anything.
    Modules,
}

/// How an evaluation ends badly.
#[derive(Debug)]
pub(crate) enum Failure {
    /// As a function of its input.
    Evaluation(String),
    /// By a limit, or the host's fault.
    Fault(Fault),
    /// By the limit of memory.
    Memory(Fault),
}

impl Program {
    pub(crate) fn new(path: &str, entry: Arc<Unit>, asked: BTreeMap<String, Arc<Unit>>, limits: &Limits) -> Self {
        let parts = asked.iter().flat_map(|(key, unit)| [key.as_bytes(), &unit.digest.0]);
        let digest = Digest::of_parts(std::iter::once(&entry.digest.0[..]).chain(parts));
        let mut units = std::iter::once(&entry).chain(asked.values());
        let runs = if units.clone().any(|unit| unit.modules().next().is_some()) {
            Runs::Modules
        } else if units.any(|unit| unit.has_functions()) {
            Runs::Functions
        } else {
            Runs::Expressions
        };
        let path = path.to_owned();
        Self {
            path,
            entry,
            asked,
            digest,
            runs,
            wants_clock: AtomicBool::new(false),
            limit: limits.rule_time,
            limit_bytes: limits.rule_memory_bytes,
        }
    }

    /// One evaluation, or what an equal one came to. `row` tells evaluations of one call apart.
    pub(crate) fn evaluate(
        self: &Arc<Self>,
        input: Variable,
        row: u64,
        context: RuleContext,
        runtime: &Runtime,
        memo: &Memo,
    ) -> Result<Arc<Value>, Failure> {
        if self.runs == Runs::Functions && !self.wants_clock.load(Ordering::Relaxed) {
            let mut bytes = Vec::with_capacity(256);
            fingerprint(&input, &mut bytes);
            let key = Digest::of_parts([&self.digest.0[..], &bytes]);
            if let Some(known) = memo.get(&key) {
                return Ok(known);
            }
            match self.run(&input, &self.draw(None), runtime) {
                Err(Failure::Evaluation(reason)) if reason.contains(CLOCK_WANTED) => {
                    self.wants_clock.store(true, Ordering::Relaxed);
                }
                // It may have caught that there is no clock, and gone on: what counts is what it does with one.
                Err(Failure::Memory(_)) => {}
                Err(failure) => return Err(failure),
                Ok(value) => {
                    let value = Arc::new(value);
                    memo.put(key, value.clone(), value.bytes());
                    return Ok(value);
                }
            }
        }
        let clock = Clock {
            time_ms: context.time.micros().div_euclid(1_000),
            seed: Digest::of_parts([&context.seed[..], &self.digest.0, &row.to_le_bytes()]),
        };
        self.run(&input, &self.draw(Some(clock)), runtime).map(Arc::new)
    }

    /// When nothing more of an evaluation begins, by the wall clock; what is judged is CPU time.
    fn backstop(&self) -> Duration {
        self.limit.get().saturating_mul(BACKSTOP)
    }

    fn draw(&self, clock: Option<Clock>) -> Draw {
        let limit = self.backstop().as_millis();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        Draw {
            clock,
            limit_ms: monotonic_ms().saturating_add(limit),
            limit_cpu: cpu_time().saturating_add(self.limit.get()),
        }
    }

    fn run(self: &Arc<Self>, input: &Variable, draw: &Draw, runtime: &Runtime) -> Result<Value, Failure> {
        let place = if self.runs == Runs::Modules { Where::Engine } else { Where::Realm };
        self.run_in(place, input, draw, runtime)
    }

    fn run_in(
        self: &Arc<Self>,
        place: Where,
        input: &Variable,
        draw: &Draw,
        runtime: &Runtime,
    ) -> Result<Value, Failure> {
        let memory = Arc::new(Memory::new(self.limit_bytes));
        let loader = Content { program: self.clone(), place, draw: *draw };
        let decision = Decision::from(self.entry.graph(place, draw))
            .with_loader(Arc::new(loader))
            .with_adapter(Arc::new(Functions { draw: *draw, memory: memory.clone() }));
        let options = EvaluationOptions { trace: false, max_depth: MAX_DEPTH };
        let (began, cpu) = (Instant::now(), cpu_time());
        let answer = runtime.block_on(async {
            let evaluation = decision.evaluate_with_opts(input.deep_clone(), options);
            match self.runs {
                // Only these wait for anything, and for how long is not theirs to say.
                Runs::Modules => tokio::time::timeout(self.limit.get(), evaluation).await.ok(),
                _ => Some(evaluation.await),
            }
        });
        let spent = Spent { cpu: cpu_time().saturating_sub(cpu), wall: began.elapsed() };
        let Some(answer) = answer else {
            return Err(Failure::Fault(
                self.too_slow(format_args!("waited for longer than rule_time, which is {}", self.limit)),
            ));
        };
        let answer = answer.map_err(|e| self.reason(&e));
        if memory.exceeded() {
            return Err(Failure::Memory(self.too_large(answer.err())));
        }
        if let Some(fault) = self.judge(spent, answer.as_ref().err()) {
            return Err(Failure::Fault(fault));
        }
        let answer = answer.map_err(|reason| Failure::Evaluation(reason.to_string()))?;
        Value::of(&answer.result).map_err(Failure::Evaluation)
    }

    /// Whether a limit was broken. CPU time decides, so that a busy machine is not a tenant's fault.
    fn judge(&self, spent: Spent, reason: Option<&Reason>) -> Option<Fault> {
        let limit = self.limit;
        if spent.cpu > limit.get() {
            let took = humane(spent.cpu);
            return Some(self.too_slow(format_args!("an evaluation took {took} of CPU, and rule_time is {limit}")));
        }
        let Reason { node, text } = reason?;
        // Only modules ask rules by keys that they make; for all others it is checked when they are loaded.
        if self.runs == Runs::Modules && text.contains("Depth limit exceeded") {
            return Some(self.fault(
                format_args!("more than {MAX_DEPTH} rules ask one another in a row"),
                "depth",
                "ask rules in fewer steps",
            ));
        }
        let interrupted = spent.wall >= ENGINE_LIMIT && text.contains("interrupted");
        if self.runs == Runs::Modules && interrupted && spent.cpu >= ENGINE_LIMIT / 2 {
            return Some(self.fault(
                format_args!(
                    "{node}: a function node ran for longer than {}, a limit of the engine",
                    humane(ENGINE_LIMIT)
                ),
                "rule_time",
                "do less in one function node",
            ));
        }
        let late = spent.wall > self.backstop() && text.contains(OUT_OF_TIME);
        (interrupted || late).then(|| {
            let (cpu, wall) = (humane(spent.cpu), humane(spent.wall));
            let busy = format!("an evaluation got {cpu} of CPU in {wall}: the machine is too busy");
            Fault::host(FaultKind::RuleLimit, busy).file(&self.path).field("rule_time")
        })
    }

    fn too_slow(&self, message: impl std::fmt::Display) -> Fault {
        let fix = "do less in one evaluation, or raise rule_time under [limits]";
        self.fault(message, "rule_time", fix)
    }

    fn too_large(&self, reason: Option<Reason>) -> Fault {
        let node = reason.map_or_else(|| "a function node".to_owned(), |reason| reason.node);
        let message = format!("{node}: needs more memory than rule_memory_bytes, which is {}", self.limit_bytes);
        let fix = "keep less in memory in one evaluation, or raise rule_memory_bytes under [limits]";
        self.fault(message, "rule_memory_bytes", fix)
    }

    fn fault(&self, message: impl std::fmt::Display, field: &str, fix: &str) -> Fault {
        Fault::tenant(FaultKind::RuleLimit, message).file(&self.path).field(field).fix(fix)
    }

    /// What the engine says, with the node's name.
    fn reason(&self, error: &EvaluationError) -> Reason {
        let EvaluationError::NodeError { node_id, source, .. } = error else {
            return Reason { node: "the rule".to_owned(), text: error.to_string() };
        };
        let text = source.to_string();
        // A text that was thrown comes in quotes.
        let text = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(&text);
        let hint = match text {
            "Failed to parse function result" => " (a number beyond 28 digits, or nesting beyond 128)",
            _ => "",
        };
        Reason { node: self.entry.name_of(node_id).to_owned(), text: format!("{text}{hint}") }
    }
}

/// Why an evaluation failed, as the engine says it.
struct Reason {
    node: String,
    text: String,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.node, self.text)
    }
}

#[derive(Debug, Clone, Copy)]
struct Spent {
    cpu: Duration,
    wall: Duration,
}

fn humane(time: Duration) -> Span {
    Span::millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Gives the engine the rules that a rule asks, and nothing else.
#[derive(Debug)]
struct Content {
    program: Arc<Program>,
    place: Where,
    draw: Draw,
}

impl DecisionLoader for Content {
    fn load<'a>(&'a self, key: &'a str) -> Pin<Box<dyn Future<Output = LoaderResponse> + 'a + Send>> {
        let found = match self.program.asked.get(key) {
            // Rules that ask rules many times over have no other place where they can be stopped.
            _ if monotonic_ms() > self.draw.limit_ms => Err(LoaderError::NotFound(OUT_OF_TIME.to_owned())),
            Some(unit) => Ok(Arc::new(DecisionContent::Graph(unit.graph(self.place, &self.draw)))),
            None => Err(LoaderError::NotFound(key.to_owned())),
        };
        Box::pin(std::future::ready(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spare;
    use weir_model::Time;

    fn program(source: &str, runtime: &Runtime) -> Arc<Program> {
        let rule = serde_json::json!({
            "nodes": [
                {"id": "i", "name": "In", "type": "inputNode"},
                {"id": "f", "name": "Fn", "type": "functionNode", "content": source},
            ],
            "edges": [{"id": "e", "sourceId": "i", "targetId": "f"}],
        });
        let unit = Unit::load("r.json", rule.to_string().as_bytes(), runtime, Instant::now() + Duration::from_secs(60))
            .expect("a good rule");
        Arc::new(Program::new("r.json", Arc::new(unit), BTreeMap::new(), &Limits::defaults()))
    }

    /// Whether the second of two equal evaluations is answered with the result of the first. `ahead`: in realms that the
    /// source was loaded into ahead, from the second evaluation on.
    fn remembered(source: &str, ahead: bool) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let memo = Cache::new(10, 1_000);
        let program = program(source, &runtime);
        let run = |n: i64, micros: i64| {
            let context = RuleContext { time: Time(micros), seed: [1; 32], zone: weir_model::Zone::UTC };
            let input = Variable::from(serde_json::json!({"n": n}));
            let result = program.evaluate(input, 0, context, &runtime, &memo).expect("a result");
            while ahead && spare::tidy(1) {}
            result
        };
        let first = run(1, 1_000_000);
        let other = run(2, 1_000_000);
        assert!(!Arc::ptr_eq(&first, &other), "another input has its own result");
        // At another time: what is a function of its input does not mind.
        Arc::ptr_eq(&first, &run(1, 2_000_000))
    }

    #[test]
    fn how_deep_a_source_may_recurse_does_not_show_where_its_realm_was_made() {
        let depth = |source: &'static str, ahead: bool, below: usize| {
            // Deeper on the stack by some kilobytes.
            fn deep<R>(below: usize, work: &mut dyn FnMut() -> R) -> R {
                let room = std::hint::black_box([0_u8; 4096]);
                let got = if below == 0 { work() } else { deep(below - 1, work) };
                std::hint::black_box(room);
                got
            }
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let program = program(source, &runtime);
            let context = RuleContext { time: Time(0), seed: [1; 32], zone: weir_model::Zone::UTC };
            let mut run = || {
                let memo = Cache::new(10, 1_000);
                let input = Variable::from(serde_json::json!({"n": 1}));
                let result = program.evaluate(input, 0, context, &runtime, &memo).expect("a result");
                while ahead && spare::tidy(1) {}
                format!("{:?}", result.at("depth"))
            };
            [run(), deep(below, &mut run), run()]
        };
        for source in [
            "function f(n) { try { return f(n + 1) } catch { return n } } function handler() { return { depth: f(0) } }",
            "function f(n) { try { return f(n + 1) } catch { return n } } const depth = f(0); function handler() { return { depth } }",
            "function f(n) { try { return f(n + 1) } catch { return n } } const t = Date.now(); function handler() { return { depth: f(0) } }",
        ] {
            let all = [(false, 0), (true, 0), (false, 50), (true, 50)].map(|(ahead, below)| {
                std::thread::Builder::new().stack_size(8 << 20).spawn(move || depth(source, ahead, below))
            });
            let all: Vec<String> =
                all.into_iter().flat_map(|t| t.expect("a thread").join().expect("no panic")).collect();
            assert!(all.iter().all(|one| *one == all[0]), "{source}: {all:?}");
            assert!(all[0].contains("Number"), "{all:?}");
        }
    }

    #[test]
    fn results_of_pure_evaluations_are_remembered() {
        for source in [
            "function handler(i) { return { a: i.n + 1 } }",
            "function handler(i) { console.log('hello'); return { a: Math.max(i.n, 7) } }",
            "function handler(i, { Big }) { return { a: new Big(i.n).plus('0.1') } }",
        ] {
            assert!(remembered(source, false) && remembered(source, true), "{source}");
        }
    }

    #[test]
    fn results_that_used_clock_or_randomness_are_not() {
        for source in [
            "function handler(i) { return { a: Date.now() } }",
            "function handler(i) { new Date(); return { a: 1 } }",
            "function handler(i) { Date(); return { a: 1 } }",
            "function handler(i) { return { a: Math.random() } }",
            "function handler(i, { moment }) { return { a: moment().valueOf() } }",
            "function handler(i) { try { Math.random() } catch {} return { a: 1 } }",
            "let a; try { a = Date } catch { a = 1 } function handler(i) { return { a: i.n } }",
            "function handler(i) { if (i.n === 2) return { a: Date.now() }; return { a: 1 } }",
            "const began = Date.now(); function handler(i) { return { a: began } }",
            "function handler(i) { return { a: Math['ran' + 'dom']() } }",
            "function handler(i) { return { toJSON() { return { a: Reflect.construct(Date, []) } } } }",
            "const real = Math.random; Math.random = () => 4; function handler() { return { a: real() } }",
            "function handler(i) { return { a: (0, eval)('Date.now()') } }",
            "JSON.stringify = () => '{\"output\":1,\"log\":[0]}'; function handler(i) { return { a: Date.now() } }",
            "globalThis.main = () => '{\"output\":1,\"log\":[0]}'; function handler(i) { return { a: Date.now() } }",
        ] {
            assert!(!remembered(source, false) && !remembered(source, true), "{source}");
        }
    }

    /// Sources that use the libraries, or meddle with them.
    const LIBRARIES: [&str; 20] = [
        "function handler(i, { dayjs }) { return { a: dayjs('2024-02-28T10:20:30.456Z').format('YYYY-MM-DD HH:mm:ss.SSS dddd MMM D d h A Z') } }",
        "function handler(i, { dayjs }) { const d = dayjs('2024-01-31 23:59:59'); return { a: d.add(1, 'month'), b: d.diff('2023-11-05', 'week', true), c: d.subtract(i.n, 'hour').toISOString() } }",
        "function handler(i, { dayjs }) { return ['2024-02-30', '2024/3/4', '2024', '20240506', 'Tue, 01 Jan 2019 00:00:00 GMT', 'x', '', null, 7].map((t) => [dayjs(t).isValid(), dayjs(t).valueOf(), String(dayjs(t))]) }",
        "function handler(i, { moment }) { return { a: moment(), b: moment().valueOf(), c: moment().startOf('week').unix(), d: moment(undefined).year() } }",
        "const first = dayjs(); function handler(i, { moment }) { return { a: first.isSame(moment()), b: moment === dayjs, c: first.endOf('month').toDate() } }",
        "const start = dayjs('2024-01-01'); function handler(i) { return { a: dayjs(start).isBefore('2025-01-01'), b: start.set('hour', i.n).hour(), c: start.day() } }",
        "function handler(i, { dayjs }) { dayjs.extend((o, c) => { c.prototype.twice = function () { return this.valueOf() * 2 } }); return { a: dayjs(21).twice(), b: Object.keys(dayjs), c: dayjs.locale(), d: dayjs.unix(5) } }",
        "Date.prototype.getFullYear = () => 1; function handler(i, { dayjs }) { return { a: dayjs(0).year(), b: dayjs('2024-05-06T00:00:00Z').format() } }",
        "function handler(i, { Big }) { return { a: new Big('0.1').plus('0.2'), b: Big(1).div(3).toFixed(30), c: Big(2).sqrt(), d: Big('1e400').times(i.n).toString(), e: Big(2).pow(-3).toNumber() } }",
        "Big.DP = 40; Big.RM = 3; function handler() { return { a: new Big(2).sqrt(), b: Big(-2).div(3), c: Big('123.456').round(1), d: Big(5).cmp(4.9), e: Big(7).mod(3).eq(1) } }",
        "function handler(i, { Big }) { return { a: new Big('x') } }",
        "function handler(i, { Big }) { Big.strict = true; return { a: new Big(i.n) } }",
        "let a; try { a = Big('1.50').toPrecision(4) } catch (e) { a = e.message } function handler() { return { a } }",
        "Array.prototype.slice = Array.prototype.forEach = null; function handler(i, { Big }) { return { a: Big(3).times('2.5') } }",
        "Object.prototype.zz = 5; Array.prototype.reverse = String.prototype.slice = () => 0; function handler(i, { Big, dayjs }) { return { a: Big('12.5').plus(1).toFixed(3), b: dayjs(0).year() } }",
        "globalThis.Big = 5; delete globalThis.dayjs; function handler(i, { Big, dayjs, moment, env }) { return { a: Big, b: typeof dayjs, c: typeof moment, env } }",
        "function handler(i, { dayjs }) { return { a: [Math.random(), Math.random()], b: dayjs().toISOString() } }",
        "function handler(i, libraries) { return { a: Object.keys(libraries), b: Object.values(libraries).map((l) => typeof l), c: Object.getOwnPropertyDescriptor(globalThis, 'dayjs').writable } }",
        "function handler(i, { dayjs }) { return dayjs.no.thing }",
        "function handler(i, { Big }) { return { a: Big(i.n), b: typeof performance, c: typeof now, d: typeof log, e: new Date(2024, 0, 1).toString() } }",
    ];

    #[test]
    fn libraries_give_the_same_here_as_in_the_engine() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let input = Variable::from(serde_json::json!({"n": 7, "list": [1, 2.5, "x", null]}));
        let clock = Clock { time_ms: 1_769_860_800_250, seed: Digest([7; 32]) };
        let mut good = 0;
        for source in LIBRARIES {
            let program = program(source, &runtime);
            for clock in [Some(clock), None] {
                let [engine, realm] = [Where::Engine, Where::Realm].map(|place| {
                    let result = program.run_in(place, &input, &program.draw(clock), &runtime);
                    result.map(|value| value.to_json()).map_err(|failure| format!("{failure:?}"))
                });
                assert_eq!(realm, engine, "{source}");
                good += usize::from(clock.is_some() && realm.is_ok());
            }
        }
        assert_eq!(good, LIBRARIES.len() - 3, "a number that is none, a strict one, and a field of nothing");
    }
}
