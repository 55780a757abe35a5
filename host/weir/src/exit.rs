//! Exit codes. Scripts rely on them, so they are stated here once; `weir --help` prints [`HELP`].
//!
//! | code | means |
//! |---|---|
//! | 0 | done; `run` was asked to stop and has stopped |
//! | 1 | a problem in content: `check` found one, a side batch failed, a query or rule is wrong |
//! | 2 | the command line or the configuration is wrong; nothing was done |
//! | 3 | the host or the data folder cannot be reached, or another host holds it |
//! | 4 | what was asked for is not there, or beyond the replay horizon |
//! | 5 | the host or a system it talks to failed |
//! | 130, 143 | ended at once by a second SIGINT or SIGTERM; a batch that was not committed is run again at the next start |

use std::process::ExitCode;

use weir_model::fault::{Fault, FaultKind, Problem, Whose};

/// The table above for `--help`.
pub const HELP: &str = "\
Exit codes:
  0         done
  1         a problem in content: check found one, a batch failed, a query is wrong
  2         the command line or the configuration is wrong; nothing was done
  3         the host or the data folder cannot be reached, or another host holds it
  4         not found, or beyond the replay horizon
  5         the host or a system it talks to failed
  130, 143  ended at once by a second SIGINT or SIGTERM";

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Exit {
    Done = 0,
    Problems = 1,
    Usage = 2,
    Unreachable = 3,
    NotFound = 4,
    Failed = 5,
    Interrupted = 130,
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command ends without its answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The service said no.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The configuration is wrong; all there is to say about it.
    #[error("the configuration is wrong")]
    Config(Vec<Problem>),
    /// The answer has been printed, and it is bad news.
    #[error("problems were found")]
    Problems,
    /// What the command names is not there.
    #[error("{0}")]
    NotFound(String),
    /// The command makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Nobody reads what is printed.
    #[error("cannot print: {0}")]
    Print(#[from] std::io::Error),
    /// A second signal.
    #[error("ended at once by a second signal")]
    Signal(Exit),
}

impl Failure {
    /// The exit code.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Fault(fault) => of_fault(fault),
            Self::Config(_) | Self::Usage(_) => Exit::Usage,
            Self::Problems => Exit::Problems,
            Self::NotFound(_) => Exit::NotFound,
            // `weir ledger | head` has what it wanted.
            Self::Print(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Exit::Done,
            Self::Print(_) => Exit::Failed,
            Self::Signal(exit) => *exit,
        }
    }
}

fn of_fault(fault: &Fault) -> Exit {
    match (fault.kind, fault.whose) {
        (FaultKind::NotReplayable | FaultKind::NotFound, _) => Exit::NotFound,
        (FaultKind::Config, _) => Exit::Usage,
        (FaultKind::Cancelled | FaultKind::Ledger | FaultKind::Disk, _) => Exit::Unreachable,
        (_, Whose::Tenant) => Exit::Problems,
        (_, Whose::External | Whose::Host) => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn each_kind_of_failure_has_its_code() {
        let tenant = |kind| Failure::from(Fault::tenant(kind, "no")).exit();
        let host = |kind| Failure::from(Fault::host(kind, "no")).exit();
        assert_eq!(tenant(FaultKind::Sql), Exit::Problems);
        assert_eq!(tenant(FaultKind::Config), Exit::Usage);
        assert_eq!(tenant(FaultKind::NotReplayable), Exit::NotFound);
        assert_eq!(host(FaultKind::Cancelled), Exit::Unreachable);
        assert_eq!(host(FaultKind::Ledger), Exit::Unreachable);
        assert_eq!(host(FaultKind::Internal), Exit::Failed);
        assert_eq!(Failure::from(Fault::external(FaultKind::Source, "no")).exit(), Exit::Failed);
        let io = |kind: std::io::ErrorKind| Failure::from(std::io::Error::from(kind)).exit();
        assert_eq!(io(std::io::ErrorKind::BrokenPipe), Exit::Done);
        assert_eq!(io(std::io::ErrorKind::StorageFull), Exit::Failed);
    }

    #[test]
    fn help_names_every_code() {
        let codes: Vec<u8> = HELP
            .lines()
            .skip(1)
            .flat_map(|l| l.trim().split("  ").next().unwrap_or_default().split(", "))
            .filter_map(|code| code.parse().ok())
            .collect();
        let all = [
            Exit::Done,
            Exit::Problems,
            Exit::Usage,
            Exit::Unreachable,
            Exit::NotFound,
            Exit::Failed,
            Exit::Interrupted,
            Exit::Terminated,
        ];
        assert_eq!(codes, all.map(|e| e as u8));
    }
}
