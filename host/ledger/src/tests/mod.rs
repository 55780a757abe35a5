//! Tests of the ledger as a whole, through its port. Files are named by the claim they prove.

mod beside;
mod crowd;
mod damage;
mod failure;
mod history;
mod model;
mod port;
mod runs;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow_array::{Int64Array, RecordBatch, StringArray};
use tempfile::TempDir;
use weir_model::batch::{Commit, Output, Space, StageMicros, StateValue, StateWrite};
use weir_model::faultpoint::injected;
use weir_model::{BatchId, Digest, Fault, FaultPoints, Name, NoFaults, Outcome, Plan, RunKey, SinkId, Time};

use crate::{FjallLedger, LedgerConfig};

/// A write that a test bends: it is given the real one and decides whether it happens and what is answered.
type Bend = Box<dyn FnOnce(&mut dyn FnMut() -> Result<(), fjall::Error>) -> Result<(), fjall::Error> + Send>;

/// Makes the store fail where a disk would.
#[derive(Default)]
pub(crate) struct Sabotage(Mutex<VecDeque<Bend>>);

impl std::fmt::Debug for Sabotage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sabotage")
    }
}

impl Sabotage {
    /// Called by the writer around each write.
    pub(crate) fn around(&self, write: impl FnOnce() -> Result<(), fjall::Error>) -> Result<(), fjall::Error> {
        let bend = self.0.lock().expect("no test panics here").pop_front();
        let mut write = Some(write);
        let mut once = || write.take().expect("a write happens once")();
        match bend {
            Some(bend) => bend(&mut once),
            None => once(),
        }
    }

    /// Bends the next write that is not bent yet.
    fn next(
        &self,
        bend: impl FnOnce(&mut dyn FnMut() -> Result<(), fjall::Error>) -> Result<(), fjall::Error> + Send + 'static,
    ) {
        self.0.lock().expect("no test panics here").push_back(Box::new(bend));
    }

    /// The next write does not happen.
    fn lose(&self, kind: std::io::ErrorKind) {
        self.next(move |_| Err(fjall::Error::Io(kind.into())));
    }

    /// The next write happens and says that it has not.
    fn lie(&self, kind: std::io::ErrorKind) {
        self.next(move |write| {
            write()?;
            Err(fjall::Error::Io(kind.into()))
        });
    }
}

/// Fails once at one point.
#[derive(Debug, Default)]
struct OneFault(Mutex<Option<&'static str>>);

impl OneFault {
    fn arm(&self, point: &'static str) {
        *self.0.lock().expect("no test panics here") = Some(point);
    }
}

impl FaultPoints for OneFault {
    fn pass(&self, point: &'static str) -> Result<(), Fault> {
        let mut armed = self.0.lock().expect("no test panics here");
        if *armed == Some(point) {
            *armed = None;
            return Err(injected(point));
        }
        Ok(())
    }
}

/// A folder for a ledger. In memory where there is such a place: what a sync means to a disk cannot be tested here.
fn folder() -> TempDir {
    let shared = Path::new("/dev/shm");
    let made = if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() };
    made.expect("a folder")
}

fn open(dir: &Path) -> Arc<FjallLedger> {
    FjallLedger::open(dir, small(), Arc::new(NoFaults)).expect("the ledger opens")
}

/// Small bounds, so that tests meet them.
fn small() -> LedgerConfig {
    LedgerConfig { spill_bytes: 4096, ..LedgerConfig::default() }
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn run(scenario: &str, run: &str) -> RunKey {
    RunKey { scenario: scenario.parse().expect("a scenario"), run: run.parse().expect("a run") }
}

fn live(scenario: &str) -> RunKey {
    run(scenario, "live")
}

fn sink(key: &RunKey, output: &str) -> SinkId {
    SinkId { key: key.clone(), output: name(output) }
}

/// T of batch N in most tests: N minutes.
fn minute(n: u64) -> Time {
    Time(n as i64 * 60_000_000)
}

fn plan(key: &RunKey, n: u64) -> Plan {
    Plan {
        key: key.clone(),
        id: BatchId(n),
        time: minute(n),
        ruleset: Digest::of(b"ruleset"),
        attempt: 1,
        streams: Default::default(),
        tables: Default::default(),
        skipped: None,
        skipped_total: 0,
        state_schema: None,
        backfill: None,
    }
}

fn commit(key: &RunKey, n: u64) -> Commit {
    Commit {
        plan: plan(key, n),
        outcome: Outcome::Judged,
        state: Vec::new(),
        events: Vec::new(),
        outputs: Vec::new(),
        rows_in: 10 * n,
        raised: 0,
        micros: StageMicros::default(),
        rows_by: Default::default(),
    }
}

const SPACE: Space = Space::Plugin(1);

fn value(text: &str, expires: Option<Time>) -> StateValue {
    StateValue { value: text.as_bytes().to_vec(), expires }
}

fn put(key: &str, text: &str) -> StateWrite {
    StateWrite { space: SPACE, key: key.as_bytes().to_vec(), after: Some(value(text, None)) }
}

fn put_until(key: &str, text: &str, expires: Time) -> StateWrite {
    StateWrite { space: SPACE, key: key.as_bytes().to_vec(), after: Some(value(text, Some(expires))) }
}

fn delete(key: &str) -> StateWrite {
    StateWrite { space: SPACE, key: key.as_bytes().to_vec(), after: None }
}

/// `rows` rows that differ with `seed`.
fn output(output: &str, seed: u64, rows: usize) -> Output {
    let numbers = Int64Array::from_iter_values((0..rows as i64).map(|i| i * 7919 + seed as i64));
    let texts = StringArray::from_iter_values((0..rows).map(|i| format!("row {i} of {seed}")));
    let rows = RecordBatch::try_from_iter([("number", Arc::new(numbers) as _), ("text", Arc::new(texts) as _)])
        .expect("a batch");
    Output { output: name(output), table: name(&format!("{output}_table")), rows }
}

/// Everything of a space.
fn all(reader: &dyn weir_model::port::StateReader, space: &Space) -> Result<Vec<(Vec<u8>, StateValue)>, Fault> {
    reader.scan(space, b"", None, usize::MAX)
}

/// The kind of the fault that was answered.
fn kind<T: std::fmt::Debug>(result: Result<T, Fault>) -> weir_model::FaultKind {
    result.expect_err("a fault").kind
}
