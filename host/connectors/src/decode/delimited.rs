//! csv records. Columns are found by the header's names; further ones are ignored, missing ones are null.

use weir_model::rows::{Cell, csv, missing};
use weir_model::stream::Column;

/// The header of one file.
pub(super) struct Header<'c> {
    columns: &'c [Column],
    delimiter: u8,
    /// Number of its cells, and the place of each column; or why no record under it can be read.
    places: Result<(usize, Vec<Option<usize>>), String>,
}

impl<'c> Header<'c> {
    pub fn new(line: &[u8], delimiter: u8, columns: &'c [Column]) -> Self {
        Self { columns, delimiter, places: places(line, delimiter, columns) }
    }

    /// The cells of one record.
    pub fn read<'a>(&self, text: &'a str, cells: &mut [Cell<'a>]) -> Result<(), String> {
        let (width, places) = self.places.as_ref().map_err(Clone::clone)?;
        let values = csv::cells(text, self.delimiter)?;
        if values.len() != *width {
            return Err(format!("it has {} cells, and the header of its file has {width}", values.len()));
        }
        let mut values: Vec<Option<std::borrow::Cow<'a, str>>> = values.into_iter().map(Some).collect();
        for ((cell, column), place) in cells.iter_mut().zip(self.columns).zip(places) {
            let value = place.and_then(|at| values.get_mut(at)).and_then(Option::take);
            *cell = match value {
                Some(text) => Cell::of_plain(column, text)?,
                None => Cell::Null,
            };
        }
        missing(self.columns, cells).map_or(Ok(()), Err)
    }
}

fn places(line: &[u8], delimiter: u8, columns: &[Column]) -> Result<(usize, Vec<Option<usize>>), String> {
    let text = std::str::from_utf8(line)
        .map_err(|e| format!("the header of its file is not UTF-8 after byte {}", e.valid_up_to()))?;
    let names = csv::cells(text, delimiter).map_err(|e| format!("the header of its file: {e}"))?;
    let mut places = Vec::with_capacity(columns.len());
    for column in columns {
        let mut found = (0..names.len()).filter(|i| names[*i].trim() == column.name);
        let first = found.next();
        if found.next().is_some() {
            return Err(format!("column {}: the header of its file has it more than once", column.name));
        }
        places.push(first);
    }
    Ok((names.len(), places))
}
