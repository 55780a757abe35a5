//! What a look at a folder means. Pure: all outcomes are named here, `store` carries them out.

use std::time::Duration;

use weir_model::{Digest, Problem, Time};

/// What is known about content that is not decided on yet.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    /// Which content.
    pub digest: Digest,
    /// When a look first saw it, on the clock that does not jump.
    pub seen: Duration,
    /// The same, for people.
    pub since: Time,
    /// Whether it was found out if it is good.
    pub checked: Checked,
}

/// How far the check of a candidate is.
#[derive(Debug, Clone)]
pub(crate) enum Checked {
    /// Not begun: it may still change.
    No,
    /// It is being made ready.
    Running,
    /// It is bad.
    Bad {
        /// When that was found.
        found: Duration,
        /// Why.
        problems: Vec<Problem>,
    },
}

/// A look at one folder.
pub(crate) struct Look<'a> {
    /// What it holds.
    pub digest: Digest,
    /// When, on the clock that does not jump.
    pub at: Duration,
    /// How long content must have stayed the same.
    pub settle: Duration,
    /// The content that needs nothing: what runs, or what a pin was set over.
    pub current: Option<Digest>,
    /// Content that was found bad before.
    pub rejected: Option<Digest>,
    /// Content that ran in an earlier life of the host: it was stable then, so it need not settle again.
    pub trusted: Option<Digest>,
    /// What the looks before found.
    pub candidate: Option<&'a Candidate>,
}

/// What to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is what runs.
    Current,
    /// It was found bad before.
    KnownBad,
    /// It is new: remember it and look again.
    Note,
    /// It is the same as before, for too short a time.
    Settle,
    /// It is stable: find out whether it is good.
    Check,
    /// That is being found out.
    Wait,
    /// It is bad as a half-written folder would be: give the writer a settle time more.
    Hold,
    /// It is bad for good.
    Reject,
}

/// Decides.
pub(crate) fn step(look: &Look<'_>) -> Step {
    if look.current == Some(look.digest) {
        return Step::Current;
    }
    if look.rejected == Some(look.digest) {
        return Step::KnownBad;
    }
    let Some(candidate) = look.candidate.filter(|c| c.digest == look.digest) else {
        return if look.trusted == Some(look.digest) { Step::Check } else { Step::Note };
    };
    match &candidate.checked {
        Checked::Running => Step::Wait,
        Checked::No if look.at.saturating_sub(candidate.seen) < look.settle => Step::Settle,
        Checked::No => Step::Check,
        Checked::Bad { found, problems } => {
            let partial = problems.iter().any(|p| p.may_be_partial);
            if partial && look.at.saturating_sub(*found) < look.settle { Step::Hold } else { Step::Reject }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_secs(2);
    fn digest(n: u8) -> Digest {
        Digest([n; 32])
    }
    fn candidate(n: u8, seen: u64, checked: Checked) -> Candidate {
        Candidate { digest: digest(n), seen: Duration::from_secs(seen), since: Time::EPOCH, checked }
    }
    fn at(n: u8, secs: u64, candidate: Option<&Candidate>) -> Step {
        step(&Look {
            digest: digest(n),
            at: Duration::from_secs(secs),
            settle: SETTLE,
            current: Some(digest(1)),
            rejected: Some(digest(2)),
            trusted: Some(digest(3)),
            candidate,
        })
    }

    #[test]
    fn known_content_needs_no_settling() {
        assert_eq!(at(1, 0, None), Step::Current);
        assert_eq!(at(2, 0, None), Step::KnownBad);
        assert_eq!(at(3, 0, None), Step::Check);
    }

    #[test]
    fn new_content_is_checked_when_two_looks_a_settle_time_apart_agree() {
        let seen = candidate(9, 10, Checked::No);
        assert_eq!(at(9, 10, None), Step::Note);
        assert_eq!(at(9, 11, Some(&seen)), Step::Settle);
        assert_eq!(at(9, 12, Some(&seen)), Step::Check);
        assert_eq!(at(8, 12, Some(&seen)), Step::Note, "another content starts anew");
        assert_eq!(at(9, 12, Some(&candidate(9, 10, Checked::Running))), Step::Wait);
    }

    #[test]
    fn what_may_be_half_written_is_held_once_more() {
        let bad = |partial: bool| {
            let problem = Problem::new("f", "bad");
            let problems = vec![if partial { problem.partial() } else { problem }];
            candidate(9, 10, Checked::Bad { found: Duration::from_secs(12), problems })
        };
        assert_eq!(at(9, 12, Some(&bad(false))), Step::Reject);
        assert_eq!(at(9, 13, Some(&bad(true))), Step::Hold);
        assert_eq!(at(9, 14, Some(&bad(true))), Step::Reject);
    }
}
