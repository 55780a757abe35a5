//! Commits: one run alone, and a hundred scenarios at once.

use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::Instant;

use arrow_array::{BinaryArray, RecordBatch};
use weir_ledger::{FjallLedger, LedgerConfig};
use weir_model::batch::{Commit, Output, Space, StageMicros, StateValue, StateWrite};
use weir_model::port::Ledger;
use weir_model::{BatchId, Digest, NoFaults, Outcome, Plan, RunKey, Time};

use crate::Effort;
use crate::report::{Report, Sample};
use crate::support::fakes::name;

const KEYS: usize = 20;
const VALUE: usize = 100;
const OUTPUT: usize = 4096;
const SCENARIOS: usize = 100;

/// Bytes that do not compress, different in every batch.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(|| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    })
    .take(bytes)
    .collect()
}

fn commit(key: &RunKey, n: u64) -> Commit {
    let state = (0..KEYS).map(|k| StateWrite {
        space: Space::Plugin(1),
        key: format!("key {k:03}").into_bytes(),
        after: Some(StateValue { value: noise(n * 1000 + k as u64, VALUE), expires: None }),
    });
    let column = BinaryArray::from_iter_values([noise(n, OUTPUT)]);
    let rows = RecordBatch::try_from_iter([("bytes", Arc::new(column) as _)]).unwrap();
    Commit {
        plan: Plan {
            key: key.clone(),
            id: BatchId(n),
            time: Time(i64::try_from(n).unwrap() * 60_000_000),
            ruleset: Digest::of(b"bench"),
            attempt: 1,
            streams: Default::default(),
            tables: Default::default(),
            skipped: None,
            skipped_total: 0,
            state_schema: Some(1),
            backfill: None,
        },
        outcome: Outcome::Judged,
        state: state.collect(),
        events: Vec::new(),
        outputs: vec![Output { output: name("rows"), table: name("rows"), rows }],
        rows_in: 100,
        raised: 0,
        micros: StageMicros::default(),
        rows_by: Default::default(),
    }
}

fn open(folder: &Path) -> Arc<FjallLedger> {
    FjallLedger::open(folder, LedgerConfig::default(), Arc::new(NoFaults)).unwrap()
}

fn key(scenario: usize) -> RunKey {
    RunKey::live(format!("bench/s{scenario}").parse().unwrap())
}

/// How long a sync of the same bytes to a file takes here: what no commit can be faster than.
fn bare_sync(folder: &Path, rounds: usize) -> Sample {
    use std::io::Write;
    let mut file = std::fs::File::create(folder.join("bare")).unwrap();
    let mut sample = Sample::default();
    for n in 0..rounds {
        let bytes = noise(n as u64, KEYS * VALUE + OUTPUT);
        sample.time(|| {
            file.write_all(&bytes).unwrap();
            file.sync_data().unwrap();
        });
    }
    sample
}

/// Alone and shared.
pub fn run(report: &mut Report, effort: Effort) {
    let folder = tempfile::tempdir().unwrap();
    let rounds = effort.rounds(500);
    report.durations("append and sync of as many bytes to a bare file", &bare_sync(folder.path(), rounds), None);

    let ledger = open(&folder.path().join("alone"));
    let mut alone = Sample::default();
    for n in 1..=rounds as u64 + 20 {
        let next = commit(&key(0), n);
        let start = Instant::now();
        ledger.commit(&next).unwrap();
        if n > 20 {
            alone.push(start.elapsed());
        }
    }
    report.durations("ledger commit, one scenario alone: 20 keys of 100 B, 4 kB of output", &alone, None);

    let ledger = open(&folder.path().join("shared"));
    let batches = effort.most(20, 5);
    let together = Barrier::new(SCENARIOS);
    let start = Instant::now();
    let shared: Vec<Sample> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..SCENARIOS)
            .map(|scenario| {
                let (ledger, together) = (&ledger, &together);
                scope.spawn(move || {
                    let mut sample = Sample::default();
                    let key = key(scenario);
                    together.wait();
                    for n in 1..=batches {
                        let next = commit(&key, n);
                        sample.time(|| ledger.commit(&next).unwrap());
                    }
                    sample
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let took = start.elapsed().as_secs_f64();
    let mut all = Sample::default();
    shared.into_iter().for_each(|sample| all.extend(sample));
    report.durations("ledger commit, 100 scenarios at once on 100 threads", &all, None);
    let stats = ledger.stats();
    let rate = all.len() as f64 / took;
    let value = format!("{rate:.0} a second, {:.1} to a sync", stats.commits as f64 / stats.syncs.max(1) as f64);
    report.figure("ledger commits of these 100 scenarios", &value);
}
