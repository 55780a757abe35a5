//! Rows of a file on their way into a table, and everything that is wrong with them.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use weir_model::Problem;
use weir_model::rows::{Cell, Rows, missing};
use weir_model::stream::Column;

use crate::query::BATCH_ROWS;

/// More problems than this in one file are only counted.
const PROBLEMS: usize = 20;

/// What was found of one file.
#[derive(Debug)]
pub(super) struct Gather<'a> {
    file: &'a str,
    /// What the rows may take.
    memory: usize,
    taken: usize,
    found: Vec<Problem>,
    more: usize,
    full: bool,
}

impl<'a> Gather<'a> {
    pub fn new(file: &'a str, memory: usize) -> Self {
        Self { file, memory, taken: 0, found: Vec::new(), more: 0, full: false }
    }

    /// Something is wrong at a line (0: with the file as a whole).
    pub fn problem(&mut self, line: usize, column: &str, message: &str, fix: &str) {
        if self.found.len() >= PROBLEMS {
            self.more += 1;
            return;
        }
        // The column is named as the field; once is enough.
        let message = message.strip_prefix(&format!("column {column}: ")).unwrap_or(message);
        let message = if line == 0 { message.to_owned() } else { format!("line {line}: {message}") };
        let problem = Problem::new(self.file, message).field(column).fix(fix);
        self.found.push(problem.partial());
    }

    /// A cell or row is not as the schema has it; the message begins with `column NAME: ` where it is about one.
    pub fn bad(&mut self, line: usize, message: &str) {
        let column = message.strip_prefix("column ").and_then(|m| m.split_once(": ")).map_or("", |(name, _)| name);
        let fix = if column.is_empty() { "correct the line" } else { "correct the value, or the type in the schema" };
        self.problem(line, column, message, fix);
    }

    /// Counts bytes that rows take. False when that is too much.
    pub fn take(&mut self, bytes: usize) -> bool {
        self.taken = self.taken.saturating_add(bytes);
        if self.taken > self.memory && !self.full {
            self.full = true;
            self.found.clear();
            self.more = 0;
            let message = format!("its rows take more than the {} bytes that are left for tables", self.memory);
            self.found.push(
                Problem::new(self.file, message).fix("make it smaller, or ask the operator for more table_bytes"),
            );
        }
        !self.full
    }

    /// Whether so many bytes more are allowed, without counting them.
    pub fn fits(&mut self, bytes: usize) -> bool {
        let before = self.taken;
        let fits = self.take(bytes);
        self.taken = before;
        fits
    }

    pub fn is_good(&self) -> bool {
        self.found.is_empty()
    }

    pub fn problems(self) -> Vec<Problem> {
        let mut all = self.found;
        if self.more > 0 {
            all.push(Problem::new(self.file, format_args!("{} more values or lines are wrong", self.more)).partial());
        }
        all
    }
}

/// Batches of cells.
#[derive(Debug)]
pub(super) struct Batches<'c> {
    schema: SchemaRef,
    columns: &'c [Column],
    rows: Rows,
    out: Vec<RecordBatch>,
}

impl<'c> Batches<'c> {
    pub fn new(schema: SchemaRef, columns: &'c [Column]) -> Self {
        Self { schema, columns, rows: Rows::new(columns), out: Vec::new() }
    }

    /// Adds a row, if it is one. False when no more may be read.
    pub fn push(&mut self, line: usize, cells: &[Cell<'_>], gather: &mut Gather<'_>) -> bool {
        if let Some(reason) = missing(self.columns, cells) {
            gather.bad(line, &reason);
            return true;
        }
        // After the first problem rows are only looked at: there will be no table.
        if !gather.is_good() {
            return true;
        }
        let before = self.rows.bytes();
        self.rows.push(cells);
        if !gather.take(self.rows.bytes() - before) {
            return false;
        }
        if self.rows.len() >= BATCH_ROWS {
            self.flush(gather);
        }
        true
    }

    fn flush(&mut self, gather: &mut Gather<'_>) {
        let rows = std::mem::replace(&mut self.rows, Rows::new(self.columns));
        match rows.finish(self.schema.clone()) {
            Ok(batch) => self.out.push(batch),
            Err(e) => gather.problem(0, "", &e.to_string(), ""),
        }
    }

    /// The rows, when nothing is wrong.
    pub fn finish(mut self, gather: &mut Gather<'_>) -> Result<(SchemaRef, Vec<RecordBatch>), ()> {
        if !self.rows.is_empty() {
            self.flush(gather);
        }
        if gather.is_good() { Ok((self.schema, self.out)) } else { Err(()) }
    }
}
