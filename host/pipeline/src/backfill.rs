//! A past period, batch by batch, as a run of its own.
//!
//! ```text
//! backfill.rs  what a call does: open the run, batches for about a second, publish when all are there
//! run.rs       one batch after the other: plan, detect, commits in groups
//! sliding.rs   a stream's rows around T, read from bronze in slabs
//! reach.rs     whether the period's rows are still there
//! publish.rs   the run's rows in place of those in the result tables, or given up
//! ```
//!
//! T decides what a batch sees: of a stream in window mode all rows before T, of one in new-rows mode those since the
//! batch before. A row that came out of order is in its place then, where the live batch at T may not have had it yet.
//! Late rows and dead letters were never in bronze, so no run sees them.

mod publish;
mod reach;
mod run;
mod sliding;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_model::batch::Between;
use weir_model::service::{BackfillAsk, BackfillProgress};
use weir_model::{Digest, Fault, FaultKind, Name, RunId, RunKey, Time};

use crate::host::Host;
use run::Run;

/// How long one call works before it says how far it is.
const SLICE: Duration = Duration::from_secs(1);
/// Runs whose windows are kept in memory between calls; with more, those that nobody asked for lately begin anew.
const OPEN: usize = 8;
/// How far a slice stands back behind live batches, as `nice` counts it.
const BACK: i32 = 10;
/// As large as that of the threads that live batches run on.
const STACK: usize = 8 << 20;
/// Batches of one run.
const MOST_BATCHES: u64 = 10_000_000;

/// Runs that were asked for lately.
#[derive(Default)]
pub struct Open(Mutex<BTreeMap<RunKey, Slot>>);

struct Slot {
    run: Arc<Mutex<Option<Run>>>,
    asked: Instant,
}

impl Open {
    fn slot(&self, key: &RunKey) -> Result<Arc<Mutex<Option<Run>>>, Fault> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !open.contains_key(key) && open.len() >= OPEN {
            // One that works at this moment is held by its caller too.
            let idle = open.iter().filter(|(_, slot)| Arc::strong_count(&slot.run) == 1);
            let oldest = idle.min_by_key(|(_, slot)| slot.asked).map(|(key, _)| key.clone());
            let oldest = oldest.ok_or_else(|| {
                Fault::host(FaultKind::Resources, format_args!("{OPEN} backfills are running"))
                    .retry(weir_model::Retry::Later)
                    .fix("wait until one of them is done")
            })?;
            open.remove(&oldest);
        }
        let slot = open.entry(key.clone()).or_insert_with(|| Slot { run: Arc::default(), asked: Instant::now() });
        slot.asked = Instant::now();
        Ok(slot.run.clone())
    }

    /// Forgets a run whose `slot` the caller holds, unless others wait for it: whoever came after them would not wait for
    /// them.
    fn close(&self, key: &RunKey, slot: &Arc<Mutex<Option<Run>>>) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The map's and the caller's. Nobody gets another one without the map.
        if Arc::strong_count(slot) <= 2 {
            open.remove(key);
        }
    }
}

/// Goes on with a run for about a second, or begins it; publishes it when that is asked for and all batches are there.
pub(crate) fn step(host: &Host, ask: &BackfillAsk) -> Result<BackfillProgress, Fault> {
    check(ask, host.engines.clock.now())?;
    if !host.live.load(std::sync::atomic::Ordering::Acquire) {
        host.reconcile()?;
    }
    host.room()?;
    let ruleset = run::ruleset(host, ask)?;
    let name = match &ask.name {
        Some(name) => name.clone(),
        None => default_name(ask, ruleset)?,
    };
    let key = RunKey { scenario: ask.scenario.clone(), run: RunId::Backfill(name) };
    let slot = host.backfills.slot(&key)?;
    let mut run = slot.lock().unwrap_or_else(PoisonError::into_inner);
    let open: &mut Option<Run> = &mut run;
    let result = match ask.discard {
        true => publish::discard(&host.engines, &key),
        false => standing_back(|| go_on(host, ask, &key, ruleset, open)),
    };
    match &result {
        Ok(progress) if !progress.finished() => {}
        // Done, or not known what is in memory: what follows begins at the ledger.
        _ => {
            *run = None;
            host.backfills.close(&key, &slot);
        }
    }
    result
}

/// Works on a thread of its own that lets live batches go first. Only a new thread can: one that has stepped back may not
/// step forward again.
fn standing_back<T: Send>(work: impl FnOnce() -> Result<T, Fault> + Send) -> Result<T, Fault> {
    let span = tracing::Span::current();
    let work = || {
        if let Err(e) = rustix::process::setpriority_process(None, BACK) {
            tracing::debug!("a backfill runs with the priority of everything else: {e}");
        }
        span.in_scope(work)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("backfill".to_owned()).stack_size(STACK);
        let thread = thread.spawn_scoped(scope, work);
        let thread =
            thread.map_err(|e| Fault::host(FaultKind::Resources, format_args!("no thread for a backfill: {e}")))?;
        thread.join().unwrap_or_else(|_| Err(Fault::internal("a backfill panicked")))
    })
}

fn go_on(
    host: &Host,
    ask: &BackfillAsk,
    key: &RunKey,
    ruleset: Digest,
    run: &mut Option<Run>,
) -> Result<BackfillProgress, Fault> {
    let run = match run {
        Some(run) => run,
        None => run.insert(Run::open(host, ask, key, ruleset)?),
    };
    let mut progress = run.go_on(host, Instant::now() + SLICE)?;
    if ask.publish && progress.done == progress.total {
        progress.published = publish::publish(host, run)?;
    }
    progress.publish = ask.publish;
    Ok(progress)
}

fn check(ask: &BackfillAsk, now: Time) -> Result<(), Fault> {
    let wrong =
        |field: &str, message: String, fix: &str| Err(Fault::tenant(FaultKind::Config, message).field(field).fix(fix));
    let Between { from, to } = ask.range;
    if to <= from {
        return wrong("--to", format!("{to} is not after {from}"), "--from comes first");
    }
    if to > now {
        return wrong("--to", format!("{to} has not come yet; it is {now}"), "end at or before now");
    }
    if ask.every.get() < Duration::from_secs(1) {
        return wrong("--every", format!("{} is less than a second", ask.every), "such as 1m");
    }
    match ask.backfill(None).batches() {
        0 => wrong("--every", format!("no multiple of {} lies in [{from}, {to})", ask.every), "choose a longer range"),
        n if n > MOST_BATCHES => {
            wrong("--every", format!("that are {n} batches, and {MOST_BATCHES} are allowed"), "choose a shorter range")
        }
        _ => Ok(()),
    }
}

/// Of what the run is a function of: the same question goes on with it, another one is another run.
fn default_name(ask: &BackfillAsk, ruleset: Digest) -> Result<Name, Fault> {
    let Between { from, to } = ask.range;
    // A name has 64 characters: times that are no full seconds are written as microseconds.
    let compact = |time: Time| match time.micros() % 1_000_000 {
        0 => time.to_string().chars().filter(char::is_ascii_alphanumeric).collect::<String>(),
        _ => time.micros().to_string(),
    };
    let every = ask.every.get().as_secs();
    let digest = ruleset.short();
    Name::new(&format!("{}-{}-{every}s-{digest}", compact(from), compact(to))).map_err(Fault::internal)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn whoever_comes_after_one_that_waits_waits_for_it() {
        let name = Name::new("r").unwrap();
        let key = RunKey { scenario: "t/s".parse().unwrap(), run: RunId::Backfill(name) };
        let open = Open::default();
        let (first, second) = (open.slot(&key).unwrap(), open.slot(&key).unwrap());
        open.close(&key, &first);
        drop(first);
        let third = open.slot(&key).unwrap();
        assert!(Arc::ptr_eq(&second, &third));
        drop(third);
        open.close(&key, &second);
        assert!(!Arc::ptr_eq(&second, &open.slot(&key).unwrap()), "the last one closes it");
    }
}
