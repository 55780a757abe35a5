//! Admission of a `[detect]` section: finds what it names in the manifest, the query's columns and the rule's answer, and
//! says everything that does not fit.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use weir_model::columns::{ColumnType, kind_of, output_type};
use weir_model::detect::{Bound, DetectAlarm, DetectDef, DetectOutput, Once, SeverityFrom, TimeExpr};
use weir_model::port::{AlarmType, Description, OutputDecl, Queries};
use weir_model::ruleset::{Manifest, QueryDef};
use weir_model::{Digest, FieldDef, Kind, Name, Problem, Ruleset, Scalar, Severity};

use super::cells;
use super::message::Message;
use super::resolved::{
    Alarm, AskRule, Column, From, Named, OnceColumns, Output, OutputFrom, Param, Resolved, SeverityOf,
};
use super::{Declared, STATE};

const MANIFEST: &str = "scenario.toml";

/// Makes the section of a manifest ready, or says all that is wrong with it.
pub fn load(ruleset: &Ruleset, def: &DetectDef, queries: &dyn Queries) -> Result<Declared, Vec<Problem>> {
    let manifest = &ruleset.manifest;
    let mut look = Look { def, problems: Vec::new(), schema: queries.schema(def.query.as_str()), columns: Vec::new() };
    let query = look.query(manifest);
    let rule = look.rule("rule", &def.rule, manifest);
    let (asks, params) = look.params(manifest);
    let input = look.input();
    let want: Vec<(String, Kind)> = def.answer.iter().map(|(path, kind)| (path.clone(), *kind)).collect();
    look.answer();
    let when = def.when.as_ref().and_then(|when| look.of_kind("when", when, &[Kind::Boolean]));
    let needed = look.needed();
    let once = def.once.as_ref().map(|once| look.once(once));
    let output = def.output.as_ref().map(|output| look.output(output));
    let alarm = def.alarm.as_ref().and_then(|alarm| look.alarm(alarm));
    if def.output.is_none() && def.alarm.is_none() {
        look.say("", "nothing would be reported", "add [detect.output] or [detect.alarm], or both");
    }
    if !manifest.config.is_empty() {
        let problem = Problem::new(MANIFEST, "only a plugin reads [config]").field("config");
        look.problems.push(problem.fix("remove it: [detect] says all that there is to say"));
    }
    if alarm.as_ref().is_some_and(|a| a.fields.len() as u64 > ruleset.limits.alarm_fields) {
        let text = format!("they are more than {}, the limit alarm_fields", ruleset.limits.alarm_fields);
        look.say("alarm.fields", &text, "keep fewer columns");
    }
    let problems = std::mem::take(&mut look.problems);
    let columns = look.columns;
    let (Some(query), Some(rule), true) = (query, rule, problems.is_empty()) else {
        return Err(problems);
    };
    let resolved = Resolved {
        query,
        asks,
        params,
        rule,
        input,
        all: def.all.clone(),
        want,
        columns,
        when,
        needed,
        once,
        output,
        alarm,
    };
    Ok(Declared {
        description: describe(&resolved, def),
        digest: Digest::of(format!("{def:?}").as_bytes()),
        resolved,
        limits: ruleset.limits.clone(),
        zone: ruleset.tenant.display_timezone,
    })
}

fn describe(resolved: &Resolved, def: &DetectDef) -> Description {
    let outputs = resolved.output.iter().map(|output| OutputDecl {
        name: output.name.clone(),
        fields: (output.schema.fields().iter())
            .map(|f| FieldDef { name: f.name().clone(), kind: kind_of(f.data_type()), nullable: f.is_nullable() })
            .collect(),
    });
    let alarms = def.alarm.iter().map(|alarm| AlarmType { name: alarm.name.clone(), key: alarm.key.clone() });
    let mut rules = vec![resolved.rule.name.clone()];
    rules.extend(resolved.asks.iter().map(|ask| ask.rule.clone()));
    Description {
        name: "[detect]".to_owned(),
        version: String::new(),
        outputs: outputs.collect(),
        alarms: alarms.collect(),
        inputs: Vec::new(),
        queries: vec![resolved.query.name.clone()],
        rules,
        assets: Vec::new(),
        state: Some(STATE),
    }
}

/// Looks names up, and collects what is wrong.
struct Look<'a> {
    def: &'a DetectDef,
    problems: Vec<Problem>,
    /// Columns of the query; none when it could not be planned, which has a problem of its own.
    schema: Option<SchemaRef>,
    columns: Vec<Column>,
}

impl Look<'_> {
    fn say(&mut self, field: &str, message: &str, fix: &str) {
        let field = if field.is_empty() { "detect".to_owned() } else { format!("detect.{field}") };
        self.problems.push(Problem::new(MANIFEST, message).field(field).fix(fix));
    }

    fn query(&mut self, manifest: &Manifest) -> Option<Named> {
        let name = &self.def.query;
        let Some(def) = manifest.queries.get(name) else {
            let fix = either("queries", manifest.queries.keys());
            self.say("query", &format!("there is no query {name}"), &fix);
            return None;
        };
        for table in def.rows.keys() {
            let text = format!("query {name} has a table parameter, {table}, which [detect] cannot bind");
            self.say("query", &text, "join in one query, or write a plugin");
        }
        self.bindings(def);
        Some(Named { name: name.clone(), file: def.file.clone() })
    }

    /// Each parameter once.
    fn bindings(&mut self, query: &QueryDef) {
        for name in query.params.keys().filter(|name| !self.def.bind.contains_key(*name)).collect::<Vec<_>>() {
            let text = format!("parameter {name} of query {} is not bound", self.def.query);
            self.say("bind", &text, &format!("add {name} = \"minute(T)\", {{ rule = ... }} or {{ value = ... }}"));
        }
        for name in self.def.bind.keys().filter(|name| !query.params.contains_key(*name)).collect::<Vec<_>>() {
            let text = format!("query {} has no parameter {name}", self.def.query);
            self.say(&format!("bind.{name}"), &text, &either("params", query.params.keys()));
        }
    }

    fn rule(&mut self, field: &str, name: &Name, manifest: &Manifest) -> Option<Named> {
        match manifest.rules.get(name) {
            Some(file) => Some(Named { name: name.clone(), file: file.clone() }),
            None => {
                let fix = either("rules", manifest.rules.keys());
                self.say(field, &format!("there is no rule {name}"), &fix);
                None
            }
        }
    }

    fn params(&mut self, manifest: &Manifest) -> (Vec<AskRule>, Vec<(Name, Param)>) {
        let (mut asks, mut params) = (Vec::<AskRule>::new(), Vec::new());
        let declared = manifest.queries.get(&self.def.query).map(|q| q.params.clone()).unwrap_or_default();
        for (name, bound) in &self.def.bind {
            let (Some(ty), field) = (declared.get(name).copied(), format!("bind.{name}")) else { continue };
            let param = match bound {
                Bound::Time(_) if ty != ColumnType::Timestamp => {
                    let text = format!("it is a time, and parameter {name} is {ty}");
                    self.say(&field, &text, "bind a value of that type, or declare the parameter as timestamp");
                    continue;
                }
                Bound::Time(expr) => Param::Time(*expr),
                Bound::Value(value) => match constant(value, ty) {
                    Some(value) => Param::Value(value),
                    None => {
                        self.say(&field, &format!("{value} is no {ty}"), &format!("write a value of type {ty}"));
                        continue;
                    }
                },
                Bound::Rule { rule, field: path } => {
                    let Some(named) = self.rule(&field, rule, manifest) else { continue };
                    let ask = asks.iter().position(|ask| ask.rule == *rule).unwrap_or_else(|| {
                        asks.push(AskRule { rule: named.name, file: named.file, want: Vec::new() });
                        asks.len() - 1
                    });
                    asks[ask].want.push((path.clone(), kind_of(&ty.arrow())));
                    Param::Rule { ask, column: asks[ask].want.len() - 1 }
                }
            };
            params.push((name.clone(), param));
        }
        (asks, params)
    }

    /// Which columns of the query the rule gets.
    fn input(&mut self) -> Vec<usize> {
        let Some(schema) = self.schema.clone() else { return Vec::new() };
        let Some(names) = &self.def.input else { return (0..schema.fields().len()).collect() };
        let mut found = Vec::new();
        for name in names {
            match schema.index_of(name) {
                Ok(index) => found.push(index),
                Err(_) => {
                    let fix = either("columns", schema.fields().iter().map(|f| f.name()));
                    self.say("input", &format!("query {} has no column {name}", self.def.query), &fix);
                }
            }
        }
        found
    }

    fn answer(&mut self) {
        if self.def.answer.is_empty() {
            self.say(
                "answer",
                "nothing of the rule's answer is used",
                "write FIELD = \"KIND\", such as is_alarm = \"boolean\"",
            );
        }
        for name in &self.def.optional {
            if !self.def.answer.contains_key(name) {
                self.say(
                    "optional",
                    &format!("{name} is not in detect.answer"),
                    &either("answer", self.def.answer.keys()),
                );
            }
        }
        let Some(schema) = self.schema.as_ref().filter(|_| self.def.all.is_none()) else { return };
        let both: Vec<String> = self.def.answer.keys().filter(|n| schema.index_of(n).is_ok()).cloned().collect();
        for name in both {
            let text = format!("{name} is a column of query {} too", self.def.query);
            self.say(&format!("answer.{name}"), &text, "give the query's column another name, with AS");
        }
    }

    /// A column by name, noted as used. Says so when there is none.
    fn column(&mut self, field: &str, name: &str) -> Option<usize> {
        if let Some(at) = self.columns.iter().position(|c| c.name == name) {
            return Some(at);
        }
        let answer = self.def.answer.iter().position(|(path, _)| path == name).map(|i| (i, self.def.answer[name]));
        if let Some((index, kind)) = answer {
            self.columns.push(Column { name: name.to_owned(), from: From::Answer(index), kind });
            return Some(self.columns.len() - 1);
        }
        let schema = match (&self.schema, &self.def.all) {
            (schema, None) => schema.clone()?,
            // Rows of the answer are no rows of the query.
            (_, Some(_)) => Arc::new(Schema::empty()),
        };
        let Ok(index) = schema.index_of(name) else {
            let all = self.def.answer.keys().chain(schema.fields().iter().map(|f| f.name()));
            let fix = either("columns", all);
            self.say(field, &format!("there is no column {name}"), &fix);
            return None;
        };
        let ty = schema.field(index).data_type();
        let Some(kind) = cells::kind(ty) else {
            self.say(field, &format!("column {name} is {ty}"), "make a plain value of it in the query, with CAST");
            return None;
        };
        self.columns.push(Column { name: name.to_owned(), from: From::Query(index), kind });
        Some(self.columns.len() - 1)
    }

    fn of_kind(&mut self, field: &str, name: &str, kinds: &[Kind]) -> Option<usize> {
        let column = self.column(field, name)?;
        let kind = self.columns[column].kind;
        if kinds.contains(&kind) {
            return Some(column);
        }
        let wanted: Vec<String> = kinds.iter().map(Kind::to_string).collect();
        let text = format!("column {name} is {kind}, and {} is needed", wanted.join(" or "));
        self.say(field, &text, "name another column, or make it one in the query");
        None
    }

    fn all(&mut self, field: &str, names: &[String]) -> Vec<usize> {
        if names.is_empty() {
            self.say(field, "it names no column", "name at least one");
        }
        names.iter().filter_map(|name| self.column(field, name)).collect()
    }

    /// What an alarming row must have: the answer, less what is optional.
    fn needed(&mut self) -> Vec<usize> {
        let names: Vec<String> =
            self.def.answer.keys().filter(|name| !self.def.optional.contains(name)).cloned().collect();
        names.iter().filter_map(|name| self.column("answer", name)).collect()
    }

    fn once(&mut self, once: &Once) -> OnceColumns {
        if once.keep.get().as_secs() == 0 {
            self.say(
                "once.keep",
                "a report would be forgotten at once",
                "write a time that is longer than batches look back",
            );
        }
        let per = self.all("once.per", &once.per);
        let outcome = match &once.outcome {
            Some(names) => names.iter().filter_map(|name| self.column("once.outcome", name)).collect(),
            None => {
                let names: Vec<String> = self.def.answer.keys().cloned().collect();
                names.iter().filter_map(|name| self.column("answer", name)).collect()
            }
        };
        OnceColumns { per, outcome, keep: once.keep.get().as_secs(), repeat: once.repeat }
    }

    fn output(&mut self, output: &DetectOutput) -> Output {
        if output.columns.0.is_empty() {
            self.say("output.columns", "it has no column", "write NAME = \"COLUMN\"");
        }
        let (mut fields, mut from) = (Vec::new(), Vec::new());
        let mut seen = BTreeMap::new();
        for (name, source) in &output.columns.0 {
            let field = format!("output.columns.{name}");
            if name.is_empty() || name.len() > 128 || name.chars().any(char::is_control) {
                self.say(&field, "it is no column name", "use 1 to 128 printable characters");
            }
            if let Some(other) = seen.insert(name.to_lowercase(), name) {
                self.say(&field, &format!("it differs from {other} only in case"), "choose another name");
            }
            // Always nullable: a change of the query must not make rows that the table refuses.
            if let Ok(expr) = source.parse::<TimeExpr>() {
                fields.push(Field::new(name, output_type(Kind::Timestamp), true));
                from.push(OutputFrom::Time(expr));
            } else if let Some(column) = self.column(&field, source) {
                fields.push(Field::new(name, output_type(self.columns[column].kind), true));
                from.push(OutputFrom::Column(column));
            }
        }
        Output { name: output.name.clone(), schema: Arc::new(Schema::new(fields)), from }
    }

    fn alarm(&mut self, alarm: &DetectAlarm) -> Option<Alarm> {
        let key = self.all("alarm.key", &alarm.key);
        let severity = match &alarm.severity {
            SeverityFrom::Fixed(severity) => Some(SeverityOf::Fixed(*severity)),
            SeverityFrom::Column(name) if name.parse::<Severity>().is_ok() && !self.is_column(name) => {
                let fix = format!("write severity = {{ fixed = \"{}\" }}", name.to_lowercase());
                self.say("alarm.severity", &format!("there is no column {name}"), &fix);
                None
            }
            SeverityFrom::Column(name) => self.of_kind("alarm.severity", name, &[Kind::Text]).map(SeverityOf::Column),
        };
        let message = match Message::read(&alarm.message) {
            Ok(message) => message.resolve(|name, formatted| match formatted {
                true => self.of_kind("alarm.message", name, &[Kind::Timestamp]),
                false => self.column("alarm.message", name),
            }),
            Err(why) => {
                self.say("alarm.message", &why, "write columns as {COLUMN}, times as {COLUMN:%H:%M}");
                None
            }
        };
        let fields: Vec<(String, usize)> =
            alarm.fields.iter().filter_map(|name| Some((name.clone(), self.column("alarm.fields", name)?))).collect();
        let latest =
            (alarm.latest.as_ref()).map(|name| self.of_kind("alarm.latest", name, &[Kind::Timestamp, Kind::Int64]));
        if alarm.clear_at.is_some() {
            match latest.flatten().map(|column| self.columns[column].kind) {
                Some(Kind::Timestamp) => {}
                _ => self.say(
                    "alarm.clear_at",
                    "it needs a time to compare with",
                    "name a timestamp column in detect.alarm.latest",
                ),
            }
        }
        Some(Alarm {
            name: alarm.name.clone(),
            key,
            severity: severity?,
            message: message?,
            fields,
            latest: latest.flatten(),
            clear_at: alarm.clear_at,
        })
    }

    fn is_column(&self, name: &str) -> bool {
        self.def.answer.contains_key(name)
            || (self.def.all.is_none() && self.schema.as_ref().is_some_and(|s| s.index_of(name).is_ok()))
    }
}

/// "there are a, b and c": what can be named.
fn either<T: std::fmt::Display>(what: &str, names: impl Iterator<Item = T>) -> String {
    let names: Vec<String> = names.map(|n| n.to_string()).collect();
    if names.is_empty() { format!("there are no {what}") } else { format!("there are the {what} {}", names.join(", ")) }
}

/// A value of the manifest as a parameter's type.
fn constant(value: &toml::Value, ty: ColumnType) -> Option<Scalar> {
    Some(match (value, ty) {
        (toml::Value::Boolean(v), ColumnType::Boolean) => Scalar::Boolean(*v),
        (toml::Value::Integer(v), ColumnType::Int64 | ColumnType::Float64 | ColumnType::Decimal { .. }) => {
            Scalar::Int64(*v)
        }
        (toml::Value::Integer(v), ColumnType::Int32) => Scalar::Int64(i64::from(i32::try_from(*v).ok()?)),
        (toml::Value::Float(v), ColumnType::Float64) => Scalar::Float64(*v),
        (toml::Value::String(v), ColumnType::Text) => Scalar::Text(v.clone()),
        (toml::Value::String(v), ColumnType::Decimal { .. }) if v.parse::<f64>().is_ok() => Scalar::Decimal(v.clone()),
        _ => return None,
    })
}
