//! Function nodes: clock, randomness, and what a handler may be.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Int64Array, RecordBatch};
use serde_json::json;
use weir_model::Kind;
use weir_model::port::{RuleCall, RuleContext};

use crate::support::*;

fn run(source: &str) -> serde_json::Value {
    result(&graph(&[function(source)]))
}

#[test]
fn every_clock_gives_the_batch_time() {
    let got = run("function handler(input, { moment, dayjs }) { return {
        iso: new Date().toISOString(), now: Date.now(), text: Date(), moment: moment().toISOString(),
        dayjs: dayjs().valueOf(), late: new (new Date(0).constructor)().getTime(), sub: new (class extends Date {})().getTime(),
        other: [typeof performance, typeof globalThis.now] } }");
    let ms = 1_769_860_800_250_i64;
    assert_eq!(
        got,
        json!({"iso": T, "now": ms, "text": "Sat Jan 31 2026 12:00:00 GMT+0000", "moment": T, "dayjs": ms,
            "late": ms, "sub": ms, "other": ["undefined", "undefined"]})
    );
}

#[test]
fn dates_are_still_dates() {
    let got = run("function handler() { const d = new Date(2026, 0, 31, 5, 6, 7, 8); return {
        parts: d.toISOString(), hours: d.getHours(), offset: d.getTimezoneOffset(), is: d instanceof Date,
        text: new Date('2026-01-31T05:00:00').toISOString(), zone: new Date('2026-01-31T05:00:00+09:00').toISOString(),
        day: new Date('2026-01-31').getTime(), copy: new Date(d).getTime() === d.getTime(), bad: String(new Date('x')),
        set: new Date(d.setHours(23)).toISOString(), utc: Date.UTC(2026, 0, 1), local: d.toLocaleString(), json: { at: new Date(0) } } }");
    assert_eq!(
        got,
        json!({"parts": "2026-01-31T05:06:07.008Z", "hours": 5, "offset": 0, "is": true,
            "text": "2026-01-31T05:00:00.000Z", "zone": "2026-01-30T20:00:00.000Z", "day": 1_769_817_600_000_i64,
            "copy": true, "bad": "Invalid Date", "set": "2026-01-31T23:06:07.008Z", "utc": 1_767_225_600_000_i64,
            "local": "01/31/2026, 11:06:07 PM", "json": {"at": "1970-01-01T00:00:00.000Z"}})
    );
}

#[test]
fn equal_call_and_context_give_equal_bytes() {
    let rule = graph(&[function(
        "function handler(input) { return { at: new Date(), r: [Math.random(), Math.random()], n: input.n } }",
    )]);
    let rows = || {
        let n = Arc::new(Int64Array::from_iter_values(0..5)) as _;
        each(RecordBatch::try_from_iter([("n", n)]).expect("rows"), &[("", Kind::Json)])
    };
    // Loaded twice, so that nothing is remembered from the first time but what is pure.
    let first = ask_rule(&load(&one(&rule)), &rows());
    let again = ask_rule(&load(&one(&rule)), &rows());
    assert_eq!(first.rows, again.rows);

    let other = RuleContext { seed: [8; 32], ..context() };
    let other = load(&one(&rule)).evaluate("r", &rows(), other).expect("an answer");
    assert_ne!(first.rows, other.rows, "another seed, other numbers");
}

#[test]
fn each_row_and_each_node_draw_for_themselves() {
    let draw = |id: &str| {
        let mut node =
            function("function handler(input) { return { ...input, a: [...(input.a || []), Math.random()] } }");
        node["id"] = json!(id);
        node
    };
    let rules = load(&one(&graph(&[draw("f1"), draw("f2")])));
    let same = Arc::new(Int64Array::from(vec![1; 50])) as _;
    let rows = RecordBatch::try_from_iter([("n", same)]).expect("rows");
    let call = each(rows.clone(), &[("a.0", Kind::Float64), ("a.1", Kind::Float64)]);
    let all = ask_rule(&rules, &call);
    let numbers = |column: usize| all.rows.column(column).as_primitive::<Float64Type>().values().to_vec();
    let mut drawn: Vec<f64> = [numbers(0), numbers(1)].concat();
    assert!(drawn.iter().all(|n| (0.0..1.0).contains(n)));
    drawn.sort_by(f64::total_cmp);
    drawn.dedup();
    assert_eq!(drawn.len(), 100, "no two are equal");
    let mean = drawn.iter().sum::<f64>() / 100.0;
    assert!((0.35..0.65).contains(&mean), "{mean}");

    let first = ask_rule(&rules, &each(rows.slice(0, 1), &[("a.0", Kind::Float64)]));
    assert_eq!(first.rows.column(0).as_primitive::<Float64Type>().value(0), numbers(0)[0], "other rows do not matter");
}

#[test]
fn time_and_seed_are_not_in_the_input() {
    let got = run("function handler(input) { delete input.$nodes; return { keys: Object.keys(input),
        args: arguments.length, globals: Object.getOwnPropertyNames(globalThis).filter((n) => /time|seed|source|draw|clock/i.test(n)) } }");
    assert_eq!(got, json!({"keys": [], "args": 2, "globals": []}));
}

#[test]
fn a_handler_may_be_written_in_any_way_that_defines_one() {
    for source in [
        "function handler(input) { return { ok: 1 } }",
        "const handler = (input) => ({ ok: 1 });",
        "let handler; handler = function () { return { ok: 1 } }",
        "globalThis.handler = () => ({ ok: 1 })",
        "class A { static go() { return { ok: 1 } } }\nconst handler = A.go // a comment at the end",
        "/* export default handler */\n// import x from 'y'\nfunction handler() { const s = 'export'; return { ok: 1 } }",
        "function main() { return 'not the engine\\'s' }\nfunction handler() { return { ok: 1 } }",
    ] {
        assert_eq!(run(source), json!({"ok": 1}), "{source}");
    }
}

#[test]
fn what_a_handler_does_wrong_is_said_with_the_node_and_the_line() {
    for (source, reason) in [
        (
            "function handler(input) {\n  return input.a.b;\n}",
            "Fn: TypeError: cannot read property 'b' of undefined (near line 1)",
        ),
        ("function handler() { throw 'a \"text\"' }", "Fn: a \"text\""),
        ("function handler() { throw { code: 7 } }", "Fn: {\"code\":7}"),
        ("function handler() { }", "Fn: handler returned nothing"),
        (
            "async function handler() { return {} }",
            "Fn: handler is async, which a function node in the older form cannot be",
        ),
        (
            "function handler() { return { n: 1e30 } }",
            "Fn: Failed to parse function result (a number beyond 28 digits, or nesting beyond 128)",
        ),
        ("function handler() { const a = {}; a.a = a; return a }", "Fn: TypeError: circular reference"),
    ] {
        let rules = load(&one(&graph(&[function(source)])));
        assert_eq!(failed(&rules, &RuleCall::default()), reason, "{source}");
    }
    let deep = "function handler() { let a = 1; for (let i = 0; i < 500; i++) a = [a]; return { a } }";
    assert!(failed(&load(&one(&graph(&[function(deep)]))), &RuleCall::default()).contains("nesting beyond 128"));
}

#[test]
fn nan_and_infinity_of_javascript_are_null() {
    assert_eq!(run("function handler() { return { v: { a: NaN, b: 1 / 0 } } }"), json!({"v": {"a": null, "b": null}}));
}

#[test]
fn one_evaluation_leaves_nothing_to_the_next() {
    let rules = load(&one(&graph(&[function(
        "function handler(input) { globalThis.count = (globalThis.count || 0) + 1; Array.prototype.mine = 1; Math.random(); return { count: globalThis.count } }",
    )])));
    for _ in 0..3 {
        assert_eq!(whole(&rules, &RuleCall::default()), json!({"count": 1}));
    }
}

#[test]
fn a_library_is_there_for_whoever_looks_for_it_and_only_that_evaluation_waits_for_it() {
    // An evaluation without the library runs elsewhere than one with it: neither must know.
    for (source, two) in [
        (
            "function handler(i, libs) { return i.n === 2 ? { v: new libs.Big('0.1').plus('0.2').toString() } : { v: 'none' } }",
            "0.3",
        ),
        (
            "function handler(i) { return i.n === 2 ? { v: dayjs(0).toISOString() } : { v: 'none' } }",
            "1970-01-01T00:00:00.000Z",
        ),
        (
            "function handler(i, { moment }) { return i.n === 2 ? { v: moment(1000).toISOString() } : { v: 'none' } }",
            "1970-01-01T00:00:01.000Z",
        ),
        (
            "function handler(i, libs) { let v = 'none'; if (i.n === 2) try { v = libs['day' + 'js'](0).toISOString() } catch { v = 'caught' } return { v } }",
            "1970-01-01T00:00:00.000Z",
        ),
        ("function handler(i) { if (i.n === 2) { Big = 'mine'; return { v: Big } } return { v: 'none' } }", "mine"),
    ] {
        let n = Arc::new(Int64Array::from(vec![1, 2, 3])) as _;
        let rows = RecordBatch::try_from_iter([("n", n)]).expect("rows");
        let answer = ask_rule(&load(&one(&graph(&[function(source)]))), &each(rows, &[("v", Kind::Text)]));
        assert_eq!(texts(&answer, 0), ["none", two, "none"], "{source}");
    }
}

#[test]
fn a_field_with_a_name_of_javascripts_own_is_a_field() {
    let number = |name: &str| (name.to_owned(), weir_model::Scalar::Int64(1));
    let call = RuleCall { values: vec![number("__proto__"), number("constructor")], ..RuleCall::default() };
    let rule = "function handler(input) { delete input.$nodes; return { keys: Object.keys(input) } }";
    let rules = load(&one(&graph(&[function(rule)])));
    assert_eq!(whole(&rules, &call), json!({"keys": ["__proto__", "constructor"]}));
}

#[test]
fn objects_with_many_fields_come_in_the_order_of_their_names() {
    let names: Vec<String> = (0..60).map(|i| format!("f{i:02}")).collect();
    let fields = names.iter().map(|name| (name.as_str(), Arc::new(Int64Array::from(vec![1])) as _));
    let rows = RecordBatch::try_from_iter(fields).expect("rows");
    let rule = "function handler(input) { delete input.$nodes; const o = {}; for (const k of Object.keys(input)) o[k] = Math.random(); return { keys: Object.keys(input), o } }";
    let rules = load(&one(&graph(&[function(rule)])));
    let answer = ask_rule(&rules, &each(rows.clone(), &[("keys", Kind::Json), ("o", Kind::Json)]));
    let sorted = serde_json::to_string(&names).expect("JSON");
    assert_eq!(texts(&answer, 0)[0], sorted);
    assert!(texts(&answer, 1)[0].starts_with("{\"f00\":"));
    assert_eq!(ask_rule(&rules, &each(rows, &[("keys", Kind::Json), ("o", Kind::Json)])).rows, answer.rows);
}

#[test]
fn a_module_runs_where_it_is_granted_and_has_the_batch_time_too() {
    let module =
        |source: &str| json!({"id": "m", "name": "Mod", "type": "functionNode", "content": {"source": source}});
    let source = "import dayjs from 'dayjs';\nexport const handler = async (input: { n: number }) => ({ at: new Date().toISOString(), day: dayjs().valueOf(), r: Math.random() });";
    let rules = load(&granted(one(&graph(&[module(source)]))));
    let got = whole(&rules, &RuleCall::default());
    assert_eq!((&got["at"], &got["day"]), (&json!(T), &json!(1_769_860_800_250_i64)));
    assert_eq!(whole(&rules, &RuleCall::default()), got);
}
