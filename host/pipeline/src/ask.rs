//! What a plugin may ask during one batch: inputs, queries, rules and keyed state, all as functions of the plan.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use weir_model::batch::{Plan, Space, StateValue, StateWrite};
use weir_model::port::{BatchHost, BatchInputs, Bounds, Prepared, RuleAnswer, RuleCall, RuleContext, StateReader};
use weir_model::{CallError, DataError, Fault, FaultKind, FaultPoints, Scalar, Time};

use crate::layered::{Layered, PAGE};

/// The host's side of one batch.
pub struct Ask {
    plan: Plan,
    seed: [u8; 32],
    inputs: BatchInputs,
    prepared: Arc<Prepared>,
    faults: Arc<dyn FaultPoints>,
    state: Option<Keyed>,
    query_micros: AtomicU64,
    rule_micros: AtomicU64,
}

struct Keyed {
    space: Space,
    state: Layered,
}

impl Ask {
    /// For one batch. `reader` sees the state before it.
    pub fn new(
        plan: Plan,
        inputs: BatchInputs,
        prepared: Arc<Prepared>,
        reader: Box<dyn StateReader>,
        faults: Arc<dyn FaultPoints>,
    ) -> Self {
        let state = plan.state_schema.map(|schema| Keyed { space: Space::Plugin(schema), state: Layered::new(reader) });
        let seed = plan.seed();
        let (query_micros, rule_micros) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { plan, seed, inputs, prepared, faults, state, query_micros, rule_micros }
    }

    /// The changes that the plugin made, by key.
    pub fn state_writes(&self) -> Vec<StateWrite> {
        self.state.as_ref().map(|keyed| keyed.state.writes()).unwrap_or_default()
    }

    /// Microseconds spent in queries and in rules.
    pub fn micros(&self) -> (u64, u64) {
        (self.query_micros.load(Ordering::Relaxed), self.rule_micros.load(Ordering::Relaxed))
    }

    fn keyed(&self) -> Result<&Keyed, CallError> {
        self.state.as_ref().ok_or(CallError::Data(DataError::Undeclared))
    }

    fn put(&self, keyed: &Keyed, key: &[u8], after: Option<StateValue>) -> Result<(), CallError> {
        let limits = &self.prepared.ruleset.limits;
        check(key.len() as u64, limits.state_key_bytes, "state_key_bytes", "bytes of a key")?;
        if let Some(value) = &after {
            check(value.value.len() as u64, limits.state_value_bytes, "state_value_bytes", "bytes of a value")?;
        }
        let grows = after.is_some();
        keyed.state.put(&keyed.space, key, after)?;
        if grows {
            let (keys, bytes) = keyed.state.size(&keyed.space)?;
            check(keys, limits.state_keys, "state_keys", "keys of state")?;
            check(bytes, limits.state_bytes, "state_bytes", "bytes of state")?;
        }
        Ok(())
    }

    fn alive(&self, value: &StateValue) -> bool {
        value.expires.is_none_or(|at| at > self.plan.time)
    }
}

fn check(got: u64, limit: u64, name: &str, what: &str) -> Result<(), CallError> {
    if got <= limit {
        return Ok(());
    }
    Err(Fault::tenant(FaultKind::State, format_args!("{got} {what}, and the limit is {limit}"))
        .field(name)
        .fix(format_args!("keep less, give values a ttl, or raise limits.{name} in scenario.toml and tenant.toml"))
        .into())
}

fn timed<T>(total: &AtomicU64, f: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let out = f();
    total.fetch_add(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    out
}

impl BatchHost for Ask {
    fn time(&self) -> Time {
        self.plan.time
    }

    fn seed(&self) -> [u8; 32] {
        self.seed
    }

    fn input(&self, name: &str) -> Result<RecordBatch, CallError> {
        timed(&self.query_micros, || self.prepared.queries.input(name, &self.inputs))
    }

    fn window(&self, input: &str) -> Result<Bounds, CallError> {
        let pin = self.plan.streams.get(input).ok_or(DataError::Undeclared)?;
        Ok(Bounds { start: pin.floor, end: self.plan.time, watermark: pin.watermark })
    }

    fn query(
        &self,
        name: &str,
        params: &[(String, Scalar)],
        rows: &[(String, RecordBatch)],
    ) -> Result<RecordBatch, CallError> {
        let answer = timed(&self.query_micros, || self.prepared.queries.run(name, &self.inputs, params, rows))?;
        self.faults.pass("batch.queried")?;
        Ok(answer)
    }

    fn rule(&self, name: &str, call: &RuleCall) -> Result<RuleAnswer, CallError> {
        let context =
            RuleContext { time: self.plan.time, seed: self.seed, zone: self.prepared.ruleset.tenant.display_timezone };
        timed(&self.rule_micros, || self.prepared.rules.evaluate(name, call, context))
    }

    fn state_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, CallError> {
        let keyed = self.keyed()?;
        keys.iter()
            .map(|key| {
                let value = keyed.state.get(&keyed.space, key)?;
                Ok(value.filter(|v| self.alive(v)).map(|v| v.value))
            })
            .collect()
    }

    fn state_put(&self, entries: &[(&[u8], &[u8])], ttl: Option<u64>) -> Result<(), CallError> {
        let keyed = self.keyed()?;
        let expires = ttl.map(|seconds| self.plan.time.plus(Duration::from_secs(seconds)));
        for (key, value) in entries {
            self.put(keyed, key, Some(StateValue { value: value.to_vec(), expires }))?;
        }
        Ok(())
    }

    fn state_delete(&self, keys: &[&[u8]]) -> Result<(), CallError> {
        let keyed = self.keyed()?;
        keys.iter().try_for_each(|key| self.put(keyed, key, None))
    }

    fn state_scan(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: u32,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, CallError> {
        let keyed = self.keyed()?;
        let limit = limit as usize;
        let mut out = Vec::new();
        let mut cursor = after.map(<[u8]>::to_vec);
        // Expired entries are still there, so a page may bring fewer than it has.
        while out.len() < limit {
            let page = keyed.state.scan(&keyed.space, prefix, cursor.as_deref(), PAGE)?;
            let last = page.len() < PAGE;
            cursor = page.last().map(|(key, _)| key.clone());
            out.extend(page.into_iter().filter(|(_, v)| self.alive(v)).map(|(key, v)| (key, v.value)));
            if last {
                break;
            }
        }
        out.truncate(limit);
        Ok(out)
    }
}
