//! The choices of the pipeline, as pure functions over plain values. What does I/O asks here and decides nothing.

pub mod admission;
pub mod alarms;
pub mod failure;
pub mod late;
pub mod reasons;
pub mod tick;
