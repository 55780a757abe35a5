//! One form of every type that leaves the lake: text is Utf8, bytes Binary, timestamps microseconds UTC, no dictionaries.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_cast::cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use weir_model::columns::timestamp_type;
use weir_model::{Fault, FaultKind};

/// The plain form of a type.
pub(crate) fn plain_type(ty: &DataType) -> DataType {
    match ty {
        DataType::Utf8View | DataType::LargeUtf8 | DataType::Null => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Timestamp(..) => timestamp_type(),
        DataType::Date64 => DataType::Date32,
        DataType::Dictionary(_, value) => plain_type(value),
        DataType::RunEndEncoded(_, value) => plain_type(value.data_type()),
        DataType::List(item) => DataType::List(plain_item(item)),
        DataType::LargeList(item) => DataType::LargeList(plain_item(item)),
        other => other.clone(),
    }
}

fn plain_item(item: &Arc<Field>) -> Arc<Field> {
    Arc::new(item.as_ref().clone().with_data_type(plain_type(item.data_type())))
}

/// The plain form of a schema, without metadata.
pub(crate) fn plain_schema(schema: &Schema) -> SchemaRef {
    Arc::new(Schema::new(
        schema
            .fields()
            .iter()
            .map(|f| Field::new(f.name(), plain_type(f.data_type()), f.is_nullable()))
            .collect::<Vec<_>>(),
    ))
}

/// A cast whose failure is an error, never a silent null.
pub(crate) fn cast(array: &ArrayRef, ty: &DataType) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == ty {
        return Ok(array.clone());
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, ty, &options)
}

/// Columns by position, cast to the schema's types.
pub(crate) fn cast_batch(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = batch
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| cast(column, field.data_type()))
        .collect::<Result<Vec<_>, _>>()?;
    with_rows(schema.clone(), columns, batch.num_rows())
}

/// A batch that keeps its number of rows also without columns.
pub(crate) fn with_rows(schema: SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, columns, &options)
}

/// Columns by name, cast to the schema's types. A missing nullable column is null; columns that the schema lacks are
/// left out. `what` names the rows in faults.
pub(crate) fn adapt(batch: &RecordBatch, schema: &SchemaRef, what: &str) -> Result<RecordBatch, Fault> {
    if Arc::ptr_eq(batch.schema_ref(), schema) || batch.schema_ref() == schema {
        return Ok(batch.clone());
    }
    let columns = schema.fields().iter().map(|field| column_for(batch, field, what)).collect::<Result<Vec<_>, _>>()?;
    with_rows(schema.clone(), columns, batch.num_rows())
        .map_err(|e| Fault::tenant(FaultKind::Config, format_args!("{what}: {e}")))
}

fn column_for(batch: &RecordBatch, field: &Field, what: &str) -> Result<ArrayRef, Fault> {
    let refuse = |why: String| Fault::tenant(FaultKind::Config, format_args!("{what}: {why}")).field(field.name());
    match batch.column_by_name(field.name()) {
        None if field.is_nullable() => Ok(new_null_array(field.data_type(), batch.num_rows())),
        None => Err(refuse("the column is missing".to_owned())),
        Some(column) => {
            let column = cast(column, field.data_type()).map_err(|e| refuse(format!("it cannot be cast: {e}")))?;
            if !field.is_nullable() && column.null_count() > 0 {
                return Err(refuse("it must not be null".to_owned()));
            }
            Ok(column)
        }
    }
}

/// A type in the words of stream and table definitions.
pub(crate) fn type_word(ty: &DataType) -> String {
    match ty {
        DataType::Boolean => "boolean".to_owned(),
        DataType::Int32 => "int32".to_owned(),
        DataType::Int64 => "int64".to_owned(),
        DataType::Float64 => "float64".to_owned(),
        DataType::Utf8 => "text".to_owned(),
        DataType::Binary => "bytes".to_owned(),
        DataType::Date32 => "date".to_owned(),
        DataType::Decimal128(precision, scale) => format!("decimal({precision},{scale})"),
        ty if *ty == timestamp_type() => "timestamp".to_owned(),
        other => other.to_string(),
    }
}
