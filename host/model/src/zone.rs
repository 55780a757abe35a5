//! Time zones, for what people and rules read. Inside the host every time is UTC; a zone only says how one is written.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use chrono::format::{Item, StrftimeItems};
use chrono::{DateTime, LocalResult, NaiveDateTime, Offset as _, SecondsFormat, TimeZone as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::time::Time;

/// A time zone by its IANA name, such as `Asia/Seoul`. The default is UTC.
///
/// The rules of all zones are compiled in, so the same host writes the same text on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Zone(chrono_tz::Tz);

impl Zone {
    /// UTC.
    pub const UTC: Self = Self(chrono_tz::Tz::UTC);

    /// RFC 3339 with the zone's offset at that instant; in UTC with `Z`, as [`Time`] is written.
    pub fn rfc3339(self, time: Time) -> String {
        match self.local(time) {
            Some(at) if self != Self::UTC => at.to_rfc3339_opts(SecondsFormat::AutoSi, true),
            _ => time.to_string(),
        }
    }

    /// In a format of one's own.
    pub fn format(self, time: Time, format: &TimeFormat) -> String {
        let mut out = String::new();
        match self.local(time) {
            // A format is checked before it becomes a TimeFormat, so writing does not fail; what could is left out.
            Some(at) => {
                let _ = write!(out, "{}", at.format(&format.0));
            }
            None => out = time.to_string(),
        }
        out
    }

    /// The instants at which the zone's clocks show a local time: usually one; where they are set back there are two, the
    /// earlier one first; where they are set forward there is none.
    pub fn instants(self, local: NaiveDateTime) -> Vec<Time> {
        let time = |at: DateTime<chrono_tz::Tz>| Time(at.timestamp_micros());
        match self.0.from_local_datetime(&local) {
            LocalResult::Single(at) => vec![time(at)],
            LocalResult::Ambiguous(one, other) => {
                let (one, other) = (time(one), time(other));
                vec![one.min(other), one.max(other)]
            }
            LocalResult::None => Vec::new(),
        }
    }

    /// How far its clocks are ahead of UTC at an instant, in microseconds; 0 where no calendar reaches.
    pub(crate) fn offset_micros(self, time: Time) -> i64 {
        self.local(time).map_or(0, |at| i64::from(at.offset().fix().local_minus_utc()) * 1_000_000)
    }

    fn local(self, time: Time) -> Option<DateTime<chrono_tz::Tz>> {
        Some(DateTime::from_timestamp_micros(time.micros())?.with_timezone(&self.0))
    }
}

impl Default for Zone {
    fn default() -> Self {
        Self::UTC
    }
}
impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// A text that names no time zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no time zone: write an IANA name such as \"Asia/Seoul\", \"Europe/Berlin\" or \"UTC\"")]
pub struct BadZone(pub String);

impl FromStr for Zone {
    type Err = BadZone;
    fn from_str(text: &str) -> Result<Self, BadZone> {
        text.parse().map(Self).map_err(|_| BadZone(text.chars().take(80).collect()))
    }
}
impl Serialize for Zone {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

/// How a time is written, in the letters of `strftime`: `%H:%M`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeFormat(String);

/// A text that is no [`TimeFormat`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no format of a time: write one such as \"%H:%M\" or \"%Y-%m-%d\"")]
pub struct BadTimeFormat(pub String);

impl FromStr for TimeFormat {
    type Err = BadTimeFormat;
    fn from_str(text: &str) -> Result<Self, BadTimeFormat> {
        let sound = !text.is_empty() && text.len() <= 64 && StrftimeItems::new(text).all(|item| item != Item::Error);
        if sound { Ok(Self(text.to_owned())) } else { Err(BadTimeFormat(text.chars().take(80).collect())) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn zone(name: &str) -> Zone {
        name.parse().unwrap()
    }
    fn time(text: &str) -> Time {
        text.parse().unwrap()
    }

    #[test]
    fn a_time_has_the_offset_of_its_instant() {
        let t = time("2026-01-31T12:00:00.25Z");
        assert_eq!(zone("Asia/Seoul").rfc3339(t), "2026-01-31T21:00:00.250+09:00");
        assert_eq!(zone("UTC").rfc3339(t), "2026-01-31T12:00:00.250Z");
        assert_eq!(Zone::default(), zone("UTC"));
        // Europe/Berlin goes from +01:00 to +02:00 at 2026-03-29T01:00Z, and back at 2026-10-25T01:00Z.
        let berlin = zone("Europe/Berlin");
        assert_eq!(berlin.rfc3339(time("2026-03-29T00:59:00Z")), "2026-03-29T01:59:00+01:00");
        assert_eq!(berlin.rfc3339(time("2026-03-29T01:00:00Z")), "2026-03-29T03:00:00+02:00");
        assert_eq!(berlin.rfc3339(time("2026-10-25T00:30:00Z")), "2026-10-25T02:30:00+02:00");
        assert_eq!(berlin.rfc3339(time("2026-10-25T01:30:00Z")), "2026-10-25T02:30:00+01:00");
    }

    #[test]
    fn what_is_written_with_an_offset_is_the_same_instant() {
        for name in ["UTC", "Asia/Seoul", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu"] {
            for minutes in 0..3 * 24 * 60 {
                let t = time("2026-10-24T00:00:00Z").plus(std::time::Duration::from_secs(60 * minutes));
                assert_eq!(time(&zone(name).rfc3339(t)), t, "{name}");
            }
        }
    }

    #[test]
    fn names_and_formats_are_checked() {
        assert!("Asia/Soul".parse::<Zone>().unwrap_err().to_string().contains("Asia/Seoul"));
        let t = time("2026-01-31T12:04:00Z");
        assert_eq!(zone("Asia/Seoul").format(t, &"%H:%M".parse().unwrap()), "21:04");
        for bad in ["", "%", "%!", "%Q"] {
            assert!(bad.parse::<TimeFormat>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ends_of_time_are_written_too() {
        for t in [Time(i64::MIN), Time(i64::MAX), Time(0)] {
            let _ = (zone("Europe/Berlin").rfc3339(t), zone("Asia/Seoul").format(t, &"%H".parse().unwrap()));
        }
    }
}
