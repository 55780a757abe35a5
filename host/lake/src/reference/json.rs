//! JSON: one array of objects, or one object a line.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use weir_model::rows::JsonRow;
use weir_model::stream::Columns;

use super::gather::{Batches, Gather};

pub(super) fn read(
    bytes: &[u8],
    columns: &Columns,
    gather: &mut Gather<'_>,
) -> Result<(SchemaRef, Vec<RecordBatch>), ()> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => {
            let line = 1 + lines(&bytes[..e.valid_up_to()]);
            gather.problem(line, "", "it is not UTF-8", "save the file as UTF-8");
            return Err(());
        }
    };
    let reader = JsonRow::new(&columns.0);
    let mut batches = Batches::new(columns.schema(), &columns.0);
    match text.trim_start().strip_prefix('[') {
        Some(inner) => array(text, inner, &reader, &mut batches, gather),
        None => lines_of(text, &reader, &mut batches, gather),
    }
    batches.finish(gather)
}

fn lines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|b| **b == b'\n').count()
}

fn lines_of(text: &str, reader: &JsonRow, batches: &mut Batches<'_>, gather: &mut Gather<'_>) {
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let mut cells = reader.cells();
        match reader.read(line, &mut cells) {
            Ok(()) => {
                if !batches.push(number + 1, &cells, gather) {
                    return;
                }
            }
            Err(reason) => gather.bad(number + 1, without_place(&reason)),
        }
    }
}

/// The text of a JSON error without ` at line 1 column 7`, which counts from the start of the object.
fn without_place(reason: &str) -> &str {
    reason.rsplit_once(" at line ").map_or(reason, |(text, _)| text)
}

fn array(text: &str, inner: &str, reader: &JsonRow, batches: &mut Batches<'_>, gather: &mut Gather<'_>) {
    let mut rest = inner.trim_start();
    let (mut counted, mut line) = (0, 1);
    let mut line_at = |rest: &str| {
        let at = text.len() - rest.len();
        line += lines(&text.as_bytes()[counted..at]);
        counted = at;
        line
    };
    if let Some(after) = rest.strip_prefix(']') {
        rest = after;
    } else {
        loop {
            let line = line_at(rest);
            let mut cells = reader.cells();
            let used = match reader.read_first(rest, &mut cells) {
                Ok((used, Ok(()))) => {
                    if !batches.push(line, &cells, gather) {
                        return;
                    }
                    used
                }
                Ok((used, Err(reason))) => {
                    gather.bad(line, without_place(&reason));
                    used
                }
                Err(e) => {
                    let line = line + e.line().saturating_sub(1);
                    gather.problem(line, "", without_place(&e.to_string()), "correct the JSON");
                    return;
                }
            };
            rest = rest[used..].trim_start();
            match rest.strip_prefix(',') {
                Some(after) => rest = after.trim_start(),
                None => match rest.strip_prefix(']') {
                    Some(after) => {
                        rest = after;
                        break;
                    }
                    None => {
                        let line = line_at(rest);
                        gather.problem(line, "", "a comma or the end of the array is missing", "correct the JSON");
                        return;
                    }
                },
            }
        }
    }
    let rest = rest.trim_start();
    if !rest.is_empty() {
        let line = line_at(rest);
        gather.problem(line, "", "there is more after the end of the array", "keep one array of objects");
    }
}
