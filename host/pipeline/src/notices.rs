//! What notification sinks are told: the changes of a batch that each of them wants, as rows of its output.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema};
use serde_json::{Map, Value, json};
use weir_model::alarm::AlarmEvent;
use weir_model::batch::{Output, PendingOutput, Plan};
use weir_model::columns::timestamp_type;
use weir_model::notify::{Message, output_of};
use weir_model::ruleset::Manifest;
use weir_model::{Fault, RunId, Time};

use crate::output::{alarm_id, fields_json, key_json};

/// The outputs of a manifest's notification sinks; none for one that nothing concerns. A backfill tells nobody.
pub fn of_events(plan: &Plan, manifest: &Manifest, events: &[AlarmEvent]) -> Result<Vec<Output>, Fault> {
    if events.is_empty() || matches!(plan.key.run, RunId::Backfill(_)) {
        return Ok(Vec::new());
    }
    let mut out = Vec::new();
    for (name, def) in &manifest.notify {
        let wanted: Vec<(usize, &AlarmEvent)> = events.iter().enumerate().filter(|(_, e)| def.wants(e)).collect();
        if wanted.is_empty() {
            continue;
        }
        let output =
            output_of(name).ok_or_else(|| Fault::internal(format_args!("notify.{name} has too long a name")))?;
        out.push(Output { table: output.clone(), output, rows: rows(&wanted)? });
    }
    Ok(out)
}

fn rows(wanted: &[(usize, &AlarmEvent)]) -> Result<RecordBatch, Fault> {
    let index = Int64Array::from_iter_values(wanted.iter().map(|(i, _)| i64::try_from(*i).unwrap_or(i64::MAX)));
    let time = TimestampMicrosecondArray::from_iter_values(wanted.iter().map(|(_, e)| e.time.micros()));
    let body = StringArray::from_iter_values(wanted.iter().map(|(_, e)| Value::Object(body(e)).to_string()));
    let columns: Vec<ArrayRef> = vec![Arc::new(index), Arc::new(time.with_timezone("UTC")), Arc::new(body)];
    let schema = Schema::new(vec![
        Field::new("index", DataType::Int64, false),
        Field::new("time", timestamp_type(), false),
        Field::new("body", DataType::Utf8, false),
    ]);
    RecordBatch::try_new(Arc::new(schema), columns).map_err(Fault::internal)
}

/// A change as people's tools get it. Names and meaning stay; README.md lists them.
fn body(event: &AlarmEvent) -> Map<String, Value> {
    let alarm = &event.alarm;
    let fields: [(&str, Value); 18] = [
        ("tenant", json!(alarm.scenario.tenant)),
        ("scenario", json!(alarm.scenario.scenario)),
        ("alarm", json!(alarm.name)),
        ("alarm_id", json!(alarm_id(alarm))),
        ("key", key_json(&alarm.key_names, &alarm.key)),
        ("change", json!(event.change)),
        ("status", json!(alarm.status)),
        ("severity", json!(alarm.severity)),
        ("severity_before", json!(event.before)),
        ("message", json!(alarm.message)),
        ("fields", fields_json(&alarm.fields)),
        ("time", json!(event.time)),
        ("opened_at", json!(alarm.opened_at)),
        ("last_seen", json!(alarm.last_seen)),
        ("cleared_at", json!(alarm.cleared_at)),
        ("count", json!(alarm.count)),
        ("batch", json!(event.batch)),
        ("ruleset", json!(event.ruleset)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The messages of an output, in order. `app` is who sends them, with all incarnations.
pub fn messages(output: &PendingOutput, app: &str) -> Result<Vec<Message>, Fault> {
    let column = |name: &str| {
        output.rows.column_by_name(name).ok_or_else(|| Fault::internal(format_args!("a notification without {name}")))
    };
    let broken = |what: &str| Fault::internal(format_args!("a notification's {what} cannot be read"));
    let (index, time, body) = (column("index")?, column("time")?, column("body")?);
    let index = index.as_primitive_opt::<Int64Type>().ok_or_else(|| broken("index"))?;
    let time = time.as_primitive_opt::<TimestampMicrosecondType>().ok_or_else(|| broken("time"))?;
    let body = body.as_string_opt::<i32>().ok_or_else(|| broken("body"))?;
    (0..body.len())
        .map(|row| {
            let index = u32::try_from(index.value(row)).map_err(|_| broken("index"))?;
            Ok(Message {
                id: format!("{app}/{}/{index}", output.batch),
                time: Time(time.value(row)),
                batch: output.batch,
                index,
                body: serde_json::from_str(body.value(row)).map_err(|_| broken("body"))?,
            })
        })
        .collect()
}
