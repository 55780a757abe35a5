//! Tables: appends once, whatever happens in between.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use deltalake::DeltaTableBuilder;
use weir_model::port::{AdHoc, Append, Lake, Table};
use weir_model::{Fault, FaultKind, Whose};

use crate::support::*;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false), Field::new("who", DataType::Utf8, true)]))
}

fn item(app: &str, version: i64) -> Append {
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from(vec![version])), Arc::new(StringArray::from(vec![app]))];
    Append { app: app.to_owned(), version, rows: RecordBatch::try_new(schema(), columns).unwrap() }
}

impl House {
    fn table(&self) -> Arc<dyn Table> {
        self.try_table(schema()).unwrap()
    }
    fn try_table(&self, schema: SchemaRef) -> Result<Arc<dyn Table>, Fault> {
        self.runtime.block_on(self.lake.table(&name("acme"), &name("t"), schema))
    }
    fn append(&self, table: &Arc<dyn Table>, items: Vec<Append>) -> Result<(), Fault> {
        self.runtime.block_on(table.append(items))
    }
    fn held(&self, table: &Arc<dyn Table>, app: &str) -> Option<i64> {
        self.runtime.block_on(table.held(app)).unwrap()
    }
    fn rows(&self) -> Vec<String> {
        let rows = self.lake.query(&name("acme"), "SELECT who, n FROM t ORDER BY who, n", vec![]).unwrap();
        lines(&rows)
    }
    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("lake/acme/t")
    }
}

/// What a table cannot have is said before rows wait for it, whether the table is there or not.
#[test]
fn columns_that_no_table_can_have_do_not_fit() {
    let house = House::new();
    let fits = |columns: &[&str]| {
        let fields: Vec<Field> = columns.iter().map(|c| Field::new(*c, DataType::Int64, true)).collect();
        house.runtime.block_on(house.lake.fits(&name("acme"), &name("t"), Arc::new(Schema::new(fields))))
    };
    for _ in ["no table", "a table"] {
        fits(&["n", "é-日本.x"]).unwrap();
        for bad in [["n", "a b"], ["n", "a;b"], ["n", "a=b"], ["n", ""], ["two", "Two"]] {
            let fault = fits(&bad).unwrap_err();
            assert_eq!((fault.whose, fault.field.as_deref()), (Whose::Tenant, Some(bad[1])), "{fault}");
        }
        house.table();
    }
}

/// What named queries may not call, because it makes gigabytes of a few bytes, a question at a prompt may not either.
#[test]
fn a_question_cannot_call_what_makes_gigabytes_of_a_few_bytes() {
    let house = House::new();
    for call in ["repeat('x', 2000000000)", "array_repeat('x', 2000000000)", "array_resize([1], 2000000000, 1)"] {
        let fault = house.lake.query(&name("acme"), &format!("SELECT {call}"), vec![]).unwrap_err();
        let function = call.split('(').next().unwrap();
        assert_eq!(fault.kind, FaultKind::Sql, "{fault}");
        assert!(fault.message.contains(function), "{fault}");
    }
    assert_eq!(lines(&house.lake.query(&name("acme"), "SELECT upper('x')", vec![]).unwrap()), ["X"]);
}

#[test]
fn an_append_given_again_changes_nothing() {
    let mut house = House::new();
    let table = house.table();
    house.append(&table, vec![item("a", 1), item("a", 2), item("b", 7)]).unwrap();
    house.append(&table, vec![item("a", 2), item("a", 3), item("b", 6)]).unwrap();
    let id = house.runtime.block_on(table.id()).unwrap();
    house.reopen();
    let table = house.table();
    house.append(&table, vec![item("a", 3), item("b", 8)]).unwrap();
    assert_eq!(house.rows(), ["a|1", "a|2", "a|3", "b|7", "b|8"]);
    assert_eq!((house.held(&table, "a"), house.held(&table, "b"), house.held(&table, "c")), (Some(3), Some(8), None));
    assert_eq!(house.runtime.block_on(table.id()).unwrap(), id);
}

#[test]
fn a_lost_reply_neither_repeats_nor_loses() {
    for (point, landed) in [("sink.file-written", false), ("sink.entry-put", true)] {
        for restart in [false, true] {
            let faults = Arc::new(FailOnce::default());
            let mut house = House::with(faults.clone(), 100);
            let mut table = house.table();
            house.append(&table, vec![item("a", 1)]).unwrap();
            *faults.0.lock().unwrap() = Some(point);
            let fault = house.append(&table, vec![item("a", 2)]).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Injected);
            if restart {
                house.reopen();
                table = house.table();
            }
            assert_eq!(house.held(&table, "a"), Some(if landed { 2 } else { 1 }), "{point}");
            house.append(&table, vec![item("a", 2), item("a", 3)]).unwrap();
            assert_eq!(house.rows(), ["a|1", "a|2", "a|3"], "{point}, restart {restart}");
        }
    }
}

#[test]
fn a_table_that_is_taken_away_is_not_made_again() {
    let house = House::new();
    let table = house.table();
    house.append(&table, vec![item("a", 1)]).unwrap();
    let aside = house.folder.path().join("aside");
    std::fs::rename(house.path(), &aside).unwrap();
    let gone = house.append(&table, vec![item("a", 2)]).unwrap_err();
    assert_eq!((gone.whose, gone.kind), (Whose::External, FaultKind::SinkMismatch));
    assert!(gone.message.starts_with("the table is gone"), "{gone}");
    assert_eq!(house.try_table(schema()).err().map(|f| f.kind), Some(FaultKind::SinkMismatch));
    assert!(!house.path().exists());
    std::fs::write(house.path(), b"a file").unwrap();
    let file = house.append(&table, vec![item("a", 2)]).unwrap_err();
    assert_eq!(file.message, "there is a file where the table's folder was expected");
    std::fs::remove_file(house.path()).unwrap();
    std::fs::rename(&aside, house.path()).unwrap();
    house.append(&table, vec![item("a", 2)]).unwrap();
    assert_eq!(house.rows(), ["a|1", "a|2"]);
}

#[test]
fn another_table_in_its_place_is_noticed() {
    let house = House::new();
    let table = house.table();
    house.append(&table, vec![item("a", 1)]).unwrap();
    let other = House::new();
    let stranger = other.table();
    other.append(&stranger, vec![item("a", 1)]).unwrap();
    other.append(&stranger, vec![item("a", 2)]).unwrap();
    std::fs::remove_dir_all(house.path()).unwrap();
    std::fs::rename(other.path(), house.path()).unwrap();
    let fault = house.append(&table, vec![item("a", 5)]).unwrap_err();
    assert!(fault.message.starts_with("another table stands in its place"), "{fault}");
    assert_eq!(fault.kind, FaultKind::SinkMismatch);
    assert_eq!(house.rows(), ["a|1", "a|2"]);
}

#[test]
fn other_writers_appends_are_kept() {
    let house = House::new();
    let table = house.table();
    house.append(&table, vec![item("a", 1)]).unwrap();
    for version in 2..5 {
        house.runtime.block_on(async {
            let url = url::Url::from_directory_path(house.path()).unwrap();
            let other = DeltaTableBuilder::from_url(url).unwrap().load().await.unwrap();
            other.write(vec![item("other", version).rows]).await.unwrap();
        });
        house.append(&table, vec![item("a", version)]).unwrap();
    }
    assert_eq!(house.rows(), ["a|1", "a|2", "a|3", "a|4", "other|2", "other|3", "other|4"]);
}

#[test]
fn a_table_that_asks_more_of_a_writer_is_written_too() {
    let mut house = House::new();
    std::fs::create_dir_all(house.path()).unwrap();
    house.runtime.block_on(async {
        let url = url::Url::from_directory_path(house.path()).unwrap();
        let other = DeltaTableBuilder::from_url(url).unwrap().build().unwrap();
        let write = other.write(vec![item("z", 1).rows]).with_partition_columns(["who"]);
        write.await.unwrap();
    });
    let table = house.table();
    house.append(&table, vec![item("a", 1), item("b", 4)]).unwrap();
    house.append(&table, vec![item("a", 1), item("a", 2)]).unwrap();
    let none = RecordBatch::new_empty(schema());
    house.append(&table, vec![Append { app: "b".into(), version: 9, rows: none }]).unwrap();
    house.reopen();
    let table = house.table();
    house.append(&table, vec![item("b", 9)]).unwrap();
    assert_eq!(house.rows(), ["a|1", "a|2", "b|4", "z|1"]);
    assert_eq!((house.held(&table, "a"), house.held(&table, "b")), (Some(2), Some(9)));
}

#[test]
fn an_append_without_rows_is_remembered() {
    let house = House::new();
    let table = house.table();
    let none = || Append { app: "a".into(), version: 4, rows: RecordBatch::new_empty(schema()) };
    house.append(&table, vec![none()]).unwrap();
    house.append(&table, vec![item("a", 3), item("a", 5)]).unwrap();
    assert_eq!(house.rows(), ["a|5"]);
}

#[test]
fn columns_are_added_and_other_types_refused() {
    let mut house = House::new();
    let table = house.table();
    house.append(&table, vec![item("a", 1)]).unwrap();
    let wide = Schema::new(vec![
        Field::new("who", DataType::Utf8, true),
        Field::new("n", DataType::Int64, false),
        Field::new("more", DataType::Float64, false),
    ]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec!["a"])),
        Arc::new(Int64Array::from(vec![2])),
        Arc::new(arrow_array::Float64Array::from(vec![0.5])),
    ];
    let rows = RecordBatch::try_new(Arc::new(wide), columns).unwrap();
    house.append(&table, vec![Append { app: "a".into(), version: 2, rows }]).unwrap();
    house.append(&table, vec![item("a", 3)]).unwrap();
    let all = house.lake.query(&name("acme"), "SELECT n, more FROM t ORDER BY n", vec![]).unwrap();
    assert_eq!(lines(&all), ["1|", "2|0.5", "3|"]);
    house.reopen();
    let other = Arc::new(Schema::new(vec![Field::new("n", DataType::Utf8, true)]));
    let Err(fault) = house.try_table(other) else { panic!("accepted") };
    assert_eq!(
        fault.to_string().split(';').next(),
        Some("acme/t: n: column n is int64 in the table and text in the rows")
    );
    assert_eq!(fault.whose, Whose::Tenant);
}

#[test]
fn many_versions_leave_few_log_entries_and_nothing_is_forgotten() {
    let mut house = House::with(Arc::new(weir_model::NoFaults), 10);
    let table = house.table();
    for version in 1..=35 {
        house.append(&table, vec![item("a", version), item("b", version)]).unwrap();
    }
    // Checkpoints and clean-ups go on beside the appends, here without any grace for readers: wait until all is quiet.
    let log = house.path().join("_delta_log");
    let names = || -> std::collections::BTreeSet<String> {
        std::fs::read_dir(&log).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    };
    let begun = std::time::Instant::now();
    loop {
        let before = names();
        // Real time for the writer's own tasks.
        #[allow(clippy::disallowed_methods)]
        std::thread::sleep(std::time::Duration::from_millis(700));
        let few = before.iter().filter(|n| n.ends_with(".json")).count() <= 30;
        if few && before.iter().any(|n| n.contains(".checkpoint")) && names() == before {
            break;
        }
        assert!(begun.elapsed().as_secs() < 60, "no checkpoint, or no rest: {:?}", names());
    }
    house.reopen();
    let table = house.table();
    assert_eq!((house.held(&table, "a"), house.held(&table, "b")), (Some(35), Some(35)));
    house.append(&table, vec![item("a", 35), item("a", 36)]).unwrap();
    assert_eq!(house.rows().len(), 71);
}
