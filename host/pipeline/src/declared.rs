//! Detection that a manifest declares (`[detect]`): a detector without a component.
//!
//! In a batch it binds the query's parameters, has the rule judge the rows of the answer, and reports what alarms:
//!
//! * A row whose `when` is true **alarms**, one whose `when` is false is **well**. A row that could not be judged (its
//!   evaluation failed, the answer lacks a column, a key is null) is put aside as a dead letter, and the batch has no
//!   verdict, so that silence clears nothing.
//! * An alarming row is **fresh** unless a row with the same `once.per` was reported with the same outcome. Fresh rows (with
//!   `repeat`, and without `once`, all alarming ones) become rows of the output.
//! * Each alarm key has one voice: its latest alarming row, in every batch that sees one. When the key is **over** (see
//!   [`DetectAlarm::clear_at`](weir_model::detect::DetectAlarm::clear_at)), its open alarm is cleared; what was over before it was
//!   ever told is told once.
//!
//! What was reported and what is open is keyed state, so batches stay functions of their plan. `load` resolves names when
//! a ruleset is admitted, `judge` and `report` run in a batch, `cells` has the columns, `message` the texts.

mod cells;
mod judge;
mod load;
mod message;
mod report;
mod resolved;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow_array::RecordBatch;
use weir_model::batch::Stage;
use weir_model::port::{BatchHost, Description, DetectFailure, Detection, Detector, Reject, RuleCall, Usage, Verdict};
use weir_model::{CallError, Digest, Fault, FaultKind, Limits, Scalar, Zone};

pub use load::load;
use resolved::{Param, Resolved};

/// Version of the keyed state that declared detection keeps. Far from the versions of plugins, whose state is another one.
pub const STATE: u32 = 0x5745_0001;

/// A loaded `[detect]` section.
#[derive(Debug)]
pub struct Declared {
    description: Description,
    digest: Digest,
    resolved: Resolved,
    limits: Limits,
    zone: Zone,
}

impl Detector for Declared {
    fn description(&self) -> &Description {
        &self.description
    }

    fn digest(&self) -> Digest {
        self.digest
    }

    fn detect(&self, host: Arc<dyn BatchHost>) -> Result<Detection, Box<DetectFailure>> {
        let mut calls = Calls { host: host.as_ref(), made: 0, largest: 0 };
        let found = self.run(&mut calls);
        let usage = Usage { fuel: 0, memory_peak: calls.largest, host_calls: calls.made };
        match found {
            Ok(found) => Ok(Detection { usage, ..found }),
            Err(fault) => Err(Box::new(DetectFailure { fault: fault.at(Stage::Detect), log: Vec::new(), usage })),
        }
    }
}

/// The batch's host, with a count of what was asked.
struct Calls<'a> {
    host: &'a dyn BatchHost,
    made: u64,
    largest: u64,
}

impl Calls<'_> {
    fn ask<T>(&mut self, f: impl FnOnce(&dyn BatchHost) -> Result<T, CallError>) -> Result<T, CallError> {
        self.made += 1;
        f(self.host)
    }

    /// Notes an answer, and refuses one that is larger than what a plugin could hold.
    fn weigh(&mut self, rows: &RecordBatch, limits: &Limits) -> Result<(), Fault> {
        let bytes = rows.get_array_memory_size() as u64;
        self.largest = self.largest.max(bytes);
        if bytes > limits.memory_bytes {
            let what = format!("an answer has {bytes} bytes, and memory_bytes is {}", limits.memory_bytes);
            return Err(exceeded(FaultKind::Memory, "memory_bytes", what));
        }
        Ok(())
    }
}

fn exceeded(kind: FaultKind, limit: &str, message: impl std::fmt::Display) -> Fault {
    Fault::tenant(kind, message)
        .field(limit)
        .fix(format_args!("let the query find less, or raise limits.{limit} in scenario.toml and tenant.toml"))
}

/// An error of a call as the fault of a batch: there is no plugin that could handle it.
fn fault(error: CallError, kind: FaultKind, file: &str, what: impl std::fmt::Display) -> Fault {
    match error {
        CallError::Fault(fault) => fault,
        CallError::Data(why) => Fault::tenant(kind, format_args!("{what}: {why}")).file(file),
    }
}

impl Declared {
    fn run(&self, calls: &mut Calls<'_>) -> Result<Detection, Fault> {
        let params = self.params(calls)?;
        let query = &self.resolved.query;
        let found = calls
            .ask(|host| host.query(query.name.as_str(), &params, &[]))
            .map_err(|e| fault(e, FaultKind::Sql, &query.file, format_args!("query {}", query.name)))?;
        calls.weigh(&found, &self.limits)?;
        let judged = judge::judge(self, calls, found)?;
        let fresh = report::fresh(self, calls, &judged)?;
        let outputs = report::rows(self, calls.host.time(), &judged, &fresh)?;
        let alarms = report::alarms(self, calls, &judged, &fresh)?;
        report::bounded(&self.limits, &outputs, &judged.rejects, &alarms)?;
        let verdict = if judged.rejects.is_empty() { Verdict::Judged } else { Verdict::NoVerdict };
        Ok(Detection { verdict, outputs, alarms, rejects: judged.rejects, log: Vec::new(), usage: Usage::default() })
    }

    /// The values of the query's parameters. Each rule that gives some is asked once.
    fn params(&self, calls: &mut Calls<'_>) -> Result<Vec<(String, Scalar)>, Fault> {
        let mut answers = Vec::new();
        for ask in &self.resolved.asks {
            let call = RuleCall { want: ask.want.clone(), ..RuleCall::default() };
            let answer = calls
                .ask(|host| host.rule(ask.rule.as_str(), &call))
                .map_err(|e| fault(e, FaultKind::Rule, &ask.file, format_args!("rule {}", ask.rule)))?;
            calls.weigh(&answer.rows, &self.limits)?;
            answers.push(answer.rows);
        }
        let time = calls.host.time();
        self.resolved
            .params
            .iter()
            .map(|(name, from)| {
                let value = match from {
                    Param::Time(expr) => Scalar::Timestamp(expr.at(time).micros()),
                    Param::Value(value) => value.clone(),
                    Param::Rule { ask, column } => {
                        let value =
                            answers.get(*ask).map_or(Scalar::Null, |rows| cells::scalar(rows.column(*column), 0));
                        if value == Scalar::Null {
                            let ask = &self.resolved.asks[*ask];
                            let field = &ask.want[*column].0;
                            return Err(Fault::tenant(
                                FaultKind::Rule,
                                format_args!(
                                    "rule {} answers no {field}, which is the query's parameter {name}",
                                    ask.rule
                                ),
                            )
                            .file(&ask.file)
                            .field(field)
                            .fix(format_args!("let the rule answer {field} to an empty input")));
                        }
                        value
                    }
                };
                Ok((name.to_string(), value))
            })
            .collect()
    }
}

/// A row that was put aside.
fn reject(source: &str, rows: &RecordBatch, row: usize, reason: String) -> Reject {
    let because = weir_model::alarm::Because { source: source.to_owned(), row: u32::try_from(row).unwrap_or(u32::MAX) };
    Reject { row: because, reason, raw: crate::output::row_json(rows, row) }
}
