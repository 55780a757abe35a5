//! Rows that take the place of others: all of it or nothing, once, and no file is read that cannot hold one of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use deltalake::DeltaTableBuilder;
use weir_model::columns::timestamp_type;
use weir_model::port::{AdHoc, Append, Lake, Pages, Replace, Table};
use weir_model::{Fault, FaultKind, NoFaults, Whose};

use crate::support::*;

/// A row: whose it is, its minute, its number.
pub type Row = (Option<&'static str>, Option<i64>, i64);

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("who", DataType::Utf8, true),
        Field::new("at", timestamp_type(), true),
        Field::new("n", DataType::Int64, true),
    ]))
}

pub fn rows(rows: &[Row]) -> RecordBatch {
    let minutes = rows.iter().map(|r| r.1.map(|m| at(m).micros()));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter(rows.iter().map(|r| r.0))),
        Arc::new(minutes.collect::<TimestampMicrosecondArray>().with_timezone("UTC")),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.2))),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

pub fn replace(version: i64, who: Option<&str>, minutes: Option<(i64, i64)>, new: &[Row]) -> Replace {
    Replace {
        app: "r".to_owned(),
        version,
        rows: Arc::new(if new.is_empty() { Vec::new() } else { vec![rows(new)] }),
        matching: who.map(|who| ("who".to_owned(), who.to_owned())).into_iter().collect(),
        between: minutes.map(|(from, to)| ("at".to_owned(), at(from), at(to))),
    }
}

impl House {
    pub fn kept(&self) -> Arc<dyn Table> {
        self.runtime.block_on(self.lake.table(&name("acme"), &name("kept"), schema())).unwrap()
    }
    pub fn add(&self, table: &Arc<dyn Table>, version: i64, new: &[Row]) -> Result<(), Fault> {
        let item = Append { app: "a".to_owned(), version, rows: rows(new) };
        self.runtime.block_on(table.append(vec![item]))
    }
    pub fn replace(&self, table: &Arc<dyn Table>, what: Replace) -> Result<(), Fault> {
        self.runtime.block_on(table.replace(what))
    }
    pub fn numbers(&self) -> Vec<i64> {
        let rows = self.lake.query(&name("acme"), "SELECT n FROM kept ORDER BY n", vec![]);
        lines(&rows.unwrap()).iter().map(|n| n.parse().unwrap()).collect()
    }
    pub fn place(&self) -> PathBuf {
        self.folder.path().join("lake/acme/kept")
    }
    /// Files of rows in the folder, whether or not the table has them.
    pub fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.place()).unwrap().map(|e| e.unwrap().path());
        let mut files: Vec<_> = entries.filter(|p| p.extension().is_some_and(|e| e == "parquet")).collect();
        files.sort();
        files
    }
}

/// What Python reads: the numbers, how many files, and how far `r` is.
fn outside(house: &House) -> (Vec<i64>, u64, Option<i64>) {
    let (about, rows) = python(&house.place());
    let mut numbers: Vec<i64> = rows.iter().map(|r| r["n"].as_i64().unwrap()).collect();
    numbers.sort_unstable();
    (numbers, about["files"].as_u64().unwrap(), about["txn"]["r"].as_i64())
}

#[test]
fn rows_of_one_owner_are_replaced_and_all_others_stay() {
    let mut house = House::new();
    let table = house.kept();
    house.add(&table, 1, &[(Some("x"), Some(0), 1), (Some("y"), Some(0), 2), (None, Some(0), 3)]).unwrap();
    house.add(&table, 2, &[(Some("x"), Some(1), 4)]).unwrap();
    house.add(&table, 3, &[(Some("y"), Some(1), 5)]).unwrap();
    house.replace(&table, replace(7, Some("x"), None, &[(Some("x"), Some(9), 10), (Some("x"), None, 11)])).unwrap();
    assert_eq!(house.numbers(), [2, 3, 5, 10, 11]);
    // Given again, also after a restart, and an older one: nothing happens.
    house.replace(&table, replace(7, Some("x"), None, &[])).unwrap();
    house.reopen();
    let table = house.kept();
    house.replace(&table, replace(7, Some("x"), None, &[])).unwrap();
    house.replace(&table, replace(6, Some("y"), None, &[])).unwrap();
    assert_eq!(house.numbers(), [2, 3, 5, 10, 11]);
    // Two files: what stayed of the first one with the new rows, and the third one.
    assert_eq!(outside(&house), (vec![2, 3, 5, 10, 11], 2, Some(7)));
    // No rows: the others are taken away only.
    house.replace(&table, replace(8, Some("y"), None, &[])).unwrap();
    assert_eq!(outside(&house), (vec![3, 10, 11], 1, Some(8)));
    house.add(&table, 4, &[(Some("y"), Some(1), 6)]).unwrap();
    house.replace(&table, replace(9, None, None, &[])).unwrap();
    assert_eq!(outside(&house), (vec![], 0, Some(9)));
}

#[test]
fn a_period_is_replaced_at_its_edges_too() {
    let house = House::new();
    let table = house.kept();
    for minute in 0..10 {
        let n = minute * 10;
        let row = |who, by| (Some(who), Some(minute), n + by);
        house.add(&table, minute + 1, &[row("x", 0), row("y", 1)]).unwrap();
    }
    house.add(&table, 11, &[(Some("x"), None, 500), (Some("x"), Some(3), 501), (Some("x"), Some(20), 502)]).unwrap();
    house.replace(&table, replace(1, Some("x"), Some((3, 5)), &[(Some("x"), Some(4), 1000)])).unwrap();
    let mut expected: Vec<i64> = (0..10).flat_map(|m| [m * 10, m * 10 + 1]).filter(|n| ![30, 40].contains(n)).collect();
    expected.extend([500, 502, 1000]);
    assert_eq!(house.numbers(), expected);
    assert_eq!(outside(&house).0, expected);
    // An empty period takes nothing away.
    house.replace(&table, replace(2, None, Some((5, 5)), &[])).unwrap();
    assert_eq!((house.numbers(), outside(&house).2), (expected, Some(2)));
}

#[test]
fn files_that_statistics_exclude_are_not_read() {
    let mut house = House::new();
    let table = house.kept();
    for minute in 0..20 {
        let who = if minute % 2 == 0 { "x" } else { "y" };
        house.add(&table, minute + 1, &[(Some(who), Some(minute), minute)]).unwrap();
    }
    house.add(&table, 21, &[(Some("x"), Some(10), 100), (Some("y"), Some(10), 101)]).unwrap();
    for restart in [false, true] {
        // All files are away but the one with rows of both: one that is needed would be missed.
        let aside: Vec<(PathBuf, Vec<u8>)> = house
            .files()
            .into_iter()
            .filter(|path| !(holds(path, 100) || holds(path, 200)))
            .map(|path| {
                let bytes = std::fs::read(&path).unwrap();
                std::fs::remove_file(&path).unwrap();
                (path, bytes)
            })
            .collect();
        assert!(aside.len() >= 20);
        if restart {
            house.reopen();
        }
        let table = house.kept();
        let (version, from) = if restart { (2, 6) } else { (1, 8) };
        let new = if restart { 300 } else { 200 };
        house.replace(&table, replace(version, Some("x"), Some((from, 13)), &[(Some("x"), Some(10), new)])).unwrap();
        aside.into_iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    }
    let mut expected: Vec<i64> = (0..20).filter(|m| ![6, 8, 10, 12].contains(m)).collect();
    expected.extend([101, 300]);
    assert_eq!(house.numbers(), expected);
    assert_eq!(outside(&house).0, expected);
    // One that is needed and is not there: an error, and nothing has changed.
    let needed = house.files().into_iter().find(|path| holds(path, 300)).unwrap();
    let bytes = std::fs::read(&needed).unwrap();
    std::fs::remove_file(&needed).unwrap();
    let before = house.files().len();
    let fault = house.replace(&house.kept(), replace(3, Some("y"), Some((10, 11)), &[])).unwrap_err();
    assert_eq!((fault.whose, fault.kind), (Whose::External, FaultKind::Sink));
    assert!(fault.message.contains(needed.file_name().unwrap().to_str().unwrap()), "{fault}");
    assert_eq!(house.files().len(), before, "nothing half-written is left");
    std::fs::write(needed, bytes).unwrap();
    assert_eq!(outside(&house), (expected, 17, Some(2)));
}

/// Whether a file holds the row with this number.
fn holds(path: &std::path::Path, number: i64) -> bool {
    use deltalake::datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    let file = std::fs::File::open(path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    reader.map(|b| b.unwrap()).any(|batch| {
        let numbers = batch.column_by_name("n").unwrap();
        numbers.as_any().downcast_ref::<Int64Array>().unwrap().values().contains(&number)
    })
}

#[test]
fn a_replacement_that_is_cut_short_is_done_once() {
    for (point, landed) in [("sink.file-written", false), ("sink.entry-put", true)] {
        for restart in [false, true] {
            let faults = Arc::new(FailOnce::default());
            let mut house = House::with(faults.clone(), 100);
            let mut table = house.kept();
            house.add(&table, 1, &[(Some("x"), Some(0), 1), (Some("y"), Some(0), 2)]).unwrap();
            let new: &[Row] = &[(Some("x"), Some(0), 3)];
            *faults.0.lock().unwrap() = Some(point);
            let fault = house.replace(&table, replace(1, Some("x"), None, new)).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Injected);
            if restart {
                house.reopen();
                table = house.kept();
            }
            assert_eq!(house.numbers(), if landed { [2, 3] } else { [1, 2] }, "{point}");
            house.replace(&table, replace(1, Some("x"), None, new)).unwrap();
            house.add(&table, 2, &[(Some("x"), Some(1), 4)]).unwrap();
            house.replace(&table, replace(1, Some("x"), None, new)).unwrap();
            assert_eq!(house.numbers(), [2, 3, 4], "{point}, restart {restart}");
            assert_eq!(outside(&house), (vec![2, 3, 4], 2, Some(1)));
        }
    }
}

#[test]
fn other_writers_rows_are_replaced_too() {
    let house = House::new();
    let table = house.kept();
    house.add(&table, 1, &[(Some("x"), Some(0), 1), (Some("y"), Some(0), 2)]).unwrap();
    house.replace(&table, replace(1, Some("x"), None, &[(Some("x"), Some(0), 3)])).unwrap();
    house.runtime.block_on(async {
        let url = url::Url::from_directory_path(house.place()).unwrap();
        let other = DeltaTableBuilder::from_url(url).unwrap().load().await.unwrap();
        let new = rows(&[(Some("x"), Some(0), 4), (Some("y"), Some(0), 5)]);
        other.write(vec![new]).await.unwrap();
    });
    house.replace(&table, replace(2, Some("x"), None, &[(Some("x"), Some(0), 6)])).unwrap();
    assert_eq!(outside(&house).0, [2, 5, 6]);
}

/// The table as another writer made it, with partitions.
fn partitioned(house: &House, new: &[Row]) -> Arc<dyn Table> {
    std::fs::create_dir_all(house.place()).unwrap();
    house.runtime.block_on(async {
        let url = url::Url::from_directory_path(house.place()).unwrap();
        let other = DeltaTableBuilder::from_url(url).unwrap().build().unwrap();
        other.write(vec![rows(new)]).with_partition_columns(["who"]).await.unwrap();
    });
    house.kept()
}

#[test]
fn a_table_that_asks_more_of_a_writer_is_replaced_too() {
    let mut house = House::new();
    let table = partitioned(&house, &[(Some("x"), Some(0), 1), (Some("y"), Some(0), 2), (Some("y"), Some(5), 3)]);
    house.replace(&table, replace(1, Some("y"), Some((0, 2)), &[(Some("y"), Some(1), 4)])).unwrap();
    house.replace(&table, replace(1, Some("y"), None, &[])).unwrap();
    assert_eq!(house.numbers(), [1, 3, 4]);
    // Nothing to take away: remembered all the same.
    house.replace(&table, replace(2, Some("z"), None, &[])).unwrap();
    assert_eq!(house.runtime.block_on(table.held("r")).unwrap(), Some(2));
    house.replace(&table, replace(3, Some("x"), None, &[])).unwrap();
    house.reopen();
    let table = house.kept();
    house.replace(&table, replace(3, None, None, &[])).unwrap();
    let (numbers, _, version) = outside(&house);
    assert_eq!((numbers, version), (vec![3, 4], Some(3)));
}

/// Pages that are only in memory one at a time.
#[derive(Debug)]
struct Large(RecordBatch, usize);
impl Pages for Large {
    fn schema(&self) -> Option<SchemaRef> {
        Some(self.0.schema())
    }
    fn each(&self, take: &mut dyn FnMut(RecordBatch) -> Result<(), Fault>) -> Result<(), Fault> {
        (0..self.1).try_for_each(|_| take(self.0.clone()))
    }
}

/// 600 MiB: a table of our own takes them a page at a time, one that is not written so refuses them.
#[test]
fn rows_that_do_not_fit_in_memory_are_refused_only_where_they_must_be_there_together() {
    const PAGE: usize = 8 << 20;
    let who = StringArray::from(vec!["x".repeat(PAGE)]);
    let page = rows(&[(Some("x"), Some(0), 1)]);
    let columns = vec![Arc::new(who) as ArrayRef, page.column(1).clone(), page.column(2).clone()];
    let large = Arc::new(Large(RecordBatch::try_new(schema(), columns).unwrap(), 75));
    for ours in [true, false] {
        let house = House::new();
        let table = if ours { house.kept() } else { partitioned(&house, &[(Some("y"), Some(0), 2)]) };
        if ours {
            house.add(&table, 1, &[(Some("y"), Some(0), 2)]).unwrap();
        }
        let done = house.replace(&table, Replace { rows: large.clone(), ..replace(1, None, None, &[]) });
        if ours {
            done.unwrap();
            assert_eq!(house.numbers(), [1; 75]);
            continue;
        }
        let fault = done.unwrap_err();
        assert_eq!((fault.whose, fault.kind), (Whose::Tenant, FaultKind::Output));
        let told = fault.to_string();
        assert!(told.contains("more than 536870912 bytes") && told.contains("a shorter range"), "{told}");
        assert_eq!(house.numbers(), [2]);
    }
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let house = House::new();
    let table = house.kept();
    house.add(&table, 1, &[(Some("x"), Some(0), 1)]).unwrap();
    let fault = house.replace(&table, replace(1, Some("x"), None, &[(Some("y"), Some(0), 2)])).unwrap_err();
    assert_eq!((fault.whose, fault.kind), (Whose::Host, FaultKind::Internal));
    let mut what = replace(1, None, None, &[]);
    what.matching.push(("whom".to_owned(), "x".to_owned()));
    let fault = house.replace(&table, what).unwrap_err();
    assert_eq!(fault.to_string(), "acme/kept: whom: rows are replaced by column whom, which the table lacks");
    let mut what = replace(1, None, None, &[]);
    what.between = Some(("n".to_owned(), at(0), at(1)));
    let fault = house.replace(&table, what).unwrap_err();
    assert_eq!(fault.to_string(), "acme/kept: n: rows are replaced by column n, which is int64 there and no timestamp");
    house.runtime.block_on(async {
        let url = url::Url::from_directory_path(house.place()).unwrap();
        let other = DeltaTableBuilder::from_url(url).unwrap().load().await.unwrap();
        let properties = [("delta.appendOnly".to_owned(), "true".to_owned())].into();
        other.set_tbl_properties().with_properties(properties).await.unwrap();
    });
    let fault = house.replace(&table, replace(1, Some("x"), None, &[])).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "acme/kept: delta.appendOnly: rows cannot be replaced: the table is append-only; \
         set this property of the table to false"
    );
    assert_eq!(house.numbers(), [1]);
}

#[test]
fn random_histories_agree_with_a_plain_list() {
    const OWNERS: [Option<&str>; 4] = [Some("x"), Some("y"), Some("zz"), None];
    for seed in 1..=12u64 {
        let mut dice = Dice(seed * 0x9e37_79b9);
        let faults = Arc::new(FailOnce::default());
        let mut house = House::keeping(faults.clone(), 7, Duration::from_secs(3600));
        let mut table = house.kept();
        let mut list: Vec<Row> = Vec::new();
        let mut number = 0;
        for step in 1..=25 {
            let draw = |dice: &mut Dice| OWNERS[usize::try_from(dice.below(4)).unwrap()];
            let minute = |dice: &mut Dice| i64::try_from(dice.below(30)).unwrap();
            if dice.below(6) == 0 {
                house.reopen();
                table = house.kept();
            }
            let point = ["sink.file-written", "sink.entry-put"][usize::try_from(dice.below(2)).unwrap()];
            *faults.0.lock().unwrap() = (dice.below(4) == 0).then_some(point);
            let mut new: Vec<Row> = (0..dice.below(5))
                .map(|_| {
                    number += 1;
                    (draw(&mut dice), (dice.below(8) > 0).then(|| minute(&mut dice)), number)
                })
                .collect();
            if dice.below(2) == 0 {
                let go = |table: &Arc<dyn Table>| house.add(table, step, &new);
                go(&table).or_else(|_| go(&table)).unwrap();
                list.extend(new);
                continue;
            }
            let who = draw(&mut dice);
            let from = minute(&mut dice);
            let range = (dice.below(2) == 0).then(|| (from, from + minute(&mut dice)));
            let gone = |row: &Row| {
                who.is_none_or(|who| row.0 == Some(who))
                    && range.is_none_or(|(from, to)| row.1.is_some_and(|m| from <= m && m < to))
            };
            new.retain(gone);
            let go = |table: &Arc<dyn Table>| house.replace(table, replace(step, who, range, &new));
            go(&table).or_else(|_| go(&table)).unwrap();
            list.retain(|row| !gone(row));
            list.extend(new);
        }
        let mut expected: Vec<i64> = list.iter().map(|r| r.2).collect();
        expected.sort_unstable();
        assert_eq!(house.numbers(), expected, "seed {seed}");
        assert_eq!(outside(&house).0, expected, "seed {seed}");
    }
}

#[test]
fn the_new_rows_may_have_columns_that_the_table_lacks() {
    let house = House::with(Arc::new(NoFaults), 100);
    let table = house.kept();
    house.add(&table, 1, &[(Some("x"), Some(0), 1), (Some("y"), Some(0), 2)]).unwrap();
    let narrow = rows(&[(Some("x"), Some(0), 3)]);
    let mut fields: Vec<_> = schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new("more", DataType::Int64, true)));
    let mut columns = narrow.columns().to_vec();
    columns.push(Arc::new(Int64Array::from(vec![77])));
    let wide = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    house.replace(&table, Replace { rows: Arc::new(vec![wide]), ..replace(1, Some("x"), None, &[]) }).unwrap();
    let all = house.lake.query(&name("acme"), "SELECT n, more FROM kept ORDER BY n", vec![]).unwrap();
    assert_eq!(lines(&all), ["2|", "3|77"]);
    assert_eq!(python(&house.place()).1.len(), 2);
}
