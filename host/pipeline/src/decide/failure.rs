//! What becomes of a batch that failed.

use weir_model::ruleset::OnFailure;
use weir_model::{Fault, FaultKind, Retry};

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing was decided about the batch: try it again later.
    Retry,
    /// Commit it as failed and go on.
    Skip,
    /// Leave it uncommitted and stop ticking until the ruleset changes or somebody resumes.
    Park,
    /// Commit it as failed and end the scenario.
    Stop,
    /// The host is ending here; decide nothing.
    Leave,
}

/// Decides by the fault, the attempt that met it (from 1) and the manifest.
pub fn next(fault: &Fault, attempt: u32, attempts: u32, on_failure: OnFailure) -> Next {
    match fault.kind {
        FaultKind::Injected | FaultKind::Cancelled => return Next::Leave,
        // Not the batch failed but the place where its outcome is kept: never skip because of that.
        FaultKind::Ledger | FaultKind::Unknown | FaultKind::Disk => return Next::Retry,
        FaultKind::Gap | FaultKind::ClockJump => return Next::Park,
        _ => {}
    }
    if fault.retry == Retry::Later && attempt < attempts {
        return Next::Retry;
    }
    match on_failure {
        OnFailure::Park => Next::Park,
        OnFailure::Skip => Next::Skip,
        OnFailure::Stop => Next::Stop,
    }
}

/// The fault of a batch that was begun more often than it may, without ever coming to an end: it kills the host.
pub fn exhausted(attempt: u32, attempts: u32) -> Option<Fault> {
    (attempt > attempts).then(|| {
        Fault::tenant(
            FaultKind::Resources,
            format_args!("the batch was begun {} times and the host ended each time before it was done", attempt - 1),
        )
        .field("attempts")
        .fix("look at the host's log for the end of the last attempt; a new ruleset or `weir resume` tries again")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_fault_again_is_not_waited_for() {
        let trap = Fault::tenant(FaultKind::Trap, "unreachable");
        assert_eq!(next(&trap, 1, 3, OnFailure::Park), Next::Park);
        assert_eq!(next(&trap, 1, 3, OnFailure::Skip), Next::Skip);
        assert_eq!(next(&trap, 1, 3, OnFailure::Stop), Next::Stop);
    }

    #[test]
    fn what_may_pass_is_tried_as_often_as_allowed() {
        let slow = Fault::host(FaultKind::Deadline, "slow machine");
        assert_eq!(next(&slow, 1, 3, OnFailure::Park), Next::Retry);
        assert_eq!(next(&slow, 2, 3, OnFailure::Park), Next::Retry);
        assert_eq!(next(&slow, 3, 3, OnFailure::Park), Next::Park);
    }

    #[test]
    fn a_full_disk_never_skips_a_batch() {
        let full = Fault::host(FaultKind::Disk, "no room");
        assert_eq!(next(&full, 99, 3, OnFailure::Skip), Next::Retry);
    }

    #[test]
    fn a_batch_that_kills_the_host_is_recognised() {
        assert_eq!(exhausted(3, 3), None);
        assert!(exhausted(4, 3).is_some_and(|f| f.message.contains("begun 3 times")));
    }
}
