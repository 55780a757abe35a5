//! The recorder between a detector and its batch. It passes everything on as it is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_schema::DataType;
use weir_model::alarm::AlarmRaise;
use weir_model::port::{
    BatchHost, Bounds, Description, DetectFailure, Detection, Detector, Prepared, RuleAnswer, RuleCall,
};
use weir_model::review::{Answered, Call, Entry, QueryTotal, Read, RuleTotal, StateSeen, Tally, Truth};
use weir_model::{CallError, Digest, Name, Scalar, Time};

use super::sample::{Budget, cut_text};

/// Calls that are shown; the others are in the totals.
const CALLS: usize = 200;
/// Different values of a column that is counted by value.
const VALUES: usize = 8;
/// Columns of a rule's answers whose truth is counted, and failed evaluations of a call that are shown.
const FEW: usize = 20;

/// What was recorded.
#[derive(Debug, Default)]
pub struct Seen {
    pub calls: Vec<Call>,
    pub calls_left_out: u64,
    pub queries: Vec<QueryTotal>,
    pub rules: Vec<RuleTotal>,
    pub state: Option<StateSeen>,
    pub said: Vec<AlarmRaise>,
    budget: Budget,
}

/// Stands in the place of a detector, and records what it asks and says.
pub struct Recorder {
    inner: Arc<dyn Detector>,
    shared: Arc<Shared>,
}

struct Shared {
    seen: Mutex<Seen>,
    /// Streams that a query's parameters bound, with the names of these parameters.
    bounds: BTreeMap<String, Vec<(Name, String, String)>>,
}

impl Shared {
    // A panic of a caller leaves a record that lacks a call at most.
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorder {
    /// For one batch, with so many rows of each answer.
    pub fn new(prepared: &Prepared, rows: usize) -> Self {
        let described = prepared.detector.description();
        let bounds = prepared.ruleset.manifest.queries.iter().map(|(name, def)| {
            let ends = |(stream, [from, to]): (&Name, &[Name; 2])| (stream.clone(), from.to_string(), to.to_string());
            (name.to_string(), def.bounds.iter().map(ends).collect())
        });
        let total = |query: &Name| QueryTotal { query: query.to_string(), ..QueryTotal::default() };
        let rule = |rule: &Name| RuleTotal { rule: rule.to_string(), ..RuleTotal::default() };
        let seen = Seen {
            queries: described.queries.iter().map(total).collect(),
            rules: described.rules.iter().map(rule).collect(),
            state: described.state.map(|_| StateSeen::default()),
            budget: Budget::new(rows),
            ..Seen::default()
        };
        let shared = Shared { seen: Mutex::new(seen), bounds: bounds.collect() };
        Self { inner: prepared.detector.clone(), shared: Arc::new(shared) }
    }

    /// What was recorded. Leaves nothing behind.
    pub fn seen(&self) -> Seen {
        std::mem::take(&mut *self.shared.lock())
    }
}

impl Detector for Recorder {
    fn description(&self) -> &Description {
        self.inner.description()
    }
    fn digest(&self) -> Digest {
        self.inner.digest()
    }
    fn detect(&self, host: Arc<dyn BatchHost>) -> Result<Detection, Box<DetectFailure>> {
        let found = self.inner.detect(Arc::new(Watched { host, shared: self.shared.clone() }));
        if let Ok(found) = &found {
            self.shared.lock().said.clone_from(&found.alarms);
        }
        found
    }
}

/// Stands in the place of a batch's host.
struct Watched {
    host: Arc<dyn BatchHost>,
    shared: Arc<Shared>,
}

impl BatchHost for Watched {
    fn time(&self) -> Time {
        self.host.time()
    }
    fn seed(&self) -> [u8; 32] {
        self.host.seed()
    }
    fn window(&self, input: &str) -> Result<Bounds, CallError> {
        self.host.window(input)
    }
    fn input(&self, name: &str) -> Result<RecordBatch, CallError> {
        let answer = self.host.input(name);
        let mut seen = self.shared.lock();
        if seen.has_room() {
            let answer = seen.answered(&answer);
            seen.calls.push(Call::Input { stream: cut_text(name), answer });
        }
        answer
    }
    fn query(
        &self,
        name: &str,
        params: &[(String, Scalar)],
        rows: &[(String, RecordBatch)],
    ) -> Result<RecordBatch, CallError> {
        let answer = self.host.query(name, params, rows);
        let bounds = self.shared.bounds.get(name).map_or(&[][..], Vec::as_slice);
        self.shared.lock().query(name, bounds, params, rows, &answer);
        answer
    }
    fn rule(&self, name: &str, call: &RuleCall) -> Result<RuleAnswer, CallError> {
        let answer = self.host.rule(name, call);
        self.shared.lock().rule(name, call, &answer);
        answer
    }
    fn state_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, CallError> {
        let answer = self.host.state_get(keys);
        if let Ok(values) = &answer {
            self.shared.lock().state(|state, room| {
                state.read += keys.len() as u64;
                state.found += values.iter().flatten().count() as u64;
                let read = keys.iter().zip(values).take(room);
                read.for_each(|(key, value)| state.note("read", key, value.as_deref()));
            });
        }
        answer
    }
    fn state_put(&self, entries: &[(&[u8], &[u8])], ttl: Option<u64>) -> Result<(), CallError> {
        let answer = self.host.state_put(entries, ttl);
        if answer.is_ok() {
            self.shared.lock().state(|state, room| {
                state.put += entries.len() as u64;
                entries.iter().take(room).for_each(|(key, value)| state.note("put", key, Some(value)));
            });
        }
        answer
    }
    fn state_delete(&self, keys: &[&[u8]]) -> Result<(), CallError> {
        let answer = self.host.state_delete(keys);
        if answer.is_ok() {
            self.shared.lock().state(|state, room| {
                state.deleted += keys.len() as u64;
                keys.iter().take(room).for_each(|key| state.note("deleted", key, None));
            });
        }
        answer
    }
    fn state_scan(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: u32,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, CallError> {
        let answer = self.host.state_scan(prefix, after, limit);
        if let Ok(entries) = &answer {
            self.shared.lock().state(|state, room| {
                state.scanned += entries.len() as u64;
                entries.iter().take(room).for_each(|(key, value)| state.note("read", key, Some(value)));
            });
        }
        answer
    }
}

/// Adds to the state that was seen.
trait Note {
    fn note(&mut self, what: &str, key: &[u8], value: Option<&[u8]>);
}

impl Note for StateSeen {
    fn note(&mut self, what: &str, key: &[u8], value: Option<&[u8]>) {
        let (what, key) = (what.to_owned(), cut_text(&text(key)));
        self.entries.push(Entry { what, key, value: value.map(|value| cut_text(&text(value))) });
    }
}

/// Bytes for people: as text where they are one.
fn text(bytes: &[u8]) -> String {
    // What is cut anyway need not be read to its end.
    let bytes = &bytes[..bytes.len().min(4_096)];
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

impl Seen {
    fn has_room(&mut self) -> bool {
        let room = self.calls.len() < CALLS;
        self.calls_left_out += u64::from(!room);
        room
    }

    fn answered(&mut self, answer: &Result<RecordBatch, CallError>) -> Answered {
        match answer {
            Ok(rows) => Answered::Rows(self.budget.first(rows)),
            Err(error) => Answered::Error(cut_text(&error.to_string())),
        }
    }

    fn state(&mut self, f: impl FnOnce(&mut StateSeen, usize)) {
        let most = self.budget.rows();
        let state = self.state.get_or_insert_default();
        let room = most.saturating_sub(state.entries.len());
        f(state, room);
    }

    fn query(
        &mut self,
        name: &str,
        bounds: &[(Name, String, String)],
        params: &[(String, Scalar)],
        rows: &[(String, RecordBatch)],
        answer: &Result<RecordBatch, CallError>,
    ) {
        let empty = answer.as_ref().is_ok_and(|rows| rows.num_rows() == 0);
        let first_empty = empty && self.queries.iter().any(|q| q.query == name && q.empty_params.is_none());
        let empty_params = if first_empty { Some(self.budget.values(params)) } else { None };
        if let Some(total) = self.queries.iter_mut().find(|total| total.query == name) {
            total.calls += 1;
            total.empty += u64::from(empty);
            total.empty_params = total.empty_params.take().or(empty_params);
            match answer {
                Ok(rows) => total.rows += rows.num_rows() as u64,
                Err(error) => {
                    total.errors += 1;
                    total.error.get_or_insert_with(|| cut_text(&error.to_string()));
                }
            }
        }
        if !self.has_room() {
            return;
        }
        let end = |param: &str| match params.iter().rfind(|(name, _)| name == param) {
            Some((_, Scalar::Timestamp(micros))) => Some(Time(*micros)),
            _ => None,
        };
        let reads = bounds.iter().filter_map(|(stream, from, to)| {
            Some(Read { stream: stream.clone(), from: end(from)?, to: end(to)?, rows: None })
        });
        let tables = rows.iter().map(|(name, rows)| (cut_text(name), self.budget.first(rows))).collect();
        let call = Call::Query {
            query: cut_text(name),
            params: self.budget.values(params),
            tables,
            reads: reads.collect(),
            answer: self.answered(answer),
        };
        self.calls.push(call);
    }

    fn rule(&mut self, name: &str, call: &RuleCall, answer: &Result<RuleAnswer, CallError>) {
        let evaluations = call.each.as_ref().map_or(1, |rows| rows.num_rows() as u64);
        if let Some(total) = self.rules.iter_mut().find(|total| total.rule == name) {
            total.calls += 1;
            total.evaluations += evaluations;
            match answer {
                Ok(answer) => total_answer(total, call, answer),
                Err(error) => {
                    total.errors += 1;
                    total.error.get_or_insert_with(|| cut_text(&error.to_string()));
                }
            }
        }
        if !self.has_room() {
            return;
        }
        let side_by_side = call.each.is_some() && call.unnest.is_none();
        let shown = match answer {
            Ok(answer) if side_by_side => telling(answer, self.budget.rows()),
            _ => (0..self.budget.rows()).collect(),
        };
        let budget = &mut self.budget;
        let each = call.each.as_ref().map(|rows| budget.some(rows, shown.iter().copied()));
        let arrays = call.rows.iter().map(|(name, rows)| (cut_text(name), budget.first(rows))).collect();
        let (answered, failed, tallies) = match answer {
            Ok(answer) => {
                let failed = answer.failed.iter().take(FEW).map(|(row, why)| (*row, budget.text(why))).collect();
                let rows = budget.some(&answer.rows, shown.iter().copied());
                (Answered::Rows(rows), failed, tallies(&answer.rows))
            }
            Err(error) => (Answered::Error(cut_text(&error.to_string())), Vec::new(), Vec::new()),
        };
        self.calls.push(Call::Rule {
            rule: cut_text(name),
            values: self.budget.values(&call.values),
            arrays,
            each,
            unnest: call.unnest.as_deref().map(cut_text),
            evaluations,
            failed,
            answer: answered,
            tallies,
        });
    }
}

fn total_answer(total: &mut RuleTotal, call: &RuleCall, answer: &RuleAnswer) {
    let rows = answer.rows.num_rows() as u64;
    total.rows += rows;
    total.failed += answer.failed.len() as u64;
    if let Some((_, why)) = answer.failed.first() {
        total.error.get_or_insert_with(|| cut_text(why));
    }
    if call.unnest.is_some() {
        *total.elements.get_or_insert(0) += rows;
    }
    for (field, column) in answer.rows.schema_ref().fields().iter().zip(answer.rows.columns()) {
        let Some(values) = column.as_boolean_opt() else { continue };
        let name = cut_text(field.name());
        if total.truths.len() < FEW && !total.truths.iter().any(|truth| truth.field == name) {
            total.truths.push(Truth { field: name.clone(), ..Truth::default() });
        }
        let Some(truth) = total.truths.iter_mut().find(|truth| truth.field == name) else { continue };
        truth.yes += values.true_count() as u64;
        truth.no += values.false_count() as u64;
        truth.neither += column.null_count() as u64;
    }
}

/// Which rows of an answer are shown: those that failed or were answered with true come before the others.
fn telling(answer: &RuleAnswer, most: usize) -> Vec<usize> {
    let total = answer.rows.num_rows();
    let mut tells = vec![false; total];
    let failed = answer.failed.iter().filter_map(|(row, _)| usize::try_from(*row).ok());
    failed.for_each(|row| tells.get_mut(row).into_iter().for_each(|tells| *tells = true));
    for values in answer.rows.columns().iter().filter_map(|column| column.as_boolean_opt()) {
        tells.iter_mut().zip(values).for_each(|(tells, value)| *tells |= value == Some(true));
    }
    let first = (0..total).filter(|row| tells[*row]);
    let mut shown: Vec<usize> = first.chain((0..total).filter(|row| !tells[*row])).take(most).collect();
    shown.sort_unstable();
    shown
}

/// Columns of truths and of texts with few different values, counted by value.
fn tallies(rows: &RecordBatch) -> Vec<Tally> {
    let columns = rows.schema_ref().fields().iter().zip(rows.columns()).take(FEW);
    let count = |(field, column): (&Arc<arrow_schema::Field>, &arrow_array::ArrayRef)| {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        let mut add = |value: Option<&str>| {
            let value = value.unwrap_or("null");
            if let Some(count) = counts.get_mut(value) {
                *count += 1;
                return true;
            }
            let fits = counts.len() < VALUES && value.len() <= 100;
            if fits {
                counts.insert(value.to_owned(), 1);
            }
            fits
        };
        let few = match column.data_type() {
            DataType::Boolean => {
                column.as_boolean().iter().all(|value| add(value.map(|value| if value { "true" } else { "false" })))
            }
            DataType::Utf8 => column.as_string::<i32>().iter().all(add),
            _ => false,
        };
        (few && !counts.is_empty()).then(|| Tally { column: cut_text(field.name()), counts })
    };
    columns.filter_map(count).collect()
}
