//! Frames.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use crate::backend::prelude::*;
use crate::{Blobs, Bytes, Column, DataError, DecimalColumn, Dictionary, Fault, Field, RowRef, Texts, Time, Validity};

/// Immutable columns of equal length: an input, an answer, or what a writer made. They stay with the host; only the
/// columns that are asked for come over, each as one bulk copy.
///
/// ```
/// # use weir_sdk::{Fault, Frame};
/// fn busiest(counts: &Frame) -> Result<Option<String>, Fault> {
///     let (hosts, errors) = (counts.texts("host")?, counts.int64s("err_cnt")?);
///     let row = (0..counts.rows()).max_by_key(|row| errors[*row]);
///     Ok(row.map(|row| hosts[row].to_owned()))
/// }
/// ```
pub struct Frame {
    pub(crate) handle: FrameHandle,
    /// What it is, for errors: `query 'error_counts'`.
    what: String,
    // A frame never changes, so nothing of it is asked twice.
    rows: OnceCell<usize>,
    id: OnceCell<u32>,
    columns: Columns,
}

/// Numbers of columns that were asked for by name; the same in all frames that were derived from one.
type Columns = Rc<RefCell<Vec<(String, u32)>>>;

impl Frame {
    pub(crate) fn new(handle: FrameHandle, what: String) -> Self {
        Self { handle, what, rows: OnceCell::new(), id: OnceCell::new(), columns: Columns::default() }
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        *self.rows.get_or_init(|| self.handle.rows() as usize)
    }
    /// The columns, in order.
    pub fn fields(&self) -> Vec<Field> {
        self.handle.fields()
    }
    /// Whether there is such a column.
    pub fn has(&self, column: &str) -> bool {
        self.column(column).is_ok()
    }
    /// A row, for [`crate::Alarm::because`] and [`crate::Batch::reject`].
    pub fn row(&self, row: usize) -> RowRef {
        RowRef { frame: *self.id.get_or_init(|| self.handle.id()), row: index(row) }
    }

    /// A boolean column.
    pub fn booleans(&self, column: &str) -> Result<Column<bool>, Fault> {
        let (values, validity) = self.read(column, |frame, col| frame.booleans(col))?;
        let values = values.into_iter().map(|byte| byte != 0).collect();
        Ok(Column::new(values, validity))
    }
    /// An int64 column.
    pub fn int64s(&self, column: &str) -> Result<Column<i64>, Fault> {
        let (values, validity) = self.read(column, |frame, col| frame.int64s(col))?;
        Ok(Column::new(values, validity))
    }
    /// A float64 column.
    pub fn float64s(&self, column: &str) -> Result<Column<f64>, Fault> {
        let (values, validity) = self.read(column, |frame, col| frame.float64s(col))?;
        Ok(Column::new(values, validity))
    }
    /// A timestamp or date column.
    pub fn timestamps(&self, column: &str) -> Result<Column<Time>, Fault> {
        let (values, validity) = self.read(column, |frame, col| frame.timestamps(col))?;
        let values = values.into_iter().map(Time::from_micros).collect();
        Ok(Column::new(values, validity))
    }
    /// A decimal column.
    pub fn decimals(&self, column: &str) -> Result<DecimalColumn, Fault> {
        let (values, validity) = self.read(column, |frame, col| frame.decimals(col))?;
        Ok(DecimalColumn { values, validity })
    }
    /// A column of any kind as text. Text and json are as they are, other kinds in the host's canonical rendering.
    pub fn texts(&self, column: &str) -> Result<Texts, Fault> {
        let (blobs, validity) = self.read(column, |frame, col| frame.texts(col))?;
        Texts::new(blobs, validity).map_err(|fault| self.about(fault, column))
    }
    /// A bytes, text or json column.
    pub fn bytes(&self, column: &str) -> Result<Bytes, Fault> {
        let (blobs, validity) = self.read(column, |frame, col| frame.blobs(col))?;
        Ok(Bytes { blobs, validity })
    }
    /// A text column with each distinct value once, to group by.
    pub fn dictionary(&self, column: &str) -> Result<Dictionary, Fault> {
        let (codes, values): (Vec<u32>, Blobs) = self.one(column, |frame, col| frame.dictionary(col))?;
        let values = Texts::new(values, Validity::ALL).map_err(|fault| self.about(fault, column))?;
        Ok(Dictionary { codes, values })
    }
    /// Columns as one JSON array with an object a row. About 20 times dearer than the columns; ints beyond 2^53 come as
    /// strings.
    pub fn json(&self, columns: &[&str]) -> Result<String, Fault> {
        let columns = columns.iter().map(|column| self.column(column)).collect::<Result<Vec<_>, _>>()?;
        self.handle.json(&columns).map_err(|fault| fault.about(|| self.what.clone()))
    }

    /// The rows from `start` on, `count` of them. Nothing crosses.
    pub fn slice(&self, start: usize, count: usize) -> Result<Self, Fault> {
        self.derive(self.handle.slice(index(start), index(count)), count)
    }
    /// These rows, in this order. Nothing crosses but their numbers.
    pub fn take(&self, rows: &[usize]) -> Result<Self, Fault> {
        let numbers: Vec<u32> = rows.iter().copied().map(index).collect();
        self.derive(self.handle.take(&numbers), rows.len())
    }

    fn derive(&self, handle: Result<FrameHandle, Fault>, rows: usize) -> Result<Self, Fault> {
        match handle {
            Ok(handle) => Ok(Self {
                rows: rows.into(),
                columns: self.columns.clone(),
                ..Self::new(handle, format!("rows of {}", self.what))
            }),
            Err(fault) => Err(fault.about(|| format!("rows of {}", self.what))),
        }
    }
    fn about(&self, fault: Fault, column: &str) -> Fault {
        fault.about(|| format!("column '{column}' of {}", self.what))
    }
    pub(crate) fn column(&self, column: &str) -> Result<u32, Fault> {
        let mut known = self.columns.borrow_mut();
        if let Some((_, number)) = known.iter().find(|(name, _)| name == column) {
            return Ok(*number);
        }
        let number = self.handle.column(column);
        let number = number.ok_or_else(|| self.about(DataError::NoSuchColumn.into(), column))?;
        known.push((column.to_owned(), number));
        Ok(number)
    }
    fn one<T>(&self, column: &str, read: impl FnOnce(&FrameHandle, u32) -> Result<T, Fault>) -> Result<T, Fault> {
        read(&self.handle, self.column(column)?).map_err(|fault| self.about(fault, column))
    }
    fn read<T>(
        &self,
        column: &str,
        read: impl FnOnce(&FrameHandle, u32) -> Result<T, Fault>,
    ) -> Result<(T, Validity), Fault> {
        self.one(column, |frame, col| Ok((read(frame, col)?, Validity::new(frame.validity(col)?))))
    }
}

/// A row's number as it crosses. One that does not fit is out of range there as well.
pub(crate) fn index(row: usize) -> u32 {
    u32::try_from(row).unwrap_or(u32::MAX)
}
