//! What the kit accepts and what it refuses, as a host would.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use serde_json::json;
use weir_sdk::testkit::{Kit, Report, Rows};
use weir_sdk::{
    Alarm, Batch, DataError, Description, Detector, Fault, Field, Kind::*, RowRef, Scalar, Severity, Time, Verdict,
    assets, log,
};

type Work = Rc<dyn Fn(&Batch) -> Result<(), Fault>>;
thread_local! {
    static WORK: RefCell<Option<Work>> = const { RefCell::new(None) };
}

/// A detector that does what the test says.
struct Puppet;

impl Detector for Puppet {
    fn describe() -> Description {
        Description::new("puppet", "1")
            .input("events")
            .query("q")
            .rule("r")
            .asset("weights")
            .output("out", |o| {
                o.column("n", Int64)
                    .nullable("text", Text)
                    .nullable("at", Timestamp)
                    .nullable("price", Decimal)
                    .nullable("flag", Boolean)
                    .nullable("score", Float64)
                    .nullable("raw", Bytes)
                    .nullable("doc", Json)
            })
            .alarm("a", ["k"])
            .state(1)
    }
    fn prepare(_: &str) -> Result<Self, Fault> {
        Ok(Self)
    }
    fn detect(&self, b: &Batch) -> Result<Verdict, Fault> {
        let work = WORK.with_borrow(|work| work.clone().unwrap());
        work(b).map(|()| Verdict::Judged)
    }
}

fn events() -> Rows {
    Rows::new()
        .column("n", Int64, [Some(1), None, Some(3)])
        .column("text", Text, ["x", "y", "x"])
        .column("at", Timestamp, ["2026-11-30T12:00:00.5Z", "1969-12-31T23:59:59Z", "2026-11-30"])
        .column("price", Decimal, ["1.5", "-0.25", "7"])
        .column("flag", Boolean, [true, false, true])
        .column("doc", Json, [r#"{"a":[1,2]}"#, "null", "[]"])
        .column("raw", Bytes, [vec![0u8, 255], vec![], vec![1]])
}

fn kit() -> Kit<Puppet> {
    let mut kit = Kit::new("{}");
    kit.input("events", events());
    kit
}

fn run_at(
    kit: &mut Kit<Puppet>,
    at: &str,
    work: impl Fn(&Batch) -> Result<(), Fault> + 'static,
) -> Result<Report, Fault> {
    WORK.set(Some(Rc::new(work)));
    kit.run(at)
}

fn run(kit: &mut Kit<Puppet>, work: impl Fn(&Batch) -> Result<(), Fault> + 'static) -> Result<Report, Fault> {
    run_at(kit, "2026-11-30T12:00:00Z", work)
}

fn refused(work: impl Fn(&Batch) -> Result<(), Fault> + 'static) -> DataError {
    run(&mut kit(), work).unwrap_err().data().cloned().unwrap()
}

#[test]
fn columns_are_read_with_their_nulls() {
    run(&mut kit(), |b| {
        let events = b.input("events")?;
        let n = events.int64s("n")?;
        assert_eq!(n.iter().collect::<Vec<_>>(), [Some(1), None, Some(3)]);
        assert_eq!((n[1], n.get(1), n.get(9)), (0, None, None));
        assert_eq!(events.booleans("flag")?.trues(), [0, 2]);
        assert_eq!(events.texts("flag")?.get(1), Some("false"));
        assert_eq!(events.timestamps("at")?[1], Time::from_micros(-1_000_000));
        assert_eq!(events.texts("at")?.get(0), Some("2026-11-30T12:00:00.500000Z"));
        let price = events.decimals("price")?;
        assert_eq!((price.scale(), price.unscaled(0), price.float(1)), (2, Some(150), Some(-0.25)));
        assert_eq!(events.bytes("raw")?.get(0), Some(&[0, 255][..]));
        assert_eq!(events.texts("raw")?.get(0), Some("00ff"));
        let words = events.dictionary("text")?;
        assert_eq!((words.codes(), words.values().len(), words.get(2)), (&[0, 1, 0][..], 2, Some("x")));
        assert_eq!(events.slice(1, 1)?.json(&["n", "doc"])?, r#"[{"n":null,"doc":null}]"#);
        assert_eq!(events.take(&[2, 0])?.json(&["n"])?, r#"[{"n":3},{"n":1}]"#);
        let chosen = b.select(&events, &["text", "n"])?;
        assert_eq!(chosen.slice(0, 1)?.json(&["text", "n"])?, r#"[{"text":"x","n":1}]"#);
        assert_eq!(chosen.fields().len(), 2);
        assert_eq!(b.window("events")?.end, b.time());
        Ok(())
    })
    .unwrap();
}

#[test]
fn reads_that_make_no_sense_are_refused_and_named() {
    let fault = run(&mut kit(), |b| b.input("events")?.int64s("text").map(drop)).unwrap_err();
    assert_eq!(fault.to_string(), "column 'text' of input 'events': wrong kind: it is text");
    assert_eq!(refused(|b| b.input("events")?.int64s("m").map(drop)), DataError::NoSuchColumn);
    assert_eq!(refused(|b| b.input("events")?.take(&[3]).map(drop)), DataError::OutOfRange);
    assert_eq!(refused(|b| b.input("events")?.slice(2, 2).map(drop)), DataError::OutOfRange);
    assert_eq!(refused(|b| b.input("other").map(drop)), DataError::Undeclared);
    assert_eq!(refused(|b| b.window("other").map(drop)), DataError::Undeclared);
    assert_eq!(refused(|b| b.query("other").run().map(drop)), DataError::Undeclared);
    assert_eq!(refused(|b| b.rule("other").run().map(drop)), DataError::Undeclared);
}

#[test]
fn rows_are_written_in_every_kind() {
    let report = run(&mut kit(), |b| {
        let events = b.input("events")?;
        b.output("out")
            .int64s("n", [7, 8, 9])?
            .blobs("text", [Some("a"), None, Some("c")])?
            .timestamps("at", [b.time(), b.time(), b.time()])?
            .decimals("price", 1, [Some(15), None, Some(-5)])?
            .copy("flag", &events, "flag")?
            .float64s("score", [0.5, 1.0, 1.5])?
            .copy("raw", &events, "raw")?
            .copy("doc", &events, "doc")?
            .finish()?;
        // an output may be finished again
        let nulls = ["text", "at", "price", "flag", "score", "raw", "doc"].map(|column| (column, Scalar::Null));
        b.output("out").fill([("n", 10i64)], 1)?.fill(nulls, 1)?.finish()?;
        Ok(())
    })
    .unwrap();
    let rows = report.rows("out");
    assert_eq!(
        rows[0],
        json!({"n": 7, "text": "a", "at": "2026-11-30T12:00:00Z", "price": 1.5, "flag": true, "score": 0.5, "raw": "00ff",
               "doc": {"a": [1, 2]}})
    );
    assert_eq!((&rows[1]["text"], &rows[1]["price"], &rows[2]["price"]), (&json!(null), &json!(null), &json!(-0.5)));
    assert_eq!(
        rows[3],
        json!({"n": 10, "text": null, "at": null, "price": null, "flag": null, "score": null, "raw": null, "doc": null})
    );
}

#[test]
fn rows_that_do_not_fit_are_refused() {
    assert_eq!(refused(|b| b.output("other").int64s("n", [1])?.finish().map(drop)), DataError::Undeclared);
    assert_eq!(refused(|b| b.output("out").int64s("m", [1]).map(drop)), DataError::NoSuchColumn);
    assert_eq!(refused(|b| b.output("out").float64s("n", [1.0]).map(drop)), DataError::WrongKind(Int64));
    assert_eq!(refused(|b| b.output("out").fill([("n", 1.0)], 1).map(drop)), DataError::WrongKind(Int64));
    assert_eq!(
        refused(|b| b.output("out").int64s("n", [1])?.blobs("text", ["a", "b"]).map(drop)),
        DataError::Uneven(1)
    );
    assert_eq!(refused(|b| b.output("out").blobs("text", ["a"])?.finish().map(drop)), DataError::RequiredNull);
    assert_eq!(refused(|b| b.output("out").int64s("n", [None::<i64>]).map(drop)), DataError::RequiredNull);
    assert_eq!(refused(|b| b.output("out").blobs("text", [vec![255u8]]).map(drop)), DataError::Malformed);
    assert_eq!(refused(|b| b.output("out").blobs("doc", ["{"]).map(drop)), DataError::Malformed);
    let copied = |b: &Batch| b.output("out").copy("n", &b.input("events")?, "text").map(drop);
    assert_eq!(refused(copied), DataError::WrongKind(Text));
}

#[test]
fn state_lasts_until_its_time_and_a_failed_batch_leaves_none() {
    let mut kit = kit();
    run_at(&mut kit, "2026-11-30T12:00:00Z", |b| {
        b.state().put_many([("a/1", "x"), ("a/2", "y"), ("b", "z")], None)?;
        b.state().put("short", "s", Some(Duration::from_secs(60)))?;
        b.state().delete(["a/1", "never there"])?;
        assert_eq!(b.state().get_many(["a/1", "a/2"])?, [None, Some(b"y".to_vec())]);
        Ok(())
    })
    .unwrap();
    run_at(&mut kit, "2026-11-30T12:00:59Z", |b| {
        assert!(b.state().get("short")?.is_some());
        b.state().put("lost", "", None)?;
        Err(Fault::input("no"))
    })
    .unwrap_err();
    assert!(!kit.state().contains_key("lost"));
    run_at(&mut kit, "2026-11-30T12:01:00Z", |b| {
        assert_eq!(b.state().get("short")?, None);
        b.state().put_many([("a/3", "3"), ("a/4", "4")], None)?;
        let keys = |after: Option<&[u8]>, limit| -> Result<Vec<String>, Fault> {
            let found = b.state().scan("a/", after, limit)?;
            Ok(found.into_iter().map(|(key, _)| String::from_utf8(key).unwrap()).collect())
        };
        assert_eq!(keys(None, 2)?, ["a/2", "a/3"]);
        assert_eq!(keys(Some(b"a/3"), 9)?, ["a/4"]);
        assert_eq!(keys(Some(b"a"), 1)?, ["a/2"]);
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_rule_answers_rows_arrays_and_failures() {
    let mut kit = kit();
    kit.rule("r", |input| match (input["n"].as_i64(), input["all"].as_array()) {
        (Some(1), _) => Ok(json!({"deep": {"n": 10}, "flag": true})),
        (Some(3), _) => Ok(json!({"deep": {"n": "three"}})),
        (_, Some(all)) => Ok(json!({"alarms": all.iter().map(|row| json!({"t": row["text"]})).collect::<Vec<_>>()})),
        _ => Err("n is missing".to_owned()),
    });
    let report = run(&mut kit, |b| {
        let events = b.select(&b.input("events")?, &["n", "text"])?;
        let each = b.rule("r").each(&events).want("deep.n", Int64).want("flag", Boolean).run()?;
        assert_eq!(each.int64s("deep.n")?.iter().collect::<Vec<_>>(), [Some(10), None, None]);
        assert_eq!(each.failed().iter().map(|f| f.row).collect::<Vec<_>>(), [1, 2]);
        b.reject_failed(&events, &each)?;

        let rows = b.rule("r").bind_rows("all", &events).unnest("alarms").want("t", Text).run()?;
        assert_eq!(rows.texts("t")?.iter().flatten().collect::<String>(), "xyx");
        Ok(())
    })
    .unwrap();
    let reasons: Vec<_> = report.rejects.iter().map(|reject| reject.reason.as_str()).collect();
    assert_eq!(reasons, ["rule 'r': n is missing", "rule 'r': what stands at 'deep.n' is no int64"]);

    let fault = run(&mut kit, |b| b.rule("r").bind("n", 2).run().map(drop)).unwrap_err();
    assert_eq!(fault.to_string(), "rule 'r': failed: n is missing");
}

#[test]
fn a_query_gets_what_was_bound() {
    let mut kit = kit();
    kit.query("q", |call| {
        assert_eq!((call.text("who"), call.time("from").to_string().as_str()), ("me", "2026-11-30T12:00:00Z"));
        if call.rows("rows").is_empty() { Err("empty".to_owned()) } else { Ok(call.rows("rows").clone()) }
    });
    run(&mut kit, |b| {
        let events = b.input("events")?;
        let ask = |rows| b.query("q").bind("who", "me").bind("from", b.time()).bind_rows("rows", rows).run();
        assert_eq!(ask(&events)?.rows(), 3);
        let none = events.take(&[])?;
        assert_eq!(ask(&none).err().unwrap().data(), Some(&DataError::Failed("empty".to_owned())));
        Ok(())
    })
    .unwrap();
}

#[test]
fn alarms_and_rejects_name_what_is_declared_and_held() {
    fn raise(name: &str, key: &[&str]) -> Alarm {
        Alarm::raise(name, key.iter().copied(), Severity::Major)
    }
    let report = run(&mut kit(), |b| {
        let events = b.input("events")?;
        b.alarms([raise("a", &["x"]).field("n", 1).because(events.row(2)), Alarm::clear("a", ["y"])])?;
        b.reject([events.row(1)], "no n")
    })
    .unwrap();
    assert_eq!(report.alarms.len(), 2);
    assert_eq!((report.rejects[0].row["text"].as_str(), report.rejects[0].reason.as_str()), (Some("y"), "no n"));

    assert_eq!(refused(|b| b.alarms([raise("b", &["x"])])), DataError::Undeclared);
    assert_eq!(refused(|b| b.alarms([raise("a", &["x", "y"])])), DataError::Malformed);
    assert_eq!(
        refused(|b| {
            let events = b.input("events")?;
            b.reject([RowRef { row: 3, ..events.row(0) }], "beyond")
        }),
        DataError::OutOfRange
    );
    assert_eq!(
        refused(|b| {
            let row = b.input("events")?.row(0);
            b.reject([row], "its frame is gone")
        }),
        DataError::OutOfRange
    );
}

#[test]
fn log_and_assets_answer() {
    let mut kit = kit();
    kit.asset("weights", *b"1,2");
    let report = run(&mut kit, |_| {
        log::warn(String::from_utf8(assets::read("weights").unwrap()).unwrap());
        assert_eq!(assets::read("other"), None);
        Ok(())
    })
    .unwrap();
    assert_eq!(report.log, [(log::Level::Warn, "1,2".to_owned())]);
}

#[test]
fn scratch_rows_are_checked_too() {
    fn fields() -> [Field; 2] {
        [Field::new("n", Int64), Field::nullable("t", Text)]
    }
    run(&mut kit(), |b| {
        let rows = b.scratch(fields()).int64s("n", [1, 2])?.fill([("t", Scalar::Null)], 2)?.finish()?;
        assert_eq!(rows.texts("t")?.iter().collect::<Vec<_>>(), [None, None]);
        Ok(())
    })
    .unwrap();
    assert_eq!(refused(|b| b.scratch(fields()).int64s("n", [1])?.finish().map(drop)), DataError::RequiredNull);
}

#[test]
#[should_panic(expected = "describe lists no query 'typo'")]
fn a_fixture_that_nobody_asks_for_is_a_mistake_of_the_test() {
    kit().answer("typo", Rows::new());
}

#[test]
#[should_panic(expected = "a kit evaluates no rules over bytes")]
fn a_kit_does_not_pretend_to_know_bytes_in_rules() {
    let mut kit = kit();
    kit.rule("r", |_| Ok(json!({})));
    let _ = run(&mut kit, |b| b.rule("r").each(&b.input("events")?).run().map(drop));
}
