//! From columns to what a rule sees.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::*;
use arrow_buffer::i256;
use serde_json::{Value, json};
use weir_model::port::RuleCall;
use weir_model::{CallError, DataError, Kind, Scalar};

use crate::support::*;

/// What function nodes see of one row.
fn seen(columns: Vec<(&str, ArrayRef)>) -> Value {
    let rows = RecordBatch::try_from_iter(columns).expect("rows");
    let rules = load(&one(&graph(&[function("function handler(i) { delete i.$nodes; return { i } }")])));
    let answer = ask_rule(&rules, &each(rows, &[("i", Kind::Json)]));
    assert!(answer.failed.is_empty(), "{:?}", answer.failed);
    serde_json::from_str(&texts(&answer, 0)[0]).expect("JSON")
}

/// Why the evaluation of one row failed.
fn refused(column: ArrayRef) -> String {
    let rows = RecordBatch::try_from_iter([("x", column)]).expect("rows");
    let answer = ask_rule(&load(&one(&graph(&[]))), &each(rows, &[("x", Kind::Json)]));
    assert_eq!(texts(&answer, 0), ["-"]);
    answer.failed[0].1.clone()
}

fn decimals(values: Vec<i128>, precision: u8, scale: i8) -> ArrayRef {
    Arc::new(Decimal128Array::from(values).with_precision_and_scale(precision, scale).expect("fits"))
}

#[test]
fn a_decision_table_compares_every_kind_of_number_as_a_number() {
    let rules = load(&one(&graph(&[table(
        &["n"],
        &["level"],
        &[&[">= 50", "\"high\""], &["== 9.5", "\"nine\""], &["[10..20]", "\"mid\""], &["", "\"low\""]],
    )])));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int8Array::from(vec![50, 9, 10])),
        Arc::new(Int32Array::from(vec![100, 9, 10])),
        Arc::new(Int64Array::from(vec![i64::MAX, -9, 10])),
        Arc::new(UInt64Array::from(vec![u64::MAX, 9, 10])),
        Arc::new(Float64Array::from(vec![50.0, 9.0, 10.0])),
        Arc::new(Float32Array::from(vec![50.5, 9.25, 10.125])),
        // Texts would compare "100.00" below "50".
        decimals(vec![10_000, 900, 1_000], 10, 2),
        decimals(vec![50_000_000_000, 49_999_999_999 - 40_000_000_000, 10_000_000_001], 38, 9),
        Arc::new(
            Decimal256Array::from(vec![i256::from_i128(50), i256::from_i128(9), i256::from_i128(10)])
                .with_precision_and_scale(76, 0)
                .expect("fits"),
        ),
    ];
    for column in columns {
        let kind = column.data_type().clone();
        let rows = RecordBatch::try_from_iter([("n", column)]).expect("rows");
        let answer = ask_rule(&rules, &each(rows, &[("level", Kind::Text)]));
        assert_eq!(texts(&answer, 0), ["high", "low", "mid"], "{kind}");
    }
    let nine = each(
        RecordBatch::try_from_iter([("n", decimals(vec![9_500], 10, 3))]).expect("rows"),
        &[("level", Kind::Text)],
    );
    assert_eq!(texts(&ask_rule(&rules, &nine), 0), ["nine"]);
}

#[test]
fn a_table_that_is_large_enough_for_an_index_finds_decimals_too() {
    let rows: Vec<[String; 2]> = (0..20).map(|i| [format!("{i}.5"), format!("\"row {i}\"")]).collect();
    let rows: Vec<Vec<&str>> = rows.iter().map(|row| row.iter().map(String::as_str).collect()).collect();
    let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
    let rules = load(&one(&graph(&[table(&["n"], &["found"], &rows)])));
    let n = decimals(vec![7_500, 19_500, 7_501], 10, 3);
    let call = each(RecordBatch::try_from_iter([("n", n)]).expect("rows"), &[("found", Kind::Text)]);
    assert_eq!(texts(&ask_rule(&rules, &call), 0), ["row 7", "row 19", "-"]);
}

#[test]
fn large_integers_and_decimals_keep_all_their_digits() {
    let rules = load(&one(&graph(&[expressions(&[("same", "n"), ("more", "n + 1")])])));
    for (column, same, more) in [
        (Arc::new(Int64Array::from(vec![9_007_199_254_740_993])) as ArrayRef, "9007199254740993", "9007199254740994"),
        (Arc::new(UInt64Array::from(vec![u64::MAX])), "18446744073709551615", "18446744073709551616"),
        (
            decimals(vec![1_234_567_890_123_456_789_012_345_678], 38, 9),
            "1234567890123456789.012345678",
            "1234567890123456790.012345678",
        ),
        (decimals(vec![12], 4, -3), "12000", "12001"),
        (decimals(vec![1], 38, 38), "0", "1"),
    ] {
        let rows = RecordBatch::try_from_iter([("n", column)]).expect("rows");
        let answer = ask_rule(&rules, &each(rows, &[("same", Kind::Json), ("more", Kind::Json)]));
        assert_eq!((texts(&answer, 0)[0].as_str(), texts(&answer, 1)[0].as_str()), (same, more));
    }
}

#[test]
fn numbers_beyond_the_engine_fail_their_row_with_a_reason() {
    assert_eq!(refused(Arc::new(Float64Array::from(vec![f64::NAN]))), "x: NaN is no number in JSON");
    assert_eq!(refused(Arc::new(Float64Array::from(vec![f64::NEG_INFINITY]))), "x: -inf is no number in JSON");
    let large = refused(Arc::new(Float64Array::from(vec![1e29])));
    assert_eq!(large, "x: 100000000000000000000000000000 is beyond the 28 digits of a rule's numbers");
    assert!(refused(decimals(vec![10_i128.pow(37)], 38, 0)).ends_with("is beyond the 28 digits of a rule's numbers"));
}

#[test]
fn times_are_iso_texts_in_utc_with_fractions_only_where_there_are_any() {
    let us = |v: i64| Arc::new(TimestampMicrosecondArray::from(vec![v]).with_timezone("UTC")) as ArrayRef;
    let got = seen(vec![
        ("second", us(1_769_860_800_000_000)),
        ("milli", us(1_769_860_800_250_000)),
        ("micro", us(1_769_860_800_250_001)),
        ("before", us(-1)),
        ("zone", Arc::new(TimestampMillisecondArray::from(vec![1_769_860_800_000]).with_timezone("+09:00"))),
        ("plain", Arc::new(TimestampSecondArray::from(vec![0]))),
        ("nano", Arc::new(TimestampNanosecondArray::from(vec![1_999]))),
        ("date", Arc::new(Date32Array::from(vec![20_484]))),
        ("old", Arc::new(Date64Array::from(vec![-1]))),
        ("span", Arc::new(DurationMillisecondArray::from(vec![1_500]))),
        ("clock", Arc::new(Time32SecondArray::from(vec![61]))),
    ]);
    assert_eq!(
        got,
        json!({"second": "2026-01-31T12:00:00Z", "milli": "2026-01-31T12:00:00.250Z", "micro": "2026-01-31T12:00:00.250001Z",
            "before": "1969-12-31T23:59:59.999999Z", "zone": "2026-01-31T12:00:00Z", "plain": "1970-01-01T00:00:00Z",
            "nano": "1970-01-01T00:00:00.000001Z", "date": "2026-01-31", "old": "1969-12-31", "span": 1_500_000, "clock": 61_000_000})
    );
}

#[test]
fn other_kinds_are_json_values() {
    let words: DictionaryArray<Int32Type> = vec![Some("a")].into_iter().collect();
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1), None])]);
    let inner = StructArray::try_from(vec![
        ("a", Arc::new(Int32Array::from(vec![1])) as ArrayRef),
        ("b", decimals(vec![150], 10, 2)),
    ])
    .expect("a struct");
    let got = seen(vec![
        ("yes", Arc::new(BooleanArray::from(vec![true]))),
        ("none", Arc::new(NullArray::new(1))),
        ("null", Arc::new(Int64Array::from(vec![None]))),
        ("text", Arc::new(LargeStringArray::from(vec!["\"q\" \u{2028} \u{0} ü"]))),
        ("view", Arc::new(StringViewArray::from(vec!["v"]))),
        ("bytes", Arc::new(BinaryArray::from(vec![&[0_u8, 255][..]]))),
        ("dictionary", Arc::new(words)),
        ("list", Arc::new(list)),
        ("struct", Arc::new(inner)),
    ]);
    assert_eq!(
        got,
        json!({"yes": true, "none": null, "null": null, "text": "\"q\" \u{2028} \u{0} ü", "view": "v", "bytes": "AP8=",
            "dictionary": "a", "list": [1, null], "struct": {"a": 1, "b": 1.5}})
    );
}

#[test]
fn values_rows_and_the_row_make_one_object_and_the_row_wins() {
    let rules = load(&one(&graph(&[expressions(&[("got", "[a, b, len(rows), rows[0].x]")])])));
    let call = RuleCall {
        values: vec![("a".to_owned(), Scalar::Int64(1)), ("b".to_owned(), Scalar::Text("fixed".to_owned()))],
        rows: vec![(
            "rows".to_owned(),
            RecordBatch::try_from_iter([("x", Arc::new(Int32Array::from(vec![7, 8])) as ArrayRef)]).expect("rows"),
        )],
        each: Some(
            RecordBatch::try_from_iter([("b", Arc::new(Int32Array::from(vec![5, 6])) as ArrayRef)]).expect("rows"),
        ),
        ..want(&[("got", Kind::Json)])
    };
    assert_eq!(texts(&ask_rule(&rules, &call), 0), ["[1,5,2,7]", "[1,6,2,7]"]);
}

#[test]
fn scalars_of_every_kind() {
    let rules = load(&one(&graph(&[expressions(&[("v", "v"), ("kind", "type(v)")])])));
    for (scalar, value, kind) in [
        (Scalar::Null, "-", "null"),
        (Scalar::Boolean(true), "true", "bool"),
        (Scalar::Int64(i64::MIN), "-9223372036854775808", "number"),
        (Scalar::Float64(0.1), "0.1", "number"),
        (Scalar::Decimal("-12.50".to_owned()), "-12.5", "number"),
        (Scalar::Text("t".to_owned()), "\"t\"", "string"),
        (Scalar::Bytes(vec![1]), "\"AQ==\"", "string"),
        (Scalar::Timestamp(0), "\"1970-01-01T00:00:00Z\"", "string"),
    ] {
        let call =
            RuleCall { values: vec![("v".to_owned(), scalar)], ..want(&[("v", Kind::Json), ("kind", Kind::Text)]) };
        let answer = ask_rule(&rules, &call);
        assert_eq!((texts(&answer, 0)[0].as_str(), texts(&answer, 1)[0].as_str()), (value, kind));
    }
}

#[test]
fn scalars_that_are_none_are_refused() {
    let rules = load(&one(&graph(&[])));
    let call = |scalar| RuleCall { values: vec![("v".to_owned(), scalar)], ..RuleCall::default() };
    for text in ["", "abc", "1e5", "1.2.3", "0x10", "--1"] {
        let bad = rules.evaluate("r", &call(Scalar::Decimal(text.to_owned())), context()).expect_err(text);
        assert_eq!(bad, CallError::Data(DataError::Malformed));
    }
    assert_eq!(failed(&rules, &call(Scalar::Float64(f64::NAN))), "v: NaN is no number in JSON");
    let rows = RecordBatch::try_from_iter([("n", Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef)]).expect("rows");
    let all = RuleCall { each: Some(rows), ..call(Scalar::Decimal("9".repeat(40))) };
    let failed: Vec<u32> = ask_rule(&rules, &all).failed.iter().map(|(row, _)| *row).collect();
    assert_eq!(failed, [0, 1]);
}
