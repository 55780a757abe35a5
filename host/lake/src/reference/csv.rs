//! csv with a header row. Columns are found by their names; further ones of the file are ignored.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use weir_model::rows::{Cell, csv};
use weir_model::stream::Columns;

use super::gather::{Batches, Gather};

const DELIMITER: u8 = b',';

pub(super) fn read(
    bytes: &[u8],
    columns: &Columns,
    gather: &mut Gather<'_>,
) -> Result<(SchemaRef, Vec<RecordBatch>), ()> {
    // What spreadsheets put before the text.
    let mut rest = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut line = 1;
    let mut batches = Batches::new(columns.schema(), &columns.0);
    let mut header: Option<Header> = None;
    while !rest.is_empty() {
        let end = csv::record_end(rest, DELIMITER).unwrap_or(rest.len());
        let (record, after) = rest.split_at(end);
        let at = line;
        line += record.iter().filter(|b| **b == b'\n').count();
        rest = after;
        if record.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let cells = match std::str::from_utf8(record) {
            Ok(text) => csv::cells(text, DELIMITER),
            Err(e) => Err(format!("not UTF-8 after byte {} of the line; save the file as UTF-8", e.valid_up_to())),
        };
        let cells = match cells {
            Ok(cells) => cells,
            Err(reason) => {
                gather.bad(at, &reason);
                if header.is_none() {
                    return Err(());
                }
                continue;
            }
        };
        let Some(header) = &header else {
            header = Some(Header::new(&cells, columns, gather)?);
            continue;
        };
        if cells.len() != header.width {
            let reason = format!("it has {} cells, and the header has {}", cells.len(), header.width);
            gather.problem(at, "", &reason, "put cells that hold a comma or a line end into quotes");
            continue;
        }
        let mut row = Vec::with_capacity(columns.0.len());
        for (column, place) in columns.0.iter().zip(&header.places) {
            match Cell::of_plain(column, cells.get(*place).cloned().unwrap_or_default()) {
                Ok(cell) => row.push(cell),
                Err(reason) => gather.bad(at, &reason),
            }
        }
        if row.len() == columns.0.len() && !batches.push(at, &row, gather) {
            break;
        }
    }
    if header.is_none() {
        gather.problem(0, "", "it is empty", "write a header row with the names of the columns");
    }
    batches.finish(gather)
}

struct Header {
    width: usize,
    /// Of each column of the schema.
    places: Vec<usize>,
}

impl Header {
    fn new(cells: &[std::borrow::Cow<'_, str>], columns: &Columns, gather: &mut Gather<'_>) -> Result<Self, ()> {
        let names: Vec<&str> = cells.iter().map(|c| c.trim()).collect();
        let mut places = Vec::new();
        for column in &columns.0 {
            let found: Vec<usize> = (0..names.len()).filter(|i| names[*i] == column.name).collect();
            match found.as_slice() {
                [one] => places.push(*one),
                [] => {
                    let near = names.iter().find(|n| n.eq_ignore_ascii_case(&column.name));
                    let fix = match near {
                        Some(near) => format!("write it as {near} in the schema, as in the file"),
                        None => "add it to the file, or take it out of the schema".to_owned(),
                    };
                    let message = format!("the header has no such column; it has {}", names.join(", "));
                    gather.problem(1, &column.name, &message, &fix);
                }
                _ => gather.problem(1, &column.name, "the header has it more than once", "rename one of them"),
            }
        }
        if places.len() == columns.0.len() { Ok(Self { width: names.len(), places }) } else { Err(()) }
    }
}
