//! Queries and rules: what is bound to them, and their answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use wasmtime::Result;
use wasmtime::component::Resource;
use weir_model::port::RuleCall;
use weir_model::{CallError, DataError, Fault, Kind, Scalar};

use super::bindings::weir::detect::batches::{HostQuery, HostRule, Named};
use super::bindings::weir::detect::types::{self, RowFault};
use super::frame::{Frame, Origin};
use super::table::{FrameHandle, Held, QueryHandle, RuleHandle, stale};
use crate::call::Call;
use crate::limits::Charge;

type Answer<T> = std::result::Result<T, CallError>;

/// Bytes that a bound value is charged for beside its own.
const ENTRY: u64 = 96;

/// Values and rows that are bound by name. A name that is bound again has the new value.
#[derive(Debug, Default)]
pub struct Bound {
    values: BTreeMap<String, Scalar>,
    rows: BTreeMap<String, Arc<Frame>>,
    /// A guest could bind for ever, so what is bound counts as its memory.
    charge: Option<Charge>,
}

impl Bound {
    fn values(&self) -> Vec<(String, Scalar)> {
        self.values.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }
    fn rows(&self) -> Vec<(String, arrow_array::RecordBatch)> {
        self.rows.iter().map(|(name, frame)| (name.clone(), frame.rows.clone())).collect()
    }
    fn charge(&mut self, charge: Charge) {
        match &mut self.charge {
            Some(all) => all.merge(charge),
            none => *none = Some(charge),
        }
    }
    fn bytes(&self) -> u64 {
        self.charge.as_ref().map_or(0, Charge::bytes)
    }
}

/// A named query.
#[derive(Debug)]
pub struct Query {
    /// Its name.
    pub name: String,
    /// Whether `describe` lists it.
    pub declared: bool,
    /// What is bound to it.
    pub bound: Bound,
}

/// A rule.
#[derive(Debug)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// Whether `describe` lists it.
    pub declared: bool,
    /// What is bound to it.
    pub bound: Bound,
    each: Option<Arc<Frame>>,
    unnest: Option<String>,
    want: Vec<(String, Kind)>,
    failed: Vec<(u32, String)>,
    failed_charge: Option<Charge>,
}

impl Rule {
    /// Nothing bound, nothing wanted.
    pub fn new(name: String, declared: bool) -> Self {
        Self {
            name,
            declared,
            bound: Bound::default(),
            each: None,
            unnest: None,
            want: Vec::new(),
            failed: Vec::new(),
            failed_charge: None,
        }
    }
}

fn scalar_size(value: &types::Scalar) -> u64 {
    match value {
        types::Scalar::Text(v) | types::Scalar::Decimal(v) => v.len() as u64,
        types::Scalar::Bytes(v) => v.len() as u64,
        _ => 0,
    }
}

fn named_size(values: &[Named]) -> u64 {
    values.iter().map(|v| ENTRY + v.name.len() as u64 + scalar_size(&v.value)).sum()
}

impl Call {
    fn query(&mut self, handle: &Resource<QueryHandle>) -> std::result::Result<&mut Query, Fault> {
        match self.batch.table.get_mut(handle.rep()) {
            Some(Held::Query(query)) => Ok(query.as_mut()),
            _ => Err(stale()),
        }
    }

    fn rule(&mut self, handle: &Resource<RuleHandle>) -> std::result::Result<&mut Rule, Fault> {
        match self.batch.table.get_mut(handle.rep()) {
            Some(Held::Rule(rule)) => Ok(rule.as_mut()),
            _ => Err(stale()),
        }
    }

    /// Enters a call that leaves `bytes` bound.
    fn enter_bind(&mut self, bytes: u64) -> std::result::Result<Charge, Fault> {
        self.enter()?;
        self.meter.work(bytes)?;
        self.meter.hold(bytes)
    }
}

fn bind(bound: &mut Bound, values: Vec<Named>, charge: Charge) {
    bound.charge(charge);
    let values = values.into_iter().map(|v| (v.name, v.value.into()));
    bound.values.extend(values);
}

fn bind_rows(bound: &mut Bound, name: String, frame: Arc<Frame>, charge: Charge) {
    bound.charge(charge);
    bound.rows.insert(name, frame);
}

impl HostQuery for Call {
    fn bind(&mut self, query: Resource<QueryHandle>, values: Vec<Named>) -> Result<()> {
        let charge = self.enter_bind(named_size(&values))?;
        bind(&mut self.query(&query)?.bound, values, charge);
        Ok(())
    }

    fn bind_rows(
        &mut self,
        query: Resource<QueryHandle>,
        parameter: String,
        rows: Resource<FrameHandle>,
    ) -> Result<()> {
        let frame = self.frame(&rows)?;
        let charge = self.meter.hold(ENTRY + parameter.len() as u64)?;
        bind_rows(&mut self.query(&query)?.bound, parameter, frame, charge);
        Ok(())
    }

    fn run(&mut self, query: Resource<QueryHandle>) -> Answer<Resource<FrameHandle>> {
        self.enter()?;
        let query = self.query(&query)?;
        if !query.declared {
            return Err(DataError::Undeclared.into());
        }
        let name = query.name.clone();
        let (values, rows) = (query.bound.values(), query.bound.rows());
        let bytes = query.bound.bytes();
        self.meter.work(bytes)?;
        let answer = self.host()?.query(&name, &values, &rows);
        self.arm();
        let source = self.batch.next_source("query", &name);
        self.new_frame(answer?, Origin::new(&source, 0))
    }

    fn drop(&mut self, query: Resource<QueryHandle>) -> Result<()> {
        self.batch.table.remove(query.rep());
        Ok(())
    }
}

impl HostRule for Call {
    fn bind(&mut self, rule: Resource<RuleHandle>, values: Vec<Named>) -> Result<()> {
        let charge = self.enter_bind(named_size(&values))?;
        bind(&mut self.rule(&rule)?.bound, values, charge);
        Ok(())
    }

    fn bind_rows(&mut self, rule: Resource<RuleHandle>, name: String, rows: Resource<FrameHandle>) -> Result<()> {
        let frame = self.frame(&rows)?;
        let charge = self.meter.hold(ENTRY + name.len() as u64)?;
        bind_rows(&mut self.rule(&rule)?.bound, name, frame, charge);
        Ok(())
    }

    fn each(&mut self, rule: Resource<RuleHandle>, rows: Resource<FrameHandle>) -> Result<()> {
        let frame = self.frame(&rows)?;
        self.rule(&rule)?.each = Some(frame);
        Ok(())
    }

    fn unnest(&mut self, rule: Resource<RuleHandle>, path: String) -> Result<()> {
        let charge = self.enter_bind(path.len() as u64)?;
        let rule = self.rule(&rule)?;
        rule.bound.charge(charge);
        rule.unnest = Some(path);
        Ok(())
    }

    fn want(&mut self, rule: Resource<RuleHandle>, path: String, kind: types::Kind) -> Result<()> {
        let charge = self.enter_bind(ENTRY + path.len() as u64)?;
        let rule = self.rule(&rule)?;
        rule.bound.charge(charge);
        rule.want.push((path, kind.into()));
        Ok(())
    }

    fn run(&mut self, rule: Resource<RuleHandle>) -> Answer<Resource<FrameHandle>> {
        self.enter()?;
        let held = self.rule(&rule)?;
        held.failed.clear();
        if !held.declared {
            return Err(DataError::Undeclared.into());
        }
        let name = held.name.clone();
        let call = RuleCall {
            values: held.bound.values(),
            rows: held.bound.rows(),
            each: held.each.as_ref().map(|frame| frame.rows.clone()),
            unnest: held.unnest.clone(),
            want: held.want.clone(),
        };
        let bytes = held.bound.bytes();
        self.meter.work(bytes)?;
        let answer = self.host()?.rule(&name, &call);
        self.arm();
        let answer = answer?;
        let said = answer.failed.iter().map(|(_, why)| ENTRY + why.len() as u64);
        let charge = self.meter.hold(said.sum())?;
        let held = self.rule(&rule)?;
        held.failed_charge = Some(charge);
        held.failed = answer.failed;
        let source = self.batch.next_source("rule", &name);
        self.new_frame(answer.rows, Origin::new(&source, 0))
    }

    fn failed(&mut self, rule: Resource<RuleHandle>) -> Result<Vec<RowFault>> {
        self.enter()?;
        let failed = self.rule(&rule)?.failed.clone();
        self.meter.work(failed.iter().map(|(_, why)| ENTRY + why.len() as u64).sum())?;
        let faults = failed.into_iter().map(|(row, reason)| RowFault { row, reason });
        Ok(faults.collect())
    }

    fn drop(&mut self, rule: Resource<RuleHandle>) -> Result<()> {
        self.batch.table.remove(rule.rep());
        Ok(())
    }
}
