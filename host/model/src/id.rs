//! Names and identities. Each is a type of its own, so that one tenant's value cannot meet another's by accident.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A name that people choose: of a tenant, scenario, stream, query, rule, output or table.
///
/// 1 to 64 characters of `a-z`, `A-Z`, `0-9`, `_`, `-`, the first one a letter or digit: safe as a folder name, in SQL
/// (quoted), in a metric label and in a URL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks and takes a name. The error says which rule it breaks.
    pub fn new(text: &str) -> Result<Self, BadName> {
        let bad = |why| Err(BadName { name: text.chars().take(80).collect(), why });
        if text.is_empty() {
            return bad("it is empty");
        }
        if text.len() > 64 {
            return bad("it is longer than 64 characters");
        }
        if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return bad("it must begin with a letter or a digit");
        }
        if !text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
            return bad("only letters, digits, '_' and '-' are allowed");
        }
        Ok(Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is no [`Name`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{name}' is not a name: {why}")]
pub struct BadName {
    /// The text, cut to 80 characters.
    pub name: String,
    /// Which rule it breaks.
    pub why: &'static str,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}
impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}
impl FromStr for Name {
    type Err = BadName;
    fn from_str(s: &str) -> Result<Self, BadName> {
        Self::new(s)
    }
}
impl Serialize for Name {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
    }
}
impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(d)?).map_err(D::Error::custom)
    }
}

/// Makes a `tenant/name` identity: display and parse as `tenant/name`, serialized as that text.
macro_rules! pair_id {
    ($(#[$doc:meta])* $ty:ident, $field:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $ty {
            /// The owner.
            pub tenant: Name,
            #[doc = concat!("The ", $what, "'s name inside its tenant.")]
            pub $field: Name,
        }
        impl $ty {
            /// From its two parts.
            pub fn new(tenant: Name, $field: Name) -> Self {
                Self { tenant, $field }
            }
        }
        impl fmt::Display for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}/{}", self.tenant, self.$field)
            }
        }
        impl fmt::Debug for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
        impl FromStr for $ty {
            type Err = BadName;
            fn from_str(s: &str) -> Result<Self, BadName> {
                let Some((tenant, name)) = s.split_once('/') else {
                    return Err(BadName { name: s.chars().take(80).collect(), why: concat!("write TENANT/", $what) });
                };
                Ok(Self { tenant: Name::new(tenant)?, $field: Name::new(name)? })
            }
        }
        impl Serialize for $ty {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $ty {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(D::Error::custom)
            }
        }
    };
}

pair_id!(
    /// One deployed detection, `tenant/scenario`.
    ScenarioId, scenario, "SCENARIO"
);
pair_id!(
    /// One declared input, `tenant/stream`.
    StreamId, stream, "STREAM"
);

/// A BLAKE3 content digest. Identity of rulesets, components, rules and ledger records; never an mtime or a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Of a list of parts. Each part is preceded by its length, so that moving a byte from one part to the next
    /// changes the digest.
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// The first 12 hex digits, for people.
    pub fn short(&self) -> String {
        let mut text = self.to_string();
        text.truncate(12);
        text
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}
impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl FromStr for Digest {
    type Err = BadName;
    fn from_str(s: &str) -> Result<Self, BadName> {
        let bad = || BadName { name: s.chars().take(80).collect(), why: "a digest has 64 hexadecimal digits" };
        if s.len() != 64 || !s.is_ascii() {
            return Err(bad());
        }
        let mut out = [0; 32];
        for (i, byte) in out.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&s[2 * i..2 * i + 2], 16).map_err(|_| bad())?;
        }
        Ok(Self(out))
    }
}
impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

/// A random identity that a ledger, a scenario or a stream gets when it is first seen. It is part of every sink id, so
/// that a restored backup or a re-created scenario cannot be taken for the one before it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(pub String);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// N: the number of a batch within its run. The first is 1; there are no holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchId(pub u64);

impl BatchId {
    /// The first of a run.
    pub const FIRST: Self = Self(1);
    /// The one after this.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What a batch is executed for. Each run has its own N, its own fork of state and its own sink ids; only `Live` moves
/// live state and alarms.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunId {
    /// The scenario's ordinary life.
    Live,
    /// One batch for a fixed time; writes nothing.
    Side(Name),
    /// A past period in order; writes nothing until it is published.
    Backfill(Name),
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live => f.write_str("live"),
            Self::Side(name) => write!(f, "side:{name}"),
            Self::Backfill(name) => write!(f, "backfill:{name}"),
        }
    }
}
impl FromStr for RunId {
    type Err = BadName;
    fn from_str(s: &str) -> Result<Self, BadName> {
        match s.split_once(':') {
            None if s == "live" => Ok(Self::Live),
            Some(("side", name)) => Ok(Self::Side(Name::new(name)?)),
            Some(("backfill", name)) => Ok(Self::Backfill(Name::new(name)?)),
            _ => Err(BadName { name: s.chars().take(80).collect(), why: "a run is live, side:NAME or backfill:NAME" }),
        }
    }
}
impl Serialize for RunId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

/// One run of one scenario: what batch numbers, state and sinks belong to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunKey {
    /// The scenario.
    pub scenario: ScenarioId,
    /// Which of its runs.
    pub run: RunId,
}

impl RunKey {
    /// The live run of a scenario.
    pub fn live(scenario: ScenarioId) -> Self {
        Self { scenario, run: RunId::Live }
    }
}
impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.scenario, self.run)
    }
}

/// One place where a run's outputs go: the outputs named `output` of that run. Has its own cursor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SinkId {
    /// Whose outputs.
    pub key: RunKey,
    /// Which output, e.g. `s1_results`, or [`crate::batch::ALARM_EVENTS`].
    pub output: Name,
}

impl fmt::Display for SinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.key, self.output)
    }
}
