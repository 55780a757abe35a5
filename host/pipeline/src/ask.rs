//! What a plugin may ask during one batch: inputs, queries, rules and keyed state, all as functions of the plan.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use weir_model::batch::{Plan, Space, StateValue, StateWrite};
use weir_model::port::{BatchHost, BatchInputs, Bounds, Prepared, RuleAnswer, RuleCall, RuleContext, StateReader};
use weir_model::{CallError, DataError, Fault, FaultKind, FaultPoints, Scalar, Time};

/// Entries that are read from the store at once while a scan looks for keys that are neither expired nor deleted.
const SCAN_PAGE: usize = 1_024;

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
    reader: Box<dyn StateReader>,
    overlay: Mutex<Overlay>,
}

#[derive(Default)]
struct Overlay {
    writes: BTreeMap<Vec<u8>, Option<StateValue>>,
    /// How keys and bytes of the space differ from what the store has.
    keys: i64,
    bytes: i64,
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
        let state = plan.state_schema.map(|schema| Keyed {
            space: Space::Plugin(schema),
            reader,
            overlay: Mutex::new(Overlay::default()),
        });
        let seed = plan.seed();
        let (query_micros, rule_micros) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { plan, seed, inputs, prepared, faults, state, query_micros, rule_micros }
    }

    /// The changes that the plugin made, by key.
    pub fn state_writes(&self) -> Vec<StateWrite> {
        let Some(keyed) = &self.state else {
            return Vec::new();
        };
        let overlay = keyed.lock();
        overlay
            .writes
            .iter()
            .map(|(key, after)| StateWrite { space: keyed.space.clone(), key: key.clone(), after: after.clone() })
            .collect()
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
        let mut overlay = keyed.lock();
        let before = match overlay.writes.get(key) {
            Some(written) => written.as_ref().map(|v| v.value.len()),
            None => keyed.reader.get(&keyed.space, key)?.map(|v| v.value.len()),
        };
        let size = |len: Option<usize>| len.map_or((0, 0), |len| (1, signed(key.len() + len)));
        let ((k0, b0), (k1, b1)) = (size(before), size(after.as_ref().map(|v| v.value.len())));
        overlay.keys += k1 - k0;
        overlay.bytes += b1 - b0;
        let grows = after.is_some();
        overlay.writes.insert(key.to_vec(), after);
        if grows {
            let (keys, bytes) = keyed.reader.size(&keyed.space)?;
            check(keys.saturating_add_signed(overlay.keys), limits.state_keys, "state_keys", "keys of state")?;
            check(bytes.saturating_add_signed(overlay.bytes), limits.state_bytes, "state_bytes", "bytes of state")?;
        }
        Ok(())
    }

    fn alive(&self, value: &StateValue) -> bool {
        value.expires.is_none_or(|at| at > self.plan.time)
    }
}

fn signed(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
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

impl Keyed {
    fn lock(&self) -> MutexGuard<'_, Overlay> {
        self.overlay.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        let overlay = keyed.lock();
        keys.iter()
            .map(|key| {
                let value = match overlay.writes.get(*key) {
                    Some(written) => written.clone(),
                    None => keyed.reader.get(&keyed.space, key)?,
                };
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
        let overlay = keyed.lock();
        let limit = limit as usize;
        let start = after.map_or(Bound::Included(prefix.to_vec()), |a| Bound::Excluded(a.max(prefix).to_vec()));
        // `after` below the prefix is the same as none.
        let start = match start {
            Bound::Excluded(a) if a == prefix && after.is_some_and(|x| x < prefix) => Bound::Included(a),
            other => other,
        };
        let mut written = overlay
            .writes
            .range::<Vec<u8>, _>((start, Bound::Unbounded))
            .take_while(|(k, _)| k.starts_with(prefix))
            .peekable();
        let mut out = Vec::new();
        let mut cursor = after.map(<[u8]>::to_vec);
        'pages: loop {
            let page = keyed.reader.scan(&keyed.space, prefix, cursor.as_deref(), SCAN_PAGE)?;
            let more = page.len() == SCAN_PAGE;
            for (key, value) in page {
                while let Some((k, v)) = written.next_if(|(k, _)| **k < key) {
                    out.extend(v.as_ref().filter(|v| self.alive(v)).map(|v| (k.clone(), v.value.clone())));
                }
                let value = match written.next_if(|(k, _)| **k == key) {
                    Some((_, overwritten)) => overwritten.clone(),
                    None => Some(value),
                };
                cursor = Some(key.clone());
                out.extend(value.filter(|v| self.alive(v)).map(|v| (key, v.value)));
                if out.len() >= limit {
                    break 'pages;
                }
            }
            if !more {
                out.extend(
                    written.filter_map(|(k, v)| {
                        v.as_ref().filter(|v| self.alive(v)).map(|v| (k.clone(), v.value.clone()))
                    }),
                );
                break;
            }
        }
        out.truncate(limit);
        Ok(out)
    }
}
