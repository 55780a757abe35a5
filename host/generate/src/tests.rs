#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};

use super::*;

fn at(text: &str) -> Time {
    text.parse().unwrap()
}
fn hour(stream: Stream, seed: u64) -> Part {
    stream.rows(at("2026-01-31T23:30:00Z"), at("2026-02-01T00:30:00Z"), seed).unwrap()
}
fn texts(part: &Part, column: &str) -> Vec<String> {
    let column = part.rows.column_by_name(column).unwrap().as_string::<i32>();
    column.iter().map(|v| v.unwrap_or_default().to_owned()).collect()
}
fn times(part: &Part, column: &str) -> Vec<i64> {
    part.rows.column_by_name(column).unwrap().as_primitive::<TimestampMicrosecondType>().values().to_vec()
}

/// Values of the spec: 50, 10 and 2 matching messages a minute, in every minute.
#[test]
fn every_minute_has_the_starter_messages() {
    let part = hour(Stream::Syslog, 0);
    let mut counts: BTreeMap<(i64, String), usize> = BTreeMap::new();
    let (hosts, said, when) =
        (texts(&part, "router_host"), texts(&part, "syslog_message"), times(&part, "collected_at"));
    for i in (0..hosts.len()).filter(|i| said[*i].contains("sapDHCPLseStatePopulateErr")) {
        *counts.entry((when[i] / MINUTE, hosts[i].clone())).or_default() += 1;
    }
    assert_eq!(counts.len(), 3 * 60);
    for ((_, host), count) in counts {
        let expected = match host.as_str() {
            "Edge-RouterA-034" => 50,
            "Edge-RouterA-033" => 10,
            "Edge-RouterA-036" => 2,
            other => panic!("{other}"),
        };
        assert_eq!(count, expected, "{host}");
    }
    assert_eq!(part.per_minute, vec![98; 60]);
}

/// 70, 50, 30 and 50 Gbps by the formula of the spec; packets `1000 * 10^(minute mod 10)`.
#[test]
fn traffic_is_what_the_spec_says() {
    let part = hour(Stream::CoreTraffic, 0);
    let bytes = part.rows.column_by_name("rx_bytes").unwrap().as_primitive::<Int64Type>().clone();
    let (names, when) = (texts(&part, "if_name"), times(&part, "collected_at"));
    let mut sums: BTreeMap<(i64, &str), i64> = BTreeMap::new();
    for (i, name) in names.iter().enumerate() {
        *sums.entry((when[i] / MINUTE, name)).or_default() += bytes.value(i);
    }
    assert_eq!(sums.len(), 60 * 5);
    let expected =
        BTreeMap::from([("2/1/1", 70.0), ("2/1/2.0", 50.0), ("2/2/1", 30.0), ("2/2/1.0", 90.0), ("2/2/2", 50.0)]);
    for ((_, name), bytes) in sums {
        assert_eq!(bytes as f64 * 8.0 / (1e9 * 60.0), expected[name], "{name}");
    }
    let part = hour(Stream::EdgeTraffic, 0);
    let packets = part.rows.column_by_name("tx_multicast_pkts").unwrap().as_primitive::<Int64Type>().clone();
    let (routers, when) = (texts(&part, "router_ip"), times(&part, "collected_at"));
    for i in (0..routers.len()).filter(|i| ["198.51.100.211", "198.51.100.212"].contains(&routers[*i].as_str())) {
        let minute_of_hour = u32::try_from(when[i] / MINUTE % 60).unwrap();
        assert_eq!(packets.value(i), 1000 * 10_i64.pow(minute_of_hour % 10));
    }
}

#[test]
fn rows_come_in_time_order_and_inside_of_their_minute() {
    for stream in Stream::ALL {
        for seed in [0, 7] {
            let part = hour(stream, seed);
            let event_time = match stream {
                Stream::Syslog | Stream::CoreTraffic | Stream::EdgeTraffic => "collected_at",
                Stream::Linkdown => "event_at",
                Stream::Forecast => "ds",
                Stream::OltAlarms => "eventhub_received_at",
            };
            let times = times(&part, event_time);
            assert!(times.is_sorted(), "{stream:?}");
            let first = at("2026-01-31T23:30:00Z").micros() / MINUTE;
            let mut row = 0;
            for (minute, rows) in (first..).zip(&part.per_minute) {
                assert!(times[row..row + rows].iter().all(|t| t / MINUTE == minute), "{stream:?}");
                row += rows;
            }
            assert_eq!(row, part.rows.num_rows());
        }
    }
}

#[test]
fn a_minute_is_the_same_however_it_is_made_and_another_seed_makes_another() {
    for stream in Stream::ALL {
        let whole = hour(stream, 7);
        let middle = stream.rows(at("2026-02-01T00:00:00Z"), at("2026-02-01T00:01:00Z"), 7).unwrap();
        let before: usize = whole.per_minute[..30].iter().sum();
        assert_eq!(whole.rows.slice(before, whole.per_minute[30]), middle.rows);
        assert_eq!(hour(stream, 7).rows, whole.rows);
        assert_ne!(hour(stream, 8).rows, whole.rows, "{stream:?}");
    }
}

fn definition(schema: &str) -> StreamDef {
    // Through JSON: this crate has no TOML.
    let text = format!(
        r#"{{"event_time": "ds", "schema": {{{schema}}}, "source": {{"type": "generate", "sql": "", "interval": "5s"}}}}"#
    );
    serde_json::from_str(&text).unwrap()
}

#[test]
fn offsets_are_the_minute_and_the_row_in_it() {
    let def = definition(
        r#""ds": {"type": "timestamp", "required": true}, "router_ip": "text", "link_type": "text", "added": "int64""#,
    );
    let rows = hour(Stream::Forecast, 0).positioned(&def, 5).unwrap();
    assert_eq!(rows.schema(), def.positioned_schema());
    let offsets = rows.column_by_name(OFFSET).unwrap().as_primitive::<Int64Type>();
    assert_eq!(offsets.values()[..4], [5 << 20, (5 << 20) + 1, 6 << 20, (6 << 20) + 1]);
    assert_eq!(rows.column_by_name("added").unwrap().null_count(), rows.num_rows());
    assert_eq!(Part::end(64), 65 << 20);
}

#[test]
fn a_definition_that_does_not_fit_is_refused_by_column() {
    let part = hour(Stream::Forecast, 0);
    for (schema, field) in [
        (r#""ds": "timestamp", "y": "text""#, "schema.y"),
        (r#""ds": "timestamp", "z": {"type": "int64", "required": true}"#, "schema.z"),
    ] {
        let fault = part.positioned(&definition(schema), 0).unwrap_err();
        assert_eq!(fault.field.as_deref(), Some(field), "{fault}");
    }
}

#[test]
fn history_is_whole_minutes_in_order() {
    let minute = at("2026-01-31T12:00:00Z");
    assert!(minutes(minute, Time(minute.micros() + MINUTE)).is_ok());
    assert!(minutes(minute, minute).is_err());
    assert!(minutes(minute, Time(minute.micros() + 1)).is_err());
}
