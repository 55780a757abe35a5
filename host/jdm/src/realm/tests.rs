//! Realms that run ahead or not, with a clock or not.

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
        let at_once =
            |realm: Result<Realm, String>| realm?.run(Some(&source), INPUT, NODE, &draw(clock, minute), PLENTY);
        let plain = at_once(Realm::new());
        got.push(if wants_libraries(&plain) { at_once(Realm::with_libraries()) } else { plain });
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
fn a_source_that_looks_for_a_library_has_it() {
    for (source, output, ahead) in [
        ("const d = dayjs; function handler() { return { a: 1 } }", r#"{"a":1}"#, false),
        (
            "let a = 1; try { a = typeof Big } catch {} function handler() { return { a } }",
            r#"{"a":"function"}"#,
            false,
        ),
        ("function handler(i, { Big }) { return { a: new Big('0.1').plus('0.2') } }", r#"{"a":"0.3"}"#, true),
        ("globalThis.Big = 7; function handler(i, { Big }) { return { a: Big } }", r#"{"a":7}"#, true),
        // They are there before the source is.
        (
            "Object.assign = Array.prototype.map = null; const a = dayjs.name; function handler(i, { Big }) { return { a: Big(i.n).plus(1) } }",
            r#"{"a":"4"}"#,
            false,
        ),
    ] {
        expect(source, None, Ok(output), ahead);
        expect(source, Some(CLOCK), Ok(output), ahead);
    }
    for source in [
        "function handler(i, { moment }) { return { a: moment().valueOf() } }",
        "function handler(i, { dayjs }) { try { dayjs() } catch {} return { a: 1769860800250 } }",
        "function handler(i, { dayjs }) { return { a: dayjs(1769601600250).add(i.n, 'day').valueOf() } }",
    ] {
        expect(source, Some(CLOCK), Ok(r#"{"a":1769860800250}"#), true);
        expect(source, None, Err("weir:clock"), true);
    }
    // What ended for want of one is not what the source does.
    let source = "let a; try { a = new Big(3) } catch { a = 'x'.repeat(1e6) } function handler() { return { a } }";
    expect(source, None, Ok(r#"{"a":"3"}"#), false);
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
    let source = "function handler() { let n = 0; const w = (() => { const a = {}; a.a = a; return new WeakRef(a) })();
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
