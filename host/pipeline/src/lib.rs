//! The data path. Sees the engines only as ports.
//!
//! ```text
//! stream.rs    source -> decode -> late -> hot window (window.rs); bronze and dead letters by position
//! batch.rs     plan -> query -> detect -> commit, for every run
//! ask.rs       what a plugin asks during a batch
//! declared.rs  detection that a manifest declares, without a plugin
//! scenario.rs  the live run: ticks, attempts, failures
//! drain.rs     committed outputs -> tables
//! sink.rs      which sinks there are; alarm_table.rs is the one of current alarms, notify.rs tells people
//! side.rs      one batch for a fixed time, writing nothing
//! review.rs    a side run, looked at from the inside
//! backfill.rs  the batches of a past period, as a run of their own
//! import.rs    rows into bronze from outside of a source
//! upkeep.rs    tables kept in shape: which, and how long their rows stay
//! host.rs      all of them together, as loops on a clock
//! decide/      the choices, as pure functions
//! ```

pub mod admit;
pub mod alarm_table;
pub mod ask;
pub mod backfill;
pub mod batch;
pub mod decide;
pub mod declared;
pub mod drain;
pub mod engines;
mod generation;
pub mod host;
pub mod import;
mod layered;
pub mod loops;
pub mod notices;
pub mod notify;
pub mod output;
pub mod review;
pub mod scenario;
pub mod service;
pub mod share;
pub mod side;
pub mod sink;
pub mod stream;
pub mod upkeep;
pub mod window;

pub use admit::Admit;
pub use engines::Engines;
pub use host::{Host, Pace};
pub use upkeep::Keeping;
