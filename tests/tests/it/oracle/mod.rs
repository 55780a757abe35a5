//! An independent oracle for S1, S2 and S3: what `network-cep.md` says, in plain Rust over rows, against the real thing (SQL
//! engine, component in the sandbox, JDM rules, declared detection) on a thousand random data sets a scenario.
//!
//! ```text
//! dice      random numbers of a seed
//! sN        the oracle: rows in, what is said out. No SQL, no Arrow, nothing of a plugin
//! sN_data   random rows of a seed, full of edges, and the test
//! real      the same rows through the real engines
//! ```
//!
//! A data set is a history of one to three batches; rows may come late, and what was reported is remembered. A failure names
//! its seed; with `WEIR_ORACLE_SEED=17` in the environment that one runs alone. What the spec leaves open is decided as
//! `examples/network-cep/README.md` says.

mod dice;
mod real;
mod s1;
mod s1_data;
mod s2;
mod s2_data;
mod s3;
mod s3_data;

use std::collections::BTreeMap;

use weir_model::Severity;

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const SEEDS: u64 = 1_000;

/// The minute that a time lies in.
fn minute_of(at: i64) -> i64 {
    at - at.rem_euclid(MINUTE)
}

/// A value of a result row.
#[derive(Debug, Clone)]
enum Cell {
    Text(String),
    Int(i64),
    Float(f64),
    /// Microseconds since the epoch.
    Time(i64),
    Null,
}

/// Exact, but for floats: these to 1e-9 of their size.
impl PartialEq for Cell {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Int(a), Self::Int(b)) | (Self::Time(a), Self::Time(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()),
            (Self::Null, Self::Null) => true,
            _ => false,
        }
    }
}

/// Rows in an order in which two answers can be compared.
fn sorted(mut rows: Vec<Vec<Cell>>) -> Vec<Vec<Cell>> {
    rows.sort_by_key(|row| {
        // floats may differ in their last digits, and are no part of a key
        row.iter().filter(|cell| !matches!(cell, Cell::Float(_))).map(|cell| format!("{cell:?}")).collect::<Vec<_>>()
    });
    rows
}

/// What a batch says.
#[derive(Debug, Clone, Default, PartialEq)]
struct Said {
    /// Rows of the results, sorted.
    rows: Vec<Vec<Cell>>,
    /// Alarms that are open after it, by key: how bad, and T of the batch that raised them last.
    open: BTreeMap<Vec<String>, (Severity, i64)>,
}

/// How often each situation came up.
#[derive(Debug, Default)]
struct Seen(BTreeMap<&'static str, u64>);

impl Seen {
    fn when(&mut self, what: &'static str, is: bool) -> bool {
        *self.0.entry(what).or_default() += u64::from(is);
        is
    }

    fn add(&mut self, other: Self) {
        other.0.into_iter().for_each(|(what, times)| *self.0.entry(what).or_default() += times);
    }

    /// Fails where something came up too seldom for the comparison to say anything of it.
    fn assert(&self, least: u64, often: &[(&'static str, u64)]) {
        for (what, times) in &self.0 {
            assert!(*times >= least, "'{what}' came up {times} times in {SEEDS} data sets, which is too seldom");
        }
        for (what, least) in often {
            let times = self.0.get(what).copied().unwrap_or_default();
            assert!(times >= *least, "'{what}' came up {times} times, and {least} are asked for");
        }
    }
}

/// Runs a thousand seeds, or the one that the environment names; a single one proves no coverage.
// which seeds ran, and what they held, is for people to read
#[allow(clippy::print_stdout)]
fn every_seed(scenario: &str, often: &[(&'static str, u64)], mut one: impl FnMut(u64) -> Seen) {
    if let Some(seed) = std::env::var_os("WEIR_ORACLE_SEED") {
        let seed = seed.to_str().and_then(|text| text.parse().ok()).expect("WEIR_ORACLE_SEED is a number");
        println!("{scenario}, seed {seed}: {:#?}", one(seed).0);
        return;
    }
    let mut seen = Seen::default();
    (1..=SEEDS).for_each(|seed| seen.add(one(seed)));
    println!("{scenario}: seeds 1 to {SEEDS} agree; {:?}", seen.0);
    seen.assert(10, often);
}
