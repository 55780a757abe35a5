//! Time as an input. Nothing inside a batch reads a wall clock; what needs one gets a [`Clock`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// An instant, in microseconds since 1970-01-01T00:00:00Z. Text form: RFC 3339 in UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub i64);

impl Time {
    /// The unix epoch.
    pub const EPOCH: Self = Self(0);

    /// Microseconds since the epoch.
    pub fn micros(self) -> i64 {
        self.0
    }

    /// This instant moved later; saturates at the ends.
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
    }

    /// This instant moved earlier; saturates at the ends.
    pub fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The last multiple of `step` since the epoch (plus `offset`) that is not after this instant.
    pub fn floor(self, step: Duration, offset: Duration) -> Self {
        let step = i64::try_from(step.as_micros()).unwrap_or(i64::MAX).max(1);
        let offset = i64::try_from(offset.as_micros()).unwrap_or(0);
        Self((self.0 - offset).div_euclid(step) * step + offset)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::from_timestamp_micros(self.0) {
            Some(at) => f.write_str(&at.to_rfc3339_opts(SecondsFormat::AutoSi, true)),
            None => write!(f, "{}us", self.0),
        }
    }
}
impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no instant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a time: write it as 2026-01-31T12:00:00Z")]
pub struct BadTime(pub String);

impl FromStr for Time {
    type Err = BadTime;
    fn from_str(s: &str) -> Result<Self, BadTime> {
        DateTime::parse_from_rfc3339(s).map(|at| Self(at.timestamp_micros())).map_err(|_| BadTime(s.to_owned()))
    }
}
impl Serialize for Time {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

/// A future that is boxed and may move between threads; what the async ports return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where loops get the time from. Batches never do: a batch has T.
///
/// [`Clock::now`], [`Clock::monotonic`] and [`Clock::sleep_until`] are the time of the data: ticks, sources, retention. It may run
/// faster than the machine's, which the other three are: what protects the host or talks with others goes by those.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Wall-clock time.
    fn now(&self) -> Time;
    /// Time since some fixed start, unaffected by changes of the wall clock. A wall clock that moves against this
    /// one has jumped.
    fn monotonic(&self) -> Duration;
    /// Completes when [`Clock::now`] is at or past `at`.
    fn sleep_until(&self, at: Time) -> BoxFuture<'static, ()>;

    /// Time since some fixed start as the machine counts it, such as how long files have been at rest.
    fn elapsed(&self) -> Duration {
        self.monotonic()
    }
    /// Completes after `by` as the machine counts it: for waits between two tries or two looks.
    fn pause(&self, by: Duration) -> BoxFuture<'static, ()> {
        self.sleep_until(self.now().plus(by))
    }
    /// What the machine's wall clock says.
    fn outside(&self) -> Time {
        self.now()
    }
}

/// A clock that stands still until it is told to move. For tests.
#[derive(Debug, Clone)]
pub struct VirtualClock(Arc<Mutex<VirtualState>>);

#[derive(Debug)]
struct VirtualState {
    now: Time,
    monotonic: Duration,
    sleepers: Vec<(Time, Waker)>,
}

impl VirtualClock {
    /// Stands at `now`.
    pub fn new(now: Time) -> Self {
        Self(Arc::new(Mutex::new(VirtualState { now, monotonic: Duration::ZERO, sleepers: Vec::new() })))
    }

    /// Moves wall and monotonic time on by `by`, and wakes whoever sleeps up to there.
    pub fn advance(&self, by: Duration) {
        self.change(|s| {
            s.now = s.now.plus(by);
            s.monotonic += by;
        });
    }

    /// Sets the wall clock alone, as an operator or a bad time server would.
    pub fn jump(&self, to: Time) {
        self.change(|s| s.now = to);
    }

    /// The earliest instant anybody sleeps until.
    pub fn next_wake(&self) -> Option<Time> {
        self.lock().sleepers.iter().map(|(at, _)| *at).min()
    }

    fn change(&self, f: impl FnOnce(&mut VirtualState)) {
        let due: Vec<Waker> = {
            let mut s = self.lock();
            f(&mut s);
            let now = s.now;
            let (due, rest) = std::mem::take(&mut s.sleepers).into_iter().partition(|(at, _)| *at <= now);
            s.sleepers = rest;
            due.into_iter().map(|(_, w): (Time, Waker)| w).collect()
        };
        due.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VirtualState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        self.lock().now
    }
    fn monotonic(&self) -> Duration {
        self.lock().monotonic
    }
    fn sleep_until(&self, at: Time) -> BoxFuture<'static, ()> {
        Box::pin(VirtualSleep { clock: self.clone(), at })
    }
}

struct VirtualSleep {
    clock: VirtualClock,
    at: Time,
}

impl Future for VirtualSleep {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut s = self.clock.lock();
        if s.now >= self.at {
            return Poll::Ready(());
        }
        s.sleepers.push((self.at, cx.waker().clone()));
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use super::*;

    #[test]
    fn floors_to_the_grid_before_and_after_the_epoch() {
        let minute = Duration::from_secs(60);
        assert_eq!(Time(61_000_000).floor(minute, Duration::ZERO), Time(60_000_000));
        assert_eq!(Time(60_000_000).floor(minute, Duration::ZERO), Time(60_000_000));
        assert_eq!(Time(-1).floor(minute, Duration::ZERO), Time(-60_000_000));
        assert_eq!(Time(64_000_000).floor(minute, Duration::from_secs(5)), Time(5_000_000));
    }

    #[test]
    fn reads_and_writes_rfc3339() {
        let t: Time = "2026-01-31T21:00:00.5+09:00".parse().expect("a time");
        assert_eq!(t.to_string(), "2026-01-31T12:00:00.500Z");
        assert!("yesterday".parse::<Time>().is_err());
    }
}
