//! Writers of outputs and of rows that are none.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    new_null_array,
};
use arrow_schema::SchemaRef;
use weir_model::FieldDef;
use weir_model::columns::{Kind, kind_of, output_type};
use weir_sdk::backend::{self, FrameHandle, Values};
use weir_sdk::{DataError, Fault, Named, Scalar};

use super::frame::{self, Origin};
use super::{Shared, convert, next_source};

/// Where the rows go.
pub enum Target {
    /// An output that is declared, by its place and name.
    Output(usize, String),
    /// An output that is not.
    Undeclared,
    /// Nowhere.
    Scratch,
}

/// Columns that are being written.
pub struct Writer {
    target: Target,
    fields: Vec<FieldDef>,
    schema: SchemaRef,
    columns: Vec<Option<ArrayRef>>,
    made: Shared,
}

fn valid(validity: Option<&[u8]>, row: usize) -> bool {
    validity.is_none_or(|bits| bits[row / 8] >> (row % 8) & 1 == 1)
}

fn wrong_kind<T>(kind: Kind) -> Result<T, Fault> {
    Err(DataError::WrongKind(convert::back(kind)).into())
}

fn built(kind: Kind, values: Values<'_>, validity: Option<&[u8]>) -> Result<ArrayRef, Fault> {
    macro_rules! primitive {
        ($array:ty, $values:expr) => {
            match validity {
                None => <$array>::from($values.to_vec()),
                Some(_) => $values.iter().enumerate().map(|(row, v)| valid(validity, row).then_some(*v)).collect(),
            }
        };
    }
    Ok(match (kind, values) {
        (Kind::Boolean, Values::Booleans(bytes)) => {
            let rows = bytes.iter().enumerate();
            Arc::new(rows.map(|(row, byte)| valid(validity, row).then_some(*byte != 0)).collect::<BooleanArray>())
        }
        (Kind::Int64, Values::Int64s(values)) => Arc::new(primitive!(Int64Array, values)),
        (Kind::Float64, Values::Float64s(values)) => Arc::new(primitive!(Float64Array, values)),
        (Kind::Timestamp, Values::Timestamps(values)) => {
            Arc::new(primitive!(TimestampMicrosecondArray, values).with_timezone("UTC"))
        }
        (Kind::Text, Values::Blobs(blobs)) => {
            let text = |(row, bytes)| {
                let text = str::from_utf8(bytes).map_err(|_| DataError::Malformed)?;
                Ok(valid(validity, row).then_some(text))
            };
            Arc::new(blobs.iter().enumerate().map(text).collect::<Result<StringArray, DataError>>()?)
        }
        (kind, _) => return wrong_kind(kind),
    })
}

fn constant(kind: Kind, value: Scalar, rows: usize) -> Result<ArrayRef, Fault> {
    Ok(match (kind, value) {
        (kind, Scalar::Null) => new_null_array(&output_type(kind), rows),
        (Kind::Boolean, Scalar::Boolean(v)) => Arc::new(BooleanArray::from(vec![v; rows])),
        (Kind::Int64, Scalar::Int64(v)) => Arc::new(Int64Array::from_value(v, rows)),
        (Kind::Float64, Scalar::Float64(v)) => Arc::new(Float64Array::from_value(v, rows)),
        (Kind::Timestamp, Scalar::Timestamp(v)) => {
            Arc::new(TimestampMicrosecondArray::from_value(v.micros(), rows).with_timezone("UTC"))
        }
        (Kind::Text, Scalar::Text(v)) => Arc::new(StringArray::from_iter_values(std::iter::repeat_n(v, rows))),
        (kind, _) => return wrong_kind(kind),
    })
}

impl Writer {
    pub fn new(target: Target, fields: Vec<FieldDef>, schema: SchemaRef, made: Shared) -> Self {
        let columns = vec![None; fields.len()];
        Self { target, fields, schema, columns, made }
    }

    fn put(&mut self, column: &str, make: impl FnOnce(Kind) -> Result<ArrayRef, Fault>) -> Result<(), Fault> {
        if matches!(self.target, Target::Undeclared) {
            return Err(DataError::Undeclared.into());
        }
        let index = self.fields.iter().position(|field| field.name == column).ok_or(DataError::NoSuchColumn)?;
        let array = make(self.fields[index].kind)?;
        if let Some(other) = self.columns.iter().flatten().find(|other| other.len() != array.len()) {
            return Err(DataError::Uneven(u32::try_from(other.len()).unwrap_or(u32::MAX)).into());
        }
        if !self.fields[index].nullable && array.null_count() > 0 {
            return Err(DataError::RequiredNull.into());
        }
        self.columns[index] = Some(array);
        Ok(())
    }
}

impl backend::Writer for Writer {
    fn write(&mut self, column: &str, values: Values<'_>, validity: Option<&[u8]>) -> Result<(), Fault> {
        self.put(column, |kind| built(kind, values, validity))
    }
    fn fill(&mut self, values: Vec<Named>, rows: u32) -> Result<(), Fault> {
        values
            .into_iter()
            .try_for_each(|named| self.put(&named.name, |kind| constant(kind, named.value, rows as usize)))
    }
    fn copy(&mut self, column: &str, source: &FrameHandle, col: u32) -> Result<(), Fault> {
        let rows = frame::rows_of(source)?;
        let array = rows.columns().get(col as usize).ok_or(DataError::NoSuchColumn)?.clone();
        self.put(column, |kind| {
            if *array.data_type() == output_type(kind) { Ok(array) } else { wrong_kind(kind_of(array.data_type())) }
        })
    }
    fn finish(&mut self) -> Result<FrameHandle, Fault> {
        let rows = self.columns.iter().flatten().next().map_or(0, |column| column.len());
        let taken = self.fields.iter().zip(&mut self.columns).map(|(field, column)| match column.take() {
            Some(column) => Ok(column),
            None if field.nullable => Ok(new_null_array(&output_type(field.kind), rows)),
            None => Err(DataError::RequiredNull.into()),
        });
        let columns = taken.collect::<Result<Vec<_>, Fault>>()?;
        let rows = RecordBatch::try_new(self.schema.clone(), columns).map_err(Fault::internal)?;
        let origin = match &self.target {
            Target::Output(index, name) => {
                let mut made = self.made.borrow_mut();
                if made.outputs.len() <= *index {
                    made.outputs.resize_with(index + 1, Vec::new);
                }
                let before: usize = made.outputs[*index].iter().map(RecordBatch::num_rows).sum();
                made.outputs[*index].push(rows.clone());
                Origin::new(&format!("output:{name}"), u32::try_from(before).unwrap_or(u32::MAX))
            }
            _ => Origin::new(&next_source(&self.made, "scratch", ""), 0),
        };
        Ok(frame::register(&self.made, rows, origin))
    }
}
