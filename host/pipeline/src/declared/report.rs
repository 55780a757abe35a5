//! What leaves a batch: rows that were not reported before, and alarms.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, RecordBatch, TimestampMicrosecondArray, UInt32Array};
use arrow_select::take::take;
use weir_model::alarm::{AlarmAction, AlarmRaise, Because};
use weir_model::batch::alarm_key;
use weir_model::port::Reject;
use weir_model::{CallError, Digest, Fault, FaultKind, Limits, Name, Scalar, Severity, Time};

use super::judge::{Judged, Said};
use super::resolved::{Alarm, OutputFrom, SeverityOf};
use super::{Calls, Declared, cells, exceeded};

/// How long an open alarm is remembered where `[detect.once]` does not say.
const OPEN_KEPT: u64 = 3_600;
/// Longer keys and values of state are kept as their digest.
const PLAIN_BYTES: usize = 256;

/// A key or value of state that stands for texts.
fn stands_for(kind: &str, texts: &[String]) -> Vec<u8> {
    let plain = alarm_key(kind, texts);
    if plain.len() <= PLAIN_BYTES { plain } else { alarm_key(kind, &[Digest::of(&plain).to_string()]) }
}

fn state_fault(error: CallError) -> Fault {
    match error {
        CallError::Fault(fault) => fault,
        CallError::Data(why) => Fault::internal(format_args!("state of [detect]: {why}")),
    }
}

/// Which rows alarm and have not been reported with this outcome. Remembers that they are now.
pub fn fresh(declared: &Declared, calls: &mut Calls<'_>, judged: &Judged) -> Result<Vec<bool>, Fault> {
    let alarming: Vec<usize> = (0..judged.said.len()).filter(|row| judged.said[*row] == Said::Alarms).collect();
    let mut fresh = vec![false; judged.said.len()];
    let Some(once) = &declared.resolved.once else {
        alarming.iter().for_each(|row| fresh[*row] = true);
        return Ok(fresh);
    };
    if alarming.is_empty() {
        return Ok(fresh);
    }
    let texts = |columns: &[usize], row: usize| -> Vec<String> {
        // In UTC: another display zone must not make an old row a new one. A null is told from an empty text.
        let text = |c: &ArrayRef| cells::text(c, row, weir_model::Zone::UTC, None);
        columns
            .iter()
            .map(|c| &judged.columns[*c])
            .map(|c| if c.is_null(row) { "\0".into() } else { text(c) })
            .collect()
    };
    let keys: Vec<Vec<u8>> = alarming.iter().map(|row| stands_for("reported", &texts(&once.per, *row))).collect();
    let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let known = calls.ask(|host| host.state_get(&asked)).map_err(state_fault)?;
    let mut now: BTreeMap<&[u8], Vec<u8>> = BTreeMap::new();
    for ((row, key), known) in alarming.iter().zip(&asked).zip(known) {
        let outcome = stands_for("outcome", &texts(&once.outcome, *row));
        // Of two rows with one key in one batch the second one is measured against the first.
        let last = now.get(key).map_or(known.as_deref(), |last| Some(last.as_slice()));
        if last != Some(outcome.as_slice()) {
            fresh[*row] = true;
            now.insert(key, outcome);
        }
    }
    let entries: Vec<(&[u8], &[u8])> = now.iter().map(|(key, outcome)| (*key, outcome.as_slice())).collect();
    if !entries.is_empty() {
        calls.ask(|host| host.state_put(&entries, Some(once.keep))).map_err(state_fault)?;
    }
    Ok(fresh)
}

/// The rows of the output.
pub fn rows(
    declared: &Declared,
    time: Time,
    judged: &Judged,
    fresh: &[bool],
) -> Result<Vec<(Name, RecordBatch)>, Fault> {
    let Some(output) = &declared.resolved.output else {
        return Ok(Vec::new());
    };
    let repeat = declared.resolved.once.as_ref().is_some_and(|once| once.repeat);
    let due = |row: &usize| fresh[*row] || (repeat && judged.said[*row] == Said::Alarms);
    let picked: Vec<u32> =
        (0..judged.said.len()).filter(due).map(|row| u32::try_from(row).unwrap_or(u32::MAX)).collect();
    let picked = UInt32Array::from(picked);
    let columns = output
        .from
        .iter()
        .map(|from| match from {
            OutputFrom::Time(expr) => {
                let time = TimestampMicrosecondArray::from_value(expr.at(time).micros(), picked.len());
                Ok(Arc::new(time.with_timezone("UTC")) as ArrayRef)
            }
            OutputFrom::Column(column) => take(&judged.columns[*column], &picked, None),
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(Fault::internal)?;
    let rows = RecordBatch::try_new(output.schema.clone(), columns).map_err(Fault::internal)?;
    Ok(vec![(output.name.clone(), rows)])
}

/// One alarm a key, for its latest alarming row, unless it is over.
pub fn alarms(
    declared: &Declared,
    calls: &mut Calls<'_>,
    judged: &Judged,
    fresh: &[bool],
) -> Result<Vec<AlarmRaise>, Fault> {
    let Some(alarm) = &declared.resolved.alarm else {
        return Ok(Vec::new());
    };
    let time = calls.host.time();
    let mut keys: BTreeMap<Vec<String>, Vec<usize>> = BTreeMap::new();
    for (row, said) in judged.said.iter().enumerate() {
        if *said != Said::Aside {
            keys.entry(key(alarm, judged, row)).or_default().push(row);
        }
    }
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<Vec<u8>> = keys.keys().map(|key| stands_for("open", key)).collect();
    let asked: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let open = calls.ask(|host| host.state_get(&asked)).map_err(state_fault)?;
    let rank = |row: &usize| alarm.latest.map(|latest| cells::rank(&judged.columns[latest], *row));

    let (mut out, mut opened, mut closed) = (Vec::new(), Vec::new(), Vec::new());
    for (((key, rows), name), open) in keys.into_iter().zip(&asked).zip(open) {
        let latest = rows.iter().copied().filter(|row| judged.said[*row] == Said::Alarms).max_by_key(rank);
        let over = match alarm.clear_at {
            Some(at) => {
                let at = Some(Some(at.at(time).micros()));
                rows.iter().any(|row| judged.said[*row] == Said::Well && rank(row) == at)
            }
            None => rows.iter().copied().max_by_key(rank).is_some_and(|row| judged.said[row] == Said::Well),
        };
        match latest {
            _ if over && open.is_some() => {
                out.push(AlarmRaise {
                    name: alarm.name.clone(),
                    key,
                    action: AlarmAction::Clear,
                    message: String::new(),
                    fields: Vec::new(),
                    because: Vec::new(),
                });
                closed.push(*name);
            }
            Some(row) if !over || fresh[row] => {
                out.push(raise(declared, alarm, judged, key, row));
                opened.push((*name, b"".as_slice()));
            }
            _ => {}
        }
    }
    let keep = declared.resolved.once.as_ref().map_or(OPEN_KEPT, |once| once.keep);
    if !opened.is_empty() {
        calls.ask(|host| host.state_put(&opened, Some(keep))).map_err(state_fault)?;
    }
    if !closed.is_empty() {
        calls.ask(|host| host.state_delete(&closed)).map_err(state_fault)?;
    }
    Ok(out)
}

/// Keys are texts in UTC, so that an alarm stays itself when the display zone is changed.
fn key(alarm: &Alarm, judged: &Judged, row: usize) -> Vec<String> {
    alarm.key.iter().map(|c| cells::text(&judged.columns[*c], row, weir_model::Zone::UTC, None)).collect()
}

/// How large the alarm of a row is.
pub fn bytes_of(declared: &Declared, alarm: &Alarm, judged: &Judged, row: usize) -> u64 {
    size(&raise(declared, alarm, judged, key(alarm, judged, row), row))
}

fn raise(declared: &Declared, alarm: &Alarm, judged: &Judged, key: Vec<String>, row: usize) -> AlarmRaise {
    let severity = match alarm.severity {
        SeverityOf::Fixed(severity) => severity,
        // A severity that is none of ours is a warning: a typing error in a rule must not lose an alarm.
        SeverityOf::Column(column) => {
            cells::text(&judged.columns[column], row, declared.zone, None).parse().unwrap_or(Severity::Warning)
        }
    };
    let cell = |column: &usize, format: Option<&_>| cells::text(&judged.columns[*column], row, declared.zone, format);
    AlarmRaise {
        name: alarm.name.clone(),
        key,
        action: AlarmAction::Raise(severity),
        message: alarm.message.write(cell),
        fields: alarm.fields.iter().map(|(name, c)| (name.clone(), cells::scalar(&judged.columns[*c], row))).collect(),
        because: vec![Because { source: judged.source.clone(), row: u32::try_from(row).unwrap_or(u32::MAX) }],
    }
}

/// Holds what leaves against the limits.
pub fn bounded(
    limits: &Limits,
    outputs: &[(Name, RecordBatch)],
    rejects: &[Reject],
    alarms: &[AlarmRaise],
) -> Result<(), Fault> {
    let rows: usize = outputs.iter().map(|(_, rows)| rows.num_rows()).sum::<usize>() + rejects.len();
    if rows as u64 > limits.output_rows {
        let what = format!("{rows} rows would leave the batch, and output_rows is {}", limits.output_rows);
        return Err(exceeded(FaultKind::Output, "output_rows", what));
    }
    let bytes: usize = outputs.iter().map(|(_, rows)| rows.get_array_memory_size()).sum::<usize>()
        + rejects.iter().map(|r| r.raw.len() + r.reason.len()).sum::<usize>();
    if bytes as u64 > limits.output_bytes {
        let what = format!("{bytes} bytes would leave the batch, and output_bytes is {}", limits.output_bytes);
        return Err(exceeded(FaultKind::Output, "output_bytes", what));
    }
    if alarms.len() as u64 > limits.alarms {
        let what = format!("{} alarms are raised, and alarms is {}", alarms.len(), limits.alarms);
        return Err(exceeded(FaultKind::Alarms, "alarms", what));
    }
    Ok(())
}

fn size(alarm: &AlarmRaise) -> u64 {
    let value = |value: &Scalar| match value {
        Scalar::Text(v) | Scalar::Decimal(v) => v.len(),
        Scalar::Bytes(v) => v.len(),
        _ => 8,
    };
    let fields: usize = alarm.fields.iter().map(|(name, v)| name.len() + value(v)).sum();
    (alarm.message.len() + alarm.key.iter().map(String::len).sum::<usize>() + fields + 8 * alarm.because.len()) as u64
}
