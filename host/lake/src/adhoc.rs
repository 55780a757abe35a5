//! Questions at a prompt: one SELECT over a tenant's tables and what the host shows beside them, which tables there are, and
//! which columns one has.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use datafusion::catalog::MemTable;
use datafusion::common::TableReference;
use datafusion::error::DataFusionError;
use datafusion::prelude::{SQLOptions, SessionContext};
use datafusion::sql::parser::Statement as FileStatement;
use datafusion::sql::sqlparser::ast::Statement;
use futures::TryStreamExt;
use tokio::runtime::Handle;
use weir_model::columns::{ColumnType, kind_of};
use weir_model::port::ViewTable;
use weir_model::{CallError, Fault, FaultKind, Name};

use crate::error::{Refusal, call_error, sql_text};
use crate::normalise::{cast_batch, plain_schema};
use crate::query::{AMPLIFYING, Deadline, Pool, Question, RunLimits, Tenants, config, question};
use crate::table::{Opened, Reader};

/// Answers one question on the calling thread.
pub(crate) fn query(
    reader: &Reader,
    runtime: &Handle,
    limits: RunLimits,
    tenant: &Name,
    sql: &str,
    views: Vec<ViewTable>,
) -> Result<RecordBatch, Fault> {
    let deadline = Deadline::start(limits.time);
    let pool = Pool::new(limits.memory, Tenants::share_alone(limits.memory));
    let environment = pool.runtime().map_err(Fault::internal)?;
    let context = SessionContext::new_with_config_rt(config(), environment);
    AMPLIFYING.iter().for_each(|name| context.deregister_udf(name));
    runtime.block_on(async {
        let wait = limits.time.saturating_mul(10);
        let work = deadline.watch(answer(reader, &context, limits, tenant, sql, views));
        match tokio::time::timeout(wait, work).await {
            Ok(Ok(Err(Failed::Sql(e)))) => Err(match e.find_root() {
                DataFusionError::ResourcesExhausted(_) => pool.fault(&sql_text(&e)),
                _ => match call_error(&e) {
                    CallError::Fault(fault) => fault,
                    CallError::Data(data) => Fault::tenant(FaultKind::Sql, data),
                },
            }),
            Ok(Ok(Err(Failed::Fault(fault)))) => Err(*fault),
            Ok(Ok(Ok(rows))) => Ok(rows),
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(Fault::host(FaultKind::Deadline, format_args!("the query did not end within {wait:?}"))),
        }
    })
}

enum Failed {
    Sql(DataFusionError),
    Fault(Box<Fault>),
}

impl From<DataFusionError> for Failed {
    fn from(e: DataFusionError) -> Self {
        Self::Sql(e)
    }
}
impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Self::Fault(Box::new(fault))
    }
}
impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        let mut fault = Fault::tenant(FaultKind::Sql, refusal.message);
        if !refusal.part.is_empty() {
            fault = fault.field(refusal.part);
        }
        if !refusal.fix.is_empty() {
            fault = fault.fix(refusal.fix);
        }
        fault.into()
    }
}

async fn answer(
    reader: &Reader,
    context: &SessionContext,
    limits: RunLimits,
    tenant: &Name,
    sql: &str,
    views: Vec<ViewTable>,
) -> Result<RecordBatch, Failed> {
    let query = match question(sql)? {
        Question::Rows(query) => query,
        Question::Tables => return Ok(texts([("table_name", there(reader, tenant, &views))])?),
        Question::Columns(name) => {
            let schema = match find(reader, tenant, &name, &views).await? {
                Found::Table(opened) => opened.provider.schema(),
                Found::View(view) => view.schema.clone(),
            };
            return Ok(columns(&plain_schema(&schema))?);
        }
    };
    let statement = FileStatement::Statement(Box::new(Statement::Query(query)));
    let names = context.state().resolve_table_references(&statement)?;
    for name in names {
        match find(reader, tenant, &name, &views).await? {
            Found::Table(opened) => {
                opened.prepare(context)?;
                context.register_table(name, opened.provider.clone())?;
            }
            Found::View(view) => {
                let table = MemTable::try_new(view.schema.clone(), vec![view.rows.clone()])?;
                context.register_table(name, Arc::new(table))?;
            }
        }
    }
    let plan = context.state().statement_to_plan(statement).await.map_err(|e| Failed::from(Refusal::of(&e)))?;
    let only_select = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    only_select.verify_plan(&plan)?;
    let mut rows = context.execute_logical_plan(plan).await?.execute_stream().await?;
    let (mut batches, mut count, mut bytes) = (Vec::new(), 0, 0);
    while let Some(batch) = rows.try_next().await? {
        count += batch.num_rows();
        bytes += batch.get_array_memory_size();
        if count > limits.rows {
            let message = format!("the query answers more than {} rows; add a LIMIT", limits.rows);
            return Err(Fault::tenant(FaultKind::SqlLimit, message).field("sql_rows").into());
        }
        if bytes > limits.memory {
            let message = format!("the answer has more than {} bytes; add a LIMIT", limits.memory);
            return Err(Fault::tenant(FaultKind::SqlLimit, message).field("sql_memory_bytes").into());
        }
        batches.push(batch);
    }
    let all = concat_batches(&rows.schema(), &batches).map_err(DataFusionError::from)?;
    let plain = plain_schema(&all.schema());
    Ok(cast_batch(&all, &plain).map_err(DataFusionError::from)?)
}

/// What a name stands for.
enum Found<'a> {
    Table(Arc<Opened>),
    View(&'a ViewTable),
}

async fn find<'a>(
    reader: &Reader,
    tenant: &Name,
    name: &TableReference,
    views: &'a [ViewTable],
) -> Result<Found<'a>, Failed> {
    if let Some(refusal) = Refusal::of_schema_before(name) {
        return Err(refusal.into());
    }
    let name = name.table();
    let view = views.iter().find(|v| v.name == name);
    let opened = match Name::new(name) {
        Ok(table) if view.is_none_or(|v| v.stands_in) => reader.open(tenant, &table).await?,
        _ => None,
    };
    match (opened, view) {
        (Some(opened), _) => Ok(Found::Table(opened)),
        (None, Some(view)) => Ok(Found::View(view)),
        (None, None) => Err(no_table(reader, tenant, name, views).into()),
    }
}

/// Names of all that can be asked for.
fn there(reader: &Reader, tenant: &Name, views: &[ViewTable]) -> Vec<String> {
    let mut there: Vec<String> = views.iter().map(|v| v.name.clone()).collect();
    there.extend(reader.names(tenant));
    there.sort();
    there.dedup();
    there
}

/// A row for each column: its name, its type as a manifest would write it, and whether it may be null.
fn columns(schema: &Schema) -> Result<RecordBatch, DataFusionError> {
    let of = |text: fn(&Field) -> String| schema.fields().iter().map(|field| text(field)).collect::<Vec<_>>();
    texts([
        ("column_name", of(|field| field.name().clone())),
        ("type", of(|field| type_name(field.data_type()))),
        ("nullable", of(|field| if field.is_nullable() { "yes" } else { "no" }.to_owned())),
    ])
}

fn type_name(ty: &DataType) -> String {
    match ty {
        DataType::Int32 => ColumnType::Int32.to_string(),
        DataType::Decimal128(precision, scale) => {
            ColumnType::Decimal { precision: *precision, scale: *scale }.to_string()
        }
        other => kind_of(other).to_string(),
    }
}

fn texts<const N: usize>(columns: [(&str, Vec<String>); N]) -> Result<RecordBatch, DataFusionError> {
    let columns = columns.map(|(name, values)| (name, Arc::new(StringArray::from(values)) as ArrayRef, false));
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

fn no_table(reader: &Reader, tenant: &Name, name: &str, views: &[ViewTable]) -> Fault {
    let there = there(reader, tenant, views);
    let fault = Fault::tenant(
        FaultKind::Sql,
        if there.is_empty() {
            format!("there is no table {name}; tenant {tenant} has none")
        } else {
            format!("there is no table {name}; there are {}", there.join(", "))
        },
    )
    .field(name);
    match there.iter().find(|t| t.eq_ignore_ascii_case(name)) {
        Some(near) => fault.fix(format_args!("write it as \"{near}\", with the quotes")),
        None if there.is_empty() => fault,
        None => fault.fix("write one of these"),
    }
}
