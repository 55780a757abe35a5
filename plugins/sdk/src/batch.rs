//! Batches.

use crate::backend::prelude::*;
use crate::{Alarm, Answer, Bounds, Fault, Field, Frame, Query, RowRef, Rule, State, Time, Writer};

/// One micro-batch: what there is to judge, and where the judgement goes. Nothing of it outlives the call of
/// [`crate::Detector::detect`]; if that fails, nothing of what was written or put counts.
pub struct Batch {
    pub(crate) handle: BatchHandle,
}

impl Batch {
    /// A batch on a backend.
    pub fn on(handle: BatchHandle) -> Self {
        Self { handle }
    }

    /// T, the time of this batch. There is no other clock: a re-run of this batch must come out the same.
    pub fn time(&self) -> Time {
        Time::from_micros(self.handle.time())
    }
    /// The rows of a stream that this batch sees, or the answer of a query that was run beforehand.
    pub fn input(&self, name: &str) -> Result<Frame, Fault> {
        let what = format!("input '{name}'");
        match self.handle.input(name) {
            Ok(handle) => Ok(Frame::new(handle, what)),
            Err(fault) => Err(fault.about(|| what)),
        }
    }
    /// The event time that this batch sees of an input.
    pub fn window(&self, input: &str) -> Result<Bounds, Fault> {
        self.handle.window(input).map_err(|fault| fault.about(|| format!("window of input '{input}'")))
    }
    /// Begins a call of a query.
    pub fn query<'a>(&'a self, name: &'a str) -> Query<'a> {
        Query::new(self, name)
    }
    /// Begins a call of a rule.
    pub fn rule<'a>(&'a self, name: &'a str) -> Rule<'a> {
        Rule::new(self, name)
    }
    /// What survives from batch to batch.
    pub fn state(&self) -> State<'_> {
        State::new(&self.handle)
    }
    /// Begins rows of an output.
    pub fn output(&self, name: &str) -> Writer {
        Writer::new(self.handle.output(name), format!("output '{name}'"))
    }
    /// Begins rows that are no output, for [`Query::bind_rows`], [`Rule::each`] and the like.
    pub fn scratch(&self, fields: impl IntoIterator<Item = Field>) -> Writer {
        let fields = fields.into_iter().collect();
        Writer::new(self.handle.scratch(fields), "scratch".to_owned())
    }
    /// The same rows with these columns only, in this order. Nothing crosses.
    pub fn select(&self, rows: &Frame, columns: &[&str]) -> Result<Frame, Fault> {
        let all = rows.fields();
        let chosen = columns
            .iter()
            .map(|column| Ok(all[rows.column(column)? as usize].clone()))
            .collect::<Result<Vec<_>, Fault>>()?;
        columns.iter().try_fold(self.scratch(chosen), |writer, column| writer.copy(column, rows, column))?.finish()
    }

    /// Raises and clears alarms.
    pub fn alarms(&self, alarms: impl IntoIterator<Item = Alarm>) -> Result<(), Fault> {
        let alarms: Vec<_> = alarms.into_iter().collect();
        if alarms.is_empty() {
            return Ok(());
        }
        self.handle.alarms(alarms).map_err(|fault| fault.about(|| "alarms".to_owned()))
    }
    /// Puts rows aside that cannot be used: they go to the dead letters with this reason.
    pub fn reject(&self, rows: impl IntoIterator<Item = RowRef>, reason: &str) -> Result<(), Fault> {
        let rows: Vec<_> = rows.into_iter().collect();
        if rows.is_empty() {
            return Ok(());
        }
        self.handle.reject(&rows, reason).map_err(|fault| fault.about(|| "rejected rows".to_owned()))
    }
    /// Puts the rows aside whose evaluation by [`Rule::each`] failed, each with its reason. `rows` are those that `each`
    /// got, or those that they were selected from.
    pub fn reject_failed(&self, rows: &Frame, answer: &Answer) -> Result<(), Fault> {
        for group in answer.failed().chunk_by(|a, b| a.reason == b.reason) {
            let refs = group.iter().map(|fault| rows.row(fault.row as usize));
            self.reject(refs, &format!("{}: {}", answer.rule, group[0].reason))?;
        }
        Ok(())
    }
}
