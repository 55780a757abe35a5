//! A loaded plugin: a fresh store and instance for every call, so that no memory survives from one batch to the next.

use std::sync::Arc;

use wasmtime::{Store, UpdateDeadline};
use weir_model::batch::Stage;
use weir_model::port::{BatchHost, Description, DetectFailure, Detection, Detector, LogLine, Usage, Verdict};
use weir_model::{Digest, Fault};

use crate::call::{Call, Phase, Scenario};
use crate::engine::{Engine, TICK};
use crate::fault;
use crate::v0_1::Linked;

/// A component, compiled and linked: shared by all rulesets that have it.
pub struct Code {
    engine: Arc<Engine>,
    linked: Linked,
}

impl Code {
    /// What an engine made of a component.
    pub fn new(engine: Arc<Engine>, linked: Linked) -> Self {
        Self { engine, linked }
    }
}

/// A component with everything that a ruleset says about it.
pub struct Plugin {
    code: Arc<Code>,
    digest: Digest,
    scenario: Arc<Scenario>,
}

/// How a call ended, and what it said until then.
pub struct Ended<T> {
    /// Its result.
    pub result: Result<T, Fault>,
    /// Its log, bounded.
    pub log: Vec<LogLine>,
}

impl Plugin {
    /// Nothing is run yet.
    pub fn new(code: Arc<Code>, digest: Digest, scenario: Arc<Scenario>) -> Self {
        Self { code, digest, scenario }
    }

    /// Asks the plugin what it is. The inner error is everything that is wrong with the answer.
    pub fn describe(&self) -> Ended<Result<Description, Vec<String>>> {
        self.run(Phase::Describe, |code, store| {
            let plugin = code.linked.instantiate(store)?;
            plugin.describe(store).map(Ok)
        })
    }

    /// Prepares an instance and throws it away.
    pub fn prepare(&self) -> Ended<()> {
        self.run(Phase::Prepare, |code, store| {
            let plugin = code.linked.instantiate(store)?;
            plugin.prepare(store, &self.scenario.config)
        })
    }

    fn run<T>(
        &self,
        phase: Phase,
        call: impl FnOnce(&Code, &mut Store<Call>) -> wasmtime::Result<Result<T, Fault>>,
    ) -> Ended<T> {
        let mut store = self.store(phase, None);
        let result = call_into(&mut store, |store| call(&self.code, store));
        Ended { result, log: store.into_data().log.finish() }
    }

    fn judge(&self, store: &mut Store<Call>) -> wasmtime::Result<Result<Verdict, Fault>> {
        let plugin = self.code.linked.instantiate(store)?;
        if let Err(fault) = plugin.prepare(store, &self.scenario.config)? {
            return Ok(Err(fault));
        }
        let call = store.data_mut();
        // It says the same before every batch; who loaded the ruleset has seen it.
        call.log.clear();
        call.enter_detect();
        call.arm();
        plugin.detect(store)
    }

    /// A store with all limits built in.
    fn store(&self, phase: Phase, host: Option<Arc<dyn BatchHost>>) -> Store<Call> {
        let call = Call::new(self.scenario.clone(), phase, host);
        let limits = call.limits().clone();
        let mut store = Store::new(&self.code.engine.wasm, call);
        store.limiter(|call| &mut call.meter);
        store.set_hostcall_fuel(usize::try_from(limits.host_call_bytes).unwrap_or(usize::MAX));
        // WASI's own few handles are counted too, so the table's own count, which says what it is about, comes first.
        let handles = usize::try_from(limits.handles).unwrap_or(usize::MAX);
        store.set_max_component_handles(handles.saturating_add(WASI_HANDLES));
        // Never fails: the engine has fuel on.
        let _ = store.set_fuel(limits.cpu_fuel);
        store.set_epoch_deadline(ticks(limits.deadline.get()));
        store.epoch_deadline_callback(|store| {
            let call = store.data();
            match call.time_left() {
                Some(left) => Ok(UpdateDeadline::Continue(ticks(left))),
                None => Err(fault::deadline(call).into()),
            }
        });
        store
    }
}

/// Handles of streams that a language runtime keeps for itself.
const WASI_HANDLES: usize = 64;

fn ticks(time: std::time::Duration) -> u64 {
    let ticks = time.as_nanos().div_ceil(TICK.as_nanos());
    u64::try_from(ticks).unwrap_or(u64::MAX / 2).max(1)
}

/// Calls into a store and turns its errors into faults.
fn call_into<T>(
    store: &mut Store<Call>,
    call: impl FnOnce(&mut Store<Call>) -> wasmtime::Result<Result<T, Fault>>,
) -> Result<T, Fault> {
    match call(store) {
        Ok(answer) => answer,
        Err(error) => Err(fault::of_call(&error, store.data_mut())),
    }
}

fn usage(store: &Store<Call>) -> Usage {
    let call = store.data();
    let left = store.get_fuel().unwrap_or(0);
    Usage {
        fuel: call.limits().cpu_fuel.saturating_sub(left).saturating_add(call.meter.work_done()),
        memory_peak: call.meter.peak(),
        host_calls: call.meter.host_calls(),
    }
}

impl Detector for Plugin {
    fn description(&self) -> &Description {
        &self.scenario.description
    }

    fn digest(&self) -> Digest {
        self.digest
    }

    fn detect(&self, host: Arc<dyn BatchHost>) -> Result<Detection, Box<DetectFailure>> {
        let mut store = self.store(Phase::Prepare, Some(host));
        let judged = call_into(&mut store, |store| self.judge(store))
            .and_then(|verdict| Ok((verdict, store.data_mut().batch.leave_all(&self.scenario)?)));
        let usage = usage(&store);
        // Dropping the store drops the instance, whatever state it is in.
        let log = store.into_data().log.finish();
        match judged {
            Ok((verdict, left)) => {
                Ok(Detection { verdict, outputs: left.outputs, alarms: left.alarms, rejects: left.rejects, log, usage })
            }
            Err(fault) => Err(Box::new(DetectFailure { fault: fault.at(Stage::Detect), log, usage })),
        }
    }
}
