//! Named points where a test makes the host fail, as a crash or a lost reply would.

use crate::fault::{Fault, FaultKind};

/// All points, in the order a row meets them. A test draws from this list; a point that no code visits fails a test.
pub const POINTS: &[&str] = &[
    "ingest.read",
    "ingest.journal",
    "ingest.window",
    "bronze.before-append",
    "bronze.after-append",
    "bronze.after-cursor",
    "batch.planned",
    "batch.begun",
    "batch.queried",
    "batch.detected",
    "commit.before",
    "commit.written",
    "commit.synced",
    "commit.replied",
    "sink.before-append",
    "sink.file-written",
    "sink.entry-put",
    "sink.after-append",
    "sink.cursor-moved",
    "upkeep.file-written",
    "upkeep.entry-put",
];

/// Asked at every named point. Answering an error there must look to the caller like the host ending at that place:
/// the caller lets it through and does nothing else.
pub trait FaultPoints: Send + Sync + std::fmt::Debug {
    /// Called when the point is passed. The default lets everything pass.
    fn pass(&self, _point: &'static str) -> Result<(), Fault> {
        Ok(())
    }
}

/// Lets everything pass.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFaults;
impl FaultPoints for NoFaults {}

/// The fault that a point answers with.
pub fn injected(point: &'static str) -> Fault {
    Fault::host(FaultKind::Injected, format_args!("fault asked for at {point}"))
}
