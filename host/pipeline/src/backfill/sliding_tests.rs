//! The window against a plain filter over all rows, for rows that came in any order the watermark allows.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;

use arrow_array::types::{Int32Type, TimestampMicrosecondType};
use arrow_array::{Int32Array, Int64Array, TimestampMicrosecondArray};
use weir_model::stream::PARTITION;

use super::*;

const SECOND: i64 = 1_000_000;

/// (partition, offset, event time), in order.
type Row = (i32, i64, i64);

fn def(retention: &str) -> Arc<StreamDef> {
    let text = format!(
        r#"{{"event_time": "at", "watermark": "2m", "retention": "{retention}",
            "schema": {{"at": {{"type": "timestamp", "required": true}}}},
            "source": {{"type": "generate", "sql": "", "interval": "5s"}}}}"#
    );
    Arc::new(serde_json::from_str(&text).unwrap())
}

fn batch(def: &StreamDef, rows: &[Row]) -> RecordBatch {
    let at = TimestampMicrosecondArray::from_iter_values(rows.iter().map(|r| r.2)).with_timezone("UTC");
    let partition = Int32Array::from_iter_values(rows.iter().map(|r| r.0));
    let offset = Int64Array::from_iter_values(rows.iter().map(|r| r.1));
    RecordBatch::try_new(def.positioned_schema(), vec![Arc::new(at), Arc::new(partition), Arc::new(offset)]).unwrap()
}

fn rows(batch: &RecordBatch) -> Vec<Row> {
    let at = batch.column_by_name("at").unwrap().as_primitive::<TimestampMicrosecondType>().values().to_vec();
    let partition = batch.column_by_name(PARTITION).unwrap().as_primitive::<Int32Type>().values().to_vec();
    let offset = batch.column_by_name(OFFSET).unwrap().as_primitive::<Int64Type>().values().to_vec();
    (0..at.len()).map(|i| (partition[i], offset[i], at[i])).collect()
}

/// Two partitions, `per_minute` rows a minute for `minutes`, each up to two minutes before or after its place.
fn history(minutes: i64, per_minute: i64, mut seed: u64) -> Vec<Row> {
    let mut out = Vec::new();
    for partition in 0..2 {
        let mut offset = 10 * i64::from(partition);
        for i in 0..minutes * per_minute {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let early = i64::try_from(seed >> 33).unwrap() % (120 * SECOND);
            offset += 1 + i64::try_from(seed >> 60).unwrap();
            out.push((partition, offset, i * 60 * SECOND / per_minute - early));
        }
    }
    out
}

struct Bronze {
    def: Arc<StreamDef>,
    all: Vec<Row>,
    asked: RefCell<Vec<(Time, Time)>>,
}

impl Bronze {
    fn read(&self, range: BronzeRange) -> Result<Vec<RecordBatch>, Fault> {
        let to = range.to.unwrap();
        self.asked.borrow_mut().push((range.from, to));
        let inside = |r: &&Row| r.2 >= range.from.micros() && r.2 < to.micros();
        let found: Vec<Row> = self.all.iter().filter(inside).copied().collect();
        Ok(if found.is_empty() { Vec::new() } else { vec![batch(&self.def, &found)] })
    }
}

/// Compares every `nth` batch, the last one among them.
fn run(minutes: i64, per_minute: i64, retention: &str, new_only: bool, from: i64, nth: i64) -> (Sliding, Bronze) {
    let def = def(retention);
    let bronze = Bronze { def: def.clone(), all: history(minutes, per_minute, 7), asked: RefCell::default() };
    let back = def.retention.get().max(Duration::from_secs(60));
    let minute = |m: i64| Time(m * 60 * SECOND);
    let first = minute(from);
    let below = Offsets([(0, u64::MAX), (1, u64::MAX)].into());
    let id = "acme/s".parse().unwrap();
    let mut sliding = Sliding::of(id, def.clone(), 1, below, first.minus(back), minute(minutes));
    for m in from..minutes {
        let (before, time) = (minute(m - 1), minute(m));
        let seen = sliding.seen(&|range| bronze.read(range), before, time, new_only).unwrap();
        if (minutes - 1 - m) % nth != 0 {
            continue;
        }
        let only = seen.pin.only.unwrap();
        let floor = if new_only { before } else { time.minus(def.retention.get()) };
        let counts = |t: i64| t >= floor.micros() && t >= only.from.micros() && t < only.to.micros();
        let got: Vec<Row> = seen.rows.chunks.iter().flat_map(|c| rows(&c.rows)).filter(|r| counts(r.2)).collect();
        let expected: Vec<Row> = bronze.all.iter().filter(|r| counts(r.2)).copied().collect();
        assert_eq!(got, expected, "minute {m}: all rows once, in (partition, offset) order");
        let new = bronze.all.iter().filter(|r| r.2 >= before.micros() && r.2 < time.micros()).count();
        assert_eq!(seen.new, new as u64, "minute {m}");
        for chunk in &seen.rows.chunks {
            let times: Vec<i64> = rows(&chunk.rows).iter().map(|r| r.2).collect();
            assert_eq!(Some(&chunk.min_time.micros()), times.iter().min());
            assert_eq!(Some(&chunk.max_time.micros()), times.iter().max());
        }
        let latest = |p: i32| {
            let floor = time.minus(def.retention.get()).micros();
            bronze.all.iter().filter(|r| r.0 == p && r.2 >= floor && r.2 < time.micros()).map(|r| r.2).max()
        };
        let watermark = [latest(0), latest(1)].into_iter().flatten().min().map(|t| Time(t - 120 * SECOND));
        assert_eq!(seen.pin.watermark, watermark, "minute {m}");
        assert!(seen.rows.complete_from <= time.minus(def.retention.get()), "the window reaches back far enough");
    }
    (sliding, bronze)
}

#[test]
fn a_batch_sees_what_a_filter_over_all_rows_finds() {
    run(200, 30, "20m", false, 1, 1);
    run(200, 30, "20m", false, 77, 1);
    run(200, 30, "10s", false, 5, 1);
}

#[test]
fn new_rows_are_those_between_two_batches() {
    run(200, 30, "20m", true, 1, 1);
    run(200, 30, "10s", true, 30, 1);
}

/// A day of many rows: each period is read once, and what is held stays bounded.
#[test]
fn each_period_is_read_once_and_old_rows_go() {
    let (sliding, bronze) = run(1440, 400, "20m", false, 1, 131);
    let asked = bronze.asked.into_inner();
    assert!(asked.windows(2).all(|pair| pair[0].1 == pair[1].0), "one slab after the other: {asked:?}");
    assert!(asked.len() < 200, "{} slabs of a day", asked.len());
    let all = bronze.all.len() * 20;
    assert!(sliding.bytes <= KEEP_BYTES + 4 * SLAB_BYTES && all > 20 << 20, "{} of {all} bytes", sliding.bytes);
}
