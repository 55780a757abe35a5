//! Columns that are filled row by row.

use std::sync::Arc;

use arrow_array::builder::{Float64Builder, Int64Builder, StringBuilder, TimestampMicrosecondBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use weir_model::Fault;

/// A value of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cell<'a> {
    Null,
    Text(&'a str),
    Int(i64),
    Float(f64),
    /// Microseconds.
    At(i64),
}

enum Column {
    Text(StringBuilder),
    Int(Int64Builder),
    Float(Float64Builder),
    At(TimestampMicrosecondBuilder),
}

/// Rows in a schema of text, int64, float64 and timestamp columns.
pub(crate) struct Sheet {
    schema: SchemaRef,
    columns: Vec<Column>,
    rows: usize,
}

impl Sheet {
    pub fn new(schema: SchemaRef) -> Self {
        let columns = schema.fields().iter().map(|f| match f.data_type() {
            DataType::Int64 => Column::Int(Int64Builder::new()),
            DataType::Float64 => Column::Float(Float64Builder::new()),
            DataType::Timestamp(..) => Column::At(TimestampMicrosecondBuilder::new()),
            _ => Column::Text(StringBuilder::new()),
        });
        Self { columns: columns.collect(), schema, rows: 0 }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Adds a row, one cell a column. A cell of another type than its column counts as null; `finish` refuses it where
    /// the column is required.
    pub fn push(&mut self, cells: &[Cell<'_>]) {
        debug_assert_eq!(cells.len(), self.columns.len());
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            match (column, cell) {
                (Column::Text(b), Cell::Text(text)) => b.append_value(text),
                (Column::Text(b), _) => b.append_null(),
                (Column::Int(b), Cell::Int(n)) => b.append_value(*n),
                (Column::Int(b), _) => b.append_null(),
                (Column::Float(b), Cell::Float(f)) => b.append_value(*f),
                (Column::Float(b), _) => b.append_null(),
                (Column::At(b), Cell::At(t)) => b.append_value(*t),
                (Column::At(b), _) => b.append_null(),
            }
        }
        self.rows += 1;
    }

    pub fn finish(mut self) -> Result<RecordBatch, Fault> {
        let arrays = self.columns.iter_mut().map(|column| -> ArrayRef {
            match column {
                Column::Text(b) => Arc::new(b.finish()),
                Column::Int(b) => Arc::new(b.finish()),
                Column::Float(b) => Arc::new(b.finish()),
                Column::At(b) => Arc::new(b.finish().with_timezone("UTC")),
            }
        });
        RecordBatch::try_new(self.schema.clone(), arrays.collect()).map_err(Fault::internal)
    }
}
