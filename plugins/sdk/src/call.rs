//! Calls of queries and rules.

use std::ops::Deref;

use crate::backend::prelude::*;
use crate::{Batch, Fault, Frame, Kind, Named, RowFault, Scalar};

/// One call of a named query, as [`Batch::query`] begins it.
#[must_use = "it does nothing before `run`"]
pub struct Query<'a> {
    batch: &'a Batch,
    call: QueryCall<'a>,
}

impl<'a> Query<'a> {
    pub(crate) fn new(batch: &'a Batch, name: &'a str) -> Self {
        let (values, rows) = (Vec::new(), Vec::new());
        Self { batch, call: QueryCall { name, values, rows } }
    }
    /// Gives a parameter its value.
    pub fn bind(mut self, parameter: &str, value: impl Into<Scalar>) -> Self {
        self.call.values.push(Named::new(parameter, value));
        self
    }
    /// Gives a parameter rows: the SQL sees a table of that name.
    pub fn bind_rows(mut self, parameter: &'a str, rows: &'a Frame) -> Self {
        self.call.rows.push((parameter, &rows.handle));
        self
    }
    /// Runs it.
    pub fn run(self) -> Result<Frame, Fault> {
        let what = format!("query '{}'", self.call.name);
        match self.batch.handle.query(self.call) {
            Ok(handle) => Ok(Frame::new(handle, what)),
            Err(fault) => Err(fault.about(|| what)),
        }
    }
}

/// One call of a rule, as [`Batch::rule`] begins it. The host makes the input object: numbers stay numbers, times become
/// ISO 8601 text, nulls become null.
#[must_use = "it does nothing before `run`"]
pub struct Rule<'a> {
    batch: &'a Batch,
    call: RuleCall<'a>,
}

impl<'a> Rule<'a> {
    pub(crate) fn new(batch: &'a Batch, name: &'a str) -> Self {
        let call = RuleCall { name, values: Vec::new(), rows: Vec::new(), each: None, unnest: None, want: Vec::new() };
        Self { batch, call }
    }
    /// A field of the input object.
    pub fn bind(mut self, field: &str, value: impl Into<Scalar>) -> Self {
        self.call.values.push(Named::new(field, value));
        self
    }
    /// A field that holds an array with an object a row.
    pub fn bind_rows(mut self, field: &'a str, rows: &'a Frame) -> Self {
        self.call.rows.push((field, &rows.handle));
        self
    }
    /// Evaluates once a row; the row's columns are fields of the input object. See [`Batch::select`].
    pub fn each(mut self, rows: &'a Frame) -> Self {
        self.call.each = Some(&rows.handle);
        self
    }
    /// The elements of the array at this path of the result are the answer's rows.
    pub fn unnest(mut self, path: &'a str) -> Self {
        self.call.unnest = Some(path);
        self
    }
    /// The next column of the answer: what stands at this path of the result. An empty path with [`Kind::Json`] is all
    /// of it.
    pub fn want(mut self, path: &'a str, kind: Kind) -> Self {
        self.call.want.push((path, kind));
        self
    }
    /// Evaluates it.
    pub fn run(self) -> Result<Answer, Fault> {
        let rule = format!("rule '{}'", self.call.name);
        let (handle, mut failed) = match self.batch.handle.rule(self.call) {
            Ok(answer) => answer,
            Err(fault) => return Err(fault.about(|| rule)),
        };
        failed.sort_by_key(|fault| fault.row);
        Ok(Answer { frame: Frame::new(handle, rule.clone()), failed, rule })
    }
}

/// What a rule answered: a frame with the wanted columns, and the rows of `each` that failed. With `each` and without
/// `unnest`, row i answers row i, and a failed one is all null.
pub struct Answer {
    frame: Frame,
    failed: Vec<RowFault>,
    pub(crate) rule: String,
}

impl Answer {
    /// The rows of `each` that failed, and why. See [`Batch::reject_failed`].
    pub fn failed(&self) -> &[RowFault] {
        &self.failed
    }
    /// Whether this row of `each` failed.
    pub fn is_failed(&self, row: usize) -> bool {
        self.failed.binary_search_by_key(&row, |fault| fault.row as usize).is_ok()
    }
}

impl Deref for Answer {
    type Target = Frame;
    fn deref(&self) -> &Frame {
        &self.frame
    }
}
