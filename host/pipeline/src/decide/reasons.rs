//! Why a batch opened no alarm: facts of what was recorded, in the order in which a batch comes to its result.

use weir_model::batch::{DEAD_LETTERS, Outcome};
use weir_model::review::{Call, Live, Made, QueryTotal, Reason, Review, RuleTotal};

/// The reasons. A batch that told anybody of an alarm needs none, but it may be another than the live run's.
pub fn of(review: &Review) -> Vec<Reason> {
    let mut out = of_live(&review.live);
    if let Outcome::Failed(fault) = &review.outcome {
        out.extend(told_errors(review, &fault.to_string()));
        out.push(Reason::Failed { fault: fault.clone() });
        return out;
    }
    let named = |made: Made| review.alarms.iter().filter(|a| a.said && a.made == made).count() as u64;
    let told = [Made::Opened, Made::Reopened, Made::Escalated, Made::Lowered, Made::Fresh];
    if told.into_iter().any(|made| named(made) > 0) {
        return out;
    }
    let open = named(Made::Updated);
    if open > 0 {
        out.push(Reason::OpenAlready { alarms: open });
        return out;
    }
    let found = of_silence(review, named(Made::Cleared));
    out.extend(found);
    out
}

/// Errors that queries and rules told the detector of a batch that fails, such as what a function threw. One that is the
/// batch's own `fault` is named as such.
fn told_errors(review: &Review, fault: &str) -> Vec<Reason> {
    let queries = review.queries.iter().map(|q| ("query", &q.query, q.errors, &q.error));
    let rules = review.rules.iter().map(|r| ("rule", &r.rule, r.errors, &r.error));
    let told = queries.chain(rules).filter_map(|(what, name, calls, error)| match error {
        Some(error) if calls > 0 && error != fault => {
            Some(Reason::CallError { what: what.to_owned(), name: name.clone(), calls, error: error.clone() })
        }
        _ => None,
    });
    told.collect()
}

fn of_live(live: &Live) -> Vec<Reason> {
    match live {
        Live::Committed { outcome: Outcome::Failed(fault), .. } => vec![Reason::LiveFailed { fault: fault.clone() }],
        Live::Committed { .. } => Vec::new(),
        Live::Skipped { .. } | Live::NotYet { .. } | Live::Never => vec![Reason::NotRun],
    }
}

/// Of a batch that raised nothing.
fn of_silence(review: &Review, cleared: u64) -> Vec<Reason> {
    let mut out = Vec::new();
    if cleared > 0 {
        out.push(Reason::OnlyCleared { alarms: cleared });
    }
    for input in &review.inputs {
        if !input.read {
            out.push(Reason::Unread { stream: input.stream.clone() });
        }
        if input.rows.is_some_and(|extent| extent.rows == 0) {
            let (stream, from, to) = (input.stream.clone(), input.from, input.to);
            out.push(Reason::NoRows { stream, from, to, new_only: input.new_only });
        }
    }
    none_in_range(review, &mut out);
    for total in &review.queries {
        of_query(total, &mut out);
    }
    let found = review.state.as_ref().map_or(0, |state| state.found + state.scanned);
    for total in &review.rules {
        of_rule(total, found, &mut out);
    }
    let aside = review.outputs.iter().find(|(name, _)| name.as_str() == DEAD_LETTERS).map_or(0, |(_, s)| s.total);
    if aside > 0 {
        out.push(Reason::PutAside { rows: aside });
    }
    if review.outcome == Outcome::NoVerdict {
        out.push(Reason::NoVerdict);
    }
    if review.calls.is_empty() {
        out.push(Reason::AskedNothing);
    }
    if out.is_empty() {
        out.push(Reason::Unexplained);
    }
    out
}

/// Ranges without rows, once a query and stream. A stream without any row was named before.
fn none_in_range(review: &Review, out: &mut Vec<Reason>) {
    for call in &review.calls {
        let Call::Query { query, reads, .. } = call else { continue };
        for read in reads.iter().filter(|read| read.rows == Some(0)) {
            let told = out.iter().any(|reason| match reason {
                Reason::NoneInRange { query: of, stream, .. } => of == query && *stream == read.stream,
                Reason::NoRows { stream, from, .. } => *stream == read.stream && *from <= read.from,
                _ => false,
            });
            if told {
                continue;
            }
            let input = review.inputs.iter().find(|input| input.stream == read.stream);
            let latest = input.and_then(|input| input.rows).and_then(|extent| extent.last);
            out.push(Reason::NoneInRange {
                query: query.clone(),
                stream: read.stream.clone(),
                from: read.from,
                to: read.to,
                latest: latest.filter(|latest| *latest < read.from),
            });
        }
    }
}

fn of_query(total: &QueryTotal, out: &mut Vec<Reason>) {
    if let Some(error) = &total.error {
        let (what, name) = ("query".to_owned(), total.query.clone());
        out.push(Reason::CallError { what, name, calls: total.errors, error: error.clone() });
    }
    if total.empty > 0 && total.rows == 0 {
        let params = total.empty_params.clone().unwrap_or_default();
        out.push(Reason::EmptyAnswer { query: total.query.clone(), calls: total.empty, params });
    }
}

/// `found`: values that the detector found in its state.
fn of_rule(total: &RuleTotal, found: u64, out: &mut Vec<Reason>) {
    let rule = || total.rule.clone();
    if total.evaluations == 0 {
        out.push(Reason::RuleNotAsked { rule: rule() });
        return;
    }
    let error = total.error.clone().unwrap_or_default();
    if total.errors > 0 {
        let what = "rule".to_owned();
        out.push(Reason::CallError { what, name: rule(), calls: total.errors, error: error.clone() });
    }
    if total.failed > 0 {
        let evaluations = total.evaluations;
        out.push(Reason::EvaluationsFailed { rule: rule(), failed: total.failed, evaluations, error });
    }
    match total.elements {
        Some(0) if total.calls > total.errors => {
            out.push(Reason::RuleFindsNone { rule: rule(), calls: total.calls - total.errors });
        }
        Some(yes) if yes > 0 && total.truths.is_empty() => {
            out.push(Reason::KeptBack { rule: rule(), field: None, yes, found });
        }
        _ => {}
    }
    for truth in &total.truths {
        let field = truth.field.clone();
        if truth.yes > 0 {
            out.push(Reason::KeptBack { rule: rule(), field: Some(field), yes: truth.yes, found });
        } else if truth.no > 0 {
            out.push(Reason::RuleSaysNo { rule: rule(), field, inputs: truth.no });
        }
    }
}

#[cfg(test)]
#[path = "reasons_tests.rs"]
mod tests;
