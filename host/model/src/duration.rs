//! Lengths of time as people write them in a manifest: `90s`, `15m`, `1h 30m`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A length of time. Text form: a number and a unit (`us`, `ms`, `s`, `m`, `h`, `d`), or several of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(pub Duration);

impl Span {
    /// Of whole seconds.
    pub const fn secs(n: u64) -> Self {
        Self(Duration::from_secs(n))
    }
    /// Of whole milliseconds.
    pub const fn millis(n: u64) -> Self {
        Self(Duration::from_millis(n))
    }
    /// As std's type.
    pub fn get(self) -> Duration {
        self.0
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&humantime::format_duration(self.0), f)
    }
}
impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
/// A text that is no length of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a length of time: write a number with a unit, such as \"90s\", \"15m\" or \"1h 30m\"")]
pub struct BadSpan(pub String);

impl FromStr for Span {
    type Err = BadSpan;
    fn from_str(s: &str) -> Result<Self, BadSpan> {
        humantime::parse_duration(s).map(Self).map_err(|_| BadSpan(s.to_owned()))
    }
}
impl Serialize for Span {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}
