//! Whether what a plugin says of itself and what the manifest grants fit together.

use weir_model::batch::{HOST_OUTPUTS, host_table};
use weir_model::columns::{ColumnType, Kind};
use weir_model::notify::NOTIFY_OUTPUT;
use weir_model::port::{Description, OutputDecl};
use weir_model::ruleset::{Manifest, StatePolicy};
use weir_model::{Name, Problem};

use crate::declared;

/// All that does not fit. `state_before`: the state schema of the scenario's latest batch, if it had one.
pub fn problems(described: &Description, manifest: &Manifest, state_before: Option<u32>) -> Vec<Problem> {
    let mut out = Vec::new();
    // What a declared detection says of itself stands in the manifest.
    let file = manifest.plugin.as_deref().unwrap_or("scenario.toml");
    let who = match &manifest.detect {
        Some(_) => described.name.clone(),
        None => format!("the plugin {}", described.name),
    };
    let granted: [(&str, &[Name], Vec<&Name>); 4] = [
        ("inputs", &described.inputs, manifest.inputs.keys().collect()),
        ("queries", &described.queries, manifest.queries.keys().collect()),
        ("rules", &described.rules, manifest.rules.keys().collect()),
        ("assets", &described.assets, manifest.assets.keys().collect()),
    ];
    for (section, asked, given) in granted {
        for name in asked.iter().filter(|n| !given.contains(n)) {
            out.push(
                manifest_problem(section, format!("{who} asks for '{name}', which is not there"))
                    .fix(format!("add [{section}.{name}], or use a plugin that does not ask for it")),
            );
        }
    }
    for name in manifest.alarms.keys().filter(|n| !described.alarms.iter().any(|a| a.name == **n)) {
        out.push(
            manifest_problem("alarms", format!("{who} has no alarm type '{name}'"))
                .fix(one_of(described.alarms.iter().map(|a| &a.name))),
        );
    }
    for name in manifest.outputs.keys().filter(|n| !described.outputs.iter().any(|o| o.name == **n)) {
        out.push(
            manifest_problem("outputs", format!("{who} has no output '{name}'"))
                .fix(one_of(described.outputs.iter().map(|o| &o.name))),
        );
    }
    for output in &described.outputs {
        let columns = manifest.outputs.get(&output.name).into_iter().flat_map(|o| &o.columns);
        for (column, ty) in columns {
            out.extend(narrower(output, column, *ty));
        }
        // Sinks are known by the names of their outputs.
        if HOST_OUTPUTS.contains(&output.name.as_str()) || output.name.as_str().starts_with(NOTIFY_OUTPUT) {
            out.push(
                Problem::new(file, format_args!("'{}' is an output of the host's own", output.name))
                    .field(&output.name)
                    .fix("rename the output in the plugin"),
            );
        }
        let table = manifest.outputs.get(&output.name).map_or(&output.name, |o| &o.table);
        if let Some(why) = host_table(table.as_str()) {
            out.push(
                manifest_problem(
                    &format!("outputs.{}.table", output.name),
                    format!("output '{}' cannot have table {table}: {why}", output.name),
                )
                .fix(format!("send output '{}' to a table of another name", output.name)),
            );
        }
        for field in output.fields.iter().filter(|f| f.name.starts_with('_')) {
            out.push(
                Problem::new(file, format_args!("output '{}' has a column '{}'", output.name, field.name))
                    .field(&output.name)
                    .fix("names that begin with '_' are the host's own: rename the column"),
            );
        }
    }
    if let (Some(before), Some(now)) = (state_before, described.state)
        && before != now
        && manifest.state != Some(StatePolicy::Reset)
    {
        out.push(
            manifest_problem(
                "state",
                match (now == declared::STATE, before == declared::STATE) {
                    (true, _) => {
                        format!("[detect] keeps state of its own, and the kept state is a plugin's of schema {before}")
                    }
                    (_, true) => format!("the plugin has state schema {now}, and the kept state is that of [detect]"),
                    _ => format!("the plugin has state schema {now}, and the kept state has schema {before}"),
                },
            )
            .fix("deploy what the kept state belongs to, or write state = \"reset\" to start on empty state"),
        );
    }
    out
}

/// What is wrong with a column's own type in the table.
fn narrower(output: &OutputDecl, column: &str, ty: ColumnType) -> Option<Problem> {
    let field = format!("outputs.{}.columns.{column}", output.name);
    match output.fields.iter().find(|f| f.name == column) {
        None => {
            let columns: Vec<&str> = output.fields.iter().map(|f| f.name.as_str()).collect();
            let message = format!("output '{}' has no column '{column}'", output.name);
            Some(manifest_problem(&field, message).fix(format!("it has {}", columns.join(", "))))
        }
        Some(f) if f.kind == Kind::Int64 && ty == ColumnType::Int32 => None,
        Some(f) => Some(
            manifest_problem(&field, format!("a column of kind {} cannot be kept as {ty}", f.kind))
                .fix("take it out: only an int64 column can be kept as something narrower, which is int32"),
        ),
    }
}

fn manifest_problem(field: &str, message: String) -> Problem {
    Problem::new("scenario.toml", message).field(field)
}

fn one_of<'a>(names: impl Iterator<Item = &'a Name>) -> String {
    let names: Vec<&str> = names.map(Name::as_str).collect();
    if names.is_empty() {
        "remove it: the plugin declares none".to_owned()
    } else {
        format!("it declares {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use weir_model::FieldDef;

    /// The host's own names in SQL: what a tenant writes there could not be read.
    #[test]
    fn an_output_goes_to_no_table_that_the_host_has_itself() {
        let described = |output: &str| Description {
            name: "p".into(),
            version: "1".into(),
            outputs: vec![OutputDecl { name: Name::new(output).unwrap(), fields: Vec::new() }],
            alarms: Vec::new(),
            inputs: Vec::new(),
            queries: Vec::new(),
            rules: Vec::new(),
            assets: Vec::new(),
            state: None,
        };
        let manifest = |more: &str| -> Manifest {
            toml::from_str(&format!("plugin = \"p.wasm\"\ntrigger = {{ interval = \"60s\" }}\n{more}")).unwrap()
        };
        let told = |output: &str, more: &str| -> Vec<String> {
            problems(&described(output), &manifest(more), None).iter().map(ToString::to_string).collect()
        };
        assert_eq!(told("rows", "[outputs.rows]\ntable = \"hotels\"\n"), Vec::<String>::new());
        for table in ["hot_syslog", "current_alarms", "alarms", "dead_letters"] {
            let named = told("rows", &format!("[outputs.rows]\ntable = \"{table}\"\n"));
            assert_eq!(named.len(), 1, "{named:?}");
            for part in ["scenario.toml", "outputs.rows.table", table, "to a table of another name"] {
                assert!(named[0].contains(part), "{part} | {}", named[0]);
            }
        }
        // Without a word in the manifest an output's table has its name.
        assert!(told("hot_syslog", "")[0].contains("hot_STREAM"), "{:?}", told("hot_syslog", ""));
    }

    #[test]
    fn only_an_int64_column_that_is_there_is_kept_as_int32() {
        let field = |name: &str, kind| FieldDef { name: name.into(), kind, nullable: true };
        let output = OutputDecl {
            name: Name::new("counts").unwrap(),
            fields: vec![field("high", Kind::Int64), field("host", Kind::Text)],
        };
        assert_eq!(narrower(&output, "high", ColumnType::Int32), None);
        let text = |column, ty| narrower(&output, column, ty).unwrap().to_string();
        assert!(text("low", ColumnType::Int32).contains("it has high, host"));
        assert!(text("host", ColumnType::Int32).contains("a column of kind text cannot be kept as int32"));
        assert!(text("high", ColumnType::Float64).contains("a column of kind int64 cannot be kept as float64"));
    }
}
