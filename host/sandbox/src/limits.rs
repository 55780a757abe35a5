//! Limits of one call: built with its store, so that no caller can forget them.
//!
//! What the guest executes is counted by wasmtime's fuel. What the host does for the guest is counted here, in units
//! that are functions of the data alone: machine load must never decide a tenant's outcome.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wasmtime::ResourceLimiter;
use weir_model::{Fault, FaultKind, Limits};

/// The fault of a broken limit. `limit` is its name in `[limits]`.
pub fn exceeded(kind: FaultKind, limit: &str, message: impl Display) -> Fault {
    Fault::tenant(kind, message)
        .field(limit)
        .fix(format_args!("use less, or raise limits.{limit} in scenario.toml or tenant.toml"))
}

/// The fault of memory that is used up.
pub fn out_of_memory(limits: &Limits) -> Fault {
    exceeded(
        FaultKind::Memory,
        "memory_bytes",
        format_args!("the plugin's memories, frames and writers need more than {} bytes", limits.memory_bytes),
    )
}

/// Counts what a call uses, and refuses what is beyond its limits.
#[derive(Debug)]
pub struct Meter {
    limits: Arc<Limits>,
    memories: u64,
    table_elements: u64,
    held: Arc<AtomicU64>,
    peak: u64,
    host_calls: u64,
    work: u64,
    refused: Option<Fault>,
}

/// Bytes that the host holds for a guest: of a frame, of a writer's columns. Given back when it is dropped.
#[derive(Debug)]
pub struct Charge {
    bytes: u64,
    held: Arc<AtomicU64>,
}

impl Charge {
    /// How many.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes over what `other` holds.
    pub fn merge(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Relaxed);
    }
}

impl Meter {
    /// Nothing used yet.
    pub fn new(limits: Arc<Limits>) -> Self {
        Self {
            limits,
            memories: 0,
            table_elements: 0,
            held: Arc::default(),
            peak: 0,
            host_calls: 0,
            work: 0,
            refused: None,
        }
    }

    /// Largest total of memories, frames and writers so far.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// Calls from the guest so far.
    pub fn host_calls(&self) -> u64 {
        self.host_calls
    }

    /// Work of the host for the guest so far, in units of fuel.
    pub fn work_done(&self) -> u64 {
        self.work
    }

    /// The first growth that was refused. The guest saw -1 or null; when it ends badly afterwards, this is why.
    pub fn refused(&self) -> Option<&Fault> {
        self.refused.as_ref()
    }

    /// Counts a call from the guest.
    pub fn enter(&mut self) -> Result<(), Fault> {
        self.host_calls += 1;
        if self.host_calls > self.limits.host_calls {
            return Err(exceeded(
                FaultKind::HostCalls,
                "host_calls",
                format_args!("the plugin calls the host more than {} times", self.limits.host_calls),
            ));
        }
        Ok(())
    }

    /// Counts work that the host does for the guest; about one unit a byte that is copied, more where it is rendered.
    /// Has a budget of its own as large as the guest's fuel: otherwise a guest could make the host render the same
    /// column for hours without executing anything itself.
    pub fn work(&mut self, units: u64) -> Result<(), Fault> {
        self.work = self.work.saturating_add(units);
        if self.work > self.limits.cpu_fuel {
            return Err(exceeded(
                FaultKind::Cpu,
                "cpu_fuel",
                format_args!("what the plugin asks of the host needs more than {} units of fuel", self.limits.cpu_fuel),
            ));
        }
        Ok(())
    }

    /// Charges bytes that the host will hold.
    pub fn hold(&mut self, bytes: u64) -> Result<Charge, Fault> {
        if bytes > self.room() {
            return Err(out_of_memory(&self.limits));
        }
        let held = self.held.fetch_add(bytes, Relaxed) + bytes;
        self.peak = self.peak.max(self.memories + held);
        Ok(Charge { bytes, held: self.held.clone() })
    }

    /// Refuses a copy for the guest that could not even fit into all of its memory. Asked before such a copy is made
    /// where its size is not bounded by a frame's.
    pub fn fits(&self, bytes: u64) -> Result<(), Fault> {
        if bytes > self.limits.memory_bytes {
            return Err(out_of_memory(&self.limits));
        }
        Ok(())
    }

    /// Bytes that can still be held.
    pub fn room(&self) -> u64 {
        self.limits.memory_bytes.saturating_sub(self.memories + self.held.load(Relaxed))
    }

    fn refuse(&mut self, fault: Fault) {
        self.refused.get_or_insert(fault);
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|most| desired > most) {
            return Ok(false);
        }
        let more = (desired as u64).saturating_sub(current as u64);
        if more > self.room() {
            self.refuse(out_of_memory(&self.limits));
            return Ok(false);
        }
        self.memories += more;
        self.peak = self.peak.max(self.memories + self.held.load(Relaxed));
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|most| desired > most) {
            return Ok(false);
        }
        let more = (desired as u64).saturating_sub(current as u64);
        if self.table_elements + more > self.limits.table_elements {
            self.refuse(exceeded(
                FaultKind::Resources,
                "table_elements",
                format_args!("the plugin's tables have more than {} elements", self.limits.table_elements),
            ));
            return Ok(false);
        }
        self.table_elements += more;
        Ok(true)
    }

    fn instances(&self) -> usize {
        usize::try_from(self.limits.instances).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(change: impl FnOnce(&mut Limits)) -> Meter {
        let mut limits = Limits::defaults();
        change(&mut limits);
        Meter::new(Arc::new(limits))
    }

    #[test]
    fn memories_and_held_bytes_share_one_limit() {
        let mut m = meter(|l| l.memory_bytes = 1_000);
        assert!(m.memory_growing(0, 600, None).expect("never an error"));
        let charge = m.hold(400).expect("fits exactly");
        assert!(!m.memory_growing(600, 601, None).expect("never an error"));
        assert_eq!(m.refused().expect("remembered").kind, FaultKind::Memory);
        drop(charge);
        assert!(m.memory_growing(600, 1_000, None).expect("never an error"));
        let fault = m.hold(1).expect_err("full");
        assert_eq!(fault.field.as_deref(), Some("memory_bytes"));
        assert_eq!(
            fault.fix.as_deref(),
            Some("use less, or raise limits.memory_bytes in scenario.toml or tenant.toml")
        );
        assert_eq!(m.peak(), 1_000);
    }

    #[test]
    fn merged_charges_are_given_back_once() {
        let mut m = meter(|l| l.memory_bytes = 100);
        let mut one = m.hold(30).expect("fits");
        one.merge(m.hold(40).expect("fits"));
        assert_eq!(m.room(), 30);
        drop(one);
        assert_eq!(m.room(), 100);
    }

    #[test]
    fn tables_are_counted_together_and_their_own_maximum_is_no_fault() {
        let mut m = meter(|l| l.table_elements = 10);
        assert!(m.table_growing(0, 6, None).expect("never an error"));
        assert!(!m.table_growing(0, 6, Some(5)).expect("never an error"));
        assert!(m.refused().is_none());
        assert!(!m.table_growing(0, 5, None).expect("never an error"));
        assert_eq!(m.refused().expect("remembered").kind, FaultKind::Resources);
    }

    #[test]
    fn calls_and_work_are_bounded() {
        let mut m = meter(|l| (l.host_calls, l.cpu_fuel) = (2, 10));
        assert!(m.enter().is_ok() && m.enter().is_ok());
        assert_eq!(m.enter().expect_err("third").kind, FaultKind::HostCalls);
        assert!(m.work(10).is_ok());
        assert_eq!(m.work(1).expect_err("eleventh").kind, FaultKind::Cpu);
    }
}
