//! Each kind out of Arrow and back.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::{NullBuffer, ScalarBuffer, i256};
use arrow_schema::{DataType, Field, Schema};
use weir_model::columns::output_type;
use weir_model::{DataError, Kind, Scalar};

use super::*;

const MAX: u64 = 1 << 20;

fn arc(array: impl Array + 'static) -> ArrayRef {
    Arc::new(array)
}
fn texts(blobs: &Blobs) -> Vec<&str> {
    blobs.iter().map(|b| std::str::from_utf8(b).expect("texts")).collect()
}
fn data<T: std::fmt::Debug>(result: Result<T, ColumnError>) -> DataError {
    match result.expect_err("an error") {
        ColumnError::Data(error) => error,
        ColumnError::TooBig => panic!("too big"),
    }
}

#[test]
fn validity_is_lsb_first_with_zero_spare_bits_and_none_without_nulls() {
    assert_eq!(pull::validity(&Int64Array::from(vec![1, 2])), None);
    let some = Int64Array::from(vec![Some(1), None, Some(3), Some(4), None, Some(6)]);
    assert_eq!(pull::validity(&some), Some(vec![0b10_1101]));
    let long: Int64Array = (0..20).map(|i| (i % 3 != 0).then_some(i)).collect();
    let bits = pull::validity(&long.slice(3, 11)).expect("nulls");
    let expected: Vec<bool> = (3..14).map(|i| i % 3 != 0).collect();
    let seen: Vec<bool> = (0..11).map(|i| bits[i / 8] >> (i % 8) & 1 == 1).collect();
    assert_eq!((bits.len(), bits[1] >> 3, seen), (2, 0, expected));
    assert_eq!(pull::validity(&NullArray::new(3)), Some(vec![0]));
}

#[test]
fn null_slots_are_zero_whatever_lies_in_them() {
    let garbage = Int64Array::new(ScalarBuffer::from(vec![7, 8, 9]), Some(NullBuffer::from(vec![true, false, true])));
    assert_eq!(pull::int64s(&arc(garbage), MAX).expect("ints"), [7, 0, 9]);
    let text = StringArray::new(
        StringArray::from(vec!["ab", "cd", "e"]).offsets().clone(),
        b"abcde".as_slice().into(),
        Some(NullBuffer::from(vec![true, false, true])),
    );
    let out = pull::blobs(&arc(text), MAX).expect("texts");
    assert_eq!(texts(&out), ["ab", "", "e"]);
}

#[test]
fn integers_widen_and_times_are_microseconds() {
    let cases: Vec<(ArrayRef, Vec<i64>)> = vec![
        (arc(Int8Array::from(vec![-1])), vec![-1]),
        (arc(UInt32Array::from(vec![u32::MAX])), vec![4_294_967_295]),
        (arc(Time32SecondArray::from(vec![2])), vec![2_000_000]),
        (arc(Time64NanosecondArray::from(vec![1_999])), vec![1]),
        (arc(DurationNanosecondArray::from(vec![-1])), vec![-1]),
        (arc(DurationSecondArray::from(vec![Some(3), None])), vec![3_000_000, 0]),
    ];
    for (array, expected) in cases {
        assert_eq!(pull::int64s(&array, MAX).expect("ints"), expected, "{array:?}");
    }
    let far = arc(DurationSecondArray::from(vec![i64::MAX]));
    assert_eq!(data(pull::int64s(&far, MAX)), DataError::OutOfRange);
    assert_eq!(data(pull::int64s(&arc(UInt64Array::from(vec![1])), MAX)), DataError::WrongKind(Kind::Decimal));
}

#[test]
fn timestamps_are_floored_and_dates_at_midnight() {
    let cases: Vec<(ArrayRef, i64)> = vec![
        (arc(TimestampNanosecondArray::from(vec![-1])), -1),
        (arc(TimestampNanosecondArray::from(vec![1_999])), 1),
        (arc(TimestampMillisecondArray::from(vec![-1])), -1_000),
        (arc(TimestampSecondArray::from(vec![5]).with_timezone("+09:00")), 5_000_000),
        (arc(Date32Array::from(vec![-1])), -DAY),
        (arc(Date64Array::from(vec![86_400_001])), DAY),
        (arc(Date64Array::from(vec![-1])), -DAY),
    ];
    for (array, expected) in cases {
        assert_eq!(pull::timestamps(&array, MAX).expect("times"), [expected], "{array:?}");
    }
}

#[test]
fn decimals_come_in_two_halves_and_go_back() {
    let array = Decimal128Array::from(vec![Some(-1), None, Some(i128::from(u64::MAX) + 1)])
        .with_precision_and_scale(38, 2)
        .expect("fits");
    let out = pull::decimals(&arc(array), MAX).expect("decimals");
    assert_eq!((out.scale, out.low[0], out.high[0]), (2, u64::MAX, -1));
    assert_eq!((out.low[1], out.high[1], out.low[2], out.high[2]), (0, 0, 0, 1));
    let back = build::decimals(Kind::Decimal, &out, Some(vec![0b101])).expect("decimals");
    assert_eq!(back.data_type(), &output_type(Kind::Decimal));
    let back = back.as_primitive::<Decimal128Type>();
    assert_eq!(
        (back.value_as_string(0), back.is_null(1), back.value(2)),
        ("-0.010000000".into(), true, (i128::from(u64::MAX) + 1) * 10_000_000)
    );
    let out = pull::decimals(&arc(UInt64Array::from(vec![u64::MAX])), MAX).expect("uint64");
    assert_eq!((out.scale, out.low[0], out.high[0]), (0, u64::MAX, 0));
    let big = Decimal256Array::from(vec![i256::MAX]);
    assert_eq!(data(pull::decimals(&arc(big), MAX)), DataError::OutOfRange);
}

#[test]
fn decimals_are_rescaled_exactly_or_rounded_half_away_from_zero() {
    let scaled = |value: i128, scale: i8| {
        let halves = Decimals { scale, low: vec![value as u64], high: vec![(value >> 64) as i64] };
        build::decimals(Kind::Decimal, &halves, None).map(|a| a.as_primitive::<Decimal128Type>().value(0))
    };
    assert_eq!(scaled(5, 0), Ok(5_000_000_000));
    assert_eq!(scaled(15, 10), Ok(2));
    assert_eq!(scaled(-15, 10), Ok(-2));
    assert_eq!(scaled(14, 10), Ok(1));
    assert_eq!(scaled(7, 127), Ok(0));
    assert_eq!(scaled(0, -128), Ok(0));
    assert_eq!(scaled(1, -128), Err(DataError::OutOfRange));
    assert_eq!(scaled(10_i128.pow(29), 0), Err(DataError::OutOfRange));
    assert_eq!(scaled(10_i128.pow(29) - 1, 0), Ok((10_i128.pow(29) - 1) * 1_000_000_000));
}

#[test]
fn blobs_of_every_text_and_bytes_type_are_equal() {
    let rows = vec![Some("a"), None, Some(""), Some("wörld, longer than a view holds inline")];
    let utf8 = arc(StringArray::from(rows.clone()));
    let expected = pull::blobs(&utf8, MAX).expect("texts");
    assert_eq!(texts(&expected), ["a", "", "", "wörld, longer than a view holds inline"]);
    for ty in [
        DataType::LargeUtf8,
        DataType::Utf8View,
        DataType::Binary,
        DataType::LargeBinary,
        DataType::BinaryView,
        DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)),
    ] {
        let array = arrow_cast::cast(&utf8, &ty).expect("a cast");
        assert_eq!(pull::blobs(&array, MAX).expect("blobs"), expected, "{ty}");
    }
    let sliced = utf8.slice(2, 2);
    assert_eq!(pull::blobs(&sliced, MAX).expect("texts").offsets, [0, 0, 39]);
    assert_eq!(pull::blobs(&arc(NullArray::new(2)), MAX).expect("nulls").offsets, [0, 0, 0]);
    assert_eq!(pull::blobs(&utf8.slice(0, 0), MAX).expect("none").offsets, [0]);
}

#[test]
fn a_shared_value_is_not_blown_up_beyond_the_guests_memory() {
    let values = arc(StringArray::from(vec!["x".repeat(1 << 10)]));
    let shared = DictionaryArray::new(Int32Array::from(vec![0; 1 << 10]), values);
    let shared = arc(shared);
    assert_eq!(pull::blobs(&shared, MAX).expect_err("too big"), ColumnError::TooBig);
    let once = pull::dictionary(&shared, MAX).expect("one value");
    assert_eq!((once.values.len(), once.codes.len()), (1, 1 << 10));
}

#[test]
fn a_dictionary_is_in_order_of_first_appearance() {
    let rows = vec![Some("b"), None, Some("a"), Some("b"), Some("")];
    let plain = arc(StringArray::from(rows));
    let expected = pull::dictionary(&plain, MAX).expect("texts");
    assert_eq!(expected.codes, [0, NO_CODE, 1, 0, 2]);
    assert_eq!(texts(&expected.values), ["b", "a", ""]);
    // A dictionary in another order, with a value twice, an unused one and a null among the values.
    let keys = Int8Array::from(vec![Some(3), None, Some(1), Some(4), Some(0)]);
    let values = StringArray::from(vec![Some(""), Some("a"), Some("unused"), Some("b"), Some("b"), None]);
    let indexed = DictionaryArray::new(keys, arc(values));
    assert_eq!(pull::dictionary(&arc(indexed), MAX).expect("indexed"), expected);
    let keys = Int8Array::from(vec![0, 1]);
    let nulls = DictionaryArray::new(keys, arc(StringArray::from(vec![None, Some("x")])));
    assert_eq!(pull::dictionary(&arc(nulls), MAX).expect("indexed").codes, [NO_CODE, 0]);
    assert_eq!(data(pull::dictionary(&arc(Int64Array::from(vec![1])), MAX)), DataError::WrongKind(Kind::Int64));
}

#[test]
fn any_kind_has_a_text() {
    let nested = ListArray::from_iter_primitive::<Int64Type, _, _>(vec![Some(vec![Some(1), None]), None]);
    let cases: Vec<(ArrayRef, Vec<&str>)> = vec![
        (arc(BooleanArray::from(vec![Some(true), None])), vec!["true", ""]),
        (arc(Float64Array::from(vec![1.5, f64::NAN])), vec!["1.5", "NaN"]),
        (
            arc(TimestampNanosecondArray::from(vec![1_500_000_000]).with_timezone("UTC")),
            vec!["1970-01-01T00:00:01.500Z"],
        ),
        (arc(TimestampSecondArray::from(vec![0])), vec!["1970-01-01T00:00:00Z"]),
        (arc(Date64Array::from(vec![86_400_001])), vec!["1970-01-02"]),
        (arc(UInt64Array::from(vec![u64::MAX])), vec!["18446744073709551615"]),
        (arc(BinaryArray::from(vec![&b"\x00\xff"[..]])), vec!["00ff"]),
        (arc(StringArray::from(vec![Some("x"), None])), vec!["x", ""]),
        (arc(nested), vec!["[1,null]", ""]),
    ];
    for (array, expected) in cases {
        let out = render::texts(&array, MAX).expect("texts");
        assert_eq!(texts(&out), expected, "{array:?}");
    }
    let long = arc(Int64Array::from(vec![i64::MAX; 10]));
    assert_eq!(render::texts(&long, 100).expect_err("too big"), ColumnError::TooBig);
}

#[test]
fn json_keeps_nulls_and_quotes_what_a_double_cannot_hold() {
    let nested = StructArray::from(vec![(
        Arc::new(Field::new("at", DataType::Int64, true)),
        arc(Int64Array::from(vec![1 << 53, (1 << 53) + 1])),
    )]);
    let schema = Schema::new(vec![
        Field::new("n", DataType::Int64, true),
        Field::new("d", DataType::Decimal128(38, 2), true),
        Field::new("t", output_type(Kind::Timestamp), true),
        Field::new("o", nested.data_type().clone(), true),
    ]);
    let batch = RecordBatch::try_new(
        Arc::new(schema),
        vec![
            arc(Int64Array::from(vec![Some(-(1 << 53) - 1), None])),
            arc(Decimal128Array::from(vec![150, 1_i128 << 60]).with_precision_and_scale(38, 2).expect("fits")),
            arc(TimestampMicrosecondArray::from(vec![Some(1), None]).with_timezone("UTC")),
            arc(nested),
        ],
    )
    .expect("a batch");
    assert_eq!(
        render::json(&batch, MAX).expect("json"),
        concat!(
            r#"[{"n":"-9007199254740993","d":1.50,"t":"1970-01-01T00:00:00.000001Z","o":{"at":9007199254740992}},"#,
            r#"{"n":null,"d":"11529215046068469.76","t":null,"o":{"at":"9007199254740993"}}]"#
        )
    );
    assert_eq!(render::json(&batch, 50).expect_err("too big"), ColumnError::TooBig);
}

#[test]
fn what_a_guest_writes_is_checked() {
    let malformed = Err(DataError::Malformed);
    let blobs = |offsets: Vec<u32>, data: &[u8]| Blobs { offsets, data: data.to_vec() };
    let text = |b: Blobs| build::blobs(Kind::Text, b, None).map(|a| a.len());
    assert_eq!(text(blobs(vec![0, 1, 3], b"abc")), Ok(2));
    assert_eq!(text(blobs(vec![], b"")), malformed);
    assert_eq!(text(blobs(vec![1, 3], b"abc")), malformed);
    assert_eq!(text(blobs(vec![0, 2, 1], b"a")), malformed);
    assert_eq!(text(blobs(vec![0, 2], b"abc")), malformed);
    assert_eq!(text(blobs(vec![0, 1, 2], "ö".as_bytes())), malformed);
    assert_eq!(text(blobs(vec![0, 1], b"\xff")), malformed);
    assert_eq!(build::blobs(Kind::Bytes, blobs(vec![0, 1], b"\xff"), None).map(|a| a.len()), Ok(1));
    let json = |text: &[u8]| build::blobs(Kind::Json, blobs(vec![0, text.len() as u32], text), None).map(|a| a.len());
    assert_eq!(json(br#"{"a":[1]}"#), Ok(1));
    assert_eq!(json(b"{"), malformed);
    assert_eq!(json(b""), malformed);
    assert_eq!(build::booleans(Kind::Boolean, vec![0, 2], None).map(|a| a.len()), malformed);
    assert_eq!(build::int64s(Kind::Int64, vec![1; 9], Some(vec![255])).map(|a| a.len()), malformed);
    assert_eq!(build::int64s(Kind::Float64, vec![1], None).map(|a| a.len()), Err(DataError::WrongKind(Kind::Float64)));
}

#[test]
fn null_slots_that_a_guest_filled_are_emptied() {
    let ints = build::int64s(Kind::Int64, vec![1, 2], Some(vec![0b1101])).expect("ints");
    assert_eq!(ints.as_primitive::<Int64Type>().values()[..], [1, 0]);
    let filled = Blobs { offsets: vec![0, 1, 3], data: b"abc".to_vec() };
    let text = build::blobs(Kind::Text, filled, Some(vec![0b10])).expect("texts");
    assert_eq!(text.as_string::<i32>().value_offsets(), [0, 0, 2]);
    let dates = build::timestamps(Kind::Date, vec![-1, DAY], None).expect("dates");
    assert_eq!(dates.as_primitive::<Date32Type>().values()[..], [-1, 1]);
}

#[test]
fn constants_have_the_kind_of_their_column() {
    let column = |kind, value: Scalar| build::constant(kind, &value, 2);
    for (kind, value) in [
        (Kind::Boolean, Scalar::Boolean(true)),
        (Kind::Int64, Scalar::Int64(1)),
        (Kind::Float64, Scalar::Float64(0.5)),
        (Kind::Decimal, Scalar::Decimal("-12.50".into())),
        (Kind::Text, Scalar::Text("x".into())),
        (Kind::Bytes, Scalar::Bytes(vec![1])),
        (Kind::Timestamp, Scalar::Timestamp(5)),
        (Kind::Date, Scalar::Timestamp(5)),
        (Kind::Json, Scalar::Text("[1]".into())),
        (Kind::Json, Scalar::Null),
    ] {
        let out = column(kind, value).expect("a column");
        assert_eq!((out.data_type(), out.len()), (&output_type(kind), 2));
    }
    assert_eq!(column(Kind::Int64, Scalar::Float64(1.0)), Err(DataError::WrongKind(Kind::Int64)));
    assert_eq!(column(Kind::Decimal, Scalar::Decimal("ten".into())), Err(DataError::Malformed));
    assert_eq!(column(Kind::Json, Scalar::Text("[".into())), Err(DataError::Malformed));
}

#[test]
fn copies_become_the_outputs_type_when_the_kind_is_the_same() {
    let utf8 = arc(StringArray::from(vec![Some("1"), None]));
    let cases: Vec<(ArrayRef, Kind)> = vec![
        (arc(Int32Array::from(vec![Some(1), None])), Kind::Int64),
        (arc(Float32Array::from(vec![1.0])), Kind::Float64),
        (arc(UInt64Array::from(vec![1])), Kind::Decimal),
        (arc(TimestampNanosecondArray::from(vec![1])), Kind::Timestamp),
        (arc(Date64Array::from(vec![1])), Kind::Date),
        (arrow_cast::cast(&utf8, &DataType::Utf8View).expect("a cast"), Kind::Text),
        (utf8.clone(), Kind::Text),
        (utf8.clone(), Kind::Json),
        (arc(NullArray::new(2)), Kind::Text),
        (arc(ListArray::from_iter_primitive::<Int64Type, _, _>(vec![Some(vec![Some(1)])])), Kind::Json),
    ];
    for (source, kind) in cases {
        let out = build::copied(kind, &source, MAX).expect("a copy");
        assert_eq!((out.data_type(), out.len()), (&output_type(kind), source.len()), "{source:?}");
        assert_eq!(out.null_count(), source.logical_null_count(), "{source:?}");
    }
    assert_eq!(data(build::copied(Kind::Int64, &utf8, MAX)), DataError::WrongKind(Kind::Text));
}
