//! A batch whose answers are known: what is left of a detector's time is its own, and what it takes to ask.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use weir_model::port::{BatchHost, Bounds, RuleAnswer, RuleCall};
use weir_model::{CallError, Scalar, Time};

type Answer<T> = Result<T, CallError>;
type State = Vec<Option<Vec<u8>>>;

/// Asks another host once, and answers the same from then on. A query and a rule are known by name: for detectors that
/// ask each of them once. What is put goes nowhere.
pub struct Recorded {
    host: Arc<dyn BatchHost>,
    rows: Mutex<HashMap<String, RecordBatch>>,
    rules: Mutex<HashMap<String, RuleAnswer>>,
    state: Mutex<HashMap<Vec<u8>, State>>,
}

impl Recorded {
    /// Of another host.
    pub fn of(host: Arc<dyn BatchHost>) -> Arc<dyn BatchHost> {
        Arc::new(Self { host, rows: Mutex::default(), rules: Mutex::default(), state: Mutex::default() })
    }
}

fn known<K: std::hash::Hash + Eq, V: Clone>(
    answers: &Mutex<HashMap<K, V>>,
    key: K,
    ask: impl FnOnce() -> Answer<V>,
) -> Answer<V> {
    let mut answers = answers.lock().unwrap();
    if let Some(answer) = answers.get(&key) {
        return Ok(answer.clone());
    }
    let answer = ask()?;
    answers.insert(key, answer.clone());
    Ok(answer)
}

impl BatchHost for Recorded {
    fn time(&self) -> Time {
        self.host.time()
    }
    fn seed(&self) -> [u8; 32] {
        self.host.seed()
    }
    fn input(&self, name: &str) -> Answer<RecordBatch> {
        known(&self.rows, format!("input {name}"), || self.host.input(name))
    }
    fn window(&self, input: &str) -> Answer<Bounds> {
        self.host.window(input)
    }
    fn query(&self, name: &str, params: &[(String, Scalar)], rows: &[(String, RecordBatch)]) -> Answer<RecordBatch> {
        known(&self.rows, format!("query {name}"), || self.host.query(name, params, rows))
    }
    fn rule(&self, name: &str, call: &RuleCall) -> Answer<RuleAnswer> {
        known(&self.rules, name.to_owned(), || self.host.rule(name, call))
    }
    fn state_get(&self, keys: &[&[u8]]) -> Answer<State> {
        known(&self.state, keys.join(&b"\n"[..]), || self.host.state_get(keys))
    }
    fn state_put(&self, _: &[(&[u8], &[u8])], _: Option<u64>) -> Answer<()> {
        Ok(())
    }
    fn state_delete(&self, _: &[&[u8]]) -> Answer<()> {
        Ok(())
    }
    fn state_scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: u32) -> Answer<Vec<(Vec<u8>, Vec<u8>)>> {
        self.host.state_scan(prefix, after, limit)
    }
}
