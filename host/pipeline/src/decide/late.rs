//! Lateness: a pure function of a row's own partition before it.

use std::time::Duration;

use weir_model::Time;

/// Marks the rows that come too late: those more than `lateness` before the latest event time that any earlier row of
/// the partition has. `latest` is that time before the first row, and after the call before the next one.
pub fn mark(times: &[i64], lateness: Duration, latest: &mut Option<Time>) -> Vec<bool> {
    let mut out = Vec::with_capacity(times.len());
    for &t in times {
        let t = Time(t);
        let late = latest.is_some_and(|max| t < max.minus(lateness));
        out.push(late);
        if !late && latest.is_none_or(|max| t > max) {
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
        let late = mark(&[10 * s, 100 * s, 40 * s, 39 * s, 101 * s, 40 * s], Duration::from_secs(60), &mut latest);
        assert_eq!(late, [false, false, false, true, false, true]);
        assert_eq!(latest, Some(Time(101 * s)));
    }

    #[test]
    fn cutting_the_rows_differently_changes_nothing() {
        let rows: Vec<i64> = (0..200).map(|i| (i * 7_919) % 100 * 1_000_000).collect();
        let lateness = Duration::from_secs(30);
        let mut whole = None;
        let expected = mark(&rows, lateness, &mut whole);
        for cut in [1, 3, 50, 199] {
            let mut latest = None;
            let got: Vec<bool> = rows.chunks(cut).flat_map(|c| mark(c, lateness, &mut latest)).collect();
            assert_eq!((got, latest), (expected.clone(), whole));
        }
    }
}
