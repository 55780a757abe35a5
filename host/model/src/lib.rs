//! The vocabulary of Weir and the ports between its crates.
//!
//! Everything here is a plain value or a trait. No crate below `host/` imports another one of its level; they meet
//! in these types, and `host/weir` wires them. The words are those of `host/README.md`, one per thing:
//! tenant, scenario, stream, table, query, plugin, rule, ruleset, batch, ledger, sink, dead letter, alarm.

pub mod alarm;
pub mod batch;
pub mod columns;
pub mod detect;
pub mod duration;
pub mod fault;
pub mod faultpoint;
pub mod id;
pub mod limits;
pub mod moment;
pub mod notify;
pub mod port;
pub mod review;
pub mod rows;
pub mod ruleset;
pub mod service;
pub mod stream;
pub mod time;
pub mod zone;

pub use alarm::{AlarmEvent, AlarmRaise, AlarmState, Severity};
pub use batch::{BatchRecord, Commit, Outcome, Output, Plan, Stage, StreamPin};
pub use columns::{FieldDef, Kind, Scalar};
pub use duration::Span;
pub use fault::{CallError, DataError, Fault, FaultKind, Problem, Retry, Whose};
pub use faultpoint::{FaultPoints, NoFaults};
pub use id::{BatchId, Digest, Incarnation, Name, RunId, RunKey, ScenarioId, SinkId, StreamId};
pub use limits::Limits;
pub use moment::Moment;
pub use ruleset::{Manifest, Ruleset, TenantConfig};
pub use stream::{OffsetRange, Offsets, StreamDef};
pub use time::{Clock, Time, VirtualClock};
pub use zone::Zone;
