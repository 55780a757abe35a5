//! Metrics as Prometheus text: what the pipeline recorded through `metrics` macros, and what the status says at the
//! moment of the scrape. The latter is written anew each time, so a scenario that is gone leaves no series behind.
//!
//! | from the status | labels | says |
//! |---|---|---|
//! | `weir_status_ok` | | 0: the status could not be had, and none of the following is there |
//! | `weir_scenario_state` | tenant, scenario, state | 1 for the state it is in, 0 for the others |
//! | `weir_scenario_stalled` | tenant, scenario | 1: something is wrong that keeps it from ticking; a paused one is not |
//! | `weir_scenario_rejected`, `weir_scenario_pending` | tenant, scenario | 1: its folder is not what runs |
//! | `weir_scenario_last_batch_timestamp_seconds`, `weir_scenario_last_batch_id` | tenant, scenario | T and N |
//! | `weir_scenario_skipped_ticks_total` | tenant, scenario | grid times that were not run |
//! | `weir_scenario_open_alarms` | tenant, scenario | open or stale |
//! | `weir_sink_behind_batches`, `weir_sink_stopped` | tenant, scenario, sink | backlog; 1: a fault holds it |
//! | `weir_stream_lag_seconds` | tenant, stream | now less the watermark |
//! | `weir_stream_unflushed_offsets` | tenant, stream | read, and not yet in the bronze table |
//! | `weir_stream_window_rows`, `weir_stream_window_bytes` | tenant, stream | the hot window |
//! | `weir_stream_dead_letters_total`, `weir_stream_late_rows_total` | tenant, stream | |
//! | `weir_stream_stopped` | tenant, stream | 1: a fault holds it |
//! | `weir_table_files`, `weir_table_bytes`, `weir_table_rows` | tenant, table | as the latest upkeep left it |
//! | `weir_table_merged_files_total`, `weir_table_removed_files_total` | tenant, table | put together; taken from the disk |
//! | `weir_table_expired_rows_total` | tenant, table | kept long enough and removed |
//! | `weir_table_upkeep_stopped` | tenant, table | 1: a fault holds its upkeep |
//!
//! The pipeline's own names must differ from these. [`BATCH_DURATION`] is a histogram with the buckets below.

use std::fmt::Write as _;
use std::sync::Arc;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use weir_model::fault::Fault;
use weir_model::service::{ScenarioState, ScenarioStatus, Status, StreamStatus, TableStatus};

/// Seconds from plan to commit, recorded by the pipeline.
pub const BATCH_DURATION: &str = "weir_batch_duration_seconds";
/// From well below the goal of 1.5 ms to beyond the longest deadline.
const BATCH_BUCKETS: [f64; 16] =
    [0.0005, 0.001, 0.0015, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0];
/// Of the text format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Gives the text of everything recorded so far.
pub type Scrape = Arc<dyn Fn() -> String + Send + Sync>;

/// Makes this process record what the `metrics` macros say. Once per process; `tidy` must be called every few seconds,
/// because histograms keep every observation until they are looked at.
pub fn install() -> Result<(Scrape, impl Fn() + Send + Sync + 'static), Fault> {
    let failed = |e: &dyn std::fmt::Display| Fault::internal(format_args!("metrics: {e}"));
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(BATCH_DURATION.to_owned()), &BATCH_BUCKETS)
        .map_err(|e| failed(&e))?
        .install_recorder()
        .map_err(|e| failed(&e))?;
    metrics::describe_histogram!(BATCH_DURATION, metrics::Unit::Seconds, "From plan to commit");
    let tidy = handle.clone();
    Ok((Arc::new(move || handle.render()), move || {
        tidy.run_upkeep();
    }))
}

/// The whole answer to a scrape.
pub(crate) fn text(mut out: String, status: &Result<Status, Fault>) -> String {
    let ok = u64::from(status.is_ok());
    family(&mut out, "weir_status_ok", "gauge", [(String::new(), ok)]);
    if let Ok(status) = status {
        scenarios(&mut out, &status.scenarios);
        sinks(&mut out, &status.scenarios);
        streams(&mut out, status);
        tables(&mut out, status);
    }
    out
}

fn scenarios(out: &mut String, all: &[ScenarioStatus]) {
    let states = [
        ("running", ScenarioState::Running),
        ("parked", ScenarioState::Parked),
        ("stopped", ScenarioState::Stopped),
        ("paused", ScenarioState::Paused),
    ];
    let lines = all.iter().flat_map(|s| {
        states.map(|(name, state)| {
            let labels = format!("{{tenant=\"{}\",scenario=\"{}\",state=\"{name}\"}}", s.tenant, s.scenario);
            (labels, u64::from(s.state == state))
        })
    });
    family(out, "weir_scenario_state", "gauge", lines);
    let mut each = |name, kind, value: fn(&ScenarioStatus) -> Option<f64>| {
        let lines = all.iter().filter_map(|s| {
            let labels = format!("{{tenant=\"{}\",scenario=\"{}\"}}", s.tenant, s.scenario);
            Some((labels, value(s)?))
        });
        family(out, name, kind, lines);
    };
    each("weir_scenario_stalled", "gauge", |s| Some(flag(s.state == ScenarioState::Parked || s.fault.is_some())));
    each("weir_scenario_rejected", "gauge", |s| Some(flag(s.rejected.is_some())));
    each("weir_scenario_pending", "gauge", |s| Some(flag(s.pending.is_some())));
    each("weir_scenario_last_batch_timestamp_seconds", "gauge", |s| {
        s.last_batch.as_ref().map(|b| b.time.micros() as f64 / 1e6)
    });
    each("weir_scenario_last_batch_id", "gauge", |s| s.last_batch.as_ref().map(|b| b.id.0 as f64));
    each("weir_scenario_skipped_ticks_total", "counter", |s| Some(s.skipped_ticks as f64));
    each("weir_scenario_open_alarms", "gauge", |s| Some(s.open_alarms as f64));
}

fn sinks(out: &mut String, all: &[ScenarioStatus]) {
    let lines = |value: fn(&weir_model::service::SinkStatus) -> u64| {
        all.iter().flat_map(move |s| {
            s.sinks.iter().map(move |sink| {
                let labels = format!("{{tenant=\"{}\",scenario=\"{}\",sink=\"{}\"}}", s.tenant, s.scenario, sink.sink);
                (labels, value(sink))
            })
        })
    };
    family(out, "weir_sink_behind_batches", "gauge", lines(|s| s.behind));
    family(out, "weir_sink_stopped", "gauge", lines(|s| u64::from(s.fault.is_some())));
}

fn streams(out: &mut String, status: &Status) {
    let mut each = |name, kind, value: &dyn Fn(&StreamStatus) -> Option<f64>| {
        let lines = status.streams.iter().filter_map(|s| {
            let labels = format!("{{tenant=\"{}\",stream=\"{}\"}}", s.tenant, s.stream);
            Some((labels, value(s)?))
        });
        family(out, name, kind, lines);
    };
    each("weir_stream_lag_seconds", "gauge", &|s| s.watermark.map(|w| status.time.since(w).as_secs_f64()));
    each("weir_stream_unflushed_offsets", "gauge", &|s| Some(unflushed(s) as f64));
    each("weir_stream_window_rows", "gauge", &|s| Some(s.window_rows as f64));
    each("weir_stream_window_bytes", "gauge", &|s| Some(s.window_bytes as f64));
    each("weir_stream_dead_letters_total", "counter", &|s| Some(s.dead_letters as f64));
    each("weir_stream_late_rows_total", "counter", &|s| Some(s.late_rows as f64));
    each("weir_stream_stopped", "gauge", &|s| Some(flag(s.fault.is_some())));
}

fn tables(out: &mut String, status: &Status) {
    let mut each = |name, kind, value: &dyn Fn(&TableStatus) -> u64| {
        let lines = status.tables.iter().map(|t| {
            let labels = format!("{{tenant=\"{}\",table=\"{}\"}}", t.tenant, t.table);
            (labels, value(t))
        });
        family(out, name, kind, lines);
    };
    each("weir_table_files", "gauge", &|t| t.files);
    each("weir_table_bytes", "gauge", &|t| t.bytes);
    each("weir_table_rows", "gauge", &|t| t.rows);
    each("weir_table_merged_files_total", "counter", &|t| t.merged_files);
    each("weir_table_removed_files_total", "counter", &|t| t.removed_files);
    each("weir_table_expired_rows_total", "counter", &|t| t.expired_rows);
    each("weir_table_upkeep_stopped", "gauge", &|t| u64::from(t.fault.is_some()));
}

fn unflushed(stream: &StreamStatus) -> u64 {
    let parts = stream.offsets.0.iter();
    parts.map(|(p, next)| next.saturating_sub(stream.flushed.get(*p))).sum()
}

fn flag(on: bool) -> f64 {
    f64::from(u8::from(on))
}

/// One family of samples. Label values are names, which hold nothing that would need escaping.
fn family<V: std::fmt::Display>(
    out: &mut String,
    name: &str,
    kind: &str,
    lines: impl IntoIterator<Item = (String, V)>,
) {
    let mut lines = lines.into_iter().peekable();
    if lines.peek().is_none() {
        return;
    }
    // Writing to a String cannot fail.
    let _ = writeln!(out, "# TYPE {name} {kind}");
    for (labels, value) in lines {
        let _ = writeln!(out, "{name}{labels} {value}");
    }
}
