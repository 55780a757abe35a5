//! Realms of our own for function nodes in the older form: a JavaScript runtime with the host's script in it, made while
//! nobody waits and used for one evaluation.
//!
//! The engine makes a runtime in each evaluation, loads its libraries into it, and frees it before it answers: 0.8 ms, of
//! which a handler that compares two numbers needs a tenth. Nothing survives here either: equal inputs give equal results,
//! whichever ran before. A source that looks for one of the engine's libraries is left to the engine.
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
use crate::script::{Draw, OUT_OF_TIME};
use crate::spare;

/// Longer sources have the clock from their beginning, whatever they look for: what waits with them would be large.
const LONG: usize = 64 << 10;

/// The scripts, compiled with the host: compiling them in each realm took most of the time that it takes to make one.
static SCRIPTS: Bundle = embed! {
    "realm": "src/script/realm.js",
    "handler": "src/script/handler.js",
    "clock": "src/script/clock.js",
    "date": "src/script/date.js",
};
// The compiler of the host looks for changes in what it includes itself.
const _: [&str; 4] = [
    include_str!("script/realm.js"),
    include_str!("script/handler.js"),
    include_str!("script/clock.js"),
    include_str!("script/date.js"),
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
    /// Never inlined, so that the runtime is made at the same distance from `made_at` whoever calls.
    #[inline(never)]
    pub(crate) fn new() -> Result<Self, String> {
        let made_at = stack_position();
        let failed = |e: rquickjs::Error| format!("no JavaScript runtime: {e}");
        let heap = Count::new();
        let runtime = Runtime::new_with_alloc(Heap(heap.clone())).map_err(failed)?;
        let context = Context::full(&runtime).map_err(failed)?;
        runtime.set_loader(SCRIPTS, SCRIPTS);
        let step = context.with(|ctx| {
            let script = |name| Module::import(&ctx, name)?.finish::<Object<'_>>()?.get::<_, Function<'_>>("default");
            let step = script("realm")?.call((script("handler")?, script("clock")?, script("date")?));
            step.map(|step: Function<'_>| Persistent::save(&ctx, step))
        });
        let step = step.map_err(failed)?;
        Ok(Self { made_at, step, context, runtime, heap })
    }

    /// Runs a source without clock and input. False: it looked for what it cannot have, and the realm is of no use.
    pub(crate) fn load(&self, source: &str, limit: Limit) -> Result<bool, String> {
        self.call((source,), limit)
    }

    /// Answers what a source defines (`Source::definition`), or that it looks for a library.
    pub(crate) fn definition(&self, source: &str, limit: Limit) -> Result<String, String> {
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

/// What a source makes of an input, in a realm that is used for nothing else.
pub(crate) fn answer(source: &str, input: &str, node: &str, draw: &Draw, memory: &Memory) -> Result<String, String> {
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
mod tests {
    use weir_model::Digest;

    use super::*;
    use crate::script::Clock;

    /// 2026-01-31T12:00:00.250Z.
    const CLOCK: Clock = Clock { time_ms: 1_769_860_800_250, seed: Digest([7; 32]) };
    const NODE: &str = "f";
    const INPUT: &str = r#"{"n":3}"#;
    const PLENTY: u64 = 64 << 20;

    fn plenty() -> Memory {
        Memory::new(PLENTY)
    }

    fn draw(clock: Option<Clock>, cpu: Duration) -> Draw {
        Draw { clock, limit_ms: monotonic_ms() + 60_000, limit_cpu: cpu_time() + cpu }
    }

    /// Evaluates a source anew, twice after tidying up, and with all given at once. What came of each, and whether the
    /// source waited loaded in between.
    fn ways(source: &str, clock: Option<Clock>) -> (Vec<Result<String, String>>, bool) {
        let (source, minute) = (source.to_owned(), Duration::from_secs(60));
        let all = move || {
            let mut got = vec![answer(&source, INPUT, NODE, &draw(clock, minute), &plenty())];
            while spare::tidy(1) {}
            let ahead = spare::waiting(&source) > 0;
            got.push(answer(&source, INPUT, NODE, &draw(clock, minute), &plenty()));
            while spare::tidy(1) {}
            got.push(answer(&source, INPUT, NODE, &draw(clock, minute), &plenty()));
            let at_once = Realm::new().expect("a realm").run(Some(&source), INPUT, NODE, &draw(clock, minute), PLENTY);
            got.push(at_once);
            (got, ahead)
        };
        // What a thread remembers is its own.
        std::thread::spawn(all).join().expect("no panic")
    }

    fn expect(source: &str, clock: Option<Clock>, output: Result<&str, &str>, ahead: bool) {
        let right = output.map(|o| format!("{{\"output\":{o},\"log\":[]}}")).map_err(str::to_owned);
        let (got, was_ahead) = ways(source, clock);
        for got in got {
            assert_eq!(got, right, "{source}");
        }
        assert_eq!(was_ahead, ahead, "{source}");
    }

    #[test]
    fn what_a_source_does_as_it_runs_is_the_same_ahead() {
        for (source, output) in [
            ("let n = 0; function handler() { return { n: ++n } }", r#"{"n":1}"#),
            (
                "globalThis.c = (globalThis.c || 0) + 1; Array.prototype.x = c; function handler(i) { return { c: [].x + i.n } }",
                r#"{"c":4}"#,
            ),
            ("globalThis.main = () => 7; function handler() { return { a: 1 } }", r#"{"a":1}"#),
            ("function main() { return 7 } function handler() { return { a: 1 } }", r#"{"a":1}"#),
            ("JSON.stringify = () => '7'; function handler() { return { a: 1 } }", r#"{"a":1}"#),
            ("JSON.parse = () => 7; function handler(i) { return { a: i.n } }", r#"{"a":3}"#),
            ("Math.random = () => 4; function handler() { return { r: Math.random() } }", r#"{"r":4}"#),
            ("globalThis.Date = 5; function handler() { return { d: Date } }", r#"{"d":5}"#),
            (
                "const f = () => Math.random(), g = () => Date; function handler() { return { a: typeof g } }",
                r#"{"a":"function"}"#,
            ),
            (
                "(async () => { await 0; globalThis.x = Date.now() })(); function handler() { return { x: typeof x } }",
                r#"{"x":"undefined"}"#,
            ),
            (
                "const seen = Object.getOwnPropertyNames(globalThis).includes('main'); function handler() { return { seen } }",
                r#"{"seen":false}"#,
            ),
        ] {
            expect(source, None, Ok(output), true);
            expect(source, Some(CLOCK), Ok(output), true);
        }
    }

    #[test]
    fn a_realm_loaded_ahead_has_the_batch_time() {
        for (source, output) in [
            (
                "function handler() { return { a: new Date().toISOString(), b: Date.now(), c: Date() } }",
                r#"{"a":"2026-01-31T12:00:00.250Z","b":1769860800250,"c":"Sat Jan 31 2026 12:00:00 GMT+0000"}"#,
            ),
            (
                "function handler() { return { a: Date.parse('2024-01-01T00:00:00'), b: +new Date(2024, 0, 1), c: Date.UTC(2024, 0, 1) } }",
                r#"{"a":1704067200000,"b":1704067200000,"c":1704067200000}"#,
            ),
            (
                "function handler() { return { a: +new (new Date(0).constructor)(), b: +new (class extends Date {})(), c: new Date(0) instanceof Date } }",
                r#"{"a":1769860800250,"b":1769860800250,"c":true}"#,
            ),
            (
                "function handler() { return { n: [typeof Date, Date.name, Date.length, Date.now.name, new Date(0).getHours(), new Date(0).getTimezoneOffset()] } }",
                r#"{"n":["function","Date",0,"",0,0]}"#,
            ),
            (
                "const { get } = Object.getOwnPropertyDescriptor(globalThis, 'Date'); function handler() { return { a: get().now() } }",
                r#"{"a":1769860800250}"#,
            ),
            (
                "Object.defineProperty = Reflect.construct = JSON.parse = null; function handler() { return { a: +new Date() } }",
                r#"{"a":1769860800250}"#,
            ),
            (
                "Array.prototype[Symbol.iterator] = function* () { yield () => 1; yield () => 2 }; function handler() { return { a: Date.now() } }",
                r#"{"a":1769860800250}"#,
            ),
        ] {
            expect(source, Some(CLOCK), Ok(output), true);
            expect(source, None, Err("weir:clock"), true);
        }
    }

    #[test]
    fn a_source_that_looks_for_the_clock_as_it_runs_is_not_loaded_ahead() {
        for (source, output) in [
            ("const began = Date.now(); function handler() { return { began } }", r#"{"began":1769860800250}"#),
            (
                "let a; try { a = new Date(2024, 0, 1).getTime() } catch { a = 0 } function handler() { return { a } }",
                r#"{"a":1704067200000}"#,
            ),
            ("let a = 0; try { a = Math.random() < 1 } catch {} function handler() { return { a } }", r#"{"a":true}"#),
            (
                "globalThis.main = () => 7; const a = (0, eval)('Date.now()'); function handler() { return { a } }",
                r#"{"a":1769860800250}"#,
            ),
        ] {
            expect(source, Some(CLOCK), Ok(output), false);
            expect(source, None, Err("weir:clock"), false);
        }
    }

    #[test]
    fn a_source_that_looks_for_a_library_is_the_engines() {
        for source in [
            "const d = dayjs; function handler() { return { a: 1 } }",
            "let a = 1; try { a = Big } catch {} function handler() { return { a } }",
        ] {
            expect(source, None, Err("weir:libraries"), false);
            expect(source, Some(CLOCK), Err("weir:libraries"), false);
        }
        let later = "function handler(i, { Big }) { return { a: 1 } }";
        expect(later, Some(CLOCK), Err("weir:libraries"), true);
    }

    #[test]
    fn what_a_source_does_wrong_is_said_in_the_same_words_ahead() {
        for (source, words) in [
            ("throw new Error('no'); function handler() {}", "Error: no (near line 1)"),
            ("\n\nnull.x; function handler() {}", "TypeError: cannot read property 'x' of null (near line 3)"),
            ("throw { code: 7 }", r#"{"code":7}"#),
            ("function handler() { throw 'a text' }", "a text"),
            ("function handler() { }", "handler returned nothing"),
            ("let x = 1; x(); function handler() {}", "TypeError: not a function (near line 1)"),
        ] {
            expect(source, None, Err(words), true);
            expect(source, Some(CLOCK), Err(words), true);
        }
        for (source, words) in [
            ("function handler( {", "SyntaxError: "),
            ("Object.defineProperty(globalThis, 'main', { value: 1 })", "property is not configurable"),
        ] {
            let (got, _) = ways(source, Some(CLOCK));
            assert!(got[0].as_ref().is_err_and(|e| e.starts_with(words)), "{source}: {got:?}");
            assert!(got.iter().all(|other| *other == got[0]), "{source}: {got:?}");
        }
    }

    /// The first number that a node draws, by the definition of sfc32 and of how it is seeded.
    fn first_number(salt: &str) -> f64 {
        let [mut a, mut b, mut c, mut d] = CLOCK.words(NODE);
        for unit in salt.encode_utf16() {
            a = (a ^ u32::from(unit)).wrapping_mul(16_777_619);
        }
        let mut next = || {
            let t = a.wrapping_add(b).wrapping_add(d);
            d = d.wrapping_add(1);
            a = b ^ (b >> 9);
            b = c.wrapping_add(c << 3);
            c = c.rotate_left(21).wrapping_add(t);
            t
        };
        for _ in 0..15 {
            next();
        }
        let high = f64::from(next()) * 2_097_152.0;
        (high + f64::from(next() >> 11)) / 9_007_199_254_740_992.0
    }

    #[test]
    fn random_numbers_are_those_of_the_node_and_its_input() {
        for (source, salt, ahead) in [
            ("function handler() { return Math.random() }", INPUT, true),
            ("const draw = Math.random; Math.random = () => 4; function handler() { return draw() }", INPUT, true),
            ("Math.imul = JSON.stringify = () => 7; function handler() { return Math.random() }", INPUT, true),
            ("const first = Math.random(); function handler() { return first }", "", false),
        ] {
            let (got, was_ahead) = ways(source, Some(CLOCK));
            for got in got {
                let got: Output = serde_json::from_str(&got.expect("a number")).expect("JSON");
                let Variable::Number(number) = got.output else { panic!("{:?}", got.output) };
                let number: f64 = number.to_string().parse().expect("a number");
                assert!((number - first_number(salt)).abs() < 1e-15, "{source}: {number}");
            }
            assert_eq!(was_ahead, ahead, "{source}");
        }
    }

    #[test]
    fn the_collector_of_javascript_runs_at_the_same_places_ahead() {
        let source =
            "function handler() { let n = 0; const w = (() => { const a = {}; a.a = a; return new WeakRef(a) })();
            while (w.deref() && n < 1e5) { const b = {}; b.b = b; n++ } return { n, kept: n === 1e5 } }";
        for clock in [None, Some(CLOCK)] {
            let (got, ahead) = ways(source, clock);
            assert!(ahead && got[0].as_ref().is_ok_and(|o| o.contains(r#""kept":false"#)), "{got:?}");
            assert!(got[1] == got[0] && got[2] == got[0], "{got:?}");
        }
    }

    #[test]
    fn a_source_that_is_long_or_slow_or_large_is_not_loaded_ahead() {
        let long = format!("function handler() {{ return {{ a: 1 }} }} //{}", "x".repeat(LONG));
        // 142857 times 0 to 6, and a zero.
        let slow = "let x = 0; for (let k = 0; k < 1e6; k++) x += k % 7; function handler() { return { x } }";
        let large = "const bytes = new Uint8Array(1 << 20); function handler() { return { n: bytes.length } }";
        for (source, output) in [(&*long, r#"{"a":1}"#), (slow, r#"{"x":2999997}"#), (large, r#"{"n":1048576}"#)] {
            expect(source, None, Ok(output), false);
            expect(source, Some(CLOCK), Ok(output), false);
        }
    }

    #[test]
    fn a_source_that_does_not_end_is_interrupted_and_never_loaded_ahead() {
        let source = "while (true) try { while (true) {} } catch {} function handler() { return { a: 1 } }";
        for _ in 0..3 {
            let got = answer(source, INPUT, NODE, &draw(Some(CLOCK), Duration::from_millis(20)), &plenty());
            assert!(got.as_ref().is_err_and(|e| e.contains("interrupted")), "{got:?}");
            let began = cpu_time();
            while spare::tidy(1) {}
            assert_eq!(spare::waiting(source), 0);
            assert!(cpu_time() - began < Duration::from_millis(500), "tidying up ends");
        }
    }
}
