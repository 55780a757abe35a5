//! Realms of our own for function nodes in the older form: a JavaScript runtime with the host's script in it, made while
//! nobody waits and used for one evaluation.
//!
//! The engine makes a runtime in each evaluation, loads its libraries into it, and frees it before it answers: 0.8 ms, of
//! which a handler that compares two numbers needs a tenth. Nothing survives here either: equal inputs give equal results,
//! whichever ran before. A source that looks for one of the engine's libraries is run again in a realm that has the same
//! ones, from before the source runs as in the engine: what a source changes of JavaScript must not change them.
//!
//! A source runs before its input and the clock are there, so that this can be done ahead too (`spare.rs`). One that looks
//! for clock, randomness or a library as it runs is run in another realm that has the clock from its beginning. Which of
//! both follows from the source alone, and what JavaScript does is the same whether it was done ahead or not.
//!
//! What a realm allocates is counted and bounded (`heap.rs`, `memory.rs`).

use std::future::{Future, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rquickjs::function::IntoArgs;
use rquickjs::loader::Bundle;
use rquickjs::{
    CatchResultExt, CaughtError, Context, Ctx, FromJs, Function, Module, Object, Persistent, Runtime, embed,
};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use zen_engine::nodes::custom::{CustomNodeAdapter, CustomNodeRequest};
use zen_engine::nodes::{NodeError, NodeResponse, NodeResult};
use zen_expression::Variable;

use crate::heap::{Count, Heap};
use crate::memory::{Memory, OUT_OF_MEMORY};
use crate::script::{Draw, LIBRARIES_WANTED, OUT_OF_TIME};
use crate::spare;

/// Longer sources have the clock from their beginning, whatever they look for: what waits with them would be large.
const LONG: usize = 64 << 10;

/// The scripts, compiled with the host: compiling them in each realm took most of the time that it takes to make one.
static SCRIPTS: Bundle = embed! {
    "realm": "src/script/realm.js",
    "handler": "src/script/handler.js",
    "clock": "src/script/clock.js",
    "date": "src/script/date.js",
    "dayjs": "src/script/vendor/dayjs.js",
    "big": "src/script/vendor/big.js",
};
// The compiler of the host looks for changes in what it includes itself.
const _: [&str; 6] = [
    include_str!("script/realm.js"),
    include_str!("script/handler.js"),
    include_str!("script/clock.js"),
    include_str!("script/date.js"),
    include_str!("script/vendor/dayjs.js"),
    include_str!("script/vendor/big.js"),
];

/// Stack that JavaScript has below a call into a realm: QuickJS's own default, which it counts from where a runtime was made.
const STACK_BYTES: isize = 1 << 20;

/// A global object with the host's script in it.
pub(crate) struct Realm {
    /// Where on the thread's stack it was made.
    made_at: usize,
    // The order in which they are dropped.
    step: Persistent<Function<'static>>,
    context: Context,
    runtime: Runtime,
    pub(crate) heap: Rc<Count>,
}

impl Realm {
    pub(crate) fn new() -> Result<Self, String> {
        Self::make(false)
    }

    /// One with the libraries of function nodes.
    pub(crate) fn with_libraries() -> Result<Self, String> {
        Self::make(true)
    }

    /// Never inlined, so that the runtime is made at the same distance from `made_at` whoever calls.
    #[inline(never)]
    fn make(libraries: bool) -> Result<Self, String> {
        let made_at = stack_position();
        let failed = |e: rquickjs::Error| format!("no JavaScript runtime: {e}");
        let heap = Count::new();
        let runtime = Runtime::new_with_alloc(Heap(heap.clone())).map_err(failed)?;
        let context = Context::full(&runtime).map_err(failed)?;
        runtime.set_loader(SCRIPTS, SCRIPTS);
        let step = context.with(|ctx| {
            if libraries {
                for name in ["dayjs", "big"] {
                    Module::import(&ctx, name)?.finish::<Object<'_>>()?;
                }
            }
            let script = |name| Module::import(&ctx, name)?.finish::<Object<'_>>()?.get::<_, Function<'_>>("default");
            let step = script("realm")?.call((script("handler")?, script("clock")?, script("date")?, libraries));
            step.map(|step: Function<'_>| Persistent::save(&ctx, step))
        });
        let step = step.map_err(failed)?;
        Ok(Self { made_at, step, context, runtime, heap })
    }

    /// Runs a source without clock and input. False: it looked for what it cannot have, and the realm is of no use.
    pub(crate) fn load(&self, source: &str, limit: Limit) -> Result<bool, String> {
        self.call((source,), limit)
    }

    /// Answers what a source defines: `{kind, broken: {words, line}}`, `line` being that of a syntax error.
    fn definition(&self, source: &str, limit: Limit) -> Result<String, String> {
        self.call((source, 0), limit)
    }

    /// What a source makes of an input. None: the source that was loaded; else it runs now, with the clock there already.
    pub(crate) fn run(
        &self,
        source: Option<&str>,
        input: &str,
        node: &str,
        draw: &Draw,
        bytes: u64,
    ) -> Result<String, String> {
        let limit = Limit::of(draw, bytes);
        match draw.clock {
            None => self.call((source, input), limit),
            Some(clock) => {
                let [a, b, c, d] = clock.words(node);
                self.call((source, input, clock.time_ms as f64, a, b, c, d), limit)
            }
        }
    }

    /// Never inlined, so that JavaScript has the same stack whoever calls: how deep a source may recurse must not show where on
    /// the stack its realm was made, ahead or in the middle of an evaluation.
    #[inline(never)]
    fn call<R, A>(&self, arguments: A, limit: Limit) -> Result<R, String>
    where
        R: for<'js> FromJs<'js>,
        A: for<'js> IntoArgs<'js>,
    {
        let deeper = self.made_at.wrapping_sub(stack_position()).cast_signed();
        // Zero would be no limit. Both are on one thread, so they are less than its stack apart.
        self.runtime.set_max_stack_size(STACK_BYTES.saturating_add(deeper).max(1).cast_unsigned());
        self.heap.limit(limit.bytes);
        let heap = self.heap.clone();
        // An error for want of memory can be caught, this cannot.
        self.runtime.set_interrupt_handler(Some(Box::new(move || heap.exceeded() || limit.is_reached())));
        let done = self.context.with(|ctx| {
            let step = self.step.clone().restore(&ctx).map_err(|e| e.to_string())?;
            step.call(arguments).catch(&ctx).map_err(|e| said(&ctx, e))
        });
        if self.heap.exceeded() { Err(OUT_OF_MEMORY.to_owned()) } else { done }
    }

    /// Bytes that JavaScript has allocated.
    pub(crate) fn bytes(&self) -> usize {
        self.heap.used()
    }
}

/// How far JavaScript may go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    /// CPU time of this thread.
    pub(crate) cpu: Duration,
    /// On the machine's monotonic clock, in milliseconds.
    pub(crate) wall_ms: i64,
    /// Of memory.
    pub(crate) bytes: u64,
}

impl Limit {
    fn of(draw: &Draw, bytes: u64) -> Self {
        Self { cpu: draw.limit_cpu, wall_ms: draw.limit_ms, bytes }
    }

    fn is_reached(&self) -> bool {
        cpu_time() > self.cpu || monotonic_ms() > self.wall_ms
    }
}

/// Where on the stack the caller is. Stacks grow down.
#[inline(always)]
fn stack_position() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&here)).addr()
}

/// What was thrown.
fn said<'js>(ctx: &Ctx<'js>, error: CaughtError<'js>) -> String {
    match error {
        CaughtError::Error(e) => e.to_string(),
        CaughtError::Exception(e) => e.message().unwrap_or_else(|| "an error without words".to_owned()),
        CaughtError::Value(value) => String::from_js(ctx, value).unwrap_or_else(|_| "what is no text".to_owned()),
    }
}

/// Runs the function nodes of one evaluation.
#[derive(Debug)]
pub(crate) struct Functions {
    pub(crate) draw: Draw,
    pub(crate) memory: Arc<Memory>,
}

/// How a function node is written in a graph that runs here.
pub(crate) const KIND: &str = "weir:function";

#[derive(Deserialize)]
struct Output {
    output: Variable,
}

impl Functions {
    fn output(&self, request: &CustomNodeRequest) -> Result<Variable, String> {
        let source = request.node.config.as_str().ok_or("it has no source")?;
        if monotonic_ms() > self.draw.limit_ms {
            return Err(OUT_OF_TIME.to_owned());
        }
        let input = serde_json::to_string(&request.input).map_err(|e| e.to_string())?;
        let answer = answer(source, &input, &request.node.id, &self.draw, &self.memory)?;
        self.memory.answer(&answer)?;
        let answer: Output = serde_json::from_str(&answer).map_err(|_| "Failed to parse function result")?;
        Ok(answer.output)
    }
}

/// Answers what a source defines (`Realm::definition`).
pub(crate) fn definition(source: &str, limit: Limit) -> Result<String, String> {
    let found = Realm::new()?.definition(source, limit);
    if wants_libraries(&found) { Realm::with_libraries()?.definition(source, limit) } else { found }
}

fn wants_libraries(answer: &Result<String, String>) -> bool {
    answer.as_ref().is_err_and(|why| why.contains(LIBRARIES_WANTED))
}

/// What a source makes of an input.
pub(crate) fn answer(source: &str, input: &str, node: &str, draw: &Draw, memory: &Memory) -> Result<String, String> {
    let answer = plain(source, input, node, draw, memory);
    // Not remembered: where a source runs must follow from its input alone.
    if !wants_libraries(&answer) {
        return answer;
    }
    ended(Realm::with_libraries()?, memory, |realm| realm.run(Some(source), input, node, draw, memory.left()))
}

/// The same in a realm without libraries, that is used for nothing else.
fn plain(source: &str, input: &str, node: &str, draw: &Draw, memory: &Memory) -> Result<String, String> {
    let bytes = memory.left();
    // What was loaded ahead kept to the bound of that, which may be above what this evaluation has left.
    if bytes >= spare::BYTES as u64
        && let Some(realm) = spare::loaded(source)
    {
        return ended(realm, memory, |realm| realm.run(None, input, node, draw, bytes));
    }
    if source.len() <= LONG && spare::may_run_early(source) {
        let realm = spare::blank()?;
        let began = cpu_time();
        let loaded = realm.load(source, Limit::of(draw, bytes));
        // Without memory it tells nothing: it may have caught that there is no clock yet, and gone on.
        if !realm.heap.exceeded() {
            // What is run ahead does not count towards rule_time: it must be little of it.
            let most = draw.limit_cpu.saturating_sub(began) / 10;
            spare::note(source, loaded != Ok(false), cpu_time().saturating_sub(began), most);
            match loaded {
                Ok(true) => return ended(realm, memory, |realm| realm.run(None, input, node, draw, bytes)),
                Ok(false) => ended(realm, memory, |_| ()),
                Err(why) => return ended(realm, memory, |_| Err(why)),
            }
        }
    }
    ended(spare::blank()?, memory, |realm| realm.run(Some(source), input, node, draw, bytes))
}

/// Runs the last of what a realm is used for.
fn ended<R>(realm: Realm, memory: &Memory, last: impl FnOnce(&Realm) -> R) -> R {
    let answer = last(&realm);
    if realm.heap.exceeded() {
        memory.exceed();
    }
    spare::used(realm);
    answer
}

impl CustomNodeAdapter for Functions {
    fn handle(&self, request: CustomNodeRequest) -> Pin<Box<dyn Future<Output = NodeResult> + '_>> {
        let output = self.output(&request);
        Box::pin(ready(match output {
            Ok(output) => Ok(NodeResponse { output, trace_data: None }),
            Err(why) => Err(NodeError { node_id: request.node.id, trace: None, source: why.into() }),
        }))
    }
}

/// The machine's monotonic clock, which `performance.timeOrigin` of the engine's JavaScript is read from too.
pub(crate) fn monotonic_ms() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000 + now.tv_nsec / 1_000_000
}

/// CPU time of this thread.
pub(crate) fn cpu_time() -> Duration {
    let at = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(at.tv_sec).unwrap_or(0), u32::try_from(at.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests;
