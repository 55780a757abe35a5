//! The command line, as clap reads it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use weir_model::duration::Span;
use weir_model::id::{BatchId, Name, RunId, ScenarioId};
use weir_model::moment::Moment;
use weir_model::review::{MOST_ROWS, ROWS};
use weir_model::zone::Zone;

use crate::config::{Need, Overrides};
use crate::exit::HELP;
use crate::generate::Format;
use crate::logging::{self, Filter};

/// Runs micro-batch detection pipelines, and tells of them.
///
/// All commands but run and check ask the host that holds the data folder; when none runs, they open the folder
/// themselves.
#[derive(Debug, Parser)]
#[command(name = "weir", version, after_help = HELP, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Options of all commands.
    #[command(flatten)]
    pub common: Common,
}

/// Options of all commands.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of all commands")]
pub struct Common {
    /// The rule store
    #[arg(long, global = true, value_name = "DIR", env = "WEIR_STORE")]
    pub store: Option<PathBuf>,
    /// The data folder: ledger, lake, history, socket
    #[arg(long, global = true, value_name = "DIR", env = "WEIR_DATA")]
    pub data: Option<PathBuf>,
    /// Settings; defaults.toml of host/weir lists them all
    #[arg(long, global = true, value_name = "FILE", env = "WEIR_CONFIG")]
    pub config: Option<PathBuf>,
    /// Print JSON with stable field names: one object, or one object a line
    #[arg(long, global = true)]
    pub json: bool,
    /// In which time zone times are shown to people, and read where they have none, such as Asia/Seoul; JSON and the log are
    /// in UTC
    #[arg(long, global = true, value_name = "ZONE")]
    pub timezone: Option<Zone>,
    /// How the log on stderr looks: human or json
    #[arg(long, global = true, value_name = "FORMAT", env = "WEIR_LOG_FORMAT")]
    pub log: Option<logging::Format>,
    /// What is logged: trace, debug, info, warn, error, or by module
    #[arg(long, global = true, value_name = "LEVEL", env = "WEIR_LOG")]
    pub log_level: Option<Filter>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the service
    Run(Run),
    /// Validate the rule store without running it; exit code 1 and every problem with file, field and fix
    Check {
        /// This one only
        #[arg(value_name = "TENANT/SCENARIO")]
        scenario: Option<ScenarioId>,
    },
    /// Run one batch for a fixed time beside the live ones; writes nothing
    ///
    /// A committed time is replayed: its positions, ruleset and state; with --latest on today's ruleset and rows, and that
    /// state. Another time runs on empty state and on the rows before it.
    Batch(Batch),
    /// Show how a batch came to its result: rows, queries, rules, alarms; and why there are none
    ///
    /// A committed time is replayed from its record, as live; another time runs on empty state and on the rows before it. Of
    /// each answer --rows are shown, at most 1000; of calls the first 200. Writes nothing.
    Review(Review),
    /// Show scenarios, streams and sinks
    Status,
    /// Follow alarms as they are committed
    ///
    /// It goes on over restarts of the host, and waits for one when none runs; --once reads the folder itself.
    Tail(Tail),
    /// SQL over a tenant's lake tables, hot windows and current_alarms
    Query {
        /// One SELECT
        sql: String,
        /// Whose tables; needed when there are several tenants
        #[arg(long, value_name = "NAME")]
        tenant: Option<Name>,
    },
    /// Run the batches of a past period as a run of their own, beside the live ones
    ///
    /// It has its own numbers, state and outputs; with --publish its rows take the place of the scenario's in the result
    /// tables. Ended in the middle it goes on where it was when it is asked for again.
    Backfill(Backfill),
    /// Make history for an example: bronze tables of a new data folder (--data, --store), or files (--out)
    ///
    /// Thirty days take seconds. The same seed makes the same rows.
    Generate(Generate),
    /// Show committed batches in Spark's field names, oldest first
    ///
    /// The column timestamp is T, the batch's time: what --at of batch and review takes.
    Ledger(Ledger),
    /// Show a scenario's rulesets, newest first
    History(One),
    /// Pin a ruleset of the history, until the folder changes or it is unpinned
    Rollback {
        /// The scenario
        #[arg(value_name = "TENANT/SCENARIO")]
        scenario: ScenarioId,
        /// Its digest or the beginning of it; without one: the ruleset before the active
        #[arg(value_parser = digest_start)]
        digest: Option<String>,
    },
    /// Undo a rollback
    Unpin(One),
    /// Erase a removed scenario: batches, outputs, state
    Forget(One),
    /// Let a parked or paused scenario go on
    Resume(One),
    /// Keep a scenario from ticking until it is resumed, also over restarts
    Pause(One),
}

/// `weir run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Where REST and metrics are; any address but loopback needs a token
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Process all that there is, drain the sinks, and end; listens on the network only with --listen
    #[arg(long)]
    pub once: bool,
    /// For demonstrations, on a data folder of their own: time runs so many times as fast, 1 to 1000
    #[arg(long, value_name = "N", conflicts_with = "once", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub speed: Option<u32>,
}

/// `weir backfill`.
#[derive(Debug, Args)]
pub struct Backfill {
    /// The scenarios; several are worked on side by side
    #[arg(value_name = "TENANT/SCENARIO", required = true)]
    pub scenarios: Vec<ScenarioId>,
    /// T of the first batch, such as 2026-01-30T00:00:00Z; without a zone it is in --timezone
    #[arg(long, value_name = "TIME")]
    pub from: Moment,
    /// Only batches with T before this
    #[arg(long, value_name = "TIME")]
    pub to: Moment,
    /// Time between two batches
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    pub every: Span,
    /// The run's name, to go on with a run after its ruleset was changed; by default made of range and ruleset
    #[arg(long, value_name = "NAME")]
    pub name: Option<Name>,
    /// A ruleset of the history or the beginning of its digest instead of the active one
    #[arg(long, value_name = "DIGEST", value_parser = digest_start)]
    pub ruleset: Option<String>,
    /// Put the rows in place of the scenario's rows of this period when all batches are there
    #[arg(long)]
    pub publish: bool,
    /// Give up the rows of a run that nobody will publish, so that the ledger need not keep them
    #[arg(long, conflicts_with = "publish")]
    pub discard: bool,
}

/// `weir generate`.
#[derive(Debug, Args)]
pub struct Generate {
    /// Which example
    #[arg(value_name = "EXAMPLE", value_parser = ["network-cep"])]
    pub example: String,
    /// The first minute, such as 2026-01-01T00:00:00Z; without a zone it is in --timezone
    #[arg(long, value_name = "TIME")]
    pub from: Moment,
    /// The end, a full minute
    #[arg(long, value_name = "TIME")]
    pub to: Moment,
    /// 0 is exactly the starter data; any other varies it
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Write files below this folder, one a stream and day
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// What the files are
    #[arg(long, value_enum, value_delimiter = ',', default_value = "parquet")]
    pub format: Vec<Format>,
    /// Whose streams in the rule store
    #[arg(long, value_name = "NAME", default_value = "netops")]
    pub tenant: Name,
}

/// `weir batch`.
#[derive(Debug, Args)]
pub struct Batch {
    /// The scenario
    #[arg(value_name = "TENANT/SCENARIO")]
    pub scenario: ScenarioId,
    /// The batch's time, such as 2026-01-31T12:00:00Z or, in --timezone, 2026-01-31T12:00
    #[arg(long, value_name = "TIME")]
    pub at: Moment,
    /// Today's ruleset and rows instead of the recorded ones; a committed time keeps the state before it
    #[arg(long)]
    pub latest: bool,
}

/// `weir review`.
#[derive(Debug, Args)]
pub struct Review {
    /// The scenario
    #[arg(value_name = "TENANT/SCENARIO")]
    pub scenario: ScenarioId,
    /// The batch's time, such as 2026-01-31T12:00:00Z or, in --timezone, 2026-01-31T12:00; by default that of the last
    /// committed batch
    #[arg(long, value_name = "TIME")]
    pub at: Option<Moment>,
    /// Today's ruleset and rows instead of the recorded ones; a committed time keeps the state before it
    #[arg(long)]
    pub latest: bool,
    /// Rows shown of each answer, and alarms, 0 to 1000; JSON counts the others in total, alarms_left_out, calls_left_out
    #[arg(long, value_name = "N", default_value_t = ROWS, value_parser = rows)]
    pub rows: u32,
}

/// `weir tail`.
#[derive(Debug, Args)]
pub struct Tail {
    /// Begin with the first alarm that was committed instead of now
    #[arg(long)]
    pub from_start: bool,
    /// Print what there is from the start, then end
    #[arg(long, conflicts_with = "duration")]
    pub once: bool,
    /// End after this time, such as 30s
    #[arg(long = "for", value_name = "DURATION", id = "duration")]
    pub duration: Option<Span>,
}

/// `weir ledger`.
#[derive(Debug, Args)]
pub struct Ledger {
    /// The scenario
    #[arg(value_name = "TENANT/SCENARIO")]
    pub scenario: ScenarioId,
    /// Which run: live, side:NAME or backfill:NAME
    #[arg(long, default_value = "live")]
    pub run: RunId,
    /// Only batches after this one
    #[arg(long, value_name = "N", value_parser = batch_id)]
    pub after: Option<BatchId>,
    /// Only the newest so many, the oldest of them first; with --after the first so many after that batch
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<usize>,
}

/// A command about one scenario.
#[derive(Debug, Args)]
pub struct One {
    /// The scenario
    #[arg(value_name = "TENANT/SCENARIO")]
    pub scenario: ScenarioId,
}

fn rows(text: &str) -> Result<u32, String> {
    let rows = text.parse().ok().filter(|rows| *rows <= MOST_ROWS);
    rows.ok_or_else(|| format!("write a number of rows from 0 to {MOST_ROWS}"))
}

fn batch_id(text: &str) -> Result<BatchId, std::num::ParseIntError> {
    text.parse().map(BatchId)
}

fn digest_start(text: &str) -> Result<String, &'static str> {
    let hex = text.bytes().all(|b| b.is_ascii_hexdigit());
    if hex && (4..=64).contains(&text.len()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("a digest is given by 4 to 64 hexadecimal digits")
    }
}

impl Cli {
    /// What the command cannot do without.
    pub fn need(&self) -> Need {
        match self.command {
            Command::Run(_) => Need::Run,
            Command::Check { .. } => Need::Store,
            Command::Generate(_) if self.common.data.is_none() => Need::Nothing,
            Command::Generate(_) => Need::Run,
            _ => Need::Data,
        }
    }

    /// The settings that the command line gives.
    pub fn overrides(&self) -> Overrides {
        Overrides {
            file: self.common.config.clone(),
            store: self.common.store.clone(),
            data: self.common.data.clone(),
            listen: match &self.command {
                Command::Run(run) => run.listen,
                _ => None,
            },
            log: self.common.log,
            log_level: self.common.log_level.clone(),
            timezone: self.common.timezone,
            speed: match &self.command {
                Command::Run(run) => run.speed,
                _ => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use clap::CommandFactory as _;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn reads_every_command_of_the_table() {
        for line in [
            "weir run --store s --data d --config f --listen 127.0.0.1:0 --once",
            "weir run --store s --data d --speed 60",
            "weir check --store s acme/s1",
            "weir check --store s",
            "weir batch acme/s1 --at 2026-01-31T12:00:00Z --latest --data d",
            "weir review acme/s1 --at 2026-01-31T12:00:00Z --latest --rows 5",
            "weir review acme/s1 --json --rows 0",
            "weir review acme/s1 --at 2026-01-31T12:00 --timezone Asia/Seoul --rows 1000",
            "weir status --data d --json",
            "weir --json --data d status",
            "weir tail --from-start --for 30s",
            "weir tail --once",
            "weir tail --timezone Europe/Berlin",
            "weir query select+1 --tenant acme",
            "weir ledger acme/s1 --run side:x --after 5 --limit 2",
            "weir generate network-cep --from 2026-01-01T00:00:00Z --to 2026-01-31T00:00:00Z --seed 7 --out d --format parquet,json",
            "weir backfill acme/s1 acme/s2 --from 2026-01-30T00:00:00Z --to 2026-01-31T00:00:00Z --every 1m --publish",
            "weir backfill acme/s1 --from 2026-01-30T00:00:00Z --to 2026-01-31T00:00:00Z --name x --ruleset 0123abcd --discard",
            "weir history acme/s1",
            "weir rollback acme/s1 0123abcd",
            "weir rollback acme/s1",
            "weir unpin acme/s1",
            "weir forget acme/s1",
            "weir resume acme/s1",
            "weir pause acme/s1",
        ] {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
        }
    }

    #[test]
    fn refuses_what_makes_no_sense_and_says_why() {
        for (line, why) in [
            ("weir batch acme/s1", "--at <TIME>"),
            ("weir batch s1 --at 2026-01-31T12:00:00Z", "write TENANT/SCENARIO"),
            ("weir batch acme/s1 --at noon", "2026-01-31T12:00:00Z"),
            ("weir review acme/s1 --rows 1001", "write a number of rows from 0 to 1000"),
            ("weir review acme/s1 --rows x", "write a number of rows from 0 to 1000"),
            ("weir review acme/s1 --rows 99999999999", "write a number of rows from 0 to 1000"),
            ("weir review acme/s1 --at 2026-31-01T12:00", "or without a zone as 2026-01-31T12:00"),
            ("weir backfill acme/s1 --from yesterday --to 2026-01-31T00:00:00Z", "2026-01-31T12:00:00Z"),
            ("weir rollback acme/s1 xyz", "hexadecimal"),
            ("weir tail --once --for 3s", "cannot be used with"),
            ("weir generate elsewhere --from 2026-01-01T00:00:00Z --to 2026-01-31T00:00:00Z", "network-cep"),
            ("weir backfill --from 2026-01-30T00:00:00Z --to 2026-01-31T00:00:00Z", "TENANT/SCENARIO"),
            ("weir tail --for soon", "length of time"),
            ("weir run --listen here", "--listen"),
            ("weir run --speed 0", "1..=1000"),
            ("weir run --speed 1001", "1..=1000"),
            ("weir run --speed 60 --once", "cannot be used with"),
            ("weir status --log xml", "human or json"),
            ("weir status --timezone Asia/Soul", "an IANA name such as \"Asia/Seoul\""),
            ("weir status --log-level weir=loud", "--log-level"),
        ] {
            let error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains(why), "{line}: {error}");
        }
    }
}
