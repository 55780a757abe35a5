//! Step 5: a sink drains committed outputs in order, with its own cursor, idempotent by (sink id, N). This one appends them
//! to a table; [`crate::sink`] says which others there are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::SchemaRef;
use weir_model::batch::{PendingOutput, SinkCursor, Stage};
use weir_model::port::{Append, Table};
use weir_model::{BatchId, Fault, FaultKind, Name, SinkId};

use crate::engines::Engines;

/// One sink of one run.
pub struct Drain {
    /// Its identity.
    pub sink: SinkId,
    max_bytes: usize,
    gate: Mutex<()>,
    fault: Mutex<Option<Fault>>,
    checked: Checked,
}

/// What one call drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Outputs up to this batch; there may be more.
    To(BatchId),
    /// There was nothing.
    Nothing,
}

impl Drain {
    /// Opens a sink. `max_bytes` bounds what is put into one transaction.
    pub fn new(sink: SinkId, max_bytes: usize) -> Self {
        Self { sink, max_bytes, gate: Mutex::new(()), fault: Mutex::new(None), checked: Checked::default() }
    }

    /// Drains once: the outputs that wait, bounded in bytes, to one table in one transaction. Blocks.
    pub fn drain(&self, engines: &Engines) -> Result<Drained, Fault> {
        let _one_at_a_time = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let result = self.drain_inner(engines).map_err(|f| f.at(Stage::Sink));
        if result.is_err() {
            // After an error nothing is known: compare again before the next append.
            self.checked.forget();
        }
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = result.as_ref().err().cloned();
        result
    }

    fn drain_inner(&self, engines: &Engines) -> Result<Drained, Fault> {
        let cursor = engines.ledger.cursor(&self.sink)?;
        let after = cursor.as_ref().map(|c| c.drained_to);
        let waiting = engines.ledger.outputs(&self.sink, after, self.max_bytes)?;
        let Some(first) = waiting.first() else {
            return Ok(Drained::Nothing);
        };
        // One transaction goes to one table; a ruleset that names another table begins the next one.
        let table_name = first.table.clone();
        let batch: Vec<PendingOutput> = waiting.into_iter().take_while(|o| o.table == table_name).collect();
        let Some(last) = batch.last().map(|o| o.batch) else {
            return Ok(Drained::Nothing);
        };
        let app = app(engines, &self.sink)?;
        let schema = batch[0].rows.schema();
        let table = self.checked.table(engines, &self.sink, &table_name, schema, cursor.as_ref(), &app)?;
        engines.faults.pass("sink.before-append")?;
        let items = batch
            .into_iter()
            .map(|o| Append { app: app.clone(), version: i64::try_from(o.batch.0).unwrap_or(i64::MAX), rows: o.rows })
            .collect();
        engines.runtime.block_on(table.append(items))?;
        engines.faults.pass("sink.after-append")?;
        let table_id = engines.runtime.block_on(table.id())?;
        engines.ledger.advance(&self.sink, &SinkCursor { drained_to: last, table_id: Some(table_id) })?;
        engines.faults.pass("sink.cursor-moved")?;
        Ok(Drained::To(last))
    }

    /// Why the last drain failed, if it did.
    pub fn fault(&self) -> Option<Fault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Who appends: ledger, scenario and sink with all incarnations, so that a restored backup or a re-created scenario is
/// not taken for this one.
pub(crate) fn app(engines: &Engines, sink: &SinkId) -> Result<String, Fault> {
    let scenario = engines.ledger.scenario(&sink.key.scenario)?;
    Ok(format!("{}/{scenario}/{sink}", engines.ledger.incarnation()))
}

/// Tables whose identity and position were compared with a sink's cursor since it was opened.
#[derive(Default)]
pub(crate) struct Checked(Mutex<BTreeMap<Name, Arc<dyn Table>>>);

impl Checked {
    /// The table, compared with the cursor when it is used for the first time or after an error.
    pub fn table(
        &self,
        engines: &Engines,
        sink: &SinkId,
        name: &Name,
        schema: SchemaRef,
        cursor: Option<&SinkCursor>,
        app: &str,
    ) -> Result<Arc<dyn Table>, Fault> {
        let runtime = &engines.runtime;
        let mut checked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Asking the lake each time keeps the schema wide enough; it is cheap when nothing changed.
        let table = runtime.block_on(engines.lake.table(&sink.key.scenario.tenant, name, schema))?;
        if checked.contains_key(name) {
            return Ok(table);
        }
        let found = runtime.block_on(table.id())?;
        let held = runtime.block_on(table.held(app))?;
        let head = engines.ledger.head(&sink.key)?.map_or(0, |h| i64::try_from(h.plan.id.0).unwrap_or(i64::MAX));
        mismatch(sink, name, cursor, &found, held, head)?;
        checked.insert(name.clone(), table.clone());
        Ok(table)
    }

    /// After an error nothing is known: compare again before the next change.
    pub fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Whether what the table holds can be what this sink wrote.
fn mismatch(
    sink: &SinkId,
    table: &Name,
    cursor: Option<&SinkCursor>,
    found: &str,
    held: Option<i64>,
    head: i64,
) -> Result<(), Fault> {
    let fault = |message: String| {
        Err(Fault::external(FaultKind::SinkMismatch, message)
            .file(format_args!("lake/{}/{table}", sink.key.scenario.tenant))
            .fix("put the table back as it was, or send the output to a table of another name"))
    };
    if held.is_some_and(|held| held > head) {
        return fault(format!(
            "the table holds batch {} of sink {sink}, and the ledger ends at batch {head}",
            held.unwrap_or_default()
        ));
    }
    match cursor.and_then(|c| c.table_id.as_deref()) {
        Some(known) if known != found => fault(format!("table {table} is not the one that sink {sink} wrote before")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use weir_model::RunKey;

    fn sink() -> SinkId {
        SinkId { key: RunKey::live("t/s".parse().unwrap()), output: Name::new("rows").unwrap() }
    }
    fn cursor(id: &str) -> SinkCursor {
        SinkCursor { drained_to: BatchId(3), table_id: Some(id.to_owned()) }
    }

    #[test]
    fn a_table_that_is_ahead_or_another_one_stops_the_sink() {
        let table = Name::new("rows").unwrap();
        assert!(mismatch(&sink(), &table, None, "a", None, 0).is_ok());
        assert!(mismatch(&sink(), &table, Some(&cursor("a")), "a", Some(5), 5).is_ok());
        let ahead = mismatch(&sink(), &table, Some(&cursor("a")), "a", Some(6), 5).unwrap_err();
        assert_eq!(ahead.kind, FaultKind::SinkMismatch);
        assert!(ahead.message.contains("holds batch 6") && ahead.message.contains("ends at batch 5"));
        let other = mismatch(&sink(), &table, Some(&cursor("a")), "b", None, 5).unwrap_err();
        assert_eq!(other.kind, FaultKind::SinkMismatch);
    }
}
