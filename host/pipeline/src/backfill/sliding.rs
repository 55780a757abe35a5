//! A stream's rows around T, read from its bronze table in slabs. What is in memory does not grow with the range: rows go
//! when T has passed them by more than the stream's retention and the window is larger than it should be.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, RecordBatch, UInt32Array};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use weir_model::batch::{Between, StreamPin};
use weir_model::port::{BronzeRange, PinnedStream};
use weir_model::stream::{Chunk, OFFSET};
use weir_model::{Fault, FaultKind, Offsets, StreamDef, StreamId, Time};

use crate::stream::{Stream, by_partition, chunk_of, event_times};

/// Rows of one chunk: what a query looks at one by one at the edges of its period.
const CHUNK_ROWS: usize = 1_024;
/// A slab of fewer bytes makes the next one twice as long, one of four times as many half as long.
const SLAB_BYTES: usize = 4 << 20;
/// The longest slab.
const LONGEST: Duration = Duration::from_secs(86_400);
/// The first and the shortest slab.
const SHORTEST: Duration = Duration::from_secs(60);
/// Rows that T has passed are kept while the window is not larger: a query may look far back.
const KEEP_BYTES: usize = 16 << 20;

/// Reads rows of the stream's bronze table.
pub(super) type Read<'a> = &'a dyn Fn(BronzeRange) -> Result<Vec<RecordBatch>, Fault>;

/// The window.
pub(super) struct Sliding {
    id: StreamId,
    def: Arc<StreamDef>,
    generation: u32,
    /// Rows below these offsets are in bronze.
    below: Offsets,
    /// No slab reaches beyond.
    end: Time,
    partitions: BTreeMap<u32, VecDeque<Chunk>>,
    bytes: usize,
    complete_from: Time,
    read_to: Time,
    slab: Duration,
}

/// What a batch sees of the stream.
pub(super) struct Seen {
    pub pin: StreamPin,
    pub rows: PinnedStream,
    /// Rows since the batch before.
    pub new: u64,
}

impl Sliding {
    /// An empty window that begins at `from`. No row with an event time at or after `end` is ever asked for.
    pub fn new(stream: &Stream, from: Time, end: Time) -> Self {
        Self::of(stream.id.clone(), stream.def.clone(), stream.generation(), stream.flushed(), from, end)
    }

    fn of(id: StreamId, def: Arc<StreamDef>, generation: u32, below: Offsets, from: Time, end: Time) -> Self {
        Self {
            id,
            def,
            generation,
            below,
            end,
            partitions: BTreeMap::new(),
            bytes: 0,
            complete_from: from,
            read_to: from,
            slab: SHORTEST,
        }
    }

    /// Whose rows these are.
    pub fn stream(&self) -> (StreamId, Arc<StreamDef>) {
        (self.id.clone(), self.def.clone())
    }

    /// What the batch for `time` sees; `before` is T of the batch before it. Times only grow. Blocks.
    pub fn seen(&mut self, read: Read<'_>, before: Time, time: Time, new_only: bool) -> Result<Seen, Fault> {
        let floor = time.minus(self.def.retention.get());
        self.read(read, time)?;
        self.evict(floor.min(before));
        let only = if new_only { Between { from: before, to: time } } else { Between::before(time) };
        let first = if new_only { before } else { self.complete_from };
        let (mut chunks, mut new) = (Vec::new(), 0);
        let mut latest: BTreeMap<u32, i64> = BTreeMap::new();
        for (partition, all) in &self.partitions {
            for chunk in all.iter().filter(|c| c.max_time >= first.min(floor) && c.min_time < time) {
                let (count, last) = self.count(chunk, before, Between { from: floor, to: time })?;
                new += count;
                if let Some(last) = last {
                    let known = latest.entry(*partition).or_insert(last);
                    *known = last.max(*known);
                }
                chunks.push(chunk.clone());
            }
        }
        // A function of the rows in the window alone, so that a run that was cut short says the same when it goes on.
        let watermark = latest.values().min().map(|t| Time(*t).minus(self.def.watermark.get()));
        let rows = PinnedStream {
            stream: self.id.clone(),
            def: self.def.clone(),
            from: Offsets::default(),
            upto: self.below.clone(),
            floor,
            complete_from: self.complete_from,
            chunks,
            only: Some(only),
        };
        let pin = StreamPin {
            generation: self.generation,
            from: Offsets::default(),
            upto: self.below.clone(),
            floor,
            watermark,
            read: true,
            only: Some(only),
        };
        Ok(Seen { pin, rows, new })
    }

    /// Rows of a chunk in `[before, window.to)`, and the latest time of one in the window.
    fn count(&self, chunk: &Chunk, before: Time, window: Between) -> Result<(u64, Option<i64>), Fault> {
        let whole = chunk.max_time < window.to;
        if whole && chunk.max_time < before {
            return Ok((0, (chunk.max_time >= window.from).then_some(chunk.max_time.micros())));
        }
        let times = event_times(&chunk.rows, &self.def.event_time)?;
        let (from, to) = (before.micros(), window.to.micros());
        let new = times.iter().filter(|t| (from..to).contains(t)).count() as u64;
        let last = times.into_iter().filter(|t| (window.from.micros()..to).contains(t)).max();
        Ok((new, last))
    }

    fn read(&mut self, read: Read<'_>, to: Time) -> Result<(), Fault> {
        while self.read_to < to {
            let until = self.read_to.plus(self.slab).min(self.end.max(to));
            let event_time = self.def.event_time.clone();
            let range = BronzeRange {
                event_time: event_time.clone(),
                from: self.read_to,
                to: Some(until),
                above: Offsets::default(),
                below: self.below.clone(),
                memory: None,
            };
            let mut bytes = 0;
            let rows = match read(range) {
                Err(fault) if fault.kind == FaultKind::SqlLimit && self.slab > SHORTEST => {
                    self.slab = (self.slab / 2).max(SHORTEST);
                    continue;
                }
                rows => rows?,
            };
            for rows in rows {
                bytes += rows.get_array_memory_size();
                for chunk in by_partition(&rows, &event_time)? {
                    self.add(chunk)?;
                }
            }
            self.read_to = until;
            if bytes < SLAB_BYTES {
                self.slab = (self.slab * 2).min(LONGEST);
            } else if bytes > 4 * SLAB_BYTES {
                self.slab = (self.slab / 2).max(SHORTEST);
            }
        }
        Ok(())
    }

    /// Adds a partition's rows of a slab. Where rows came out of order, a slab has offsets between those of the slab
    /// before it: then the chunks that overlap are put in order together.
    fn add(&mut self, slab: Chunk) -> Result<(), Fault> {
        if slab.rows.num_rows() == 0 {
            return Ok(());
        }
        let event_time = &self.def.event_time;
        let chunks = self.partitions.entry(slab.range.partition).or_default();
        let mut overlap = vec![slab.rows];
        while let Some(last) = chunks.pop_back_if(|last| last.range.to > slab.range.from) {
            self.bytes -= size(&last);
            overlap.push(last.rows);
        }
        let rows = if let [rows] = overlap.as_slice() { rows.clone() } else { in_order(&overlap)? };
        for start in (0..rows.num_rows()).step_by(CHUNK_ROWS) {
            let rows = rows.slice(start, CHUNK_ROWS.min(rows.num_rows() - start));
            let offsets = offsets(&rows)?;
            let position = |at: Option<&i64>| u64::try_from(at.copied().unwrap_or(0)).map_err(Fault::internal);
            let mut range = slab.range;
            (range.from, range.to) = (position(offsets.first())?, position(offsets.last())? + 1);
            let times = event_times(&rows, event_time)?;
            let chunk = chunk_of(range, rows, &times);
            self.bytes += size(&chunk);
            chunks.push_back(chunk);
        }
        Ok(())
    }

    fn evict(&mut self, before: Time) {
        if self.bytes <= KEEP_BYTES {
            return;
        }
        for chunks in self.partitions.values_mut() {
            while let Some(old) = chunks.pop_front_if(|c| c.max_time < before) {
                self.bytes -= size(&old);
                self.complete_from = self.complete_from.max(Time(old.max_time.micros() + 1));
            }
        }
    }
}

/// A share of the slab's buffers: slices of one slab say of the whole slab how large it is.
fn size(chunk: &Chunk) -> usize {
    let columns = chunk.rows.columns().iter().map(|c| c.to_data().get_slice_memory_size().unwrap_or(0));
    columns.sum()
}

fn offsets(rows: &RecordBatch) -> Result<&[i64], Fault> {
    rows.column_by_name(OFFSET)
        .and_then(|c| c.as_primitive_opt::<Int64Type>())
        .map(|c| &**c.values())
        .ok_or_else(|| Fault::internal("bronze rows without offsets"))
}

fn in_order(parts: &[RecordBatch]) -> Result<RecordBatch, Fault> {
    let rows = concat_batches(&parts[0].schema(), parts).map_err(Fault::internal)?;
    let offsets = offsets(&rows)?;
    let mut order: Vec<u32> = (0..u32::try_from(rows.num_rows()).map_err(Fault::internal)?).collect();
    order.sort_unstable_by_key(|i| offsets[*i as usize]);
    take_record_batch(&rows, &UInt32Array::from(order)).map_err(Fault::internal)
}

#[cfg(test)]
#[path = "sliding_tests.rs"]
mod tests;
