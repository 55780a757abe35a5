//! Reference tables in the lake: the latest version at each plan, pinned; a replay reads what was pinned.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use deltalake::protocol::SaveMode;
use deltalake::{DeltaTable, DeltaTableBuilder};
use weir_model::port::{Append, Lake, Queries};
use weir_model::{CallError, Fault, FaultKind, Name, Ruleset, Whose};

use crate::support::{House, at, inputs, lines, name, ruleset};

const SCHEMA: &str = "{ ip = { type = \"text\", required = true }, level = \"int64\" }";

fn reading(sql: &str, schema: &str) -> Ruleset {
    let manifest =
        format!("[queries.q]\nfile = \"queries/q.sql\"\n[tables.inventory]\nlake = \"devices\"\nschema = {schema}");
    ruleset(&manifest, &[], &[("queries/q.sql", sql)])
}

fn devices(rows: &[(Option<&str>, i64)]) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("level", DataType::Int64, true),
        Field::new("note", DataType::Utf8, true),
        Field::new("ip", DataType::Utf8, true),
    ]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.1))),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|_| "x"))),
        Arc::new(StringArray::from_iter(rows.iter().map(|r| r.0))),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

impl House {
    fn devices(&self) -> PathBuf {
        self.folder.path().join("lake/acme/devices")
    }
    /// As another system writes it.
    fn write(&self, rows: &[(Option<&str>, i64)], mode: SaveMode) -> DeltaTable {
        std::fs::create_dir_all(self.devices()).unwrap();
        let url = url::Url::from_directory_path(self.devices()).unwrap();
        self.runtime.block_on(async {
            let mut table = DeltaTableBuilder::from_url(url).unwrap().build().unwrap();
            // The first write makes it.
            let _ = table.load().await;
            table.write([devices(rows)]).with_save_mode(mode).await.unwrap()
        })
    }
}

type Pins = BTreeMap<Name, String>;

fn ask(queries: &Arc<dyn Queries>, pins: &Pins) -> Result<Vec<String>, Fault> {
    let mut inputs = inputs(at(5), Vec::new());
    inputs.tables = pins.clone();
    match queries.run("q", &inputs, &[], &[]) {
        Ok(rows) => Ok(lines(&rows)),
        Err(CallError::Fault(fault)) => Err(fault),
        Err(CallError::Data(data)) => panic!("{data}"),
    }
}

fn version(pins: &Pins) -> &str {
    pins[&name("inventory")].split('@').next().unwrap()
}

const ALL: &str = "SELECT ip, level FROM inventory";

#[test]
fn a_batch_sees_the_version_that_its_plan_pinned() {
    let house = House::new();
    house.write(&[(Some("b"), 2), (Some("a"), 1)], SaveMode::Append);
    let queries = house.plan(&reading(ALL, SCHEMA));
    let first = queries.tables().unwrap();
    assert_eq!((version(&first), ask(&queries, &first).unwrap()), ("0", vec!["a|1".to_owned(), "b|2".to_owned()]));

    house.write(&[(Some("c"), 3)], SaveMode::Append);
    // The batch that has begun is not touched by it, the next plan has it.
    assert_eq!(ask(&queries, &first).unwrap(), ["a|1", "b|2"]);
    let second = queries.tables().unwrap();
    assert_eq!((version(&second), ask(&queries, &second).unwrap().len()), ("1", 3));
    house.write(&[(Some("z"), 9)], SaveMode::Overwrite);
    let third = queries.tables().unwrap();
    assert_eq!((version(&third), ask(&queries, &third).unwrap()), ("2", vec!["z|9".to_owned()]));

    // A replay after a restart.
    let mut house = house;
    house.reopen();
    let queries = house.plan(&reading(ALL, SCHEMA));
    assert_eq!(ask(&queries, &first).unwrap(), ["a|1", "b|2"]);
    assert_eq!(ask(&queries, &second).unwrap(), ["a|1", "b|2", "c|3"]);
}

#[test]
fn a_table_that_has_not_changed_is_not_read_again_and_held_once() {
    let house = House::new();
    house.write(&[(Some("a"), 1)], SaveMode::Append);
    let queries = house.plan(&reading(ALL, SCHEMA));
    let pins = queries.tables().unwrap();
    for entry in std::fs::read_dir(house.devices()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "parquet") {
            std::fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(queries.tables().unwrap(), pins);
    let other = house.plan(&reading("SELECT max(level) AS most FROM inventory", SCHEMA));
    assert_eq!(other.tables().unwrap(), pins);
    assert_eq!((ask(&queries, &pins).unwrap(), ask(&other, &pins).unwrap()), (vec!["a|1".into()], vec!["1".into()]));
    // When nobody holds it, it has to be read, and cannot be.
    drop((queries, other));
    let fault = house.plan(&reading(ALL, SCHEMA)).tables().unwrap_err();
    assert_eq!((fault.whose, fault.kind), (Whose::External, FaultKind::Source), "{fault}");
}

#[test]
fn a_table_that_is_not_there_or_not_readable_is_a_fault_that_passes() {
    let house = House::new();
    let queries = house.plan(&reading(ALL, SCHEMA));
    let fault = queries.tables().unwrap_err();
    assert_eq!(
        fault.to_string(),
        "acme/s1/scenario.toml: tables.inventory.lake: there is no table acme/devices; make it, or name another; \
         batches wait until it is there"
    );
    assert_eq!((fault.whose, fault.retry), (Whose::External, weir_model::Retry::Later));
    house.write(&[(Some("a"), 1)], SaveMode::Append);
    let pins = queries.tables().unwrap();
    assert_eq!(ask(&queries, &pins).unwrap(), ["a|1"]);

    let next = house.devices().join("_delta_log/00000000000000000001.json");
    std::fs::write(&next, "{\"what\":").unwrap();
    let fault = queries.tables().unwrap_err();
    assert_eq!((fault.whose, fault.field.as_deref()), (Whose::External, Some("tables.inventory.lake")), "{fault}");
    std::fs::remove_file(next).unwrap();
    assert_eq!(queries.tables().unwrap(), pins);
}

#[test]
fn rows_that_do_not_fit_the_schema_are_refused() {
    let house = House::new();
    house.write(&[(Some("a"), 1), (None, 2)], SaveMode::Append);
    let fault = |schema| house.plan(&reading("SELECT * FROM inventory", schema)).tables().unwrap_err();
    let null = fault(SCHEMA);
    assert!(null.message.contains("devices: column ip: a value is required"), "{null}");
    let kind = fault("{ level = \"text\" }");
    assert!(kind.message.contains("column level: expected text, got a column of type Int64"), "{kind}");
    let column = fault("{ ip = \"text\", site = \"text\" }");
    assert_eq!((column.whose, column.kind), (Whose::Tenant, FaultKind::Config));
    assert!(column.message.ends_with("has no column site; it has level, note, ip"), "{column}");

    let mut small = reading(ALL, "{ ip = \"text\", level = \"int64\" }");
    small.limits.table_bytes = 16;
    let fault = house.plan(&small).tables().unwrap_err();
    assert_eq!((fault.kind, fault.whose), (FaultKind::SqlLimit, Whose::Tenant), "{fault}");
}

#[test]
fn what_was_cleaned_up_or_made_anew_is_not_replayable() {
    let mut house = House::new();
    house.write(&[(Some("a"), 1)], SaveMode::Append);
    let ruleset = reading(ALL, SCHEMA);
    let first = house.plan(&ruleset).tables().unwrap();
    let table = house.write(&[(Some("b"), 2)], SaveMode::Overwrite);
    let none = chrono::Duration::zero();
    let vacuum = table.vacuum().with_retention_period(none).with_enforce_retention_duration(false);
    let (_, removed) = house.runtime.block_on(async { vacuum.await }).unwrap();
    assert_eq!(removed.files_deleted.len(), 1);
    house.reopen();
    let queries = house.plan(&ruleset);
    let fault = ask(&queries, &first).unwrap_err();
    assert_eq!(fault.kind, FaultKind::NotReplayable, "{fault}");
    assert!(fault.message.contains("its files have been removed"), "{fault}");
    let latest = queries.tables().unwrap();
    assert_eq!(ask(&queries, &latest).unwrap(), ["b|2"]);

    std::fs::remove_dir_all(house.devices()).unwrap();
    house.write(&[(Some("new"), 0)], SaveMode::Append);
    let fault = ask(&queries, &first).unwrap_err();
    assert!(fault.kind == FaultKind::NotReplayable && fault.message.contains("made anew"), "{fault}");
    std::fs::remove_dir_all(house.devices()).unwrap();
    let fault = ask(&queries, &first).unwrap_err();
    assert!(fault.kind == FaultKind::NotReplayable && fault.message.contains("does not go back so far"), "{fault}");
}

#[test]
fn rows_come_in_an_order_that_files_do_not_decide() {
    // The same rows in one file, and in many written the other way round.
    let (one, many) = (House::new(), House::new());
    let rows: Vec<(String, i64)> = (0..40).map(|i| (format!("d{:02}", i * 7 % 40), i % 3)).collect();
    let rows: Vec<(Option<&str>, i64)> = rows.iter().map(|(ip, level)| (Some(ip.as_str()), *level)).collect();
    one.write(&rows, SaveMode::Append);
    for row in rows.iter().rev() {
        many.write(&[*row], SaveMode::Append);
    }
    // Which row is first in its group depends on the order in which they come.
    let first = reading("SELECT level, first_value(ip) AS first FROM inventory GROUP BY level ORDER BY level", SCHEMA);
    let answer = |house: &House| {
        let queries = house.plan(&first);
        ask(&queries, &queries.tables().unwrap()).unwrap()
    };
    assert_eq!(answer(&one), answer(&many));
}

#[test]
fn a_table_of_our_own_can_be_read_too() {
    let house = House::new();
    let schema =
        Arc::new(Schema::new(vec![Field::new("ip", DataType::Utf8, true), Field::new("level", DataType::Int64, true)]));
    let table = house.runtime.block_on(house.lake.table(&name("acme"), &name("devices"), schema.clone())).unwrap();
    let columns: Vec<ArrayRef> = vec![Arc::new(StringArray::from(vec!["a"])), Arc::new(Int64Array::from(vec![7]))];
    let rows = RecordBatch::try_new(schema, columns).unwrap();
    let append = Append { app: "x".to_owned(), version: 1, rows };
    house.runtime.block_on(table.append(vec![append])).unwrap();
    let queries = house.plan(&reading(ALL, SCHEMA));
    assert_eq!(ask(&queries, &queries.tables().unwrap()).unwrap(), ["a|7"]);
}
