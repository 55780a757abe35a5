//! `weir review` for people: what a batch saw, asked, was answered and made of it, in that order, and why there is no alarm.

mod steps;
mod why;

use std::fmt::Write as _;

use serde_json::{Map, Value};
use weir_model::batch::{ALARM_EVENTS, BATCH_ID, BATCH_TIME, Outcome, RULESET, SCENARIO};
use weir_model::review::{
    AlarmSeen, Answered, Call, Held, InputSeen, Live, Made, Reason, Review, Sample, StateSeen, Tally,
};
use weir_model::service::Rows;
use weir_model::time::Time;
use weir_model::zone::Zone;

use super::{clean, count, report, rows, status};

/// The whole text.
pub fn text(review: &Review, zone: Zone) -> String {
    let mut page = Page { out: String::new(), shows: Shows(zone) };
    page.head(review);
    if let Some(held) = &review.held {
        page.held(review, held);
    }
    page.inputs(review);
    for (n, call) in review.calls.iter().enumerate() {
        page.call(n + 1, call);
    }
    if review.calls_left_out > 0 {
        page.line(0, format_args!("\n{} more, which are not shown", count(review.calls_left_out, "call")));
    }
    if let Some(state) = &review.state {
        page.state(state);
    }
    page.alarms(review);
    page.outputs(review);
    page.log(review);
    page.why(review);
    page.out
}

/// How instants are shown, wherever there are some.
#[derive(Clone, Copy)]
struct Shows(Zone);

impl Shows {
    fn time(self, at: Time) -> String {
        super::time(at, self.0)
    }

    fn table(self, of: &Rows) -> String {
        rows::table(of, self.0).to_string()
    }

    /// A value of a parameter. A text that is an instant is shown as one.
    fn value(self, of: &Value) -> String {
        match of {
            Value::String(text) => match text.parse::<Time>() {
                Ok(at) => self.time(at),
                Err(_) => text.clone(),
            },
            other => other.to_string(),
        }
    }

    /// `a = 1, b = x`.
    fn values(self, of: &Map<String, Value>) -> String {
        let all: Vec<String> = of.iter().map(|(name, of)| format!("{name} = {}", self.value(of))).collect();
        all.join(", ")
    }
}

struct Page {
    out: String,
    shows: Shows,
}

impl Page {
    fn line(&mut self, indent: usize, line: std::fmt::Arguments<'_>) {
        // Writing to a text cannot fail.
        let _ = writeln!(self.out, "{:indent$}{line}", "");
    }

    /// A text of several lines.
    fn block(&mut self, indent: usize, text: &str) {
        for line in text.lines() {
            self.line(indent, format_args!("{line}"));
        }
    }

    fn head(&mut self, review: &Review) {
        let plan = &review.plan;
        let what = match (review.replayed, &review.live) {
            (Some(id), _) => format!("replay of batch {}", id.0),
            (None, Live::Committed { id, .. }) => report::today(*id),
            (None, _) => report::UNCOMMITTED.to_owned(),
        };
        let scenario = &plan.key.scenario;
        self.line(
            0,
            format_args!("{scenario} at {}: {what}, ruleset {}", self.shows.time(plan.time), plan.ruleset.short()),
        );
        if let Some(why) = why::not_run(review, self.shows) {
            self.line(0, format_args!("{}", clean(&why)));
        }
        if let Some(notice) = &review.rejected {
            let notice = status::notice("the newest version of the scenario is rejected", notice, self.shows.0);
            self.line(0, format_args!("{}", clean(&notice)));
            self.line(0, format_args!("batches run on the last good one"));
        }
        let said = report::named(review.raised, review.cleared);
        match &review.outcome {
            Outcome::Judged => self.line(0, format_args!("judged, {said}")),
            Outcome::NoVerdict => self.line(0, format_args!("the detector could not judge, {said}")),
            Outcome::Failed(fault) => self.line(0, format_args!("failed: {}", clean(&fault.to_string()))),
        }
        if let Live::Committed { outcome, raised, events, agrees, .. } = &review.live {
            let came = match outcome {
                Outcome::Judged => "judged",
                Outcome::NoVerdict => "could not judge",
                Outcome::Failed(_) => "failed",
            };
            let (named, events) = (count(*raised, "alarm"), count(*events, "change"));
            match agrees {
                Some(true) => self.line(0, format_args!("the live batch came to the same")),
                _ => self.line(0, format_args!("the live batch {came}, named {named} and made {events} of alarms")),
            }
        }
    }

    fn held(&mut self, review: &Review, held: &Held) {
        let why = why::holds(review, held.state, held.fault.as_ref(), self.shows);
        let why = why.unwrap_or_else(|| "the scenario does not get on".to_owned());
        self.line(0, format_args!("no batch was committed since: {}", clean(&why)));
    }

    fn inputs(&mut self, review: &Review) {
        if !review.inputs.is_empty() || !review.plan.tables.is_empty() {
            self.line(0, format_args!("\ninputs"));
        }
        for input in &review.inputs {
            let by_time = review.plan.streams.get(&input.stream).is_some_and(|pin| pin.only.is_some());
            self.line(2, format_args!("{}: {}", input.stream, seen(input, by_time, self.shows)));
        }
        for (table, version) in &review.plan.tables {
            let version: String = version.chars().take(12).collect();
            self.line(2, format_args!("{table}: table, version {}", clean(&version)));
        }
    }

    fn call(&mut self, n: usize, call: &Call) {
        match call {
            Call::Input { stream, answer } => {
                self.line(0, format_args!("\n{n}. rows of {}: {}", clean(stream), answered(answer)));
                self.answer(answer);
            }
            Call::Query { query, params, tables, reads, answer } => {
                self.line(0, format_args!("\n{n}. query {}: {}", clean(query), answered(answer)));
                if !params.is_empty() {
                    self.line(3, format_args!("with {}", clean(&self.shows.values(params))));
                }
                for (name, sample) in tables {
                    self.line(3, format_args!("with {} as table {}", count(sample.total, "row"), clean(name)));
                }
                for read in reads {
                    let rows = read.rows.map_or_else(|| "rows that were not counted".to_owned(), |n| count(n, "row"));
                    let (from, to) = (self.shows.time(read.from), self.shows.time(read.to));
                    self.line(3, format_args!("of {} from {from} to {to}: {rows}", read.stream));
                }
                self.answer(answer);
            }
            Call::Rule { rule, values: fixed, arrays, each, unnest, evaluations, failed, answer, tallies } => {
                let asked = match each {
                    Some(_) => count(*evaluations, "row"),
                    None => "one input".to_owned(),
                };
                let error = match answer {
                    Answered::Rows(_) => String::new(),
                    Answered::Error(_) => format!(", {}", answered(answer)),
                };
                self.line(0, format_args!("\n{n}. rule {} on {asked}{error}", clean(rule)));
                if !fixed.is_empty() {
                    self.line(3, format_args!("with {}", clean(&self.shows.values(fixed))));
                }
                for (name, sample) in arrays {
                    self.line(3, format_args!("with {} as array {}", count(sample.total, "row"), clean(name)));
                    self.sample(sample);
                }
                // Of one row, or of an array's elements, the rows below say it.
                for tally in tallies.iter().filter(|_| each.is_some() && unnest.is_none()) {
                    self.line(3, format_args!("{}", clean(&tallied(tally))));
                }
                for (row, why) in failed {
                    self.line(3, format_args!("row {row} failed: {}", clean(why)));
                }
                match (each, unnest, answer) {
                    (Some(each), None, Answered::Rows(answers)) => self.side_by_side(each, answers),
                    (_, Some(path), Answered::Rows(answers)) => {
                        self.line(3, format_args!("answers {} in {}", count(answers.total, "element"), clean(path)));
                        self.sample(answers);
                    }
                    _ => self.answer(answer),
                }
            }
        }
    }

    fn answer(&mut self, answer: &Answered) {
        if let Answered::Rows(sample) = answer {
            self.sample(sample);
        }
    }

    fn sample(&mut self, sample: &Sample) {
        if !sample.rows.rows.is_empty() {
            self.block(5, &self.shows.table(&sample.rows));
        }
        self.left_out(sample.rows.rows.len(), sample.left_out());
    }

    /// Of rows under a line that says how many there are.
    fn left_out(&mut self, shown: usize, rows: u64) {
        match (shown, rows) {
            (_, 0) => {}
            (0, _) => self.line(5, format_args!("(not shown; --rows N shows N)")),
            _ => self.line(5, format_args!("({} more; --rows N shows N)", count(rows, "row"))),
        }
    }

    /// Each row, and what the rule says of it.
    fn side_by_side(&mut self, each: &Sample, answers: &Sample) {
        let mut all = Rows {
            columns: std::iter::once("row".to_owned()).chain(each.rows.columns.iter().cloned()).collect(),
            types: std::iter::once("UInt64".to_owned()).chain(each.rows.types.iter().cloned()).collect(),
            rows: Vec::new(),
        };
        let answer = |column: &String| format!("-> {column}");
        all.columns.extend(answers.rows.columns.iter().map(answer));
        all.types.extend(answers.rows.types.iter().cloned());
        for ((number, input), output) in each.numbers.iter().zip(&each.rows.rows).zip(&answers.rows.rows) {
            let mut row = input.clone();
            row.insert("row".to_owned(), (*number).into());
            row.extend(output.iter().map(|(name, value)| (answer(name), value.clone())));
            all.rows.push(row);
        }
        if !all.rows.is_empty() {
            self.block(5, &self.shows.table(&all));
        }
        self.left_out(all.rows.len(), each.total.saturating_sub(all.rows.len() as u64));
    }

    fn state(&mut self, state: &StateSeen) {
        if *state == StateSeen::default() {
            return;
        }
        let StateSeen { read, found, scanned, put, deleted, entries } = state;
        let scans = if *scanned > 0 { format!(", {} by scans", count(*scanned, "value")) } else { String::new() };
        let read = count(*read, "key");
        self.line(0, format_args!("\nstate: {read} read, {found} found{scans}; {put} put, {deleted} deleted"));
        for entry in entries {
            let value = match &entry.value {
                Some(value) if value.is_empty() => " = (empty)".to_owned(),
                Some(value) => format!(" = {}", clean(value)),
                None => String::new(),
            };
            let nothing = if entry.what == "read" && entry.value.is_none() { ": nothing" } else { "" };
            self.line(5, format_args!("{:<7} {}{value}{nothing}", entry.what, clean(&entry.key)));
        }
        let left_out = (state.read + scanned + put + deleted).saturating_sub(entries.len() as u64);
        match (entries.len(), left_out) {
            (_, 0) => {}
            (0, _) => self.line(5, format_args!("(not shown; --rows N shows N)")),
            _ => self.line(5, format_args!("({left_out} more)")),
        }
    }

    fn alarms(&mut self, review: &Review) {
        let alarms = review.alarms.len() as u64 + review.alarms_left_out;
        match (review.alarms.len(), alarms) {
            (_, 0) => {}
            (0, _) => self.line(0, format_args!("\nalarms: {alarms} (not shown; --rows N shows N)")),
            _ => self.line(0, format_args!("\nalarms")),
        }
        for alarm in &review.alarms {
            let severity = alarm.severity.map_or_else(|| "-".to_owned(), |s| s.to_string().to_uppercase());
            let key = alarm.key.join(", ");
            let message = if alarm.message.is_empty() { String::new() } else { format!(": {}", alarm.message) };
            let text = format!("{}[{key}]{message}", alarm.name);
            self.line(
                2,
                format_args!("{severity:<8}  {:<9}  {}{}", made(alarm.made), clean(&text), aside(alarm, self.shows)),
            );
            if !alarm.because.is_empty() {
                let because: Vec<String> = alarm.because.iter().map(|row| steps::because(review, row)).collect();
                self.line(12, format_args!("because of {}", clean(&because.join(", "))));
            }
        }
        if review.alarms_left_out > 0 && !review.alarms.is_empty() {
            self.line(2, format_args!("({} more)", count(review.alarms_left_out, "alarm")));
        }
    }

    fn outputs(&mut self, review: &Review) {
        // Changes of alarms were shown.
        for (name, sample) in review.outputs.iter().filter(|(name, _)| name.as_str() != ALARM_EVENTS) {
            self.line(0, format_args!("\noutput {name}: {}", count(sample.total, "row")));
            self.sample(&own_columns(sample));
        }
    }

    fn log(&mut self, review: &Review) {
        if !review.log.is_empty() {
            self.line(0, format_args!("\nlog"));
        }
        for line in &review.log {
            self.line(2, format_args!("{:<5} {}", line.level, clean(&line.message)));
        }
    }

    fn why(&mut self, review: &Review) {
        // That there is no live batch stands at the top, and that a batch fails is told once of it and of its replay.
        let live = review.reasons.iter().find_map(|reason| match reason {
            Reason::LiveFailed { fault } => Some(fault),
            _ => None,
        });
        let told = |reason: &&Reason| match reason {
            Reason::NotRun => false,
            Reason::Failed { fault } => Some(fault) != live,
            _ => true,
        };
        let reasons: Vec<&Reason> = review.reasons.iter().filter(told).collect();
        // What is above may have alarms that the live run has not.
        let only_here = review.raised > 0 && !matches!(review.outcome, Outcome::Failed(_));
        match reasons[..] {
            [] => return,
            [Reason::LiveFailed { .. }] if only_here => {
                self.line(0, format_args!("\nwhy the live run has no alarm of this time"));
            }
            _ => self.line(0, format_args!("\nwhy no alarm was opened or changed")),
        }
        for reason in reasons {
            self.line(2, format_args!("- {}", clean(&why::text(review, reason, self.shows))));
        }
    }
}

/// Without the columns that say which batch it is.
fn own_columns(sample: &Sample) -> Sample {
    let mut own = sample.clone();
    let kept = |name: &String| ![BATCH_TIME, BATCH_ID, SCENARIO, RULESET].contains(&name.as_str());
    let columns = sample.rows.columns.iter().zip(&sample.rows.types).filter(|(name, _)| kept(name));
    (own.rows.columns, own.rows.types) = columns.map(|(name, ty)| (name.clone(), ty.clone())).unzip();
    own
}

fn seen(input: &InputSeen, by_time: bool, shows: Shows) -> String {
    let what = if input.new_only { "new rows" } else { "window" };
    let mut out = format!("{what} from {} to {}, ", shows.time(input.from), shows.time(input.to));
    match input.rows {
        Some(extent) => {
            out.push_str(&count(extent.rows, "row"));
            if let (Some(first), Some(last)) = (extent.first, extent.last) {
                let _ = write!(out, " of {} to {}", shows.time(first), shows.time(last));
            }
        }
        None => out.push_str("rows that were not counted"),
    }
    if let Some(new) = input.new_rows {
        let _ = write!(out, ", {new} new since the batch before");
    }
    let parts = input.upto.0.iter().map(|(partition, offset)| format!("{partition}: {offset}"));
    let upto = parts.collect::<Vec<_>>().join(", ");
    // Where T ends what is seen, the offsets are those of today.
    if !by_time {
        let _ = write!(out, "; up to offset {}", if upto.is_empty() { "0" } else { &upto });
    }
    if !input.read {
        out.push_str("; its source was not read to its end");
    }
    out
}

fn answered(answer: &Answered) -> String {
    match answer {
        Answered::Rows(sample) => count(sample.total, "row"),
        Answered::Error(error) => format!("error: {}", clean(error)),
    }
}

/// `should_alarm: 4 true, 2 false`.
fn tallied(tally: &Tally) -> String {
    let mut counts: Vec<(&String, &u64)> = tally.counts.iter().collect();
    counts.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let counts: Vec<String> = counts.into_iter().map(|(value, n)| format!("{n} {value}")).collect();
    format!("{}: {}", tally.column, counts.join(", "))
}

fn made(made: Made) -> &'static str {
    match made {
        Made::Opened => "opened",
        Made::Escalated => "escalated",
        Made::Lowered => "lowered",
        Made::Cleared => "cleared",
        Made::Reopened => "reopened",
        Made::Stale => "stale",
        Made::Fresh => "fresh",
        Made::Updated => "updated",
        Made::Quiet => "quiet",
        Made::Nothing => "nothing",
        Made::Overruled => "overruled",
    }
}

/// What the word does not say.
fn aside(alarm: &AlarmSeen, shows: Shows) -> String {
    let since = || alarm.opened_at.map_or_else(String::new, |at| format!(" since {}", shows.time(at)));
    match alarm.made {
        Made::Escalated | Made::Lowered => alarm.before.map_or_else(String::new, |before| format!(" (was {before})")),
        Made::Updated => format!(" (open{}, raised {})", since(), count(alarm.count, "time")),
        Made::Quiet => format!(" (open{}, not raised {} in a row)", since(), count(u64::from(alarm.quiet), "time")),
        Made::Nothing => " (a clear of what is not open)".to_owned(),
        Made::Overruled => " (the detector named it again)".to_owned(),
        Made::Stale => " (nobody can tell whether it holds)".to_owned(),
        Made::Cleared if !alarm.said => " (by the host)".to_owned(),
        Made::Opened | Made::Cleared | Made::Reopened | Made::Fresh => String::new(),
    }
}

#[cfg(test)]
#[path = "review_tests.rs"]
mod tests;
