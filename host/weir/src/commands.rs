//! The commands. Each asks a service and prints the answer.

mod ask;
mod backfill;
mod generate;
mod reach;
mod run;
mod tail;

use std::io::IsTerminal as _;
use std::sync::Arc;

use weir_model::fault::Fault;

use crate::cli::{Cli, Command};
use crate::clock::SystemClock;
use crate::config::{Config, Need};
use crate::exit::Failure;
use crate::host::Wiring;
use crate::logging::{self, Filter};
use crate::print::{Out, report};
use reach::reach;

/// Does what the command line says.
pub fn run(cli: &Cli, wiring: &Arc<dyn Wiring>, out: &mut Out<'_>) -> Result<(), Failure> {
    let config = Config::load(&cli.overrides(), cli.need()).map_err(Failure::Config)?;
    out.zone = config.display_timezone;
    let level = match cli.need() {
        Need::Run => config.log.level.clone(),
        Need::Data | Need::Store | Need::Nothing => cli.common.log_level.clone().unwrap_or_else(Filter::quiet),
    };
    let colour = out.colour && std::io::stderr().is_terminal();
    logging::start(config.log.format, &level, colour);
    let clock = Arc::new(SystemClock::new());
    let service = || reach(&config, &**wiring, clock.clone());
    match &cli.command {
        Command::Run(ask) => run::run(Arc::new(config), Arc::clone(wiring), clock, ask, out),
        Command::Check { scenario } => {
            let checked = wiring.check(&config, scenario.as_ref())?;
            check(&checked, scenario.as_ref(), out)
        }
        Command::Tail(ask) => tail::tail(ask, &tail::Real::new(&config, &**wiring, clock.clone()), out),
        Command::Batch(batch) => ask::batch(&*service()?, batch, out),
        Command::Review(ask) => ask::review(&*service()?, ask, out),
        Command::Status => ask::status(&*service()?, out),
        Command::Backfill(ask) => backfill::backfill(&service()?, ask, out),
        Command::Generate(ask) => generate::generate(&config, ask, clock.clone(), out),
        Command::Query { sql, tenant } => ask::query(&*service()?, sql, tenant.as_ref(), out),
        Command::Ledger(ledger) => ask::ledger(&*service()?, ledger, out),
        Command::History(one) => ask::history(&*service()?, &one.scenario, out),
        Command::Rollback { scenario, digest } => ask::rollback(&*service()?, scenario, digest.as_deref(), out),
        Command::Unpin(one) => ask::unpin(&*service()?, &one.scenario, out),
        Command::Forget(one) => ask::forget(&*service()?, &one.scenario, out),
        Command::Resume(one) => ask::resume(&*service()?, &one.scenario, out),
        Command::Pause(one) => ask::pause(&*service()?, &one.scenario, out),
    }
}

fn check(
    checked: &[crate::host::Checked],
    only: Option<&weir_model::ScenarioId>,
    out: &mut Out<'_>,
) -> Result<(), Failure> {
    if let Some(id) = only
        && checked.is_empty()
    {
        return Err(Fault::no_scenario(id).fix("correct the name; `weir check` lists all that the store has").into());
    }
    let good = checked.iter().all(|c| c.problems.is_empty());
    if out.json {
        out.object(&serde_json::json!({"ok": good, "checked": checked}))?;
    } else {
        report::check(out, checked)?;
    }
    if good { Ok(()) } else { Err(Failure::Problems) }
}

#[cfg(test)]
mod tests;
