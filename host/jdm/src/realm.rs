//! Realms of our own for function nodes in the older form: a JavaScript runtime with the host's script in it, made while
//! nobody waits and used for one evaluation.
//!
//! The engine makes a runtime in each evaluation, loads its libraries into it, and frees it before it answers: 0.8 ms, of
//! which a handler that compares two numbers needs a tenth. Nothing survives here either: equal inputs give equal results,
//! whichever ran before. A source that looks for one of the engine's libraries is left to the engine.

use std::cell::RefCell;
use std::future::{Future, ready};
use std::pin::Pin;
use std::time::Duration;

use rquickjs::{CatchResultExt, CaughtError, Context, Ctx, FromJs, Function, Persistent, Runtime};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use zen_engine::nodes::custom::{CustomNodeAdapter, CustomNodeRequest};
use zen_engine::nodes::{NodeError, NodeResponse, NodeResult};
use zen_expression::Variable;

use crate::script::{self, Draw, OUT_OF_TIME};

/// Realms that wait on each thread, some 200 kB each: an evaluation of more rows makes the rest as it goes.
const SPARES: usize = 8;

thread_local! {
    static SPARE: RefCell<Vec<Realm>> = const { RefCell::new(Vec::new()) };
    /// To be freed when nobody waits.
    static USED: RefCell<Vec<Realm>> = const { RefCell::new(Vec::new()) };
}

/// One step of what is put off while someone waits: a used realm is freed, or one is made in its place. False: there is
/// nothing to do.
pub(crate) fn tidy(wanted: usize) -> bool {
    if USED.with_borrow_mut(Vec::pop).is_some() {
        return true;
    }
    let room = SPARE.with_borrow(|spare| spare.len() < wanted.min(SPARES));
    // What cannot be made now is made, or fails, when it is needed.
    room && Realm::new().map(|realm| SPARE.with_borrow_mut(|spare| spare.push(realm))).is_ok()
}

/// How many were used and not yet freed.
pub(crate) fn used() -> usize {
    USED.with_borrow(Vec::len)
}

/// A global object with the host's script in it.
struct Realm {
    // The order in which they are dropped.
    run: Persistent<Function<'static>>,
    context: Context,
    runtime: Runtime,
}

impl Realm {
    fn new() -> Result<Self, String> {
        let failed = |e: rquickjs::Error| format!("no JavaScript runtime: {e}");
        let runtime = Runtime::new().map_err(failed)?;
        let context = Context::full(&runtime).map_err(failed)?;
        let run = context
            .with(|ctx| ctx.eval::<Function<'_>, _>(script::realm()).map(|run| Persistent::save(&ctx, run)))
            .map_err(failed)?;
        Ok(Self { run, context, runtime })
    }

    fn run(&self, source: &str, input: &str, node: &str, draw: &Draw) -> Result<String, String> {
        let (cpu, wall) = (draw.limit_cpu, draw.limit_ms);
        self.runtime.set_interrupt_handler(Some(Box::new(move || cpu_time() > cpu || monotonic_ms() > wall)));
        self.context.with(|ctx| {
            let run = self.run.clone().restore(&ctx).map_err(|e| e.to_string())?;
            let answer = match draw.clock {
                None => run.call((source, input)),
                Some(clock) => {
                    let [a, b, c, d] = clock.words(node);
                    run.call((source, input, clock.time_ms as f64, a, b, c, d))
                }
            };
            answer.catch(&ctx).map_err(|e| said(&ctx, e))
        })
    }
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
pub(crate) struct Functions(pub(crate) Draw);

/// How a function node is written in a graph that runs here.
pub(crate) const KIND: &str = "weir:function";

#[derive(Deserialize)]
struct Output {
    output: Variable,
}

impl Functions {
    fn output(&self, request: &CustomNodeRequest) -> Result<Variable, String> {
        let source = request.node.config.as_str().ok_or("it has no source")?;
        if monotonic_ms() > self.0.limit_ms {
            return Err(OUT_OF_TIME.to_owned());
        }
        let input = serde_json::to_string(&request.input).map_err(|e| e.to_string())?;
        let realm = SPARE.with_borrow_mut(Vec::pop).map_or_else(Realm::new, Ok)?;
        let answer = realm.run(source, &input, &request.node.id, &self.0);
        USED.with_borrow_mut(|used| {
            if used.len() < SPARES {
                used.push(realm);
            }
        });
        let answer: Output = serde_json::from_str(&answer?).map_err(|_| "Failed to parse function result")?;
        Ok(answer.output)
    }
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
