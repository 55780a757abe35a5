//! Reference tables: rows that change seldom, held whole, and read by queries under their names.
//!
//! ```text
//! of the ruleset: csv | json | parquet -> gather (problems with line and column, bounded) -> Held
//! ```

mod csv;
mod gather;
mod json;
mod parquet;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema, SchemaRef};
use weir_model::ruleset::TableDef;
use weir_model::stream::Columns;
use weir_model::{Digest, Name, Problem, Ruleset};

use crate::query::{Piece, TableRows, to_usize};
use gather::Gather;

/// A table as queries read it.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    /// What a plan pins.
    pub version: String,
    /// Its rows.
    pub rows: Arc<TableRows>,
}

/// Where a table's rows come from.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// A file of the ruleset, read already.
    File(Held),
}

/// A reference table of a ruleset.
#[derive(Debug, Clone)]
pub(crate) struct Reference {
    pub schema: SchemaRef,
    pub origin: Origin,
}

/// The schema that columns of a manifest make.
pub(crate) fn schema_of(columns: &Columns) -> SchemaRef {
    Arc::new(Schema::new(columns.0.iter().map(|c| Field::new(&c.name, c.ty.arrow(), !c.required)).collect::<Vec<_>>()))
}

/// Reads the tables of a manifest. All of them together may take `table_bytes`.
pub(crate) fn read_all(ruleset: &Ruleset) -> Result<BTreeMap<Name, Reference>, Vec<Problem>> {
    let (mut tables, mut problems) = (BTreeMap::new(), Vec::new());
    let mut left = to_usize(ruleset.limits.table_bytes);
    for (name, def) in &ruleset.manifest.tables {
        let read = match &def.file {
            Some(path) => of_file(ruleset, name, path, def, left),
            None => Err(vec![
                Problem::new("scenario.toml", "it has no file").field(format_args!("tables.{name}")).fix("write file"),
            ]),
        };
        match read {
            Ok((table, bytes)) => {
                left = left.saturating_sub(bytes);
                tables.insert(name.clone(), table);
            }
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() { Ok(tables) } else { Err(problems) }
}

/// Reads a table's file: the table, and about how many bytes its rows take.
fn of_file(
    ruleset: &Ruleset,
    name: &Name,
    path: &str,
    def: &TableDef,
    memory: usize,
) -> Result<(Reference, usize), Vec<Problem>> {
    let bytes = ruleset.file(path, &format!("tables.{name}.file")).map_err(|p| vec![p])?;
    let mut gather = Gather::new(path, memory);
    let columns = def.schema.as_ref();
    let (schema, batches) = match (ending(path), columns) {
        ("parquet", _) => parquet::read(bytes, columns, &mut gather),
        ("csv", Some(columns)) => csv::read(bytes, columns, &mut gather),
        ("json" | "jsonl" | "ndjson", Some(columns)) => json::read(bytes, columns, &mut gather),
        ("csv" | "json" | "jsonl" | "ndjson", None) => {
            let problem = Problem::new("scenario.toml", "the types of its columns are not known")
                .field(format_args!("tables.{name}.schema"))
                .fix("write schema = { COLUMN = \"type\", ... }");
            return Err(vec![problem]);
        }
        _ => {
            let problem = Problem::new("scenario.toml", format_args!("{path} is no kind of file that is known"))
                .field(format_args!("tables.{name}.file"))
                .fix("name a .csv, .json, .jsonl, .ndjson or .parquet file");
            return Err(vec![problem]);
        }
    }
    .map_err(|()| gather.problems())?;
    let size = batches.iter().map(RecordBatch::get_array_memory_size).sum();
    let rows = batches.into_iter().map(|batch| Piece { batch, keep: None }).collect();
    let version = Digest::of(bytes).to_string();
    let held = Held { version, rows: Arc::new(TableRows(rows)) };
    Ok((Reference { schema, origin: Origin::File(held) }, size))
}

fn ending(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, end)| end)
}
