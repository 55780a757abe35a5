//! The host's resources behind this crate's backend. What crosses is moved, not copied.

use std::cell::OnceCell;

use super::{batches, types};
use crate::backend::{self, QueryCall, RuleCall, Values};
use crate::{Alarm, Blobs, Bounds, Decimals, Fault, Field, Named, RowFault, RowRef, Time};

/// A batch.
pub struct BatchHandle {
    /// Asked for when it is used first: a detector without state has none.
    state: OnceCell<batches::State>,
    batch: batches::Batch,
}

impl BatchHandle {
    pub(super) fn new(batch: batches::Batch) -> Self {
        Self { state: OnceCell::new(), batch }
    }
    fn state(&self) -> &batches::State {
        self.state.get_or_init(|| self.batch.state())
    }
}

/// A frame.
pub struct FrameHandle(batches::Frame);
/// A writer.
pub struct WriterHandle(batches::Writer);

pub(super) fn named(values: Vec<Named>) -> Vec<types::Named> {
    values.into_iter().map(Into::into).collect()
}

impl backend::Batch for BatchHandle {
    fn time(&self) -> i64 {
        self.batch.time()
    }
    fn input(&self, name: &str) -> Result<FrameHandle, Fault> {
        Ok(FrameHandle(self.batch.input(name)?))
    }
    fn window(&self, input: &str) -> Result<Bounds, Fault> {
        let bounds = self.batch.window(input)?;
        Ok(Bounds {
            start: Time::from_micros(bounds.start),
            end: Time::from_micros(bounds.end),
            watermark: bounds.watermark.map(Time::from_micros),
        })
    }
    fn query(&self, call: QueryCall<'_>) -> Result<FrameHandle, Fault> {
        let query = self.batch.query(call.name);
        if !call.values.is_empty() {
            query.bind(&named(call.values));
        }
        for (name, rows) in call.rows {
            query.bind_rows(name, &rows.0);
        }
        Ok(FrameHandle(query.run()?))
    }
    fn rule(&self, call: RuleCall<'_>) -> Result<(FrameHandle, Vec<RowFault>), Fault> {
        let rule = self.batch.rule(call.name);
        if !call.values.is_empty() {
            rule.bind(&named(call.values));
        }
        for (name, rows) in call.rows {
            rule.bind_rows(name, &rows.0);
        }
        if let Some(rows) = call.each {
            rule.each(&rows.0);
        }
        if let Some(path) = call.unnest {
            rule.unnest(path);
        }
        for (path, kind) in call.want {
            rule.want(path, kind.into());
        }
        let answer = FrameHandle(rule.run()?);
        let failed = match call.each {
            Some(_) => rule.failed(),
            None => Vec::new(),
        };
        let fault = |types::RowFault { row, reason }| RowFault { row, reason };
        Ok((answer, failed.into_iter().map(fault).collect()))
    }
    fn state_get(&self, keys: Blobs) -> Result<(Vec<u8>, Blobs), Fault> {
        let (present, values) = self.state().get_many(&keys.into());
        Ok((present, values.into()))
    }
    fn state_put(&self, keys: Blobs, values: Blobs, ttl_seconds: Option<u64>) -> Result<(), Fault> {
        self.state().put_many(&keys.into(), &values.into(), ttl_seconds);
        Ok(())
    }
    fn state_delete(&self, keys: Blobs) -> Result<(), Fault> {
        self.state().delete_many(&keys.into());
        Ok(())
    }
    fn state_scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: u32) -> Result<(Blobs, Blobs), Fault> {
        let (keys, values) = self.state().scan(prefix, after, limit);
        Ok((keys.into(), values.into()))
    }
    fn output(&self, name: &str) -> WriterHandle {
        WriterHandle(self.batch.output(name))
    }
    fn scratch(&self, fields: Vec<Field>) -> WriterHandle {
        let fields: Vec<types::Field> = fields.into_iter().map(Into::into).collect();
        WriterHandle(self.batch.scratch(&fields))
    }
    fn alarms(&self, alarms: Vec<Alarm>) -> Result<(), Fault> {
        let alarms: Vec<types::Alarm> = alarms.into_iter().map(Into::into).collect();
        Ok(self.batch.alarms(&alarms)?)
    }
    fn reject(&self, rows: &[RowRef], reason: &str) -> Result<(), Fault> {
        let rows: Vec<types::RowRef> = rows.iter().copied().map(Into::into).collect();
        Ok(self.batch.reject(&rows, reason)?)
    }
}

impl backend::Frame for FrameHandle {
    fn id(&self) -> u32 {
        self.0.id()
    }
    fn rows(&self) -> u32 {
        self.0.rows()
    }
    fn fields(&self) -> Vec<Field> {
        let fields = self.0.fields();
        fields.into_iter().map(Into::into).collect()
    }
    fn column(&self, name: &str) -> Option<u32> {
        self.0.column(name)
    }
    fn validity(&self, col: u32) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.0.validity(col)?)
    }
    fn booleans(&self, col: u32) -> Result<Vec<u8>, Fault> {
        Ok(self.0.booleans(col)?)
    }
    fn int64s(&self, col: u32) -> Result<Vec<i64>, Fault> {
        Ok(self.0.int64s(col)?)
    }
    fn float64s(&self, col: u32) -> Result<Vec<f64>, Fault> {
        Ok(self.0.float64s(col)?)
    }
    fn timestamps(&self, col: u32) -> Result<Vec<i64>, Fault> {
        Ok(self.0.timestamps(col)?)
    }
    fn decimals(&self, col: u32) -> Result<Decimals, Fault> {
        let types::Decimals { scale, low, high } = self.0.decimals(col)?;
        Ok(Decimals { scale, low, high })
    }
    fn blobs(&self, col: u32) -> Result<Blobs, Fault> {
        Ok(self.0.blobs(col)?.into())
    }
    fn texts(&self, col: u32) -> Result<Blobs, Fault> {
        Ok(self.0.texts(col)?.into())
    }
    fn dictionary(&self, col: u32) -> Result<(Vec<u32>, Blobs), Fault> {
        let dictionary = self.0.dictionary(col)?;
        Ok((dictionary.codes, dictionary.values.into()))
    }
    fn json(&self, columns: &[u32]) -> Result<String, Fault> {
        Ok(self.0.json(columns)?)
    }
    fn slice(&self, start: u32, count: u32) -> Result<Self, Fault> {
        Ok(Self(self.0.slice(start, count)?))
    }
    fn take(&self, rows: &[u32]) -> Result<Self, Fault> {
        Ok(Self(self.0.take(rows)?))
    }
}

impl backend::Writer for WriterHandle {
    fn write(&mut self, column: &str, values: Values<'_>, validity: Option<&[u8]>) -> Result<(), Fault> {
        let writer = &self.0;
        match values {
            Values::Booleans(values) => writer.booleans(column, values, validity),
            Values::Int64s(values) => writer.int64s(column, values, validity),
            Values::Float64s(values) => writer.float64s(column, values, validity),
            Values::Timestamps(values) => writer.timestamps(column, values, validity),
            Values::Decimals(Decimals { scale, low, high }) => {
                writer.decimals(column, &types::Decimals { scale, low, high }, validity)
            }
            Values::Blobs(values) => writer.blobs(column, &values.into(), validity),
        }
        .map_err(Into::into)
    }
    fn fill(&mut self, values: Vec<Named>, rows: u32) -> Result<(), Fault> {
        Ok(self.0.fill(&named(values), rows)?)
    }
    fn copy(&mut self, column: &str, source: &FrameHandle, col: u32) -> Result<(), Fault> {
        Ok(self.0.copy(column, &source.0, col)?)
    }
    fn finish(&mut self) -> Result<FrameHandle, Fault> {
        Ok(FrameHandle(self.0.finish()?))
    }
}
