//! What people and programs see. Everything here is a pure function of an answer; [`Out`] is the only thing that writes.

pub mod alarm;
pub mod progress;
pub mod report;
pub mod review;
pub mod rows;
pub mod spark;
pub mod status;
mod table;

use std::borrow::Cow;
use std::fmt::{Arguments, Display};
use std::io::{self, Write};

use serde::Serialize;
use serde_json::json;
use weir_model::fault::Problem;
use weir_model::time::Time;
use weir_model::zone::Zone;

use crate::exit::Failure;
pub use table::{Align, Table};

/// Where a command prints.
pub struct Out<'a> {
    /// Answers.
    pub stdout: &'a mut dyn Write,
    /// Everything else.
    pub stderr: &'a mut dyn Write,
    /// Answers are JSON: one object, or one object a line.
    pub json: bool,
    /// Answers go to a terminal that shows colours.
    pub colour: bool,
    /// In which zone answers for people show times.
    pub zone: Zone,
}

impl Out<'_> {
    /// A line of an answer for people.
    pub fn line(&mut self, line: Arguments<'_>) -> io::Result<()> {
        writeln!(self.stdout, "{line}")
    }
    /// An object of an answer for programs.
    pub fn object(&mut self, object: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut *self.stdout, object)?;
        writeln!(self.stdout)
    }
    /// A table for people.
    pub fn table(&mut self, table: &Table) -> io::Result<()> {
        self.stdout.write_all(table.to_string().as_bytes())
    }
    /// Something beside the answer.
    pub fn note(&mut self, note: Arguments<'_>) -> io::Result<()> {
        writeln!(self.stderr, "weir: {note}")
    }

    /// Says why a command failed. What cannot be said any more is not said.
    pub fn failure(&mut self, failure: &Failure) {
        let _ = if self.json { self.failure_object(failure) } else { self.failure_text(failure) };
    }

    fn failure_object(&mut self, failure: &Failure) -> io::Result<()> {
        let object = match failure {
            Failure::Fault(fault) => json!({"fault": fault}),
            Failure::Config(problems) => json!({"problems": problems}),
            Failure::Problems | Failure::Print(_) => return Ok(()),
            other => json!({"error": other.to_string()}),
        };
        writeln!(self.stderr, "{object}")
    }

    fn failure_text(&mut self, failure: &Failure) -> io::Result<()> {
        match failure {
            Failure::Fault(fault) => {
                let place = [&fault.file, &fault.field];
                let place: Vec<&str> = place.into_iter().flatten().map(String::as_str).collect();
                let fix = fault.fix.as_deref().unwrap_or_default();
                self.trouble("error: ", &place, &fault.message, fix)
            }
            Failure::Config(problems) => problems.iter().try_for_each(|p| problem(self.stderr, "error: ", p)),
            Failure::Problems | Failure::Print(_) => Ok(()),
            other => writeln!(self.stderr, "error: {other}"),
        }
    }

    fn trouble(&mut self, lead: &str, place: &[&str], what: &str, fix: &str) -> io::Result<()> {
        trouble(self.stderr, lead, place, what, fix)
    }
}

/// A problem on one line, its fix on the next.
pub(crate) fn problem(to: &mut dyn Write, lead: &str, problem: &Problem) -> io::Result<()> {
    let place = [problem.file.as_str(), problem.field.as_str()];
    trouble(to, lead, &place, &problem.message, &problem.fix)
}

fn trouble(to: &mut dyn Write, lead: &str, place: &[&str], what: &str, fix: &str) -> io::Result<()> {
    write!(to, "{lead}")?;
    for part in place.iter().filter(|p| !p.is_empty()) {
        write!(to, "{}: ", clean(part))?;
    }
    writeln!(to, "{}", clean(what))?;
    if fix.is_empty() {
        return Ok(());
    }
    writeln!(to, "{:>width$}fix: {}", "", clean(fix), width = lead.len().max(4))
}

/// Text from a tenant as a terminal may have it: what would move the cursor, change colours or reverse the direction of
/// writing becomes a visible mark. Line breaks too, because a line is a line.
pub fn clean(text: &str) -> Cow<'_, str> {
    let bad = |c: char| {
        c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if text.contains(bad) { Cow::Owned(text.replace(bad, "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// An instant as people read it, wherever one is shown: RFC 3339 with the zone's offset, in UTC with `Z`. So it can be given
/// back to a command as it stands. What programs read is in UTC and does not come here.
pub fn time(at: Time, zone: Zone) -> String {
    zone.rfc3339(at)
}

/// `2 rows`, `1 row`.
pub(crate) fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A value, or nothing.
pub(crate) fn maybe(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| v.to_string())
}

#[cfg(test)]
mod tests;
