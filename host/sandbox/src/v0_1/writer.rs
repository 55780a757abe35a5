//! Writers: columns that a guest fills, checked against their schema before a row of them counts.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use wasmtime::Result;
use wasmtime::component::Resource;
use weir_model::columns::output_schema;
use weir_model::{CallError, DataError, Fault, FaultKind, FieldDef, Kind, Limits, Scalar};

use super::batch::Finished;
use super::bindings::weir::detect::batches::{HostWriter, Named};
use super::bindings::weir::detect::types;
use super::frame::{Frame, Origin};
use super::table::{FrameHandle, Held, WriterHandle, stale};
use crate::call::Call;
use crate::columns::build::{self, Validity};
use crate::columns::{ColumnError, size};
use crate::limits::{Charge, exceeded};

type Answer<T> = std::result::Result<T, CallError>;

/// Where a writer's rows go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The n-th output that `describe` lists.
    Output(usize),
    /// Nowhere; for `bind-rows`.
    Scratch,
    /// `describe` lists no such output.
    Undeclared,
}

/// Columns in the making.
#[derive(Debug)]
pub struct Writer {
    target: Target,
    fields: Arc<[FieldDef]>,
    schema: SchemaRef,
    columns: Vec<Option<ArrayRef>>,
    rows: Option<usize>,
    charge: Option<Charge>,
}

impl Writer {
    /// Nothing written yet.
    pub fn new(target: Target, fields: Arc<[FieldDef]>, schema: SchemaRef) -> Self {
        Self { target, columns: vec![None; fields.len()], fields, schema, rows: None, charge: None }
    }

    /// For `bind-rows`.
    pub fn scratch(fields: Vec<FieldDef>) -> Self {
        let schema = output_schema(&fields);
        Self::new(Target::Scratch, fields.into(), schema)
    }

    fn field(&self, column: &str) -> std::result::Result<(usize, &FieldDef), DataError> {
        if self.target == Target::Undeclared {
            return Err(DataError::Undeclared);
        }
        let mut fields = self.fields.iter().enumerate();
        fields.find(|(_, field)| field.name == column).ok_or(DataError::NoSuchColumn)
    }

    /// Whether a column of so many rows fits to the others, and to the limit of what a batch may leave.
    fn check_rows(&self, rows: usize, limits: &Limits) -> Answer<()> {
        if let Some(expected) = self.rows.filter(|expected| *expected != rows) {
            return Err(DataError::Uneven(u32::try_from(expected).unwrap_or(u32::MAX)).into());
        }
        if matches!(self.target, Target::Output(_)) && rows as u64 > limits.output_rows {
            return Err(too_many_rows(limits).into());
        }
        Ok(())
    }

    fn set(&mut self, index: usize, array: ArrayRef, charge: Charge) {
        self.rows = Some(array.len());
        self.columns[index] = Some(array);
        match &mut self.charge {
            Some(all) => all.merge(charge),
            none => *none = Some(charge),
        }
    }

    /// The rows, when every column is there. Afterwards the writer is empty again.
    fn finish(&mut self) -> std::result::Result<(RecordBatch, Option<Charge>), Unfinished> {
        if self.target == Target::Undeclared {
            return Err(DataError::Undeclared.into());
        }
        let missing = self.columns.iter().position(Option::is_none);
        if let Some(index) = missing {
            return Err(Unfinished { error: DataError::RequiredNull, missing: Some(self.fields[index].name.clone()) });
        }
        let columns = self.columns.iter_mut().filter_map(Option::take).collect();
        let rows = RecordBatch::try_new(self.schema.clone(), columns).map_err(|e| DataError::Failed(e.to_string()))?;
        self.rows = None;
        Ok((rows, self.charge.take()))
    }
}

/// Why rows do not count.
struct Unfinished {
    error: DataError,
    missing: Option<String>,
}
impl From<DataError> for Unfinished {
    fn from(error: DataError) -> Self {
        Self { error, missing: None }
    }
}

/// More rows than a batch may leave.
pub fn too_many_rows(limits: &Limits) -> Fault {
    exceeded(FaultKind::Output, "output_rows", format_args!("the plugin writes more than {} rows", limits.output_rows))
}

/// More bytes than a batch may leave.
pub fn too_many_bytes(limits: &Limits) -> Fault {
    exceeded(
        FaultKind::Output,
        "output_bytes",
        format_args!("the plugin writes more than {} bytes", limits.output_bytes),
    )
}

impl Call {
    fn writer(&mut self, handle: &Resource<WriterHandle>) -> std::result::Result<&mut Writer, Fault> {
        match self.batch.table.get_mut(handle.rep()) {
            Some(Held::Writer(writer)) => Ok(writer.as_mut()),
            _ => Err(stale()),
        }
    }

    /// Writes one column. `make` gets its kind.
    fn write(
        &mut self,
        handle: &Resource<WriterHandle>,
        column: &str,
        rows: usize,
        make: impl FnOnce(Kind) -> std::result::Result<ArrayRef, ColumnError>,
    ) -> Answer<()> {
        self.enter()?;
        let limits = self.limits().clone();
        let writer = self.writer(handle)?;
        let (index, field) = writer.field(column)?;
        let (kind, nullable) = (field.kind, field.nullable);
        writer.check_rows(rows, &limits)?;
        let array = make(kind).map_err(|e| self.column_error(e))?;
        if !nullable && array.null_count() > 0 {
            return Err(DataError::RequiredNull.into());
        }
        let bytes = size::of_array(&array);
        self.meter.work(bytes)?;
        let charge = self.meter.hold(bytes)?;
        self.writer(handle)?.set(index, array, charge);
        Ok(())
    }
}

fn data<T>(built: std::result::Result<T, DataError>) -> std::result::Result<T, ColumnError> {
    built.map_err(ColumnError::Data)
}

impl HostWriter for Call {
    fn booleans(
        &mut self,
        writer: Resource<WriterHandle>,
        column: String,
        values: Vec<u8>,
        validity: Validity,
    ) -> Answer<()> {
        self.write(&writer, &column, values.len(), |kind| data(build::booleans(kind, values, validity)))
    }

    fn int64s(
        &mut self,
        writer: Resource<WriterHandle>,
        column: String,
        values: Vec<i64>,
        validity: Validity,
    ) -> Answer<()> {
        self.write(&writer, &column, values.len(), |kind| data(build::int64s(kind, values, validity)))
    }

    fn float64s(
        &mut self,
        writer: Resource<WriterHandle>,
        column: String,
        values: Vec<f64>,
        validity: Validity,
    ) -> Answer<()> {
        self.write(&writer, &column, values.len(), |kind| data(build::float64s(kind, values, validity)))
    }

    fn timestamps(
        &mut self,
        writer: Resource<WriterHandle>,
        column: String,
        values: Vec<i64>,
        validity: Validity,
    ) -> Answer<()> {
        self.write(&writer, &column, values.len(), |kind| data(build::timestamps(kind, values, validity)))
    }

    fn decimals(
        &mut self,
        writer: Resource<WriterHandle>,
        column: String,
        values: types::Decimals,
        validity: Validity,
    ) -> Answer<()> {
        self.write(&writer, &column, values.low.len(), |kind| data(build::decimals(kind, &values.into(), validity)))
    }

    fn blobs(
        &mut self,
        writer: Resource<WriterHandle>,
        column: String,
        values: types::Blobs,
        validity: Validity,
    ) -> Answer<()> {
        let rows = values.offsets.len().saturating_sub(1);
        self.write(&writer, &column, rows, |kind| data(build::blobs(kind, values.into(), validity)))
    }

    fn fill(&mut self, writer: Resource<WriterHandle>, values: Vec<Named>, rows: u32) -> Answer<()> {
        let rows = rows as usize;
        for Named { name, value } in values {
            let value = Scalar::from(value);
            // The column is made only when there is room for it: a short call could ask for a very long one.
            let bytes = build::constant_size(&value, rows);
            if bytes > self.meter.room() {
                return Err(self.column_error(ColumnError::TooBig));
            }
            self.write(&writer, &name, rows, |kind| data(build::constant(kind, &value, rows)))?;
        }
        Ok(())
    }

    fn copy(
        &mut self,
        writer: Resource<WriterHandle>,
        column: String,
        source: Resource<FrameHandle>,
        col: u32,
    ) -> Answer<()> {
        let frame = self.frame(&source)?;
        let source = frame.column(col)?;
        let max = self.limits().memory_bytes;
        self.write(&writer, &column, source.len(), |kind| build::copied(kind, source, max))
    }

    fn finish(&mut self, writer: Resource<WriterHandle>) -> Answer<Resource<FrameHandle>> {
        self.enter()?;
        let limits = self.limits().clone();
        let held = self.writer(&writer)?;
        let target = held.target;
        let (rows, charge) = match held.finish() {
            Ok(finished) => finished,
            Err(Unfinished { error, missing }) => {
                if let Some(column) = missing {
                    let hint = format!("finish: column {column} was not written");
                    self.log.line("warn", hint);
                }
                return Err(error.into());
            }
        };
        let charge = Arc::new(match charge {
            Some(charge) => charge,
            None => self.meter.hold(0)?,
        });
        let origin = match target {
            Target::Output(index) => {
                let name = self.scenario.description.outputs[index].name.clone();
                let start =
                    self.batch.finish_rows(index, Finished { rows: rows.clone(), _charge: charge.clone() }, &limits)?;
                Origin::new(&format!("output:{name}"), start)
            }
            _ => Origin::new(&self.batch.next_source("scratch", ""), 0),
        };
        self.add_frame(Arc::new(Frame { rows, origin, charge }))
    }

    fn drop(&mut self, writer: Resource<WriterHandle>) -> Result<()> {
        self.batch.table.remove(writer.rep());
        Ok(())
    }
}
