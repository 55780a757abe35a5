//! Sample cases beside a rule: what the rule must answer to which input, tried whenever the rule is loaded.
//!
//! `rules/NAME.cases.json` beside `rules/NAME.json` is a list of
//! `{"name": "...", "input": {...}, "expected": {...}, "time": "2026-01-31T12:00:00Z"}`; `time` may be left out.
//! Times of `input` stand there as the rule gets them: texts, with the offset of the tenant's `display_timezone`.

use std::sync::Arc;
use std::time::Instant;

use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::Value as Json;
use tokio::runtime::Runtime;
use weir_model::port::RuleContext;
use weir_model::{Problem, Time, Zone};

use crate::input;
use crate::program::{Failure, Memo, Program};
use crate::shape;
use crate::value::{Value, shorten};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    input: Json,
    /// A part of the result: fields that are not listed do not matter.
    expected: Json,
    /// T.
    #[serde(default)]
    time: Time,
}

/// The file with the cases of a rule.
pub(crate) fn file_of(rule: &str) -> String {
    format!("{}.cases.json", rule.strip_suffix(".json").unwrap_or(rule))
}

/// Runs the cases of a rule and answers those that do not hold.
pub(crate) fn run(
    file: &str,
    bytes: &[u8],
    program: &Arc<Program>,
    runtime: &Runtime,
    memo: &Memo,
    until: Instant,
) -> Vec<Problem> {
    const FIX: &str = "correct the rule, or what the case expects of it";
    let cases: Vec<Case> = match shape::read(file, bytes) {
        Ok(cases) => cases,
        Err(problem) => return vec![problem],
    };
    let mut problems = Vec::new();
    for case in cases {
        if Instant::now() > until {
            let late = "loading the rules and running their cases takes longer than compile_time";
            problems.push(Problem::new(file, late).field(&case.name).fix("keep fewer or cheaper cases"));
            break;
        }
        let context = RuleContext { time: case.time, seed: [0; 32], zone: Zone::UTC };
        let got = input::json(&case.input)
            .map_err(Failure::Evaluation)
            .and_then(|input| program.evaluate(input, 0, context, runtime, memo));
        let expected = shorten(&case.expected.to_string(), 200);
        let message = match got {
            Ok(got) if holds(&case.expected, Some(&got)) => continue,
            Ok(got) => format!("expected {expected}, got {}", shorten(&got.to_json(), 200)),
            Err(Failure::Evaluation(reason)) => {
                format!("expected {expected}, but it failed: {}", shorten(&reason, 200))
            }
            Err(Failure::Fault(fault) | Failure::Memory(fault)) => {
                format!("expected {expected}, but: {}", fault.message)
            }
        };
        problems.push(Problem::new(file, message).field(&case.name).fix(FIX));
    }
    problems
}

/// Whether the expected value is part of the one that came. Null is what is missing, numbers are equal as numbers.
fn holds(expected: &Json, got: Option<&Value>) -> bool {
    match (expected, got) {
        (Json::Null, None | Some(Value::Null)) => true,
        (Json::Bool(a), Some(Value::Bool(b))) => a == b,
        (Json::String(a), Some(Value::Text(b))) => a == b,
        (Json::Number(a), Some(Value::Number(b))) => a
            .to_string()
            .parse::<Decimal>()
            .or_else(|_| Decimal::from_scientific(&a.to_string()))
            .is_ok_and(|a| a == *b),
        (Json::Array(a), Some(Value::Array(b))) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| holds(a, Some(b)))
        }
        (Json::Object(a), Some(Value::Object(b))) => a.iter().all(|(name, a)| {
            let found = b.iter().find(|(n, _)| n == name).map(|(_, b)| b);
            holds(a, found)
        }),
        _ => false,
    }
}
