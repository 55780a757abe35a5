//! SIGINT and SIGTERM as values.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::exit::Exit;

/// Somebody asks the process to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// What a supervisor sends.
    Terminate,
}

impl Signal {
    /// The exit code of a process that this signal ended at once.
    pub fn exit(self) -> Exit {
        match self {
            Self::Interrupt => Exit::Interrupted,
            Self::Terminate => Exit::Terminated,
        }
    }
}

/// From now on signals come here and no longer end the process. Needs a runtime.
pub fn listen() -> io::Result<mpsc::Receiver<Signal>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    // The second signal ends the process, so two places suffice; later ones are dropped.
    let (to, signals) = mpsc::channel(2);
    tokio::spawn(async move {
        loop {
            let signal = tokio::select! {
                Some(()) = interrupt.recv() => Signal::Interrupt,
                Some(()) = terminate.recv() => Signal::Terminate,
                else => return,
            };
            let _ = to.try_send(signal);
        }
    });
    Ok(signals)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    #[test]
    fn signals_of_the_process_arrive_as_values() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut signals = listen().expect("handlers");
            let pid = std::process::id().to_string();
            for (name, expected) in [("-TERM", Signal::Terminate), ("-INT", Signal::Interrupt)] {
                let sent = std::process::Command::new("kill").args([name, &pid]).status().expect("kill");
                assert!(sent.success());
                assert_eq!(signals.recv().await, Some(expected));
            }
        });
    }
}
