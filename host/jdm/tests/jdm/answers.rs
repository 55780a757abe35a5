//! From results to columns.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::DataType;
use weir_model::Kind;
use weir_model::columns::output_type;
use weir_model::port::{RuleCall, Rules};

use crate::support::*;

/// A rule that returns its input.
fn echo() -> Arc<dyn Rules> {
    load(&one(&graph(&[])))
}

/// A rule that returns this JavaScript value.
fn returns(value: &str) -> Arc<dyn Rules> {
    load(&one(&graph(&[function(&format!("function handler(i) {{ return {value} }}"))])))
}

fn why(rules: &Arc<dyn Rules>, path: &str, kind: Kind) -> String {
    failed(rules, &want(&[(path, kind)]))
}

#[test]
fn every_kind_becomes_a_column_of_its_type() {
    let rules = returns(
        "{ b: true, i: 5.0, f: 0.25, d: 12.345678901, t: 'x', y: 'AP8=', at: '2026-01-31T12:00:00.250Z', day: '2026-01-31', j: { a: [1] } }",
    );
    let columns = [
        ("b", Kind::Boolean),
        ("i", Kind::Int64),
        ("f", Kind::Float64),
        ("d", Kind::Decimal),
        ("t", Kind::Text),
        ("y", Kind::Bytes),
        ("at", Kind::Timestamp),
        ("day", Kind::Date),
        ("j", Kind::Json),
    ];
    let rows = ask_rule(&rules, &want(&columns)).rows;
    for (i, (path, kind)) in columns.iter().enumerate() {
        let schema = rows.schema();
        let field = schema.field(i);
        assert_eq!((field.name().as_str(), field.data_type(), field.is_nullable()), (*path, &output_type(*kind), true));
        assert!(!rows.column(i).is_null(0), "{path}");
    }
    assert!(rows.column(0).as_boolean().value(0));
    assert_eq!(rows.column(1).as_primitive::<Int64Type>().value(0), 5);
    assert_eq!(rows.column(2).as_primitive::<Float64Type>().value(0), 0.25);
    assert_eq!(rows.column(3).data_type(), &DataType::Decimal128(38, 9));
    assert_eq!(rows.column(3).as_primitive::<Decimal128Type>().value(0), 12_345_678_901);
    assert_eq!(rows.column(4).as_string::<i32>().value(0), "x");
    assert_eq!(rows.column(5).as_binary::<i32>().value(0), [0, 255]);
    assert_eq!(rows.column(6).as_primitive::<TimestampMicrosecondType>().value(0), context().time.micros());
    assert_eq!(rows.column(7).as_primitive::<Date32Type>().value(0), 20_484);
    assert_eq!(rows.column(8).as_string::<i32>().value(0), "{\"a\":[1]}");
}

#[test]
fn paths_lead_into_objects_and_arrays_and_the_empty_one_is_the_whole() {
    let rules = returns("{ a: { b: [{ c: 'x' }, { c: 'y' }] }, n: null }");
    let call = want(&[
        ("a.b.1.c", Kind::Text),
        ("a.b.2.c", Kind::Text),
        ("a.x.y", Kind::Text),
        ("n", Kind::Text),
        ("", Kind::Json),
    ]);
    let answer = ask_rule(&rules, &call);
    let all: Vec<String> = (0..5).map(|i| texts(&answer, i)[0].clone()).collect();
    assert_eq!(all, ["y", "-", "-", "-", r#"{"a":{"b":[{"c":"x"},{"c":"y"}]}}"#]);
}

#[test]
fn a_wrong_kind_fails_the_evaluation_with_path_expected_and_got() {
    for (value, kind, reason) in [
        ("5.5", Kind::Int64, "v: expected int64 (a whole number), got number 5.5"),
        ("'5'", Kind::Int64, "v: expected int64 (a whole number), got text \"5\""),
        ("1e19", Kind::Int64, "v: expected int64 (a whole number), got number 10000000000000000000"),
        ("'1.5'", Kind::Float64, "v: expected float64 (a number), got text \"1.5\""),
        ("true", Kind::Decimal, "v: expected decimal (a number), got boolean true"),
        ("1", Kind::Boolean, "v: expected boolean, got number 1"),
        ("1", Kind::Text, "v: expected text, got number 1"),
        ("{}", Kind::Text, "v: expected text, got object {}"),
        ("'!'", Kind::Bytes, "v: expected bytes (a base64 text), got text \"!\""),
        (
            "'soon'",
            Kind::Timestamp,
            "v: expected timestamp (a text like 2026-01-31T12:00:00Z, or milliseconds since 1970), got text \"soon\"",
        ),
        (
            "'2026-01-31T12:00:00Z'",
            Kind::Date,
            "v: expected date (a text like 2026-01-31), got text \"2026-01-31T12:00:00Z\"",
        ),
    ] {
        assert_eq!(why(&returns(&format!("{{ v: {value} }}")), "v", kind), reason);
    }
    assert_eq!(why(&returns("{}"), "", Kind::Text), "the result: expected text, got object {}");
}

#[test]
fn timestamps_are_texts_with_or_without_a_zone_or_milliseconds() {
    for (value, us) in [
        ("'2026-01-31T12:00:00.000001Z'", 1_769_860_800_000_001),
        ("'2026-01-31T21:00:00+09:00'", 1_769_860_800_000_000),
        ("'2026-01-31T12:00:00'", 1_769_860_800_000_000),
        ("'2026-01-31 12:00:00.5'", 1_769_860_800_500_000),
        ("1769860800250", 1_769_860_800_250_000),
        ("Date.now()", 1_769_860_800_250_000),
    ] {
        let answer = ask_rule(&returns(&format!("{{ v: {value} }}")), &want(&[("v", Kind::Timestamp)]));
        assert_eq!(answer.rows.column(0).as_primitive::<TimestampMicrosecondType>().value(0), us, "{value}");
    }
}

#[test]
fn decimals_are_exact_and_round_half_away_from_zero_at_nine_digits() {
    let decimal = |rules: &Arc<dyn Rules>| {
        ask_rule(rules, &want(&[("v", Kind::Decimal)])).rows.column(0).as_primitive::<Decimal128Type>().value(0)
    };
    let expression = |source: &str| load(&one(&graph(&[expressions(&[("v", source)])])));
    assert_eq!(decimal(&expression("1234567890123456789.123456789")), 1_234_567_890_123_456_789_123_456_789);
    assert_eq!(decimal(&expression("0.0000000005")), 1);
    assert_eq!(decimal(&expression("-0.0000000005")), -1);
    assert_eq!(decimal(&expression("0.00000000049")), 0);
    assert_eq!(
        decimal(&expression("79228162514264337593543950335")),
        79_228_162_514_264_337_593_543_950_335_000_000_000
    );
    let big = load(&one(&graph(&[function(
        "function handler(i, { Big }) { return { v: new Big('0.1').plus('1234567890123456789') } }",
    )])));
    assert_eq!(decimal(&big), 1_234_567_890_123_456_789_100_000_000, "big.js returns texts");
}

#[test]
fn with_each_row_i_answers_row_i_and_a_failed_one_is_null() {
    let rules = load(&one(&graph(&[function(
        "function handler(i) { if (i.n === 2) throw new Error('two'); return { n: i.n, s: i.n === 3 ? 3 : 'x' } }",
    )])));
    let rows =
        RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(vec![1, 2, 3, 4])) as ArrayRef)]).expect("rows");
    let answer = ask_rule(&rules, &each(rows, &[("n", Kind::Int64), ("s", Kind::Text)]));
    let n: Vec<_> = answer.rows.column(0).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(n, [Some(1), None, None, Some(4)]);
    assert_eq!(texts(&answer, 1), ["x", "-", "-", "x"]);
    let failed: Vec<(u32, &str)> = answer.failed.iter().map(|(row, why)| (*row, why.as_str())).collect();
    assert_eq!(failed, [(1, "Fn: Error: two (near line 1)"), (2, "s: expected text, got number 3")]);
}

#[test]
fn unnest_makes_a_row_of_each_element() {
    let rules = load(&one(&graph(&[function(
        "function handler(i) { return { a: { list: Array.from({ length: i.n }, (_, k) => ({ k, bad: i.n === 3 && k === 2 ? 'x' : 1 })) } } }",
    )])));
    let rows =
        RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(vec![2, 0, 3, 1])) as ArrayRef)]).expect("rows");
    let call =
        RuleCall { unnest: Some("a.list".to_owned()), ..each(rows, &[("k", Kind::Int64), ("bad", Kind::Int64)]) };
    let answer = ask_rule(&rules, &call);
    let k: Vec<_> = answer.rows.column(0).as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(k, [0, 1, 0], "a failed evaluation leaves no row");
    assert_eq!(answer.failed, [(2, "a.list[2].bad: expected int64 (a whole number), got text \"x\"".to_owned())]);
}

#[test]
fn unnest_of_what_is_missing_has_no_rows_and_of_what_is_no_array_fails() {
    let call = |path: &str| RuleCall { unnest: Some(path.to_owned()), ..want(&[("k", Kind::Int64)]) };
    let rules = returns("{ none: null, text: 'x', list: [{ k: 1 }, null, 5] }");
    assert_eq!(ask_rule(&rules, &call("nowhere")).rows.num_rows(), 0);
    assert_eq!(ask_rule(&rules, &call("none")).rows.num_rows(), 0);
    assert_eq!(failed(&rules, &call("text")), "text: expected an array, got text \"x\"");
    let list = ask_rule(&rules, &call("list"));
    let k: Vec<_> = list.rows.column(0).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(k, [Some(1), None, None]);
}

#[test]
fn no_rows_and_no_columns_are_answers_too() {
    let none =
        RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(Vec::<i64>::new())) as ArrayRef)]).expect("rows");
    assert_eq!(ask_rule(&echo(), &each(none, &[("n", Kind::Int64)])).rows.num_rows(), 0);
    let two = RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef)]).expect("rows");
    let answer = ask_rule(&echo(), &each(two, &[]));
    assert_eq!((answer.rows.num_rows(), answer.rows.num_columns()), (2, 0));
}

#[test]
fn a_table_without_a_hit_answers_nulls() {
    let rules = load(&one(&graph(&[table(&["n"], &["out"], &[&["> 100", "1"]])])));
    let rows = RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]).expect("rows");
    let answer = ask_rule(&rules, &each(rows, &[("out", Kind::Int64)]));
    assert!(answer.rows.column(0).is_null(0) && answer.failed.is_empty());
}

#[test]
fn cells_of_tables_are_json_like_values_and_quoted_texts_match() {
    let rules = load(&one(&graph(&[table(
        &["tier"],
        &["yes", "text", "number", "list", "nothing"],
        &[
            &["\"gold\"", "true", "\"Critical\"", "42", "[1, 2]", "null"],
            &["\"silver\", \"bronze\"", "false", "\"Info\"", "-0.5", "[]", ""],
        ],
    )])));
    let rows =
        RecordBatch::try_from_iter([("tier", Arc::new(StringArray::from(vec!["gold", "bronze", "tin"])) as ArrayRef)])
            .expect("rows");
    let answer = ask_rule(&rules, &each(rows, &[("", Kind::Json)]));
    assert_eq!(
        texts(&answer, 0),
        [
            r#"{"yes":true,"text":"Critical","number":42,"list":[1,2]}"#,
            r#"{"yes":false,"text":"Info","number":-0.5,"list":[]}"#,
            "{}"
        ]
    );
}

#[test]
fn reasons_are_cut() {
    let rules = returns("(() => { throw 'x'.repeat(100000) })()");
    assert_eq!(why(&rules, "", Kind::Json).chars().count(), 503);
}
