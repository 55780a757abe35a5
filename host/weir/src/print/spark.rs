//! Committed batches in the field names of Spark's StreamingQueryProgress, offset log and commit log: what people who
//! ran such jobs look for. Stages keep their own names inside `durationMs`.

use serde_json::{Map, Value, json};
use weir_model::batch::{BatchRecord, Outcome, StreamPin};
use weir_model::time::Time;
use weir_model::zone::Zone;

use super::{Align, Table, count, time};

/// A batch as Spark would tell of it. Beside Spark's fields: `ruleset`, `attempt`, `outcome` and `fault`, `alarms` (how
/// many were raised) and `alarmEvents`, `stateChanges`, `skipped`, `tables`, `digest` and `previousDigest`.
pub fn progress(record: &BatchRecord) -> Value {
    let plan = &record.plan;
    let watermark = plan.streams.values().map(|pin| pin.watermark).min().flatten();
    let rows: u64 = record.outputs.iter().map(|o| o.rows).sum();
    let (outcome, fault) = outcome(&record.outcome);
    json!({
        "name": plan.key.scenario,
        "runId": plan.key.run,
        "batchId": plan.id,
        "timestamp": plan.time,
        "batchTimestampMs": millis(plan.time),
        "batchWatermarkMs": watermark.map_or(0, millis),
        "numInputRows": record.rows_in,
        "durationMs": durations(record),
        "eventTime": watermark.map_or_else(|| json!({}), |w| json!({"watermark": w})),
        "sources": plan.streams.iter().map(|(name, pin)| {
            source(name.as_str(), pin, record.rows_by.get(name).copied())
        }).collect::<Vec<_>>(),
        "sink": {
            "description": record.outputs.iter().map(|o| o.table.as_str()).collect::<Vec<_>>().join(", "),
            "numOutputRows": rows,
            "outputs": record.outputs,
        },
        "ruleset": plan.ruleset,
        "attempt": plan.attempt,
        "outcome": outcome,
        "fault": fault,
        "alarms": record.raised,
        "alarmEvents": record.events,
        "stateChanges": record.state_changes,
        "skipped": plan.skipped,
        "tables": plan.tables,
        "digest": record.digest,
        "previousDigest": record.previous,
    })
}

/// One line for people, of such an object:
/// `acme/s1 #7 2026-11-30T12:01:00Z: 186 rows, 2 alarms, 1.3 ms (plan 0.1, detect 1.2)`.
pub fn line(progress: &Value) -> String {
    let text = |field: &str| progress[field].as_str().unwrap_or("?").to_owned();
    let number = |field: &str| progress[field].as_u64().unwrap_or(0);
    let empty = Map::new();
    let durations = progress["durationMs"].as_object().unwrap_or(&empty);
    let total = durations.get(TOTAL).and_then(Value::as_f64);
    let stages: Vec<String> = durations
        .iter()
        .filter(|(stage, _)| *stage != TOTAL)
        .map(|(stage, ms)| format!("{stage} {}", brief(ms.as_f64().unwrap_or(0.0))))
        .collect();
    let run = match progress["runId"].as_str() {
        None | Some("live") => String::new(),
        Some(run) => format!("@{run}"),
    };
    let failed = match progress["outcome"].as_str() {
        None | Some("judged") => String::new(),
        Some(outcome) => format!(", {}", outcome.replace('_', " ")),
    };
    format!(
        "{}{run} #{} {}: {}, {}, {} ms ({}){failed}",
        text("name"),
        number("batchId"),
        text("timestamp"),
        count(number("numInputRows"), "row"),
        count(number("alarms"), "alarm"),
        brief(total.unwrap_or(0.0)),
        stages.join(", "),
    )
}

/// Batches for people, a row each, under Spark's names.
pub fn table(records: &[BatchRecord], zone: Zone) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("batchId", Right),
        ("timestamp", Left),
        ("numInputRows", Right),
        ("durationMs", Right),
        ("sources startOffset..endOffset", Left),
        ("sink numOutputRows", Left),
        ("alarms", Right),
        ("outcome", Left),
        ("ruleset", Left),
    ]);
    for record in records {
        let plan = &record.plan;
        let sources = plan.streams.iter().map(|(name, pin)| {
            let parts = pin.upto.0.iter();
            let parts = parts.map(|(p, to)| format!("{p}:{}..{to}", pin.from.get(*p)));
            format!("{name} {}", parts.collect::<Vec<_>>().join(" "))
        });
        let sinks = record.outputs.iter();
        let sinks = sinks.map(|o| format!("{} {}", o.output, o.rows));
        let outcome = match outcome(&record.outcome) {
            (name, None) => name.to_owned(),
            (name, Some(fault)) => format!("{name}: {fault}"),
        };
        table.row([
            plan.id.0.to_string(),
            time(plan.time, zone),
            record.rows_in.to_string(),
            brief(total(record)),
            sources.collect::<Vec<_>>().join(", "),
            sinks.collect::<Vec<_>>().join(", "),
            record.raised.to_string(),
            outcome,
            plan.ruleset.short(),
        ]);
    }
    table
}

/// The whole of a batch among its stages.
const TOTAL: &str = "total";

fn durations(record: &BatchRecord) -> Value {
    let micros = record.micros;
    json!({
        "plan": ms(micros.plan),
        "query": ms(micros.query),
        "detect": ms(micros.detect),
        "rule": ms(micros.rule),
        TOTAL: total(record),
    })
}

/// `detect` contains `query` and `rule`; how long the commit took is not known when a record is written.
fn total(record: &BatchRecord) -> f64 {
    ms(record.micros.plan + record.micros.detect)
}

fn ms(micros: u64) -> f64 {
    micros as f64 / 1e3
}

fn millis(time: Time) -> i64 {
    time.micros().div_euclid(1_000)
}

/// A stream of a batch. Offsets may have gaps, so the number of rows is the one that was counted; null where none was,
/// as in a batch that failed.
fn source(name: &str, pin: &StreamPin, rows: Option<u64>) -> Value {
    json!({
        "description": name,
        "startOffset": pin.from,
        "endOffset": pin.upto,
        "numInputRows": rows,
        "generation": pin.generation,
        "floor": pin.floor,
        "read": pin.read,
    })
}

fn outcome(outcome: &Outcome) -> (&'static str, Option<&weir_model::Fault>) {
    match outcome {
        Outcome::Judged => ("judged", None),
        Outcome::NoVerdict => ("no_verdict", None),
        Outcome::Failed(fault) => ("failed", Some(fault)),
    }
}

/// Two digits that matter.
pub(crate) fn brief(ms: f64) -> String {
    if ms >= 10.0 { format!("{ms:.0}") } else { format!("{ms:.1}") }
}
