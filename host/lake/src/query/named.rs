//! Reads and plans all queries of a manifest, collecting every problem.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_schema::SchemaRef;
use datafusion::execution::session_state::SessionState;
use tokio::runtime::Handle;
use weir_model::columns::ColumnType;
use weir_model::ruleset::QueryDef;
use weir_model::stream::StreamDef;
use weir_model::{Name, Problem, Ruleset};

use super::kept::{Kept, RunLimits};
use super::memory::Share;
use super::order::total;
use super::plan::{columns_read, draft};
use super::run::{Param, Planned, Query, StreamUse};
use crate::error::Refusal;
use crate::reference::{self, Reference, Shared};
use crate::table::Reader;

/// What planning needs of the lake.
pub(crate) struct Tools {
    pub session: Arc<SessionState>,
    pub runtime: Handle,
    pub share: Arc<Share>,
    pub reader: Arc<Reader>,
    /// Reference tables of the lake that are loaded.
    pub shared: Arc<Shared>,
}

/// Plans the manifest's queries against the streams' schemas.
pub(crate) fn plan_all(ruleset: &Ruleset, tools: Tools) -> Result<Planned, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut queries = BTreeMap::new();
    let limits = RunLimits {
        memory: to_usize(ruleset.limits.sql_memory_bytes),
        rows: to_usize(ruleset.limits.sql_rows),
        time: ruleset.limits.sql_time.get(),
    };
    let references = reference::read_all(ruleset, &tools).map_err(|p| problems.extend(p)).unwrap_or_default();
    // A table that cannot be read has its problem; queries on it would only say again that it is not there.
    let queries_of = if problems.is_empty() { Some(&ruleset.manifest.queries) } else { None };
    for (name, def) in queries_of.into_iter().flatten() {
        match plan_one(ruleset, name, def, &references.tables, &tools, limits) {
            Ok(query) => {
                queries.insert(name.clone(), query);
            }
            Err(found) => problems.extend(found),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let streams = inputs(ruleset).map(|(name, def)| (name.clone(), Arc::new(def.clone()))).collect();
    Ok(Planned {
        queries,
        streams,
        references,
        reader: tools.reader,
        runtime: tools.runtime,
        limits,
        tenant: ruleset.scenario.tenant.clone(),
    })
}

pub(crate) fn to_usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

fn inputs(ruleset: &Ruleset) -> impl Iterator<Item = (&Name, &StreamDef)> {
    ruleset.streams.iter().filter(|(name, _)| ruleset.manifest.inputs.contains_key(name.as_str()))
}

fn plan_one(
    ruleset: &Ruleset,
    name: &Name,
    def: &QueryDef,
    references: &BTreeMap<Name, Reference>,
    tools: &Tools,
    limits: RunLimits,
) -> Result<Query, Vec<Problem>> {
    let mut problems = check_definition(ruleset, name, def);
    let sql = match text(ruleset, name, def) {
        Ok(sql) => sql,
        Err(problem) => {
            problems.push(problem);
            return Err(problems);
        }
    };
    let mut tables: BTreeMap<String, SchemaRef> =
        inputs(ruleset).map(|(name, stream)| (name.to_string(), stream.positioned_schema())).collect();
    tables.extend(references.iter().map(|(name, table)| (name.to_string(), table.schema.clone())));
    tables.extend(def.rows.iter().map(|(name, columns)| (name.to_string(), columns.schema())));
    let params: Vec<Param> = def.params.iter().map(|(name, ty)| Param { name: name.clone(), ty: *ty }).collect();
    let of_query = |refusal: Refusal| refusal.problem(&def.file, name.as_str());
    let typed: Vec<_> = params.iter().map(|p| (p.name.as_str(), p.ty.arrow())).collect();
    let draft = match draft(&tools.session, sql, &typed, &tables) {
        Ok(draft) => draft,
        Err(refused) => {
            problems.extend(refused.into_iter().map(of_query));
            return Err(problems);
        }
    };
    let kept = total(draft.plan)
        .and_then(|plan| Kept::new(&plan, tools.session.clone(), tools.runtime.clone(), tools.share.clone(), limits));
    let (kept, read) = match kept.and_then(|kept| {
        let read = columns_read(kept.logical())?;
        Ok((kept, read))
    }) {
        Ok(both) => both,
        Err(error) => {
            problems.push(of_query(Refusal::of(&error)));
            return Err(problems);
        }
    };
    let written = tables_written(sql, &tables);
    problems.extend(unused(name, def, &draft.params, &written));
    if !problems.is_empty() {
        return Err(problems);
    }
    let index = |wanted: &Name| params.iter().position(|p| p.name == *wanted).unwrap_or(0);
    let is_reference = |table: &str| references.contains_key(table) && !def.rows.contains_key(table);
    let tables = read.keys().filter(|table| is_reference(table)).cloned().collect();
    let streams = read
        .iter()
        .filter(|(table, _)| !def.rows.contains_key(table.as_str()) && !is_reference(table))
        .map(|(table, columns)| StreamUse {
            name: table.clone(),
            bounds: def.bounds.get(table.as_str()).map(|[from, to]| [index(from), index(to)]),
            columns: columns.iter().copied().collect(),
        })
        .collect();
    Ok(Query {
        params,
        rows: def.rows.iter().map(|(name, columns)| (name.clone(), columns.schema())).collect(),
        streams,
        tables,
        kept,
    })
}

fn text<'a>(ruleset: &'a Ruleset, name: &Name, def: &QueryDef) -> Result<&'a str, Problem> {
    let bytes = ruleset.file(&def.file, &format!("queries.{name}.file"))?;
    let limit = ruleset.limits.query_bytes;
    if bytes.len() as u64 > limit {
        return Err(Problem::new(&def.file, format_args!("it has {} bytes, at most {limit} are allowed", bytes.len()))
            .field(name)
            .fix("write a shorter query, or ask the operator for more query_bytes"));
    }
    std::str::from_utf8(bytes).map_err(|e| {
        Problem::new(&def.file, format_args!("it is not UTF-8: byte {} is wrong", e.valid_up_to()))
            .field(name)
            .fix("save it as UTF-8")
            .partial()
    })
}

/// What is wrong in scenario.toml itself.
fn check_definition(ruleset: &Ruleset, name: &Name, def: &QueryDef) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut push = |field: String, message: String, fix: &str| {
        problems.push(Problem::new("scenario.toml", message).field(format_args!("queries.{name}.{field}")).fix(fix));
    };
    for param in def.params.keys() {
        let text = param.as_str();
        let word = text.starts_with(|c: char| c.is_ascii_alphabetic()) && !text.contains('-');
        if !word {
            push(
                format!("params.{param}"),
                format!("${param} cannot be written in SQL"),
                "begin with a letter and use letters, digits and '_'",
            );
        }
    }
    for table in def.rows.keys() {
        if ruleset.manifest.inputs.contains_key(table.as_str()) {
            push(
                format!("rows.{table}"),
                format!("{table} is a stream already"),
                "give the table parameter another name",
            );
        }
        if ruleset.manifest.tables.contains_key(table.as_str()) {
            push(
                format!("rows.{table}"),
                format!("{table} is a reference table already"),
                "give the table parameter another name",
            );
        }
    }
    for (stream, ends) in &def.bounds {
        if !ruleset.manifest.inputs.contains_key(stream.as_str()) {
            push(
                format!("bounds.{stream}"),
                format!("{stream} is no input of this scenario"),
                "name a stream that is listed under inputs",
            );
        }
        for end in ends {
            match def.params.get(end.as_str()) {
                Some(ColumnType::Timestamp) => {}
                Some(other) => push(
                    format!("bounds.{stream}"),
                    format!("parameter {end} is {other}, a bound is a timestamp"),
                    "declare it as timestamp under params",
                ),
                None => push(
                    format!("bounds.{stream}"),
                    format!("parameter {end} is not declared"),
                    "declare it as timestamp under params",
                ),
            }
        }
    }
    problems
}

/// Tables that the SQL names, also where the optimiser found that none of their rows matter.
fn tables_written(sql: &str, tables: &BTreeMap<String, SchemaRef>) -> BTreeSet<String> {
    let Ok(query) = super::check::parse(sql) else {
        return BTreeSet::new();
    };
    let statement = datafusion::sql::parser::Statement::Statement(Box::new(
        datafusion::sql::sqlparser::ast::Statement::Query(query),
    ));
    datafusion::sql::resolve::resolve_table_references(&statement, true)
        .map(|(names, _)| names.iter().map(|n| n.table().to_owned()).filter(|n| tables.contains_key(n)).collect())
        .unwrap_or_default()
}

fn unused(name: &Name, def: &QueryDef, used: &BTreeSet<String>, tables: &BTreeSet<String>) -> Vec<Problem> {
    let in_bounds = |p: &Name| def.bounds.values().flatten().any(|end| end == p);
    let params = def.params.keys().filter(|p| !used.contains(p.as_str()) && !in_bounds(p)).map(|p| {
        Problem::new(&def.file, format_args!("parameter ${p} is declared but not used"))
            .field(p)
            .fix(format_args!("use it, or take it out of queries.{name}.params"))
    });
    let rows = def.rows.keys().filter(|t| !tables.contains(t.as_str())).map(|t| {
        Problem::new(&def.file, format_args!("table parameter {t} is declared but not read"))
            .field(t)
            .fix(format_args!("read it, or take it out of queries.{name}.rows"))
    });
    let bounds = def.bounds.keys().filter(|s| !tables.contains(s.as_str())).map(|s| {
        Problem::new(&def.file, format_args!("bounds are given for stream {s}, which the query does not read"))
            .field(s)
            .fix(format_args!("read it, or take it out of queries.{name}.bounds"))
    });
    params.chain(rows).chain(bounds).collect()
}
