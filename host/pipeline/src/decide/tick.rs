//! Which grid time is due.

use weir_model::batch::Skipped;
use weir_model::ruleset::{CatchUp, Trigger};
use weir_model::{Span, Time};

/// More grid times than this behind are not caught up one by one, whatever `catch_up` says.
pub const MOST_CAUGHT_UP: u64 = 10_000;

/// A batch that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// T.
    pub time: Time,
    /// Grid times between the last T and this one that are left out.
    pub skipped: Option<Skipped>,
}

/// The batch that is due at `now`, when the last one was for `last`. None: nothing is due before [`next`].
pub fn due(trigger: Trigger, catch_up: CatchUp, last: Option<Time>, now: Time) -> Option<Due> {
    let grid = trigger.grid().get();
    let latest = now.floor(grid, std::time::Duration::ZERO);
    let Some(last) = last else {
        return Some(Due { time: latest, skipped: None });
    };
    if latest <= last {
        return None;
    }
    let step = micros(trigger.grid());
    // The first grid time after `last`; `last` may lie off the grid when the trigger was changed.
    let first = Time((last.micros().div_euclid(step) + 1) * step);
    let behind = (latest.micros() - first.micros()) / step;
    let behind = u64::try_from(behind).unwrap_or(0);
    let time = match catch_up {
        CatchUp::Latest => latest,
        CatchUp::All if behind < MOST_CAUGHT_UP => first,
        CatchUp::All => Time(latest.micros() - step * (MOST_CAUGHT_UP as i64 - 1)),
    };
    let count = u64::try_from((time.micros() - first.micros()) / step).unwrap_or(0);
    let skipped = (count > 0).then(|| Skipped { first, last: Time(time.micros() - step), count });
    Some(Due { time, skipped })
}

/// The earliest time at which something is due, when the last batch was for `last`.
pub fn next(trigger: Trigger, last: Option<Time>, now: Time) -> Time {
    let step = micros(trigger.grid());
    match last {
        None => now,
        Some(last) => Time((last.micros().div_euclid(step) + 1) * step).max(now),
    }
}

fn micros(span: Span) -> i64 {
    i64::try_from(span.get().as_micros()).unwrap_or(i64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MINUTE: i64 = 60_000_000;
    const EVERY_MINUTE: Trigger = Trigger::Interval(Span::secs(60));

    fn at(minute: i64) -> Time {
        Time(minute * MINUTE)
    }

    #[test]
    fn the_first_batch_is_for_the_latest_grid_time() {
        let due = due(EVERY_MINUTE, CatchUp::Latest, None, Time(7 * MINUTE + 5)).unwrap();
        assert_eq!(due, Due { time: at(7), skipped: None });
    }

    #[test]
    fn nothing_is_due_before_the_next_grid_time() {
        assert_eq!(due(EVERY_MINUTE, CatchUp::Latest, Some(at(7)), Time(8 * MINUTE - 1)), None);
        assert_eq!(next(EVERY_MINUTE, Some(at(7)), Time(7 * MINUTE + 5)), at(8));
        assert_eq!(due(EVERY_MINUTE, CatchUp::Latest, Some(at(7)), at(8)).unwrap(), Due { time: at(8), skipped: None });
    }

    #[test]
    fn ten_minutes_of_downtime_are_one_batch_and_nine_skipped_ticks() {
        let due = due(EVERY_MINUTE, CatchUp::Latest, Some(at(10)), at(20)).unwrap();
        assert_eq!(due.time, at(20));
        assert_eq!(due.skipped, Some(Skipped { first: at(11), last: at(19), count: 9 }));
    }

    #[test]
    fn or_all_of_them_one_after_the_other() {
        let mut last = at(10);
        let mut seen = Vec::new();
        while let Some(d) = due(EVERY_MINUTE, CatchUp::All, Some(last), at(20)) {
            assert_eq!(d.skipped, None);
            seen.push(d.time);
            last = d.time;
        }
        assert_eq!(seen, (11..=20).map(at).collect::<Vec<_>>());
    }

    #[test]
    fn catching_up_is_bounded() {
        let d = due(EVERY_MINUTE, CatchUp::All, Some(at(0)), at(20_000)).unwrap();
        assert_eq!(d.time, at(10_001));
        assert_eq!(d.skipped, Some(Skipped { first: at(1), last: at(10_000), count: 10_000 }));
    }

    #[test]
    fn a_clock_set_back_makes_nothing_due() {
        assert_eq!(due(EVERY_MINUTE, CatchUp::Latest, Some(at(10)), at(3)), None);
    }
}
