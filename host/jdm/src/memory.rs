//! How much memory the function nodes of one evaluation may take.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a node fails with that goes beyond the limit, whatever its source catches.
pub(crate) const OUT_OF_MEMORY: &str = "weir:rule_memory_bytes";
/// What a value of an answer takes in the engine, and what an array or object takes beside.
const VALUE: u64 = 32;
const CONTAINER: u64 = 96;

/// Memory of one evaluation. Its nodes run one after the other, so that one realm is alive at a time; what each one answered
/// stays until the end.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: u64,
    answered: AtomicU64,
    exceeded: AtomicBool,
}

impl Memory {
    /// At most that many bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, answered: AtomicU64::new(0), exceeded: AtomicBool::new(false) }
    }

    /// What the next realm may take.
    pub(crate) fn left(&self) -> u64 {
        self.limit.saturating_sub(self.answered.load(Ordering::Relaxed))
    }

    /// Notes that a realm asked for more.
    pub(crate) fn exceed(&self) {
        self.exceeded.store(true, Ordering::Relaxed);
    }

    /// Whether one did.
    pub(crate) fn exceeded(&self) -> bool {
        self.exceeded.load(Ordering::Relaxed)
    }

    /// Counts an answer before values are made of it.
    pub(crate) fn answer(&self, json: &str) -> Result<(), String> {
        let bytes = weight(json);
        if bytes > self.left() {
            self.exceed();
            return Err(OUT_OF_MEMORY.to_owned());
        }
        self.answered.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

/// What a JSON text and the values that it stands for take, as a function of the text.
fn weight(json: &str) -> u64 {
    let (mut values, mut containers, mut quoted, mut escaped) = (1, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => values += 1,
            // One that is not empty has one value more than commas.
            b'[' | b'{' if !quoted => (values, containers) = (values + 1, containers + 1),
            _ => {}
        }
    }
    json.len() as u64 + values * VALUE + containers * CONTAINER
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::realm::{self, Realm, cpu_time, monotonic_ms};
    use crate::script::Draw;
    use crate::spare;

    const LIMIT: u64 = 8 << 20;

    /// Sources that do not keep to 8 MiB, each in another way.
    const HUNGRY: [&str; 15] = [
        "function handler() { return { n: 'x'.repeat(2 ** 28).length } }",
        "function handler() { const a = []; for (;;) a.push(1) }",
        "function handler() { let s = 'ab'; for (;;) s += s }",
        "function handler() { let s = 'ab'; for (;;) s = s.concat('c').padEnd(s.length * 2) }",
        "function handler() { const a = []; for (let i = 0; ; i++) a.push({ i, next: a[i - 1], name: 'n' + i }) }",
        "function handler() { const m = new Map(); for (let i = 0; ; i++) m.set(i, [i]) }",
        "function handler() { return { n: new Uint8Array(1 << 28).length } }",
        "function handler() { const a = []; for (;;) a.push(new ArrayBuffer(1 << 16)) }",
        "function handler() { const row = new Array(3e4).fill('0123456789'); return { n: JSON.stringify(new Array(100).fill(row)).length } }",
        "function handler() { return { a: 'x'.repeat(5e6) + 'y' } }",
        "function handler() { return new Array(1e5).fill([]) }",
        "function handler() { const n = 1n << 90000n, a = []; for (let i = 0n; ; i++) a.push(n + i) }",
        "function handler() { const f = (n) => [n, ...f(n + 1)]; const a = []; for (;;) try { a.push(f(0)) } catch (e) { a.push(e, new Array(1e5).fill(e)) } }",
        "const all = []; for (;;) all.push(/(a+)+b/g.exec('aaaab'), Symbol('s'), () => all); function handler() { return 1 }",
        "function handler(i, { Big }) { const a = []; for (let n = new Big(1); ; n = n.plus('0.1')) a.push(n) }",
    ];

    fn draw() -> Draw {
        let minute = Duration::from_secs(60);
        Draw { clock: None, limit_ms: monotonic_ms() + 60_000, limit_cpu: cpu_time() + minute }
    }

    /// What a node of an evaluation gets, after its answer was counted.
    fn node(source: &str) -> (Result<String, String>, bool) {
        let memory = Memory::new(LIMIT);
        let answer = realm::answer(source, "{}", "f", &draw(), &memory);
        let answer = answer.and_then(|json| memory.answer(&json).map(|()| json));
        (answer, memory.exceeded())
    }

    #[test]
    fn who_takes_too_much_is_ended_and_the_thread_goes_on() {
        let good = "function handler() { return { n: 'x'.repeat(1e6).length } }";
        for source in HUNGRY {
            for _ in 0..2 {
                assert_eq!(node(source), (Err(OUT_OF_MEMORY.to_owned()), true), "{source}");
                assert!(spare::unfreed_bytes() < 2 << 20, "what is large does not wait: {source}");
                assert_eq!(node(good), (Ok(r#"{"output":{"n":1000000},"log":[]}"#.to_owned()), false));
                while spare::tidy(1) {}
            }
        }
    }

    #[test]
    fn that_memory_was_refused_cannot_be_caught() {
        for source in [
            "function handler() { try { 'x'.repeat(2 ** 28) } catch {} return { a: 1 } }",
            "function handler() { try { new ArrayBuffer(2 ** 28) } catch { return { a: 1 } } finally { return { a: 2 } } }",
            "try { 'x'.repeat(2 ** 28) } catch {} function handler() { return { a: 1 } }",
            "function handler() { for (;;) try { 'x'.repeat(2 ** 28) } catch {} }",
            "function handler() { return { toJSON() { try { 'x'.repeat(2 ** 28) } catch {} return { a: 1 } } } }",
        ] {
            assert_eq!(node(source), (Err(OUT_OF_MEMORY.to_owned()), true), "{source}");
        }
    }

    #[test]
    fn all_memory_of_a_realm_is_given_back_wherever_it_ended() {
        let mixed = "function handler(i) { const a = []; for (let k = 0; k < 300; k++) a.push({ k, t: 'x'.repeat(k * 9) + k,
            f: () => a, m: new Map([[k, [k]]]), r: /(x+)y/.exec('xxy'), b: new Uint8Array(k * 70), g: (function* () { yield a })().next() });
            try { JSON.parse(JSON.stringify(a.map((o) => o.t))) } catch (e) { a.push(e) }
            return { n: a.length, s: a.map((o) => o.t).sort().join('').split('x').length } }";
        let bytes_of = |source: &str, limit: u64| {
            let realm = Realm::with_libraries().expect("a realm");
            let count = realm.heap.clone();
            let done = realm.run(Some(source), r#"{"n":1}"#, "f", &draw(), limit);
            assert_eq!(done.is_err(), count.exceeded(), "{done:?}");
            let (used, exceeded) = (count.used(), count.exceeded());
            drop(realm);
            assert_eq!(count.used(), 0, "of {used}, with {limit}, after {source}");
            exceeded
        };
        for source in HUNGRY {
            bytes_of(source, LIMIT);
        }
        let (blank, enough) = (Realm::with_libraries().expect("a realm").bytes() as u64, 16 << 20);
        assert!(!bytes_of(mixed, enough));
        let ended = (0..300).filter(|step| bytes_of(mixed, blank + step * 7_001)).count();
        assert!(ended > 100, "{ended}");
    }

    #[test]
    fn an_answer_weighs_its_text_and_its_values() {
        assert_eq!(weight("7"), 1 + VALUE);
        assert_eq!(weight("[1,2,3]"), 7 + 4 * VALUE + CONTAINER);
        assert_eq!(weight(r#"{"a":[{}],"b":"x,[{\",{"}"#), 25 + 5 * VALUE + 3 * CONTAINER);
    }

    #[test]
    fn answers_add_up() {
        let memory = Memory::new(3 * weight("[1]"));
        for left in (0..3).rev() {
            assert_eq!(memory.answer("[1]"), Ok(()));
            assert_eq!(memory.left(), left * weight("[1]"));
        }
        assert!(!memory.exceeded());
        assert_eq!(memory.answer("1"), Err(OUT_OF_MEMORY.to_owned()));
        assert!(memory.exceeded());
    }
}
