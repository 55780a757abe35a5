//! Named queries: read, checked and planned once per ruleset; bound to the inputs of a batch and run many times.
//!
//! ```text
//! check (text, SELECT only) -> names -> plan -> order (total) -> kept (optimised, physical, pooled)
//! run: visible (which rows) -> params (bind) -> kept.run -> one plain record batch
//! ```

mod check;
mod deadline;
mod kept;
mod memory;
mod named;
mod names;
mod order;
mod params;
mod plan;
mod run;
mod scan;
mod session;
mod visible;

pub(crate) use check::{Question, question};
pub(crate) use deadline::Deadline;
pub(crate) use kept::{Kept, RunLimits};
pub(crate) use memory::{Pool, Tenants};
pub(crate) use named::{Tools, plan_all, to_usize};
pub(crate) use order::total;
pub(crate) use params::{Binding, timestamp};
pub(crate) use plan::draft;
pub(crate) use scan::{Piece, TableRows};
pub(crate) use session::{AMPLIFYING, BATCH_ROWS, config, state};
pub(crate) use visible::in_order;
