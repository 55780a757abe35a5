//! `weir status` for people: tables of what is fine, a line under them for each thing that is not.

use std::fmt::Write as _;

use weir_model::fault::Fault;
use weir_model::id::Digest;
use weir_model::port::Notice;
use weir_model::service::{ScenarioState, ScenarioStatus, SinkStatus, Status, StreamStatus};
use weir_model::zone::Zone;

use super::spark::brief;
use super::{Align, Table, clean, count, maybe, time};

/// The whole text.
pub fn text(status: &Status, zone: Zone) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "{} at {}, ledger {}",
        if status.live { "a host is running" } else { "no host is running; this is what the folder holds" },
        time(status.time, zone),
        status.ledger
    );
    if let Some(fault) = &status.fault {
        let _ = writeln!(out, "{}", clean(&held("held up", fault)));
    }
    out.push('\n');
    if status.scenarios.is_empty() {
        out.push_str(match &status.fault {
            Some(_) if status.live => "no scenarios: the rule store has not been looked at\n",
            _ => "no scenarios\n",
        });
    } else {
        let _ = write!(out, "{}", scenarios(&status.scenarios, zone));
    }
    for (id, trouble) in status.scenarios.iter().flat_map(|s| scenario_troubles(s, zone)) {
        let _ = writeln!(out, "  {id}: {}", clean(&trouble));
    }
    if !status.streams.is_empty() {
        let _ = write!(out, "\n{}", streams(status));
    }
    for (id, trouble) in status.streams.iter().flat_map(|s| stream_troubles(s, zone)) {
        let _ = writeln!(out, "  {id}: {}", clean(&trouble));
    }
    for table in &status.tables {
        if let Some(fault) = &table.fault {
            let _ = writeln!(out, "  upkeep of table {}/{}: {}", table.tenant, table.table, clean(&fault.to_string()));
        }
    }
    out
}

fn scenarios(all: &[ScenarioStatus], zone: Zone) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("SCENARIO", Left),
        ("STATE", Left),
        ("RULESET", Left),
        ("PLUGIN", Left),
        ("BATCH", Right),
        ("TIME", Left),
        ("OUTCOME", Left),
        ("ROWS", Right),
        ("ALARMS", Right),
        ("MS", Right),
        ("OPEN", Right),
        ("SKIPPED", Right),
        ("SINKS", Left),
    ]);
    for s in all {
        let batch = s.last_batch.as_ref();
        table.row([
            format!("{}/{}", s.tenant, s.scenario),
            condition(s).to_owned(),
            maybe(s.ruleset.as_ref().map(Digest::short)),
            maybe(s.plugin.as_ref().map(|p| format!("{} {}", p.name, p.version))),
            maybe(batch.map(|b| b.id.0)),
            maybe(batch.map(|b| time(b.time, zone))),
            maybe(batch.map(|b| b.outcome.replace('_', " "))),
            maybe(batch.map(|b| b.rows_in)),
            maybe(batch.map(|b| b.alarms)),
            maybe(batch.and_then(|b| b.duration_ms.get("total")).map(|ms| brief(*ms))),
            s.open_alarms.to_string(),
            s.skipped_ticks.to_string(),
            sinks(&s.sinks),
        ]);
    }
    table
}

/// Its state, or that something keeps it from committing although it runs; what, is said below.
fn condition(s: &ScenarioStatus) -> &'static str {
    if s.state == ScenarioState::Running && s.fault.is_some() { "held up" } else { state(s.state) }
}

fn state(state: ScenarioState) -> &'static str {
    match state {
        ScenarioState::Running => "running",
        ScenarioState::Parked => "parked",
        ScenarioState::Stopped => "stopped",
        ScenarioState::Paused => "paused",
    }
}

fn sinks(all: &[SinkStatus]) -> String {
    let behind: Vec<String> =
        all.iter().filter(|s| s.behind > 0 && !s.in_pace).map(|s| format!("{} {} behind", s.sink, s.behind)).collect();
    match (all.len(), behind.is_empty()) {
        (0, _) => "-".to_owned(),
        (n, true) => format!("{n} drained"),
        _ => behind.join(", "),
    }
}

pub(super) fn notice(what: &str, notice: &Notice, zone: Zone) -> String {
    let more = match notice.problems.len() {
        0 | 1 => String::new(),
        n => format!(" (and {})", count(n as u64 - 1, "more problem")),
    };
    let fix = notice.problems.first().map_or("", |p| p.fix.as_str());
    // The store puts the fix into the reason; another host's notice may not.
    let fix = if fix.is_empty() || notice.reason.contains(fix) { String::new() } else { format!("; {fix}") };
    let since = time(notice.since, zone);
    format!("{what} since {since}: {}: {}{fix}{more}", notice.file, notice.reason)
}

fn held(what: &str, fault: &Fault) -> String {
    format!("{what}: {fault}")
}

fn scenario_troubles(s: &ScenarioStatus, zone: Zone) -> Vec<(String, String)> {
    let id = format!("{}/{}", s.tenant, s.scenario);
    let own = [
        s.fault.as_ref().map(|f| held(condition(s), f)),
        s.rejected.as_ref().map(|n| notice("rejected", n, zone)),
        s.pending.as_ref().map(|n| notice("pending", n, zone)),
        s.paused.map(|since| format!("paused since {}; 'weir resume {id}' lets it go on", time(since, zone))),
        s.pinned.map(|d| format!("pinned to {}; 'weir unpin {id}' undoes it", d.short())),
    ];
    let sinks = s.sinks.iter().flat_map(|sink| {
        let name = format!("sink {}", sink.sink);
        let fault = sink.fault.as_ref().map(|fault| held(&name, fault));
        // Of a notification sink: nobody was told, and nobody will be.
        let dead = (sink.dead_letters > 0).then(|| {
            let letters = count(sink.dead_letters, "dead letter");
            format!("{name}: {letters} since the host was started; the table dead_letters says why")
        });
        [fault, dead].into_iter().flatten()
    });
    let all = own.into_iter().flatten().chain(sinks);
    all.map(|text| (id.clone(), text)).collect()
}

fn streams(status: &Status) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("STREAM", Left),
        ("READ", Left),
        ("FLUSHED", Left),
        ("LAG", Right),
        ("WINDOW ROWS", Right),
        ("BYTES", Right),
        ("LATE", Right),
        ("DEAD LETTERS", Right),
    ]);
    for s in &status.streams {
        let lag = s.watermark.map(|w| status.time.since(w).as_secs());
        table.row([
            format!("{}/{}", s.tenant, s.stream),
            offsets(&s.offsets),
            offsets(&s.flushed),
            maybe(lag.map(|seconds| format!("{seconds} s"))),
            s.window_rows.to_string(),
            s.window_bytes.to_string(),
            s.late_rows.to_string(),
            s.dead_letters.to_string(),
        ]);
    }
    table
}

fn offsets(offsets: &weir_model::Offsets) -> String {
    let parts = offsets.0.iter().map(|(p, next)| format!("{p}:{next}"));
    maybe(Some(parts.collect::<Vec<_>>().join(" ")).filter(|text| !text.is_empty()))
}

fn stream_troubles(s: &StreamStatus, zone: Zone) -> Vec<(String, String)> {
    let all = [s.fault.as_ref().map(|f| held("held", f)), s.rejected.as_ref().map(|n| notice("rejected", n, zone))];
    let id = format!("{}/{}", s.tenant, s.stream);
    all.into_iter().flatten().map(|text| (id.clone(), text)).collect()
}
