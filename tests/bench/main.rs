//! The benchmarks: `cargo xtask bench [-- SECTION ... --quick | --long]`. Prints Markdown tables, and what misses its goal by how
//! much. Both sides of a ratio are measured in the same run, in turns where that is possible.
//!
//! Sections: tick, batch, detect, instance, windows, swap, ledger, delta. Without a name all are run. `soak MINUTES` is a run
//! of its own (`cargo xtask soak`): it needs the host's binary beside this one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod call;
mod delta;
mod ledger;
mod native;
mod recorded;
mod report;
mod s1;
mod soak;
mod support;
mod windows;

/// The guest of the tests, compiled for this machine. Its folder lies inside of a member of this workspace, so it cannot
/// be a dependency of it.
#[allow(dead_code, reason = "one behaviour of many is measured")]
#[path = "../guests/probe/src/lib.rs"]
mod probe;

use std::time::Instant;

use report::Report;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    quick: bool,
    times: usize,
}

impl Effort {
    /// `full` rounds, or as many times more as was asked for; a tenth of them, at least five, when it must be quick.
    pub fn rounds(self, full: usize) -> usize {
        self.times * if self.quick { (full / 10).max(5) } else { full }
    }
    /// The larger number unless it must be quick.
    pub fn most(self, full: u64, quick: u64) -> u64 {
        if self.quick { quick } else { full }
    }
}

type Section = (&'static str, fn(&mut Report, Effort));

const SECTIONS: [Section; 8] = [
    ("tick", s1::tick),
    ("batch", s1::batch),
    ("detect", call::detect),
    ("instance", call::instance),
    ("windows", windows::run),
    ("swap", s1::swap),
    ("ledger", ledger::run),
    ("delta", delta::run),
];

fn main() {
    let mut effort = Effort { quick: false, times: 1 };
    let mut wanted = Vec::new();
    let mut minutes = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "soak" => minutes = Some(arguments.next().map_or(10, |n| n.parse().expect("a number of minutes"))),
            "--quick" => effort.quick = true,
            // For a profiler, which wants a run to last.
            "--long" => effort.times = 20,
            name if SECTIONS.iter().any(|(known, _)| *known == name) => wanted.push(argument),
            other => {
                let known: Vec<&str> = SECTIONS.iter().map(|(name, _)| *name).collect();
                eprintln!("{other}: neither --quick, --long nor one of the sections {}", known.join(", "));
                // The process has done nothing that needs an end.
                #[allow(clippy::disallowed_methods)]
                std::process::exit(2);
            }
        }
    }
    if cfg!(debug_assertions) {
        eprintln!("this is no release build: the figures mean nothing");
    }
    let mut report = Report::begin();
    if let Some(minutes) = minutes {
        soak::run(&mut report, minutes);
        report.end();
        return;
    }
    for (name, run) in SECTIONS {
        if wanted.is_empty() || wanted.iter().any(|w| w == name) {
            let started = Instant::now();
            run(&mut report, effort);
            eprintln!("{name}: {:.1} s", started.elapsed().as_secs_f64());
        }
    }
    report.end();
}
