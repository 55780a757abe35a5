//! A few rows of an answer, in bounded space.

use arrow_array::RecordBatch;
use serde_json::{Map, Value};
use weir_model::Scalar;
use weir_model::review::Sample;
use weir_model::service::Rows;

use crate::output;

/// Longer texts are cut, in characters.
const CELL: usize = 500;
/// What all samples of a review may hold together, in bytes of JSON.
const KEPT: usize = 4 << 20;
/// What may be written to find out what is kept: cells are cut after they were written.
const WRITTEN: usize = 64 << 20;

/// How much may still be shown.
#[derive(Debug, Default)]
pub struct Budget {
    rows: usize,
    kept: usize,
    written: usize,
}

impl Budget {
    /// With so many rows of each answer.
    pub fn new(rows: usize) -> Self {
        Self { rows, kept: KEPT, written: WRITTEN }
    }

    /// Rows of each answer.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The first rows.
    pub fn first(&mut self, batch: &RecordBatch) -> Sample {
        self.some(batch, 0..batch.num_rows().min(self.rows))
    }

    /// Rows of these numbers. Rows that do not fit, or cannot be written as JSON, are left out with all after them.
    pub fn some(&mut self, batch: &RecordBatch, numbers: impl IntoIterator<Item = usize>) -> Sample {
        let schema = batch.schema_ref();
        let columns: Vec<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
        let types: Vec<String> = schema.fields().iter().map(|f| f.data_type().to_string()).collect();
        let mut sample = Sample { total: batch.num_rows() as u64, ..Sample::default() };
        if !self.take(columns.iter().chain(&types).map(String::len).sum()) {
            return sample;
        }
        sample.rows = Rows { columns, types, rows: Vec::new() };
        for number in numbers.into_iter().take(self.rows) {
            let Some(row) = self.row(batch, number) else { break };
            sample.rows.rows.push(row);
            sample.numbers.push(number as u64);
        }
        sample
    }

    fn row(&mut self, batch: &RecordBatch, number: usize) -> Option<Map<String, Value>> {
        if self.written == 0 || number >= batch.num_rows() {
            return None;
        }
        let mut row = output::objects(&batch.slice(number, 1)).ok()?.into_iter().next()?;
        let mut kept = 0;
        for (name, value) in &mut row {
            let written = size(value);
            self.written = self.written.saturating_sub(written);
            cut(value, written);
            kept += name.len() + size(value);
        }
        self.take(kept).then_some(row)
    }

    /// Values by name, in order.
    pub fn values(&mut self, values: &[(String, Scalar)]) -> Map<String, Value> {
        // Bytes become a number each, many times as large.
        let short = values.iter().map(|(name, value)| match value {
            Scalar::Bytes(bytes) => (cut_text(name), Scalar::Bytes(bytes.iter().copied().take(CELL).collect())),
            other => (cut_text(name), other.clone()),
        });
        let Value::Object(mut all) = output::fields_json(&short.collect::<Vec<_>>()) else { return Map::new() };
        all.iter_mut().for_each(|(_, value)| cut(value, size(value)));
        let kept = all.iter().map(|(name, value)| name.len() + size(value)).sum();
        if self.take(kept) { all } else { Map::new() }
    }

    /// A text, cut.
    pub fn text(&mut self, text: &str) -> String {
        let text = cut_text(text);
        if self.take(text.len()) { text } else { String::new() }
    }

    fn take(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.kept;
        self.kept = if fits { self.kept - bytes } else { 0 };
        fits
    }
}

/// About the size of its JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(size).sum::<usize>() + 2,
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + size(value) + 4).sum::<usize>() + 2,
    }
}

fn cut(value: &mut Value, size: usize) {
    if size <= CELL {
        return;
    }
    *value = Value::String(match &*value {
        Value::String(text) => cut_text(text),
        other => cut_text(&other.to_string()),
    });
}

/// The beginning of a text. A mark says that there is more.
pub fn cut_text(text: &str) -> String {
    match text.char_indices().nth(CELL) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow_array::{ArrayRef, Int64Array, StringArray};
    use std::sync::Arc;

    fn rows(n: usize, text: &str) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..n).map(|n| i64::try_from(n).unwrap())));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![text; n]));
        RecordBatch::try_from_iter([("n", numbers), ("text", texts)]).unwrap()
    }

    #[test]
    fn a_sample_has_the_rows_that_were_asked_for_and_counts_the_others() {
        let mut budget = Budget::new(3);
        let first = budget.first(&rows(64_000, "x"));
        assert_eq!((first.numbers.as_slice(), first.total, first.left_out()), ([0, 1, 2].as_slice(), 64_000, 63_997));
        assert_eq!(first.rows.columns, ["n", "text"]);
        let some = budget.some(&rows(10, "x"), [4, 7, 8, 9]);
        let shown: Vec<_> = some.rows.rows.iter().map(|row| row["n"].clone()).collect();
        assert_eq!((some.numbers.as_slice(), shown), ([4, 7, 8].as_slice(), vec![4.into(), 7.into(), 8.into()]));
        let none = budget.first(&rows(0, "x"));
        assert_eq!((none.total, none.left_out(), none.rows.columns.len()), (0, 0, 2));
    }

    #[test]
    fn cells_are_cut_and_all_samples_together_are_bounded() {
        let mut budget = Budget::new(1_000);
        let long = "ü".repeat(3_000);
        let sample = budget.first(&rows(5, &long));
        let cell = sample.rows.rows[0]["text"].as_str().unwrap();
        assert_eq!(cell, format!("{}…", "ü".repeat(500)));
        let mut kept = 0;
        for _ in 0..100 {
            let sample = budget.first(&rows(1_000, &long));
            assert_eq!(sample.total, 1_000);
            kept += serde_json::to_vec(&sample).unwrap().len();
        }
        assert!(kept < 2 * KEPT, "{kept}");
        assert_eq!(budget.first(&rows(1, "x")).left_out(), 1, "nothing more fits");
    }

    #[test]
    fn values_are_cut_before_they_grow() {
        let mut budget = Budget::new(1);
        let values = [
            ("bytes".to_owned(), Scalar::Bytes(vec![7; 1 << 20])),
            ("text".to_owned(), Scalar::Text("x".repeat(1 << 20))),
            ("time".to_owned(), Scalar::Timestamp(0)),
        ];
        let shown = budget.values(&values);
        assert!(shown["bytes"].as_str().unwrap().starts_with("[7,7,"), "{}", shown["bytes"]);
        assert_eq!(shown["text"].as_str().unwrap().chars().count(), CELL + 1);
        assert_eq!(shown["time"], "1970-01-01T00:00:00Z");
    }

    #[test]
    fn what_is_written_is_bounded_too() {
        let mut budget = Budget::new(1_000);
        let huge = rows(1_000, &"x".repeat(1 << 20));
        assert_eq!(budget.first(&huge).numbers.len(), 64);
    }
}
