//! Runs plugins: components of WebAssembly, each batch in a fresh instance that can reach nothing but its batch.
//!
//! The way of a component: [`admit`](admit) reads its names and refuses what this host does not know, [`compile`] makes
//! code of it or takes it from the [`cache`], [`v0_1`] links it, [`sandbox`] asks it to describe itself and prepares it
//! once. The way of a batch: [`plugin`] makes a store ([`call`]) with all [`limits`] built in, prepares the instance and
//! calls `detect`; [`v0_1`] answers what it asks, by way of [`columns`]; [`wasi`] answers what its language runtime asks;
//! [`fault`] says what went wrong.
//!
//! This crate is the only one that knows wasmtime. A call runs on the calling thread, synchronously, and takes up to
//! [`SandboxConfig::stack_bytes`] of its stack; threads that call need the usual 2 MiB.

mod admit;
mod cache;
mod call;
mod columns;
mod compile;
mod engine;
mod fault;
mod limits;
mod log;
mod plugin;
mod sandbox;
mod v0_1;
mod wasi;

#[cfg(test)]
mod tests;

pub use sandbox::{Sandbox, SandboxConfig};
