//! The rows of a run take the place of the scenario's rows in its range of T, one transaction a table. Live state, alarms
//! and alarm events stay as they are.

use std::collections::BTreeMap;
use std::fmt::{Debug, Formatter};
use std::sync::Arc;

use arrow_array::{RecordBatch, new_null_array};
use arrow_schema::{Field, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use weir_model::batch::{BATCH_TIME, BatchRecord, RULESET, SCENARIO, SinkCursor};
use weir_model::columns::output_schema;
use weir_model::port::{Ledger, Pages, Replace};
use weir_model::service::BackfillProgress;
use weir_model::{BatchId, Fault, FaultKind, Name, RunKey, SinkId, Stage, Time};

use super::run::Run;
use crate::decide::tick;
use crate::drain::app;
use crate::engines::Engines;
use crate::host::Host;
use crate::output;

/// Bytes that are read from the ledger at once. A batch of two rows takes some ten times of that in memory.
const PAGE_BYTES: usize = 1 << 20;

/// Publishes a run that has all its batches. Idempotent: a table that holds the run already is left alone. Blocks.
pub(super) fn publish(host: &Host, run: &Run) -> Result<bool, Fault> {
    let engines = &host.engines;
    let head = engines.ledger.head(&run.key)?.ok_or_else(|| Fault::internal("a run without batches is published"))?;
    live_is_past(engines, run)?;
    let description = run.prepared.detector.description();
    let manifest = &run.prepared.ruleset.manifest;
    let mut tables: BTreeMap<Name, Vec<RecordBatch>> = BTreeMap::new();
    let mut outputs: BTreeMap<Name, Vec<Name>> = BTreeMap::new();
    for declared in &description.outputs {
        let none = RecordBatch::new_empty(output_schema(&declared.fields));
        let none = output::of_plugin(&head.plan, manifest, &declared.name, &none)?;
        live_is_drained(host, run, &declared.name)?;
        tables.entry(none.table.clone()).or_default().push(none.rows);
        outputs.entry(none.table).or_default().push(declared.name.clone());
    }
    for (table, none) in tables {
        let result = table_of(engines, run, &head, &table, none, outputs.get(&table).map_or(&[], Vec::as_slice));
        result.map_err(|fault| fault.at(Stage::Sink))?;
    }
    settle(engines, &run.key, head.plan.id)?;
    Ok(true)
}

/// Gives up what a run has left: its rows count as drained, so that retention drops them with its batches.
pub(super) fn discard(engines: &Engines, key: &RunKey) -> Result<BackfillProgress, Fault> {
    let head = engines.ledger.head(key)?.ok_or_else(|| {
        Fault::tenant(FaultKind::NotFound, format_args!("there is no run {key}")).fix("ask for it as it was begun")
    })?;
    settle(engines, key, head.plan.id)?;
    let head = head.plan;
    let progress = BackfillProgress::begun(key.clone(), head.ruleset, head.backfill.as_ref());
    Ok(BackfillProgress { done: head.id.0, time: Some(head.time), discarded: true, ..progress })
}

fn settle(engines: &Engines, key: &RunKey, head: BatchId) -> Result<(), Fault> {
    let mut sinks = engines.ledger.sinks()?.into_iter().filter(|(sink, _, _)| sink.key == *key);
    sinks.try_for_each(|(sink, _, _)| engines.ledger.advance(&sink, &SinkCursor { drained_to: head, table_id: None }))
}

fn table_of(
    engines: &Engines,
    run: &Run,
    head: &BatchRecord,
    name: &Name,
    none: Vec<RecordBatch>,
    outputs: &[Name],
) -> Result<(), Fault> {
    let scenario = &run.key.scenario;
    let runtime = &engines.runtime;
    let schema = together(&none);
    let table = runtime.block_on(engines.lake.table(&scenario.tenant, name, schema.clone()))?;
    let app = app(engines, &SinkId { key: run.key.clone(), output: name.clone() })?;
    let version = i64::try_from(head.plan.id.0).map_err(Fault::internal)?;
    if runtime.block_on(table.held(&app))?.is_some_and(|held| held >= version) {
        return not_replaced(engines, run, name);
    }
    let sinks: Vec<SinkId> =
        outputs.iter().map(|output| SinkId { key: run.key.clone(), output: output.clone() }).collect();
    for sink in &sinks {
        if engines.ledger.cursor(sink)?.is_some() {
            return Err(Fault::tenant(
                FaultKind::NotReplayable,
                format_args!("the rows of {} were discarded, or published into a table {name} that is gone", run.key),
            )
            .field("--name")
            .fix("begin a run of another name"));
        }
    }
    let rows = Arc::new(Kept { ledger: engines.ledger.clone(), sinks, schema });
    let range = run.backfill.range;
    runtime.block_on(table.replace(Replace {
        app,
        version,
        rows,
        matching: vec![(SCENARIO.to_owned(), scenario.to_string())],
        between: Some((BATCH_TIME.to_owned(), range.from, range.to)),
    }))
}

/// A run that was published before is not published twice. Where another one has taken its place since, that must not be
/// taken for done.
fn not_replaced(engines: &Engines, run: &Run, name: &Name) -> Result<(), Fault> {
    let (scenario, ruleset, range) = (&run.key.scenario, run.prepared.ruleset.digest, run.backfill.range);
    let time = |at: Time| format!("arrow_cast({}, 'Timestamp(Microsecond, Some(\"UTC\"))')", at.micros());
    let sql = format!(
        "SELECT {RULESET} FROM \"{name}\" WHERE {SCENARIO} = '{scenario}' AND {BATCH_TIME} >= {} AND {BATCH_TIME} < {} \
         AND {RULESET} <> '{ruleset}' LIMIT 1",
        time(range.from),
        time(range.to)
    );
    if engines.adhoc.query(&scenario.tenant, &sql, Vec::new())?.num_rows() == 0 {
        return Ok(());
    }
    Err(Fault::tenant(
        FaultKind::NotReplayable,
        format_args!(
            "{} was published before, and rows of another ruleset are in its place in table {name} since",
            run.key
        ),
    )
    .field("--name")
    .fix("begin a run of another name"))
}

/// A live batch that is still to come would add its rows to those of the run.
fn live_is_past(engines: &Engines, run: &Run) -> Result<(), Fault> {
    let scenario = &run.key.scenario;
    let last = engines.ledger.head(&RunKey::live(scenario.clone()))?.map(|head| head.plan.time);
    let now = engines.clock.now();
    let active = engines.store.scenario(scenario).filter(|view| !view.removed).and_then(|view| view.active);
    let Some(manifest) = active.as_ref().map(|active| &active.ruleset.manifest) else { return Ok(()) };
    let next = tick::due(manifest.trigger, manifest.catch_up, last, now)
        .map_or_else(|| tick::next(manifest.trigger, last, now), |due| due.time);
    if next >= run.backfill.range.to {
        return Ok(());
    }
    Err(Fault::tenant(
        FaultKind::Config,
        format_args!("the live batch of {scenario} for {next} is still to come, and it lies in the range"),
    )
    .retry(weir_model::Retry::Later)
    .field("--to")
    .fix(format_args!("publish when it has been committed, or end the range at or before {next}")))
}

/// Brings what live batches left of this output to the table, so that it is not appended after the run's rows.
fn live_is_drained(host: &Host, run: &Run, output: &Name) -> Result<(), Fault> {
    let ledger = &host.engines.ledger;
    let live = RunKey::live(run.key.scenario.clone());
    let sink = SinkId { key: live.clone(), output: output.clone() };
    host.add_sink(sink.clone());
    host.drain(&sink)?;
    let drained = ledger.cursor(&sink)?.map(|cursor| cursor.drained_to);
    let waiting = ledger.outputs(&sink, drained, 1)?;
    let Some(first) = waiting.first() else { return Ok(()) };
    match ledger.record(&live, first.batch)? {
        Some(record) if record.plan.time >= run.backfill.range.to => Ok(()),
        _ => Err(Fault::external(
            FaultKind::Sink,
            format_args!("sink {sink} has not written the rows of live batch {} yet", first.batch),
        )
        .fix("`weir status` says why it waits; publish again after that")),
    }
}

/// Batches of one schema that follow each other, as one.
fn joined(all: Vec<RecordBatch>) -> Result<Vec<RecordBatch>, Fault> {
    let alike = all.chunk_by(|a, b| a.schema_ref() == b.schema_ref());
    alike.map(|some| concat_batches(some[0].schema_ref(), some).map_err(Fault::internal)).collect()
}

/// What the outputs of one table have in common with the table: all of their columns.
fn together(outputs: &[RecordBatch]) -> SchemaRef {
    let mut fields: Vec<Arc<Field>> = Vec::new();
    for field in outputs.iter().flat_map(|rows| rows.schema_ref().fields()) {
        if !fields.iter().any(|known| known.name() == field.name()) {
            let everywhere = outputs.iter().all(|rows| rows.column_by_name(field.name()).is_some());
            let nullable = field.is_nullable() || !everywhere;
            fields.push(Arc::new(field.as_ref().clone().with_nullable(nullable)));
        }
    }
    Arc::new(Schema::new(fields))
}

/// What a run left in the ledger for one table.
struct Kept {
    ledger: Arc<dyn Ledger>,
    sinks: Vec<SinkId>,
    schema: SchemaRef,
}

impl Debug for Kept {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("sinks", &self.sinks).finish_non_exhaustive()
    }
}

impl Pages for Kept {
    fn schema(&self) -> Option<SchemaRef> {
        Some(self.schema.clone())
    }
    fn each(&self, take: &mut dyn FnMut(RecordBatch) -> Result<(), Fault>) -> Result<(), Fault> {
        for sink in &self.sinks {
            let mut after = None;
            loop {
                let page = self.ledger.outputs(sink, after, PAGE_BYTES)?;
                let Some(last) = page.last() else { break };
                after = Some(last.batch);
                // One batch a page: thousands of batches of two rows would take many times what their rows do.
                for whole in joined(page.into_iter().map(|pending| pending.rows).collect())? {
                    take(widened(&whole, &self.schema)?)?;
                }
            }
        }
        Ok(())
    }
}

fn widened(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Fault> {
    if let Some(field) = rows.schema_ref().fields().iter().find(|f| schema.field_with_name(f.name()).is_err()) {
        return Err(Fault::internal(format_args!(
            "a row of the run has a column {}, which its ruleset lacks",
            field.name()
        )));
    }
    let columns = schema.fields().iter().map(|field| match rows.column_by_name(field.name()) {
        Some(column) => column.clone(),
        None => new_null_array(field.data_type(), rows.num_rows()),
    });
    RecordBatch::try_new(schema.clone(), columns.collect()).map_err(Fault::internal)
}
