//! The state of one call: everything that a store holds, made for one instance and dropped with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_schema::SchemaRef;
use weir_model::port::{BatchHost, Description};
use weir_model::{Digest, Fault, FaultKind, Limits, Name};

use crate::limits::Meter;
use crate::log::Log;
use crate::v0_1::Batch;
use crate::wasi::Wasi;

/// What a plugin may do beside computing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing: what it says of itself must not depend on anything.
    Describe,
    /// Read assets.
    Prepare,
    /// Ask for everything that it described.
    Detect,
}

/// What is the same in every call of a plugin of a ruleset.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Limits, merged.
    pub limits: Arc<Limits>,
    /// The manifest's configuration as JSON.
    pub config: String,
    /// Assets of the manifest.
    pub assets: BTreeMap<Name, Arc<[u8]>>,
    /// What the plugin says of itself; empty before it was asked.
    pub description: Description,
    /// Schemas of its outputs, in the order in which it describes them.
    pub outputs: Vec<SchemaRef>,
    /// Where random numbers come from outside of a batch: of component, configuration and assets.
    pub seed: [u8; 32],
}

impl Scenario {
    /// The seed of `prepare`: rolling a ruleset back gives the same bytes again.
    pub fn seed(component: Digest, config: &str, assets: &BTreeMap<Name, Arc<[u8]>>) -> [u8; 32] {
        let mut parts: Vec<&[u8]> = vec![b"weir prepare 1", &component.0, config.as_bytes()];
        for (name, bytes) in assets {
            parts.push(name.as_str().as_bytes());
            parts.push(bytes);
        }
        Digest::of_parts(parts).0
    }
}

/// The state of one store.
pub struct Call {
    /// What is the same in every call.
    pub scenario: Arc<Scenario>,
    /// What it used.
    pub meter: Meter,
    /// What it said.
    pub log: Log,
    /// What it may do now.
    pub phase: Phase,
    /// Its clocks, random numbers and streams.
    pub wasi: Wasi,
    /// The batch, when there is one.
    pub host: Option<Arc<dyn BatchHost>>,
    /// What it holds and what it made, by version 0.1 of the interface.
    pub batch: Batch,
    armed: Instant,
}

impl Call {
    /// Nothing used, nothing said, nothing held.
    pub fn new(scenario: Arc<Scenario>, phase: Phase, host: Option<Arc<dyn BatchHost>>) -> Self {
        Self {
            meter: Meter::new(scenario.limits.clone()),
            log: Log::new(&scenario.limits),
            phase,
            wasi: Wasi::new(scenario.seed),
            host,
            batch: Batch::default(),
            armed: Instant::now(),
            scenario,
        }
    }

    /// The limits.
    pub fn limits(&self) -> &Arc<Limits> {
        &self.scenario.limits
    }

    /// Counts a call from the guest and refuses it in `describe`.
    pub fn enter(&mut self) -> Result<(), Fault> {
        self.meter.enter()?;
        if self.phase == Phase::Describe {
            return Err(Fault::tenant(
                FaultKind::Trap,
                "describe asks the host for something; nothing is granted to it",
            )
            .fix("let describe answer constants only"));
        }
        Ok(())
    }

    /// From now on the batch may be asked for, and time and random numbers are the batch's.
    pub fn enter_detect(&mut self) {
        self.phase = Phase::Detect;
        if let Some(host) = &self.host {
            self.wasi.enter_batch(host.time(), host.seed());
        }
    }

    /// The batch that is asked for.
    pub fn host(&self) -> Result<&Arc<dyn BatchHost>, Fault> {
        self.host
            .as_ref()
            .filter(|_| self.phase == Phase::Detect)
            .ok_or_else(|| Fault::internal("a plugin asks for a batch outside of detect"))
    }

    /// Starts the backstop's time again: what queries and rules took has limits of its own.
    pub fn arm(&mut self) {
        self.armed = Instant::now();
    }

    /// What is left of the backstop's time.
    pub fn time_left(&self) -> Option<Duration> {
        self.limits().deadline.get().checked_sub(self.armed.elapsed()).filter(|left| !left.is_zero())
    }
}
