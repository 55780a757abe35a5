//! Frames and writers over fixtures.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::host::Written;
use super::rows::{Rows, decimal, decimal_text, fits, to_text};
use crate::backend::{self, FrameHandle, Values};
use crate::{Blobs, DataError, Decimals, Fault, Field, Kind, Named, Scalar, Time, Validity};

/// Rows with a number.
pub(super) struct MemoryFrame {
    pub(super) id: u32,
    pub(super) rows: Rows,
    written: Rc<RefCell<Written>>,
}

/// Numbers a frame and notes it, for row references.
pub(super) fn register(rows: Rows, written: &Rc<RefCell<Written>>) -> FrameHandle {
    let mut notes = written.borrow_mut();
    let id = u32::try_from(notes.frames.len()).expect("so many frames fit no memory");
    let frame = Rc::new(MemoryFrame { id, rows, written: Rc::clone(written) });
    notes.frames.push(Rc::downgrade(&frame));
    frame
}

/// The rows of a frame that a kit made.
pub(super) fn rows_of(frame: &FrameHandle) -> &Rows {
    let frame: &dyn Any = &**frame;
    let frame: &MemoryFrame = frame.downcast_ref().expect("a frame of another backend");
    &frame.rows
}

impl MemoryFrame {
    fn at(&self, col: u32) -> Result<(&Field, &[Scalar]), Fault> {
        match self.rows.columns.get(col as usize) {
            Some(column) => Ok((&self.rows.fields[col as usize], column)),
            None => Err(DataError::NoSuchColumn.into()),
        }
    }
    /// The values of a column that has one of these kinds; null becomes the default.
    fn values<T: Default>(
        &self,
        col: u32,
        kinds: &[Kind],
        value: impl Fn(&Scalar) -> Option<T>,
    ) -> Result<Vec<T>, Fault> {
        let (field, column) = self.at(col)?;
        if !kinds.contains(&field.kind) {
            return Err(DataError::WrongKind(field.kind).into());
        }
        Ok(column.iter().map(|cell| value(cell).unwrap_or_default()).collect())
    }
    fn pick(&self, rows: impl Iterator<Item = u32> + Clone) -> Result<FrameHandle, Fault> {
        if rows.clone().any(|row| row as usize >= self.rows.len()) {
            return Err(DataError::OutOfRange.into());
        }
        let pick = |column: &Vec<Scalar>| {
            let picked = rows.clone().map(|row| column[row as usize].clone());
            picked.collect()
        };
        let rows = Rows { fields: self.rows.fields.clone(), columns: self.rows.columns.iter().map(pick).collect() };
        Ok(register(rows, &self.written))
    }
}

macro_rules! pick {
    ($case:ident) => {
        |cell| match cell {
            Scalar::$case(value) => Some(value.clone().into()),
            _ => None,
        }
    };
}

impl backend::Frame for MemoryFrame {
    fn id(&self) -> u32 {
        self.id
    }
    fn rows(&self) -> u32 {
        u32::try_from(self.rows.len()).expect("so many rows fit no memory")
    }
    fn fields(&self) -> Vec<Field> {
        self.rows.fields.clone()
    }
    fn column(&self, name: &str) -> Option<u32> {
        let position = self.rows.fields.iter().position(|field| field.name == name);
        position.and_then(|position| u32::try_from(position).ok())
    }
    fn validity(&self, col: u32) -> Result<Option<Vec<u8>>, Fault> {
        let (_, column) = self.at(col)?;
        let validity: Validity = column.iter().map(|cell| *cell != Scalar::Null).collect();
        Ok(validity.bits().map(<[u8]>::to_vec))
    }
    fn booleans(&self, col: u32) -> Result<Vec<u8>, Fault> {
        self.values(col, &[Kind::Boolean], pick!(Boolean))
    }
    fn int64s(&self, col: u32) -> Result<Vec<i64>, Fault> {
        self.values(col, &[Kind::Int64], pick!(Int64))
    }
    fn float64s(&self, col: u32) -> Result<Vec<f64>, Fault> {
        self.values(col, &[Kind::Float64], pick!(Float64))
    }
    fn timestamps(&self, col: u32) -> Result<Vec<i64>, Fault> {
        let micros = |cell: &Scalar| match cell {
            Scalar::Timestamp(time) => Some(time.micros()),
            _ => None,
        };
        self.values(col, &[Kind::Timestamp, Kind::Date], micros)
    }
    fn decimals(&self, col: u32) -> Result<Decimals, Fault> {
        let parts = |cell: &Scalar| match cell {
            Scalar::Decimal(text) => decimal(text),
            _ => None,
        };
        let values = self.values(col, &[Kind::Decimal], parts)?;
        let scale = values.iter().map(|(_, scale)| *scale).max().unwrap_or(0);
        let widen = |(value, own): &(i128, i8)| value * 10i128.pow((scale - own).unsigned_abs().into());
        Ok(Decimals::new(scale, values.iter().map(widen)))
    }
    fn blobs(&self, col: u32) -> Result<Blobs, Fault> {
        let bytes = |cell: &Scalar| match cell {
            Scalar::Text(text) => Some(text.clone().into_bytes()),
            Scalar::Bytes(bytes) => Some(bytes.clone()),
            _ => None,
        };
        let values = self.values(col, &[Kind::Text, Kind::Bytes, Kind::Json], bytes)?;
        Ok(values.into_iter().collect())
    }
    fn texts(&self, col: u32) -> Result<Blobs, Fault> {
        let (field, column) = self.at(col)?;
        Ok(column.iter().map(|cell| to_text(cell, field.kind)).collect())
    }
    fn dictionary(&self, col: u32) -> Result<(Vec<u32>, Blobs), Fault> {
        let texts: Vec<Option<String>> = self.values(col, &[Kind::Text], |cell| match cell {
            Scalar::Text(text) => Some(Some(text.clone())),
            _ => None,
        })?;
        let (mut seen, mut values) = (BTreeMap::new(), Blobs::default());
        let codes = texts.into_iter().map(|text| {
            let Some(text) = text else { return u32::MAX };
            let next = u32::try_from(values.len()).expect("as many as rows");
            *seen.entry(text).or_insert_with_key(|text| {
                values.push(text.as_bytes());
                next
            })
        });
        let codes = codes.collect();
        Ok((codes, values))
    }
    fn json(&self, columns: &[u32]) -> Result<String, Fault> {
        let chosen = columns.iter().try_fold(Rows::new(), |rows, col| {
            let (field, column) = self.at(*col)?;
            Ok::<_, Fault>(rows.with(field.clone(), column.to_vec()))
        })?;
        Ok(serde_json::Value::from(chosen.to_json()).to_string())
    }
    fn slice(&self, start: u32, count: u32) -> Result<FrameHandle, Fault> {
        let end = start.checked_add(count).ok_or(DataError::OutOfRange)?;
        self.pick(start..end)
    }
    fn take(&self, rows: &[u32]) -> Result<FrameHandle, Fault> {
        self.pick(rows.iter().copied())
    }
}

/// Rows that are being written.
pub(super) struct MemoryWriter {
    /// The output; none for scratch.
    pub(super) output: Option<String>,
    /// None when the output is not declared.
    pub(super) fields: Option<Vec<Field>>,
    pub(super) columns: BTreeMap<String, Vec<Scalar>>,
    pub(super) written: Rc<RefCell<Written>>,
}

impl MemoryWriter {
    fn field(&self, column: &str) -> Result<Field, Fault> {
        let fields = self.fields.as_ref().ok_or(DataError::Undeclared)?;
        let found = fields.iter().find(|field| field.name == column);
        Ok(found.ok_or(DataError::NoSuchColumn)?.clone())
    }
    fn put(&mut self, field: Field, cells: Vec<Scalar>) -> Result<(), Fault> {
        if !field.nullable && cells.contains(&Scalar::Null) {
            return Err(DataError::RequiredNull.into());
        }
        if let Some(first) = self.columns.values().next()
            && first.len() != cells.len()
        {
            return Err(DataError::Uneven(crate::frame::index(first.len())).into());
        }
        self.columns.insert(field.name, cells);
        Ok(())
    }
}

impl backend::Writer for MemoryWriter {
    fn write(&mut self, column: &str, values: Values<'_>, validity: Option<&[u8]>) -> Result<(), Fault> {
        let field = self.field(column)?;
        let kind = field.kind;
        let takes = match (&values, kind) {
            (Values::Booleans(_), Kind::Boolean)
            | (Values::Int64s(_), Kind::Int64)
            | (Values::Float64s(_), Kind::Float64)
            | (Values::Timestamps(_), Kind::Timestamp | Kind::Date)
            | (Values::Decimals(_), Kind::Decimal)
            | (Values::Blobs(_), Kind::Text | Kind::Bytes | Kind::Json) => true,
            (
                Values::Booleans(_)
                | Values::Int64s(_)
                | Values::Float64s(_)
                | Values::Timestamps(_)
                | Values::Decimals(_)
                | Values::Blobs(_),
                _,
            ) => false,
        };
        if !takes {
            return Err(DataError::WrongKind(kind).into());
        }
        let mut cells = cells(values, kind)?;
        let validity = Validity::new(validity.map(<[u8]>::to_vec));
        for (row, cell) in cells.iter_mut().enumerate() {
            if !validity.is_valid(row) {
                *cell = Scalar::Null;
            }
        }
        self.put(field, cells)
    }
    fn fill(&mut self, values: Vec<Named>, rows: u32) -> Result<(), Fault> {
        for Named { name, value } in values {
            let field = self.field(&name)?;
            if !fits(&value, field.kind) {
                return Err(DataError::WrongKind(field.kind).into());
            }
            self.put(field, vec![value; rows as usize])?;
        }
        Ok(())
    }
    fn copy(&mut self, column: &str, source: &FrameHandle, col: u32) -> Result<(), Fault> {
        let field = self.field(column)?;
        let rows = rows_of(source);
        let cells = rows.columns.get(col as usize).ok_or(DataError::NoSuchColumn)?;
        let from = rows.fields[col as usize].kind;
        if from != field.kind && (from, field.kind) != (Kind::Text, Kind::Json) {
            return Err(DataError::WrongKind(from).into());
        }
        self.put(field, cells.clone())
    }
    fn finish(&mut self) -> Result<FrameHandle, Fault> {
        let fields = self.fields.take().ok_or(DataError::Undeclared)?;
        let mut rows = Rows::new();
        for field in fields {
            let cells = self.columns.remove(&field.name).ok_or(DataError::RequiredNull)?;
            rows = rows.with(field, cells);
        }
        if let Some(output) = &self.output {
            let mut written = self.written.borrow_mut();
            let all = written.outputs.entry(output.clone()).or_default();
            all.extend(rows.to_json());
        }
        Ok(register(rows, &self.written))
    }
}

/// The values of a column, one by one.
fn cells(values: Values<'_>, kind: Kind) -> Result<Vec<Scalar>, Fault> {
    Ok(match values {
        Values::Booleans(values) if values.iter().any(|v| *v > 1) => return Err(DataError::Malformed.into()),
        Values::Booleans(values) => values.iter().map(|v| Scalar::Boolean(*v != 0)).collect(),
        Values::Int64s(values) => values.iter().map(|v| Scalar::Int64(*v)).collect(),
        Values::Float64s(values) => values.iter().map(|v| Scalar::Float64(*v)).collect(),
        Values::Timestamps(values) => values.iter().map(|v| Scalar::Timestamp(Time::from_micros(*v))).collect(),
        Values::Decimals(values) => (0..values.low.len())
            .map(|row| values.unscaled(row).ok_or(DataError::Malformed))
            .map(|value| Ok(Scalar::Decimal(decimal_text(value?, values.scale))))
            .collect::<Result<_, DataError>>()?,
        Values::Blobs(values) if !values.is_well_formed() => {
            return Err(DataError::Malformed.into());
        }
        Values::Blobs(values) if kind == Kind::Bytes => {
            values.iter().map(|bytes| Scalar::Bytes(bytes.to_vec())).collect()
        }
        Values::Blobs(values) => values
            .iter()
            .map(|bytes| {
                let text = str::from_utf8(bytes).map_err(|_| DataError::Malformed)?;
                let is_json = || serde_json::from_str::<serde_json::Value>(text).is_ok();
                // a null slot is empty, which is no JSON
                if kind == Kind::Json && !text.is_empty() && !is_json() {
                    return Err(DataError::Malformed);
                }
                Ok(Scalar::Text(text.to_owned()))
            })
            .collect::<Result<_, DataError>>()?,
    })
}
