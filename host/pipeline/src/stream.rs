//! One stream: source -> decode -> lateness -> hot window; bronze and dead letters as its sinks, idempotent by position.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{ArrayRef, BooleanArray, Int32Array, Int64Array, RecordBatch, UInt32Array};
use arrow_select::filter::filter_record_batch;
use weir_model::batch::{DEAD_LETTERS, StreamPin};
use weir_model::port::{Append, BronzeRange, Decode, Decoded, PinnedStream, PollLimit, Source};
use weir_model::stream::{BronzeCursor, Chunk, DeadLetter, OFFSET, PARTITION, StreamDef, StreamMeta};
use weir_model::{Digest, Fault, FaultKind, Name, OffsetRange, Offsets, StreamId, Time};

use crate::decide::late::{self, Bounds, Row};
use crate::engines::Engines;
use crate::generation::meta;
use crate::output;
use crate::share::{Part, Share};
use crate::window::Window;

/// How much is kept in the hot window beyond the stream's retention, so that a batch that runs a little late still
/// finds its whole window there.
const SLACK: Duration = Duration::from_secs(60);

/// A stream that is being ingested. Shared by its loop and by the batches that read it.
pub struct Stream {
    /// Its identity.
    pub id: StreamId,
    /// Its definition.
    pub def: Arc<StreamDef>,
    /// Digest of the definition.
    pub definition: Digest,
    /// Its rows.
    pub window: Window,
    meta: StreamMeta,
    inner: Mutex<Inner>,
    part: Part,
    /// One flush at a time: two would append the rows between their ends twice.
    flushing: Mutex<()>,
    dead: AtomicU64,
    late: AtomicU64,
}

struct Inner {
    source: Box<dyn Source>,
    decode: Box<dyn Decode>,
    latest: BTreeMap<u32, Time>,
    cursor: BronzeCursor,
    /// Dead letters and late rows above the bronze cursor.
    aside: Vec<DeadLetter>,
    fault: Option<Fault>,
}

/// What one read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ingested {
    /// Rows put into the window.
    pub rows: usize,
    /// Whether the source had nothing more at that moment.
    pub at_end: bool,
}

impl Stream {
    /// Opens a stream where its bronze table ends, with its hot window read back. Blocks.
    pub fn open(
        engines: &Engines,
        id: StreamId,
        def: Arc<StreamDef>,
        definition: Digest,
        share: Arc<Share>,
    ) -> Result<Self, Fault> {
        let part = Part::of(share);
        let now = engines.clock.now();
        let mut cursor = engines.ledger.bronze(&id)?;
        let meta = meta(engines, &id, &def, definition, &cursor, now)?;
        let table = table_name(&id, &def);
        let schema = def.positioned_schema();
        let runtime = &engines.runtime;
        let bronze = runtime.block_on(engines.lake.table(&id.tenant, &table, schema.clone()))?;
        let table_id = runtime.block_on(bronze.id())?;
        check_table(&id, &table, &cursor, &table_id)?;
        cursor.table_id = Some(table_id);
        let partitions: Vec<u32> = cursor.flushed.0.keys().copied().chain([0]).collect();
        for partition in partitions {
            let app = app(engines, &meta, "bronze", partition);
            let held = runtime.block_on(bronze.held(&app))?.and_then(|v| u64::try_from(v).ok()).unwrap_or(0);
            if held > cursor.flushed.get(partition) {
                // The host ended between the append and the note of it: the table is right.
                let range = BronzeRange {
                    event_time: def.event_time.clone(),
                    from: Time(i64::MIN),
                    to: None,
                    above: cursor.flushed.clone(),
                    below: Offsets::of(partition, held),
                    memory: None,
                };
                let rows = runtime.block_on(engines.lake.bronze(&id.tenant, &table, schema.clone(), range))?;
                for rows in rows {
                    let times = event_times(&rows, &def.event_time)?;
                    if let Some(max) = times.iter().max() {
                        let latest = cursor.max_time.entry(partition).or_insert(Time(*max));
                        *latest = (*latest).max(Time(*max));
                    }
                }
                cursor.flushed.advance(partition, held);
            }
        }
        let complete_from = now.minus(def.retention.get()).minus(SLACK);
        let window = Window::new(cursor.flushed.clone(), complete_from, def.retention.get());
        if !cursor.flushed.0.is_empty() {
            let range = BronzeRange {
                event_time: def.event_time.clone(),
                from: complete_from,
                to: None,
                above: Offsets::default(),
                below: cursor.flushed.clone(),
                memory: Some(part.read_back()),
            };
            let rows = runtime.block_on(engines.lake.bronze(&id.tenant, &table, schema, range));
            let too_large = |f: Fault| if f.kind == FaultKind::SqlLimit { part.too_large(&id) } else { f };
            for rows in rows.map_err(too_large)? {
                for chunk in by_partition(&rows, &def.event_time)? {
                    window.restore(chunk);
                }
            }
        }
        let journal = engines.ledger.journal(&id);
        let (source, decode) = engines.sources.open(&id, &def, &meta, &cursor.flushed, journal)?;
        let latest = cursor.max_time.clone();
        let inner = Inner { source, decode, latest, cursor, aside: Vec::new(), fault: None };
        let (dead, late) = (AtomicU64::new(0), AtomicU64::new(0));
        part.hold(window.size().bytes);
        let (inner, flushing) = (Mutex::new(inner), Mutex::new(()));
        Ok(Self { id, def, definition, window, meta, inner, part, flushing, dead, late })
    }

    /// Reads once, bounded by `limit`, waiting up to `wait` for the first record. Blocks.
    pub fn ingest(&self, engines: &Engines, limit: PollLimit, wait: Duration) -> Result<Ingested, Fault> {
        let mut inner = self.lock();
        let result = self.ingest_locked(&mut inner, engines, limit, wait);
        inner.fault = result.as_ref().err().cloned();
        result
    }

    fn ingest_locked(
        &self,
        inner: &mut Inner,
        engines: &Engines,
        limit: PollLimit,
        wait: Duration,
    ) -> Result<Ingested, Fault> {
        engines.faults.pass("ingest.read")?;
        self.part.room(&self.id)?;
        let Some(polled) = inner.source.poll(engines.clock.now(), limit, wait)? else {
            return Ok(Ingested { rows: 0, at_end: inner.source.at_end() });
        };
        let decoded = inner.decode.decode(polled)?;
        engines.faults.pass("ingest.window")?;
        let partition = decoded.range.partition;
        let (chunk, mut aside) = self.positioned(decoded, &mut inner.latest)?;
        let rows = chunk.rows.num_rows();
        self.window.append(chunk, inner.latest.get(&partition).copied())?;
        inner.aside.append(&mut aside);
        self.held(inner);
        metrics::counter!("weir_stream_rows_total", "tenant" => self.id.tenant.to_string(), "stream" => self.id.stream.to_string())
            .increment(rows as u64);
        Ok(Ingested { rows, at_end: inner.source.at_end() })
    }

    /// Reads until the source has nothing more, or `most` reads were done. Answers whether it has nothing more.
    pub fn read_to_end(&self, engines: &Engines, limit: PollLimit, most: usize) -> Result<bool, Fault> {
        for _ in 0..most {
            if self.ingest(engines, limit, Duration::ZERO)?.at_end {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// When it is worth to read again, if the source knows.
    pub fn next_due(&self) -> Option<Time> {
        self.lock().source.next_due()
    }

    /// Puts late rows and those that are ahead aside, and adds the position columns.
    fn positioned(
        &self,
        decoded: Decoded,
        latest: &mut BTreeMap<u32, Time>,
    ) -> Result<(Chunk, Vec<DeadLetter>), Fault> {
        let Decoded { range, rows, offsets, dead, taken } = decoded;
        let mut aside = dead;
        let times = event_times(&rows, &self.def.event_time)?;
        let mut max = latest.get(&range.partition).copied();
        let judged = late::judge(&times, Bounds::of(&self.def, taken), &mut max);
        if let Some(max) = max {
            latest.insert(range.partition, max);
        }
        let (rows, times, offsets) = if judged.iter().all(|row| *row == Row::Kept) {
            (rows, times, offsets)
        } else {
            for (i, row) in judged.iter().enumerate().filter(|(_, row)| **row != Row::Kept) {
                let reason = self.why_aside(*row, Time(times[i]), taken);
                let raw = output::row_json(&rows, i);
                aside.push(DeadLetter { partition: range.partition, offset: offsets[i], reason, raw });
            }
            let keep: Vec<bool> = judged.iter().map(|row| *row == Row::Kept).collect();
            let kept = filter_record_batch(&rows, &BooleanArray::from(keep.clone())).map_err(internal)?;
            let times = times.iter().zip(&keep).filter(|(_, k)| **k).map(|(t, _)| *t).collect::<Vec<_>>();
            let offsets = offsets.iter().zip(&keep).filter(|(_, k)| **k).map(|(o, _)| *o).collect();
            (kept, times, offsets)
        };
        let late = judged.iter().filter(|row| **row == Row::Late).count() as u64;
        self.late.fetch_add(late, Ordering::Relaxed);
        self.dead.fetch_add(aside.len() as u64 - late, Ordering::Relaxed);
        aside.sort_by_key(|d| d.offset);
        let rows = with_positions(&self.def, range.partition, &rows, &offsets)?;
        Ok((chunk_of(range, rows, &times), aside))
    }

    fn why_aside(&self, row: Row, time: Time, taken: Option<Time>) -> String {
        let column = &self.def.event_time;
        match row {
            Row::Ahead => format!(
                "ahead: {column} {time} is more than {} after {}, when the row was taken in",
                self.def.ahead(),
                taken.unwrap_or_default()
            ),
            Row::Late | Row::Kept => {
                format!(
                    "late: {column} {time} is more than {} before the latest row of its partition",
                    self.def.watermark
                )
            }
        }
    }

    /// What a batch for `time` sees now. `from`: where the run's batch before ended. `read`: whether the source was read
    /// to its end.
    pub fn pin(&self, from: Offsets, time: Time, read: bool) -> StreamPin {
        let lateness = self.def.watermark.get();
        let watermark = self.window.latest().values().map(|t| t.minus(lateness)).min();
        StreamPin {
            generation: self.meta.generation,
            from,
            upto: self.window.offsets(),
            floor: time.minus(self.def.retention.get()),
            watermark,
            read,
            only: None,
        }
    }

    /// The rows of a pin.
    pub fn pinned(&self, pin: &StreamPin, new_only: bool) -> PinnedStream {
        let from = if new_only { pin.from.clone() } else { Offsets::default() };
        let (chunks, complete_from) = self.window.rows(&from, &pin.upto);
        PinnedStream {
            stream: self.id.clone(),
            def: self.def.clone(),
            from,
            upto: pin.upto.clone(),
            floor: pin.floor,
            complete_from,
            chunks,
            only: pin.only,
        }
    }

    /// Appends what is not in the bronze table yet, dead letters first, notes it, and lets window and source drop what
    /// need not be kept. Blocks.
    pub fn flush(&self, engines: &Engines) -> Result<(), Fault> {
        let _one_at_a_time = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        let upto = self.window.offsets();
        let (flushed, aside) = {
            let inner = self.lock();
            (
                inner.cursor.flushed.clone(),
                inner.aside.iter().filter(|d| d.offset < upto.get(d.partition)).cloned().collect::<Vec<_>>(),
            )
        };
        let runtime = &engines.runtime;
        self.flush_aside(engines, aside)?;
        let (chunks, _) = self.window.rows(&flushed, &upto);
        let mut items: BTreeMap<u32, Vec<RecordBatch>> = BTreeMap::new();
        for chunk in chunks {
            items.entry(chunk.range.partition).or_default().push(chunk.rows);
        }
        let mut max_time = BTreeMap::new();
        if !items.is_empty() {
            let schema = self.def.positioned_schema();
            let table = table_name(&self.id, &self.def);
            let bronze = runtime.block_on(engines.lake.table(&self.id.tenant, &table, schema.clone()))?;
            let known = self.lock().cursor.clone();
            let table_id = runtime.block_on(bronze.id())?;
            check_table(&self.id, &table, &known, &table_id)?;
            let mut appends = Vec::new();
            for (partition, rows) in items {
                let rows = arrow_select::concat::concat_batches(&schema, &rows).map_err(internal)?;
                if let Some(max) = event_times(&rows, &self.def.event_time)?.iter().max() {
                    max_time.insert(partition, Time(*max));
                }
                let version = i64::try_from(upto.get(partition)).unwrap_or(i64::MAX);
                appends.push(Append { app: app(engines, &self.meta, "bronze", partition), version, rows });
            }
            engines.faults.pass("bronze.before-append")?;
            runtime.block_on(bronze.append(appends))?;
            engines.faults.pass("bronze.after-append")?;
        }
        let mut inner = self.lock();
        for (partition, next) in &upto.0 {
            inner.cursor.flushed.advance(*partition, *next);
        }
        for (partition, max) in max_time {
            let latest = inner.cursor.max_time.entry(partition).or_insert(max);
            *latest = max.max(*latest);
        }
        inner.aside.retain(|d| d.offset >= upto.get(d.partition));
        engines.ledger.put_bronze(&self.id, &inner.cursor)?;
        engines.faults.pass("bronze.after-cursor")?;
        inner.source.release(&upto)?;
        let before = engines.clock.now().minus(self.def.retention.get()).minus(SLACK);
        self.window.evict(before, &upto);
        self.held(&inner);
        Ok(())
    }

    /// Takes note of how much is in memory.
    fn held(&self, inner: &Inner) {
        let aside: usize = inner.aside.iter().map(|d| d.raw.len() + d.reason.len()).sum();
        self.part.hold(self.window.size().bytes + aside as u64);
    }

    fn flush_aside(&self, engines: &Engines, aside: Vec<DeadLetter>) -> Result<(), Fault> {
        if aside.is_empty() {
            return Ok(());
        }
        let name = Name::new(DEAD_LETTERS).map_err(Fault::internal)?;
        let runtime = &engines.runtime;
        let table = runtime.block_on(engines.lake.table(&self.id.tenant, &name, output::dead_letter_schema()))?;
        let mut by_partition: BTreeMap<u32, Vec<DeadLetter>> = BTreeMap::new();
        for letter in aside {
            by_partition.entry(letter.partition).or_default().push(letter);
        }
        let mut appends = Vec::new();
        for (partition, letters) in by_partition {
            let app = app(engines, &self.meta, "dead", partition);
            let held = runtime.block_on(table.held(&app))?.and_then(|v| u64::try_from(v).ok()).unwrap_or(0);
            let letters: Vec<DeadLetter> = letters.into_iter().filter(|d| d.offset >= held).collect();
            let Some(last) = letters.last() else { continue };
            let version = i64::try_from(last.offset + 1).unwrap_or(i64::MAX);
            appends.push(Append { app, version, rows: output::dead_letters_of_stream(&self.id, &letters)? });
        }
        if appends.is_empty() { Ok(()) } else { runtime.block_on(table.append(appends)) }
    }

    /// Its generation.
    pub fn generation(&self) -> u32 {
        self.meta.generation
    }
    /// How far its bronze table is.
    pub fn flushed(&self) -> Offsets {
        self.lock().cursor.flushed.clone()
    }
    /// Dead letters and late rows since it was opened.
    pub fn put_aside(&self) -> (u64, u64) {
        (self.dead.load(Ordering::Relaxed), self.late.load(Ordering::Relaxed))
    }
    /// Why the last read failed, if it did.
    pub fn fault(&self) -> Option<Fault> {
        self.lock().fault.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn internal(e: arrow_schema::ArrowError) -> Fault {
    Fault::internal(e)
}

/// Who appends to a stream's tables: ledger, stream and partition, so that a restored backup is noticed.
pub(crate) fn app(engines: &Engines, meta: &StreamMeta, what: &str, partition: u32) -> String {
    format!("{}/{}/{what}/{partition}", engines.ledger.incarnation(), meta.incarnation)
}

/// The stream's bronze table.
pub(crate) fn table_name(id: &StreamId, def: &StreamDef) -> Name {
    def.table.clone().unwrap_or_else(|| id.stream.clone())
}

fn check_table(id: &StreamId, table: &Name, cursor: &BronzeCursor, found: &str) -> Result<(), Fault> {
    match &cursor.table_id {
        Some(known) if known != found && !cursor.flushed.0.is_empty() => Err(Fault::external(
            FaultKind::SinkMismatch,
            format_args!("the bronze table {table} of stream {id} is not the one that was written before"),
        )
        .file(format_args!("lake/{}/{table}", id.tenant))
        .fix("put the old table back, or give the stream a table of another name")),
        _ => Ok(()),
    }
}

pub(crate) fn event_times(rows: &RecordBatch, column: &str) -> Result<Vec<i64>, Fault> {
    rows.column_by_name(column)
        .and_then(|c| c.as_primitive_opt::<TimestampMicrosecondType>())
        .map(|c| c.values().to_vec())
        .ok_or_else(|| Fault::internal(format_args!("rows without the event-time column {column}")))
}

fn with_positions(def: &StreamDef, partition: u32, rows: &RecordBatch, offsets: &[u64]) -> Result<RecordBatch, Fault> {
    let partition = i32::try_from(partition).map_err(Fault::internal)?;
    let offsets = offsets.iter().map(|o| i64::try_from(*o)).collect::<Result<Vec<_>, _>>().map_err(Fault::internal)?;
    let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
    columns.push(Arc::new(Int32Array::from(vec![partition; offsets.len()])));
    columns.push(Arc::new(Int64Array::from(offsets)));
    RecordBatch::try_new(def.positioned_schema(), columns).map_err(internal)
}

pub(crate) fn chunk_of(range: OffsetRange, rows: RecordBatch, times: &[i64]) -> Chunk {
    let min_time = times.iter().min().map_or(Time(i64::MAX), |t| Time(*t));
    let max_time = times.iter().max().map_or(Time(i64::MIN), |t| Time(*t));
    Chunk { range, rows, min_time, max_time }
}

/// Splits rows of a bronze table into one chunk a partition.
pub(crate) fn by_partition(rows: &RecordBatch, event_time: &str) -> Result<Vec<Chunk>, Fault> {
    let columns = (
        rows.column_by_name(PARTITION).and_then(|c| c.as_primitive_opt::<arrow_array::types::Int32Type>()),
        rows.column_by_name(OFFSET).and_then(|c| c.as_primitive_opt::<arrow_array::types::Int64Type>()),
    );
    let (Some(partitions), Some(offsets)) = columns else {
        return Err(Fault::internal("bronze rows without positions"));
    };
    let mut by: BTreeMap<i32, Vec<u32>> = BTreeMap::new();
    for (i, p) in (0u32..).zip(partitions.values()) {
        by.entry(*p).or_default().push(i);
    }
    let mut out = Vec::new();
    for (partition, at) in by {
        let first = offsets.value(at[0] as usize);
        let last = offsets.value(at[at.len() - 1] as usize);
        let rows = arrow_select::take::take_record_batch(rows, &UInt32Array::from(at)).map_err(internal)?;
        let times = event_times(&rows, event_time)?;
        let position = |v: i64| u64::try_from(v).map_err(Fault::internal);
        let range = OffsetRange {
            partition: u32::try_from(partition).map_err(Fault::internal)?,
            from: position(first)?,
            to: position(last)? + 1,
        };
        out.push(chunk_of(range, rows, &times));
    }
    Ok(out)
}
