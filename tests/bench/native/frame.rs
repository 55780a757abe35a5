//! Frames over the host's own rows.

use std::any::Any;
use std::rc::Rc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::DataType;
use weir_model::alarm::Because;
use weir_model::columns::kind_of;
use weir_sdk::backend::{self, FrameHandle};
use weir_sdk::{Blobs, DataError, Decimals, Fault, Field};

use super::{Shared, convert};

/// Rows and where they came from.
pub struct Frame {
    id: u32,
    pub rows: RecordBatch,
    pub origin: Origin,
    made: Shared,
}

/// The input, answer or output that rows came from, and which of its rows they are.
#[derive(Clone)]
pub struct Origin {
    source: Rc<str>,
    picked: Option<Rc<[u32]>>,
    start: u32,
}

impl Origin {
    pub fn new(source: &str, start: u32) -> Self {
        Self { source: source.into(), picked: None, start }
    }
    pub fn of(&self, row: u32) -> Because {
        let at = self.start + row;
        let row = self.picked.as_ref().map_or(at, |picked| picked.get(at as usize).copied().unwrap_or(at));
        Because { source: self.source.to_string(), row }
    }
}

/// Gives rows a number and a handle.
pub fn register(made: &Shared, rows: RecordBatch, origin: Origin) -> FrameHandle {
    let mut all = made.borrow_mut();
    let id = u32::try_from(all.frames.len()).unwrap();
    let frame = Rc::new(Frame { id, rows, origin, made: made.clone() });
    all.frames.push(Rc::downgrade(&frame));
    frame
}

/// The rows behind a handle.
pub fn rows_of(handle: &FrameHandle) -> Result<RecordBatch, Fault> {
    let frame = (&**handle as &dyn Any).downcast_ref::<Frame>();
    Ok(frame.ok_or(DataError::OutOfRange)?.rows.clone())
}

/// Rows that are bound by name.
pub fn bound(rows: &[(&str, &FrameHandle)]) -> Result<Vec<(String, RecordBatch)>, Fault> {
    rows.iter().map(|(name, handle)| Ok(((*name).to_owned(), rows_of(handle)?))).collect()
}

fn wrong_kind<T>(array: &dyn Array) -> Result<T, Fault> {
    Err(DataError::WrongKind(convert::back(kind_of(array.data_type()))).into())
}

fn unused<T>(what: &str) -> Result<T, Fault> {
    Err(DataError::Failed(format!("{what}: no benchmark reads it natively")).into())
}

impl Frame {
    fn array(&self, col: u32) -> Result<&ArrayRef, Fault> {
        Ok(self.rows.columns().get(col as usize).ok_or(DataError::NoSuchColumn)?)
    }
    fn derive(&self, rows: RecordBatch, origin: Origin) -> FrameHandle {
        register(&self.made, rows, origin)
    }
}

impl backend::Frame for Frame {
    fn id(&self) -> u32 {
        self.id
    }
    fn rows(&self) -> u32 {
        u32::try_from(self.rows.num_rows()).unwrap()
    }
    fn fields(&self) -> Vec<Field> {
        let schema = self.rows.schema_ref();
        let field = |field: &arrow_schema::FieldRef| {
            let kind = convert::back(kind_of(field.data_type()));
            Field { name: field.name().clone(), kind, nullable: field.is_nullable() }
        };
        schema.fields().iter().map(field).collect()
    }
    fn column(&self, name: &str) -> Option<u32> {
        u32::try_from(self.rows.schema_ref().index_of(name).ok()?).ok()
    }
    fn validity(&self, col: u32) -> Result<Option<Vec<u8>>, Fault> {
        let array = self.array(col)?;
        Ok((array.null_count() > 0).then(|| {
            let mut bits = vec![0u8; array.len().div_ceil(8)];
            (0..array.len()).filter(|row| array.is_valid(*row)).for_each(|row| bits[row / 8] |= 1 << (row % 8));
            bits
        }))
    }
    fn booleans(&self, col: u32) -> Result<Vec<u8>, Fault> {
        let array = self.array(col)?;
        let Some(array) = array.as_boolean_opt() else { return wrong_kind(array) };
        Ok(array.iter().map(|value| u8::from(value == Some(true))).collect())
    }
    fn int64s(&self, col: u32) -> Result<Vec<i64>, Fault> {
        let array = self.array(col)?;
        let Some(array) = array.as_primitive_opt::<Int64Type>() else { return wrong_kind(array) };
        Ok(match array.null_count() {
            0 => array.values().to_vec(),
            _ => array.iter().map(Option::unwrap_or_default).collect(),
        })
    }
    fn float64s(&self, col: u32) -> Result<Vec<f64>, Fault> {
        let array = self.array(col)?;
        let Some(array) = array.as_primitive_opt::<Float64Type>() else { return wrong_kind(array) };
        Ok(match array.null_count() {
            0 => array.values().to_vec(),
            _ => array.iter().map(Option::unwrap_or_default).collect(),
        })
    }
    fn timestamps(&self, col: u32) -> Result<Vec<i64>, Fault> {
        let array = self.array(col)?;
        let Some(array) = array.as_primitive_opt::<TimestampMicrosecondType>() else { return wrong_kind(array) };
        Ok(match array.null_count() {
            0 => array.values().to_vec(),
            _ => array.iter().map(Option::unwrap_or_default).collect(),
        })
    }
    fn decimals(&self, _: u32) -> Result<Decimals, Fault> {
        unused("a decimal column")
    }
    fn blobs(&self, col: u32) -> Result<Blobs, Fault> {
        let array = self.array(col)?;
        match array.data_type() {
            DataType::Utf8 if array.null_count() == 0 => {
                // Two bulk copies, as the sandbox makes them.
                let texts = array.as_string::<i32>();
                let ends = texts.value_offsets();
                let (from, to) = (ends[0] as usize, ends[ends.len() - 1] as usize);
                let offsets = ends.iter().map(|end| (*end - ends[0]) as u32).collect();
                Ok(Blobs { offsets, data: texts.value_data()[from..to].to_vec() })
            }
            DataType::Utf8 => Ok(array.as_string::<i32>().iter().map(Option::unwrap_or_default).collect()),
            DataType::Utf8View => Ok(array.as_string_view().iter().map(Option::unwrap_or_default).collect()),
            _ => wrong_kind(array),
        }
    }
    fn texts(&self, col: u32) -> Result<Blobs, Fault> {
        self.blobs(col)
    }
    fn dictionary(&self, _: u32) -> Result<(Vec<u32>, Blobs), Fault> {
        unused("a dictionary")
    }
    fn json(&self, _: &[u32]) -> Result<String, Fault> {
        unused("JSON")
    }
    fn slice(&self, start: u32, count: u32) -> Result<FrameHandle, Fault> {
        if u64::from(start) + u64::from(count) > self.rows.num_rows() as u64 {
            return Err(DataError::OutOfRange.into());
        }
        let origin = Origin { start: self.origin.start + start, ..self.origin.clone() };
        Ok(self.derive(self.rows.slice(start as usize, count as usize), origin))
    }
    fn take(&self, rows: &[u32]) -> Result<FrameHandle, Fault> {
        if rows.iter().any(|row| *row as usize >= self.rows.num_rows()) {
            return Err(DataError::OutOfRange.into());
        }
        let taken = arrow_select::take::take_record_batch(&self.rows, &UInt32Array::from(rows.to_vec()));
        let picked = rows.iter().map(|row| self.origin.of(*row).row).collect();
        let origin = Origin { picked: Some(picked), start: 0, source: self.origin.source.clone() };
        Ok(self.derive(taken.map_err(Fault::internal)?, origin))
    }
}
