//! A batch over fixtures.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::{Rc, Weak};
use std::time::Duration;

use serde_json::Value;

use super::frame::{MemoryFrame, MemoryWriter, register, rows_of};
use super::rows::Rows;
use super::rule::{Judge, evaluate};
use super::{Call, Entries, Reject};
use crate::backend::{self, FrameHandle, QueryCall, RuleCall, WriterHandle};
use crate::log::Level;
use crate::{Alarm, Blobs, Bounds, DataError, Description, Fault, Field, RowFault, RowRef, Time};

/// What a host answers with.
pub(super) struct Fixtures {
    pub(super) description: Description,
    pub(super) inputs: BTreeMap<String, Rows>,
    pub(super) queries: BTreeMap<String, Answerer>,
    pub(super) rules: BTreeMap<String, Judge>,
    pub(super) assets: BTreeMap<String, Rc<[u8]>>,
}

type Answerer = Box<dyn Fn(&Call<'_>) -> Result<Rows, String>>;

impl Fixtures {
    pub(super) fn new(description: Description) -> Self {
        Self {
            description,
            inputs: BTreeMap::new(),
            queries: BTreeMap::new(),
            rules: BTreeMap::new(),
            assets: BTreeMap::new(),
        }
    }
}
impl Default for Fixtures {
    fn default() -> Self {
        Self::new(Description::new("", ""))
    }
}

/// What came of a batch so far.
#[derive(Default)]
pub(super) struct Written {
    /// All frames by number; gone when the detector has let go of them.
    pub(super) frames: Vec<Weak<MemoryFrame>>,
    pub(super) outputs: BTreeMap<String, Vec<Value>>,
    pub(super) alarms: Vec<Alarm>,
    pub(super) rejects: Vec<Reject>,
    pub(super) log: Vec<(Level, String)>,
}

impl Written {
    fn row(&self, row: RowRef) -> Result<Value, Fault> {
        let frame = self.frames.get(row.frame as usize).and_then(Weak::upgrade);
        let frame = frame.ok_or(DataError::OutOfRange)?;
        if row.row as usize >= frame.rows.len() {
            return Err(DataError::OutOfRange.into());
        }
        Ok(frame.rows.row(row.row as usize))
    }
}

/// One batch.
pub(super) struct Host {
    fixtures: Fixtures,
    time: Time,
    state: RefCell<Entries>,
    written: Rc<RefCell<Written>>,
}

impl Host {
    pub(super) fn new(fixtures: Fixtures, time: Time, mut state: Entries) -> Self {
        state.retain(|_, (_, expires)| expires.is_none_or(|expires| expires > time));
        Self { fixtures, time, state: RefCell::new(state), written: Rc::default() }
    }
    pub(super) fn into_parts(self) -> (Fixtures, Entries, Written) {
        let written = self.written.take();
        (self.fixtures, self.state.into_inner(), written)
    }
    fn state(&self) -> &RefCell<Entries> {
        let declared = self.fixtures.description.state.is_some();
        assert!(declared, "the detector uses state, and describe says that it has none");
        &self.state
    }
    fn writer(&self, output: Option<&str>, fields: Option<Vec<Field>>) -> WriterHandle {
        Box::new(MemoryWriter {
            output: output.map(str::to_owned),
            fields,
            columns: BTreeMap::new(),
            written: Rc::clone(&self.written),
        })
    }
}

/// A fixture that describe lists: undeclared if it does not, and a mistake of the test if there is none.
fn fixture<'f, T>(
    fixtures: &'f BTreeMap<String, T>,
    declared: &[String],
    what: &str,
    name: &str,
) -> Result<&'f T, Fault> {
    if !declared.iter().any(|known| known == name) {
        return Err(DataError::Undeclared.into());
    }
    let found = fixtures.get(name);
    Ok(found.unwrap_or_else(|| panic!("the test gives no {what} '{name}'")))
}

impl backend::Batch for Host {
    fn time(&self) -> i64 {
        self.time.micros()
    }
    fn input(&self, name: &str) -> Result<FrameHandle, Fault> {
        let declared = &self.fixtures.description.inputs;
        let rows = fixture(&self.fixtures.inputs, declared, "input", name)?;
        Ok(register(rows.clone(), &self.written))
    }
    /// An hour up to T, complete.
    fn window(&self, input: &str) -> Result<Bounds, Fault> {
        let inputs = &self.fixtures.description.inputs;
        if !inputs.iter().any(|known| known == input) {
            return Err(DataError::Undeclared.into());
        }
        Ok(Bounds { start: self.time - Duration::from_secs(3600), end: self.time, watermark: Some(self.time) })
    }
    fn query(&self, call: QueryCall<'_>) -> Result<FrameHandle, Fault> {
        let declared = &self.fixtures.description.queries;
        let answer = fixture(&self.fixtures.queries, declared, "query", call.name)?;
        let rows = call.rows.iter();
        let rows = answer(&Call {
            name: call.name,
            values: &call.values,
            rows: rows.map(|(name, rows)| (*name, rows_of(rows).clone())).collect(),
        });
        Ok(register(rows.map_err(DataError::Failed)?, &self.written))
    }
    fn rule(&self, call: RuleCall<'_>) -> Result<(FrameHandle, Vec<RowFault>), Fault> {
        let declared = &self.fixtures.description.rules;
        let judge = fixture(&self.fixtures.rules, declared, "rule", call.name)?;
        let (rows, failed) = evaluate(judge, &call)?;
        Ok((register(rows, &self.written), failed))
    }
    fn state_get(&self, keys: Blobs) -> Result<(Vec<u8>, Blobs), Fault> {
        let state = self.state().borrow();
        let found: Vec<Option<&[u8]>> =
            keys.iter().map(|key| state.get(key).map(|(value, _)| value.as_slice())).collect();
        let present = found.iter().map(|value| u8::from(value.is_some()));
        let values = found.iter().map(|value| value.unwrap_or_default());
        Ok((present.collect(), values.collect()))
    }
    fn state_put(&self, keys: Blobs, values: Blobs, ttl_seconds: Option<u64>) -> Result<(), Fault> {
        let expires = ttl_seconds.map(|seconds| self.time + Duration::from_secs(seconds));
        let entries = keys.iter().zip(values.iter());
        self.state().borrow_mut().extend(entries.map(|(key, value)| (key.to_vec(), (value.to_vec(), expires))));
        Ok(())
    }
    fn state_delete(&self, keys: Blobs) -> Result<(), Fault> {
        let mut state = self.state().borrow_mut();
        for key in keys.iter() {
            state.remove(key);
        }
        Ok(())
    }
    fn state_scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: u32) -> Result<(Blobs, Blobs), Fault> {
        let state = self.state().borrow();
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        Ok(state
            .range::<[u8], _>((from, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .take(limit as usize)
            .map(|(key, (value, _))| (key, value))
            .fold(Default::default(), |(mut keys, mut values): (Blobs, Blobs), (key, value)| {
                keys.push(key);
                values.push(value);
                (keys, values)
            }))
    }
    fn output(&self, name: &str) -> WriterHandle {
        let outputs = &self.fixtures.description.outputs;
        let declared = outputs.iter().find(|output| output.name == name);
        self.writer(Some(name), declared.map(|output| output.fields.clone()))
    }
    fn scratch(&self, fields: Vec<Field>) -> WriterHandle {
        self.writer(None, Some(fields))
    }
    fn alarms(&self, alarms: Vec<Alarm>) -> Result<(), Fault> {
        let mut written = self.written.borrow_mut();
        for alarm in &alarms {
            let types = &self.fixtures.description.alarms;
            let declared = types.iter().find(|known| known.name == alarm.name);
            if declared.ok_or(DataError::Undeclared)?.key.len() != alarm.key.len() {
                return Err(DataError::Malformed.into());
            }
            for row in &alarm.because {
                written.row(*row)?;
            }
        }
        written.alarms.extend(alarms);
        Ok(())
    }
    fn reject(&self, rows: &[RowRef], reason: &str) -> Result<(), Fault> {
        let mut written = self.written.borrow_mut();
        for row in rows {
            let reject = Reject { row: written.row(*row)?, reason: reason.to_owned() };
            written.rejects.push(reject);
        }
        Ok(())
    }
}

impl backend::Ambient for Host {
    fn log(&self, level: Level, message: &str) {
        // what a failing test shows of its detector
        eprintln!("{level:?}: {message}");
        let mut written = self.written.borrow_mut();
        written.log.push((level, message.to_owned()));
    }
    fn asset(&self, name: &str) -> Option<Rc<[u8]>> {
        self.fixtures.assets.get(name).cloned()
    }
}
