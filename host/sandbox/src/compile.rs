//! Components into code: from memory, from the cache, or by Cranelift, one at a time and bounded in time.

use std::collections::HashMap;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use wasmtime::Engine as Wasm;
use wasmtime::component::Component;
use weir_model::{Digest, Problem};

use crate::admit;
use crate::cache::Cache;

/// Cranelift recurses into deeply nested blocks.
const STACK: usize = 8 << 20;

/// Compiles components. `T` is what is kept of one in memory as long as somebody uses it.
#[derive(Debug)]
pub struct Compiler<T> {
    wasm: Wasm,
    cache: Arc<Cache>,
    slot: Arc<Slot>,
    loaded: Mutex<HashMap<Digest, Weak<T>>>,
}

impl<T> Compiler<T> {
    /// Compiles for an engine, into a cache.
    pub fn new(wasm: Wasm, cache: Cache) -> Self {
        Self { wasm, cache: Arc::new(cache), slot: Arc::default(), loaded: Mutex::default() }
    }

    /// What `make` made of the component, shared by everybody who uses it.
    ///
    /// Waits at most `time` for the compiler and as long again for the compilation. A thread cannot be stopped: one that
    /// takes longer runs on until it is done, and only then another component is compiled. Its result is in the cache
    /// by then, so the same component is accepted when it is looked at again.
    pub fn load(
        &self,
        file: &str,
        digest: Digest,
        bytes: &Arc<[u8]>,
        time: Duration,
        make: impl FnOnce(Component) -> Result<T, Problem>,
    ) -> Result<Arc<T>, Problem> {
        if let Some(loaded) = self.loaded(digest) {
            return Ok(loaded);
        }
        let component = match self.cache.get(&self.wasm, digest) {
            Some(component) => component,
            None => self.compile(file, digest, bytes, time)?,
        };
        let made = Arc::new(make(component)?);
        let mut loaded = lock(&self.loaded);
        loaded.retain(|_, code| code.strong_count() > 0);
        loaded.insert(digest, Arc::downgrade(&made));
        Ok(made)
    }

    fn loaded(&self, digest: Digest) -> Option<Arc<T>> {
        lock(&self.loaded).get(&digest)?.upgrade()
    }

    fn compile(&self, file: &str, digest: Digest, bytes: &Arc<[u8]>, time: Duration) -> Result<Component, Problem> {
        let Some(turn) = Slot::take(&self.slot, time) else {
            return Err(Problem::new(file, "the compiler is still busy with another component")
                .fix("wait; it is tried again")
                .partial());
        };
        // Somebody else may have compiled the same component while this one waited.
        if let Some(component) = self.cache.get(&self.wasm, digest) {
            return Ok(component);
        }
        let (done, result) = sync_channel(1);
        let job = Job {
            file: file.to_owned(),
            digest,
            bytes: bytes.clone(),
            wasm: self.wasm.clone(),
            cache: self.cache.clone(),
        };
        let worker = thread::Builder::new().name("weir-compile".to_owned()).stack_size(STACK).spawn(move || {
            let compiled = job.run();
            drop(turn);
            // Nobody may wait any more.
            let _ = done.send(compiled);
        });
        if let Err(e) = worker {
            return Err(Problem::new(file, format_args!("no thread to compile it: {e}")).partial());
        }
        match result.recv_timeout(time) {
            Ok(compiled) => compiled,
            Err(RecvTimeoutError::Timeout) => {
                Err(Problem::new(file, format_args!("compiling it takes longer than {time:?}"))
                    .field("compile_time")
                    .fix("make the component smaller, or raise limits.compile_time in tenant.toml"))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(Problem::new(file, "the compiler gave up on it; this is a defect of the host"))
            }
        }
    }
}

struct Job {
    file: String,
    digest: Digest,
    bytes: Arc<[u8]>,
    wasm: Wasm,
    cache: Arc<Cache>,
}

impl Job {
    fn run(self) -> Result<Component, Problem> {
        admit::validate(&self.file, &self.bytes)?;
        let component = Component::from_binary(&self.wasm, &self.bytes).map_err(|e| {
            Problem::new(&self.file, format_args!("the component cannot be compiled: {e:#}"))
                .fix("build it again, smaller or with fewer modules, memories and tables")
        })?;
        self.cache.put(self.digest, &component);
        Ok(component)
    }
}

/// The one place in which a compilation may run.
#[derive(Debug, Default)]
struct Slot {
    taken: Mutex<bool>,
    free: Condvar,
}

impl Slot {
    fn take(slot: &Arc<Self>, time: Duration) -> Option<Turn> {
        let (mut taken, waited) = slot
            .free
            .wait_timeout_while(lock(&slot.taken), time, |taken| *taken)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return None;
        }
        *taken = true;
        Some(Turn(slot.clone()))
    }
}

/// Gives the slot back when it is dropped, also when the compiler panics.
struct Turn(Arc<Slot>);
impl Drop for Turn {
    fn drop(&mut self) {
        *lock(&self.0.taken) = false;
        self.0.free.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_compilation_runs_and_the_slot_comes_back() {
        let slot = Arc::<Slot>::default();
        let turn = Slot::take(&slot, Duration::ZERO).expect("free");
        assert!(Slot::take(&slot, Duration::ZERO).is_none());
        drop(turn);
        assert!(Slot::take(&slot, Duration::ZERO).is_some());
    }
}
