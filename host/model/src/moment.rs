//! Times as people write them on a command line: with a zone, or as the clock on their wall shows it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, NaiveDateTime};

use crate::time::Time;
use crate::zone::Zone;

/// A time that a person wrote: RFC 3339, or without a zone, `2026-01-31T12:00` or `2026-01-31 12:00:00`.
///
/// What has no zone is an instant only in one: [`Moment::instant`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// With a zone: one instant.
    Instant(Time),
    /// What a clock on the wall shows.
    Local(NaiveDateTime),
}

/// A text that is no [`Moment`], or a local time that is not one instant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadMoment {
    /// It cannot be read.
    #[error("'{0}' is not a time: write it as 2026-01-31T12:00:00Z, or without a zone as 2026-01-31T12:00")]
    Text(String),
    /// Clocks are set back, and show it twice.
    #[error("{local} is there twice in {zone}, where clocks are set back: write {first} or {second}")]
    Twice {
        /// As it was written.
        local: String,
        /// The zone.
        zone: Zone,
        /// The earlier instant.
        first: String,
        /// The later one.
        second: String,
    },
    /// Clocks are set forward, and never show it.
    #[error("{local} is not there in {zone}, where clocks are set forward: write {before} or {after}")]
    Never {
        /// As it was written.
        local: String,
        /// The zone.
        zone: Zone,
        /// The instant by the offset after the change: before the gap.
        before: String,
        /// The instant by the offset before the change: after the gap.
        after: String,
    },
}

/// The longest text of a bad time that is said again.
const SAID: usize = 80;

impl FromStr for Moment {
    type Err = BadMoment;
    fn from_str(text: &str) -> Result<Self, BadMoment> {
        read(text.trim()).ok_or_else(|| BadMoment::Text(text.chars().take(SAID).collect()))
    }
}

fn read(text: &str) -> Option<Moment> {
    // A year has four digits: chrono would take others for one, too.
    let (year, rest) = (text.get(..4)?, text.get(4..)?);
    if !year.bytes().all(|b| b.is_ascii_digit()) || !rest.starts_with('-') {
        return None;
    }
    let text = text.replacen(' ', "T", 1);
    if let Ok(time) = text.parse() {
        return Some(Moment::Instant(time));
    }
    let instant = |at: DateTime<chrono::FixedOffset>| Moment::Instant(Time(at.timestamp_micros()));
    let local = |text: &str, format| NaiveDateTime::parse_from_str(text, format).ok();
    if let Some(utc) = text.strip_suffix(['Z', 'z']) {
        return local(utc, MINUTES).map(|at| Moment::Instant(Time(at.and_utc().timestamp_micros())));
    }
    DateTime::parse_from_str(&text, MINUTES_AND_OFFSET)
        .ok()
        .map(instant)
        .or_else(|| local(&text, SECONDS).or_else(|| local(&text, MINUTES)).map(Moment::Local))
}

const SECONDS: &str = "%Y-%m-%dT%H:%M:%S%.f";
const MINUTES: &str = "%Y-%m-%dT%H:%M";
const MINUTES_AND_OFFSET: &str = "%Y-%m-%dT%H:%M%:z";

impl Moment {
    /// The instant. One without a zone is a local time of `zone`; what a change of daylight saving makes two instants of, or
    /// none, is refused, with the instants that may be meant.
    pub fn instant(self, zone: Zone) -> Result<Time, BadMoment> {
        // In UTC it must be a year of four digits too: otherwise nobody could read it again.
        let legible = |time: Time| match time.to_string().parse::<Time>() {
            Ok(_) => Ok(time),
            Err(_) => Err(BadMoment::Text(self.to_string())),
        };
        let local = match self {
            Self::Instant(time) => return legible(time),
            Self::Local(local) => local,
        };
        match zone.instants(local)[..] {
            [time] => legible(time),
            [first, second, ..] => Err(BadMoment::Twice {
                local: self.to_string(),
                zone,
                first: zone.rfc3339(first),
                second: zone.rfc3339(second),
            }),
            [] => {
                let [before, after] = around(local, zone);
                let (before, after) = (zone.rfc3339(before), zone.rfc3339(after));
                Err(BadMoment::Never { local: self.to_string(), zone, before, after })
            }
        }
    }
}

/// The instants that a local time in a gap is by the offset after the gap and by the one before it.
fn around(local: NaiveDateTime, zone: Zone) -> [Time; 2] {
    // No offset is larger than a day, and no zone changes twice in two.
    const DAY: Duration = Duration::from_secs(86_400);
    let utc = Time(local.and_utc().timestamp_micros());
    [utc.plus(DAY), utc.minus(DAY)].map(|near| Time(utc.micros().saturating_sub(zone.offset_micros(near))))
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instant(time) => time.fmt(f),
            Self::Local(local) => write!(f, "{}", local.format("%Y-%m-%dT%H:%M:%S%.f")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn instant(text: &str, zone: &str) -> Result<String, String> {
        let moment: Moment = text.parse().map_err(|e: BadMoment| e.to_string())?;
        moment.instant(zone.parse().unwrap()).map(|time| time.to_string()).map_err(|e| e.to_string())
    }

    #[test]
    fn with_a_zone_it_is_that_and_without_one_that_of_the_reader() {
        for (text, zone, expected) in [
            ("2026-11-30T10:17:00Z", "Asia/Seoul", "2026-11-30T10:17:00Z"),
            ("2026-11-30T10:17:00+09:00", "UTC", "2026-11-30T01:17:00Z"),
            ("2026-11-30 10:17:00Z", "Asia/Seoul", "2026-11-30T10:17:00Z"),
            ("2026-11-30T10:17Z", "Asia/Seoul", "2026-11-30T10:17:00Z"),
            ("2026-11-30T10:17+01:00", "UTC", "2026-11-30T09:17:00Z"),
            ("2026-11-30 10:17:00", "UTC", "2026-11-30T10:17:00Z"),
            ("2026-11-30T10:17", "UTC", "2026-11-30T10:17:00Z"),
            ("2026-11-30 10:17", "Asia/Seoul", "2026-11-30T01:17:00Z"),
            ("2026-11-30T10:17:00.5", "Asia/Seoul", "2026-11-30T01:17:00.500Z"),
            ("2026-07-01T12:00", "Europe/Berlin", "2026-07-01T10:00:00Z"),
        ] {
            assert_eq!(instant(text, zone).as_deref(), Ok(expected), "{text} in {zone}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused_with_an_example() {
        for text in [
            "noon",
            "",
            "2026-11-30",
            "10:17",
            "2026-13-30T10:17",
            "2026-11-31 10:17:00",
            "2026-11-30T25:00",
            "26-11-30T10:17",
            "2026-11-30T10:17:00 Seoul",
            "+2026-11-30T10:17",
        ] {
            let told = instant(text, "UTC").unwrap_err();
            assert!(told.contains("2026-01-31T12:00:00Z") && told.contains("2026-01-31T12:00"), "{text}: {told}");
        }
        assert!(instant(&"9".repeat(10_000), "UTC").unwrap_err().len() < 250);
        // Years of five digits, and before the first, once they are in UTC.
        for (text, zone) in [
            ("9999-12-31T23:59:59-01:00", "UTC"),
            ("9999-12-31T20:00", "America/New_York"),
            ("0000-01-01T00:00+09:00", "UTC"),
            ("0000-01-01 00:00", "Asia/Seoul"),
        ] {
            let told = instant(text, zone).unwrap_err();
            assert!(told.contains("is not a time"), "{text}: {told}");
        }
        assert_eq!(instant("9999-12-31T23:59", "UTC").as_deref(), Ok("9999-12-31T23:59:00Z"));
        assert_eq!(instant("0000-01-01T00:00", "UTC").as_deref(), Ok("0000-01-01T00:00:00Z"));
    }

    // Europe/Berlin goes from +01:00 to +02:00 at 2026-03-29T01:00Z, and back at 2026-10-25T01:00Z.
    #[test]
    fn a_local_time_that_a_change_makes_two_or_none_names_both() {
        assert_eq!(
            instant("2026-10-25 02:30:00", "Europe/Berlin").unwrap_err(),
            "2026-10-25T02:30:00 is there twice in Europe/Berlin, where clocks are set back: write \
             2026-10-25T02:30:00+02:00 or 2026-10-25T02:30:00+01:00"
        );
        assert_eq!(
            instant("2026-03-29T02:30", "Europe/Berlin").unwrap_err(),
            "2026-03-29T02:30:00 is not there in Europe/Berlin, where clocks are set forward: write \
             2026-03-29T01:30:00+01:00 or 2026-03-29T03:30:00+02:00"
        );
        // Lord Howe moves by half an hour, at 15:00Z and 15:30Z.
        assert!(instant("2026-10-04T02:15", "Australia/Lord_Howe").unwrap_err().contains("2026-10-04T02:45:00+11:00"));
        for (text, expected) in [
            ("2026-10-25T01:59:59", "2026-10-24T23:59:59Z"),
            ("2026-10-25T03:00:00", "2026-10-25T02:00:00Z"),
            ("2026-03-29T01:59:59", "2026-03-29T00:59:59Z"),
            ("2026-03-29T03:00:00", "2026-03-29T01:00:00Z"),
        ] {
            assert_eq!(instant(text, "Europe/Berlin").as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_a_refusal_names_can_be_given_back() {
        for (text, zone) in [("2026-10-25 02:30:00", "Europe/Berlin"), ("2026-03-29T02:30", "Europe/Berlin")] {
            let told = instant(text, zone).unwrap_err();
            let named = told.split_once("write ").unwrap().1.split(" or ");
            let times: Vec<Time> = named.map(|one| instant(one, zone).unwrap().parse().unwrap()).collect();
            assert_eq!(times[1].since(times[0]), Duration::from_secs(3_600), "{told}");
        }
    }
}
