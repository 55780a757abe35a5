//! Writing rows.

use crate::backend::prelude::*;
use crate::frame::index;
use crate::{Blobs, Decimals, Fault, Frame, Named, Scalar, Time, Validity};

/// Rows that are being written, column by column. They count when [`Self::finish`] has returned.
///
/// ```
/// # use weir_sdk::{Batch, Fault, Frame};
/// fn report(b: &Batch, hits: &Frame, scores: &[f64]) -> Result<(), Fault> {
///     b.output("results")
///         .copy("host", hits, "host")?                  // stays on the host
///         .float64s("score", scores)?                   // values, or options of them
///         .fill([("alarm_time", b.time())], hits.rows())?
///         .finish()?;
///     Ok(())
/// }
/// ```
#[must_use = "its rows count only after `finish`"]
pub struct Writer {
    handle: WriterHandle,
    /// What it writes, for errors.
    what: String,
}

/// What can stand in a column of `T`: a value, or an option of one, which is null when it is none.
pub trait Cell<T> {
    /// The value.
    fn value(self) -> Option<T>;
}
macro_rules! cells {
    ($($ty:ty)*) => {$(
        impl Cell<$ty> for $ty {
            fn value(self) -> Option<$ty> {
                Some(self)
            }
        }
        impl Cell<$ty> for &$ty {
            fn value(self) -> Option<$ty> {
                Some(*self)
            }
        }
        impl Cell<$ty> for Option<$ty> {
            fn value(self) -> Option<$ty> {
                self
            }
        }
    )*};
}
cells!(bool i64 f64 i128 Time);

/// What can stand in a column of texts or bytes: a text, bytes, or an option of them, which is null when it is none.
pub trait BlobCell {
    /// The value.
    fn bytes(&self) -> Option<&[u8]>;
}
macro_rules! blob_cells {
    ($($ty:ty)*) => {$(
        impl BlobCell for $ty {
            fn bytes(&self) -> Option<&[u8]> {
                Some(self.as_ref())
            }
        }
    )*};
}
blob_cells!(&str &&str String &String &[u8] Vec<u8> &Vec<u8>);
impl<T: BlobCell> BlobCell for Option<T> {
    fn bytes(&self) -> Option<&[u8]> {
        self.as_ref()?.bytes()
    }
}

impl Writer {
    pub(crate) fn new(handle: WriterHandle, what: String) -> Self {
        Self { handle, what }
    }

    /// A boolean column.
    pub fn booleans<C: Cell<bool>>(self, column: &str, cells: impl IntoIterator<Item = C>) -> Result<Self, Fault> {
        let (values, validity) = gather(cells, |cell| cell.value().map(u8::from));
        self.write(column, Values::Booleans(&values), &validity)
    }
    /// An int64 column.
    pub fn int64s<C: Cell<i64>>(self, column: &str, cells: impl IntoIterator<Item = C>) -> Result<Self, Fault> {
        let (values, validity) = gather(cells, Cell::value);
        self.write(column, Values::Int64s(&values), &validity)
    }
    /// A float64 column.
    pub fn float64s<C: Cell<f64>>(self, column: &str, cells: impl IntoIterator<Item = C>) -> Result<Self, Fault> {
        let (values, validity) = gather(cells, Cell::value);
        self.write(column, Values::Float64s(&values), &validity)
    }
    /// A timestamp or date column.
    pub fn timestamps<C: Cell<Time>>(self, column: &str, cells: impl IntoIterator<Item = C>) -> Result<Self, Fault> {
        let (values, validity) = gather(cells, |cell| cell.value().map(Time::micros));
        self.write(column, Values::Timestamps(&values), &validity)
    }
    /// A decimal column of unscaled values: 12.50 with scale 2 is 1250.
    pub fn decimals<C: Cell<i128>>(
        self,
        column: &str,
        scale: i8,
        cells: impl IntoIterator<Item = C>,
    ) -> Result<Self, Fault> {
        let (values, validity) = gather(cells, Cell::value);
        let values = Values::Decimals(Decimals::new(scale, values));
        self.write(column, values, &validity)
    }
    /// A text, bytes or json column.
    pub fn blobs<C: BlobCell>(self, column: &str, cells: impl IntoIterator<Item = C>) -> Result<Self, Fault> {
        let mut blobs = Blobs::default();
        let validity = cells
            .into_iter()
            .map(|cell| {
                blobs.push(cell.bytes().unwrap_or_default());
                cell.bytes().is_some()
            })
            .collect();
        self.write(column, Values::Blobs(blobs), &validity)
    }
    /// A column as it crosses, without a copy on this side.
    pub fn write(mut self, column: &str, values: Values<'_>, validity: &Validity) -> Result<Self, Fault> {
        let written = self.handle.write(column, values, validity.bits());
        self.then(column, written)
    }
    /// Columns that hold one value in all of `rows` rows.
    pub fn fill<'a, V: Into<Scalar>>(
        mut self,
        values: impl IntoIterator<Item = (&'a str, V)>,
        rows: usize,
    ) -> Result<Self, Fault> {
        let values: Vec<_> = values.into_iter().map(|(column, value)| Named::new(column, value)).collect();
        let filled = self.handle.fill(values, index(rows));
        filled.map_err(|fault| fault.about(|| self.what.clone()))?;
        Ok(self)
    }
    /// A column of a frame, as it is. Nothing crosses.
    pub fn copy(mut self, column: &str, source: &Frame, name: &str) -> Result<Self, Fault> {
        let col = source.column(name)?;
        let copied = self.handle.copy(column, &source.handle, col);
        self.then(column, copied)
    }
    /// Checks that every column was written. Only now do the rows count.
    pub fn finish(mut self) -> Result<Frame, Fault> {
        match self.handle.finish() {
            Ok(handle) => Ok(Frame::new(handle, self.what)),
            Err(fault) => Err(fault.about(|| self.what)),
        }
    }

    fn then(self, column: &str, result: Result<(), Fault>) -> Result<Self, Fault> {
        match result {
            Ok(()) => Ok(self),
            Err(fault) => Err(fault.about(|| format!("column '{column}' of {}", self.what))),
        }
    }
}

/// Values with nulls as zero, and which rows hold one.
fn gather<C, T: Default>(cells: impl IntoIterator<Item = C>, value: impl Fn(C) -> Option<T>) -> (Vec<T>, Validity) {
    let mut values = Vec::new();
    let validity = cells
        .into_iter()
        .map(|cell| {
            let value = value(cell);
            let valid = value.is_some();
            values.push(value.unwrap_or_default());
            valid
        })
        .collect();
    (values, validity)
}
