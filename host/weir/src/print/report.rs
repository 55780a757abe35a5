//! `weir batch` and `weir check` for people.

use std::io;

use weir_model::batch::Outcome;
use weir_model::id::BatchId;
use weir_model::service::SideReport;

use super::{Out, alarm, clean, count, problem, rows, time};
use crate::host::Checked;

/// What a run is that has the time of no committed batch.
pub(super) const UNCOMMITTED: &str = "a batch on empty state";

/// What a run is that has the time of a committed batch and is no replay of it.
pub(super) fn today(id: BatchId) -> String {
    format!("batch {} on today's ruleset and rows, and the state before it", id.0)
}

/// Alarms that a detector named, of which it cleared some.
pub(super) fn named(raised: u64, cleared: u64) -> String {
    format!("{} raised, {cleared} cleared", count(raised.saturating_sub(cleared), "alarm"))
}

/// A side run: what it ran on, its rows, its alarms, its log.
pub fn side(out: &mut Out<'_>, report: &SideReport) -> io::Result<()> {
    let plan = &report.plan;
    let what = match (report.replayed, report.state_before) {
        (Some(id), _) => format!("replay of batch {}", id.0),
        (None, Some(id)) => today(id),
        (None, None) => UNCOMMITTED.to_owned(),
    };
    out.line(format_args!(
        "{} at {}: {what}, ruleset {}, {} in, {}",
        plan.key.scenario,
        time(plan.time, out.zone),
        plan.ruleset.short(),
        count(report.rows_in, "row"),
        named(report.raised, report.cleared),
    ))?;
    match &report.outcome {
        Outcome::Judged => {}
        Outcome::NoVerdict => out.line(format_args!("the plugin could not judge"))?,
        Outcome::Failed(fault) => out.line(format_args!("failed: {}", clean(&fault.to_string())))?,
    }
    for (name, output) in &report.outputs {
        let digest = report.output_digests.get(name);
        out.line(format_args!(
            "\n{name}: {}{}",
            count(output.rows.len() as u64, "row"),
            digest.map_or_else(String::new, |d| format!(", digest {}", d.short())),
        ))?;
        if !output.rows.is_empty() {
            out.table(&rows::table(output, out.zone))?;
        }
    }
    if !report.events.is_empty() {
        out.line(format_args!("\nalarms:"))?;
    }
    out.stdout.write_all(alarm::Lines::new(out.zone, out.colour).text(&report.events).as_bytes())?;
    if !report.log.is_empty() {
        out.line(format_args!("\nlog:"))?;
    }
    for line in &report.log {
        out.line(format_args!("{:<5} {}", line.level, clean(&line.message)))?;
    }
    Ok(())
}

/// A checked store: a line for each thing that was looked at, its problems under it.
pub fn check(out: &mut Out<'_>, checked: &[Checked]) -> io::Result<()> {
    for one in checked {
        let says = match one.problems.len() {
            0 => "ok".to_owned(),
            n => count(n as u64, "problem"),
        };
        out.line(format_args!("{}: {says}", one.subject()))?;
        for found in &one.problems {
            problem(out.stdout, "  ", found)?;
        }
    }
    let bad = checked.iter().filter(|c| !c.problems.is_empty()).count();
    if bad > 0 {
        out.line(format_args!("\n{bad} of {} checked with problems", checked.len()))?;
    }
    out.stdout.flush()
}
