//! The clock of the real world. The only place of the host that reads it.

use std::time::{Duration, Instant, SystemTime};

use weir_model::time::{BoxFuture, Clock, Time};

/// The machine's clocks.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// How long a sleep goes on without looking at the wall clock, which may jump.
    const LOOK: Duration = Duration::from_secs(1);

    /// Its monotonic time begins now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }

    // The one place that reads the wall clock, for all others.
    #[allow(clippy::disallowed_methods)]
    fn wall() -> Time {
        let micros = |d: Duration| i64::try_from(d.as_micros()).unwrap_or(i64::MAX);
        Time(match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => micros(after),
            Err(before) => -micros(before.duration()),
        })
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Time {
        Self::wall()
    }
    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
    fn sleep_until(&self, at: Time) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                let left = at.since(Self::wall());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(Self::LOOK)).await;
            }
        })
    }
}
