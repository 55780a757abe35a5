//! Binds a batch's inputs to a kept plan and runs it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use datafusion::common::ScalarValue;
use tokio::runtime::Handle;
use weir_model::batch::Between;
use weir_model::columns::ColumnType;
use weir_model::port::{BatchInputs, BronzeRange, Extent, PinnedStream, Queries};
use weir_model::{CallError, DataError, Fault, FaultKind, Name, Scalar, StreamDef, Time};

use super::deadline::Deadline;
use super::kept::{Kept, RunLimits};
use super::params::{Binding, scalar, timestamp};
use super::scan::{Piece, TableRows};
use super::visible::{Period, columns_read, hot, merge, one_batch};
use crate::error::sql_text;
use crate::normalise::{cast, with_rows};
use crate::reference::{Budget, Origin, References};
use crate::table::Reader;

/// A scalar parameter.
#[derive(Debug, Clone)]
pub(crate) struct Param {
    pub name: Name,
    pub ty: ColumnType,
}

/// How a query reads a stream.
#[derive(Debug, Clone)]
pub(crate) struct StreamUse {
    pub name: String,
    /// The parameters that bound its event time.
    pub bounds: Option<[usize; 2]>,
    /// Columns that it reads.
    pub columns: Vec<usize>,
}

/// A named query, ready to run.
#[derive(Debug)]
pub(crate) struct Query {
    pub params: Vec<Param>,
    pub rows: Vec<(Name, SchemaRef)>,
    pub streams: Vec<StreamUse>,
    /// Reference tables that it reads.
    pub tables: Vec<String>,
    pub kept: Kept,
}

/// All queries of a ruleset.
#[derive(Debug)]
pub(crate) struct Planned {
    pub queries: BTreeMap<Name, Query>,
    pub streams: BTreeMap<Name, Arc<StreamDef>>,
    pub references: References,
    pub reader: Arc<Reader>,
    pub runtime: Handle,
    pub limits: RunLimits,
    pub tenant: Name,
}

impl Queries for Planned {
    fn run(
        &self,
        name: &str,
        inputs: &BatchInputs,
        params: &[(String, Scalar)],
        rows: &[(String, RecordBatch)],
    ) -> Result<RecordBatch, CallError> {
        let query = self.queries.get(name).ok_or(DataError::Undeclared)?;
        let deadline = Deadline::start(self.limits.time);
        let mut values = bind_params(&query.params, params)?;
        let mut tables = bind_rows(&query.rows, rows)?;
        for used in &query.streams {
            let bounds = match used.bounds {
                Some(ends) => Some(period_of(&query.params, &values, ends)?),
                None => None,
            };
            let (pinned, def) = self.pinned(&used.name, inputs)?;
            let rows = self.rows(pinned, def, &used.columns, bounds, deadline)?;
            tables.insert(used.name.clone(), Arc::new(TableRows(rows)));
        }
        for name in &query.tables {
            tables.insert(name.clone(), self.reference(name, inputs)?);
        }
        values.push(timestamp(inputs.time.micros()));
        let binding = Binding { params: values, tables };
        query.kept.run(binding, deadline)
    }

    fn input(&self, name: &str, inputs: &BatchInputs) -> Result<RecordBatch, CallError> {
        let deadline = Deadline::start(self.limits.time);
        let (pinned, def) = self.pinned(name, inputs)?;
        let schema = def.positioned_schema();
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let pieces = self.rows(pinned, def, &all, None, deadline)?;
        one_batch(&schema, pieces).map_err(|e| CallError::Fault(Fault::internal(e)))
    }

    fn extent(&self, name: &str, inputs: &BatchInputs, range: Option<Between>) -> Result<Extent, CallError> {
        let deadline = Deadline::start(self.limits.time);
        let (pinned, def) = self.pinned(name, inputs)?;
        let time = def.positioned_schema().index_of(&def.event_time).map_err(Fault::internal)?;
        let pieces = self.rows(pinned, def, &[time], range.map(|r| (r.from, r.to)), deadline)?;
        let mut extent = Extent::default();
        for Piece { batch, keep } in pieces {
            let time = batch.schema_ref().index_of(&def.event_time).map_err(Fault::internal)?;
            let times = batch.project(&[time]).map_err(Fault::internal)?;
            let rows = match keep {
                Some(keep) => filter_record_batch(&times, &keep).map_err(Fault::internal)?,
                None => times,
            };
            extent.add(&rows, &def.event_time, |_| true);
        }
        Ok(extent)
    }

    fn make_ready(&self) {
        self.queries.values().for_each(|query| query.kept.make_ready());
    }

    fn names(&self) -> Vec<Name> {
        self.queries.keys().cloned().collect()
    }

    fn tables(&self) -> Result<BTreeMap<Name, String>, Fault> {
        let mut budget = self.budget();
        let mut versions = BTreeMap::new();
        for (name, table) in &self.references.tables {
            let version = match &table.origin {
                Origin::File(held) => held.version.clone(),
                Origin::Lake(lake) => {
                    let loaded = lake.now(budget)?;
                    budget.memory = budget.memory.saturating_sub(loaded.bytes);
                    loaded.version.clone()
                }
            };
            versions.insert(name.clone(), version);
        }
        Ok(versions)
    }

    fn schema(&self, name: &str) -> Option<SchemaRef> {
        self.queries.get(name).map(|query| query.kept.schema.clone())
    }
}

impl Planned {
    fn pinned<'a>(
        &'a self,
        name: &str,
        inputs: &'a BatchInputs,
    ) -> Result<(&'a PinnedStream, &'a StreamDef), CallError> {
        let def = self.streams.get(name).ok_or(DataError::Undeclared)?;
        match inputs.streams.get(name) {
            Some(pinned) => Ok((pinned, def)),
            None => Err(CallError::Fault(Fault::internal(format_args!("stream {name} is not pinned")))),
        }
    }

    /// The rows of a reference table at the version that the batch has pinned.
    fn reference(&self, name: &str, inputs: &BatchInputs) -> Result<Arc<TableRows>, Fault> {
        let (Some(table), Some(pinned)) = (self.references.tables.get(name), inputs.tables.get(name)) else {
            return Err(Fault::internal(format_args!("table {name} is not pinned")));
        };
        match &table.origin {
            Origin::File(held) if held.version == *pinned => Ok(held.rows.clone()),
            Origin::File(held) => Err(Fault::internal(format_args!(
                "table {name} is pinned at {pinned}, and the ruleset has {}",
                held.version
            ))),
            Origin::Lake(lake) => lake.at(pinned, self.budget()),
        }
    }

    fn budget(&self) -> Budget {
        Budget { memory: self.references.memory, time: self.limits.time }
    }

    /// The rows of a stream that count, in (partition, offset) order: hot ones, and below them what bronze holds.
    fn rows(
        &self,
        pinned: &PinnedStream,
        def: &StreamDef,
        columns: &[usize],
        bounds: Option<(Time, Time)>,
        deadline: Deadline,
    ) -> Result<Vec<Piece>, CallError> {
        let schema = def.positioned_schema();
        let period = Period::of(pinned, bounds);
        let hot = hot(pinned, &schema, &def.event_time, period.hot(pinned))?;
        let Some(below) = period.below_hot(pinned) else {
            return Ok(hot);
        };
        let read = columns_read(&schema, columns);
        let bronze = self.bronze(pinned, read.clone(), &def.event_time, below, deadline)?;
        Ok(merge(&read, bronze, hot)?)
    }

    fn bronze(
        &self,
        pinned: &PinnedStream,
        schema: SchemaRef,
        event_time: &str,
        period: Period,
        deadline: Deadline,
    ) -> Result<Vec<RecordBatch>, CallError> {
        let table = pinned.def.table.as_ref().unwrap_or(&pinned.stream.stream);
        let range = BronzeRange {
            event_time: event_time.to_owned(),
            from: period.from,
            to: period.to,
            above: pinned.from.clone(),
            below: pinned.upto.clone(),
            memory: Some(self.limits.memory),
        };
        let read = self.reader.bronze(&self.tenant, table, schema, range);
        let wait = self.limits.time.saturating_mul(10);
        let rows = self.runtime.block_on(async { tokio::time::timeout(wait, deadline.watch(read)).await });
        match rows {
            Ok(rows) => Ok(rows??),
            Err(_) => Err(CallError::Fault(
                Fault::external(
                    FaultKind::Deadline,
                    format_args!("bronze table {table} did not answer within {wait:?}"),
                )
                .file(table),
            )),
        }
    }
}

fn bind_params(declared: &[Param], given: &[(String, Scalar)]) -> Result<Vec<ScalarValue>, CallError> {
    if given.iter().any(|(name, _)| !declared.iter().any(|p| p.name.as_str() == name)) {
        return Err(DataError::Undeclared.into());
    }
    declared
        .iter()
        .map(|param| match given.iter().rfind(|(name, _)| param.name.as_str() == name) {
            Some((_, value)) => scalar(value, param.ty),
            None => Err(DataError::Failed(format!("parameter {} is not bound", param.name)).into()),
        })
        .collect()
}

fn period_of(params: &[Param], values: &[ScalarValue], ends: [usize; 2]) -> Result<(Time, Time), CallError> {
    let end = |index: usize| match values.get(index) {
        Some(ScalarValue::TimestampMicrosecond(Some(micros), _)) => Ok(Time(*micros)),
        _ => Err(CallError::Data(DataError::Failed(format!(
            "parameter {} bounds a stream and must not be null",
            params[index].name
        )))),
    };
    Ok((end(ends[0])?, end(ends[1])?))
}

fn bind_rows(
    declared: &[(Name, SchemaRef)],
    given: &[(String, RecordBatch)],
) -> Result<HashMap<String, Arc<TableRows>>, CallError> {
    if given.iter().any(|(name, _)| !declared.iter().any(|(d, _)| d.as_str() == name)) {
        return Err(DataError::Undeclared.into());
    }
    declared
        .iter()
        .map(|(name, schema)| {
            let Some((_, batch)) = given.iter().rfind(|(n, _)| name.as_str() == n) else {
                let text = format!("table parameter {name} is not bound");
                return Err(DataError::Failed(text).into());
            };
            let piece = Piece { batch: as_declared(batch, schema, name)?, keep: None };
            Ok((name.to_string(), Arc::new(TableRows(vec![piece]))))
        })
        .collect()
}

/// A guest's rows in the declared schema: columns by name, further ones are left out.
fn as_declared(batch: &RecordBatch, schema: &SchemaRef, table: &Name) -> Result<RecordBatch, CallError> {
    let columns = schema
        .fields()
        .iter()
        .map(|field| {
            let Some(column) = batch.column_by_name(field.name()) else {
                if field.is_nullable() {
                    return Ok(arrow_array::new_null_array(field.data_type(), batch.num_rows()));
                }
                return Err(DataError::RequiredNull);
            };
            let column = cast(column, field.data_type()).map_err(|e| {
                let text = sql_text(&e.into());
                DataError::Failed(format!("{table}.{}: {text}", field.name()))
            })?;
            if !field.is_nullable() && column.null_count() > 0 {
                return Err(DataError::RequiredNull);
            }
            Ok(column)
        })
        .collect::<Result<Vec<_>, _>>()?;
    with_rows(schema.clone(), columns, batch.num_rows()).map_err(|e| CallError::Data(DataError::Failed(e.to_string())))
}
