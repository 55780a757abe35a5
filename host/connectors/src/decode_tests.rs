#![allow(clippy::unwrap_used)]

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use bytes::Bytes;

use super::*;

fn json() -> Decoder {
    let def: StreamDef = toml::from_str(
        r#"
        event_time = "at"
        [schema]
        at = { type = "timestamp", required = true }
        host = "text"
        n = "int64"
        small = "int32"
        x = "float64"
        money = "decimal(10,2)"
        ok = "boolean"
        [source]
        type = "files"
        path = "in"
        "#,
    )
    .unwrap();
    Decoder::new(&def)
}

fn reasons(lines: &[&str]) -> Vec<(u64, String)> {
    json().decode(records(lines)).unwrap().dead.into_iter().map(|d| (d.offset, d.reason)).collect()
}

#[test]
fn good_rows_keep_their_values_and_order() {
    let d = json()
        .decode(records(&[
            r#"{"at":"2026-01-31T12:00:00.000001Z","host":"a\n\"b\"","n":9007199254740993,"small":-5,"x":0.1,"money":"12.50","ok":true}"#,
            r#"{"at":"2026-01-31 12:00:00","n":2.0,"money":0.1,"unknown":{"deep":[1]}}"#,
            r#"{"at":"2026-01-31T21:00:00+09:00","host":null}"#,
        ]))
        .unwrap();
    assert_eq!((d.offsets, d.dead.len()), (vec![0, 1, 2], 0));
    let noon = 1_769_860_800_000_000;
    assert_eq!(d.rows.column(0).as_primitive::<TimestampMicrosecondType>().values(), &[noon + 1, noon, noon]);
    assert_eq!(d.rows.column(1).as_string::<i32>().value(0), "a\n\"b\"");
    assert_eq!(d.rows.column(2).as_primitive::<Int64Type>().values()[..2], [9_007_199_254_740_993, 2]);
    assert_eq!(d.rows.column(3).as_primitive::<Int32Type>().value(0), -5);
    assert_eq!(d.rows.column(4).as_primitive::<Float64Type>().value(0), 0.1);
    assert_eq!(d.rows.column(5).as_primitive::<Decimal128Type>().values()[..2], [1250, 10]);
    assert_eq!((d.rows.column(1).null_count(), d.rows.column(6).null_count()), (2, 2));
}

#[test]
fn a_bad_row_is_a_dead_letter_that_names_the_column_and_the_others_go_on() {
    let at = r#""at":"2026-01-31T12:00:00Z""#;
    let lines = [
        format!("{{{at},\"n\":\"12\"}}"),
        format!("{{{at},\"n\":1.5}}"),
        format!("{{{at},\"small\":3000000000}}"),
        format!("{{{at},\"host\":7}}"),
        "{\"at\":1769860800,\"n\":1}".to_owned(),
        "{\"n\":1}".to_owned(),
        format!("{{{at},\"n\":7}}"),
        format!("{{{at}, \"n\":"),
        "[1,2]".to_owned(),
        format!("{{{at}}} trailing"),
        String::new(),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let got = reasons(&lines);
    let starts = [
        (0, "column n: expected int64, got the text \"12\""),
        (1, "column n: expected int64, got 1.5"),
        (2, "column small: expected int32, got 3000000000"),
        (3, "column host: expected text, got 7"),
        (4, "column at: expected timestamp, got 1769860800"),
        (5, "column at: a value is required"),
        (7, "EOF while parsing"),
        (8, "invalid type: sequence, expected a JSON object"),
        (9, "trailing characters"),
        (10, "EOF while parsing"),
    ];
    assert_eq!(got.len(), starts.len());
    for ((offset, reason), (at, start)) in got.iter().zip(starts) {
        assert_eq!(*offset, at);
        assert!(reason.starts_with(start), "{reason} | {start}");
    }
    let d = json().decode(records(&lines)).unwrap();
    assert_eq!((d.offsets, d.rows.num_rows()), (vec![6], 1));
}

/// A value that a column cannot keep whole is told of, never rounded.
#[test]
fn a_decimal_that_does_not_fit_is_a_dead_letter() {
    let at = r#""at":"2026-01-31T12:00:00Z""#;
    let line = |money: &str| format!("{{{at},\"money\":{money}}}");
    let bad = [
        ("\"12.345\"", "got the text \"12.345\": it has more than 2 digits after the point"),
        ("12.345", "got 12.345: it has more than 2 digits after the point"),
        ("1e-3", "got 0.001: it has more than 2 digits after the point"),
        ("\"100000000\"", "got the text \"100000000\": it has too many digits before the point"),
        ("12345678901234567.25", "got 12345678901234568: a number of so many digits is exact in quotes only"),
        ("\"twelve\"", "got the text \"twelve\""),
    ];
    let good = [("\"12.340000000000000000000\"", 1234), ("12.30", 1230), ("-7", -700), ("\"1e3\"", 100_000)];
    let lines: Vec<String> = bad.iter().map(|b| line(b.0)).chain(good.iter().map(|g| line(g.0))).collect();
    let d = json().decode(records(&lines.iter().map(String::as_str).collect::<Vec<_>>())).unwrap();
    for (letter, (_, reason)) in d.dead.iter().zip(bad) {
        let reason = format!("column money: expected decimal(10,2), {reason}");
        assert!(letter.reason.starts_with(&reason), "{} | {reason}", letter.reason);
    }
    assert_eq!(d.dead.len(), bad.len());
    assert_eq!(d.rows.column(5).as_primitive::<Decimal128Type>().values(), &good.map(|g| g.1));
}

#[test]
fn bytes_that_are_no_text_and_records_that_are_too_long_are_dead_letters() {
    let mut polled = records(&["", ""]);
    let Payload::Records(list) = &mut polled.payload else { panic!("records") };
    list[0].value = Bytes::from_static(b"{\"host\":\"\xff\"}");
    list[1].value = Bytes::from(vec![b' '; RECORD_BYTES + 1]);
    let dead = json().decode(polled).unwrap().dead;
    assert!(dead[0].reason.starts_with("not UTF-8 after byte 9"), "{}", dead[0].reason);
    assert!(dead[1].reason.contains("longer than 1048576 bytes"));
    assert_eq!(dead[1].raw.len(), RAW_BYTES);
}

#[test]
fn decoding_rows_together_equals_decoding_them_one_by_one() {
    let kinds = [
        r#"{"at":"2026-01-31T12:00:00Z","n":1,"host":"a"}"#,
        r#"{"at":"2026-01-31T12:00:00Z","n":"x"}"#,
        r#"{"at":null}"#,
        r#"{"at":"2026-01-31T12:00:00Z","x":1e300}"#,
        "{",
        r#"{"at":"2026-01-31T12:00:00Z","ok":false,"n":-1}"#,
    ];
    let mut state = 7u64;
    for _ in 0..200 {
        let lines: Vec<&str> = (0..20)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                kinds[usize::try_from(state >> 40).unwrap() % kinds.len()]
            })
            .collect();
        let together = json().decode(records(&lines)).unwrap();
        let alone: Vec<Decoded> = lines.iter().map(|l| json().decode(records(&[l])).unwrap()).collect();
        let good: Vec<u64> = alone.iter().zip(0..).filter(|(d, _)| d.dead.is_empty()).map(|(_, i)| i).collect();
        assert_eq!(together.offsets, good);
        let schema = together.rows.schema();
        let rows = arrow_select::concat::concat_batches(&schema, alone.iter().map(|d| &d.rows)).unwrap();
        assert_eq!(together.rows, rows);
    }
}
