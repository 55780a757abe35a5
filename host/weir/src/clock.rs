//! The clock of the real world, and time that runs faster for a demonstration. The only place of the host that reads one.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use weir_model::duration::Span;
use weir_model::fault::{Fault, FaultKind};
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

/// Time that runs as many times faster than a machine's clock, or goes on from where a faster one was. It never jumps: it is
/// counted by the time that has passed, not read from a calendar.
#[derive(Debug, Clone)]
pub struct RunningClock {
    machine: Arc<dyn Clock>,
    start: Time,
    began: Duration,
    speed: u32,
}

impl RunningClock {
    /// It is `start` now.
    pub fn new(machine: Arc<dyn Clock>, start: Time, speed: u32) -> Self {
        let began = machine.elapsed();
        Self { machine, start, began, speed: speed.max(1) }
    }
}

impl Clock for RunningClock {
    fn now(&self) -> Time {
        self.start.plus(self.monotonic())
    }
    fn monotonic(&self) -> Duration {
        self.machine.elapsed().saturating_sub(self.began).saturating_mul(self.speed)
    }
    fn sleep_until(&self, at: Time) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(async move {
            loop {
                let left = at.since(clock.now());
                if left.is_zero() {
                    return;
                }
                // Rounded up: waking a little early would mean waking twice.
                clock.machine.pause(left / clock.speed + Duration::from_micros(1)).await;
            }
        })
    }
    fn elapsed(&self) -> Duration {
        self.machine.elapsed()
    }
    fn pause(&self, by: Duration) -> BoxFuture<'static, ()> {
        self.machine.pause(by)
    }
    fn outside(&self) -> Time {
        self.machine.outside()
    }
}

/// What a data folder's past says about its time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Past {
    /// A host has run on it with `--speed`.
    pub hurried: bool,
    /// T of its latest batch.
    pub last: Option<Time>,
}

/// The clock of a host or a command on a data folder. Time never runs back there: where it was made to run fast, it goes on
/// from the latest batch, as long as that is ahead of the machine's clock.
///
/// A folder with batches of ordinary time is refused for a faster one: its time would be ahead of the world's, and of its
/// sources, for good.
pub fn of_folder(machine: Arc<dyn Clock>, speed: u32, past: Past) -> Result<Arc<dyn Clock>, Fault> {
    if !past.hurried {
        if speed <= 1 {
            return Ok(machine);
        }
        if past.last.is_some() {
            return Err(Fault::tenant(FaultKind::Config, "this data folder has batches of ordinary time")
                .field("--speed")
                .fix("use a data folder of its own: time that ran ahead of the world does not run back"));
        }
    }
    let now = machine.now();
    let start = past.last.map_or(now, |last| last.max(now));
    if speed <= 1 && start == now {
        return Ok(machine);
    }
    Ok(Arc::new(RunningClock::new(machine, start, speed)))
}

/// Says what is unusual about a host's time.
pub fn tell(clock: &dyn Clock, speed: u32) {
    let (now, ahead) = (clock.now(), clock.now().since(clock.outside()).as_secs());
    if ahead > 0 {
        let ahead = Span(Duration::from_secs(ahead));
        tracing::warn!(
            "this data folder ran with --speed: its time is {ahead} ahead of the machine's, and goes on from {now}"
        );
    }
    if speed > 1 {
        tracing::warn!(
            "time runs {speed} times as fast as the machine's, from {now}: this folder is for demonstrations"
        );
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use weir_model::time::VirtualClock;

    use super::*;

    const NOON: Time = Time(1_800_000_000_000_000);

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }
    fn past(hurried: bool, last: Option<Time>) -> Past {
        Past { hurried, last }
    }

    #[test]
    fn a_minute_of_data_passes_in_a_second_and_what_protects_the_host_waits_as_long_as_ever() {
        let machine = VirtualClock::new(NOON);
        machine.advance(seconds(7));
        let began = machine.now();
        let clock = RunningClock::new(Arc::new(machine.clone()), NOON, 60);
        assert_eq!(clock.now(), NOON);
        let (mut data, mut host) = (pin!(clock.sleep_until(NOON.plus(seconds(60)))), pin!(clock.pause(seconds(60))));
        let context = &mut Context::from_waker(Waker::noop());
        let done = |poll: Poll<()>| poll.is_ready();
        assert!(!done(data.as_mut().poll(context)) && !done(host.as_mut().poll(context)));
        machine.advance(Duration::from_millis(999));
        assert!(!done(data.as_mut().poll(context)));
        // And the microsecond that a wait is rounded up by.
        machine.advance(Duration::from_micros(1_001));
        assert!(done(data.as_mut().poll(context)));
        assert_eq!(clock.now(), NOON.plus(seconds(60)).plus(Duration::from_micros(60)));
        assert_eq!(clock.monotonic(), clock.now().since(NOON));
        assert_eq!(
            (clock.elapsed(), clock.outside()),
            (machine.elapsed(), began.plus(Duration::from_micros(1_000_001)))
        );
        machine.advance(seconds(58));
        assert!(!done(host.as_mut().poll(context)));
        machine.advance(seconds(1));
        assert!(done(host.as_mut().poll(context)));
    }

    #[test]
    fn a_wall_clock_that_is_set_does_not_move_it() {
        let machine = VirtualClock::new(NOON);
        let clock = RunningClock::new(Arc::new(machine.clone()), NOON, 10);
        machine.jump(NOON.minus(seconds(3_600)));
        machine.advance(seconds(1));
        assert_eq!(clock.now(), NOON.plus(seconds(10)));
    }

    #[test]
    fn time_goes_on_from_the_latest_batch_and_never_runs_back() {
        let machine = || Arc::new(VirtualClock::new(NOON)) as Arc<dyn Clock>;
        let starts = |speed, past| of_folder(machine(), speed, past).map(|clock| clock.now());
        let (before, after) = (NOON.minus(seconds(60)), NOON.plus(seconds(60)));
        for (speed, past, start) in [
            (1, past(false, None), NOON),
            (1, past(false, Some(before)), NOON),
            // A clock that was wrong once is no reason to stay wrong: what is ahead is waited for.
            (1, past(false, Some(after)), NOON),
            (60, past(false, None), NOON),
            (60, past(true, None), NOON),
            (60, past(true, Some(before)), NOON),
            (60, past(true, Some(after)), after),
            (1, past(true, Some(before)), NOON),
            (1, past(true, Some(after)), after),
        ] {
            assert_eq!(starts(speed, past), Ok(start), "{speed} {past:?}");
        }
        let refused = starts(2, past(false, Some(before))).unwrap_err();
        assert_eq!((refused.kind, refused.field.as_deref()), (FaultKind::Config, Some("--speed")));
    }

    #[test]
    fn at_ordinary_speed_a_folder_that_ran_ahead_keeps_its_lead() {
        let machine = VirtualClock::new(NOON);
        let last = NOON.plus(seconds(1_000));
        let clock = of_folder(Arc::new(machine.clone()), 1, past(true, Some(last))).unwrap();
        machine.advance(seconds(5));
        assert_eq!(clock.now(), last.plus(seconds(5)));
    }
}
