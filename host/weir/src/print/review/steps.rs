//! Rows that alarms name, by the step that answered them.

use weir_model::alarm::Because;
use weir_model::review::{Answered, Call, Review};

/// `query counts (step 1) row 3`: a detector names the k-th answer of a query or rule, people look for the step.
pub(super) fn because(review: &Review, because: &Because) -> String {
    let Because { source, row } = because;
    let (what, k) = match source.rsplit_once('#') {
        Some((what, k)) => (what, k.parse().ok()),
        None => (source.as_str(), Some(1)),
    };
    let Some((kind, name)) = what.split_once(':') else { return format!("{source} row {row}") };
    let answers = review.calls.iter().zip(1..).filter(|(call, _)| answered(call, kind, name));
    let step: Option<usize> = k.and_then(|k: usize| answers.map(|(_, step)| step).nth(k.checked_sub(1)?));
    match (step, k) {
        (Some(step), _) => format!("{kind} {name} (step {step}) row {row}"),
        // An output is no step, and of many calls the last ones are not shown.
        (None, Some(k)) if k > 1 => format!("{kind} {name} (its answer {k}) row {row}"),
        _ => format!("{kind} {name} row {row}"),
    }
}

/// Whether a call has answered rows of this name. One that answered an error has no number.
fn answered(call: &Call, of: &str, name: &str) -> bool {
    let (kind, called, answer) = match call {
        Call::Input { stream, answer } => ("input", stream, answer),
        Call::Query { query, answer, .. } => ("query", query, answer),
        Call::Rule { rule, answer, .. } => ("rule", rule, answer),
    };
    kind == of && called == name && matches!(answer, Answered::Rows(_))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::testing::{of, review};

    #[test]
    fn a_row_is_named_by_the_step_that_answered_it() {
        let mut found = review(json!("judged"));
        // 1 query counts, 2 rule 1-2, 3 query none: an error
        let again = found.calls[0].clone();
        let mut failed = again.clone();
        if let Call::Query { answer, .. } = &mut failed {
            *answer = Answered::Error("x".to_owned());
        }
        found.calls.extend([failed, again]);
        let input = json!({"call": "input", "stream": "syslog", "answer": {"rows": {
            "columns": [], "types": [], "rows": [], "numbers": [], "total": 4}}});
        found.calls.push(of(input));
        let told = |source: &str| because(&found, &Because { source: source.to_owned(), row: 3 });
        for (source, text) in [
            ("query:counts#1", "query counts (step 1) row 3"),
            // the fourth step answered an error, which has no number
            ("query:counts#2", "query counts (step 5) row 3"),
            ("query:counts#3", "query counts (its answer 3) row 3"),
            ("rule:1-2#1", "rule 1-2 (step 2) row 3"),
            ("input:syslog", "input syslog (step 6) row 3"),
            ("output:s1_results", "output s1_results row 3"),
            ("query:counts#0", "query counts row 3"),
            ("elsewhere", "elsewhere row 3"),
        ] {
            assert_eq!(told(source), text);
        }
    }
}
