//! The hot window of a stream: its latest rows as Arrow batches, in offset order per partition.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_select::concat::concat_batches;
use weir_model::stream::{Chunk, OFFSET};
use weir_model::{Fault, OffsetRange, Offsets, Time};

/// Chunks are merged up to this many rows, so that a stream that trickles does not become thousands of tiny batches.
const MERGE_ROWS: usize = 8_192;

/// Rows of one stream, shared between its ingest and its batches. Readers get chunks by reference count; a chunk never
/// changes.
#[derive(Debug)]
pub struct Window {
    inner: RwLock<Inner>,
    /// A chunk is not merged beyond this length of event time, so that eviction stays fine-grained.
    merge_span: Duration,
}

#[derive(Debug)]
struct Inner {
    partitions: BTreeMap<u32, Vec<Chunk>>,
    offsets: Offsets,
    complete_from: Time,
    latest: BTreeMap<u32, Time>,
}

/// Size of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowSize {
    /// Rows.
    pub rows: u64,
    /// Bytes of their Arrow buffers.
    pub bytes: u64,
}

impl Window {
    /// An empty window that begins at `offsets` and is complete from `complete_from` on. `retention` only sets how
    /// coarse chunks may become.
    pub fn new(offsets: Offsets, complete_from: Time, retention: Duration) -> Self {
        let inner = Inner { partitions: BTreeMap::new(), offsets, complete_from, latest: BTreeMap::new() };
        Self { inner: RwLock::new(inner), merge_span: retention / 8 }
    }

    /// Puts in rows that bronze holds already, as after a restart; does not move the offsets.
    pub fn restore(&self, chunk: Chunk) {
        let mut inner = self.write();
        inner.partitions.entry(chunk.range.partition).or_default().push(chunk);
    }

    /// Adds what was read and moves the offsets on.
    pub fn append(&self, chunk: Chunk, latest: Option<Time>) -> Result<(), Fault> {
        let mut inner = self.write();
        let partition = chunk.range.partition;
        inner.offsets.advance(partition, chunk.range.to);
        if let Some(latest) = latest {
            inner.latest.insert(partition, latest);
        }
        if chunk.rows.num_rows() == 0 {
            return Ok(());
        }
        let chunks = inner.partitions.entry(partition).or_default();
        match chunks.last_mut() {
            Some(last) if self.mergeable(last, &chunk) => *last = merge(last, &chunk)?,
            _ => chunks.push(chunk),
        }
        Ok(())
    }

    fn mergeable(&self, last: &Chunk, next: &Chunk) -> bool {
        let span = last.max_time.max(next.max_time).since(last.min_time.min(next.min_time));
        last.rows.num_rows() + next.rows.num_rows() <= MERGE_ROWS && span <= self.merge_span
    }

    /// Where the window ends.
    pub fn offsets(&self) -> Offsets {
        self.read().offsets.clone()
    }

    /// The latest event time of each partition.
    pub fn latest(&self) -> BTreeMap<u32, Time> {
        self.read().latest.clone()
    }

    /// All rows in `[from, upto)`, cut exactly, in (partition, offset) order, and the event time from which on nothing is
    /// missing below `upto`.
    pub fn rows(&self, from: &Offsets, upto: &Offsets) -> (Vec<Chunk>, Time) {
        let inner = self.read();
        let mut out = Vec::new();
        for (partition, chunks) in &inner.partitions {
            let (from, to) = (from.get(*partition), upto.get(*partition));
            out.extend(chunks.iter().filter_map(|chunk| cut(chunk, from, to)));
        }
        (out, inner.complete_from)
    }

    /// Drops chunks whose rows are all older than `before` and durable below `flushed`.
    pub fn evict(&self, before: Time, flushed: &Offsets) {
        let mut inner = self.write();
        let mut dropped = false;
        for (partition, chunks) in &mut inner.partitions {
            let upto = flushed.get(*partition);
            let held = chunks.len();
            chunks.retain(|c| c.max_time >= before || c.range.to > upto);
            dropped |= chunks.len() < held;
        }
        if dropped {
            inner.complete_from = inner.complete_from.max(before);
        }
    }

    /// The earliest event time of its rows.
    pub fn oldest(&self) -> Option<Time> {
        self.read().partitions.values().flatten().map(|c| c.min_time).min()
    }

    /// How much it holds.
    pub fn size(&self) -> WindowSize {
        let inner = self.read();
        inner.partitions.values().flatten().fold(WindowSize::default(), |sum, c| WindowSize {
            rows: sum.rows + c.rows.num_rows() as u64,
            bytes: sum.bytes + c.rows.get_array_memory_size() as u64,
        })
    }

    // A panic while the lock was held cannot leave the maps half-changed in a way that matters: every change is one push.
    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }
    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn merge(last: &Chunk, next: &Chunk) -> Result<Chunk, Fault> {
    let rows = concat_batches(&last.rows.schema(), [&last.rows, &next.rows])
        .map_err(|e| Fault::internal(format_args!("chunks of one window differ: {e}")))?;
    Ok(Chunk {
        range: OffsetRange { to: next.range.to, ..last.range },
        rows,
        min_time: last.min_time.min(next.min_time),
        max_time: last.max_time.max(next.max_time),
    })
}

/// The part of a chunk in `[from, to)`; shares its buffers. None when nothing of it is.
pub fn cut(chunk: &Chunk, from: u64, to: u64) -> Option<Chunk> {
    if chunk.range.from >= from && chunk.range.to <= to {
        return Some(chunk.clone());
    }
    let offsets = chunk.rows.column_by_name(OFFSET)?.as_primitive_opt::<Int64Type>()?.values();
    let at = |bound: u64| offsets.partition_point(|o| u64::try_from(*o).is_ok_and(|o| o < bound));
    let (start, end) = (at(from), at(to));
    (start < end).then(|| Chunk {
        range: OffsetRange {
            partition: chunk.range.partition,
            from: chunk.range.from.max(from),
            to: chunk.range.to.min(to),
        },
        rows: chunk.rows.slice(start, end - start),
        min_time: chunk.min_time,
        max_time: chunk.max_time,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow_array::{Int64Array, RecordBatch};
    use arrow_schema::{DataType, Field, Schema};

    use super::*;

    /// Rows at offsets `from..to`, one second of event time each.
    fn chunk(from: u64, to: u64) -> Chunk {
        let schema = Arc::new(Schema::new(vec![Field::new(OFFSET, DataType::Int64, false)]));
        let offsets: Vec<i64> = (from..to).map(|o| i64::try_from(o).unwrap()).collect();
        let second = |o: u64| Time(i64::try_from(o).unwrap() * 1_000_000);
        Chunk {
            range: OffsetRange { partition: 0, from, to },
            rows: RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(offsets))]).unwrap(),
            min_time: second(from),
            max_time: second(to - 1),
        }
    }

    fn seen(window: &Window, from: u64, to: u64) -> Vec<i64> {
        let (chunks, _) = window.rows(&Offsets::of(0, from), &Offsets::of(0, to));
        chunks.iter().flat_map(|c| c.rows.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
    }

    fn window() -> Window {
        let w = Window::new(Offsets::default(), Time(i64::MIN), Duration::from_secs(80));
        for from in (0..100).step_by(5) {
            w.append(chunk(from, from + 5), None).unwrap();
        }
        w
    }

    #[test]
    fn a_pin_cuts_inside_of_chunks() {
        let w = window();
        assert_eq!(seen(&w, 3, 12), (3..12).collect::<Vec<_>>());
        assert_eq!(seen(&w, 0, 100), (0..100).collect::<Vec<_>>());
        assert_eq!(seen(&w, 100, 100), Vec::<i64>::new());
    }

    #[test]
    fn only_flushed_and_old_rows_are_evicted() {
        let w = window();
        w.evict(Time(50_000_000), &Offsets::of(0, 20));
        assert_eq!(seen(&w, 0, 100)[0], 20);
        let (_, complete_from) = w.rows(&Offsets::default(), &Offsets::of(0, 100));
        assert_eq!(complete_from, Time(50_000_000));
        w.evict(Time(50_000_000), &Offsets::of(0, 100));
        assert!(seen(&w, 0, 100)[0] <= 50);
        assert_eq!(seen(&w, 50, 100), (50..100).collect::<Vec<_>>());
    }

    #[test]
    fn trickling_rows_are_merged() {
        let w = window();
        let (chunks, _) = w.rows(&Offsets::default(), &Offsets::of(0, 100));
        assert!(chunks.len() <= 10, "{} chunks for 20 appends", chunks.len());
    }
}
