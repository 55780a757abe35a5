//! The one wasmtime engine: which WebAssembly it takes, how it compiles, and what it keeps ready for instances.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use wasmtime::{Config, Enabled, Engine as Wasm, InstanceAllocationStrategy, PoolingAllocationConfig, WasmFeatures};
use weir_model::{Fault, FaultKind};

use crate::SandboxConfig;

/// The WebAssembly that components may use; everything else is off, whatever the cargo features of a dependency turn
/// on. Nothing here lets equal inputs give different results, and nothing needs a collector or threads.
pub const ALLOWED: WasmFeatures = WasmFeatures::FLOATS
    .union(WasmFeatures::MUTABLE_GLOBAL)
    .union(WasmFeatures::SATURATING_FLOAT_TO_INT)
    .union(WasmFeatures::SIGN_EXTENSION)
    .union(WasmFeatures::MULTI_VALUE)
    .union(WasmFeatures::BULK_MEMORY)
    .union(WasmFeatures::REFERENCE_TYPES)
    .union(WasmFeatures::EXTENDED_CONST)
    .union(WasmFeatures::SIMD)
    .union(WasmFeatures::COMPONENT_MODEL);

/// What the engine takes. wasmtime copies between the components inside of a component (QuickJS guests have some) by
/// modules of its own that import two memories, and panics when that is off. Plugins still cannot have several: they are
/// checked against [`ALLOWED`] before they are compiled.
const ENGINE: WasmFeatures = ALLOWED.union(WasmFeatures::MULTI_MEMORY);

/// How often the epoch moves: the grain of the wall-clock backstop.
pub const TICK: Duration = Duration::from_millis(50);

/// Largest WebAssembly stack. It lies on the stack of the calling thread, which has 2 MiB by default: a larger one could
/// run over its end, and that ends the process.
const MOST_STACK: u64 = 1 << 20;

/// Per concurrent call. The largest components tried (Python, SpiderMonkey) have a dozen core instances and tables.
const CORE_INSTANCES: u32 = 32;
const MEMORIES: u32 = 4;
const TABLES: u32 = 32;
const TABLE_ELEMENTS: usize = 1 << 17;

/// Memory of a slot that stays resident between two calls: zeroing it is cheaper than giving it back and faulting it in
/// again page by page, as long as a typical plugin's memory fits.
const KEEP_MEMORY: usize = 4 << 20;
const KEEP_TABLE: usize = 64 << 10;

/// The engine and the thread that moves its epoch.
#[derive(Debug)]
pub struct Engine {
    /// wasmtime's.
    pub wasm: Wasm,
    /// The WebAssembly stack of every call, in bytes. wasmtime has one for all stores.
    pub stack_bytes: u64,
    /// Its end is the ticker's: dropped with the engine, the thread wakes and ends.
    _ticker: Sender<()>,
}

impl Engine {
    /// Reserves the address space of the pool and starts the ticker.
    pub fn new(config: &SandboxConfig) -> Result<Self, Fault> {
        if config.stack_bytes == 0 || config.stack_bytes > MOST_STACK {
            return Err(Fault::host(FaultKind::Config, format_args!("must be between 1 and {MOST_STACK}"))
                .field("limits.stack_bytes"));
        }
        let wasm = Wasm::new(&wasm_config(config)).map_err(|e| {
            Fault::host(FaultKind::Resources, format_args!("the sandbox cannot be set up: {e:#}"))
                .fix("allow the process more address space (ulimit -v), or lower the number of concurrent calls")
        })?;
        let _ticker = tick(&wasm)?;
        Ok(Self { wasm, stack_bytes: config.stack_bytes, _ticker })
    }
}

fn wasm_config(config: &SandboxConfig) -> Config {
    let mut out = Config::new();
    out.wasm_features(WasmFeatures::all().difference(ENGINE), false)
        .wasm_features(ENGINE, true)
        .concurrency_support(false)
        .shared_memory(false)
        // The bits of a NaN would otherwise depend on the processor.
        .cranelift_nan_canonicalization(true)
        .consume_fuel(true)
        .epoch_interruption(true)
        .max_wasm_stack(config.stack_bytes as usize)
        // A compilation must leave batches a core.
        .parallel_compilation(thread::available_parallelism().is_ok_and(|n| n.get() > 2))
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool(config.concurrent_calls)));
    out
}

fn pool(calls: u32) -> PoolingAllocationConfig {
    let mut out = PoolingAllocationConfig::new();
    out.total_component_instances(calls)
        .total_core_instances(calls * CORE_INSTANCES)
        .total_memories(calls * MEMORIES)
        .total_tables(calls * TABLES)
        .max_tables_per_module(8)
        .table_elements(TABLE_ELEMENTS)
        // Calls beyond the usual number leave nothing behind.
        .max_unused_warm_slots(calls)
        .linear_memory_keep_resident(KEEP_MEMORY)
        .table_keep_resident(KEEP_TABLE)
        .pagemap_scan(Enabled::Auto);
    out
}

fn tick(wasm: &Wasm) -> Result<Sender<()>, Fault> {
    let (alive, ended) = channel();
    let engine = wasm.weak();
    thread::Builder::new()
        .name("weir-epoch".to_owned())
        .spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(TICK) {
                let Some(engine) = engine.upgrade() else {
                    return;
                };
                engine.increment_epoch();
            }
        })
        .map_err(|e| Fault::host(FaultKind::Resources, format_args!("no thread for the epoch: {e}")))?;
    Ok(alive)
}
