//! What the rule says of the rows: each alarms, is well, or is put aside.

use std::collections::BTreeMap;

use arrow_array::{Array as _, ArrayRef, RecordBatch, RecordBatchOptions};
use weir_model::port::{Reject, RuleAnswer, RuleCall};
use weir_model::{Fault, FaultKind};

use super::resolved::From;
use super::{Calls, Declared, cells, fault, reject, report};

/// A verdict of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// The condition holds.
    Alarms,
    /// It does not.
    Well,
    /// Nobody can tell.
    Aside,
}

/// The rows of a batch with what was said of them.
pub struct Judged {
    /// The columns that are used, by their index in the section's columns.
    pub columns: Vec<ArrayRef>,
    /// A verdict a row.
    pub said: Vec<Said>,
    /// What was put aside.
    pub rejects: Vec<Reject>,
    /// What alarms name as the rows that they come from.
    pub source: String,
}

/// Has the rule judge what the query found.
pub fn judge(declared: &Declared, calls: &mut Calls<'_>, found: RecordBatch) -> Result<Judged, Fault> {
    let resolved = &declared.resolved;
    let answer = evaluate(declared, calls, &found)?;
    let whole = resolved.all.is_some();
    let source = match whole {
        // Counted from 1 for each rule, as plugins' answers are.
        true => {
            let before = resolved.asks.iter().filter(|ask| ask.rule == resolved.rule.name).count();
            format!("rule:{}#{}", resolved.rule.name, before + 1)
        }
        false => format!("query:{}#1", resolved.query.name),
    };
    let rows = if whole { &answer.rows } else { &found };
    let columns = resolved
        .columns
        .iter()
        .map(|column| {
            let of = match column.from {
                From::Query(index) => found.column(index),
                From::Answer(index) => answer.rows.column(index),
            };
            cells::plain(of, column.kind).map_err(|e| {
                Fault::tenant(FaultKind::Sql, format_args!("column {}: {e}", column.name)).file(&resolved.query.file)
            })
        })
        .collect::<Result<Vec<_>, _>>()?;

    let failed: BTreeMap<u32, String> = if whole { BTreeMap::new() } else { answer.failed.into_iter().collect() };
    let mut judged = Judged { columns, said: Vec::with_capacity(rows.num_rows()), rejects: Vec::new(), source };
    for row in 0..rows.num_rows() {
        let reason = match failed.get(&u32::try_from(row).unwrap_or(u32::MAX)) {
            Some(reason) => Err(format!("rule '{}': {reason}", resolved.rule.name)),
            None => say(declared, &judged, row),
        };
        judged.said.push(match reason {
            Ok(said) => said,
            Err(reason) => {
                judged.rejects.push(reject(&judged.source, rows, row, reason));
                Said::Aside
            }
        });
    }
    Ok(judged)
}

/// The verdict of a row that was evaluated, or why it has none.
fn say(declared: &Declared, judged: &Judged, row: usize) -> Result<Said, String> {
    let (resolved, columns) = (&declared.resolved, &judged.columns);
    let lacks = |column: usize| {
        let column = &resolved.columns[column];
        match column.from {
            From::Answer(_) => format!("rule {} answers no {}", resolved.rule.name, column.name),
            From::Query(_) => format!("column {} of query {} is null", column.name, resolved.query.name),
        }
    };
    let alarms = match resolved.when {
        Some(when) => cells::boolean(&columns[when], row).ok_or_else(|| lacks(when))?,
        None => true,
    };
    let keys = resolved.alarm.iter().flat_map(|alarm| alarm.key.iter());
    if let Some(null) = keys.copied().find(|key| columns[*key].is_null(row)) {
        return Err(lacks(null));
    }
    if !alarms {
        return Ok(Said::Well);
    }
    if let Some(missing) = resolved.needed.iter().copied().find(|column| columns[*column].is_null(row)) {
        return Err(lacks(missing));
    }
    // One sender's long text must not stop the alarms of all others.
    match resolved.alarm.as_ref().map(|alarm| report::bytes_of(declared, alarm, judged, row)) {
        Some(bytes) if bytes > declared.limits.alarm_bytes => {
            Err(format!("its alarm has {bytes} bytes, and alarm_bytes is {}", declared.limits.alarm_bytes))
        }
        _ => Ok(Said::Alarms),
    }
}

/// One evaluation for each row, or one for all. No rows, no evaluation.
fn evaluate(declared: &Declared, calls: &mut Calls<'_>, found: &RecordBatch) -> Result<RuleAnswer, Fault> {
    let resolved = &declared.resolved;
    if found.num_rows() as u64 > declared.limits.rule_rows {
        let what =
            format!("{} rows are to be judged, and rule_rows is {}", found.num_rows(), declared.limits.rule_rows);
        return Err(super::exceeded(FaultKind::RuleLimit, "rule_rows", what));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(found.num_rows()));
    let (fields, columns): (Vec<arrow_schema::Field>, Vec<ArrayRef>) =
        resolved.input.iter().map(|i| (found.schema_ref().field(*i).clone(), found.column(*i).clone())).unzip();
    let schema = arrow_schema::Schema::new(fields);
    let input = RecordBatch::try_new_with_options(schema.into(), columns, &options).map_err(Fault::internal)?;
    let mut call = RuleCall { want: resolved.want.clone(), ..RuleCall::default() };
    match &resolved.all {
        None => call.each = Some(input),
        Some(_) if found.num_rows() == 0 => call.each = Some(input),
        Some(all) => {
            call.rows = vec![(all.field.clone(), input)];
            call.unnest = Some(all.unnest.clone());
        }
    }
    let rule = &resolved.rule;
    let answer = calls
        .ask(|host| host.rule(rule.name.as_str(), &call))
        .map_err(|e| fault(e, FaultKind::Rule, &rule.file, format_args!("rule {}", rule.name)))?;
    calls.weigh(&answer.rows, &declared.limits)?;
    Ok(answer)
}
