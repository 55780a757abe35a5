//! Reasons as sentences.

use weir_model::fault::Fault;
use weir_model::review::{Live, Reason, Review};
use weir_model::service::ScenarioState;

use super::Shows;
use crate::print::count;

/// One of a review's reasons.
pub(super) fn text(review: &Review, reason: &Reason, shows: Shows) -> String {
    match reason {
        Reason::NotRun => not_run(review, shows).unwrap_or_default(),
        Reason::LiveFailed { fault } => format!("the live batch failed, and nobody judged: {fault}"),
        Reason::Failed { fault } => format!("the batch fails: {fault}"),
        Reason::Unread { stream } => {
            format!("the source of {stream} was not read to its end: rows may be missing, and nothing clears")
        }
        Reason::NoRows { stream, new_only: true, .. } => format!("stream {stream} has no new row"),
        Reason::NoRows { stream, from, to, .. } => {
            format!("stream {stream} has no row from {} to {}", shows.time(*from), shows.time(*to))
        }
        Reason::NoneInRange { query, stream, from, to, latest } => {
            let latest = latest.map_or_else(String::new, |at| format!("; the latest row is of {}", shows.time(at)));
            let (from, to) = (shows.time(*from), shows.time(*to));
            format!("query {query} looks at {stream} from {from} to {to}, and there is no row{latest}")
        }
        Reason::EmptyAnswer { query, calls, params } => {
            let with = if params.is_empty() { String::new() } else { format!(", with {}", shows.values(params)) };
            format!("query {query} answered no row{}{with}", times(*calls))
        }
        Reason::CallError { what, name, calls, error } => {
            format!("{what} {name} answered an error{}: {error}", times(*calls))
        }
        Reason::EvaluationsFailed { rule, failed, evaluations, error } => {
            format!("rule {rule} failed on {failed} of {}: {error}", count(*evaluations, "input"))
        }
        Reason::RuleSaysNo { rule, field, inputs } => {
            format!("rule {rule} answered {field} = false for {}", every(*inputs))
        }
        Reason::RuleFindsNone { rule, calls } => format!("rule {rule} answered an empty array{}", times(*calls)),
        Reason::RuleNotAsked { rule } => format!("rule {rule} had nothing to judge"),
        Reason::KeptBack { rule, field, yes, found } => {
            let said = match field {
                Some(field) => format!("answered {field} = true for {}", count(*yes, "input")),
                None => format!("answered {}", count(*yes, "element")),
            };
            let state = match found {
                0 => String::new(),
                n => format!("; it found {} in its state", count(*n, "value")),
            };
            format!("rule {rule} {said}, and the detector raised nothing of it{state}")
        }
        Reason::PutAside { rows } => {
            format!("{} could not be judged and became dead letters", count(*rows, "row"))
        }
        Reason::NoVerdict => "the detector says that it could not judge".to_owned(),
        Reason::OnlyCleared { alarms } => format!("the detector cleared {} and raised none", count(*alarms, "alarm")),
        Reason::OpenAlready { alarms: 1 } => {
            "the alarm that was raised is open already: its count moves, and nobody is told again".to_owned()
        }
        Reason::OpenAlready { alarms } => {
            format!(
                "the {alarms} alarms that were raised are open already: their counts move, and nobody is told again"
            )
        }
        Reason::AskedNothing => "the detector asked for no query, no rule and no rows".to_owned(),
        Reason::Unexplained => "the detector raised nothing, and nothing of what it asked for says why".to_owned(),
    }
}

/// What keeps a scenario from ticking, and what lets it go on. None: nothing is known to.
pub(super) fn holds(
    review: &Review,
    state: Option<ScenarioState>,
    fault: Option<&Fault>,
    shows: Shows,
) -> Option<String> {
    let id = &review.plan.key.scenario;
    let why = fault.map_or_else(String::new, |fault| format!(": {fault}"));
    match state {
        Some(ScenarioState::Paused) => {
            let since = review.paused.map_or_else(String::new, |at| format!(" since {}", shows.time(at)));
            Some(format!("the scenario is paused{since}; 'weir resume {id}' lets it go on{why}"))
        }
        Some(ScenarioState::Parked) => {
            Some(format!("the scenario is parked until it is changed or 'weir resume {id}'{why}"))
        }
        Some(ScenarioState::Stopped) => Some(format!("the scenario is stopped{why}")),
        Some(ScenarioState::Running) | None => fault.map(|fault| format!("the scenario does not get on: {fault}")),
    }
}

fn times(calls: u64) -> String {
    if calls == 1 { String::new() } else { format!(" each of {calls} times") }
}

fn every(inputs: u64) -> String {
    if inputs == 1 { "its one input".to_owned() } else { format!("all of {inputs} inputs") }
}

/// Why the live run has no batch at T. None: it has one.
pub(super) fn not_run(review: &Review, shows: Shows) -> Option<String> {
    let at = shows.time(review.plan.time);
    let none = format!("the live run has no batch at {at}");
    let off_grid = match review.every {
        Some(every) if !review.on_grid() => format!("that is no time of its trigger, which is every {every}"),
        _ => String::new(),
    };
    Some(match &review.live {
        Live::Committed { .. } => return None,
        Live::Skipped { by, first, last, count: n } => format!(
            "{none}: it did not tick then (the host was down, or the scenario paused or parked), and batch {} left out {} \
             from {} to {}",
            by.0,
            count(*n, "tick"),
            shows.time(*first),
            shows.time(*last)
        ),
        Live::NotYet { .. } | Live::Never if !off_grid.is_empty() => format!("{none}: {off_grid}"),
        Live::NotYet { last, state, fault } => {
            let last = match last {
                Some(last) => format!("its last one is of {}", shows.time(*last)),
                None => "it has had none".to_owned(),
            };
            let holds = holds(review, *state, fault.as_ref(), shows).or_else(|| match state {
                None => Some("no host is running".to_owned()),
                // Batches are due at T, and it is after T.
                Some(_) if review.every.is_some() => {
                    Some("it is due, and waits for its streams or its turn".to_owned())
                }
                Some(_) => Some("the scenario waits for its trigger".to_owned()),
            });
            format!("{none} yet: {}{last}", holds.map_or_else(String::new, |why| format!("{why}; ")))
        }
        Live::Never => format!("{none}: it is before its first batch, or before what the ledger keeps"),
    })
}
