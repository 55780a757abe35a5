//! Components written as text, loaded and run. `tests/guests` has real ones for what needs a language.

mod admission;
mod guest;
mod limits;

use wasmtime::Engine as Wasm;

/// An engine for tests of what needs no more.
pub fn engine() -> Wasm {
    crate::engine::Engine::new(&crate::SandboxConfig::new("")).expect("an engine").wasm
}
