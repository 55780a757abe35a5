//! Frames: immutable columns that a guest pulls one by one.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;
use wasmtime::Result;
use wasmtime::component::Resource;
use weir_model::columns::kind_of;
use weir_model::{CallError, DataError, Fault};

use super::bindings::weir::detect::batches::{Field, HostFrame};
use super::bindings::weir::detect::types;
use super::table::{FrameHandle, Held, stale};
use crate::call::Call;
use crate::columns::{Blobs, ColumnError, Decimals, Dictionary, pull, render, size};
use crate::limits::{Charge, out_of_memory};

type Answer<T> = std::result::Result<T, CallError>;

/// Rendering a value costs about this many times what copying it does.
const RENDER: u64 = 20;

/// Rows, where they came from, and the memory that they are charged for.
#[derive(Debug)]
pub struct Frame {
    /// The rows.
    pub rows: RecordBatch,
    /// Where they came from, for receipts.
    pub origin: Origin,
    /// Shared by all slices of the same rows.
    pub charge: Arc<Charge>,
}

/// The input, answer or output that rows came from, and which of its rows they are.
#[derive(Debug, Clone)]
pub struct Origin {
    source: Arc<str>,
    /// Rows that were taken out of the source; none: all of them.
    picked: Option<Arc<[u32]>>,
    start: u32,
}

impl Origin {
    /// All rows of a source, from row `start` on.
    pub fn new(source: &str, start: u32) -> Self {
        Self { source: source.into(), picked: None, start }
    }

    /// Which row of which source a row of the frame is.
    pub fn of(&self, row: u32) -> weir_model::alarm::Because {
        let at = self.start.saturating_add(row);
        weir_model::alarm::Because {
            source: self.source.to_string(),
            row: match &self.picked {
                None => at,
                Some(picked) => picked.get(at as usize).copied().unwrap_or(at),
            },
        }
    }

    fn sliced(&self, start: u32) -> Self {
        Self { start: self.start + start, ..self.clone() }
    }

    fn taken(&self, rows: &[u32]) -> Self {
        Self { picked: Some(rows.iter().map(|row| self.of(*row).row).collect()), start: 0, source: self.source.clone() }
    }
}

impl Frame {
    /// Number of rows. Never more than a u32 counts: no frame is larger than the memory limit, and each row has a byte.
    pub fn len(&self) -> u32 {
        u32::try_from(self.rows.num_rows()).unwrap_or(u32::MAX)
    }

    /// A column by its index.
    pub fn column(&self, col: u32) -> std::result::Result<&ArrayRef, DataError> {
        self.rows.columns().get(col as usize).ok_or(DataError::NoSuchColumn)
    }
}

impl Call {
    /// The frame of a handle. Counts as a call.
    pub fn frame(&mut self, handle: &Resource<FrameHandle>) -> std::result::Result<Arc<Frame>, Fault> {
        self.enter()?;
        self.held_frame(handle.rep()).ok_or_else(stale)
    }

    /// The frame of a number, if it is still held.
    pub fn held_frame(&self, number: u32) -> Option<Arc<Frame>> {
        match self.batch.table.get(number) {
            Some(Held::Frame(frame)) => Some(frame.clone()),
            _ => None,
        }
    }

    /// Gives rows to the guest. They are charged until it drops them.
    pub fn new_frame(&mut self, rows: RecordBatch, origin: Origin) -> Answer<Resource<FrameHandle>> {
        let charge = Arc::new(self.meter.hold(size::of_batch(&rows))?);
        self.add_frame(Arc::new(Frame { rows, origin, charge }))
    }

    /// Another handle of a frame.
    pub fn add_frame(&mut self, frame: Arc<Frame>) -> Answer<Resource<FrameHandle>> {
        let most = self.limits().handles;
        Ok(Resource::new_own(self.batch.table.add(Held::Frame(frame), most)?))
    }

    /// What a column's error is for the guest, or for the call.
    pub fn column_error(&self, error: ColumnError) -> CallError {
        match error {
            ColumnError::Data(error) => error.into(),
            ColumnError::TooBig => out_of_memory(self.limits()).into(),
        }
    }

    /// A column as the guest asks for it. `weight`: work for each byte of the answer.
    fn pull<T: Weigh>(
        &mut self,
        handle: &Resource<FrameHandle>,
        col: u32,
        weight: u64,
        of: impl FnOnce(&ArrayRef, u64) -> std::result::Result<T, ColumnError>,
    ) -> Answer<T> {
        let frame = self.frame(handle)?;
        let column = frame.column(col)?;
        self.meter.work(u64::from(frame.len()))?;
        let out = of(column, self.limits().memory_bytes).map_err(|e| self.column_error(e))?;
        self.meter.work(out.bytes().saturating_mul(weight))?;
        Ok(out)
    }
}

/// How many bytes an answer has.
trait Weigh {
    fn bytes(&self) -> u64;
}
impl<T> Weigh for Vec<T> {
    fn bytes(&self) -> u64 {
        size_of_val(self.as_slice()) as u64
    }
}
impl Weigh for Blobs {
    fn bytes(&self) -> u64 {
        self.offsets.bytes() + self.data.bytes()
    }
}
impl Weigh for Decimals {
    fn bytes(&self) -> u64 {
        self.low.bytes() + self.high.bytes()
    }
}
impl Weigh for Dictionary {
    fn bytes(&self) -> u64 {
        // Each row was hashed.
        8 * self.codes.bytes() + self.values.bytes()
    }
}

impl HostFrame for Call {
    fn id(&mut self, frame: Resource<FrameHandle>) -> Result<u32> {
        self.frame(&frame)?;
        Ok(frame.rep())
    }

    fn rows(&mut self, frame: Resource<FrameHandle>) -> Result<u32> {
        Ok(self.frame(&frame)?.len())
    }

    fn fields(&mut self, frame: Resource<FrameHandle>) -> Result<Vec<Field>> {
        let frame = self.frame(&frame)?;
        let schema = frame.rows.schema_ref();
        self.meter.work(schema.fields().len() as u64 * 64)?;
        Ok(schema
            .fields()
            .iter()
            .map(|field| Field {
                name: field.name().clone(),
                kind: kind_of(field.data_type()).into(),
                nullable: field.is_nullable(),
            })
            .collect())
    }

    fn column(&mut self, frame: Resource<FrameHandle>, name: String) -> Result<Option<u32>> {
        let frame = self.frame(&frame)?;
        let index = frame.rows.schema_ref().index_of(&name).ok();
        Ok(index.and_then(|i| u32::try_from(i).ok()))
    }

    fn validity(&mut self, frame: Resource<FrameHandle>, col: u32) -> Answer<Option<Vec<u8>>> {
        let frame = self.frame(&frame)?;
        let column = frame.column(col)?;
        self.meter.work(u64::from(frame.len()))?;
        Ok(pull::validity(column))
    }

    fn booleans(&mut self, frame: Resource<FrameHandle>, col: u32) -> Answer<Vec<u8>> {
        self.pull(&frame, col, 1, pull::booleans)
    }

    fn int64s(&mut self, frame: Resource<FrameHandle>, col: u32) -> Answer<Vec<i64>> {
        self.pull(&frame, col, 1, pull::int64s)
    }

    fn float64s(&mut self, frame: Resource<FrameHandle>, col: u32) -> Answer<Vec<f64>> {
        self.pull(&frame, col, 1, pull::float64s)
    }

    fn timestamps(&mut self, frame: Resource<FrameHandle>, col: u32) -> Answer<Vec<i64>> {
        self.pull(&frame, col, 1, pull::timestamps)
    }

    fn decimals(&mut self, frame: Resource<FrameHandle>, col: u32) -> Answer<types::Decimals> {
        Ok(self.pull(&frame, col, 1, pull::decimals)?.into())
    }

    fn blobs(&mut self, frame: Resource<FrameHandle>, col: u32) -> Answer<types::Blobs> {
        Ok(self.pull(&frame, col, 1, pull::blobs)?.into())
    }

    fn texts(&mut self, frame: Resource<FrameHandle>, col: u32) -> Answer<types::Blobs> {
        Ok(self.pull(&frame, col, RENDER, render::texts)?.into())
    }

    fn dictionary(&mut self, frame: Resource<FrameHandle>, col: u32) -> Answer<types::Dictionary> {
        Ok(self.pull(&frame, col, 1, pull::dictionary)?.into())
    }

    fn json(&mut self, frame: Resource<FrameHandle>, columns: Vec<u32>) -> Answer<String> {
        let frame = self.frame(&frame)?;
        for col in &columns {
            frame.column(*col)?;
        }
        let indexes: Vec<usize> = columns.iter().map(|col| *col as usize).collect();
        let picked;
        let rows = if columns.is_empty() {
            &frame.rows
        } else {
            picked = frame.rows.project(&indexes).map_err(|e| DataError::Failed(e.to_string()))?;
            &picked
        };
        let cells = u64::from(frame.len()) * rows.num_columns() as u64;
        self.meter.work(cells * RENDER)?;
        let out = render::json(rows, self.limits().memory_bytes).map_err(|e| self.column_error(e))?;
        self.meter.work(out.len() as u64 * RENDER)?;
        Ok(out)
    }

    fn slice(&mut self, frame: Resource<FrameHandle>, start: u32, count: u32) -> Answer<Resource<FrameHandle>> {
        let frame = self.frame(&frame)?;
        if start.checked_add(count).is_none_or(|end| end > frame.len()) {
            return Err(DataError::OutOfRange.into());
        }
        self.meter.work(frame.rows.num_columns() as u64 * 64)?;
        self.add_frame(Arc::new(Frame {
            rows: frame.rows.slice(start as usize, count as usize),
            origin: frame.origin.sliced(start),
            charge: frame.charge.clone(),
        }))
    }

    fn take(&mut self, frame: Resource<FrameHandle>, rows: Vec<u32>) -> Answer<Resource<FrameHandle>> {
        let frame = self.frame(&frame)?;
        if rows.iter().any(|row| *row >= frame.len()) {
            return Err(DataError::OutOfRange.into());
        }
        let columns = frame.rows.columns();
        self.meter.work((rows.len() as u64).saturating_mul(columns.len() as u64))?;
        // Rows may repeat, so that a small frame could become a huge one.
        let bytes = size_of_val(rows.as_slice()) as u64 + columns.iter().map(|c| size::of_rows(c, &rows)).sum::<u64>();
        let charge = self.meter.hold(bytes)?;
        self.meter.work(bytes)?;
        let origin = frame.origin.taken(&rows);
        let taken =
            take_record_batch(&frame.rows, &UInt32Array::from(rows)).map_err(|e| DataError::Failed(e.to_string()))?;
        self.add_frame(Arc::new(Frame { rows: taken, origin, charge: Arc::new(charge) }))
    }

    fn drop(&mut self, frame: Resource<FrameHandle>) -> Result<()> {
        self.batch.table.remove(frame.rep());
        Ok(())
    }
}
