//! Rows made by SQL, one query a tick. Tick k is at anchor + k x interval and is due when that time has come; its rows have
//! the offsets `k * 2^20 + index`. Reading a tick again gives the same rows, because they are a function of (k, its time).

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use weir_model::port::{Payload, PollLimit, Polled, RowMaker, Source};
use weir_model::stream::{TICK_ROWS, tick_interval};
use weir_model::{Fault, FaultKind, OffsetRange, Offsets, Span, Time};

/// The time between two ticks, of `interval` or `rate`.
pub fn every(interval: Option<Span>, rate: Option<f64>) -> Result<Duration, Fault> {
    let wrong = |what: &str| {
        Err(Fault::tenant(FaultKind::Config, what)
            .field("source")
            .fix("write either interval = \"1s\" or rate = 1.0, greater than zero"))
    };
    match (tick_interval(interval, rate), interval, rate) {
        (Some(every), ..) => Ok(every),
        (None, Some(_), None) => wrong("interval must be at least a microsecond"),
        (None, None, Some(_)) => wrong("rate must be greater than 0 and at most 1,000,000 ticks a second"),
        _ => wrong("a generate source has an interval or a rate, one of both"),
    }
}

/// A `generate` source.
pub struct Generate {
    maker: Arc<dyn RowMaker>,
    schema: SchemaRef,
    anchor: Time,
    every: Duration,
    tick: u64,
    at_end: bool,
}

impl Generate {
    /// Goes on at `from`; a position inside of a tick does not exist.
    pub fn new(maker: Arc<dyn RowMaker>, schema: SchemaRef, anchor: Time, every: Duration, from: &Offsets) -> Self {
        Self { maker, schema, anchor, every, tick: from.get(0).div_ceil(TICK_ROWS), at_end: false }
    }

    fn time_of(&self, tick: u64) -> Time {
        let nanos = self.every.as_nanos().saturating_mul(u128::from(tick));
        Time(self.anchor.micros().saturating_add(i64::try_from(nanos / 1_000).unwrap_or(i64::MAX)))
    }

    fn rows_of(&self, tick: u64) -> Result<RecordBatch, Fault> {
        let rows = self.maker.rows(tick, self.time_of(tick))?;
        if rows.num_rows() as u64 > TICK_ROWS {
            return Err(Fault::tenant(
                FaultKind::Source,
                format_args!("tick {tick} makes {} rows, and a tick has room for {TICK_ROWS}", rows.num_rows()),
            )
            .field("source.sql")
            .fix("make fewer rows a tick, and tick more often"));
        }
        Ok(rows)
    }
}

impl Source for Generate {
    fn poll(&mut self, now: Time, limit: PollLimit, _wait: Duration) -> Result<Option<Polled>, Fault> {
        let first = self.tick;
        let (mut batches, mut offsets) = (Vec::new(), Vec::new());
        let (mut tick, mut bytes) = (first, 0);
        while self.time_of(tick) <= now && offsets.len() < limit.rows.max(1) && bytes < limit.bytes.max(1) {
            let rows = self.rows_of(tick)?;
            bytes += rows.get_array_memory_size();
            offsets.extend((0..rows.num_rows() as u64).map(|i| tick * TICK_ROWS + i));
            batches.push(rows);
            tick += 1;
            // Ticks without rows cost time too.
            if batches.len() >= 4_096 {
                break;
            }
        }
        self.at_end = self.time_of(tick) > now;
        if tick == first {
            return Ok(None);
        }
        let rows = concat_batches(&self.schema, &batches).map_err(Fault::internal)?;
        self.tick = tick;
        let range = OffsetRange { partition: 0, from: first * TICK_ROWS, to: tick * TICK_ROWS };
        Ok(Some(Polled { range, payload: Payload::Rows { rows, offsets }, taken: None }))
    }

    fn at_end(&self) -> bool {
        self.at_end
    }

    fn next_due(&self) -> Option<Time> {
        Some(self.time_of(self.tick))
    }

    fn release(&mut self, _upto: &Offsets) -> Result<(), Fault> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use arrow_array::Int64Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_schema::{DataType, Field, Schema};

    use super::*;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
    }
    /// Tick k makes k % 3 rows, each with k.
    struct Thirds;
    impl RowMaker for Thirds {
        fn rows(&self, tick: u64, _now: Time) -> Result<RecordBatch, Fault> {
            let values = vec![i64::try_from(tick).unwrap(); usize::try_from(tick % 3).unwrap()];
            Ok(RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from(values))]).unwrap())
        }
    }
    fn source(from: u64) -> Generate {
        Generate::new(Arc::new(Thirds), schema(), Time(0), Duration::from_secs(1), &Offsets::of(0, from))
    }
    fn read(source: &mut Generate, now: i64, rows: usize) -> Option<(OffsetRange, Vec<i64>, Vec<u64>)> {
        let limit = PollLimit { rows, bytes: usize::MAX };
        let polled = source.poll(Time(now * 1_000_000), limit, Duration::ZERO).unwrap()?;
        let Payload::Rows { rows, offsets } = polled.payload else { panic!("records") };
        Some((polled.range, rows.column(0).as_primitive::<Int64Type>().values().to_vec(), offsets))
    }

    #[test]
    fn ticks_are_made_when_they_are_due_and_never_split() {
        let mut s = source(0);
        let (range, values, offsets) = read(&mut s, 5, 100).unwrap();
        assert_eq!((range.from, range.to), (0, 6 << 20));
        assert_eq!(values, [1, 2, 2, 4, 5, 5]);
        assert_eq!(offsets[..3], [1 << 20, 2 << 20, (2 << 20) + 1]);
        assert!(s.at_end() && read(&mut s, 5, 100).is_none());
        assert_eq!(s.next_due(), Some(Time(6_000_000)));
    }

    #[test]
    fn a_limit_cuts_between_ticks_and_reading_again_gives_the_same() {
        let mut s = source(0);
        let mut all = Vec::new();
        while let Some((_, values, offsets)) = read(&mut s, 50, 2) {
            assert!(values.len() <= 3);
            all.extend(values.into_iter().zip(offsets));
        }
        let (_, values, offsets) = read(&mut source(0), 50, 10_000).unwrap();
        assert_eq!(all, values.into_iter().zip(offsets).collect::<Vec<_>>());
        let (range, values, _) = read(&mut source(5 << 20), 6, 100).unwrap();
        assert_eq!((range.from, values), (5 << 20, vec![5, 5]));
    }

    #[test]
    fn a_rate_is_an_interval() {
        assert_eq!(every(None, Some(4.0)).unwrap(), Duration::from_millis(250));
        assert!(every(None, Some(0.0)).is_err() && every(None, None).is_err());
        assert!(every(Some(Span::secs(1)), Some(1.0)).is_err());
    }
}
