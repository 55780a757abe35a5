//! `cargo xtask`: the commands of this repository's developers. CI calls the same ones.
//!
//! Std only, beside a hash, so that the first run starts after seconds. Everything is made below the cargo target
//! folder, and nothing that is up to date is made again.

#![forbid(unsafe_code)]

mod args;
mod debian;
mod demo;
mod digest;
mod guests;
mod jobs;
mod paths;
mod process;
mod python;
mod setup;
mod toolchain;

use std::process::ExitCode;

use args::Args;
use paths::Paths;

/// What a command ends with: nothing, or a text for people that says what failed and what to do.
type Outcome = Result<(), String>;

const USAGE: &str = "\
cargo xtask COMMAND

  demo     build everything and run an example until Ctrl-C
             --example NAME   which one, of examples/ (network-cep)
             --dir DIR        where to run it (target/demo)
             --keep           go on in that folder instead of starting afresh
             --listen ADDR    where REST listens (127.0.0.1:8470)
             --for SECONDS    stop by itself
             --speed N        time runs N times as fast, 1 to 1000: at 60 a day takes 24 minutes
             --injector       the injector's data instead of the starter data
  test     setup, guests, then all tests
  check    formatting and lints, no warning allowed
  guests   build the components below plugins/ and tests/guests/
             --tag N          build only guests/s1_syslog+N.wasm: the same plugin with other bytes, for swap tests
  setup    install what guests and tests need: the wasm32-wasip2 target, a Python that reads Delta tables
  soak     run one host with all scenarios of the example at a trigger of a second, in release mode, and say how it did
             --minutes N      for so long, after one minute to settle (10)
  bench    build the benchmarks in release mode and run them (arguments after -- are theirs)
";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    match run(&command, Args::new(words)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("\nxtask {command}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &str, mut args: Args) -> Outcome {
    match command {
        "" | "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        "demo" => {
            let mut args = args.joined();
            let options = demo::Options::from(&mut args)?;
            args.end()?;
            demo::run(&Paths::find()?, &options)
        }
        "guests" => {
            let tag = args.value("--tag")?;
            args.end()?;
            let paths = Paths::find()?;
            let guest = setup::guest_toolchain(&paths)?;
            match tag {
                None => guests::build(&paths, &guest),
                Some(tag) => guests::build_tagged(&paths, &guest, &tag),
            }
        }
        "soak" => {
            let minutes = args.value("--minutes")?.unwrap_or("10".to_owned());
            minutes.parse::<u32>().map_err(|_| format!("--minutes takes a number, not '{minutes}'"))?;
            args.end()?;
            jobs::soak(&Paths::find()?, &minutes)
        }
        "bench" => jobs::bench(&Paths::find()?, &args.rest()?),
        "setup" | "test" | "check" => {
            args.end()?;
            let paths = Paths::find()?;
            match command {
                "setup" => setup::all(&paths).map(drop),
                "test" => jobs::test(&paths),
                _ => jobs::check(&paths),
            }
        }
        _ => Err(format!("there is no such command\n\n{USAGE}")),
    }
}
