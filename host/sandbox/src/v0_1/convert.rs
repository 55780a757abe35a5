//! The WIT's types and the host's, one for one; and whether a description can be true.

use std::collections::BTreeSet;
use std::fmt::Display;

use weir_model::alarm::{AlarmAction, Severity};
use weir_model::batch::{ALARM_EVENTS, DEAD_LETTERS};
use weir_model::port::{AlarmType, Description, OutputDecl, Verdict};
use weir_model::{DataError, FieldDef, Kind, Name, Scalar};

use super::bindings::exports::weir::detect::plugin;
use super::bindings::weir::detect::{log, types};
use crate::columns;

macro_rules! same_names {
    ($a:path, $b:path: $($name:ident),*) => {
        impl From<$a> for $b {
            fn from(from: $a) -> Self {
                use $a as A;
                match from { $(A::$name => Self::$name),* }
            }
        }
    };
}
same_names!(types::Kind, Kind: Boolean, Int64, Float64, Decimal, Text, Bytes, Timestamp, Date, Json);
same_names!(Kind, types::Kind: Boolean, Int64, Float64, Decimal, Text, Bytes, Timestamp, Date, Json);
same_names!(types::Severity, Severity: Info, Warning, Minor, Major, Critical);

impl From<types::Action> for AlarmAction {
    fn from(action: types::Action) -> Self {
        match action {
            types::Action::Raise(severity) => Self::Raise(severity.into()),
            types::Action::Clear => Self::Clear,
        }
    }
}

impl From<types::Scalar> for Scalar {
    fn from(value: types::Scalar) -> Self {
        match value {
            types::Scalar::Null => Self::Null,
            types::Scalar::Boolean(v) => Self::Boolean(v),
            types::Scalar::Int64(v) => Self::Int64(v),
            types::Scalar::Float64(v) => Self::Float64(v),
            types::Scalar::Decimal(v) => Self::Decimal(v),
            types::Scalar::Text(v) => Self::Text(v),
            types::Scalar::Bytes(v) => Self::Bytes(v),
            types::Scalar::Timestamp(v) => Self::Timestamp(v),
        }
    }
}

impl From<DataError> for types::DataError {
    fn from(error: DataError) -> Self {
        match error {
            DataError::Undeclared => Self::Undeclared,
            DataError::NoSuchColumn => Self::NoSuchColumn,
            DataError::WrongKind(kind) => Self::WrongKind(kind.into()),
            DataError::OutOfRange => Self::OutOfRange,
            DataError::Uneven(rows) => Self::Uneven(rows),
            DataError::RequiredNull => Self::RequiredNull,
            DataError::Malformed => Self::Malformed,
            DataError::Failed(why) => Self::Failed(why),
        }
    }
}
impl From<types::DataError> for DataError {
    fn from(error: types::DataError) -> Self {
        match error {
            types::DataError::Undeclared => Self::Undeclared,
            types::DataError::NoSuchColumn => Self::NoSuchColumn,
            types::DataError::WrongKind(kind) => Self::WrongKind(kind.into()),
            types::DataError::OutOfRange => Self::OutOfRange,
            types::DataError::Uneven(rows) => Self::Uneven(rows),
            types::DataError::RequiredNull => Self::RequiredNull,
            types::DataError::Malformed => Self::Malformed,
            types::DataError::Failed(why) => Self::Failed(why),
        }
    }
}

impl From<columns::Blobs> for types::Blobs {
    fn from(columns::Blobs { offsets, data }: columns::Blobs) -> Self {
        Self { offsets, data }
    }
}
impl From<types::Blobs> for columns::Blobs {
    fn from(types::Blobs { offsets, data }: types::Blobs) -> Self {
        Self { offsets, data }
    }
}
impl From<columns::Decimals> for types::Decimals {
    fn from(columns::Decimals { scale, low, high }: columns::Decimals) -> Self {
        Self { scale, low, high }
    }
}
impl From<types::Decimals> for columns::Decimals {
    fn from(types::Decimals { scale, low, high }: types::Decimals) -> Self {
        Self { scale, low, high }
    }
}
impl From<columns::Dictionary> for types::Dictionary {
    fn from(from: columns::Dictionary) -> Self {
        Self { codes: from.codes, values: from.values.into() }
    }
}

impl From<types::Field> for FieldDef {
    fn from(field: types::Field) -> Self {
        Self { name: field.name, kind: field.kind.into(), nullable: field.nullable }
    }
}

/// A log level's word.
pub fn level(level: log::Level) -> &'static str {
    match level {
        log::Level::Debug => "debug",
        log::Level::Info => "info",
        log::Level::Warn => "warn",
        log::Level::Error => "error",
    }
}

/// The plugin's verdict.
pub fn verdict(said: plugin::Verdict) -> Verdict {
    match said {
        plugin::Verdict::Judged => Verdict::Judged,
        plugin::Verdict::NoVerdict => Verdict::NoVerdict,
    }
}

/// What a plugin says of itself, or everything that is wrong with it.
pub fn description(said: plugin::Description) -> Result<Description, Vec<String>> {
    let mut wrong = Vec::new();
    let outputs = said.outputs.into_iter().filter_map(|o| output(o, &mut wrong)).collect::<Vec<_>>();
    let alarms = said
        .alarms
        .into_iter()
        .filter_map(|a| {
            unique(&format!("key of alarm {}", a.name), &a.key, &mut wrong);
            Some(AlarmType { name: name("alarm", &a.name, &mut wrong)?, key: a.key })
        })
        .collect::<Vec<_>>();
    unique("outputs", outputs.iter().map(|o| &o.name), &mut wrong);
    unique("alarms", alarms.iter().map(|a| &a.name), &mut wrong);
    let description = Description {
        name: said.name,
        version: said.version,
        outputs,
        alarms,
        inputs: names("inputs", &said.inputs, &mut wrong),
        queries: names("queries", &said.queries, &mut wrong),
        rules: names("rules", &said.rules, &mut wrong),
        assets: names("assets", &said.assets, &mut wrong),
        state: said.state,
    };
    if wrong.is_empty() { Ok(description) } else { Err(wrong) }
}

fn output(said: plugin::Output, wrong: &mut Vec<String>) -> Option<OutputDecl> {
    let of = &said.name;
    if [ALARM_EVENTS, DEAD_LETTERS].contains(&of.as_str()) {
        wrong.push(format!("output {of}: this name is the host's own"));
    }
    if said.fields.is_empty() {
        wrong.push(format!("output {of} has no field"));
    }
    for field in &said.fields {
        if field.name.is_empty() || field.name.starts_with('_') {
            wrong.push(format!(
                "output {of}: '{}' is no name for a field; those that begin with _ are the host's own",
                field.name
            ));
        }
    }
    unique(&format!("fields of output {of}"), said.fields.iter().map(|f| &f.name), wrong);
    Some(OutputDecl {
        name: name("output", &said.name, wrong)?,
        fields: said.fields.into_iter().map(FieldDef::from).collect(),
    })
}

fn name(what: &str, text: &str, wrong: &mut Vec<String>) -> Option<Name> {
    Name::new(text).map_err(|e| wrong.push(format!("{what}: {e}"))).ok()
}

fn names(what: &str, texts: &[String], wrong: &mut Vec<String>) -> Vec<Name> {
    unique(what, texts, wrong);
    texts.iter().filter_map(|text| name(what, text, wrong)).collect()
}

fn unique<T: Ord + Display>(what: &str, items: impl IntoIterator<Item = T>, wrong: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for item in items {
        let text = item.to_string();
        if !seen.insert(item) {
            wrong.push(format!("{what}: {text} is there twice"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(change: impl FnOnce(&mut plugin::Description)) -> Result<Description, Vec<String>> {
        let field = |name: &str| types::Field { name: name.into(), kind: types::Kind::Int64, nullable: false };
        let mut said = plugin::Description {
            name: "p".into(),
            version: "1".into(),
            outputs: vec![plugin::Output { name: "results".into(), fields: vec![field("a"), field("b")] }],
            alarms: vec![plugin::AlarmType { name: "down".into(), key: vec!["olt".into()] }],
            inputs: vec!["events".into()],
            queries: vec![],
            rules: vec!["3-1".into()],
            assets: vec![],
            state: Some(1),
        };
        change(&mut said);
        description(said)
    }

    #[test]
    fn a_description_that_can_be_true() {
        let said = described(|_| ()).expect("nothing wrong");
        assert_eq!(said.outputs[0].fields[1].name, "b");
        assert_eq!((said.rules[0].as_str(), said.state), ("3-1", Some(1)));
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let wrong = described(|d| {
            d.outputs[0].fields[1].name = "a".into();
            d.outputs[0].fields[0].name = "_a".into();
            d.alarms[0].name = "no name".into();
            d.inputs.push("events".into());
            d.queries.push(String::new());
            let outputs = d.outputs.len();
            d.outputs.push(plugin::Output { name: DEAD_LETTERS.into(), fields: vec![] });
            assert_eq!(outputs, 1);
        })
        .expect_err("wrong");
        for part in [
            "output results: '_a' is no name for a field",
            "alarm: 'no name' is not a name",
            "inputs: events is there twice",
            "queries: '' is not a name",
            "output dead_letters: this name is the host's own",
            "output dead_letters has no field",
        ] {
            assert!(wrong.iter().any(|w| w.starts_with(part)), "{part}: {wrong:?}");
        }
        let twice = described(|d| d.outputs[0].fields[1].name = "a".into()).expect_err("twice");
        assert_eq!(twice, ["fields of output results: a is there twice"]);
    }
}
