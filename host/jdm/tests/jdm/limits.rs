//! Limits, each obeyed and violated.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use serde_json::json;
use weir_model::port::RuleCall;
use weir_model::{FaultKind, Kind, Retry, Span, Whose};

use crate::support::*;

fn numbers(n: i64) -> RecordBatch {
    let column = Arc::new(Int64Array::from_iter_values(0..n)) as ArrayRef;
    RecordBatch::try_from_iter([("n", column)]).expect("rows")
}

#[test]
fn rule_rows_bounds_the_evaluations_of_a_call() {
    let mut ruleset = one(&graph(&[]));
    ruleset.limits.rule_rows = 3;
    let rules = load(&ruleset);
    assert_eq!(ask_rule(&rules, &each(numbers(3), &[("n", Kind::Int64)])).rows.num_rows(), 3);
    let fault = fault(&rules, &each(numbers(4), &[("n", Kind::Int64)]));
    assert_eq!((fault.whose, fault.retry, fault.kind), (Whose::Tenant, Retry::Never, FaultKind::RuleLimit));
    assert_eq!(fault.message, "a call asks for 4 evaluations, and rule_rows is 3");
    assert_eq!((fault.file.as_deref(), fault.field.as_deref()), (Some("rules/r.json"), Some("rule_rows")));
    assert!(fault.fix.is_some());
}

#[test]
fn rule_rows_bounds_the_rows_of_an_answer() {
    let mut ruleset =
        one(&graph(&[function("function handler(i) { return { list: new Array(i.len || 0).fill({ k: 1 }) } }")]));
    ruleset.limits.rule_rows = 3;
    let rules = load(&ruleset);
    let call = |len: i64| RuleCall {
        values: vec![("len".to_owned(), weir_model::Scalar::Int64(len))],
        unnest: Some("list".to_owned()),
        ..want(&[("k", Kind::Int64)])
    };
    assert_eq!(ask_rule(&rules, &call(3)).rows.num_rows(), 3);
    let fault = fault(&rules, &call(4));
    assert_eq!((fault.kind, fault.field.as_deref()), (FaultKind::RuleLimit, Some("rule_rows")));
}

#[test]
fn a_function_node_that_does_not_end_is_the_tenants_fault_and_the_next_call_is_answered() {
    for arguments in ["i", "i, { Big }"] {
        let body = "while (i.n === 1) { try { while (true) {} } catch (e) {} } return { n: i.n }";
        ends(&format!("function handler({arguments}) {{ {body} }}"), Span::millis(600), |message| {
            message.starts_with("an evaluation took 6") && message.ends_with(" of CPU, and rule_time is 600ms")
        });
    }
}

/// The evaluation of the second row does not end by itself.
fn ends(source: &str, rule_time: Span, right: impl Fn(&str) -> bool) {
    let mut ruleset = one(&graph(&[function(source)]));
    ruleset.limits.rule_time = rule_time;
    let rules = load(&ruleset);
    assert_eq!(ask_rule(&rules, &each(numbers(1), &[("n", Kind::Int64)])).rows.num_rows(), 1);
    let fault = fault(&rules, &each(numbers(2), &[("n", Kind::Int64)]));
    assert_eq!((fault.kind, fault.field.as_deref()), (FaultKind::RuleLimit, Some("rule_time")));
    // A machine that is too busy to give it CPU is not the tenant's fault.
    let message = &fault.message;
    match (fault.whose, fault.retry) {
        (Whose::Tenant, Retry::Never) => assert!(right(message), "{message}"),
        (Whose::Host, Retry::Later) => {
            assert!(message.ends_with("the machine is too busy"), "{message}");
        }
        other => panic!("{other:?}: {message}"),
    }
    assert_eq!(ask_rule(&rules, &each(numbers(1), &[("n", Kind::Int64)])).rows.num_rows(), 1);
}

/// Spends some CPU.
const BUSY: &str = "function handler(i) { let x = 0; for (let k = 0; k < 3e5; k++) x += k % 7; return { x } }";

#[test]
fn rule_time_bounds_the_cpu_of_an_evaluation() {
    let mut ruleset = one(&graph(&[function(BUSY)]));
    ruleset.limits.rule_time = Span::secs(20);
    assert_eq!(whole(&load(&ruleset), &RuleCall::default()), json!({"x": 899_997}));
    ruleset.limits.rule_time = Span::millis(1);
    // Salted, so that the result of the first is not remembered.
    let call =
        RuleCall { values: vec![("salt".to_owned(), weir_model::Scalar::Int64(1))], ..want(&[("x", Kind::Int64)]) };
    let fault = fault(&load(&ruleset), &call);
    assert_eq!(
        (fault.whose, fault.kind, fault.field.as_deref()),
        (Whose::Tenant, FaultKind::RuleLimit, Some("rule_time"))
    );
    assert!(fault.message.ends_with("of CPU, and rule_time is 1ms"), "{}", fault.message);
}

#[test]
fn rule_time_holds_over_many_function_nodes() {
    let inner =
        graph(&[function("function handler(i) { let x = 0; for (let k = 0; k < 3e5; k++) x += k; return { x } }")])
            .to_string();
    let mut node = ask("inner");
    node["content"]["executionMode"] = json!("loop");
    node["content"]["inputField"] = json!("map([0..999], {n: #})");
    node["content"]["outputPath"] = json!("all");
    let mut ruleset = ruleset(&[("rules/r.json", &graph(&[node]).to_string()), ("rules/inner.json", &inner)]);
    ruleset.limits.rule_time = Span::millis(30);
    let rules = load(&ruleset);
    let began = std::time::Instant::now();
    let fault = fault(&rules, &want(&[]));
    assert_eq!((fault.kind, fault.field.as_deref()), (FaultKind::RuleLimit, Some("rule_time")));
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "the nodes after the limit do not run");
}

/// A text of as many characters as the call says, and of how many it is.
const REPEAT: &str = "function handler(i) { let n = 0; try { n = 'x'.repeat(i.n).length } catch {} return { n } }";

#[test]
fn rule_memory_bytes_bounds_what_javascript_allocates_whatever_it_catches() {
    let mut ruleset = one(&graph(&[function(REPEAT)]));
    ruleset.limits.rule_memory_bytes = 4 << 20;
    let rules = load(&ruleset);
    let call = |n: i64| RuleCall { values: vec![("n".to_owned(), weir_model::Scalar::Int64(n))], ..want(&[]) };
    for _ in 0..2 {
        assert_eq!(whole(&rules, &call(3_000_000)), json!({"n": 3_000_000}));
        for n in [5_000_000, 1 << 28] {
            let fault = fault(&rules, &call(n));
            assert_eq!((fault.whose, fault.retry, fault.kind), (Whose::Tenant, Retry::Never, FaultKind::RuleLimit));
            assert_eq!(fault.message, "Fn: needs more memory than rule_memory_bytes, which is 4194304");
            assert_eq!(
                (fault.file.as_deref(), fault.field.as_deref()),
                (Some("rules/r.json"), Some("rule_memory_bytes"))
            );
            assert!(fault.fix.is_some_and(|fix| fix.contains("rule_memory_bytes")));
        }
    }
    ruleset.limits.rule_memory_bytes = 8 << 20;
    assert_eq!(whole(&load(&ruleset), &call(5_000_000)), json!({"n": 5_000_000}), "the fault was not remembered");
}

#[test]
fn rule_memory_bytes_holds_over_all_function_nodes_of_an_evaluation() {
    let text = graph(&[function("function handler() { return { s: 'x'.repeat(1e5) } }")]).to_string();
    let many = |n: usize| {
        let mut node = ask("text");
        node["content"]["executionMode"] = json!("loop");
        node["content"]["inputField"] = json!(format!("map([1..{n}], {{n: #}})"));
        node["content"]["outputPath"] = json!("all");
        let mut ruleset = ruleset(&[
            ("rules/r.json", &graph(&[node, expressions(&[("n", "len(all)")])]).to_string()),
            ("rules/text.json", &text),
        ]);
        ruleset.limits.rule_memory_bytes = 2 << 20;
        load(&ruleset)
    };
    assert_eq!(whole(&many(10), &RuleCall::default()), json!({"n": 10}));
    let fault = fault(&many(30), &want(&[]));
    assert_eq!((fault.whose, fault.field.as_deref()), (Whose::Tenant, Some("rule_memory_bytes")));
}

#[test]
fn what_a_function_node_does_for_want_of_a_clock_is_no_fault() {
    let source = "function handler() { let t; try { t = Date.now() } catch { t = 'x'.repeat(2 ** 28) } return { t } }";
    let early = "let t; try { t = Date.now() } catch { t = 'x'.repeat(2 ** 28) } function handler() { return { t } }";
    for source in [source, early] {
        let rules = load(&one(&graph(&[function(source)])));
        for _ in 0..2 {
            assert_eq!(whole(&rules, &RuleCall::default()), json!({"t": 1_769_860_800_250_i64}), "{source}");
        }
    }
}

#[test]
fn a_call_that_takes_longer_than_deadline_is_the_hosts_fault() {
    let mut ruleset = one(&graph(&[function(BUSY)]));
    ruleset.limits.rule_time = Span::secs(20);
    ruleset.limits.deadline = Span::millis(1);
    let fault = fault(&load(&ruleset), &each(numbers(1_000), &[("x", Kind::Int64)]));
    assert_eq!((fault.whose, fault.kind), (Whose::Host, FaultKind::Deadline));
}

#[test]
fn an_endless_recursion_fails_its_evaluation_only() {
    let rules = load(&one(&graph(&[function("function handler(i) { return handler(i) }")])));
    assert_eq!(failed(&rules, &RuleCall::default()), "Fn: RangeError: Maximum call stack size exceeded (near line 1)");
}

#[test]
fn a_result_that_unfolds_without_end_fails_its_evaluation() {
    let doubled: Vec<(String, String)> = (1..22).map(|i| (format!("a{i}"), format!("[a{0}, a{0}]", i - 1))).collect();
    // Each node doubles what the one before it made, by reference.
    let nodes: Vec<_> = doubled
        .iter()
        .map(|(key, value)| {
            let mut node = expressions(&[(key, value)]);
            node["id"] = json!(key);
            node["content"]["passThrough"] = json!(true);
            node
        })
        .collect();
    let rules = load(&one(&graph(&nodes)));
    let call = RuleCall { values: vec![("a0".to_owned(), weir_model::Scalar::Int64(1))], ..RuleCall::default() };
    assert_eq!(failed(&rules, &call), "the result holds more than 1000000 values");
}
