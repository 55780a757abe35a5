//! The sink `alarms`: the current alarms of a scenario as rows of its tenant's table of that name.
//!
//! It has no outputs of its own: the alarms are in keyed state, and each drain puts the scenario's rows as they are after
//! some batch in the place of those before. What it skips in between is in `alarm_events`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weir_model::batch::{ALARMS, SCENARIO, SinkCursor, Stage};
use weir_model::port::Replace;
use weir_model::{AlarmState, BatchId, Digest, Fault, Name, SinkId};

use crate::batch;
use crate::drain::{Checked, Drained, app};
use crate::engines::Engines;
use crate::output;

/// How long a drain may take whose time has come, until the table is no more in its pace.
const GRACE: Duration = Duration::from_secs(1);

/// The current alarms of one live run.
pub struct AlarmTable {
    sink: SinkId,
    state: Mutex<State>,
    fault: Mutex<Option<Fault>>,
    checked: Checked,
    /// When it drains next, by the machine's time that has passed.
    next: Mutex<Option<Duration>>,
}

#[derive(Default)]
struct State {
    /// Of the rows that the table holds.
    written: Option<Digest>,
}

impl AlarmTable {
    /// Opens the sink.
    pub fn new(sink: SinkId) -> Self {
        Self {
            sink,
            state: Mutex::default(),
            fault: Mutex::new(None),
            checked: Checked::default(),
            next: Mutex::new(None),
        }
    }

    /// Brings the table to where the ledger is. Blocks.
    pub fn drain(&self, engines: &Engines) -> Result<Drained, Fault> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = self.drain_inner(&mut state, engines).map_err(|f| f.at(Stage::Sink));
        if result.is_err() {
            *state = State::default();
            self.checked.forget();
        }
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = result.as_ref().err().cloned();
        result
    }

    fn drain_inner(&self, state: &mut State, engines: &Engines) -> Result<Drained, Fault> {
        let cursor = engines.ledger.cursor(&self.sink)?;
        let Some(head) = engines.ledger.head(&self.sink.key)?.map(|h| h.plan.id) else {
            return Ok(Drained::Nothing);
        };
        if cursor.as_ref().is_some_and(|c| c.drained_to >= head) {
            return Ok(Drained::Nothing);
        }
        // Before the batch after the head: a commit that comes meanwhile is not half in it.
        let reader = engines.ledger.state_before(&self.sink.key, head.next())?;
        let alarms: Vec<AlarmState> = batch::current_alarms(reader.as_ref())?.into_values().collect();
        let digest = Digest::of(&serde_json::to_vec(&alarms).map_err(Fault::internal)?);
        let table_id = match cursor.as_ref().filter(|_| state.written == Some(digest)) {
            Some(cursor) => cursor.table_id.clone(),
            None => Some(self.replace(engines, cursor.as_ref(), head, &alarms)?),
        };
        engines.ledger.advance(&self.sink, &SinkCursor { drained_to: head, table_id })?;
        state.written = Some(digest);
        engines.faults.pass("sink.cursor-moved")?;
        Ok(Drained::To(head))
    }

    /// Puts rows in the place of the scenario's; answers the table's id.
    fn replace(
        &self,
        engines: &Engines,
        cursor: Option<&SinkCursor>,
        at: BatchId,
        alarms: &[AlarmState],
    ) -> Result<String, Fault> {
        let rows = output::of_alarms(alarms)?;
        let name = Name::new(ALARMS).map_err(Fault::internal)?;
        let app = app(engines, &self.sink)?;
        let table = self.checked.table(engines, &self.sink, &name, rows.schema(), cursor, &app)?;
        engines.faults.pass("sink.before-append")?;
        let rows = Arc::new(if alarms.is_empty() { Vec::new() } else { vec![rows] });
        let matching = vec![(SCENARIO.to_owned(), self.sink.key.scenario.to_string())];
        let version = i64::try_from(at.0).unwrap_or(i64::MAX);
        engines.runtime.block_on(table.replace(Replace { app, version, rows, matching, between: None }))?;
        engines.faults.pass("sink.after-append")?;
        engines.runtime.block_on(table.id())
    }

    /// Takes the scenario's rows out of the table, before the ledger forgets it. Blocks.
    pub fn forget(&self, engines: &Engines) -> Result<(), Fault> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = State::default();
        let cursor = engines.ledger.cursor(&self.sink)?;
        let head = engines.ledger.head(&self.sink.key)?.map(|h| h.plan.id);
        let (Some(cursor), Some(head)) = (cursor, head) else { return Ok(()) };
        self.replace(engines, Some(&cursor), head.next(), &[]).map(drop)
    }

    /// Whoever drains it waits until then, so that several batches share one change of the table.
    pub fn waits_until(&self, next: Duration) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
    }

    /// Whether it is behind, if it is, only because its time has not come.
    pub fn in_pace(&self, now: Duration) -> bool {
        let next = *self.next.lock().unwrap_or_else(PoisonError::into_inner);
        self.fault().is_none() && next.is_some_and(|next| now <= next.saturating_add(GRACE))
    }

    /// Why the last drain failed, if it did.
    pub fn fault(&self) -> Option<Fault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use weir_model::RunKey;

    use super::*;

    #[test]
    fn behind_is_in_pace_until_its_time_has_come_and_a_drain_could_be_done() {
        let output = Name::new(ALARMS).unwrap();
        let table = AlarmTable::new(SinkId { key: RunKey::live("t/s".parse().unwrap()), output });
        let at = Duration::from_millis;
        assert!(!table.in_pace(at(0)), "nobody has said that it waits");
        table.waits_until(at(5_000));
        assert!(table.in_pace(at(100)) && table.in_pace(at(6_000)));
        assert!(!table.in_pace(at(6_001)), "its time has come and gone");
        table.waits_until(at(11_000));
        assert!(table.in_pace(at(6_001)));
        // One that fails is not waiting for its time.
        let fault = Fault::external(weir_model::FaultKind::Sink, "no folder");
        *table.fault.lock().unwrap() = Some(fault);
        assert!(!table.in_pace(at(6_001)));
    }
}
