//! Alarms as people read them: one line a change, in columns that stay where they are while a tail goes on.

use weir_model::alarm::{AlarmChange, AlarmEvent, Severity};
use weir_model::zone::Zone;

use super::table::width;
use super::{clean, time};

const RESET: &str = "\x1b[0m";

/// The columns before the message, which ends the line as long as it is.
const HEAD: [&str; 5] = ["TIME", "SEVERITY", "CHANGE", "SCENARIO", "ALARM"];
const CHANGE: usize = 2;
const SCENARIO: usize = 3;
/// The widest word of a severity, and of a change.
const LEAST: [usize; 5] = [0, 8, 9, 0, 0];
/// A text that takes more places is cut in its middle, because its beginning and its end tell most. `--json` has it whole.
const MOST: usize = 48;

/// Writes changes of alarms under each other:
///
/// ```text
/// TIME                  SEVERITY  CHANGE     SCENARIO  ALARM                                 MESSAGE
/// 2026-11-30T12:01:00Z  CRITICAL  opened     acme/s1   lease_errors[Edge-034, 203.0.113.34]  60 errors
/// 2026-11-30T12:02:00Z  WARNING   lowered    acme/s1   lease_errors[Edge-034, 203.0.113.34]  12 errors (was critical)
/// ```
///
/// What is still to come is not known when a line is written: a column grows when something wider comes, and never
/// shrinks.
#[derive(Debug)]
pub struct Lines {
    zone: Zone,
    colour: bool,
    widths: Option<[usize; 5]>,
    /// Of the scenario.
    least: usize,
}

impl Lines {
    /// With times in this zone, and severities in colour or not.
    pub fn new(zone: Zone, colour: bool) -> Self {
        Self { zone, colour, widths: None, least: 0 }
    }

    /// Makes room for what is known to come, so that a column grows less while a tail goes on.
    pub fn expect(&mut self, scenarios: impl Iterator<Item = String>) {
        let widest = scenarios.map(|scenario| width(&cut(&scenario))).max().unwrap_or(0);
        self.least = widest.max(self.least);
    }

    /// The next lines, each with its end; before the first of all the columns' names.
    pub fn text(&mut self, events: &[AlarmEvent]) -> String {
        let rows: Vec<[String; 5]> = events.iter().map(|e| self.cells(e)).collect();
        let mut out = String::new();
        if rows.is_empty() {
            return out;
        }
        let first = self.widths.is_none();
        let mut widths = self.widths.unwrap_or(LEAST);
        widths[SCENARIO] = self.least.max(widths[SCENARIO]);
        let head = first.then(|| HEAD.map(str::to_owned));
        for row in head.iter().chain(&rows) {
            for (wide, cell) in widths.iter_mut().zip(row) {
                *wide = width(cell).max(*wide);
            }
        }
        self.widths = Some(widths);
        if let Some(head) = &head {
            line(&mut out, head, &widths, "", "MESSAGE");
        }
        for (event, row) in events.iter().zip(&rows) {
            let paint = if self.colour { paint(event) } else { "" };
            line(&mut out, row, &widths, paint, &message(event));
        }
        out
    }

    fn cells(&self, event: &AlarmEvent) -> [String; 5] {
        let alarm = &event.alarm;
        let key = clean(&alarm.key.join(", ")).into_owned();
        [
            time(event.time, self.zone),
            alarm.severity.to_string().to_uppercase(),
            event.change.to_string(),
            cut(&alarm.scenario.to_string()),
            cut(&format!("{}[{key}]", alarm.name)),
        ]
    }
}

fn line(out: &mut String, cells: &[String; 5], widths: &[usize; 5], paint: &str, message: &str) {
    for (i, (cell, wide)) in cells.iter().zip(widths).enumerate() {
        // Severity and change.
        let painted = !paint.is_empty() && (1..=CHANGE).contains(&i);
        let (before, after) = if painted { (paint, RESET) } else { ("", "") };
        let blanks = " ".repeat(wide.saturating_sub(width(cell)) + 2);
        out.extend([before, cell, after, &blanks]);
    }
    let kept = out.trim_end_matches(' ').len();
    match message.is_empty() {
        true => out.truncate(kept),
        false => out.push_str(message),
    }
    out.push('\n');
}

/// No wider than [`MOST`].
fn cut(text: &str) -> String {
    if width(text) <= MOST {
        return text.to_owned();
    }
    let half = (MOST - 1) / 2;
    let take = |chars: &mut dyn Iterator<Item = char>, places: usize| {
        let mut left = places;
        let fits = chars.take_while(|c| {
            let wide = width(c.encode_utf8(&mut [0; 4]));
            let fits = wide <= left;
            left = left.saturating_sub(wide);
            fits
        });
        fits.collect::<String>()
    };
    let head = take(&mut text.chars(), MOST - 1 - half);
    let tail: String = take(&mut text.chars().rev(), half).chars().rev().collect();
    format!("{head}…{tail}")
}

fn message(event: &AlarmEvent) -> String {
    let text = clean(&event.alarm.message);
    match (event.change, event.before) {
        (AlarmChange::Escalated | AlarmChange::Lowered, Some(before)) => format!("{text} (was {before})"),
        (AlarmChange::Stale, _) => format!("{text} (nobody can tell whether it holds)"),
        (AlarmChange::Fresh, _) => format!("{text} (no longer stale)"),
        _ => text.into_owned(),
    }
}

fn paint(event: &AlarmEvent) -> &'static str {
    match (event.change, event.alarm.severity) {
        (AlarmChange::Cleared, _) => "\x1b[32m",
        (AlarmChange::Stale, _) => "\x1b[2m",
        (_, Severity::Critical) => "\x1b[1;31m",
        (_, Severity::Major) => "\x1b[31m",
        (_, Severity::Minor | Severity::Warning) => "\x1b[33m",
        (_, Severity::Info) => "",
    }
}
