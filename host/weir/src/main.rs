//! `weir`. Everything it does stands in the library; only this file ends the process.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::exit;
use std::sync::Arc;

use clap::Parser as _;
use weir::cli::Cli;
use weir::commands;
use weir::exit::Exit;
use weir::print::Out;
use weir::wiring::Wired;
use weir_model::zone::Zone;

// Only main ends the process.
#[allow(clippy::disallowed_methods)]
fn main() {
    // Two providers are in the dependency tree, so one has to be named. It fails only when one is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let cli = Cli::try_parse().unwrap_or_else(|told| {
        // Help and version come this way too, with 0.
        let _ = told.print();
        exit(told.exit_code());
    });
    let (mut stdout, mut stderr) = (io::stdout(), io::stderr());
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let colour = !plain && stdout.is_terminal();
    let (json, zone) = (cli.common.json, Zone::default());
    let mut out = Out { stdout: &mut stdout, stderr: &mut stderr, json, colour, zone };
    let ended = commands::run(&cli, &(Arc::new(Wired) as _), &mut out);
    let code = ended.map_or_else(
        |failure| {
            out.failure(&failure);
            failure.exit()
        },
        |()| Exit::Done,
    );
    let _ = io::stdout().flush();
    // Not by returning: that would wait for threads that may still be in a plugin.
    exit(code as i32);
}
