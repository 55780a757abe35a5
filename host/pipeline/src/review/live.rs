//! What became of a time in the live run.

use weir_model::batch::{BatchRecord, Commit, Skipped};
use weir_model::review::{Held, Live};
use weir_model::service::ScenarioState;
use weir_model::{BatchId, Fault, RunKey, Time};

use crate::engines::Engines;

/// What holds the scenario, where the batch is its last one.
pub fn held_since(engines: &Engines, commit: &Commit, held: &Held) -> Result<Option<Held>, Fault> {
    let holds = held.fault.is_some() || held.state.is_some_and(|state| state != ScenarioState::Running);
    if !holds {
        return Ok(None);
    }
    let head = engines.ledger.head(&RunKey::live(commit.plan.key.scenario.clone()))?;
    Ok(head.filter(|head| head.plan.time == commit.plan.time).map(|_| held.clone()))
}

/// `record`: the committed batch of this time.
pub fn of(
    engines: &Engines,
    commit: &Commit,
    record: Option<&BatchRecord>,
    replayed: bool,
    held: Held,
) -> Result<Live, Fault> {
    if let Some(record) = record {
        let same = record.outcome == commit.outcome && record.events == commit.events && record.raised == commit.raised;
        return Ok(Live::Committed {
            id: record.plan.id,
            outcome: record.outcome.clone(),
            raised: record.raised,
            events: record.events.len() as u64,
            agrees: replayed.then_some(same),
        });
    }
    let (key, at) = (RunKey::live(commit.plan.key.scenario.clone()), commit.plan.time);
    let head = engines.ledger.head(&key)?;
    let Some(head) = head.filter(|head| head.plan.time >= at) else {
        let last = engines.ledger.head(&key)?.map(|head| head.plan.time);
        return Ok(Live::NotYet { last, state: held.state, fault: held.fault });
    };
    let next = next_after(at, head, |id| engines.ledger.record(&key, id))?;
    Ok(match next.plan.skipped.filter(|skipped| holds(skipped, at)) {
        Some(Skipped { first, last, count }) => Live::Skipped { by: next.plan.id, first, last, count },
        None => Live::Never,
    })
}

/// The first batch after a time that the head is after. Batches that are not kept any more were before it.
pub(crate) fn next_after(
    at: Time,
    head: BatchRecord,
    record: impl Fn(BatchId) -> Result<Option<BatchRecord>, Fault>,
) -> Result<BatchRecord, Fault> {
    let (mut below, mut found) = (BatchId::FIRST.0, head);
    while below < found.plan.id.0 {
        let middle = below + (found.plan.id.0 - below) / 2;
        match record(BatchId(middle))? {
            Some(record) if record.plan.time > at => found = record,
            _ => below = middle + 1,
        }
    }
    Ok(found)
}

/// Whether a time is one of those that were left out.
fn holds(skipped: &Skipped, at: Time) -> bool {
    if at < skipped.first || at > skipped.last {
        return false;
    }
    let span = skipped.last.micros() - skipped.first.micros();
    match i64::try_from(skipped.count.saturating_sub(1)) {
        Ok(steps) if steps > 0 && span % steps == 0 && span > 0 => {
            (at.micros() - skipped.first.micros()) % (span / steps) == 0
        }
        _ => at == skipped.first || at == skipped.last,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn minute(n: i64) -> Time {
        Time(n * 60_000_000)
    }

    /// Batch n is at this minute.
    fn record(n: u64, at: i64) -> BatchRecord {
        let zeros = weir_model::Digest([0; 32]);
        serde_json::from_value(json!({
            "plan": {"key": {"scenario": "t/s", "run": "live"}, "id": n, "time": minute(at), "ruleset": zeros,
                     "attempt": 1, "streams": {}},
            "outcome": "judged", "events": [], "outputs": [], "state_changes": 0, "rows_in": 0, "raised": 0,
            "micros": {"plan": 0, "query": 0, "detect": 0, "rule": 0}, "previous": zeros, "digest": zeros,
        }))
        .unwrap()
    }

    #[test]
    fn the_batch_after_a_time_is_found_whatever_is_kept() {
        let minutes = [1, 2, 5, 6, 9, 20];
        for kept_from in 1..=6 {
            let get = |id: BatchId| {
                let at = minutes[usize::try_from(id.0 - 1).unwrap()];
                Ok((id.0 >= kept_from).then(|| record(id.0, at)))
            };
            for at in 0..20 {
                let expected =
                    (1..=6).filter(|n| *n >= kept_from).find(|n| minutes[usize::try_from(n - 1).unwrap()] > at);
                let found = next_after(minute(at), record(6, 20), get).unwrap();
                assert_eq!(Some(found.plan.id.0), expected, "after minute {at}, kept from {kept_from}");
            }
        }
    }

    #[test]
    fn only_times_of_the_grid_were_left_out() {
        let skipped = |first, last, count| Skipped { first: minute(first), last: minute(last), count };
        let held = |skipped: Skipped| (0..10).filter(|n| holds(&skipped, minute(*n))).collect::<Vec<_>>();
        assert_eq!(held(skipped(3, 3, 1)), [3]);
        assert_eq!(held(skipped(2, 8, 4)), [2, 4, 6, 8]);
        assert_eq!(held(skipped(2, 8, 7)), [2, 3, 4, 5, 6, 7, 8]);
        assert!(!holds(&skipped(2, 8, 4), Time(minute(4).0 + 1)));
    }
}
