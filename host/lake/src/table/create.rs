//! Makes tables and adds columns to them, through the table format's own operations.

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use deltalake::DeltaTable;
use deltalake::kernel::transaction::CommitProperties;
use deltalake::kernel::{DataType as DeltaType, PrimitiveType, StructField};
use deltalake::operations::create::CreateBuilder;
use weir_model::columns::is_table_column;
use weir_model::{Fault, FaultKind};

use super::Settings;
use super::folder::{Folder, percent_decoded};
use crate::error::delta_fault;
use crate::normalise::type_word;

/// Makes the table. Its log stays short: few entries are kept below a checkpoint, and transaction versions never expire.
pub(crate) async fn create(folder: &Folder, schema: &Schema, settings: &Settings) -> Result<(), Fault> {
    let columns = schema.fields().iter().map(|f| column(f, f.is_nullable())).collect::<Result<Vec<_>, _>>()?;
    folder.create()?;
    let seconds = settings.history_of(&folder.name).as_secs();
    let properties = [
        ("delta.checkpointInterval", settings.checkpoint_every.to_string()),
        ("delta.logRetentionDuration", format!("interval {seconds} seconds")),
        // As long as a version can be read its files are there; what is remembered of them longer only makes
        // checkpoints large.
        ("delta.deletedFileRetentionDuration", format!("interval {seconds} seconds")),
        ("delta.enableExpiredLogCleanup", "true".to_owned()),
        // Every column: the position stands last in a stream's table and is what reads are pruned by.
        ("delta.dataSkippingNumIndexedCols", "-1".to_owned()),
    ];
    CreateBuilder::new()
        .with_location(folder.url()?)
        .with_columns(columns)
        .with_configuration(properties.map(|(key, value)| (key, Some(value))))
        .await
        .map_err(|e| delta_fault(&folder.name, &e))?;
    sync_version(folder, 0)?;
    folder.sync_above()
}

/// Columns that the table lacks. A column that has another type there, or another spelling, is a fault.
pub(crate) fn lacking(table: &Schema, wanted: &Schema, name: &str) -> Result<Vec<Field>, Fault> {
    let mut lacking = Vec::new();
    for field in wanted.fields() {
        let same = |f: &&std::sync::Arc<Field>| f.name().eq_ignore_ascii_case(field.name());
        let Some(there) = table.fields().iter().find(same) else {
            lacking.push(field.as_ref().clone());
            continue;
        };
        let refuse = |message: String| Fault::tenant(FaultKind::Sink, message).file(name).field(field.name());
        if there.name() != field.name() {
            return Err(refuse(format!("column {} is written {} in the table", field.name(), there.name())));
        }
        if there.data_type() != field.data_type() {
            return Err(refuse(format!(
                "column {} is {} in the table and {} in the rows",
                field.name(),
                type_word(there.data_type()),
                type_word(field.data_type())
            ))
            .fix("keep the column's type, or give the column or the table another name"));
        }
    }
    Ok(lacking)
}

/// Adds nullable columns.
pub(crate) async fn widen(folder: &Folder, table: DeltaTable, fields: &[Field]) -> Result<(), Fault> {
    let columns = fields.iter().map(|f| column(f, true)).collect::<Result<Vec<_>, _>>()?;
    let before = table.version().unwrap_or(0);
    let table = table
        .add_columns()
        .with_fields(columns)
        .with_commit_properties(quiet())
        .await
        .map_err(|e| delta_fault(&folder.name, &e))?;
    for version in before + 1..=table.version().unwrap_or(before) {
        sync_version(folder, version)?;
    }
    Ok(())
}

/// Commits that leave checkpoints to their own time: a failing one would report a commit that happened as failed.
pub(crate) fn quiet() -> CommitProperties {
    CommitProperties::default().with_create_checkpoint(false).with_cleanup_expired_logs(Some(false))
}

/// Syncs a log entry that the table format's own operations wrote, with the files that it names.
pub(crate) fn sync_version(folder: &Folder, version: u64) -> Result<(), Fault> {
    let mut files = vec![std::path::PathBuf::from(format!("_delta_log/{version:020}.json"))];
    for line in folder.read_entry(version)?.lines() {
        let action: serde_json::Value =
            serde_json::from_str(line).map_err(|e| Fault::external(FaultKind::Sink, e).file(&folder.name))?;
        if let Some(path) = action.pointer("/add/path").and_then(|p| p.as_str()) {
            let path = percent_decoded(path);
            if !path.contains("://") {
                files.push(path.into());
            }
        }
    }
    folder.sync_files(&files)
}

/// Whether a table can have these columns.
pub(crate) fn possible(schema: &Schema) -> Result<(), Fault> {
    for (at, field) in schema.fields().iter().enumerate() {
        column(field, true)?;
        if let Some(other) = schema.fields()[..at].iter().find(|f| f.name().eq_ignore_ascii_case(field.name())) {
            let message = format!("columns {} and {} differ only in case", other.name(), field.name());
            return Err(Fault::tenant(FaultKind::Sink, message).field(field.name()).fix("rename one of them"));
        }
    }
    Ok(())
}

fn column(field: &Field, nullable: bool) -> Result<StructField, Fault> {
    let refuse = |message: String| Fault::tenant(FaultKind::Sink, message).field(field.name());
    if !is_table_column(field.name()) {
        return Err(refuse(format!(
            "'{}' is no column name of a table: it must not hold blanks or any of ,;{{}}()=",
            field.name()
        )));
    }
    let Some(ty) = delta_type(field.data_type()) else {
        return Err(refuse(format!(
            "column {} has type {}, which tables cannot hold",
            field.name(),
            field.data_type()
        )));
    };
    Ok(StructField::new(field.name(), ty, nullable))
}

fn delta_type(ty: &DataType) -> Option<DeltaType> {
    Some(DeltaType::Primitive(match ty {
        DataType::Boolean => PrimitiveType::Boolean,
        DataType::Int8 => PrimitiveType::Byte,
        DataType::Int16 => PrimitiveType::Short,
        DataType::Int32 => PrimitiveType::Integer,
        DataType::Int64 => PrimitiveType::Long,
        DataType::Float32 => PrimitiveType::Float,
        DataType::Float64 => PrimitiveType::Double,
        DataType::Utf8 => PrimitiveType::String,
        DataType::Binary => PrimitiveType::Binary,
        DataType::Date32 => PrimitiveType::Date,
        DataType::Timestamp(..) => PrimitiveType::Timestamp,
        DataType::Decimal128(precision, scale) => {
            PrimitiveType::decimal(*precision, u8::try_from(*scale).ok()?).ok()?
        }
        _ => return None,
    }))
}

/// Types that are the same on both sides: what [`lacking`] compares.
pub(crate) fn plain(schema: &Schema) -> SchemaRef {
    crate::normalise::plain_schema(schema)
}
