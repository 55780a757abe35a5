#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod asking;
mod following;
mod past;
mod running;

use std::sync::Arc;

use clap::Parser as _;
use weir_model::fault::Fault;
use weir_model::id::ScenarioId;
use weir_model::service::Service;
use weir_model::time::Clock;

use super::*;
use crate::exit::Exit;
use crate::host::{Checked, RunningHost};
use crate::testing::{Fake, Printed};

/// Answers from a fake; starts nothing.
struct Opened(std::sync::Mutex<Option<Fake>>, Vec<Checked>);

impl Wiring for Opened {
    fn start(&self, _: Arc<Config>, _: Arc<dyn Clock>, _: bool) -> Result<Box<dyn RunningHost>, Fault> {
        Err(Fault::internal("it starts nothing"))
    }
    fn open_local(&self, _: &Config, _: Arc<dyn Clock>) -> Result<Arc<dyn Service>, Fault> {
        let fake = crate::testing::lock(&self.0).take();
        fake.map(crate::testing::shared).ok_or_else(|| Fault::internal("it is opened once"))
    }
    fn check(&self, _: &Config, only: Option<&ScenarioId>) -> Result<Vec<Checked>, Fault> {
        let wanted = |c: &&Checked| only.is_none_or(|id| c.scenario.as_ref() == Some(&id.scenario));
        Ok(self.1.iter().filter(wanted).cloned().collect())
    }
}

/// Runs a command line on a folder that a host has held; `{data}` stands for the folder.
fn weir(line: &str, fake: Fake) -> (Exit, Printed) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("ledger")).expect("a folder");
    on(folder.path(), line, Opened(Some(fake).into(), Vec::new()))
}

fn on(folder: &std::path::Path, line: &str, wiring: Opened) -> (Exit, Printed) {
    let line = line.replace("{data}", &folder.display().to_string());
    let cli = Cli::try_parse_from(line.split(' ')).expect("a command line");
    let mut printed = Printed::default();
    let mut out = printed.out(cli.common.json);
    let wiring: Arc<dyn Wiring> = Arc::new(wiring);
    let exit = match run(&cli, &wiring, &mut out) {
        Ok(()) => Exit::Done,
        Err(failure) => {
            out.failure(&failure);
            failure.exit()
        }
    };
    (exit, printed)
}
