//! Rows that leave a batch: the plugin's with the host's columns, `alarm_events`, and dead letters.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use serde_json::{Map, Value, json};
use weir_model::alarm::{AlarmEvent, AlarmState};
use weir_model::batch::{
    ALARM_EVENTS, ALARMS, BATCH_ID, BATCH_TIME, DEAD_LETTERS, Output, Plan, RULESET, SCENARIO, alarm_key,
};
use weir_model::columns::{ColumnType, output_schema, timestamp_type};
use weir_model::port::{Reject, ViewTable};
use weir_model::ruleset::{Manifest, OutputDef};
use weir_model::service::Rows;
use weir_model::stream::DeadLetter;
use weir_model::{Digest, Fault, FaultKind, FieldDef, Name, Scalar, StreamId, Time};

/// Longest raw text of a dead letter.
const RAW_BYTES: usize = 65_536;

/// A plugin's rows for their table: the host's columns appended.
pub fn of_plugin(plan: &Plan, manifest: &Manifest, name: &Name, rows: &RecordBatch) -> Result<Output, Fault> {
    let Some(def) = manifest.outputs.get(name) else {
        return Ok(Output { output: name.clone(), table: name.clone(), rows: stamped(plan, rows)? });
    };
    let rows = narrowed(rows, name, def)?;
    Ok(Output { output: name.clone(), table: def.table.clone(), rows: stamped(plan, &rows)? })
}

/// The rows with the types that the table is to have. A value that does not fit fails the batch: cutting it off would be a
/// wrong result that nobody notices.
fn narrowed(rows: &RecordBatch, name: &Name, def: &OutputDef) -> Result<RecordBatch, Fault> {
    if !def.columns.values().any(|ty| *ty == ColumnType::Int32) {
        return Ok(rows.clone());
    }
    let schema = rows.schema();
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in schema.fields().iter().zip(rows.columns()) {
        let wanted = def.columns.get(field.name()) == Some(&ColumnType::Int32);
        match column.as_primitive_opt::<Int64Type>().filter(|_| wanted) {
            Some(wide) => {
                let narrow: Int32Array =
                    wide.try_unary(|v| i32::try_from(v).map_err(|_| too_wide(v, name, field.name())))?;
                fields.push(Arc::new(Field::new(field.name(), DataType::Int32, field.is_nullable())));
                columns.push(Arc::new(narrow) as ArrayRef);
            }
            None => {
                fields.push(field.clone());
                columns.push(column.clone());
            }
        }
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(Fault::internal)
}

fn too_wide(value: i64, output: &Name, column: &str) -> Fault {
    Fault::tenant(
        FaultKind::Config,
        format_args!("output {output}: {value} does not fit column {column}, which is int32"),
    )
    .file("scenario.toml")
    .field(format_args!("outputs.{output}.columns.{column}"))
    .fix("take the column out there and give the output a table of another name, or write smaller values")
}

/// The changes of alarms as rows of `alarm_events`; none when nothing changed.
pub fn of_events(plan: &Plan, events: &[AlarmEvent]) -> Result<Option<Output>, Fault> {
    if events.is_empty() {
        return Ok(None);
    }
    let name = Name::new(ALARM_EVENTS).map_err(Fault::internal)?;
    Ok(Some(Output { output: name.clone(), table: name, rows: stamped(plan, &event_rows(events)?)? }))
}

/// Changes of alarms without the host's columns.
fn event_rows(events: &[AlarmEvent]) -> Result<RecordBatch, Fault> {
    let text = |f: &dyn Fn(&AlarmEvent) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(events.iter().map(f)))
    };
    let time = |f: &dyn Fn(&AlarmEvent) -> Time| -> ArrayRef { times(events.iter().map(f)) };
    let before: StringArray = events.iter().map(|e| e.before.map(|s| s.to_string())).collect();
    batch_of(vec![
        ("time", timestamp_type(), false, time(&|e| e.time)),
        ("alarm_id", DataType::Utf8, false, text(&|e| alarm_id(&e.alarm))),
        ("alarm", DataType::Utf8, false, text(&|e| e.alarm.name.to_string())),
        ("key", DataType::Utf8, false, text(&|e| key_json(&e.alarm.key_names, &e.alarm.key).to_string())),
        ("change", DataType::Utf8, false, text(&|e| e.change.to_string())),
        ("severity", DataType::Utf8, false, text(&|e| e.alarm.severity.to_string())),
        ("severity_before", DataType::Utf8, true, Arc::new(before)),
        ("message", DataType::Utf8, false, text(&|e| e.alarm.message.clone())),
        ("fields", DataType::Utf8, false, text(&|e| fields_json(&e.alarm.fields).to_string())),
        ("opened_at", timestamp_type(), false, time(&|e| e.alarm.opened_at)),
        ("last_seen", timestamp_type(), false, time(&|e| e.alarm.last_seen)),
        (
            "count",
            DataType::Int64,
            false,
            Arc::new(Int64Array::from_iter_values(events.iter().map(|e| signed(e.alarm.count)))),
        ),
        ("because", DataType::Utf8, false, text(&|e| json!(e.because).to_string())),
    ])
}

/// The host's own tables, empty: they are made with their first row, and are no error before it.
pub(crate) fn own_tables() -> Result<Vec<ViewTable>, Fault> {
    let events = with_host_columns(&event_rows(&[])?.schema());
    let tables = [(DEAD_LETTERS, dead_letter_schema()), (ALARM_EVENTS, events), (ALARMS, of_alarms(&[])?.schema())];
    let empty = |(name, schema): (&str, SchemaRef)| ViewTable {
        name: name.to_owned(),
        schema,
        rows: Vec::new(),
        stands_in: true,
    };
    Ok(tables.into_iter().map(empty).collect())
}

/// Current alarms as rows of the table `alarms`. The host's columns tell of the latest batch that raised each.
pub fn of_alarms(alarms: &[AlarmState]) -> Result<RecordBatch, Fault> {
    let text = |f: &dyn Fn(&AlarmState) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(alarms.iter().map(f)))
    };
    let time = |f: &dyn Fn(&AlarmState) -> Time| -> ArrayRef { times(alarms.iter().map(f)) };
    let number = |f: &dyn Fn(&AlarmState) -> u64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(alarms.iter().map(|a| signed(f(a)))))
    };
    let cleared: TimestampMicrosecondArray = alarms.iter().map(|a| a.cleared_at.map(Time::micros)).collect();
    batch_of(vec![
        ("alarm_id", DataType::Utf8, false, text(&alarm_id)),
        ("alarm", DataType::Utf8, false, text(&|a| a.name.to_string())),
        ("key", DataType::Utf8, false, text(&|a| key_json(&a.key_names, &a.key).to_string())),
        ("status", DataType::Utf8, false, text(&|a| a.status.to_string())),
        ("severity", DataType::Utf8, false, text(&|a| a.severity.to_string())),
        ("message", DataType::Utf8, false, text(&|a| a.message.clone())),
        ("fields", DataType::Utf8, false, text(&|a| fields_json(&a.fields).to_string())),
        ("opened_at", timestamp_type(), false, time(&|a| a.opened_at)),
        ("last_seen", timestamp_type(), false, time(&|a| a.last_seen)),
        ("cleared_at", timestamp_type(), true, Arc::new(cleared.with_timezone("UTC"))),
        ("count", DataType::Int64, false, number(&|a| a.count)),
        (BATCH_TIME, timestamp_type(), false, time(&|a| a.last_seen)),
        (BATCH_ID, DataType::Int64, false, number(&|a| a.batch.0)),
        (SCENARIO, DataType::Utf8, false, text(&|a| a.scenario.to_string())),
        (RULESET, DataType::Utf8, false, text(&|a| a.ruleset.to_string())),
    ])
}

/// Rows that the plugin put aside, as dead letters; none when there are none.
pub fn of_rejects(plan: &Plan, rejects: &[Reject]) -> Result<Option<Output>, Fault> {
    if rejects.is_empty() {
        return Ok(None);
    }
    let letters = rejects.iter().map(|r| Letter {
        origin: plan.key.scenario.to_string(),
        source: &r.row.source,
        partition: 0,
        offset: u64::from(r.row.row),
        time: Some(plan.time),
        reason: &r.reason,
        raw: &r.raw,
    });
    let name = Name::new(DEAD_LETTERS).map_err(Fault::internal)?;
    Ok(Some(Output { output: name.clone(), table: name, rows: letters_batch(letters)? }))
}

/// A row of `dead_letters`.
pub(crate) struct Letter<'a> {
    pub origin: String,
    pub source: &'a str,
    pub partition: u32,
    pub offset: u64,
    pub time: Option<Time>,
    pub reason: &'a str,
    pub raw: &'a str,
}

/// The schema of the table `dead_letters`: whose row (`origin`: a stream or a scenario), where it stood (`source`: the
/// stream, or the input, query or output of the batch), why, and the row itself.
pub fn dead_letter_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("origin", DataType::Utf8, false),
        Field::new("source", DataType::Utf8, false),
        Field::new("partition", DataType::Int32, false),
        Field::new("offset", DataType::Int64, false),
        Field::new("batch_time", timestamp_type(), true),
        Field::new("reason", DataType::Utf8, false),
        Field::new("raw", DataType::Utf8, false),
    ]))
}

/// A stream's dead letters as rows.
pub fn dead_letters_of_stream(id: &StreamId, letters: &[DeadLetter]) -> Result<RecordBatch, Fault> {
    letters_batch(letters.iter().map(|d| Letter {
        origin: id.to_string(),
        source: id.stream.as_str(),
        partition: d.partition,
        offset: d.offset,
        time: None,
        reason: &d.reason,
        raw: &d.raw,
    }))
}

pub(crate) fn letters_batch<'a>(letters: impl Iterator<Item = Letter<'a>>) -> Result<RecordBatch, Fault> {
    let letters: Vec<Letter<'a>> = letters.collect();
    let text = |f: &dyn Fn(&Letter<'a>) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(letters.iter().map(f)))
    };
    let time: TimestampMicrosecondArray = letters.iter().map(|l| l.time.map(Time::micros)).collect();
    let partitions = letters.iter().map(|l| i32::try_from(l.partition).unwrap_or(i32::MAX));
    let columns: Vec<ArrayRef> = vec![
        text(&|l| l.origin.clone()),
        text(&|l| l.source.to_owned()),
        Arc::new(Int32Array::from_iter_values(partitions)),
        Arc::new(Int64Array::from_iter_values(letters.iter().map(|l| signed(l.offset)))),
        Arc::new(time.with_timezone("UTC")),
        text(&|l| l.reason.to_owned()),
        text(&|l| cut_text(l.raw).to_owned()),
    ];
    RecordBatch::try_new(dead_letter_schema(), columns).map_err(Fault::internal)
}

fn stamped(plan: &Plan, rows: &RecordBatch) -> Result<RecordBatch, Fault> {
    let n = rows.num_rows();
    let scenario = plan.key.scenario.to_string();
    let ruleset = plan.ruleset.to_string();
    let host: Vec<(&str, DataType, bool, ArrayRef)> = vec![
        (BATCH_TIME, timestamp_type(), false, times(std::iter::repeat_n(plan.time, n))),
        (BATCH_ID, DataType::Int64, false, Arc::new(Int64Array::from(vec![signed(plan.id.0); n]))),
        (SCENARIO, DataType::Utf8, false, Arc::new(StringArray::from(vec![scenario.as_str(); n]))),
        (RULESET, DataType::Utf8, false, Arc::new(StringArray::from(vec![ruleset.as_str(); n]))),
    ];
    let own =
        rows.schema().fields().iter().zip(rows.columns()).map(|(f, c)| (f.clone(), c.clone())).collect::<Vec<_>>();
    let (mut fields, mut columns): (Vec<Arc<Field>>, Vec<ArrayRef>) = own.into_iter().unzip();
    for (name, ty, nullable, column) in host {
        fields.push(Arc::new(Field::new(name, ty, nullable)));
        columns.push(column);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(Fault::internal)
}

/// The schema of the table that a plugin's output goes to: its columns as the table has them, and the host's.
pub fn table_schema(fields: &[FieldDef], name: &Name, def: Option<&OutputDef>) -> Result<SchemaRef, Fault> {
    let own = RecordBatch::new_empty(output_schema(fields));
    let own = match def {
        Some(def) => narrowed(&own, name, def)?,
        None => own,
    };
    Ok(with_host_columns(&own.schema()))
}

fn with_host_columns(own: &SchemaRef) -> SchemaRef {
    let host = [
        (BATCH_TIME, timestamp_type()),
        (BATCH_ID, DataType::Int64),
        (SCENARIO, DataType::Utf8),
        (RULESET, DataType::Utf8),
    ];
    let host = host.into_iter().map(|(name, ty)| Arc::new(Field::new(name, ty, false)));
    Arc::new(Schema::new(own.fields().iter().cloned().chain(host).collect::<Vec<_>>()))
}

fn batch_of(columns: Vec<(&str, DataType, bool, ArrayRef)>) -> Result<RecordBatch, Fault> {
    let fields: Vec<Field> = columns.iter().map(|(n, ty, null, _)| Field::new(*n, ty.clone(), *null)).collect();
    let arrays = columns.into_iter().map(|(_, _, _, c)| c).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(Fault::internal)
}

fn times(values: impl Iterator<Item = Time>) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from_iter_values(values.map(Time::micros)).with_timezone("UTC"))
}

fn signed(v: u64) -> i64 {
    i64::try_from(v).unwrap_or(i64::MAX)
}

/// A short identity of an alarm: of scenario, type and key. The same in every batch.
pub fn alarm_id(alarm: &AlarmState) -> String {
    let scenario = alarm.scenario.to_string();
    let key = alarm_key(alarm.name.as_str(), &alarm.key);
    Digest::of_parts([scenario.as_bytes(), &key]).short()
}

/// An alarm's key as an object: field name -> value, in the declared order.
pub fn key_json(names: &[String], key: &[String]) -> Value {
    names.iter().zip(key).map(|(n, v)| (n.clone(), Value::from(v.clone()))).collect::<Map<_, _>>().into()
}

/// Fields of an alarm as an object.
pub fn fields_json(fields: &[(String, Scalar)]) -> Value {
    fields.iter().map(|(n, v)| (n.clone(), scalar_json(v))).collect::<Map<_, _>>().into()
}

fn scalar_json(value: &Scalar) -> Value {
    match value {
        Scalar::Null => Value::Null,
        Scalar::Boolean(b) => json!(b),
        Scalar::Int64(i) => json!(i),
        Scalar::Float64(f) => json!(f),
        Scalar::Decimal(s) | Scalar::Text(s) => json!(s),
        Scalar::Bytes(b) => json!(b),
        Scalar::Timestamp(t) => json!(Time(*t)),
    }
}

/// One row as JSON text, cut to 64 KiB; for dead letters.
pub fn row_json(rows: &RecordBatch, row: usize) -> String {
    let text =
        objects(&rows.slice(row, 1)).ok().and_then(|o| o.into_iter().next()).map(|o| Value::Object(o).to_string());
    cut_text(text.as_deref().unwrap_or_default()).to_owned()
}

fn cut_text(text: &str) -> &str {
    let mut end = text.len().min(RAW_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Rows as JSON objects: nulls explicit, timestamps as RFC 3339.
pub fn objects(rows: &RecordBatch) -> Result<Vec<Map<String, Value>>, Fault> {
    let mut buffer = Vec::new();
    let mut writer = arrow_json::WriterBuilder::new()
        .with_explicit_nulls(true)
        .build::<_, arrow_json::writer::LineDelimited>(&mut buffer);
    writer.write(rows).and_then(|()| writer.finish()).map_err(Fault::internal)?;
    drop(writer);
    buffer
        .split(|b| *b == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).map_err(Fault::internal))
        .collect()
}

/// Rows for people and programs.
pub fn rows_of(batch: &RecordBatch) -> Result<Rows, Fault> {
    let schema = batch.schema();
    Ok(Rows {
        columns: schema.fields().iter().map(|f| f.name().clone()).collect(),
        types: schema.fields().iter().map(|f| f.data_type().to_string()).collect(),
        rows: objects(batch)?,
    })
}

/// A digest of rows that does not depend on how they are encoded: equal rows in equal order give equal digests.
pub fn rows_digest(batch: &RecordBatch) -> Result<Digest, Fault> {
    let rows: Vec<String> = objects(batch)?.into_iter().map(|o| Value::Object(o).to_string()).collect();
    Ok(Digest::of_parts(rows.iter().map(String::as_bytes)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn int64_columns_are_kept_as_int32_where_the_manifest_says_so_and_nothing_is_cut_off() {
        let name = Name::new("counts").unwrap();
        let def: OutputDef = serde_json::from_value(json!({"table": "t", "columns": {"high": "int32"}})).unwrap();
        let rows = |high: Vec<Option<i64>>| {
            let low: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX; high.len()]));
            let high: ArrayRef = Arc::new(Int64Array::from(high));
            RecordBatch::try_from_iter_with_nullable([("high", high, true), ("low", low, true)]).unwrap()
        };
        let kept =
            narrowed(&rows(vec![Some(i64::from(i32::MAX)), None, Some(i64::from(i32::MIN))]), &name, &def).unwrap();
        let high = kept.column(0).as_primitive::<arrow_array::types::Int32Type>();
        assert_eq!(high.iter().collect::<Vec<_>>(), [Some(i32::MAX), None, Some(i32::MIN)]);
        assert_eq!(kept.schema().field(0).data_type(), &DataType::Int32);
        assert_eq!(kept.schema().field(1).data_type(), &DataType::Int64);

        let fault = narrowed(&rows(vec![Some(1), Some(i64::from(i32::MAX) + 1)]), &name, &def).unwrap_err();
        assert_eq!(fault.field.as_deref(), Some("outputs.counts.columns.high"));
        assert!(fault.message.contains("2147483648"), "{fault}");
    }
}
