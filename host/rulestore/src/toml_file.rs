//! Reads a TOML file into a type and reports everything that is wrong with it, not only the first thing.
//!
//! serde stops at the first error. So the error's entry is found by its span, cut out of the document (or, where it is
//! required, replaced by a stand-in), and the rest is read again, until nothing is left to complain about. What is
//! known of keys and types thus comes from the types alone.

use std::borrow::Cow;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use weir_model::Problem;

use crate::near::{either, nearest};

/// More than this many errors in one file are not reported.
const ERRORS: usize = 50;

/// What was read of a file.
#[derive(Debug)]
pub(crate) struct Read<T> {
    /// The value; with stand-ins at the `holes`, so that the rest can be checked. None when it is no TOML at all.
    pub value: Option<T>,
    /// All problems.
    pub problems: Vec<Problem>,
    /// Paths of what was cut out or stood in for.
    holes: Vec<String>,
    stood: Vec<Vec<String>>,
}

impl<T> Read<T> {
    /// Whether a problem found in the value is about a place that the value does not have from the file.
    pub(crate) fn is_about_a_hole(&self, problem: &Problem) -> bool {
        self.holes.iter().any(|hole| within(&problem.field, hole) || within(hole, &problem.field))
    }
}

/// Fields that a type requires: the name, a stand-in, and what to write.
const REQUIRED: &[(&str, &str, &str)] = &[
    ("trigger", "'once'", "trigger = { interval = \"1m\" }"),
    ("file", "'x'", "file = \"queries/NAME.sql\""),
    ("table", "'x'", "table = \"NAME\""),
    ("event_time", "'x'", "event_time = \"COLUMN\""),
    ("schema", "{}", "[schema] with name = \"type\" for each column"),
    ("source", "{type='files',path='x'}", "[source] with its type"),
    ("type", "'text'", "type = \"TYPE\""),
    ("sql", "'x'", "sql = \"SELECT ...\""),
    ("path", "'x'", "path = \"FOLDER\""),
    ("query", "'x'", "query = \"NAME\""),
    ("rule", "'x'", "rule = \"NAME\""),
    ("answer", "{}", "answer = { FIELD = \"KIND\" }"),
    ("as", "'x'", "as = \"FIELD\""),
    ("unnest", "'x'", "unnest = \"FIELD\""),
    ("per", "[]", "per = [\"COLUMN\"]"),
    ("name", "'x'", "name = \"NAME\""),
    ("columns", "{}", "columns = { NAME = \"COLUMN\" }"),
    ("key", "[]", "key = [\"COLUMN\"]"),
    ("severity", "'x'", "severity = \"COLUMN\", or { fixed = \"major\" }"),
    ("message", "''", "message = \"{COLUMN}: what is wrong\""),
];

/// Reads `bytes`, the content of `file`.
pub(crate) fn read<T: DeserializeOwned>(file: &str, bytes: &[u8]) -> Read<T> {
    let mut out = Read { value: None, problems: Vec::new(), holes: Vec::new(), stood: Vec::new() };
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => {
            let line = line_of(bytes, e.valid_up_to());
            out.problems.push(
                Problem::new(file, format_args!("line {line}: it is no UTF-8 text")).fix("save it as UTF-8").partial(),
            );
            return out;
        }
    };
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // One slip can upset the lines after it, so one error a line is enough.
        let mut last = 0;
        for e in errors.iter().take(ERRORS) {
            let line = e.span().map_or(1, |s| line_of(bytes, s.start));
            if line != last {
                let what = format!("line {line}: it is no TOML: {}", e.message());
                out.problems.push(Problem::new(file, what).partial());
            }
            last = line;
        }
        return out;
    }
    let mut document = document;
    // Each step takes something out or stands in for something, so this ends; the count is the belt to the braces.
    for _ in 0..4 * ERRORS {
        if out.problems.len() >= ERRORS {
            break;
        }
        match try_read::<T>(&document) {
            Ok(value) => {
                out.value = Some(value);
                break;
            }
            Err(error) => {
                if !mend::<T>(file, text, &mut document, &error, &mut out) {
                    break;
                }
            }
        }
    }
    out
}

fn try_read<T: DeserializeOwned>(document: &Spanned<DeTable<'_>>) -> Result<T, toml::de::Error> {
    T::deserialize(toml::de::Deserializer::from(document.clone()))
}

/// Reports an error, unless it only follows from what was cut out, and takes its cause out of the document. False when
/// that cannot be done.
fn mend<T: DeserializeOwned>(
    file: &str,
    text: &str,
    document: &mut Spanned<DeTable<'_>>,
    error: &toml::de::Error,
    out: &mut Read<T>,
) -> bool {
    let message = error.message();
    let mut path = error
        .span()
        .filter(|span| *span != document.span())
        .map(|span| place(document.get_ref(), &span))
        .unwrap_or_default();
    let line_at = error.span();
    if let Some(field) = quoted_after(message, "missing field ") {
        let shown = dotted(&path, Some(field));
        if !out.holes.iter().any(|hole| within(hole, &shown)) {
            let mut problem = Problem::new(file, format_args!("{field} is missing")).field(&shown);
            if let Some((_, _, write)) = REQUIRED.iter().find(|(name, ..)| *name == field) {
                problem = problem.fix(format_args!("write {write}"));
            }
            out.problems.push(problem.partial());
            out.holes.push(shown);
        }
        let done = stand_in(document.get_mut(), &path, field);
        path.push(field.to_owned());
        out.stood.push(path);
        return done;
    }
    if let Some(field) = quoted_after(message, "unknown field ") {
        if path.last().is_none_or(|last| last != field) {
            path.push(field.to_owned());
        }
    } else if let Some(column) = message.strip_prefix("column ").and_then(|m| m.split(':').next()) {
        path.push(column.to_owned());
    } else if let Some(key) = culprit::<T>(document, &path, message) {
        path.push(key);
    }
    // A stand-in that does not fit (a table's type decides what else it has) takes its table along.
    if error.span() == Some(NOWHERE) || out.stood.contains(&path) {
        path.pop();
    }
    let shown = dotted(&path, None);
    if !out.holes.iter().any(|hole| within(hole, &shown)) {
        let span = key_span(document.get_ref(), &path).or(line_at);
        let line = span.map_or(1, |s| line_of(text.as_bytes(), s.start));
        out.problems.push(say(file, &shown, line, message));
        out.holes.push(shown);
    }
    remove(document.get_mut(), &path)
}

/// The problem in words.
fn say(file: &str, field: &str, line: usize, message: &str) -> Problem {
    let problem = |text: String| Problem::new(file, format!("line {line}: {text}")).field(field);
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let base = file.rsplit('/').next().unwrap_or(file);
    match names.as_slice() {
        [key, known @ ..] if message.starts_with("unknown field ") => {
            let problem = problem(format!("unknown key {key} in {base}"));
            match nearest(key, known.iter().copied()) {
                Some(near) => problem.fix(format_args!("did you mean {near}?")),
                None => problem.fix(format_args!("known here: {}", known.join(", "))),
            }
        }
        [value, known @ ..] if message.starts_with("unknown variant ") => {
            problem(format!("{value} is not known here")).fix(format_args!("use {}", either(known.iter().copied())))
        }
        _ => match message.strip_prefix("invalid type: ").and_then(|m| m.split_once(", expected ")) {
            Some((found, expected)) => problem(format!("it is {found}, expected is {expected}")),
            None => {
                let text =
                    message.strip_prefix("column ").and_then(|m| m.split_once(": ")).map_or(message, |(_, rest)| rest);
                problem(text.trim().replace('\n', " "))
            }
        },
    }
}

/// In a table that serde had to buffer (one with a tag), errors name no key: the culprit is the one without which the
/// error is another one.
fn culprit<T: DeserializeOwned>(document: &Spanned<DeTable<'_>>, path: &[String], message: &str) -> Option<String> {
    let table = table_at(document.get_ref(), path)?;
    let mut keys: Vec<String> = table.keys().map(|k| k.get_ref().to_string()).collect();
    // Without its tag a table is no table of its kind, so the tag is the culprit only when nothing else is.
    keys.sort_by_key(|key| key == "type");
    keys.into_iter().find(|key| {
        let mut without = document.clone();
        let path: Vec<String> = path.iter().cloned().chain([key.clone()]).collect();
        remove(without.get_mut(), &path) && try_read::<T>(&without).err().is_none_or(|e| e.message() != message)
    })
}

/// The path of the smallest entry that holds the span.
fn place(table: &DeTable<'_>, span: &Range<usize>) -> Vec<String> {
    fn walk(table: &DeTable<'_>, span: &Range<usize>, at: &mut Vec<String>, best: &mut (usize, Vec<String>)) {
        for (key, value) in table {
            at.push(key.get_ref().to_string());
            for (part, slack) in [(key.span(), 0), (value.span(), 1)] {
                if part.start <= span.start && span.end <= part.end {
                    // The table of a header spans the header, so its last key lies in it; the key itself wins.
                    let size = (part.end - part.start) * 2 + slack;
                    if size < best.0 || (size == best.0 && at.len() > best.1.len()) {
                        *best = (size, at.clone());
                    }
                }
            }
            if let DeValue::Table(inner) = value.get_ref() {
                walk(inner, span, at, best);
            }
            at.pop();
        }
    }
    let mut best = (usize::MAX, Vec::new());
    walk(table, span, &mut Vec::new(), &mut best);
    best.1
}

fn table_at<'a, 'i>(root: &'a DeTable<'i>, path: &[String]) -> Option<&'a DeTable<'i>> {
    path.iter().try_fold(root, |table, key| match entry(table, key)?.1.get_ref() {
        DeValue::Table(inner) => Some(inner),
        _ => None,
    })
}

fn entry<'a, 'i>(table: &'a DeTable<'i>, key: &str) -> Option<(&'a Spanned<Cow<'i, str>>, &'a Spanned<DeValue<'i>>)> {
    table.iter().find(|(k, _)| k.get_ref() == key)
}

fn key_span(root: &DeTable<'_>, path: &[String]) -> Option<Range<usize>> {
    let (last, parents) = path.split_last()?;
    let (key, _) = entry(table_at(root, parents)?, last)?;
    Some(key.span())
}

fn table_mut<'a, 'i>(root: &'a mut DeTable<'i>, path: &[String]) -> Option<&'a mut DeTable<'i>> {
    path.iter().try_fold(root, |table, key| {
        let (_, value) = table.iter_mut().find(|(k, _)| k.get_ref() == key)?;
        match value.get_mut() {
            DeValue::Table(inner) => Some(inner),
            _ => None,
        }
    })
}

fn remove(root: &mut DeTable<'_>, path: &[String]) -> bool {
    let Some((last, parents)) = path.split_last() else {
        return false;
    };
    let Some(table) = table_mut(root, parents) else {
        return false;
    };
    table.remove(last.as_str()).is_some()
}

fn stand_in(root: &mut DeTable<'_>, path: &[String], field: &str) -> bool {
    let value = REQUIRED.iter().find(|(name, ..)| *name == field).and_then(|(_, value, _)| DeValue::parse(value).ok());
    match (table_mut(root, path), value) {
        (Some(table), Some(value)) => {
            let key = Spanned::new(NOWHERE, Cow::Owned(field.to_owned()));
            table.insert(key, nowhere(value.into_inner())).is_none()
        }
        _ => false,
    }
}

/// Where stand-ins are: at no place of the file, so that no error of the file is taken for theirs.
const NOWHERE: Range<usize> = usize::MAX..usize::MAX;

fn nowhere(value: DeValue<'_>) -> Spanned<DeValue<'_>> {
    let value = match value {
        DeValue::Table(table) => DeValue::Table(
            table.into_iter().map(|(k, v)| (Spanned::new(NOWHERE, k.into_inner()), nowhere(v.into_inner()))).collect(),
        ),
        other => other,
    };
    Spanned::new(NOWHERE, value)
}

/// Whether a path is another one or lies in it.
fn within(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn quoted_after<'a>(message: &'a str, before: &str) -> Option<&'a str> {
    message.strip_prefix(before)?.strip_prefix('`')?.split('`').next()
}

fn dotted(path: &[String], last: Option<&str>) -> String {
    let mut parts: Vec<&str> = path.iter().map(String::as_str).collect();
    parts.extend(last);
    parts.join(".")
}

fn line_of(bytes: &[u8], at: usize) -> usize {
    1 + bytes.iter().take(at).filter(|b| **b == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Manifest, StreamDef};

    fn manifest(text: &str) -> Vec<String> {
        texts(&read::<Manifest>("scenario.toml", text.as_bytes()).problems)
    }
    fn stream(text: &str) -> Vec<String> {
        texts(&read::<StreamDef>("streams/s.toml", text.as_bytes()).problems)
    }
    fn texts(problems: &[Problem]) -> Vec<String> {
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_good_file_has_no_problems() {
        assert_eq!(manifest("plugin = 'p.wasm'\ntrigger = { interval = '1m' }\n"), Vec::<String>::new());
        assert_eq!(
            stream("event_time='t'\n[schema]\nt={type='timestamp',required=true}\n[source]\ntype='files'\npath='x'"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn every_error_is_reported_once_with_its_line() {
        let all = manifest(
            "plugn = 'p.wasm'\ntrigger = { interval = 'soon' }\non_failure = 'explode'\nattempts = 'three'\n\
             [inputs.a]\nmode = 'windw'\n[inputs.'b c']\n[queries.q]\nfil = 'x'\n",
        );
        assert_eq!(
            all,
            [
                "scenario.toml: plugn: line 1: unknown key plugn in scenario.toml; did you mean plugin?",
                "scenario.toml: trigger.interval: line 2: 'soon' is not a length of time: write a number with a unit, such as \"90s\", \"15m\" or \"1h 30m\"",
                "scenario.toml: on_failure: line 3: explode is not known here; use park, skip or stop",
                "scenario.toml: attempts: line 4: it is string \"three\", expected is u32",
                "scenario.toml: inputs.a.mode: line 6: windw is not known here; use window or new",
                "scenario.toml: inputs.b c: line 7: 'b c' is not a name: only letters, digits, '_' and '-' are allowed",
                "scenario.toml: queries.q.fil: line 9: unknown key fil in scenario.toml; did you mean file?",
                "scenario.toml: queries.q.file: file is missing; write file = \"queries/NAME.sql\"",
            ]
        );
    }

    #[test]
    fn errors_in_a_tagged_table_name_their_key() {
        let all = stream(
            "event_time='t'\n[schema]\nt={type='timestmp',required=true}\nv='float46'\n\
             [source]\ntype='generate'\nsql=5\nintervall='1s'\nrate='x'\n",
        );
        assert_eq!(all.len(), 5, "{all:#?}");
        let of = |field: &str| all.iter().find(|p| p.contains(&format!(": {field}: "))).cloned();
        eprintln!("{all:#?}");
        for field in ["schema.t", "schema.v", "source.sql", "source.intervall", "source.rate"] {
            assert!(of(field).is_some(), "{field} in {all:#?}");
        }
    }

    #[test]
    fn what_is_cut_short_may_be_partial() {
        let read = read::<Manifest>("scenario.toml", b"plugin = 'p.wa");
        assert!(read.value.is_none() && read.problems.iter().all(|p| p.may_be_partial));
        let read = super::read::<Manifest>("scenario.toml", b"");
        assert_eq!(read.problems.len(), 1);
        assert!(read.problems.iter().all(|p| p.may_be_partial));
        let read = super::read::<Manifest>("scenario.toml", b"plugin = '\xff'");
        assert_eq!(read.problems.len(), 1);
    }
}
