//! `[detect]` of `scenario.toml`: detection that is declared, for people who compile nothing. A query finds rows, a rule
//! judges them, and what alarms becomes output rows and alarms. How it runs stands in `host/pipeline/src/declared.rs`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::alarm::Severity;
use crate::columns::Kind;
use crate::duration::Span;
use crate::id::Name;
use crate::time::Time;

/// The `[detect]` section. Its columns, which everything below names, are those of the query's answer and those of the
/// rule's; with `all` only the rule's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DetectDef {
    /// The query that finds the rows.
    pub query: Name,
    /// Values of the query's parameters: each of them.
    #[serde(default)]
    pub bind: BTreeMap<Name, Bound>,
    /// The rule that judges: once for each row, or once for all of them with `all`.
    pub rule: Name,
    /// Columns of the query that the rule gets. None: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Vec<String>>,
    /// Hands all rows to one evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<AllRows>,
    /// Columns of the rule's answer, by their path in it, and their kinds.
    pub answer: BTreeMap<String, Kind>,
    /// Columns of the answer that an alarming row may lack. A row that lacks another one is put aside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub optional: Vec<String>,
    /// The boolean column that says whether a row alarms. None: every row of the answer does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Reports a row once, though several batches see it. None: every batch reports what it sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once: Option<Once>,
    /// Rows that are reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<DetectOutput>,
    /// Alarms that are raised and cleared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alarm: Option<DetectAlarm>,
}

/// `all = { as = "rows", unnest = "alarms" }`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllRows {
    /// The field of the rule's input that holds the rows, as an array of objects.
    #[serde(rename = "as")]
    pub field: String,
    /// The array in the rule's result whose elements are the rows of the answer.
    pub unnest: String,
}

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Bound {
    /// `"minute(T) - 2m"`: a time, from T.
    Time(TimeExpr),
    /// `{ rule = "1-1", field = "pattern" }`: what a rule answers to an empty input.
    Rule {
        /// The rule.
        rule: Name,
        /// Path in its result.
        field: String,
    },
    /// `{ value = 5 }`: always this.
    Value(toml::Value),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BoundTable {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rule: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<toml::Value>,
}

impl Serialize for Bound {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let table = match self.clone() {
            Self::Time(time) => return time.serialize(s),
            Self::Rule { rule, field } => BoundTable { rule: Some(rule), field: Some(field), value: None },
            Self::Value(value) => BoundTable { rule: None, field: None, value: Some(value) },
        };
        table.serialize(s)
    }
}
impl<'de> Deserialize<'de> for Bound {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        // An untagged enum would hide why a form is wrong, so the forms are told apart by hand.
        match toml::Value::deserialize(d)? {
            toml::Value::String(text) => text.parse().map(Self::Time).map_err(D::Error::custom),
            table @ toml::Value::Table(_) => {
                let table: BoundTable = table.try_into().map_err(|e: toml::de::Error| D::Error::custom(e.message()))?;
                match table {
                    BoundTable { rule: Some(rule), field: Some(field), value: None } => Ok(Self::Rule { rule, field }),
                    BoundTable { rule: None, field: None, value: Some(value) } => Ok(Self::Value(value)),
                    _ => Err(D::Error::custom(FORMS)),
                }
            }
            _ => Err(D::Error::custom(FORMS)),
        }
    }
}

const FORMS: &str =
    "write a time such as \"minute(T) - 2m\", { rule = \"NAME\", field = \"PATH\" } or { value = VALUE }";

/// A time that is a function of T: `T`, `minute(T)`, `hour(T)` or `day(T)` (T cut in UTC), with a length of time added
/// or taken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeExpr {
    /// What T is cut to.
    cut: Cut,
    /// Whether `by` is added; else it is taken off.
    later: bool,
    by: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    None,
    Minute,
    Hour,
    Day,
}

impl Cut {
    const ALL: [(Self, &str, u64); 4] = [
        (Self::None, "T", 0),
        (Self::Minute, "minute(T)", 60),
        (Self::Hour, "hour(T)", 3_600),
        (Self::Day, "day(T)", 86_400),
    ];
}

impl TimeExpr {
    /// The time in a batch of this T.
    pub fn at(self, time: Time) -> Time {
        let seconds = Cut::ALL.iter().find(|(cut, ..)| *cut == self.cut).map_or(0, |(_, _, seconds)| *seconds);
        let from = if seconds == 0 { time } else { time.floor(Duration::from_secs(seconds), Duration::ZERO) };
        if self.later { from.plus(self.by.get()) } else { from.minus(self.by.get()) }
    }
}

impl fmt::Display for TimeExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Cut::ALL.iter().find(|(cut, ..)| *cut == self.cut).map_or("T", |(_, name, _)| *name);
        f.write_str(name)?;
        if self.by.get().is_zero() {
            return Ok(());
        }
        write!(f, " {} {}", if self.later { '+' } else { '-' }, self.by)
    }
}

/// A text that is no [`TimeExpr`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no time of a batch: write T, minute(T), hour(T) or day(T), and perhaps a length of time, such as \"minute(T) - 2m\""
)]
pub struct BadTimeExpr(String);

impl FromStr for TimeExpr {
    type Err = BadTimeExpr;
    fn from_str(text: &str) -> Result<Self, BadTimeExpr> {
        let bad = || BadTimeExpr(text.chars().take(80).collect());
        let (base, rest) = match text.find(['+', '-']) {
            Some(at) => (&text[..at], Some((text.as_bytes()[at] == b'+', &text[at + 1..]))),
            None => (text, None),
        };
        let (cut, ..) = Cut::ALL.into_iter().find(|(_, name, _)| *name == base.trim()).ok_or_else(bad)?;
        let (later, by) = match rest {
            Some((later, span)) => (later, span.trim().parse().map_err(|_| bad())?),
            None => (true, Span::default()),
        };
        Ok(Self { cut, later, by })
    }
}
impl Serialize for TimeExpr {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for TimeExpr {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

/// `[detect.once]`: a row with the same values in `per` is reported again only when its outcome is another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Once {
    /// What makes two rows the same.
    pub per: Vec<String>,
    /// What makes two outcomes the same. None: all columns of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Vec<String>>,
    /// How long after a report it is remembered; longer than any batch looks back.
    #[serde(default = "default_keep")]
    pub keep: Span,
    /// Reports in every batch all the same.
    #[serde(default)]
    pub repeat: bool,
}

fn default_keep() -> Span {
    Span::secs(3_600)
}

/// `[detect.output]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DetectOutput {
    /// Its name; `[outputs.NAME]` says which table it goes to.
    pub name: Name,
    /// Columns in order: name = a column, or a time such as `T`.
    pub columns: OutputColumns,
}

/// Columns of an output in the order in which they are written: name and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutputColumns(pub Vec<(String, String)>);

impl Serialize for OutputColumns {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.0.iter().map(|(name, from)| (name, from)))
    }
}
impl<'de> Deserialize<'de> for OutputColumns {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> serde::de::Visitor<'de> for InOrder {
            type Value = OutputColumns;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of columns, name = \"COLUMN\"")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<OutputColumns, A::Error> {
                let mut out = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    out.push(entry);
                }
                Ok(OutputColumns(out))
            }
        }
        d.deserialize_map(InOrder)
    }
}

/// `[detect.alarm]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DetectAlarm {
    /// The alarm type; `[alarms.TYPE]` has its settings.
    #[serde(rename = "type")]
    pub name: Name,
    /// Columns whose values are the alarm's key: one alarm for each key.
    pub key: Vec<String>,
    /// How bad it is.
    pub severity: SeverityFrom,
    /// A text for people with columns in braces: `{router_ip}: {err_cnt} errors in {minute:%H:%M}`.
    pub message: String,
    /// Columns that are kept as the alarm's fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Of several rows with one key the one with the greatest value in this column speaks. None: the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<String>,
    /// A row that does not alarm ends its key's alarm when its `latest` is this time. None: when it is the latest row of
    /// its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clear_at: Option<TimeExpr>,
}

/// `"COLUMN"`, or `{ fixed = "major" }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeverityFrom {
    /// The text of this column, in any case. One that is no severity counts as a warning.
    Column(String),
    /// Always this one.
    Fixed(Severity),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FixedSeverity {
    fixed: Severity,
}

impl Serialize for SeverityFrom {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Column(name) => s.serialize_str(name),
            Self::Fixed(fixed) => FixedSeverity { fixed: *fixed }.serialize(s),
        }
    }
}
impl<'de> Deserialize<'de> for SeverityFrom {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(d)? {
            toml::Value::String(name) => Ok(Self::Column(name)),
            other => {
                other.try_into().map(|FixedSeverity { fixed }| Self::Fixed(fixed)).map_err(|e: toml::de::Error| {
                    D::Error::custom(format_args!("{}: write \"COLUMN\" or {{ fixed = \"major\" }}", e.message()))
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, clippy::unwrap_used)]
    use super::*;

    fn at(expr: &str, time: &str) -> String {
        expr.parse::<TimeExpr>().expect(expr).at(time.parse().unwrap()).to_string()
    }

    #[test]
    fn times_of_a_batch() {
        let t = "2026-03-29T01:17:45.250Z";
        assert_eq!(at("T", t), t);
        assert_eq!(at("minute(T)", t), "2026-03-29T01:17:00Z");
        assert_eq!(at("minute(T) - 2m", t), "2026-03-29T01:15:00Z");
        assert_eq!(at("hour(T)+90s", t), "2026-03-29T01:01:30Z");
        assert_eq!(at(" day(T) - 1h 30m", t), "2026-03-28T22:30:00Z");
        for bad in ["", "minute", "t", "T - ", "T - soon", "T * 2", "minute(T) - 2m - 1m"] {
            assert!(bad.parse::<TimeExpr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_read_is_written_the_same() {
        let text = "query = 'q'\nrule = 'r'\n[bind]\na = 'minute(T) - 2m'\nb = { rule = 'r', field = 'x.y' }\nc = { value = 5 }\n\
             [answer]\nyes = 'boolean'\n[output]\nname = 'o'\ncolumns = { z = 'T', a = 'yes' }\n\
             [alarm]\ntype = 't'\nkey = ['k']\nseverity = { fixed = 'major' }\nmessage = 'm'\nclear_at = 'minute(T)'\n";
        let read: DetectDef = toml::from_str(text).expect("a good section");
        assert_eq!(read.output.as_ref().unwrap().columns.0[0].0, "z", "the order is the file's");
        assert_eq!(read.alarm.as_ref().unwrap().severity, SeverityFrom::Fixed(Severity::Major));
        let again = toml::from_str(&toml::to_string(&read).expect("toml")).expect("read again");
        assert_eq!(read, again);
    }

    #[test]
    fn what_is_no_value_is_told_how_to_be_one() {
        for bad in [
            "a = 5",
            "a = 'soon'",
            "a = { rule = 'r' }",
            "a = { value = 5, rule = 'r', field = 'f' }",
            "a = { vlue = 5 }",
        ] {
            assert!(toml::from_str::<BTreeMap<Name, Bound>>(bad).is_err(), "{bad}");
        }
        let error = toml::from_str::<BTreeMap<Name, Bound>>("a = { rule = 'r' }").expect_err("half a rule");
        assert!(error.message().contains("minute(T) - 2m"), "{error}");
    }
}
