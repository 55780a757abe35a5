//! What can be said about reference tables.

use weir_model::ruleset::{Manifest, TableDef};
use weir_model::{Name, Problem};

use super::{Around, HOST_TABLES, MANIFEST, columns, file};

/// Endings of files that can be read, and whether they need a schema.
const FORMATS: [(&str, bool); 5] =
    [("csv", true), ("json", true), ("jsonl", true), ("ndjson", true), ("parquet", false)];

pub(super) fn table(m: &Manifest, around: &Around<'_>, name: &Name, def: &TableDef) -> Vec<Problem> {
    let mut out = Vec::new();
    let problem = |field: &str, message: String| {
        let field = if field.is_empty() { format!("tables.{name}") } else { format!("tables.{name}.{field}") };
        Problem::new(MANIFEST, message).field(field)
    };
    if m.inputs.contains_key(name) {
        out.push(problem("", format!("{name} is an input too")).fix("rename the table"));
    }
    let needs_schema = match (&def.file, &def.lake) {
        (Some(path), None) => {
            out.extend(file(around, &format!("tables.{name}.file"), path));
            let ending = path.rsplit_once('.').map_or("", |(_, end)| end);
            match FORMATS.iter().find(|(known, _)| *known == ending) {
                Some((_, needs)) => *needs,
                None => {
                    let known: Vec<String> = FORMATS.iter().map(|(end, _)| format!(".{end}")).collect();
                    let text = format!("{path} is no kind of file that is known");
                    out.push(problem("file", text).fix(format_args!("name a file that ends in {}", known.join(", "))));
                    false
                }
            }
        }
        (None, Some(lake)) => {
            if HOST_TABLES.contains(&lake.as_str()) {
                let text = format!("the host itself writes {lake}");
                out.push(problem("lake", text).fix("a batch must not read what batches leave; name another table"));
            }
            true
        }
        (Some(_), Some(_)) => {
            out.push(problem("", "both file and lake are given".into()).fix("keep one of them"));
            false
        }
        (None, None) => {
            let fix = "write file = \"tables/NAME.csv\", or lake = \"TABLE\"";
            out.push(problem("", "neither file nor lake is given".into()).fix(fix).partial());
            false
        }
    };
    match &def.schema {
        Some(schema) => out.extend(columns(MANIFEST, &format!("tables.{name}.schema"), schema)),
        None if needs_schema => out.push(
            problem("schema", "the types of its columns are not known".into())
                .fix("write schema = { COLUMN = \"type\", ... }"),
        ),
        None => {}
    }
    out
}
