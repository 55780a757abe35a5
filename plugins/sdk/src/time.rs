//! Points in time. A detector has one source of them, [`crate::Batch::time`], and its columns.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

/// One minute.
pub const MINUTE: Duration = Duration::from_secs(60);

/// Microseconds since 1970-01-01T00:00:00Z. Written and read as ISO 8601 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(i64);

const DAY: i64 = 86_400_000_000;

impl Time {
    /// From microseconds.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }
    /// As microseconds.
    pub const fn micros(self) -> i64 {
        self.0
    }
    /// The latest multiple of `step` (counted from 1970) that is not after this time.
    pub fn floor(self, step: Duration) -> Self {
        Self(self.0 - self.0.rem_euclid(micros(step).max(1)))
    }
    /// The start of this time's minute.
    pub fn floor_minute(self) -> Self {
        self.floor(MINUTE)
    }
    /// `12:04`, in UTC.
    pub fn hour_minute(self) -> String {
        let minutes = self.0.rem_euclid(DAY) / 60_000_000;
        format!("{:02}:{:02}", minutes / 60, minutes % 60)
    }
    /// Time that has passed since an earlier one; none if it is later.
    pub fn since(self, earlier: Self) -> Option<Duration> {
        let micros = self.0.checked_sub(earlier.0)?;
        u64::try_from(micros).ok().map(Duration::from_micros)
    }
}

/// Beyond the range of times a duration counts as the longest that there is.
fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }
}
impl Sub<Duration> for Time {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(micros(duration)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, micros) = (self.0.div_euclid(DAY), self.0.rem_euclid(DAY));
        let (year, month, day) = civil(days);
        let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if fraction != 0 {
            write!(f, ".{fraction:06}")?;
        }
        f.write_str("Z")
    }
}

impl FromStr for Time {
    type Err = String;
    /// `2026-11-30`, `2026-11-30T12:04`, `2026-11-30T12:04:05`, `2026-11-30T12:04:05.123456`, each with or without `Z`.
    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| format!("'{text}' is no time such as 2026-11-30T12:04:05Z"))
    }
}

fn parse(text: &str) -> Option<Time> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, clock) = text.split_once('T').unwrap_or((text, "00:00:00"));
    let number = |part: &str, digits: usize| {
        (part.len() == digits && part.bytes().all(|b| b.is_ascii_digit())).then(|| part.parse::<i64>().ok()).flatten()
    };
    let mut date = date.splitn(3, '-');
    let (year, month, day) = (number(date.next()?, 4)?, number(date.next()?, 2)?, number(date.next()?, 2)?);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut clock = clock.splitn(3, ':');
    let (hour, minute, second) =
        (number(clock.next()?, 2)?, number(clock.next()?, 2)?, clock.next().map_or(Some(0), |part| number(part, 2))?);
    let valid = civil(days(year, month, day)) == (year, month, day)
        && hour < 24
        && minute < 60
        && second < 60
        && (1..=6).contains(&fraction.len());
    let fraction = number(&format!("{fraction:0<6}"), 6)?;
    valid.then(|| {
        let seconds = (hour * 60 + minute) * 60 + second;
        Time(days(year, month, day) * DAY + seconds * 1_000_000 + fraction)
    })
}

/// Year, month and day of a day since 1970. Counts in eras of 400 years that begin in March, so that a leap day is the
/// last day of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = (march_month + 2) % 12 + 1;
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// The inverse of [`civil`].
fn days(year: i64, month: i64, day: i64) -> i64 {
    let march_year = year - i64::from(month <= 2);
    let (era, year_of_era) = (march_year.div_euclid(400), march_year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_time_reads_what_it_writes() {
        for text in [
            "1970-01-01T00:00:00Z",
            "1969-12-31T23:59:59.999999Z",
            "2000-02-29T12:00:00Z",
            "2026-11-30T12:04:05.000001Z",
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
        ] {
            assert_eq!(text.parse::<Time>().unwrap().to_string(), text);
        }
        assert_eq!("2026-11-30T12:04:05Z".parse(), Ok(Time(1_796_040_245_000_000)));
        assert_eq!("2026-11-30T12:04".parse::<Time>(), "2026-11-30T12:04:00Z".parse());
        assert_eq!("2026-11-30".parse::<Time>(), "2026-11-30T00:00:00Z".parse());
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "noon",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-30T24:00:00Z",
            "2026-11-30T12:60:00Z",
            "2026-11-30T12:04:05.1234567Z",
            "2026-11-30T12:04:05.Z",
            "2026-11-30T+2:04:05Z",
        ] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_minute_is_floored_on_both_sides_of_1970() {
        let minute = |text: &str| text.parse::<Time>().unwrap().floor_minute().to_string();
        assert_eq!(minute("2026-11-30T12:04:59.999999Z"), "2026-11-30T12:04:00Z");
        assert_eq!(minute("1969-12-31T23:59:59Z"), "1969-12-31T23:59:00Z");
        assert_eq!("2026-11-30T12:04:59Z".parse::<Time>().unwrap().hour_minute(), "12:04");
    }
}
