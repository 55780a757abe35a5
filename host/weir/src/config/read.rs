//! Reads settings from layers of TOML and collects every problem with its file and line. What serde offers ends at the
//! first one.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use toml::de::{DeTable, DeValue};
use weir_model::duration::Span;
use weir_model::fault::Problem;
use weir_model::limits::{Limits, LimitsPatch};
use weir_model::zone::Zone;

use super::secret::SecretRef;

/// One file of settings.
pub(super) struct Layer<'t> {
    file: PathBuf,
    text: &'t str,
    table: DeTable<'t>,
    errors: Vec<toml::de::Error>,
}

impl<'t> Layer<'t> {
    pub(super) fn file(file: &Path, text: &'t str) -> Self {
        let (table, errors) = DeTable::parse_recoverable(text);
        Self { file: file.to_owned(), text, table: table.into_inner(), errors }
    }
    pub(super) fn defaults() -> Self {
        Self::file(Path::new("defaults.toml"), super::DEFAULTS)
    }

    fn find(&self, path: &str) -> Option<(Range<usize>, &DeValue<'t>)> {
        let mut table = &self.table;
        let mut keys = path.split('.').peekable();
        while let Some(key) = keys.next() {
            let (_, value) = table.iter().find(|(k, _)| k.get_ref() == key)?;
            if keys.peek().is_none() {
                return Some((value.span(), value.get_ref()));
            }
            table = value.get_ref().as_table()?;
        }
        None
    }

    /// `file:line` of a byte.
    fn place(&self, at: usize) -> String {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = 1 + before.matches('\n').count();
        format!("{}:{line}", self.file.display())
    }
}

/// What is wrong with a value, and what to write instead.
struct Wrong {
    message: String,
    fix: String,
}

fn wrong<T>(message: impl Display, fix: impl Display) -> Result<T, Wrong> {
    Err(Wrong { message: message.to_string(), fix: fix.to_string() })
}

/// Reads settings by their path. A setting that nobody asked for is unknown.
pub(super) struct Reader<'t> {
    /// The strongest first.
    layers: &'t [Layer<'t>],
    known: BTreeSet<&'static str>,
    /// Tables whose keys are checked by who reads them.
    free: BTreeSet<&'static str>,
    problems: Vec<Problem>,
}

impl<'t> Reader<'t> {
    pub(super) fn new(layers: &'t [Layer<'t>]) -> Self {
        let mut problems = Vec::new();
        for layer in layers {
            for error in &layer.errors {
                let at = error.span().map_or(0, |s| s.start);
                let problem = Problem::new(layer.place(at), error.message());
                problems.push(problem.fix("correct the TOML"));
            }
        }
        Self { layers, known: BTreeSet::new(), free: BTreeSet::new(), problems }
    }

    pub(super) fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// `file:line` of a setting.
    pub(super) fn place_of(&self, path: &str) -> String {
        let mut places = self.layers.iter().filter_map(|l| Some(l.place(l.find(path)?.0.start)));
        places.next().unwrap_or_default()
    }

    /// The value of the strongest layer that has a good one; every bad one is a problem.
    fn value<T>(
        &mut self,
        path: &'static str,
        read: impl Fn(&Layer<'t>, &DeValue<'t>) -> Result<T, Wrong>,
    ) -> Option<T> {
        self.known.insert(path);
        for layer in self.layers {
            let Some((span, value)) = layer.find(path) else {
                continue;
            };
            match read(layer, value) {
                Ok(value) => return Some(value),
                Err(Wrong { message, fix }) => {
                    let problem = Problem::new(layer.place(span.start), message);
                    self.problems.push(problem.field(path).fix(fix));
                }
            }
        }
        None
    }

    pub(super) fn parsed<T: FromStr<Err: Display>>(&mut self, path: &'static str, what: &'static str) -> Option<T> {
        self.value(path, |_, value| {
            let text = text(value, what)?;
            text.parse().or_else(|e| wrong(format_args!("'{text}': {e}"), format_args!("write {what}")))
        })
    }

    pub(super) fn zone(&mut self, path: &'static str) -> Option<Zone> {
        const WHAT: &str = "an IANA name, such as \"Asia/Seoul\"";
        self.value(path, |_, value| {
            let text = text(value, WHAT)?;
            // Its own error says what to write, as the fix does.
            text.parse().or_else(|_| wrong(format_args!("'{text}' is no time zone"), format_args!("write {WHAT}")))
        })
    }

    pub(super) fn path(&mut self, path: &'static str) -> Option<PathBuf> {
        self.value(path, |layer, value| Ok(layer.beside(text(value, "the path of a folder")?)))
    }

    pub(super) fn span(&mut self, path: &'static str, allowed: RangeInclusive<Duration>) -> Option<Span> {
        self.value(path, |_, value| {
            let text = text(value, "a length of time, such as \"90s\"")?;
            let span: Span = match text.parse() {
                Ok(span) => span,
                Err(_) => {
                    let message = format_args!("'{text}' is not a length of time");
                    return wrong(message, "write a number with a unit, such as \"90s\" or \"15m\"");
                }
            };
            if allowed.contains(&span.get()) {
                return Ok(span);
            }
            let (least, most) = (Span(*allowed.start()), Span(*allowed.end()));
            wrong(format_args!("{span} is out of range"), format_args!("use {least} to {most}"))
        })
    }

    pub(super) fn number(&mut self, path: &'static str, allowed: RangeInclusive<u64>) -> Option<u64> {
        self.value(path, |_, value| {
            let fix = format!("use a whole number from {} to {}", allowed.start(), allowed.end());
            let Some(number) = value.as_integer() else {
                return wrong(format_args!("it is a {}", value.type_str()), fix);
            };
            match u64::from_str_radix(number.as_str(), number.radix()) {
                Ok(n) if allowed.contains(&n) => Ok(n),
                _ => wrong(format_args!("{number} is out of range"), fix),
            }
        })
    }

    /// A reference to a secret, and where it stands.
    pub(super) fn secret(&mut self, path: &'static str) -> Option<(SecretRef, String)> {
        self.free.insert(path);
        let found = self.value(path, |layer, value| {
            const FIX: &str = "write { env = \"NAME\" } or { file = \"PATH\" }";
            // The text itself is never repeated: it may be the secret.
            let Some(table) = value.as_table() else {
                return wrong("a secret must not stand in the configuration", FIX);
            };
            let mut entries = table.iter().map(|(k, v)| (k.get_ref().as_ref(), v.get_ref().as_str()));
            match (entries.next(), entries.next()) {
                (Some(("env", Some(name))), None) => Ok(SecretRef::Env(name.to_owned())),
                (Some(("file", Some(path))), None) => Ok(SecretRef::File(layer.beside(path))),
                _ => wrong("it is no reference to a secret", FIX),
            }
        })?;
        Some((found, self.place_of(path)))
    }

    /// Limits, single ones overridden.
    pub(super) fn limits(&mut self, path: &'static str, mut limits: Limits) -> Limits {
        self.known.insert(path);
        self.free.insert(path);
        for layer in self.layers.iter().rev() {
            let Some((span, value)) = layer.find(path) else {
                continue;
            };
            let Some(table) = value.as_table() else {
                let problem = Problem::new(layer.place(span.start), "it is no table");
                self.problems.push(problem.field(path).fix("write [limits]"));
                continue;
            };
            for (name, value) in table {
                let one = patch(name.get_ref(), value.get_ref());
                match limits.with(&one) {
                    Ok(changed) => limits = changed,
                    Err(message) => {
                        let place = layer.place(name.span().start);
                        let field = format!("{path}.{}", name.get_ref());
                        self.problems
                            .push(Problem::new(place, message).field(field).fix("see host/model/defaults/limits.toml"));
                    }
                }
            }
        }
        limits
    }

    /// All problems, those of unknown settings among them, in the order of their lines.
    pub(super) fn finish(mut self) -> Vec<Problem> {
        for layer in self.layers {
            self.unknown(layer, &layer.table, "");
        }
        self.problems.sort_by_key(|p| p.file.rsplit_once(':').and_then(|(_, line)| line.parse::<u32>().ok()));
        self.problems
    }

    fn unknown(&mut self, layer: &Layer<'t>, table: &DeTable<'t>, prefix: &str) {
        for (key, value) in table {
            let path = format!("{prefix}{}", key.get_ref());
            if self.free.contains(path.as_str()) {
                continue;
            }
            let section = format!("{path}.");
            let is_section = self.known.iter().any(|k| k.starts_with(&section));
            let (message, fix) = match value.get_ref().as_table() {
                _ if self.known.contains(path.as_str()) => continue,
                Some(inner) if is_section => {
                    self.unknown(layer, inner, &section);
                    continue;
                }
                None if is_section => (
                    "it is a section, not a setting",
                    format!("write [{path}] and under it {}", self.settings_of(&section)),
                ),
                _ => ("it is no setting", format!("the settings here are {}", self.settings_of(prefix))),
            };
            let problem = Problem::new(layer.place(key.span().start), message);
            self.problems.push(problem.field(path).fix(fix));
        }
    }

    fn settings_of(&self, prefix: &str) -> String {
        let here: BTreeSet<&str> =
            self.known.iter().filter_map(|k| k.strip_prefix(prefix)?.split('.').next()).collect();
        here.into_iter().collect::<Vec<_>>().join(", ")
    }
}

impl Layer<'_> {
    /// A path as written in this file.
    fn beside(&self, path: &str) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path)
    }
}

fn text<'v>(value: &'v DeValue<'_>, what: &str) -> Result<&'v str, Wrong> {
    value.as_str().map_or_else(|| wrong(format_args!("it is a {}", value.type_str()), format_args!("write {what}")), Ok)
}

/// One limit as a patch. Limits are numbers and lengths of time.
fn patch(name: &str, value: &DeValue<'_>) -> LimitsPatch {
    let value = match value {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| toml::Value::String(number.to_string()), toml::Value::Integer),
        DeValue::String(text) => toml::Value::String(text.to_string()),
        other => toml::Value::String(other.type_str().to_owned()),
    };
    LimitsPatch::from_iter([(name.to_owned(), value)])
}
