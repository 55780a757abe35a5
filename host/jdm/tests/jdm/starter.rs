//! The starter rules, as operators get them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Float64Array, Int64Array, RecordBatch};
use weir_model::Kind;
use weir_model::port::RuleCall;

use crate::support::*;

const STARTERS: [&str; 5] = ["1-1", "1-2", "2", "3-1", "3-2"];

fn folder(names: &[&str]) -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rules/network-cep");
    names
        .iter()
        .flat_map(|name| [format!("{name}.json"), format!("{name}.cases.json")])
        .map(|file| {
            (format!("rules/{file}"), std::fs::read_to_string(format!("{folder}/{file}")).expect("a starter rule"))
        })
        .collect()
}

fn network_cep() -> Arc<dyn weir_model::port::Rules> {
    let files = folder(&STARTERS);
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    load(&ruleset(&files))
}

#[test]
fn rule_1_1_answers_the_pattern_to_an_empty_input() {
    let answer = network_cep().evaluate("1-1", &want(&[("pattern", Kind::Text)]), context()).expect("an answer");
    assert_eq!(texts(&answer, 0), ["%sapDHCPLseStatePopulateErr%"]);
    assert_eq!(answer.rows.schema().field(0).name(), "pattern");
}

#[test]
fn rule_1_2_judges_a_row_at_a_time() {
    let counts = Arc::new(Int64Array::from(vec![Some(50), Some(10), Some(2), None]));
    let rows = RecordBatch::try_from_iter([("err_cnt", counts as _)]).expect("rows");
    let call = each(rows, &[("should_alarm", Kind::Boolean), ("severity", Kind::Text), ("alarm_reason", Kind::Text)]);
    let answer = network_cep().evaluate("1-2", &call, context()).expect("an answer");
    let alarms: Vec<_> = answer.rows.column(0).as_boolean().iter().collect();
    assert_eq!(alarms, [Some(true), Some(true), Some(false), Some(false)]);
    assert_eq!(texts(&answer, 1), ["Critical", "Warning", "Info", "Info"]);
    assert_eq!(texts(&answer, 2), ["Threshold >= 50", "Threshold >= 10", "Below threshold", "Below threshold"]);
    assert!(answer.failed.is_empty());
}

#[test]
fn rule_2_gets_an_array_and_returns_rows_stamped_with_the_batch_time() {
    let text = |values: &[&str]| Arc::new(arrow_array::StringArray::from(values.to_vec())) as arrow_array::ArrayRef;
    let rows = RecordBatch::try_from_iter([
        ("router_ip", text(&["203.0.113.90"; 5])),
        ("local_device_name", text(&["Router-A-1", "Router-A-1", "Router-A-2", "Router-A-3", "Router-A-3"])),
        ("anomaly_flag", text(&["high_anomaly", "high_anomaly", "high_anomaly", "low_anomaly", "low_anomaly"])),
    ])
    .expect("rows");
    let rules = network_cep();
    let call = RuleCall {
        rows: vec![("anomaly_results".to_owned(), rows)],
        unnest: Some("alarms".to_owned()),
        ..want(&[
            ("created_at", Kind::Timestamp),
            ("local_device_name", Kind::Text),
            ("high_count", Kind::Int64),
            ("low_count", Kind::Int64),
        ])
    };
    let answer = rules.evaluate("2", &call, context()).expect("an answer");
    assert_eq!(texts(&answer, 1), ["Router-A-1", "Router-A-3"]);
    let counts = |column: usize| answer.rows.column(column).as_primitive::<Int64Type>().values().to_vec();
    assert_eq!((counts(2), counts(3)), (vec![2, 0], vec![0, 2]));
    let stamps = answer.rows.column(0).as_primitive::<arrow_array::types::TimestampMicrosecondType>();
    assert!(stamps.iter().all(|at| at == Some(context().time.micros())));

    let none = RuleCall { rows: Vec::new(), ..call };
    let none = rules.evaluate("2", &none, context()).expect("an answer");
    assert_eq!(none.rows.num_rows(), 0, "no rows, no alarms");
}

#[test]
fn rule_3_1_answers_the_interval_and_3_2_judges_ratios() {
    let rules = network_cep();
    let answer = rules.evaluate("3-1", &want(&[("interval", Kind::Int64)]), context()).expect("an answer");
    assert_eq!(answer.rows.column(0).as_primitive::<Int64Type>().values(), &[3]);

    let ratios = Float64Array::from(vec![Some(80.000000081), Some(0.2), Some(0.19999), Some(-1.0), None]);
    let rows = RecordBatch::try_from_iter_with_nullable([("diff_ratio", Arc::new(ratios) as _, true)]).expect("rows");
    let answer = rules.evaluate("3-2", &each(rows, &[("is_alarm", Kind::Boolean)]), context()).expect("an answer");
    let alarms: Vec<_> = answer.rows.column(0).as_boolean().iter().collect();
    assert_eq!(alarms, [Some(true), Some(true), Some(false), Some(false), Some(false)]);
}

#[test]
fn names_come_with_the_digests_of_their_files() {
    let rules = network_cep();
    let names: Vec<String> = rules.names().keys().map(ToString::to_string).collect();
    assert_eq!(names, STARTERS);
    let files = folder(&["1-1"]);
    assert_eq!(rules.names()["1-1"], weir_model::Digest::of(files[0].1.as_bytes()));
    let unknown = rules.evaluate("9-9", &RuleCall::default(), context()).expect_err("not there");
    assert_eq!(unknown, weir_model::DataError::Undeclared.into());
}
