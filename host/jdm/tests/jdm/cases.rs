//! Sample cases beside a rule.

use serde_json::{Value, json};

use crate::support::*;

fn with_cases(rule: &Value, cases: &Value) -> weir_model::Ruleset {
    ruleset(&[("rules/r.json", &rule.to_string()), ("rules/r.cases.json", &cases.to_string())])
}

fn thresholds() -> Value {
    graph(&[table(&["n"], &["level", "why"], &[&[">= 10", "\"high\"", "\"n >= 10\""], &["", "\"low\"", "null"]])])
}

#[test]
fn cases_that_hold_are_silent_and_a_part_is_enough() {
    load(&with_cases(
        &thresholds(),
        &json!([
            {"name": "all of it", "input": {"n": 10}, "expected": {"level": "high", "why": "n >= 10"}},
            {"name": "a part", "input": {"n": 10.5}, "expected": {"level": "high"}},
            {"name": "null is missing", "input": {"n": 1}, "expected": {"level": "low", "why": null, "other": null}},
            {"name": "nothing", "input": {}, "expected": {}},
        ]),
    ));
}

#[test]
fn a_case_that_does_not_hold_names_itself_expected_and_got() {
    let all = problems(&with_cases(
        &thresholds(),
        &json!([
            {"name": "good", "input": {"n": 10}, "expected": {"level": "high"}},
            {"name": "ten is low", "input": {"n": 10}, "expected": {"level": "low"}},
            {"name": "extra", "input": {"n": 1}, "expected": {"level": "low", "more": 1}},
        ]),
    ));
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!((all[0].file.as_str(), all[0].field.as_str()), ("rules/r.cases.json", "ten is low"));
    assert_eq!(all[0].message, r#"expected {"level":"low"}, got {"level":"high","why":"n >= 10"}"#);
    assert_eq!(all[1].field, "extra");
}

#[test]
fn numbers_are_compared_as_numbers_and_arrays_as_a_whole() {
    let rule = graph(&[expressions(&[("a", "[1, 2.50, 3]"), ("big", "9007199254740993"), ("f", "0.1 + 0.2")])]);
    let case = |expected: Value| json!([{"name": "c", "input": {}, "expected": expected}]);
    load(&with_cases(&rule, &case(json!({"a": [1.0, 2.5, 3], "big": 9_007_199_254_740_993_i64, "f": 0.3}))));
    for wrong in [
        json!({"a": [1, 2.5]}),
        json!({"a": [1, 2.5, 3, 4]}),
        json!({"big": 9_007_199_254_740_992_i64}),
        json!({"a": "1"}),
    ] {
        assert_eq!(problems(&with_cases(&rule, &case(wrong))).len(), 1);
    }
}

#[test]
fn a_case_may_set_the_time_and_a_failing_evaluation_is_told() {
    let rule = graph(&[function(
        "function handler(i) { if (i.bad) throw new Error('no'); return { at: new Date().toISOString() } }",
    )]);
    load(&with_cases(&rule, &json!([{"name": "c", "input": {}, "expected": {"at": T}, "time": T}])));
    load(&with_cases(&rule, &json!([{"name": "c", "input": {}, "expected": {"at": "1970-01-01T00:00:00.000Z"}}])));
    let all = problems(&with_cases(&rule, &json!([{"name": "c", "input": {"bad": true}, "expected": {"at": T}}])));
    assert_eq!(all[0].message, format!(r#"expected {{"at":"{T}"}}, but it failed: Fn: Error: no (near line 1)"#));
}

#[test]
fn a_broken_cases_file_is_a_problem_of_that_file() {
    let rule = thresholds().to_string();
    for (text, partial) in
        [("[{\"name\":", true), ("{}", false), ("[{\"name\": \"a\", \"input\": {}, \"expect\": {}}]", false)]
    {
        let all = problems(&ruleset(&[("rules/r.json", &rule), ("rules/r.cases.json", text)]));
        assert_eq!(
            (all.len(), all[0].file.as_str(), all[0].may_be_partial),
            (1, "rules/r.cases.json", partial),
            "{all:?}"
        );
    }
}

#[test]
fn cases_of_a_rule_that_is_only_asked_are_tried_too() {
    let inner = thresholds().to_string();
    let cases = json!([{"name": "wrong", "input": {"n": 1}, "expected": {"level": "high"}}]).to_string();
    let mut ruleset = ruleset(&[
        ("rules/r.json", &graph(&[ask("inner")]).to_string()),
        ("rules/inner.json", &inner),
        ("rules/inner.cases.json", &cases),
    ]);
    ruleset.manifest.rules.remove("inner");
    assert_eq!(problems(&ruleset)[0].field, "wrong");
}

#[test]
fn a_case_that_runs_into_a_limit_does_not_hold() {
    let rule = graph(&[function("function handler(i) { while (true) {} }")]);
    let all = problems(&with_cases(&rule, &json!([{"name": "endless", "input": {}, "expected": {}}])));
    let message = &all[0].message;
    assert!(message.starts_with("expected {}, but: "), "{message}");
}
