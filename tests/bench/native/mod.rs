//! Runs a detector of the SDK in this process, on the same port as the sandbox runs its component: the other side of the
//! ratios. It does what the sandbox does for a guest, without limits, and copies no more than the SDK asks for.

mod convert;
mod frame;
mod writer;

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use weir_model::alarm::Because;
use weir_model::columns::output_schema;
use weir_model::port::{
    BatchHost, Description, DetectFailure, Detection, Detector, LogLine, Reject, RuleCall, Usage, Verdict,
};
use weir_model::{AlarmRaise, CallError, Digest, Fault as HostFault};
use weir_sdk::backend::{self, Ambient, FrameHandle, WriterHandle};
use weir_sdk::{Alarm, Blobs, Bounds, DataError, Fault, Field, RowFault, RowRef, Time, log::Level};

use frame::{Frame, Origin};
use writer::{Target, Writer};

/// A detector, natively.
pub struct Native<D> {
    described: Arc<Described>,
    config: String,
    digest: Digest,
    detector: PhantomData<fn() -> D>,
}

/// What is the same in every call.
struct Described {
    description: Description,
    schemas: Vec<SchemaRef>,
}

impl<D> Native<D> {
    /// The native form of a component, with this configuration.
    pub fn like(plugin: &dyn Detector, config: &str) -> Self {
        let description = plugin.description().clone();
        let schemas = description.outputs.iter().map(|output| output_schema(&output.fields)).collect();
        Self {
            described: Arc::new(Described { description, schemas }),
            config: config.to_owned(),
            digest: plugin.digest(),
            detector: PhantomData,
        }
    }
}

/// What a batch has made so far, and which frames are held.
#[derive(Default)]
struct Made {
    frames: Vec<Weak<Frame>>,
    runs: Vec<(String, u32)>,
    outputs: Vec<Vec<RecordBatch>>,
    alarms: Vec<AlarmRaise>,
    rejects: Vec<Reject>,
    log: Vec<LogLine>,
    /// A fault of the host, which the detector does not see.
    fault: Option<HostFault>,
}

type Shared = Rc<RefCell<Made>>;

struct Batch {
    host: Arc<dyn BatchHost>,
    described: Arc<Described>,
    made: Shared,
}

/// Logs into the batch; no benchmark has assets.
struct Said(Shared);

impl Ambient for Said {
    fn log(&self, level: Level, message: &str) {
        let level = match level {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        };
        self.0.borrow_mut().log.push(LogLine { level, message: message.to_owned() });
    }
    fn asset(&self, _: &str) -> Option<Rc<[u8]>> {
        None
    }
}

impl<D: weir_sdk::Detector> Detector for Native<D> {
    fn description(&self) -> &Description {
        &self.described.description
    }
    fn digest(&self) -> Digest {
        self.digest
    }
    fn detect(&self, host: Arc<dyn BatchHost>) -> Result<Detection, Box<DetectFailure>> {
        let made = Shared::default();
        let batch: backend::BatchHandle =
            Rc::new(Batch { host, described: self.described.clone(), made: made.clone() });
        let said = backend::with_ambient(Rc::new(Said(made.clone())), || {
            D::prepare(&self.config)?.detect(&weir_sdk::Batch::on(batch))
        });
        let made = made.take();
        let failed = |fault| Box::new(DetectFailure { fault, log: Vec::new(), usage: Usage::default() });
        if let Some(fault) = made.fault {
            return Err(failed(fault));
        }
        let verdict = match said {
            Ok(weir_sdk::Verdict::Judged) => Verdict::Judged,
            Ok(weir_sdk::Verdict::NoVerdict) => Verdict::NoVerdict,
            Err(fault) => return Err(failed(HostFault::internal(fault))),
        };
        let names = self.described.description.outputs.iter().map(|output| &output.name);
        let mut outputs = Vec::new();
        for (name, all) in names.zip(made.outputs) {
            let Some(first) = all.first() else { continue };
            let rows = arrow_select::concat::concat_batches(first.schema_ref(), &all);
            outputs.push((name.clone(), rows.map_err(|e| failed(HostFault::internal(e)))?));
        }
        Ok(Detection {
            verdict,
            outputs,
            alarms: made.alarms,
            rejects: made.rejects,
            log: made.log,
            usage: Usage::default(),
        })
    }
}

impl Batch {
    /// An answer of the host: what is a function of the input the detector may see, the rest ends the batch.
    fn answer<T>(&self, answer: Result<T, CallError>) -> Result<T, Fault> {
        answer.map_err(|error| match error {
            CallError::Data(error) => convert::data_error(error).into(),
            CallError::Fault(fault) => {
                self.made.borrow_mut().fault.get_or_insert(fault);
                Fault::internal("the host failed")
            }
        })
    }

    fn frame(&self, rows: RecordBatch, source: String) -> FrameHandle {
        frame::register(&self.made, rows, Origin::new(&source, 0))
    }
}

/// `kind:name#k` of the k-th answer of a query or rule, from 1.
fn next_source(made: &Shared, kind: &str, name: &str) -> String {
    let source = if name.is_empty() { kind.to_owned() } else { format!("{kind}:{name}") };
    let mut made = made.borrow_mut();
    let runs = &mut made.runs;
    let place = runs.iter().position(|(known, _)| *known == source).unwrap_or_else(|| {
        runs.push((source.clone(), 0));
        runs.len() - 1
    });
    runs[place].1 += 1;
    format!("{source}#{}", runs[place].1)
}

fn because(made: &Made, row: RowRef) -> Result<Because, Fault> {
    let frame = made.frames.get(row.frame as usize).and_then(Weak::upgrade).ok_or(DataError::OutOfRange)?;
    if row.row as usize >= frame.rows.num_rows() {
        return Err(DataError::OutOfRange.into());
    }
    Ok(frame.origin.of(row.row))
}

fn listed(names: &[weir_model::Name], name: &str) -> Result<(), Fault> {
    let found = names.iter().any(|known| known.as_str() == name);
    if found { Ok(()) } else { Err(DataError::Undeclared.into()) }
}

impl backend::Batch for Batch {
    fn time(&self) -> i64 {
        self.host.time().micros()
    }
    fn input(&self, name: &str) -> Result<FrameHandle, Fault> {
        listed(&self.described.description.inputs, name)?;
        let rows = self.answer(self.host.input(name))?;
        Ok(self.frame(rows, format!("input:{name}")))
    }
    fn window(&self, input: &str) -> Result<Bounds, Fault> {
        listed(&self.described.description.inputs, input)?;
        let bounds = self.answer(self.host.window(input))?;
        let time = |t: weir_model::Time| Time::from_micros(t.micros());
        Ok(Bounds { start: time(bounds.start), end: time(bounds.end), watermark: bounds.watermark.map(time) })
    }
    fn query(&self, call: backend::QueryCall<'_>) -> Result<FrameHandle, Fault> {
        listed(&self.described.description.queries, call.name)?;
        let rows =
            self.answer(self.host.query(call.name, &convert::values(call.values), &frame::bound(&call.rows)?))?;
        Ok(self.frame(rows, next_source(&self.made, "query", call.name)))
    }
    fn rule(&self, call: backend::RuleCall<'_>) -> Result<(FrameHandle, Vec<RowFault>), Fault> {
        listed(&self.described.description.rules, call.name)?;
        let asked = RuleCall {
            values: convert::values(call.values),
            rows: frame::bound(&call.rows)?,
            each: call.each.map(frame::rows_of).transpose()?,
            unnest: call.unnest.map(str::to_owned),
            want: call.want.into_iter().map(|(path, kind)| (path.to_owned(), convert::kind(kind))).collect(),
        };
        let answer = self.answer(self.host.rule(call.name, &asked))?;
        let failed = answer.failed.into_iter().map(|(row, reason)| RowFault { row, reason }).collect();
        Ok((self.frame(answer.rows, next_source(&self.made, "rule", call.name)), failed))
    }
    fn state_get(&self, keys: Blobs) -> Result<(Vec<u8>, Blobs), Fault> {
        let keys: Vec<&[u8]> = keys.iter().collect();
        let found = self.answer(self.host.state_get(&keys))?;
        let present = found.iter().map(|value| u8::from(value.is_some())).collect();
        Ok((present, found.iter().map(|value| value.as_deref().unwrap_or_default()).collect()))
    }
    fn state_put(&self, keys: Blobs, values: Blobs, ttl_seconds: Option<u64>) -> Result<(), Fault> {
        let entries: Vec<(&[u8], &[u8])> = keys.iter().zip(values.iter()).collect();
        self.answer(self.host.state_put(&entries, ttl_seconds))
    }
    fn state_delete(&self, keys: Blobs) -> Result<(), Fault> {
        let keys: Vec<&[u8]> = keys.iter().collect();
        self.answer(self.host.state_delete(&keys))
    }
    fn state_scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: u32) -> Result<(Blobs, Blobs), Fault> {
        let (keys, values): (Vec<_>, Vec<_>) =
            self.answer(self.host.state_scan(prefix, after, limit))?.into_iter().unzip();
        Ok((keys.into_iter().collect(), values.into_iter().collect()))
    }
    fn output(&self, name: &str) -> WriterHandle {
        let outputs = &self.described.description.outputs;
        let target = outputs.iter().position(|output| output.name.as_str() == name);
        Box::new(match target {
            Some(index) => Writer::new(
                Target::Output(index, name.to_owned()),
                outputs[index].fields.clone(),
                self.described.schemas[index].clone(),
                self.made.clone(),
            ),
            None => Writer::new(Target::Undeclared, Vec::new(), output_schema(&[]), self.made.clone()),
        })
    }
    fn scratch(&self, fields: Vec<Field>) -> WriterHandle {
        let fields: Vec<_> = fields.into_iter().map(convert::field).collect();
        let schema = output_schema(&fields);
        Box::new(Writer::new(Target::Scratch, fields, schema, self.made.clone()))
    }
    fn alarms(&self, alarms: Vec<Alarm>) -> Result<(), Fault> {
        let mut made = self.made.borrow_mut();
        let types = &self.described.description.alarms;
        let raised = alarms.into_iter().map(|alarm| {
            let declared = types.iter().find(|ty| ty.name.as_str() == alarm.name).ok_or(DataError::Undeclared)?;
            let because = alarm.because.iter().map(|row| because(&made, *row)).collect::<Result<_, Fault>>()?;
            Ok(convert::alarm(declared.name.clone(), alarm, because))
        });
        let raised = raised.collect::<Result<Vec<_>, Fault>>()?;
        made.alarms.extend(raised);
        Ok(())
    }
    fn reject(&self, rows: &[RowRef], reason: &str) -> Result<(), Fault> {
        let mut made = self.made.borrow_mut();
        for row in rows {
            let row = because(&made, *row)?;
            made.rejects.push(Reject { row, reason: reason.to_owned(), raw: String::new() });
        }
        Ok(())
    }
}
