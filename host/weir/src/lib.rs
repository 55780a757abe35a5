//! The binary `weir`: command line, configuration, log, signals, exit codes. No logic: commands translate, a
//! [`weir_model::service::Service`] decides, and [`wiring`] makes one.
//!
//! Exit codes: [`exit`]. Settings: `defaults.toml`, read by [`config`]. What stands between this crate and the rest of
//! the host: [`host::Wiring`].

mod allocator;
pub mod cli;
pub mod clock;
pub mod commands;
pub mod config;
pub mod exit;
pub mod generate;
pub mod held;
pub mod host;
pub mod logging;
pub mod print;
pub mod signals;
mod whole;
pub mod wiring;

#[cfg(test)]
mod testing;
