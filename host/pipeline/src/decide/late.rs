//! Lateness: a pure function of a row, of when its source took it in, and of the rows of its own partition before it.

use std::time::Duration;

use weir_model::Time;
use weir_model::stream::StreamDef;

/// What becomes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// It is used.
    Kept,
    /// It comes more than the watermark after a later row.
    Late,
    /// It says to have happened further after it was taken in than can be: a device's clock is wrong.
    Ahead,
}

/// How much a row may be out of order.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// How long before the latest row of its partition.
    pub lateness: Duration,
    /// The latest event time that can be; none where nobody knows when the rows were taken in.
    pub until: Option<Time>,
}

impl Bounds {
    /// Of rows of a stream that were taken in at `taken`.
    pub fn of(def: &StreamDef, taken: Option<Time>) -> Self {
        Self { lateness: def.watermark.get(), until: taken.map(|at| at.plus(def.ahead().get())) }
    }
}

/// Judges rows. `latest` is the latest event time of the partition before the first row, and after the call before the next
/// one; rows that are ahead do not move it, or those that come after them on time would be late.
pub fn judge(times: &[i64], bounds: Bounds, latest: &mut Option<Time>) -> Vec<Row> {
    let mut out = Vec::with_capacity(times.len());
    for &t in times {
        let t = Time(t);
        let row = if bounds.until.is_some_and(|until| t > until) {
            Row::Ahead
        } else if latest.is_some_and(|max| t < max.minus(bounds.lateness)) {
            Row::Late
        } else {
            Row::Kept
        };
        out.push(row);
        if row == Row::Kept && latest.is_none_or(|max| t > max) {
            *latest = Some(t);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_late_against_the_rows_before_it_only() {
        let mut latest = None;
        let s = 1_000_000;
        let bounds = Bounds { lateness: Duration::from_secs(60), until: None };
        let rows = judge(&[10 * s, 100 * s, 40 * s, 39 * s, 101 * s, 40 * s], bounds, &mut latest);
        assert_eq!(rows, [Row::Kept, Row::Kept, Row::Kept, Row::Late, Row::Kept, Row::Late]);
        assert_eq!(latest, Some(Time(101 * s)));
    }

    #[test]
    fn a_row_that_is_ahead_makes_no_other_late() {
        let (mut latest, s) = (None, 1_000_000);
        let bounds = Bounds { lateness: Duration::from_secs(60), until: Some(Time(130 * s)) };
        let rows = judge(&[100 * s, 131 * s, i64::MAX, 99 * s, 130 * s, 100 * s, i64::MIN], bounds, &mut latest);
        use Row::{Ahead, Kept, Late};
        assert_eq!(rows, [Kept, Ahead, Ahead, Kept, Kept, Kept, Late]);
        assert_eq!(latest, Some(Time(130 * s)));
    }

    #[test]
    fn cutting_the_rows_differently_changes_nothing() {
        let rows: Vec<i64> = (0..200).map(|i| (i * 7_919) % 100 * 1_000_000).collect();
        let bounds = Bounds { lateness: Duration::from_secs(30), until: Some(Time(90_000_000)) };
        let mut whole = None;
        let expected = judge(&rows, bounds, &mut whole);
        for cut in [1, 3, 50, 199] {
            let mut latest = None;
            let got: Vec<Row> = rows.chunks(cut).flat_map(|c| judge(c, bounds, &mut latest)).collect();
            assert_eq!((got, latest), (expected.clone(), whole));
        }
    }
}
