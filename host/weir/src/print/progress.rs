//! How far a long command is: one line on a terminal, drawn again a few times a second; nothing anywhere else.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use super::Out;

/// Time between two drawings.
const EVERY: Duration = Duration::from_millis(200);
const WIDTH: usize = 24;

/// The line.
pub struct Progress {
    what: String,
    unit: &'static str,
    shown: bool,
    started: Instant,
    drawn: Option<Instant>,
    /// Where it was when this process began: what came before does not count for the rate.
    first: Option<u64>,
}

impl Progress {
    /// `unit` is what is counted, in the plural. It is drawn when stderr is a terminal and answers are for people.
    pub fn new(what: impl Into<String>, unit: &'static str, out: &Out<'_>) -> Self {
        let shown = !out.json && io::stderr().is_terminal();
        Self { what: what.into(), unit, shown, started: Instant::now(), drawn: None, first: None }
    }

    /// Says how far it is; draws when it is time to.
    pub fn at(&mut self, done: u64, total: u64, out: &mut Out<'_>) -> io::Result<()> {
        let first = *self.first.get_or_insert(done);
        if !self.shown || self.drawn.is_some_and(|d| d.elapsed() < EVERY) {
            return Ok(());
        }
        self.drawn = Some(Instant::now());
        write!(out.stderr, "\r\x1b[K{}", line(&self.what, self.unit, done, first, total, self.started.elapsed()))?;
        out.stderr.flush()
    }

    /// Takes the line away.
    pub fn end(&mut self, out: &mut Out<'_>) -> io::Result<()> {
        if self.drawn.take().is_some() {
            write!(out.stderr, "\r\x1b[K")?;
            out.stderr.flush()?;
        }
        Ok(())
    }
}

fn line(what: &str, unit: &str, done: u64, first: u64, total: u64, elapsed: Duration) -> String {
    let share = if total == 0 { 1.0 } else { done as f64 / total as f64 };
    let full = ((share * WIDTH as f64) as usize).min(WIDTH);
    let bar = format!("{}{}", "#".repeat(full), "-".repeat(WIDTH - full));
    let rate = done.saturating_sub(first) as f64 / elapsed.as_secs_f64().max(0.001);
    let left = if rate > 0.0 {
        let seconds = (total.saturating_sub(done) as f64 / rate).ceil() as u64;
        format!("{} left", short(seconds))
    } else {
        String::new()
    };
    format!("{what} [{bar}] {:.0}% {done}/{total} {unit}, {rate:.0}/s, {left}", (share * 100.0).floor())
}

fn short(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_share_rate_and_time_left() {
        let at = |done, first, seconds| line("s1", "batches", done, first, 1_000, Duration::from_secs(seconds));
        assert_eq!(at(250, 0, 10), "s1 [######------------------] 25% 250/1000 batches, 25/s, 30s left");
        // A run that goes on at 200 has done 50 in these ten seconds.
        assert_eq!(at(250, 200, 10), "s1 [######------------------] 25% 250/1000 batches, 5/s, 2m30s left");
        assert_eq!(at(1_000, 0, 10), "s1 [########################] 100% 1000/1000 batches, 100/s, 0s left");
    }
}
