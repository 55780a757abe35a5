//! Which rows a batch sees: offsets, floor, bounds, and what only the bronze table holds.

use weir_model::batch::Between;
use weir_model::port::{Append, Extent, Lake, PinnedStream};
use weir_model::{Offsets, Scalar, Time};

use crate::support::*;

const STREAM: &str = "syslog";
const MANIFEST: &str = "[inputs.syslog]\n\
    [queries.all]\nfile = \"all.sql\"\n\
    [queries.past]\nfile = \"past.sql\"\nparams = { a = \"timestamp\", b = \"timestamp\" }\nbounds = { syslog = [\"a\", \"b\"] }\n";
const ALL: &str = "SELECT _offset FROM syslog";
const PAST: &str = "SELECT _offset, router_ip FROM syslog";

/// One row a minute; every third is two minutes late. Offset n is minute n or n - 2.
fn minute_of(offset: i64) -> i64 {
    if offset % 3 == 2 { offset - 2 } else { offset }
}

fn rows(offsets: std::ops::Range<i64>) -> arrow_array::RecordBatch {
    let all: Vec<(Time, &str, &str)> = offsets.clone().map(|o| (at(minute_of(o)), "34", "m")).collect();
    syslog(offsets.start, &all)
}

fn window(floor: Time, ranges: &[std::ops::Range<i64>]) -> PinnedStream {
    pinned(STREAM, SYSLOG, floor, ranges.iter().map(|r| chunk(rows(r.clone()), "collected_at")).collect())
}

fn offsets(lines: &[String]) -> Vec<i64> {
    lines.iter().map(|l| l.split('|').next().unwrap().parse().unwrap()).collect()
}

fn expected(offsets: std::ops::Range<i64>, from: i64, to: i64) -> Vec<i64> {
    offsets.filter(|o| (from..to).contains(&minute_of(*o))).collect()
}

/// What a count of these offsets has to say.
fn extent(offsets: &[i64]) -> Extent {
    let minutes = || offsets.iter().map(|o| minute_of(*o));
    Extent { rows: offsets.len() as u64, first: minutes().min().map(at), last: minutes().max().map(at) }
}

#[test]
fn only_rows_inside_the_pins_are_seen() {
    let house = House::new();
    let files = [("all.sql", ALL), ("past.sql", PAST)];
    let queries = house.plan(&ruleset(MANIFEST, &[(STREAM, SYSLOG)], &files));
    let see = |pinned: PinnedStream| {
        let given = inputs(at(30), vec![pinned]);
        let query = offsets(&lines(&queries.run("all", &given, &[], &[]).unwrap()));
        let input = queries.input(STREAM, &given).unwrap();
        assert_eq!(input.num_rows(), query.len());
        assert_eq!(queries.extent(STREAM, &given, None).unwrap(), extent(&query));
        query
    };
    assert_eq!(see(window(at(0), &[0..10, 10..20])), expected(0..20, 0, 30));
    assert_eq!(see(window(at(7), &[0..10, 10..20])), expected(0..20, 7, 30));
    let mut new = window(at(0), &[0..10, 10..20]);
    new.from = Offsets::of(0, 4);
    new.upto = Offsets::of(0, 15);
    assert_eq!(see(new), expected(4..15, 0, 30));
    assert_eq!(see(window(at(0), &[])), Vec::<i64>::new());
}

#[test]
fn what_lies_below_the_hot_edge_is_read_from_bronze_once() {
    let house = House::new();
    let files = [("all.sql", ALL), ("past.sql", PAST)];
    let queries = house.plan(&ruleset(MANIFEST, &[(STREAM, SYSLOG)], &files));
    let ask = |pinned: PinnedStream, a: i64, b: i64| {
        let params =
            [("a".to_owned(), Scalar::Timestamp(at(a).micros())), ("b".to_owned(), Scalar::Timestamp(at(b).micros()))];
        queries.run("past", &inputs(at(30), vec![pinned]), &params, &[]).unwrap()
    };
    // Bronze holds 0..14, the window 8..20 and everything from minute 10 on: 8 to 13 are in both.
    let cut = || {
        let mut pinned = window(at(10), &[8..11, 11..20]);
        pinned.complete_from = at(10);
        pinned
    };
    // No table yet: only what is hot.
    assert_eq!(offsets(&lines(&ask(cut(), 2, 16))), expected(8..20, 10, 16));
    house.runtime.block_on(async {
        let schema = rows(0..1).schema();
        let table = house.lake.table(&name("acme"), &name(STREAM), schema).await.unwrap();
        for (version, range) in [(5, 0..5), (9, 5..9), (14, 9..14)] {
            table.append(vec![Append { app: "bronze".into(), version, rows: rows(range) }]).await.unwrap();
        }
    });
    let whole = || window(at(0), &[0..3, 3..20]);
    for (a, b) in [(2, 16), (0, 30), (9, 10), (10, 12), (0, 3), (16, 2)] {
        let answer = ask(cut(), a, b);
        assert_eq!(offsets(&lines(&answer)), expected(0..20, a, b), "[{a}, {b})");
        assert_eq!(answer, ask(whole(), a, b), "[{a}, {b})");
        let (given, range) = (inputs(at(30), vec![cut()]), Between { from: at(a), to: at(b) });
        let counted = queries.extent(STREAM, &given, Some(range)).unwrap();
        assert_eq!(counted, extent(&expected(0..20, a, b)), "[{a}, {b})");
    }
    // The pin's offsets hold in bronze too, and a replay whose window is gone reads everything there.
    let mut replay = window(at(3), &[]);
    replay.complete_from = Time(i64::MAX);
    replay.from = Offsets::of(0, 2);
    replay.upto = Offsets::of(0, 12);
    let given = inputs(at(30), vec![replay]);
    assert_eq!(offsets(&lines(&queries.run("all", &given, &[], &[]).unwrap())), expected(2..12, 3, 30));
    let input = queries.input(STREAM, &given).unwrap();
    assert_eq!(input.schema(), rows(0..1).schema());
    assert_eq!(input.num_rows(), expected(2..12, 3, 30).len());
    assert_eq!(queries.extent(STREAM, &given, None).unwrap(), extent(&expected(2..12, 3, 30)));
}
