//! `weir backfill`: asks for a second of work after the other until the runs are done; scenarios side by side.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::json;
use weir_model::batch::Between;
use weir_model::fault::{Fault, FaultKind, Retry};
use weir_model::id::ScenarioId;
use weir_model::service::{BackfillAsk, BackfillProgress, Service};

use super::ask::{find_digest, instant};
use crate::cli::Backfill;
use crate::exit::Failure;
use crate::print::progress::Progress;
use crate::print::{Align, Out, Table};

/// Scenarios at the same time. A host works on no more than its cores allow, whoever asks.
const AT_ONCE: usize = 4;

/// How long a host that has just started may take to open its streams.
const OPENING: Duration = Duration::from_secs(20);
/// How often it is asked meanwhile.
const LOOK: Duration = Duration::from_millis(200);

/// Whether the streams are not open yet.
fn opening(fault: &Fault) -> bool {
    fault.kind == FaultKind::NotReplayable && fault.retry == Retry::Later
}

/// What came of one scenario in this call of the command.
#[derive(Default)]
struct Sum {
    last: Option<BackfillProgress>,
    fault: Option<Fault>,
    first: u64,
    rows: u64,
    results: u64,
    alarms: u64,
    failed: u64,
}

impl Sum {
    fn add(&mut self, told: Result<BackfillProgress, Fault>) {
        match told {
            Ok(progress) => {
                self.rows += progress.rows_in;
                self.results += progress.results;
                self.alarms += progress.alarms;
                self.failed += progress.failed;
                self.last = Some(progress);
            }
            Err(fault) => self.fault = Some(fault),
        }
    }
    fn done(&self) -> (u64, u64) {
        self.last.as_ref().map_or((0, 0), |p| (p.done, p.total))
    }
}

pub(super) fn backfill(service: &Arc<dyn Service>, ask: &Backfill, out: &mut Out<'_>) -> Result<(), Failure> {
    let started = Instant::now();
    let range = Between { from: instant("--from", ask.from, out)?, to: instant("--to", ask.to, out)? };
    let asks = ask.scenarios.iter().map(|id| one(&**service, ask, range, id)).collect::<Result<Vec<_>, _>>()?;
    let expected = asks.iter().map(|ask| ask.backfill(None).batches()).sum::<u64>();
    let mut sums: Vec<Sum> = asks.iter().map(|_| Sum::default()).collect();
    let mut progress = Progress::new("backfill", "batches", out);
    let (asks, next) = (&asks, &AtomicUsize::new(0));
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(asks.len()) {
            let (tell, service) = (tell.clone(), Arc::clone(service));
            scope.spawn(move || {
                let mut go_on = true;
                while go_on
                    && let i = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(ask) = asks.get(i)
                {
                    let begun = Instant::now();
                    loop {
                        let told = service.backfill(ask);
                        if told.as_ref().is_err_and(opening) && begun.elapsed() < OPENING {
                            // A real wait for a host that opens its streams; nothing has been asked for yet.
                            #[allow(clippy::disallowed_methods)]
                            std::thread::sleep(LOOK);
                            continue;
                        }
                        let more = told.as_ref().is_ok_and(|p| !p.finished());
                        go_on = tell.send((i, told)).is_ok();
                        if !more || !go_on {
                            break;
                        }
                    }
                }
            });
        }
        drop(tell);
        for (i, told) in told {
            if let (None, Ok(first)) = (&sums[i].last, &told) {
                // What an earlier call of the command did is not counted again, as far as it can be seen.
                sums[i].first = if first.rows_in == 0 && first.results == 0 { first.done } else { 0 };
            }
            sums[i].add(told);
            progress.at(sums.iter().map(|s| s.done().0).sum(), expected, out)?;
        }
        progress.end(out)
    })?;
    let seconds = started.elapsed().as_secs_f64();
    print(asks, &sums, seconds, out)?;
    let faults = sums.iter().zip(asks).filter_map(|(sum, ask)| Some((&ask.scenario, sum.fault.as_ref()?)));
    let mut faults = faults.map(|(scenario, fault)| match asks.len() {
        1 => fault.clone(),
        _ => Fault { message: format!("{scenario}: {}", fault.message), ..fault.clone() },
    });
    // The first is what the command ends with.
    let Some(first) = faults.next() else { return Ok(()) };
    if !out.json {
        for other in faults {
            out.note(format_args!("{other}"))?;
        }
    }
    Err(first.into())
}

fn one(service: &dyn Service, ask: &Backfill, range: Between, id: &ScenarioId) -> Result<BackfillAsk, Failure> {
    let ruleset = ask.ruleset.as_deref().map(|start| find_digest(service, id, start)).transpose()?;
    Ok(BackfillAsk {
        scenario: id.clone(),
        name: ask.name.clone(),
        range,
        every: ask.every,
        ruleset,
        publish: ask.publish,
        discard: ask.discard,
    })
}

fn print(asks: &[BackfillAsk], sums: &[Sum], seconds: f64, out: &mut Out<'_>) -> Result<(), Failure> {
    let columns = [
        ("SCENARIO", Align::Left),
        ("RUN", Align::Left),
        ("BATCHES", Align::Right),
        ("ROWS", Align::Right),
        ("RESULTS", Align::Right),
        ("ALARMS", Align::Right),
        ("FAILED", Align::Right),
        ("PUBLISHED", Align::Left),
    ];
    let mut table = Table::new(columns);
    for (ask, sum) in asks.iter().zip(sums) {
        let (done, total) = sum.done();
        let run = sum.last.as_ref().map(|p| p.run.run.to_string());
        let published = sum.last.as_ref().is_some_and(|p| p.published);
        if out.json {
            out.object(&json!({
                "tenant": ask.scenario.tenant, "scenario": ask.scenario.scenario, "run": run,
                "ruleset": sum.last.as_ref().map(|p| p.ruleset), "base": sum.last.as_ref().and_then(|p| p.base),
                "from": ask.range.from, "to": ask.range.to, "every": ask.every, "batches": done, "total": total,
                "rows_in": sum.rows, "results": sum.results, "alarms": sum.alarms, "failed": sum.failed,
                "published": published, "discarded": sum.last.as_ref().is_some_and(|p| p.discarded), "seconds": seconds, "fault": sum.fault,
            }))?;
            continue;
        }
        table.row([
            ask.scenario.to_string(),
            run.unwrap_or_else(|| "-".to_owned()),
            format!("{done}/{total}"),
            sum.rows.to_string(),
            sum.results.to_string(),
            sum.alarms.to_string(),
            sum.failed.to_string(),
            match &sum.last {
                Some(p) if p.published => "yes",
                Some(p) if p.discarded => "discarded",
                _ => "no",
            }
            .to_owned(),
        ]);
    }
    if !out.json && sums.iter().any(|sum| sum.last.is_some()) {
        out.table(&table)?;
        let batches: u64 = sums.iter().map(|s| s.done().0.saturating_sub(s.first)).sum();
        let rows: u64 = sums.iter().map(|s| s.rows).sum();
        let rate = rows as f64 / seconds.max(0.001);
        out.note(format_args!("batches: {batches}, in {seconds:.1} s, {rate:.0} rows a second"))?;
        if sums.iter().any(|s| s.last.as_ref().is_some_and(|p| p.finished() && !p.published && !p.discarded)) {
            out.note(format_args!("nothing was written to tables; the same command with --publish does that"))?;
        }
        for (ask, sum) in asks.iter().zip(sums) {
            if let Some(trigger) = sum.last.as_ref().and_then(|p| p.trigger).filter(|trigger| *trigger < ask.every) {
                out.note(format_args!(
                    "{}: a batch each {}, and its trigger is {trigger}: a detector that leaves rows in each batch has left \
                     fewer than live; --every {trigger} is as live",
                    ask.scenario, ask.every
                ))?;
            }
        }
    }
    Ok(())
}
