//! What can be said about definitions without an engine. Pure: plain values in, problems out.
//!
//! Files in problems are those given by the caller; the manifest's is always `scenario.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};
use std::time::Duration;

use weir_model::batch::host_table;
use weir_model::columns::{ColumnType, is_table_column};
use weir_model::limits::LimitsPatch;
use weir_model::ruleset::{FileEntry, Manifest, QueryDef, TenantConfig, Trigger};
use weir_model::stream::{Columns, FileFormat, SourceDef, StreamDef};
use weir_model::{Limits, Name, Problem, batch};

use crate::check_notify;
use crate::near::nearest;

mod tables;

/// The shortest trigger interval: a batch costs milliseconds, so less would only queue.
const SHORTEST_TRIGGER: Duration = Duration::from_millis(100);
/// The shortest time between two ticks of a `generate` source: each tick is a query.
const SHORTEST_TICK: Duration = Duration::from_millis(1);
/// Tables that the host itself writes.
const HOST_TABLES: [&str; 3] = [batch::ALARM_EVENTS, batch::ALARMS, batch::DEAD_LETTERS];
const MANIFEST: &str = "scenario.toml";

/// Whether a file's path stays inside the folder it is relative to.
pub(crate) fn stays_inside(path: &str) -> bool {
    !path.is_empty()
        && !path.contains(['\\', '\0'])
        && !path.split('/').any(|part| part.is_empty() || part == ".")
        && Path::new(path).components().all(|c| matches!(c, Component::Normal(_)))
}

/// Limits with those of `patch`, and every limit in it that is wrong.
pub(crate) fn limits(file: &str, patch: &LimitsPatch, base: &Limits) -> (Limits, Vec<Problem>) {
    let (mut all, mut problems) = (base.clone(), Vec::new());
    let known: Vec<String> = toml::Table::try_from(base).map(|t| t.keys().cloned().collect()).unwrap_or_default();
    for (name, value) in patch {
        let one = LimitsPatch::from_iter([(name.clone(), value.clone())]);
        match all.with(&one) {
            Ok(with) => all = with,
            Err(_) if !known.contains(name) => {
                let problem =
                    Problem::new(file, format_args!("{name} is no limit")).field(format_args!("limits.{name}"));
                problems.push(match nearest(name, known.iter().map(String::as_str)) {
                    Some(near) => problem.fix(format_args!("did you mean {near}?")),
                    None => problem.fix(format_args!("the limits are {}", known.join(", "))),
                });
            }
            Err(message) => {
                let message = message.trim().replace('\n', " ");
                problems.push(Problem::new(file, message).field(format_args!("limits.{name}")));
            }
        }
    }
    (all, problems)
}

/// Checks `tenant.toml`.
pub(crate) fn tenant(file: &str, config: &TenantConfig, host: &Limits) -> Vec<Problem> {
    let mut out = limits(file, &config.limits, host).1;
    out.extend(check_notify::grants(file, &config.grants));
    out
}

/// Checks a stream's definition.
pub(crate) fn stream(file: &str, def: &StreamDef) -> Vec<Problem> {
    let mut out = columns(file, "schema", &def.schema);
    let bad = def.schema.0.iter().filter(|c| !c.name.is_empty() && !is_table_column(&c.name));
    out.extend(bad.map(|c| {
        Problem::new(file, "tables cannot have a column of this name")
            .field(format_args!("schema.{}", c.name))
            .fix("choose a name without blanks and any of ,;{}()=")
    }));
    let problem = |field: &str, message: String| Problem::new(file, message).field(field);
    match def.schema.0.iter().find(|c| c.name == def.event_time) {
        Some(c) if c.ty == ColumnType::Timestamp && c.required => {}
        Some(c) => out.push(
            problem(
                "event_time",
                format!("column {} is {}{}", c.name, if c.required { "a required " } else { "an optional " }, c.ty),
            )
            .fix(format_args!("write {} = {{ type = \"timestamp\", required = true }} in [schema]", c.name)),
        ),
        None => {
            let problem = problem("event_time", format!("there is no column {} in [schema]", def.event_time));
            out.push(match nearest(&def.event_time, def.schema.0.iter().map(|c| c.name.as_str())) {
                Some(near) => problem.fix(format_args!("did you mean {near}?")),
                None => problem.fix("name a required timestamp column of [schema]"),
            });
        }
    }
    if let Some(ahead) = def.ahead.filter(|ahead| ahead.get() > def.watermark.get()) {
        let text = format!("{ahead} is more than the watermark of {}", def.watermark);
        let fix = "write at most the watermark: rows that are so far ahead would make those on time late";
        out.push(problem("ahead", text).fix(fix));
    }
    if def.retention.get().is_zero() {
        out.push(
            problem("retention", "a hot window of no length holds no row".into()).fix("write a time such as \"15m\""),
        );
    }
    if def.keep_days == 0 {
        out.push(problem("keep_days", "rows would be removed at once".into()).fix("keep at least 1 day"));
    }
    // Without a word of its own, a stream's table has the stream's name.
    let stem = Path::new(file).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let table = def.table.as_ref().map_or(stem, Name::as_str);
    if let Some(why) = host_table(table) {
        let fix = "write table = \"NAME\" with another name";
        out.push(problem("table", format!("it cannot be {table}: {why}")).fix(fix));
    }
    out.extend(source(file, &def.source));
    out
}

fn source(file: &str, def: &SourceDef) -> Vec<Problem> {
    let problem = |field: &str, message: &str| Problem::new(file, message).field(field);
    let mut out = Vec::new();
    match def {
        SourceDef::Generate { sql, interval, rate, .. } => {
            if sql.trim().is_empty() {
                out.push(problem("source.sql", "it is empty").fix("write a SELECT whose columns are the stream's"));
            }
            match (interval, rate) {
                (Some(_), Some(_)) => {
                    out.push(problem("source", "both interval and rate are given").fix("keep one of them"));
                }
                (None, None) => out.push(
                    problem("source", "neither interval nor rate is given")
                        .fix("write interval = \"1s\", or rate = 1.0"),
                ),
                (Some(span), None) if span.get() < SHORTEST_TICK => {
                    out.push(problem("source.interval", "it is shorter than 1ms").fix("make more rows a tick instead"));
                }
                (None, Some(rate)) if !(rate.is_finite() && *rate > 0.0) => {
                    out.push(
                        problem("source.rate", "it is no number above 0").fix("write ticks a second, such as 1.0"),
                    );
                }
                (None, Some(rate)) if *rate > 1.0 / SHORTEST_TICK.as_secs_f64() => {
                    out.push(problem("source.rate", "it is above 1000 a second").fix("make more rows a tick instead"));
                }
                _ => {}
            }
        }
        SourceDef::Files { path, include, format, delimiter, .. } => {
            let inside = Path::new(path).components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
            if path.is_empty() || path.contains('\0') || !inside {
                out.push(problem("source.path", "it is no folder that can be read from").fix(
                    "name a folder below the tenant's own in the store; an operator mounts there what is elsewhere",
                ));
            }
            if include.is_empty() || include.contains('/') {
                out.push(
                    problem("source.include", "it is no pattern for file names").fix("write one such as \"*.jsonl\""),
                );
            }
            if delimiter.is_some_and(|c| !c.is_ascii() || matches!(c, '"' | '\n' | '\r' | '\0')) {
                let problem = problem("source.delimiter", "it cannot stand between two cells");
                out.push(problem.fix("write one ASCII character, such as \";\" or \"\\t\""));
            } else if delimiter.is_some() && *format != FileFormat::Csv {
                let problem = problem("source.delimiter", "only csv has one");
                out.push(problem.fix("remove it, or write format = \"csv\""));
            }
        }
    }
    out
}

fn columns(file: &str, field: &str, columns: &Columns) -> Vec<Problem> {
    let mut out = Vec::new();
    if columns.0.is_empty() {
        out.push(
            Problem::new(file, "there is no column")
                .field(field)
                .fix("write name = \"type\" for each column")
                .partial(),
        );
    }
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for column in &columns.0 {
        let name = column.name.as_str();
        let problem = |text: String| Problem::new(file, text).field(format_args!("{field}.{name}"));
        if name.is_empty() || name.len() > 128 || name.chars().any(char::is_control) {
            out.push(problem("it is no column name".into()).fix("use 1 to 128 printable characters"));
        } else if name.starts_with('_') {
            out.push(problem("names that begin with _ are the host's own".into()).fix("choose another name"));
        }
        // Delta tables and unquoted SQL do not tell case apart.
        if let Some(other) = seen.insert(name.to_lowercase(), name) {
            out.push(problem(format!("it differs from {other} only in case")).fix("choose another name"));
        }
    }
    out
}

/// What the manifest is checked against.
pub(crate) struct Around<'a> {
    /// Files of the ruleset, by path.
    pub files: &'a BTreeMap<String, FileEntry>,
    /// Paths that are there but were refused; they have their own problem.
    pub refused: &'a BTreeSet<String>,
    /// All streams of the tenant.
    pub streams: &'a BTreeSet<Name>,
    /// Definitions of the streams that could be read.
    pub defs: &'a BTreeMap<Name, StreamDef>,
}

/// Checks `scenario.toml`.
pub(crate) fn manifest(m: &Manifest, around: &Around<'_>) -> Vec<Problem> {
    let mut out = Vec::new();
    let problem = |field: String, message: String| Problem::new(MANIFEST, message).field(field);
    match (&m.plugin, &m.detect) {
        (Some(plugin), None) => out.extend(file(around, "plugin", plugin)),
        (None, Some(_)) => {}
        (Some(_), Some(_)) => {
            out.push(problem("detect".into(), "there is a plugin too".into()).fix("keep either plugin or [detect]"))
        }
        (None, None) => out.push(
            problem("plugin".into(), "there is neither a plugin nor [detect]".into())
                .fix("write plugin = \"plugins/NAME.wasm\", or declare the detection in [detect]")
                .partial(),
        ),
    }
    if let Trigger::Interval(span) = m.trigger
        && span.get() < SHORTEST_TRIGGER
    {
        out.push(problem("trigger.interval".into(), format!("{span} is too short")).fix("write at least \"100ms\""));
    }
    if m.attempts == 0 {
        out.push(problem("attempts".into(), "no attempt would be made".into()).fix("write at least 1"));
    }
    for name in m.inputs.keys() {
        if !around.streams.contains(name) {
            let problem = problem(format!("inputs.{name}"), format!("there is no stream {name}")).partial();
            out.push(match nearest(name.as_str(), around.streams.iter().map(Name::as_str)) {
                Some(near) => problem.fix(format_args!("did you mean {near}?")),
                None => problem.fix(format_args!("add streams/{name}.toml to the tenant's folder")),
            });
        }
    }
    for (name, query) in &m.queries {
        out.extend(file(around, &format!("queries.{name}.file"), &query.file));
        out.extend(self::query(m, name, query));
    }
    for (name, path) in &m.rules {
        out.extend(file(around, &format!("rules.{name}"), path));
    }
    for (name, path) in &m.assets {
        out.extend(file(around, &format!("assets.{name}"), path));
    }
    for (name, def) in &m.tables {
        out.extend(tables::table(m, around, name, def));
    }
    for (name, def) in &m.outputs {
        let bronze = around.defs.iter().find(|(n, d)| d.table.as_ref().unwrap_or(n) == &def.table);
        if HOST_TABLES.contains(&name.as_str()) {
            out.push(problem(format!("outputs.{name}"), format!("{name} is the host's own output")).fix("remove it"));
        } else if let Some(why) = host_table(def.table.as_str()) {
            let field = format!("outputs.{name}.table");
            out.push(problem(field, format!("it cannot be {}: {why}", def.table)).fix("choose another name"));
        } else if let Some((stream, _)) = bronze {
            let field = format!("outputs.{name}.table");
            let text = format!("{} holds the rows of stream {stream}", def.table);
            out.push(problem(field, text).fix("choose another table"));
        }
        if def.keep_days == Some(0) {
            let field = format!("outputs.{name}.keep_days");
            out.push(problem(field, "rows would be removed at once".into()).fix("keep at least 1 day"));
        }
    }
    for (name, def) in &m.alarms {
        if def.clear_after == Some(0) {
            let field = format!("alarms.{name}.clear_after");
            out.push(
                problem(field, "an alarm would be over before a batch".into()).fix("write at least 1, or leave it out"),
            );
        }
    }
    out
}

fn query(m: &Manifest, name: &Name, def: &QueryDef) -> Vec<Problem> {
    let mut out = Vec::new();
    let problem =
        |field: String, message: String| Problem::new(MANIFEST, message).field(format_args!("queries.{name}.{field}"));
    for (table, cols) in &def.rows {
        out.extend(columns(MANIFEST, &format!("queries.{name}.rows.{table}"), cols));
        if def.params.contains_key(table) {
            out.push(problem(format!("rows.{table}"), format!("{table} is a parameter too")).fix("rename one of them"));
        }
        if m.inputs.contains_key(table) {
            out.push(
                problem(format!("rows.{table}"), format!("{table} is an input too")).fix("rename the table parameter"),
            );
        }
        if m.tables.contains_key(table) {
            let text = format!("{table} is a reference table too");
            out.push(problem(format!("rows.{table}"), text).fix("rename the table parameter"));
        }
    }
    for (stream, ends) in &def.bounds {
        if !m.inputs.contains_key(stream) {
            let problem = problem(format!("bounds.{stream}"), format!("{stream} is no input of the scenario"));
            out.push(match nearest(stream.as_str(), m.inputs.keys().map(Name::as_str)) {
                Some(near) => problem.fix(format_args!("did you mean {near}?")),
                None => problem.fix(format_args!("add [inputs.{stream}]")),
            });
        }
        if ends[0] == ends[1] {
            out.push(
                problem(format!("bounds.{stream}"), format!("both ends are {}", ends[0]))
                    .fix("name two parameters, [from, to]"),
            );
        }
        for end in ends {
            match def.params.get(end) {
                Some(ColumnType::Timestamp) => {}
                Some(ty) => out.push(
                    problem(format!("bounds.{stream}"), format!("parameter {end} is {ty}"))
                        .fix(format_args!("write {end} = \"timestamp\" in params")),
                ),
                None => out.push(
                    problem(format!("bounds.{stream}"), format!("there is no parameter {end}"))
                        .fix(format_args!("add {end} = \"timestamp\" to params")),
                ),
            }
        }
    }
    out
}

fn file(around: &Around<'_>, field: &str, path: &str) -> Option<Problem> {
    let problem = |message: String| Problem::new(MANIFEST, message).field(field);
    if !stays_inside(path) {
        return Some(
            problem(format!("'{path}' does not stay in the scenario's folder"))
                .fix("write a path below the folder, without '..' and a leading '/'"),
        );
    }
    if around.files.contains_key(path) || around.refused.contains(path) {
        return None;
    }
    let problem = problem(format!("there is no file {path}")).partial();
    Some(match nearest(path, around.files.keys().map(String::as_str)) {
        Some(near) => problem.fix(format_args!("did you mean {near}?")),
        None => problem.fix("add the file, or correct the path; paths are relative to the scenario's folder"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_are_refused() {
        for bad in ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a/", "a\\b"] {
            assert!(!stays_inside(bad), "{bad}");
        }
        assert!(stays_inside("plugins/a.wasm"));
    }

    #[test]
    fn every_wrong_limit_is_named() {
        let patch: LimitsPatch = toml::from_str("alarmz = 5\nalarms = 'x'\nhandles = 7").unwrap();
        let (all, problems) = limits("tenant.toml", &patch, &Limits::defaults());
        assert_eq!(all.handles, 7);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert_eq!(problems[0].to_string(), "tenant.toml: limits.alarmz: alarmz is no limit; did you mean alarms?");
    }
}
