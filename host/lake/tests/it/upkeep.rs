//! Upkeep: few files, no old rows, nothing on the disk that nobody can read, and never a row lost or doubled for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use deltalake::DeltaTableBuilder;
use weir_model::port::{Append, Lake, Upkeep, Upkept};
use weir_model::{Fault, FaultKind, NoFaults, Time};

use crate::replace::{Row, replace, rows};
use crate::support::*;

const HOUR: Duration = Duration::from_secs(3600);
const DAY_LONG: Duration = Duration::from_secs(86_400);

fn upkeep(now: Time) -> Upkeep {
    Upkeep { now, column: Some("at".to_owned()), keep: None, merge: true }
}

impl House {
    fn upkeep(&self, what: Upkeep) -> Result<Upkept, Fault> {
        self.runtime.block_on(self.lake.upkeep(&name("acme"), &name("kept"), what))
    }
    /// Log entries that stand for themselves: what opening the table reads beside one checkpoint.
    fn entries_above_checkpoint(&self) -> usize {
        let log = self.place().join("_delta_log");
        let hint = std::fs::read_to_string(log.join("_last_checkpoint")).unwrap();
        let hint: serde_json::Value = serde_json::from_str(&hint).unwrap();
        let checkpoint = hint["version"].as_u64().unwrap();
        let names = std::fs::read_dir(log).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let versions = names.filter_map(|n| n.strip_suffix(".json")?.parse::<u64>().ok());
        versions.filter(|v| *v > checkpoint).count()
    }
    /// The same once the checkpoint that is under way beside the appends has come, which takes as long as the machine is
    /// busy; at most ten seconds later.
    fn entries_at_rest(&self, most: usize) -> usize {
        for _ in 0..100 {
            if self.entries_above_checkpoint() <= most {
                break;
            }
            // Real time for the writer's own tasks.
            #[allow(clippy::disallowed_methods)]
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        self.entries_above_checkpoint()
    }
}

/// About the table as Python sees it, and its numbers.
fn outside(house: &House) -> (serde_json::Value, Vec<i64>) {
    let (about, rows) = python(&house.place());
    let mut numbers: Vec<i64> = rows.iter().map(|r| r["n"].as_i64().unwrap()).collect();
    numbers.sort_unstable();
    (about, numbers)
}

/// 2,000 small appends by two apps with an upkeep every fifty, on a clock of the test's own: files stay few however many
/// there were, and what a reader opens stays as small as it was. The process ends in the middle of some upkeeps.
#[test]
fn two_thousand_small_appends_leave_few_files_and_every_row_once() {
    const APPENDS: i64 = 2000;
    let faults = Arc::new(FailOnce::default());
    let mut house = House::keeping(faults.clone(), 100, HOUR);
    let mut table = house.kept();
    let (mut most, mut merged, mut ended) = (0, 0, 0);
    let mut opened = BTreeMap::new();
    for n in 1..=APPENDS {
        let item = |app: &str| Append { app: app.to_owned(), version: n, rows: rows(&[(Some("x"), Some(n), n)]) };
        let app = if n % 2 == 0 { "even" } else { "odd" };
        house.runtime.block_on(table.append(vec![item(app)])).unwrap();
        if n % 50 != 0 {
            continue;
        }
        // Six hours of rows an upkeep: the day changes now and then.
        let now = at(n * 6);
        if n % 400 == 0 {
            let point = if n % 800 == 0 { "upkeep.entry-put" } else { "upkeep.file-written" };
            *faults.0.lock().unwrap() = Some(point);
            let fault = house.upkeep(upkeep(now)).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Injected);
            ended += 1;
            house.reopen();
            table = house.kept();
            // What is given again after such an end is known.
            house.runtime.block_on(table.append(vec![item(app)])).unwrap();
        }
        let kept = house.upkeep(upkeep(now)).unwrap();
        most = most.max(kept.files_before);
        merged += kept.merged_files;
        assert_eq!(kept.rows, u64::try_from(n).unwrap());
        if n % 500 == 0 {
            opened.insert(n, (kept.files, house.entries_at_rest(2 * 100)));
        }
    }
    assert_eq!(ended, 5);
    assert!(most <= 70, "{most} files at most");
    assert!(merged >= 1900, "{merged} files were put together");
    // What opening reads: files of the table, and log entries above the checkpoint. Flat in the number of appends.
    assert!(opened.values().all(|(files, entries)| *files <= 20 && *entries <= 2 * 100), "{opened:?}");
    let expected: Vec<i64> = (1..=APPENDS).collect();
    assert_eq!(house.numbers(), expected);
    let (about, numbers) = outside(&house);
    assert_eq!(numbers, expected);
    assert_eq!((about["txn"]["even"].as_i64(), about["txn"]["odd"].as_i64()), (Some(2000), Some(1999)));
    assert!(about["files"].as_u64().unwrap() <= 20, "{about}");
    house.reopen();
    let table = house.kept();
    let held = |app| house.runtime.block_on(table.held(app)).unwrap();
    assert_eq!((held("even"), held("odd"), held("none")), (Some(2000), Some(1999), None));
}

#[test]
fn an_upkeep_that_is_cut_short_loses_and_doubles_nothing() {
    for point in ["upkeep.file-written", "upkeep.entry-put"] {
        let faults = Arc::new(FailOnce::default());
        let mut house = House::with(faults.clone(), 100);
        let table = house.kept();
        for n in 1..=9 {
            house.add(&table, n, &[(Some("x"), Some(0), n), (None, None, -n)]).unwrap();
        }
        *faults.0.lock().unwrap() = Some(point);
        assert_eq!(house.upkeep(upkeep(at(0))).unwrap_err().kind, FaultKind::Injected);
        let mut expected: Vec<i64> = (-9..=9).filter(|n| *n != 0).collect();
        assert_eq!(house.numbers(), expected, "{point}");
        house.reopen();
        let table = house.kept();
        house.add(&table, 10, &[(Some("x"), Some(0), 10)]).unwrap();
        expected.push(10);
        let kept = house.upkeep(upkeep(at(0))).unwrap();
        let landed = point == "upkeep.entry-put";
        assert_eq!((kept.files, kept.merged_files), if landed { (2, 0) } else { (1, 10) }, "{point}");
        assert_eq!(outside(&house).1, expected);
        // The clock of the test is far behind the files' own: nothing is old enough to be taken away.
        assert_eq!(kept.removed_files, 0);
        // What the cut left over goes like what was put together: nobody can read it.
        let before = house.files().len();
        let kept = house.upkeep(upkeep(wall().plus(HOUR))).unwrap();
        assert_eq!(before - kept.removed_files, house.files().len());
        assert_eq!(house.files().len(), kept.files);
        assert_eq!(outside(&house).1, expected);
    }
}

#[test]
fn rows_go_with_their_file_once_the_youngest_of_it_is_too_old() {
    let house = House::keeping(Arc::new(NoFaults), 100, HOUR);
    let table = house.kept();
    let day = |d: i64| Some(d * 1440);
    for d in 0..6 {
        let row: Row = (Some("x"), day(d), d);
        house.add(&table, d + 1, &[row]).unwrap();
    }
    house.add(&table, 7, &[(Some("x"), day(0), 100), (Some("x"), day(5), 101)]).unwrap();
    let keep = |days: u32, now| Upkeep { keep: Some(DAY_LONG * days), merge: false, ..upkeep(now) };
    let kept = house.upkeep(keep(3, at(5 * 1440))).unwrap();
    assert_eq!((kept.expired_files, kept.expired_rows, kept.files), (2, 2, 5));
    assert_eq!(house.numbers(), [2, 3, 4, 5, 100, 101], "exactly three days old is kept; 100 shares a file with 101");
    assert_eq!(outside(&house).1, [2, 3, 4, 5, 100, 101]);
    // Without an age nothing goes, and without a column the time of writing counts.
    assert_eq!(house.upkeep(Upkeep { merge: false, ..upkeep(at(1_000_000)) }).unwrap().expired_files, 0);
    let written = Upkeep { column: None, ..keep(1, wall()) };
    assert_eq!(house.upkeep(written.clone()).unwrap().expired_files, 0);
    let written = Upkeep { now: wall().plus(2 * DAY_LONG), ..written };
    assert_eq!(house.upkeep(written).unwrap().expired_rows, 6);
    assert_eq!(outside(&house).1, Vec::<i64>::new());
    assert_eq!(house.runtime.block_on(table.held("a")).unwrap(), Some(7));
}

#[test]
fn files_stay_while_an_older_version_may_be_read() {
    let house = House::keeping(Arc::new(NoFaults), 100, HOUR);
    let table = house.kept();
    (1..=8).for_each(|n| house.add(&table, n, &[(Some("x"), Some(0), n)]).unwrap());
    let kept = house.upkeep(upkeep(wall())).unwrap();
    assert_eq!((kept.merged_files, kept.files, kept.removed_files), (8, 1, 0));
    assert_eq!(house.files().len(), 9);
    // Version 8 is the last one before; another reader can still have it.
    assert_eq!(readable(&house, 8), Some(8));
    assert_eq!(house.upkeep(upkeep(wall().plus(HOUR / 2))).unwrap().removed_files, 0);
    assert_eq!(house.upkeep(upkeep(wall().plus(HOUR * 2))).unwrap().removed_files, 8);
    assert_eq!(house.files().len(), 1);
    assert_eq!(outside(&house).1, (1..=8).collect::<Vec<_>>());
}

/// How many files a version has, if its log goes back so far and all of them are there.
fn readable(house: &House, version: u64) -> Option<usize> {
    let url = url::Url::from_directory_path(house.place()).unwrap();
    let builder = DeltaTableBuilder::from_url(url).unwrap().with_version(version);
    let old = house.runtime.block_on(builder.load()).ok()?;
    let files: Vec<String> = old.get_file_uris().unwrap().collect();
    files.iter().all(|f| std::path::Path::new(f.trim_start_matches("file://")).exists()).then_some(files.len())
}

/// Batches that were pinned to a version can be replayed for a week, however short others keep theirs.
#[test]
fn versions_that_batches_are_pinned_to_stay_for_the_replay_horizon() {
    for pinned in [false, true] {
        // Without any history of its own: every checkpoint takes the entries below it away.
        let house = House::with(Arc::new(NoFaults), 5);
        let table = house.kept();
        if pinned {
            let manifest = "[queries.q]\nfile = \"q.sql\"\n[tables.reference]\nlake = \"kept\"\n\
                            schema = { who = \"text\", n = \"int64\" }\n";
            house.plan(&ruleset(manifest, &[], &[("q.sql", "SELECT who, n FROM reference")]));
        }
        (1..=8).for_each(|n| house.add(&table, n, &[(Some("x"), Some(0), n)]).unwrap());
        let begun = std::time::Instant::now();
        let entry = house.place().join("_delta_log/00000000000000000006.json");
        let mut n = 8;
        // Checkpoints are made beside the appends: go on until one has taken version 6 away, or a few were made.
        while entry.exists() && n < if pinned { 60 } else { 10_000 } && begun.elapsed().as_secs() < 60 {
            n += 1;
            house.add(&table, n, &[(Some("x"), Some(0), n)]).unwrap();
            if n % 5 == 0 {
                house.upkeep(upkeep(wall().plus(HOUR))).unwrap();
            }
        }
        assert_eq!(readable(&house, 6), pinned.then_some(6), "after {n} appends");
        if pinned {
            let week = 7 * DAY_LONG;
            assert!(house.upkeep(upkeep(wall().plus(week + HOUR))).unwrap().removed_files > 0);
            assert_eq!(readable(&house, 6), None);
        }
        assert_eq!(house.numbers(), (1..=n).collect::<Vec<_>>());
    }
}

/// Whoever reads a log while entries of it are cleaned up reads it again: an upkeep, a query's and a batch's reading. The
/// appends come from another host's lake, so that every one of them makes this one read the log anew.
#[test]
fn a_log_that_is_cleaned_up_while_it_is_read_is_read_again() {
    let house = House::with(Arc::new(NoFaults), 4);
    let table = house.kept();
    house.add(&table, 1, &[(Some("x"), Some(0), 1)]).unwrap();
    let other = house.beside();
    let looks = std::sync::atomic::AtomicU32::new(0);
    let mut n = 1;
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| {
            let what = Upkeep { merge: false, ..upkeep(at(0)) };
            let (tenant, kept, row) = (name("acme"), name("kept"), rows(&[(Some("x"), Some(0), 1)]));
            while looks.fetch_add(1, std::sync::atomic::Ordering::AcqRel) < 12 {
                let done = house.runtime.block_on(other.upkeep(&tenant, &kept, what.clone())).unwrap();
                house.runtime.block_on(other.fits(&tenant, &kept, row.schema())).unwrap();
                assert!(done.files_before > 0 && done.files >= done.files_before);
            }
        });
        while !reads.is_finished() && n < 5000 {
            n += 1;
            house.add(&table, n, &[(Some("x"), Some(0), n)]).unwrap();
            // Real time for the reader: at full speed it would meet another log each time, however often it looks.
            #[allow(clippy::disallowed_methods)]
            std::thread::sleep(Duration::from_millis(10));
        }
        reads.join().unwrap();
    });
    assert!(readable(&house, 1).is_none(), "entries were cleaned up meanwhile");
    assert_eq!(house.numbers(), (1..=n).collect::<Vec<_>>());
}

#[test]
fn what_others_took_away_lately_stays_on_the_disk_too() {
    let house = House::keeping(Arc::new(NoFaults), 100, HOUR);
    let table = house.kept();
    house.add(&table, 1, &[(Some("x"), Some(0), 1)]).unwrap();
    house.runtime.block_on(async {
        let url = url::Url::from_directory_path(house.place()).unwrap();
        let other = DeltaTableBuilder::from_url(url).unwrap().load().await.unwrap();
        let (other, metrics) = other.delete().await.unwrap();
        assert_eq!((metrics.num_removed_files, other.version()), (1, Some(2)));
    });
    // A stray file of nobody, made now.
    std::fs::write(house.place().join("stray.parquet"), b"left over").unwrap();
    assert_eq!(house.upkeep(upkeep(wall().plus(HOUR / 2))).unwrap().removed_files, 0);
    assert_eq!(house.files().len(), 2);
    assert_eq!(house.upkeep(upkeep(wall().plus(HOUR * 2))).unwrap().removed_files, 2);
    assert_eq!(house.numbers(), Vec::<i64>::new());
}

#[test]
fn a_table_that_others_keep_is_left_alone() {
    let house = House::new();
    std::fs::create_dir_all(house.place()).unwrap();
    house.runtime.block_on(async {
        let url = url::Url::from_directory_path(house.place()).unwrap();
        for n in 0..10 {
            let other = DeltaTableBuilder::from_url(url.clone()).unwrap().build().unwrap();
            let write = other.write(vec![rows(&[(Some("x"), Some(0), n)])]).with_partition_columns(["who"]);
            write.await.unwrap();
        }
    });
    let what = Upkeep { keep: Some(HOUR), ..upkeep(wall().plus(DAY_LONG)) };
    assert_eq!(house.upkeep(what.clone()).unwrap(), Upkept::default());
    assert_eq!(house.numbers(), (0..10).collect::<Vec<_>>());
    let none = house.runtime.block_on(house.lake.upkeep(&name("acme"), &name("absent"), what)).unwrap();
    assert_eq!(none, Upkept::default());
    assert!(!house.folder.path().join("lake/acme/absent").exists());
}

/// Appends, replacements and upkeeps at the same time, at random: a merge whose files were meanwhile replaced is thrown
/// away.
#[test]
fn upkeep_beside_appends_and_replacements_changes_no_row() {
    for seed in 1..=6u64 {
        let house = House::keeping(Arc::new(NoFaults), 20, HOUR);
        let table = house.kept();
        let mut dice = Dice(seed * 0x9e37_79b9);
        let mut list: Vec<Row> = Vec::new();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let mut merged = 0;
        std::thread::scope(|scope| {
            let keeper = scope.spawn(|| {
                let mut merged = 0;
                while !stop.load(std::sync::atomic::Ordering::Acquire) {
                    merged += house.upkeep(upkeep(wall())).unwrap().merged_files;
                }
                merged
            });
            for step in 1..=150i64 {
                let who = ["x", "y", "z"][usize::try_from(dice.below(3)).unwrap()];
                let new: Vec<Row> = (0..3).map(|i| (Some(who), Some(step), step * 10 + i)).collect();
                if dice.below(5) == 0 {
                    house.replace(&table, replace(step, Some(who), None, &new)).unwrap();
                    list.retain(|row| row.0 != Some(who));
                } else {
                    house.add(&table, step, &new).unwrap();
                }
                list.extend(new);
            }
            stop.store(true, std::sync::atomic::Ordering::Release);
            merged = keeper.join().unwrap();
        });
        assert!(merged > 0, "seed {seed}");
        let mut expected: Vec<i64> = list.iter().map(|r| r.2).collect();
        expected.sort_unstable();
        assert_eq!(house.numbers(), expected, "seed {seed}");
        assert_eq!(outside(&house).1, expected, "seed {seed}");
    }
}
