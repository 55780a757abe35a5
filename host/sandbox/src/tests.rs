//! Components written as text, loaded and run.

use wasmtime::Engine as Wasm;

/// An engine for tests of what needs no more.
pub fn engine() -> Wasm {
    crate::engine::Engine::new(&crate::SandboxConfig::new("")).expect("an engine").wasm
}
