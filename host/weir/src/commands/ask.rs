//! Commands that ask once and print the answer.

use std::collections::BTreeSet;

use serde_json::json;
use weir_model::batch::Outcome;
use weir_model::fault::Fault;
use weir_model::id::{BatchId, Digest, Name, RunKey, ScenarioId};
use weir_model::moment::Moment;
use weir_model::review::ReviewAsk;
use weir_model::service::{ScenarioState, ScenarioStatus, Service};
use weir_model::time::Time;

use crate::cli::{self, Batch, Ledger};
use crate::exit::Failure;
use crate::print::{Align, Out, Table, count, report, review as review_text, rows, spark, status as status_text, time};

type Done = Result<(), Failure>;

/// A time of the command line. One without a zone is in that of the people who read the answer.
pub(super) fn instant(option: &str, moment: Moment, out: &Out<'_>) -> Result<Time, Failure> {
    moment.instant(out.zone).map_err(|e| Failure::Usage(format!("{option}: {e}")))
}

pub(super) fn status(service: &dyn Service, out: &mut Out<'_>) -> Done {
    let status = service.status()?;
    if out.json {
        out.object(&status)?;
    } else {
        out.stdout.write_all(status_text::text(&status, out.zone).as_bytes())?;
    }
    Ok(())
}

/// A batch that failed is printed like any other, and makes the exit code 1.
pub(super) fn batch(service: &dyn Service, ask: &Batch, out: &mut Out<'_>) -> Done {
    let found = service.side(&ask.scenario, instant("--at", ask.at, out)?, ask.latest)?;
    if out.json {
        out.object(&found)?;
    } else {
        report::side(out, &found)?;
    }
    match found.outcome {
        Outcome::Failed(_) => Err(Failure::Problems),
        Outcome::Judged | Outcome::NoVerdict => Ok(()),
    }
}

/// As [`batch`]: one that failed is printed, and makes the exit code 1.
pub(super) fn review(service: &dyn Service, ask: &cli::Review, out: &mut Out<'_>) -> Done {
    let cli::Review { scenario, at, latest, rows } = ask;
    let at = at.map(|at| instant("--at", at, out)).transpose()?;
    let found = service.review(&ReviewAsk { scenario: scenario.clone(), at, latest: *latest, rows: *rows })?;
    if out.json {
        out.object(&found)?;
    } else {
        out.stdout.write_all(review_text::text(&found, out.zone).as_bytes())?;
    }
    match found.outcome {
        Outcome::Failed(_) => Err(Failure::Problems),
        Outcome::Judged | Outcome::NoVerdict => Ok(()),
    }
}

pub(super) fn query(service: &dyn Service, sql: &str, tenant: Option<&Name>, out: &mut Out<'_>) -> Done {
    let tenant = match tenant {
        Some(tenant) => tenant.clone(),
        None => only_tenant(service)?,
    };
    let found = service.query(&tenant, sql)?;
    if out.json {
        for row in &found.rows {
            out.object(row)?;
        }
        return Ok(());
    }
    out.table(&rows::table(&found, out.zone))?;
    out.note(format_args!("{}", count(found.rows.len() as u64, "row")))?;
    Ok(())
}

fn only_tenant(service: &dyn Service) -> Result<Name, Failure> {
    let status = service.status()?;
    let scenarios = status.scenarios.into_iter().map(|s| s.tenant);
    let streams = status.streams.into_iter().map(|s| s.tenant);
    let tenants: BTreeSet<Name> = scenarios.chain(streams).collect();
    let names: Vec<&str> = tenants.iter().map(Name::as_str).collect();
    match (tenants.first(), tenants.len()) {
        (Some(tenant), 1) => Ok(tenant.clone()),
        (None, _) => Err(Failure::NotFound("there is no tenant yet".to_owned())),
        _ => Err(Failure::Usage(format!("there are several tenants; choose one with --tenant: {}", names.join(", ")))),
    }
}

/// Pages through the ledger: however long it is, only one page is in memory.
pub(super) fn ledger(service: &dyn Service, ask: &Ledger, out: &mut Out<'_>) -> Done {
    const PAGE: usize = 500;
    let key = RunKey { scenario: ask.scenario.clone(), run: ask.run.clone() };
    let mut left = ask.limit.unwrap_or(usize::MAX);
    let mut after = match (ask.after, ask.limit) {
        (None, Some(limit)) => before_newest(service, &key, limit)?,
        (after, _) => after,
    };
    let mut first = true;
    while left > 0 {
        let page = service.ledger(&key, after, PAGE.min(left))?;
        let Some(last) = page.last() else { break };
        after = Some(last.plan.id);
        left = left.saturating_sub(page.len());
        if out.json {
            for record in &page {
                out.object(&spark::progress(record))?;
            }
        } else {
            out.table(&spark::table(&page, out.zone).headless(!first))?;
        }
        first = false;
    }
    if first && ask.after.is_none() && left > 0 {
        return Err(Failure::NotFound(format!("{key} has no batches")));
    }
    Ok(())
}

/// The batch after which there are so many.
fn before_newest(service: &dyn Service, key: &RunKey, limit: usize) -> Result<Option<BatchId>, Failure> {
    let newest = service.newest(key, 1)?.pop().map_or(0, |record| record.plan.id.0);
    let before = newest.saturating_sub(limit as u64);
    Ok((before > 0).then_some(BatchId(before)))
}

pub(super) fn history(service: &dyn Service, id: &ScenarioId, out: &mut Out<'_>) -> Done {
    let history = service.history(id)?;
    if out.json {
        for entry in &history {
            out.object(entry)?;
        }
        return Ok(());
    }
    let columns = ["TIME", "EVENT", "RULESET", "WHY"].map(|c| (c, Align::Left));
    let mut table = Table::new(columns);
    for entry in history {
        let (time, digest) = (time(entry.time, out.zone), entry.digest.short());
        table.row([time, entry.event, digest, entry.reason]);
    }
    out.table(&table)?;
    Ok(())
}

pub(super) fn rollback(service: &dyn Service, id: &ScenarioId, digest: Option<&str>, out: &mut Out<'_>) -> Done {
    let to = digest.map(|start| find_digest(service, id, start)).transpose()?;
    let pinned = service.rollback(id, to)?;
    if out.json {
        out.object(&json!({"tenant": id.tenant, "scenario": id.scenario, "pinned": pinned}))?;
    } else {
        let short = pinned.short();
        out.line(format_args!("{id} is pinned to {short} until its folder changes; 'weir unpin {id}' undoes it"))?;
    }
    Ok(())
}

/// The digest of the history that begins like this.
pub(super) fn find_digest(service: &dyn Service, id: &ScenarioId, start: &str) -> Result<Digest, Failure> {
    if let Ok(whole) = start.parse() {
        return Ok(whole);
    }
    let history = service.history(id)?.into_iter().map(|e| e.digest);
    let found: BTreeSet<Digest> = history.filter(|d| d.to_string().starts_with(start)).collect();
    match (found.first(), found.len()) {
        (Some(one), 1) => Ok(*one),
        (None, _) => {
            Err(Failure::NotFound(format!("no ruleset of {id} begins with {start}; 'weir history {id}' lists them")))
        }
        (_, n) => Err(Failure::Usage(format!("{n} rulesets of {id} begin with {start}; give more digits"))),
    }
}

pub(super) fn unpin(service: &dyn Service, id: &ScenarioId, out: &mut Out<'_>) -> Done {
    let before = before(service, id)?;
    service.unpin(id)?;
    let idle = before.is_some_and(|(s, _)| s.pinned.is_none());
    if idle { nothing(id, "unpinned", "was not pinned", out) } else { act(Ok(()), id, "unpinned", out) }
}
pub(super) fn forget(service: &dyn Service, id: &ScenarioId, out: &mut Out<'_>) -> Done {
    act(service.forget(id), id, "forgotten", out)
}
pub(super) fn resume(service: &dyn Service, id: &ScenarioId, out: &mut Out<'_>) -> Done {
    match before(service, id)? {
        Some((s, true)) if s.state == ScenarioState::Running && s.paused.is_none() => {
            nothing(id, "resumed", "runs already", out)
        }
        // What is parked is parked in a host that runs.
        Some((s, false)) if s.paused.is_none() => {
            nothing(id, "resumed", "is not paused; it runs as soon as a host does", out)
        }
        _ => act(service.resume(id), id, "resumed", out),
    }
}
pub(super) fn pause(service: &dyn Service, id: &ScenarioId, out: &mut Out<'_>) -> Done {
    let before = before(service, id)?;
    service.pause(id)?;
    let already = before.is_some_and(|(s, _)| s.paused.is_some());
    if already { nothing(id, "paused", "is paused already", out) } else { act(Ok(()), id, "paused", out) }
}

/// What a scenario that is in the rule store did before something is asked of it, and whether a host runs.
fn before(service: &dyn Service, id: &ScenarioId) -> Result<Option<(ScenarioStatus, bool)>, Failure> {
    let status = service.status()?;
    let live = status.live;
    let found = status.scenarios.into_iter().find(|s| s.tenant == id.tenant && s.scenario == id.scenario);
    Ok(found.map(|s| (s, live)))
}

/// What was asked for was so before: that is no failure.
fn nothing(id: &ScenarioId, done: &str, why: &str, out: &mut Out<'_>) -> Done {
    if out.json {
        out.object(&json!({"tenant": id.tenant, "scenario": id.scenario, "done": done, "changed": false}))?;
    } else {
        out.line(format_args!("{id} {why}"))?;
    }
    Ok(())
}
fn act(acted: Result<(), Fault>, id: &ScenarioId, done: &str, out: &mut Out<'_>) -> Done {
    acted?;
    if out.json {
        out.object(&json!({"tenant": id.tenant, "scenario": id.scenario, "done": done}))?;
    } else {
        out.line(format_args!("{id} is {done}"))?;
    }
    Ok(())
}
