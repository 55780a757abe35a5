//! Which files are put together, and which are too old. Pure.
//!
//! Files of one day go together, so that old rows can go with their file. A file of half the wanted size is full. Smaller
//! ones are put together once enough of about the same size are there, so that a row is written anew a few times only;
//! all that is left of a day, once it has come to rest.

use weir_model::Time;

/// Files below this many bytes are about the same size; each step above is so many times larger.
const SMALL: u64 = 1 << 19;
const STEP: u64 = 8;
/// A day comes to rest when its youngest file is that old, in milliseconds.
const REST: i64 = 3_600_000;
const DAY: i64 = 86_400_000_000;

/// What the choice is made by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    /// Bytes.
    pub size: u64,
    /// Its latest row.
    pub latest: Time,
    /// When it was made, in milliseconds.
    pub modified: i64,
}

/// How files are put together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// The wanted size.
    pub file_bytes: u64,
    /// How many of about the same size are put together.
    pub at_least: usize,
}

/// Groups of files, by index, each to become one or a few. `now` in milliseconds.
pub(crate) fn merges(files: &[Candidate], sizes: Sizes, now: i64) -> Vec<Vec<usize>> {
    let mut days: std::collections::BTreeMap<i64, Vec<usize>> = std::collections::BTreeMap::new();
    for (i, file) in files.iter().enumerate() {
        days.entry(file.latest.micros().div_euclid(DAY)).or_default().push(i);
    }
    let newest = days.keys().next_back().copied();
    let mut groups = Vec::new();
    for (day, all) in days {
        let youngest = all.iter().map(|i| files[*i].modified).max().unwrap_or(i64::MAX);
        let rests = Some(day) != newest && now.saturating_sub(youngest) > REST;
        let open: Vec<usize> = all.into_iter().filter(|i| files[*i].size < sizes.file_bytes.div_ceil(2)).collect();
        if rests {
            split(files, &open, sizes.file_bytes, &mut groups);
            continue;
        }
        let mut steps: std::collections::BTreeMap<u32, Vec<usize>> = std::collections::BTreeMap::new();
        for i in open {
            steps.entry(step(files[i].size)).or_default().push(i);
        }
        for alike in steps.into_values().filter(|alike| alike.len() >= sizes.at_least.max(2)) {
            split(files, &alike, sizes.file_bytes, &mut groups);
        }
    }
    groups
}

/// How many steps a size is above the smallest.
fn step(size: u64) -> u32 {
    let mut step = 0;
    let mut bound = SMALL;
    while size >= bound {
        step += 1;
        bound = bound.saturating_mul(STEP);
    }
    step
}

/// Groups of two or more that are about one full file.
fn split(files: &[Candidate], all: &[usize], file_bytes: u64, groups: &mut Vec<Vec<usize>>) {
    let mut group = Vec::new();
    let mut bytes = 0u64;
    for i in all {
        if !group.is_empty() && bytes.saturating_add(files[*i].size) > file_bytes {
            groups.push(std::mem::take(&mut group));
            bytes = 0;
        }
        group.push(*i);
        bytes = bytes.saturating_add(files[*i].size);
    }
    groups.push(group);
    groups.retain(|group| group.len() > 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { file_bytes: 32 << 20, at_least: 8 };

    fn file(size: u64, day: i64, modified: i64) -> Candidate {
        Candidate { size, latest: Time(day * DAY + 5), modified }
    }

    #[test]
    fn enough_small_files_of_the_newest_day_are_put_together() {
        let seven = vec![file(4000, 9, 0); 7];
        assert!(merges(&seven, SIZES, 0).is_empty());
        let mut eight = vec![file(4000, 9, 0); 8];
        assert_eq!(merges(&eight, SIZES, 0), [(0..8).collect::<Vec<_>>()]);
        // A much larger one is left alone, and so is one of another day.
        eight.insert(3, file(5 << 20, 9, 0));
        eight.push(file(4000, 8, 0));
        assert_eq!(merges(&eight, SIZES, 0), [vec![0, 1, 2, 4, 5, 6, 7, 8]]);
    }

    #[test]
    fn what_is_left_of_a_day_at_rest_is_put_together_and_full_files_never() {
        let files = [file(4000, 3, 0), file(5 << 20, 3, 10), file(16 << 20, 3, 0), file(1, 4, 0), file(1, 4, 0)];
        assert!(merges(&files, SIZES, REST).is_empty());
        assert_eq!(merges(&files, SIZES, REST + 11), [vec![0, 1]]);
    }

    #[test]
    fn a_group_is_about_one_full_file() {
        let files = vec![file(3 << 20, 9, 0); 25];
        let groups = merges(&files, SIZES, 0);
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [10, 10, 5]);
    }

    /// However small files come, few stay, and a row is written anew a few times only.
    #[test]
    fn files_stay_few_and_rows_are_rewritten_seldom() {
        let mut files: Vec<Candidate> = Vec::new();
        let mut rewritten = 0u64;
        let added = 20_000 * 4000u64;
        for n in 0..20_000i64 {
            files.push(file(4000, 9, n));
            if n % 60 != 59 {
                continue;
            }
            let groups = merges(&files, SIZES, n);
            let sizes: Vec<u64> = groups.iter().map(|g| g.iter().map(|i| files[*i].size).sum()).collect();
            let mut at = 0;
            files.retain(|_| {
                at += 1;
                !groups.iter().any(|group| group.contains(&(at - 1)))
            });
            rewritten += sizes.iter().sum::<u64>();
            files.extend(sizes.into_iter().map(|size| file(size, 9, n)));
            assert!(files.len() < 7 * 4 + 60, "{} files", files.len());
        }
        assert_eq!(files.iter().map(|f| f.size).sum::<u64>(), added);
        assert!(rewritten < 5 * added, "{rewritten} bytes for {added}");
    }
}
