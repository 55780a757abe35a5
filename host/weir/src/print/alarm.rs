//! Alarms as people read them: one line a change, what is compared in fixed columns.

use weir_model::alarm::{AlarmChange, AlarmEvent, Severity};

use super::clean;

const RESET: &str = "\x1b[0m";

/// One change of an alarm:
/// `2026-11-30T12:01:00Z  CRITICAL  acme/s1  lease_errors[Edge-034, 203.0.113.34]: 60 errors  (opened)`.
pub fn line(event: &AlarmEvent, colour: bool) -> String {
    let alarm = &event.alarm;
    let severity = alarm.severity.to_string().to_uppercase();
    let paint = if colour { paint(event) } else { "" };
    let reset = if paint.is_empty() { "" } else { RESET };
    format!(
        "{}  {paint}{severity:<8}{reset}  {}  {}[{}]: {}  {paint}({}){reset}",
        event.time,
        alarm.scenario,
        alarm.name,
        clean(&alarm.key.join(", ")),
        clean(&alarm.message),
        change(event),
    )
}

fn change(event: &AlarmEvent) -> String {
    match (event.change, event.before) {
        (AlarmChange::Escalated | AlarmChange::Lowered, Some(before)) => {
            format!("{} from {before}", event.change)
        }
        (AlarmChange::Reopened, _) => "opened again".to_owned(),
        (AlarmChange::Stale, _) => "stale: nobody can tell whether it holds".to_owned(),
        (AlarmChange::Fresh, _) => "no longer stale".to_owned(),
        (change, _) => change.to_string(),
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
