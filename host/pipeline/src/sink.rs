//! Step 5: the sinks of a scenario. Each has its own cursor; a slow or broken one delays only itself.

use std::time::Duration;

use weir_model::batch::ALARMS;
use weir_model::notify::sink_of;
use weir_model::{Fault, SinkId};

use crate::alarm_table::AlarmTable;
use crate::drain::{Drain, Drained};
use crate::engines::Engines;
use crate::notify::Notify;

/// One sink of one run. Which kind it is, its output's name says.
pub enum Sink {
    /// Appends the rows of an output to a table.
    Rows(Drain),
    /// Keeps the table of current alarms.
    Alarms(AlarmTable),
    /// Tells somebody of changes of alarms.
    Notify(Notify),
}

impl Sink {
    /// Opens a sink. `max_bytes` bounds what is put into one transaction.
    pub fn new(sink: SinkId, max_bytes: usize) -> Self {
        if sink.output.as_str() == ALARMS {
            return Self::Alarms(AlarmTable::new(sink));
        }
        match sink_of(&sink.output) {
            Some(name) => Self::Notify(Notify::new(sink, name)),
            None => Self::Rows(Drain::new(sink, max_bytes)),
        }
    }

    /// Drains once. Blocks.
    pub fn drain(&self, engines: &Engines) -> Result<Drained, Fault> {
        match self {
            Self::Rows(rows) => rows.drain(engines),
            Self::Alarms(alarms) => alarms.drain(engines),
            Self::Notify(notify) => notify.drain(engines),
        }
    }

    /// Why the last drain failed, if it did.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Rows(rows) => rows.fault(),
            Self::Alarms(alarms) => alarms.fault(),
            Self::Notify(notify) => notify.fault(),
        }
    }

    /// Whether it is behind only as far as its pace has it, at this time as the machine counts it.
    pub fn in_pace(&self, now: Duration) -> bool {
        match self {
            Self::Alarms(alarms) => alarms.in_pace(now),
            Self::Rows(_) | Self::Notify(_) => false,
        }
    }

    /// Outputs' rows that became dead letters since it was opened.
    pub fn dead_letters(&self) -> u64 {
        match self {
            Self::Notify(notify) => notify.dead_letters(),
            Self::Rows(_) | Self::Alarms(_) => 0,
        }
    }
}
