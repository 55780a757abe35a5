//! Rows of queries and outputs.

use serde_json::Value;
use weir_model::service::Rows;
use weir_model::time::Time;
use weir_model::zone::Zone;

use super::{Align, Table};

/// As a table. Numbers stand on the right, timestamps in the zone; null is a blank, so that it differs from an empty text only
/// in JSON.
pub fn table(rows: &Rows, zone: Zone) -> Table {
    let numeric = |ty: &str| ["Int", "UInt", "Float", "Decimal"].iter().any(|n| ty.starts_with(n));
    let types = rows.types.iter().map(String::as_str);
    let types = types.chain(std::iter::repeat(""));
    let columns = rows.columns.iter().zip(types).map(|(name, ty)| {
        let align = if numeric(ty) { Align::Right } else { Align::Left };
        (name.as_str(), align)
    });
    let mut table = Table::new(columns);
    for row in &rows.rows {
        let types = rows.types.iter().map(String::as_str).chain(std::iter::repeat(""));
        table.row(rows.columns.iter().zip(types).map(|(name, ty)| {
            let text = cell(row.get(name));
            match text.parse::<Time>() {
                Ok(at) if ty.starts_with("Timestamp") => super::time(at, zone),
                _ => text,
            }
        }));
    }
    table
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
