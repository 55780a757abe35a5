//! The batch as a plugin sees it: what it may ask for, its state, and what it leaves.

use std::sync::{Arc, Weak};

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use wasmtime::Result;
use wasmtime::component::Resource;
use weir_model::alarm::Because;
use weir_model::port::{BatchHost, Reject};
use weir_model::{AlarmRaise, CallError, DataError, Fault, FaultKind, Limits, Name};

use super::ask::{Query, Rule};
use super::bindings::weir::detect::batches::{Alarm, Bounds, Field, HostBatch, RowRef};
use super::bindings::weir::detect::types::Scalar;
use super::bindings::weir::detect::{assets, batches, log};
use super::convert;
use super::frame::{Frame, Origin};
use super::table::{BatchHandle, FrameHandle, Held, QueryHandle, RuleHandle, StateHandle, Table, WriterHandle, stale};
use super::writer::{Target, Writer, too_many_bytes, too_many_rows};
use crate::call::{Call, Scenario};
use crate::columns::{render, size};
use crate::limits::{Charge, exceeded};
use crate::log::cut;

type Answer<T> = std::result::Result<T, CallError>;

/// A rejected row is kept as JSON, cut to this many bytes.
const RAW: usize = 64 * 1024;
/// A reason is cut to this many bytes.
const REASON: usize = 4 * 1024;

/// Rows of an output that count.
#[derive(Debug)]
pub struct Finished {
    /// The rows.
    pub rows: RecordBatch,
    /// Their memory, until the call has ended.
    pub _charge: Arc<Charge>,
}

/// What a plugin holds in a call, and what it has made so far.
#[derive(Debug, Default)]
pub struct Batch {
    /// Its handles.
    pub table: Table,
    inputs: Vec<(String, Weak<Frame>)>,
    runs: Vec<(String, u32)>,
    outputs: Vec<Vec<Finished>>,
    alarms: Vec<AlarmRaise>,
    rejects: Vec<Reject>,
    rows: u64,
    bytes: u64,
    /// Memory of state that was written and of rejected rows.
    pub charges: Vec<Charge>,
}

/// What a plugin leaves.
pub struct Left {
    /// Rows of outputs that it finished, in the order in which it describes them.
    pub outputs: Vec<(Name, RecordBatch)>,
    /// Its alarms.
    pub alarms: Vec<AlarmRaise>,
    /// Rows that it put aside.
    pub rejects: Vec<Reject>,
}

impl Batch {
    /// `kind:name#k` of the k-th answer of a query or rule, from 1.
    pub fn next_source(&mut self, kind: &str, name: &str) -> String {
        let source = if name.is_empty() { kind.to_owned() } else { format!("{kind}:{name}") };
        let known = self.runs.iter_mut().find(|(known, _)| *known == source);
        let run = match known {
            Some((_, run)) => {
                *run += 1;
                *run
            }
            None => {
                self.runs.push((source.clone(), 1));
                1
            }
        };
        format!("{source}#{run}")
    }

    /// Counts rows and bytes that will be kept for sinks.
    fn leave(&mut self, rows: u64, bytes: u64, limits: &Limits) -> std::result::Result<(), Fault> {
        self.rows += rows;
        self.bytes += bytes;
        if self.rows > limits.output_rows {
            return Err(too_many_rows(limits));
        }
        if self.bytes > limits.output_bytes {
            return Err(too_many_bytes(limits));
        }
        Ok(())
    }

    /// Makes rows of an output count. Answers how many it had before.
    pub fn finish_rows(
        &mut self,
        output: usize,
        finished: Finished,
        limits: &Limits,
    ) -> std::result::Result<u32, Fault> {
        let bytes = size::of_batch(&finished.rows);
        self.leave(finished.rows.num_rows() as u64, bytes, limits)?;
        if self.outputs.len() <= output {
            self.outputs.resize_with(output + 1, Vec::new);
        }
        let all = &mut self.outputs[output];
        let before: usize = all.iter().map(|f| f.rows.num_rows()).sum();
        all.push(finished);
        Ok(u32::try_from(before).unwrap_or(u32::MAX))
    }

    /// What counts when the plugin came back well. Handles that it never dropped are swept.
    pub fn leave_all(&mut self, scenario: &Scenario) -> std::result::Result<Left, Fault> {
        self.table.sweep();
        let mut outputs = Vec::new();
        for (index, all) in self.outputs.drain(..).enumerate() {
            let Some(first) = all.first() else {
                continue;
            };
            let rows = match all.as_slice() {
                [one] => one.rows.clone(),
                _ => concat_batches(first.rows.schema_ref(), all.iter().map(|f| &f.rows))
                    .map_err(|e| Fault::internal(format_args!("rows of an output: {e}")))?,
            };
            outputs.push((scenario.description.outputs[index].name.clone(), rows));
        }
        Ok(Left { outputs, alarms: std::mem::take(&mut self.alarms), rejects: std::mem::take(&mut self.rejects) })
    }
}

impl Call {
    /// The handle that `detect` gets, by value.
    pub fn hand_over_batch(&mut self) -> std::result::Result<Resource<BatchHandle>, Fault> {
        let most = self.limits().handles;
        Ok(Resource::new_own(self.batch.table.add(Held::Batch, most)?))
    }

    fn on_batch(&mut self, handle: &Resource<BatchHandle>) -> std::result::Result<Arc<dyn BatchHost>, Fault> {
        self.enter()?;
        match self.batch.table.get(handle.rep()) {
            Some(Held::Batch) => self.host().cloned(),
            _ => Err(stale()),
        }
    }

    fn add<T: 'static>(&mut self, held: Held) -> Result<Resource<T>> {
        let most = self.limits().handles;
        Ok(Resource::new_own(self.batch.table.add(held, most)?))
    }

    fn because(&self, row: &RowRef) -> std::result::Result<Because, DataError> {
        let frame = self.held_frame(row.frame).ok_or(DataError::OutOfRange)?;
        if row.row >= frame.len() {
            return Err(DataError::OutOfRange);
        }
        Ok(frame.origin.of(row.row))
    }
}

fn listed(names: &[Name], name: &str) -> bool {
    names.iter().any(|n| n.as_str() == name)
}

impl HostBatch for Call {
    fn time(&mut self, batch: Resource<BatchHandle>) -> Result<i64> {
        Ok(self.on_batch(&batch)?.time().micros())
    }

    fn input(&mut self, batch: Resource<BatchHandle>, name: String) -> Answer<Resource<FrameHandle>> {
        let host = self.on_batch(&batch)?;
        if !listed(&self.scenario.description.inputs, &name) {
            return Err(DataError::Undeclared.into());
        }
        // Asked for twice, it is the same frame, as long as the guest holds the first one.
        let known = self.batch.inputs.iter().find(|(known, _)| *known == name);
        if let Some(frame) = known.and_then(|(_, frame)| frame.upgrade()) {
            return self.add_frame(frame);
        }
        let rows = host.input(&name);
        self.arm();
        let rows = rows?;
        let frame = Arc::new(Frame {
            charge: Arc::new(self.meter.hold(size::of_batch(&rows))?),
            rows,
            origin: Origin::new(&format!("input:{name}"), 0),
        });
        self.batch.inputs.retain(|(known, _)| *known != name);
        self.batch.inputs.push((name, Arc::downgrade(&frame)));
        self.add_frame(frame)
    }

    fn window(&mut self, batch: Resource<BatchHandle>, input: String) -> Answer<Bounds> {
        let host = self.on_batch(&batch)?;
        if !listed(&self.scenario.description.inputs, &input) {
            return Err(DataError::Undeclared.into());
        }
        let bounds = host.window(&input)?;
        Ok(Bounds {
            start: bounds.start.micros(),
            end: bounds.end.micros(),
            watermark: bounds.watermark.map(|w| w.micros()),
        })
    }

    fn query(&mut self, batch: Resource<BatchHandle>, name: String) -> Result<Resource<QueryHandle>> {
        self.on_batch(&batch)?;
        let declared = listed(&self.scenario.description.queries, &name);
        self.add(Held::Query(Box::new(Query { name, declared, bound: Default::default() })))
    }

    fn rule(&mut self, batch: Resource<BatchHandle>, name: String) -> Result<Resource<RuleHandle>> {
        self.on_batch(&batch)?;
        let declared = listed(&self.scenario.description.rules, &name);
        self.add(Held::Rule(Box::new(Rule::new(name, declared))))
    }

    fn state(&mut self, batch: Resource<BatchHandle>) -> Result<Resource<StateHandle>> {
        self.on_batch(&batch)?;
        if self.scenario.description.state.is_none() {
            return Err(Fault::tenant(FaultKind::PluginData, "the plugin uses state, but describe declares none")
                .fix("let describe answer a version of the state's schema")
                .into());
        }
        self.add(Held::State)
    }

    fn output(&mut self, batch: Resource<BatchHandle>, name: String) -> Result<Resource<WriterHandle>> {
        self.on_batch(&batch)?;
        let outputs = &self.scenario.description.outputs;
        let writer = match outputs.iter().position(|o| o.name.as_str() == name) {
            Some(index) => Writer::new(
                Target::Output(index),
                outputs[index].fields.as_slice().into(),
                self.scenario.outputs[index].clone(),
            ),
            None => Writer::new(Target::Undeclared, Arc::default(), arrow_schema::Schema::empty().into()),
        };
        self.add(Held::Writer(Box::new(writer)))
    }

    fn scratch(&mut self, batch: Resource<BatchHandle>, fields: Vec<Field>) -> Result<Resource<WriterHandle>> {
        self.on_batch(&batch)?;
        let bytes: usize = fields.iter().map(|f| 128 + f.name.len()).sum();
        let charge = self.meter.hold(bytes as u64)?;
        self.batch.charges.push(charge);
        let fields = fields.into_iter().map(Into::into).collect();
        self.add(Held::Writer(Box::new(Writer::scratch(fields))))
    }

    fn alarms(&mut self, batch: Resource<BatchHandle>, alarms: Vec<Alarm>) -> Answer<()> {
        self.on_batch(&batch)?;
        let limits = self.limits().clone();
        if (self.batch.alarms.len() + alarms.len()) as u64 > limits.alarms {
            return Err(exceeded(
                FaultKind::Alarms,
                "alarms",
                format_args!("the plugin raises more than {} alarms", limits.alarms),
            )
            .into());
        }
        // All of them or none: the guest may handle the error and go on.
        let raised = alarms.into_iter().map(|alarm| self.raised(alarm, &limits)).collect::<Answer<Vec<_>>>()?;
        self.batch.alarms.extend(raised);
        Ok(())
    }

    fn reject(&mut self, batch: Resource<BatchHandle>, rows: Vec<RowRef>, reason: String) -> Answer<()> {
        self.on_batch(&batch)?;
        let origins = rows.iter().map(|row| self.because(row)).collect::<std::result::Result<Vec<_>, _>>()?;
        let limits = self.limits().clone();
        let reason = cut(&reason, REASON);
        let mut raws = Vec::new();
        for same in rows.chunk_by(|a, b| a.frame == b.frame) {
            self.render_rows(same, &limits, &mut raws)?;
        }
        let bytes: u64 = raws.iter().map(|raw| (raw.len() + reason.len()) as u64).sum();
        self.batch.leave(rows.len() as u64, bytes, &limits)?;
        let charge = self.meter.hold(bytes)?;
        self.batch.charges.push(charge);
        let rejects = origins.into_iter().zip(raws).map(|(row, raw)| Reject { row, reason: reason.to_owned(), raw });
        self.batch.rejects.extend(rejects);
        Ok(())
    }

    fn drop(&mut self, batch: Resource<BatchHandle>) -> Result<()> {
        self.batch.table.remove(batch.rep());
        Ok(())
    }
}

impl Call {
    fn raised(&self, alarm: Alarm, limits: &Limits) -> Answer<AlarmRaise> {
        let declared = &self.scenario.description.alarms;
        let declared = declared.iter().find(|d| d.name.as_str() == alarm.name);
        let declared = declared.ok_or(DataError::Undeclared)?;
        if declared.key.len() != alarm.key.len() {
            return Err(DataError::Malformed.into());
        }
        if alarm.fields.len() as u64 > limits.alarm_fields {
            return Err(exceeded(
                FaultKind::Alarms,
                "alarm_fields",
                format_args!("an alarm of the plugin has more than {} fields", limits.alarm_fields),
            )
            .into());
        }
        if alarm_size(&alarm) > limits.alarm_bytes {
            return Err(exceeded(
                FaultKind::Alarms,
                "alarm_bytes",
                format_args!("an alarm of the plugin has more than {} bytes", limits.alarm_bytes),
            )
            .into());
        }
        let because = alarm.because.iter().map(|row| self.because(row));
        Ok(AlarmRaise {
            name: declared.name.clone(),
            key: alarm.key,
            action: alarm.action.into(),
            message: alarm.message,
            because: because.collect::<std::result::Result<_, _>>()?,
            fields: alarm.fields.into_iter().map(|field| (field.name, field.value.into())).collect(),
        })
    }

    /// The JSON of rows of one frame.
    fn render_rows(&mut self, rows: &[RowRef], limits: &Limits, out: &mut Vec<String>) -> Answer<()> {
        let Some(frame) = rows.first().and_then(|row| self.held_frame(row.frame)) else {
            return Ok(());
        };
        // Refused before they are rendered when they could not be kept anyhow.
        if (out.len() + rows.len()) as u64 > limits.output_rows {
            return Err(too_many_rows(limits).into());
        }
        let mut work = 0;
        let mut total = 0;
        for row in rows {
            let one = frame.rows.slice(row.row as usize, 1);
            render::json_rows(&one, |_, text| {
                work += text.len() as u64;
                let text = String::from_utf8_lossy(text);
                let text = cut(&text, RAW);
                total += text.len() as u64;
                out.push(text.to_owned());
                Ok(())
            })
            .map_err(|e| self.column_error(e))?;
            if total > limits.output_bytes {
                return Err(too_many_bytes(limits).into());
            }
        }
        self.meter.work(work * 20)?;
        Ok(())
    }
}

/// What counts as the size of an alarm: its texts and values, and eight bytes for each row that it came from.
fn alarm_size(alarm: &Alarm) -> u64 {
    let value = |value: &Scalar| match value {
        Scalar::Text(v) | Scalar::Decimal(v) => v.len(),
        Scalar::Bytes(v) => v.len(),
        _ => 8,
    };
    let keys: usize = alarm.key.iter().map(String::len).sum();
    let fields: usize = alarm.fields.iter().map(|f| f.name.len() + value(&f.value)).sum();
    (alarm.message.len() + keys + fields + alarm.because.len() * 8) as u64
}

impl batches::Host for Call {}

impl Call {
    /// An asset that `describe` lists and the manifest has.
    fn asset(&self, name: &str) -> Option<&Arc<[u8]>> {
        if !listed(&self.scenario.description.assets, name) {
            return None;
        }
        self.scenario.assets.get(name)
    }
}

impl assets::Host for Call {
    fn size(&mut self, name: String) -> Result<Option<u64>> {
        self.enter()?;
        Ok(self.asset(&name).map(|bytes| bytes.len() as u64))
    }

    fn read(&mut self, name: String, offset: u64, count: u32) -> Result<Option<Vec<u8>>> {
        self.enter()?;
        let Some(bytes) = self.asset(&name) else {
            return Ok(None);
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let to = from.saturating_add(count as usize).min(bytes.len());
        self.meter.fits((to - from) as u64)?;
        let part = bytes[from..to].to_vec();
        self.meter.work(part.len() as u64)?;
        Ok(Some(part))
    }
}

impl log::Host for Call {
    /// Answers in every phase: a panic in `describe` should not lose its words.
    fn write(&mut self, level: log::Level, message: String) -> Result<()> {
        self.meter.enter()?;
        self.meter.work(message.len() as u64)?;
        self.log.line(convert::level(level), message);
        Ok(())
    }
}
