//! The host's settings: defaults in a file that is compiled in, overridden by a file and by the command line. Whatever is
//! wrong is said at once, with file and line, and nothing runs.

mod read;
mod secret;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_model::duration::Span;
use weir_model::fault::{Fault, FaultKind, Problem};
use weir_model::limits::Limits;
use weir_model::zone::Zone;
use weir_server::{Access, Token};

use crate::logging::{Filter, Format};
use read::{Layer, Reader};
pub use secret::SecretRef;

/// The text of the defaults, with a comment for each setting.
pub const DEFAULTS: &str = include_str!("../defaults.toml");

/// All settings, merged. What each one means stands in `defaults.toml`.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Config {
    /// Always there for [`Need::Run`] and [`Need::Store`].
    pub store: Option<PathBuf>,
    /// Always there for [`Need::Run`] and [`Need::Data`].
    pub data: Option<PathBuf>,
    pub listen: SocketAddr,
    /// Read from its reference for [`Need::Run`] only: other commands need no secret.
    pub listen_token: Option<Token>,
    pub log: LogConfig,
    pub rule_store: RuleStoreConfig,
    pub ingest: IngestConfig,
    pub sink: SinkConfig,
    pub lake: LakeConfig,
    pub upkeep: UpkeepConfig,
    pub ledger: LedgerConfig,
    pub threads: ThreadsConfig,
    /// The host's limits: the model's defaults with `[limits]` over them.
    pub limits: Limits,
    /// How times are shown to people.
    pub display_timezone: Zone,
    /// How many times as fast as the machine's the host's time runs. Only the command line says so.
    pub speed: u32,
}

/// `[log]`.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct LogConfig {
    pub format: Format,
    pub level: Filter,
}
/// `[rule_store]`.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct RuleStoreConfig {
    pub poll: Span,
    pub settle: Span,
    pub keep: u64,
}
/// `[ingest]`.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct IngestConfig {
    pub poll_rows: u64,
    pub poll_bytes: u64,
    pub flush: Span,
    pub window_bytes: u64,
}
/// `[sink]`.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct SinkConfig {
    pub flush: Span,
    pub alarms: Span,
    pub batch_bytes: u64,
}
/// `[lake]`.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct LakeConfig {
    pub checkpoint_every: u64,
    pub history: Span,
    pub file_bytes: u64,
    pub merge_files: u64,
}
/// `[upkeep]`.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct UpkeepConfig {
    pub every: Span,
    pub keep_results: Span,
    pub keep_alarms: Span,
    pub keep_dead_letters: Span,
}
/// `[ledger]`.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct LedgerConfig {
    pub replay_horizon: Span,
    pub disk_floor_bytes: u64,
}
/// `[threads]`.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct ThreadsConfig {
    pub cpu: u64,
    pub rule: u64,
}

/// What a command cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Store, data folder, and a listener that is allowed.
    Run,
    /// The data folder.
    Data,
    /// The rule store.
    Store,
    /// Neither.
    Nothing,
}

/// What the command line says; it overrides the file.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct Overrides {
    pub file: Option<PathBuf>,
    pub store: Option<PathBuf>,
    pub data: Option<PathBuf>,
    pub listen: Option<SocketAddr>,
    pub log: Option<Format>,
    pub log_level: Option<Filter>,
    pub timezone: Option<Zone>,
    pub speed: Option<u32>,
}

impl Config {
    /// Reads the settings, or says everything that is wrong with them.
    pub fn load(given: &Overrides, need: Need) -> Result<Self, Vec<Problem>> {
        let text = match &given.file {
            Some(file) => std::fs::read_to_string(file).map_err(|e| {
                vec![
                    Problem::new(file.display(), format_args!("cannot be read: {e}"))
                        .fix("correct the path after --config"),
                ]
            })?,
            None => String::new(),
        };
        let file = given.file.as_deref().unwrap_or(Path::new(""));
        Self::merge(&[Layer::file(file, &text), Layer::defaults()], given, need)
    }

    fn merge(layers: &[Layer<'_>], given: &Overrides, need: Need) -> Result<Self, Vec<Problem>> {
        let mut r = Reader::new(layers);
        let config = (|| {
            // Every setting is read before any is missed, so that none hides the next.
            let store = r.path("store");
            let data = r.path("data");
            let listen = r.parsed("listen", "an address and a port, such as \"127.0.0.1:7117\"");
            let token = r.secret("listen_token");
            let zone = r.zone("display_timezone");
            let format = r.parsed("log.format", "\"human\" or \"json\"");
            let level = r.parsed("log.level", "a level, such as \"info\"");
            let poll = r.span("rule_store.poll", MILLI..=HOUR);
            let settle = r.span("rule_store.settle", Duration::ZERO..=HOUR);
            let keep = r.number("rule_store.keep", 1..=1_000_000);
            let poll_rows = r.number("ingest.poll_rows", 1..=1 << 24);
            let poll_bytes = r.number("ingest.poll_bytes", 1..=1 << 32);
            let ingest_flush = r.span("ingest.flush", Duration::ZERO..=DAY);
            let window_bytes = r.number("ingest.window_bytes", 1 << 20..=1 << 50);
            let sink_flush = r.span("sink.flush", Duration::ZERO..=DAY);
            let alarms = r.span("sink.alarms", Duration::ZERO..=DAY);
            let batch_bytes = r.number("sink.batch_bytes", 1..=1 << 32);
            let checkpoint_every = r.number("lake.checkpoint_every", 1..=1_000_000);
            let history = r.span("lake.history", Duration::from_secs(60)..=3_650 * DAY);
            let file_bytes = r.number("lake.file_bytes", 1 << 16..=1 << 32);
            let merge_files = r.number("lake.merge_files", 2..=10_000);
            let every = r.span("upkeep.every", Duration::from_secs(1)..=DAY);
            let keep_results = r.span("upkeep.keep_results", DAY..=36_500 * DAY);
            let keep_alarms = r.span("upkeep.keep_alarms", DAY..=36_500 * DAY);
            let keep_dead_letters = r.span("upkeep.keep_dead_letters", DAY..=36_500 * DAY);
            let replay_horizon = r.span("ledger.replay_horizon", Duration::ZERO..=3_650 * DAY);
            let disk_floor_bytes = r.number("ledger.disk_floor_bytes", 0..=1 << 50);
            let cpu = r.number("threads.cpu", 1..=1_024);
            let rule = r.number("threads.rule", 1..=1_024);
            let limits = r.limits("limits", Limits::defaults());
            let listen = given.listen.or(listen);
            let listen_token = match (need, token, listen) {
                (Need::Run, token, Some(listen)) => access(&mut r, given, listen, token),
                _ => None,
            };
            Some(Self {
                store: given.store.clone().or(store),
                data: given.data.clone().or(data),
                listen: listen?,
                listen_token,
                log: LogConfig { format: given.log.or(format)?, level: given.log_level.clone().or(level)? },
                rule_store: RuleStoreConfig { poll: poll?, settle: settle?, keep: keep? },
                ingest: IngestConfig {
                    poll_rows: poll_rows?,
                    poll_bytes: poll_bytes?,
                    flush: ingest_flush?,
                    window_bytes: window_bytes?,
                },
                sink: SinkConfig { flush: sink_flush?, alarms: alarms?, batch_bytes: batch_bytes? },
                lake: LakeConfig {
                    checkpoint_every: checkpoint_every?,
                    history: history?,
                    file_bytes: file_bytes?,
                    merge_files: merge_files?,
                },
                upkeep: UpkeepConfig {
                    every: every?,
                    keep_results: keep_results?,
                    keep_alarms: keep_alarms?,
                    keep_dead_letters: keep_dead_letters?,
                },
                ledger: LedgerConfig { replay_horizon: replay_horizon?, disk_floor_bytes: disk_floor_bytes? },
                threads: ThreadsConfig { cpu: cpu?, rule: rule? },
                limits,
                display_timezone: given.timezone.or(zone)?,
                speed: given.speed.unwrap_or(1),
            })
        })();
        if let Some(config) = &config {
            config.missing(need).for_each(|p| r.problem(p));
        }
        let problems = r.finish();
        match config {
            Some(config) if problems.is_empty() => Ok(config),
            _ => Err(problems),
        }
    }

    fn missing(&self, need: Need) -> impl Iterator<Item = Problem> + use<> {
        let place = |what: &str, option: &str, variable: &str| {
            Problem::new("command line", format_args!("no {what} is given")).field(format_args!("--{option}")).fix(
                format_args!(
                    "pass --{option} DIR, set {variable}, or write {option} = \"DIR\" into the file of --config"
                ),
            )
        };
        let store = (matches!(need, Need::Run | Need::Store) && self.store.is_none())
            .then(|| place("rule store", "store", "WEIR_STORE"));
        let data = (matches!(need, Need::Run | Need::Data) && self.data.is_none())
            .then(|| place("data folder", "data", "WEIR_DATA"));
        store.into_iter().chain(data)
    }

    /// The rule store's folder.
    pub fn store(&self) -> Result<&Path, Fault> {
        given(self.store.as_deref(), "store")
    }
    /// The data folder.
    pub fn data(&self) -> Result<&Path, Fault> {
        given(self.data.as_deref(), "data")
    }
}

const MILLI: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

fn given<'a>(path: Option<&'a Path>, option: &str) -> Result<&'a Path, Fault> {
    path.ok_or_else(|| {
        Fault::tenant(FaultKind::Config, "it is not given")
            .field(format_args!("--{option}"))
            .fix(format_args!("pass --{option} DIR"))
    })
}

/// Reads the token, and checks that the address may be listened on with it (or without one).
fn access(
    r: &mut Reader<'_>,
    given: &Overrides,
    listen: SocketAddr,
    token: Option<(SecretRef, String)>,
) -> Option<Token> {
    // One that is named and cannot be had is told of as such, not as missing.
    let named = !r.place_of("listen_token").is_empty();
    let token = token.and_then(|(from, place)| match from.token() {
        Ok(token) => Some(token),
        Err((message, fix)) => {
            let problem = Problem::new(place, message);
            r.problem(problem.field("listen_token").fix(fix));
            None
        }
    });
    if !named && let Err(fault) = Access::of(listen, None) {
        let place = match given.listen {
            Some(_) => "command line".to_owned(),
            None => r.place_of("listen"),
        };
        let problem = Problem::new(place, fault.message).field("listen");
        r.problem(problem.fix(fault.fix.unwrap_or_default()));
    }
    token
}

#[cfg(test)]
mod tests;
