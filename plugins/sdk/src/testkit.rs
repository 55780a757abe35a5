//! Run a detector over fixtures, with `cargo test`, without a host.
//!
//! A [`Kit`] answers as a host would: with the rows given for inputs and queries, with what closures say for rules, and
//! with a state that survives from one [`Kit::run`] to the next. As with a host, every run has a freshly prepared
//! detector; a name that `describe` does not list is undeclared; outputs are checked against their columns; and a run
//! that fails leaves the state as it was. A kit panics where the fixtures themselves are wrong.
//!
//! ```
//! use weir_sdk::testkit::{Kit, Rows};
//! # use weir_sdk::{Batch, Description, Detector, Fault, Kind::*, Verdict};
//! # struct Judge;
//! # impl Detector for Judge {
//! #     fn describe() -> Description {
//! #         Description::new("judge", "1").query("counts").rule("limits").state(1)
//! #             .output("hits", |o| o.column("host", Text))
//! #     }
//! #     fn prepare(_: &str) -> Result<Self, Fault> { Ok(Self) }
//! #     fn detect(&self, b: &Batch) -> Result<Verdict, Fault> {
//! #         let rows = b.query("counts").bind("to", b.time()).run()?;
//! #         let answer = b.rule("limits").each(&rows).want("bad", Boolean).run()?;
//! #         let hits = rows.take(&answer.booleans("bad")?.trues())?;
//! #         b.output("hits").copy("host", &hits, "host")?.finish()?;
//! #         b.state().put("seen", "yes", None)?;
//! #         Ok(Verdict::Judged)
//! #     }
//! # }
//! use serde_json::json;
//!
//! let mut kit = Kit::<Judge>::new("{}");
//! kit.query("counts", |call| {
//!     assert_eq!(call.time("to").to_string(), "2026-11-30T12:05:00Z");
//!     Ok(Rows::json_lines(&[("host", Text), ("errors", Int64)], r#"
//!         {"host": "a", "errors": 3}
//!         {"host": "b", "errors": 70}
//!     "#))
//! });
//! kit.rule("limits", |input| Ok(json!({ "bad": input["errors"].as_i64() >= Some(50) })));
//!
//! let report = kit.run("2026-11-30T12:05:00Z")?;
//! assert_eq!(report.rows("hits"), [json!({"host": "b"})]);
//! assert_eq!(kit.state()["seen"], "yes");
//! # Ok::<(), Fault>(())
//! ```
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::rc::Rc;

use serde_json::Value;

use crate::backend::with_ambient;
use crate::log::Level;
use crate::{Alarm, Batch, Description, Detector, Fault, Named, Scalar, Time, Verdict};

mod frame;
mod host;
mod rows;
mod rule;

pub use rows::Rows;

use host::{Fixtures, Host};

/// A host of one detector, made of fixtures.
pub struct Kit<D> {
    config: String,
    fixtures: Fixtures,
    state: Entries,
    detector: PhantomData<D>,
}

/// Keyed state: the value, and when it expires.
type Entries = BTreeMap<Vec<u8>, (Vec<u8>, Option<Time>)>;

/// What a query was called with.
pub struct Call<'a> {
    name: &'a str,
    values: &'a [Named],
    rows: Vec<(&'a str, Rows)>,
}

impl Call<'_> {
    /// A parameter. The test fails when it was not bound.
    pub fn value(&self, parameter: &str) -> &Scalar {
        let found = self.values.iter().find(|named| named.name == parameter);
        let Some(named) = found else { panic!("query '{}' was not given '{parameter}'", self.name) };
        &named.value
    }
    /// A parameter that is a text.
    pub fn text(&self, parameter: &str) -> &str {
        match self.value(parameter) {
            Scalar::Text(text) => text,
            other => panic!("parameter '{parameter}' is no text but {other:?}"),
        }
    }
    /// A parameter that is a time.
    pub fn time(&self, parameter: &str) -> Time {
        match self.value(parameter) {
            Scalar::Timestamp(time) => *time,
            other => panic!("parameter '{parameter}' is no timestamp but {other:?}"),
        }
    }
    /// A parameter that is rows.
    pub fn rows(&self, parameter: &str) -> &Rows {
        let found = self.rows.iter().find(|(name, _)| *name == parameter);
        let Some((_, rows)) = found else { panic!("query '{}' was not given rows '{parameter}'", self.name) };
        rows
    }
}

/// A row that a detector put aside.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Reject {
    /// As an object.
    pub row: Value,
    pub reason: String,
}

/// What a detector made of a batch.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Report {
    pub verdict: Verdict,
    /// Rows by output, as objects: times as ISO 8601 text.
    pub outputs: BTreeMap<String, Vec<Value>>,
    pub alarms: Vec<Alarm>,
    pub rejects: Vec<Reject>,
    pub log: Vec<(Level, String)>,
}

impl Report {
    /// The rows of an output; none when it was not written.
    pub fn rows(&self, output: &str) -> &[Value] {
        self.outputs.get(output).map_or(&[], Vec::as_slice)
    }
}

impl<D: Detector> Kit<D> {
    /// A host with this configuration, and no fixtures yet.
    pub fn new(config: &str) -> Self {
        Self {
            config: config.to_owned(),
            fixtures: Fixtures::new(D::describe()),
            state: Entries::new(),
            detector: PhantomData,
        }
    }
    /// What the detector says of itself.
    pub fn description(&self) -> &Description {
        &self.fixtures.description
    }
    /// Another configuration, as after an edit: the state stays.
    pub fn configure(&mut self, config: &str) -> &mut Self {
        self.config = config.to_owned();
        self
    }
    /// The rows of an input, from the next run on.
    pub fn input(&mut self, name: &str, rows: Rows) -> &mut Self {
        declared("input", &self.description().inputs, name);
        self.fixtures.inputs.insert(name.to_owned(), rows);
        self
    }
    /// What a query answers, always the same.
    pub fn answer(&mut self, query: &str, rows: Rows) -> &mut Self {
        self.query(query, move |_| Ok(rows.clone()))
    }
    /// What a query answers to a call. An `Err` is a query that failed as a function of its input.
    pub fn query(&mut self, name: &str, answer: impl Fn(&Call<'_>) -> Result<Rows, String> + 'static) -> &mut Self {
        declared("query", &self.description().queries, name);
        self.fixtures.queries.insert(name.to_owned(), Box::new(answer));
        self
    }
    /// What a rule answers to an input object. An `Err` is an evaluation that failed.
    pub fn rule(&mut self, name: &str, judge: impl Fn(&Value) -> Result<Value, String> + 'static) -> &mut Self {
        declared("rule", &self.description().rules, name);
        self.fixtures.rules.insert(name.to_owned(), Box::new(judge));
        self
    }
    /// The bytes of an asset.
    pub fn asset(&mut self, name: &str, bytes: impl Into<Rc<[u8]>>) -> &mut Self {
        declared("asset", &self.description().assets, name);
        self.fixtures.assets.insert(name.to_owned(), bytes.into());
        self
    }
    /// The state as the last run that succeeded left it. Keys and values that are no text have `U+FFFD` for what is not.
    pub fn state(&self) -> BTreeMap<String, String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.state.iter().map(|(key, (value, _))| (text(key), text(value))).collect()
    }

    /// Runs one batch at T, such as `2026-11-30T12:04:00Z`.
    pub fn run(&mut self, at: &str) -> Result<Report, Fault> {
        let time: Time = at.parse().unwrap_or_else(|error| panic!("{error}"));
        let fixtures = std::mem::take(&mut self.fixtures);
        let host = Rc::new(Host::new(fixtures, time, self.state.clone()));

        let batch = Batch::on(host.clone());
        let verdict = with_ambient(host.clone(), || D::prepare(&self.config)?.detect(&batch));
        drop(batch);

        let Ok(host) = Rc::try_unwrap(host) else { panic!("the detector kept its batch") };
        let (fixtures, state, written) = host.into_parts();
        self.fixtures = fixtures;
        let verdict = verdict?;
        self.state = state;
        Ok(Report {
            verdict,
            outputs: written.outputs,
            alarms: written.alarms,
            rejects: written.rejects,
            log: written.log,
        })
    }
}

fn declared(what: &str, names: &[String], name: &str) {
    assert!(names.iter().any(|declared| declared == name), "describe lists no {what} '{name}', only {names:?}");
}
