//! Reference tables: rows that change seldom, held whole, and read by queries under their names.
//!
//! ```text
//! of the ruleset: csv | json | parquet -> gather (problems with line and column, bounded) -> Held
//! of the lake:    delta (latest version at plan, kept until there is another; a pinned one in a replay)
//! ```

mod csv;
mod delta;
mod gather;
mod json;
mod parquet;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use weir_model::ruleset::TableDef;
use weir_model::stream::Columns;
use weir_model::{Digest, Name, Problem, Ruleset};

use crate::query::{Piece, TableRows, Tools, to_usize};
pub(crate) use delta::{Budget, InLake, Shared};
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
    /// A table of the lake.
    Lake(Arc<InLake>),
}

/// A reference table of a ruleset.
#[derive(Debug, Clone)]
pub(crate) struct Reference {
    pub schema: SchemaRef,
    pub origin: Origin,
}

/// The tables of a ruleset.
#[derive(Debug, Default)]
pub(crate) struct References {
    pub tables: BTreeMap<Name, Reference>,
    /// Bytes that tables of the lake may take beside the files.
    pub memory: usize,
}

/// Reads the tables of a manifest that are files. All of them together may take `table_bytes`. Tables of the lake are read
/// when a batch is planned: they may come later than the scenario, and another system's outage rejects no ruleset.
pub(crate) fn read_all(ruleset: &Ruleset, tools: &Tools) -> Result<References, Vec<Problem>> {
    let (mut tables, mut problems) = (BTreeMap::new(), Vec::new());
    let mut memory = to_usize(ruleset.limits.table_bytes);
    for (name, def) in &ruleset.manifest.tables {
        let read = match (&def.file, &def.lake, &def.schema) {
            (Some(path), None, _) => of_file(ruleset, name, path, def, memory),
            (None, Some(table), Some(columns)) => Ok((in_lake(ruleset, name, table, columns, tools), 0)),
            _ => Err(vec![
                Problem::new("scenario.toml", "it is neither a file nor a table of the lake with a schema")
                    .field(format_args!("tables.{name}"))
                    .fix("write file = \"tables/NAME.csv\", or lake = \"TABLE\", and schema = { COLUMN = \"type\", ... }"),
            ]),
        };
        match read {
            Ok((table, bytes)) => {
                memory = memory.saturating_sub(bytes);
                tables.insert(name.clone(), table);
            }
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() { Ok(References { tables, memory }) } else { Err(problems) }
}

fn in_lake(ruleset: &Ruleset, name: &Name, table: &Name, columns: &Columns, tools: &Tools) -> Reference {
    let schema = columns.schema();
    let place = (format!("{}/scenario.toml", ruleset.scenario), format!("tables.{name}.lake"));
    let lake = InLake::new(
        (ruleset.scenario.tenant.clone(), table.clone()),
        (columns.clone(), schema.clone()),
        place,
        (tools.reader.clone(), tools.runtime.clone(), tools.shared.clone()),
    );
    Reference { schema, origin: Origin::Lake(Arc::new(lake)) }
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
