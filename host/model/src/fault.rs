//! What went wrong, whose fault it is, and what to do. Causes stay typed; texts are written once, where they arise.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::batch::Stage;
use crate::columns::Kind;
use crate::id::ScenarioId;

/// Who has to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// The tenant's content: a plugin, rule, query, manifest or its limits.
    Tenant,
    /// A system that the host talks to: a source, a table's storage, a broker.
    External,
    /// This host: its disk, its memory, a defect.
    Host,
}

/// Whether the same thing tried again may end differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// The same input gives the same fault.
    Never,
    /// It may pass by itself.
    Later,
}

/// What kind of fault; a closed set, so that it can be a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A manifest, stream, tenant or host configuration is wrong.
    Config,
    /// The plugin answered `fault::config`.
    PluginConfig,
    /// The plugin answered `fault::input`.
    PluginInput,
    /// A data error that the plugin did not handle.
    PluginData,
    /// The plugin answered `fault::internal`.
    PluginInternal,
    /// The plugin trapped.
    Trap,
    /// CPU limit.
    Cpu,
    /// Wall-clock backstop; the host's fault.
    Deadline,
    /// Memory limit.
    Memory,
    /// Table elements, instances, stack or handles.
    Resources,
    /// Bytes copied from the guest in one call.
    HostCallBytes,
    /// Number of host calls.
    HostCalls,
    /// Rows or bytes of output.
    Output,
    /// Alarms of a batch: their number or size.
    Alarms,
    /// State: keys, bytes or value size.
    State,
    /// SQL: planning or executing.
    Sql,
    /// SQL: memory, rows or time.
    SqlLimit,
    /// A rule: loading or evaluating.
    Rule,
    /// A rule: time or rows.
    RuleLimit,
    /// A component that is not acceptable: cut short, too big, wrong imports, unknown version.
    Component,
    /// A source could not be read.
    Source,
    /// A gap: rows that were promised are not there any more.
    Gap,
    /// A sink could not be written.
    Sink,
    /// A sink holds something else than the ledger says.
    SinkMismatch,
    /// The ledger could not be read or written.
    Ledger,
    /// A commit whose outcome is not known.
    Unknown,
    /// Too little room on a disk.
    Disk,
    /// The wall clock jumped.
    ClockJump,
    /// There is no scenario, stream, batch or ruleset of that name.
    NotFound,
    /// What was asked for is beyond the replay horizon.
    NotReplayable,
    /// It was cancelled, because the host stops.
    Cancelled,
    /// A fault that a test asked for.
    Injected,
    /// A defect of the host.
    Internal,
}

/// A fault with everything its owner needs to act on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Fault {
    /// Who has to act.
    pub whose: Whose,
    /// Whether trying again makes sense.
    pub retry: Retry,
    /// Which kind.
    pub kind: FaultKind,
    /// Where in the batch it arose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// The file it is about, relative to the rule store or the data folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The field, query, column or limit it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What happened, in a sentence without a full stop.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Fault {
    fn new(whose: Whose, retry: Retry, kind: FaultKind, message: impl fmt::Display) -> Self {
        Self { whose, retry, kind, stage: None, file: None, field: None, message: message.to_string(), fix: None }
    }
    /// The tenant's, and the same again when tried again.
    pub fn tenant(kind: FaultKind, message: impl fmt::Display) -> Self {
        Self::new(Whose::Tenant, Retry::Never, kind, message)
    }
    /// There is no scenario of this name: neither the rule store nor the ledger knows it. Whatever was asked of it, this is the
    /// answer.
    pub fn no_scenario(id: &ScenarioId) -> Self {
        Self::tenant(FaultKind::NotFound, format_args!("there is no scenario {id}"))
            .fix("correct the name; `weir status` lists all scenarios")
    }
    /// Another system's; may pass.
    pub fn external(kind: FaultKind, message: impl fmt::Display) -> Self {
        Self::new(Whose::External, Retry::Later, kind, message)
    }
    /// This host's; may pass.
    pub fn host(kind: FaultKind, message: impl fmt::Display) -> Self {
        Self::new(Whose::Host, Retry::Later, kind, message)
    }
    /// A defect of the host: something that cannot be.
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new(Whose::Host, Retry::Never, FaultKind::Internal, message)
    }
    /// Names the stage, unless a deeper one is named already.
    #[must_use]
    pub fn at(mut self, stage: Stage) -> Self {
        self.stage.get_or_insert(stage);
        self
    }
    /// Names the file.
    #[must_use]
    pub fn file(mut self, file: impl fmt::Display) -> Self {
        self.file = Some(file.to_string());
        self
    }
    /// Names the field.
    #[must_use]
    pub fn field(mut self, field: impl fmt::Display) -> Self {
        self.field = Some(field.to_string());
        self
    }
    /// Says what to do.
    #[must_use]
    pub fn fix(mut self, fix: impl fmt::Display) -> Self {
        self.fix = Some(fix.to_string());
        self
    }
    /// Says whether trying again makes sense.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        place(f, self.file.as_deref(), self.field.as_deref())?;
        f.write_str(&self.message)?;
        self.fix.as_ref().map_or(Ok(()), |fix| write!(f, "; {fix}"))
    }
}

fn place(f: &mut fmt::Formatter<'_>, file: Option<&str>, field: Option<&str>) -> fmt::Result {
    match (file, field) {
        (Some(file), Some(field)) => write!(f, "{file}: {field}: "),
        (Some(one), None) | (None, Some(one)) => write!(f, "{one}: "),
        (None, None) => Ok(()),
    }
}

/// Something wrong in content that is loaded: a ruleset, a stream, a configuration. All of them are collected, none
/// hides the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Problem {
    /// The file, relative to the rule store.
    pub file: String,
    /// The field, node, query, column or import in it; empty when it is about the file as a whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fix: String,
    /// It may be a file that is still being written: wait for the settle time before rejecting.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_be_partial: bool,
}

impl Problem {
    /// About a file as a whole.
    pub fn new(file: impl fmt::Display, message: impl fmt::Display) -> Self {
        Self {
            file: file.to_string(),
            field: String::new(),
            message: message.to_string(),
            fix: String::new(),
            may_be_partial: false,
        }
    }
    /// Names the field.
    #[must_use]
    pub fn field(mut self, field: impl fmt::Display) -> Self {
        self.field = field.to_string();
        self
    }
    /// Says what to do.
    #[must_use]
    pub fn fix(mut self, fix: impl fmt::Display) -> Self {
        self.fix = fix.to_string();
        self
    }
    /// Marks it as what a half-written file looks like.
    #[must_use]
    pub fn partial(mut self) -> Self {
        self.may_be_partial = true;
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        place(f, Some(&self.file), Some(self.field.as_str()).filter(|s| !s.is_empty()))?;
        f.write_str(&self.message)?;
        if self.fix.is_empty() { Ok(()) } else { write!(f, "; {}", self.fix) }
    }
}

/// What a guest may see of an error: only what is a function of its input. Mirrors `data-error` of the WIT.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum DataError {
    /// A name that `describe` does not list or the manifest does not grant.
    #[error("undeclared")]
    Undeclared,
    /// No such column.
    #[error("no such column")]
    NoSuchColumn,
    /// The column has this other kind.
    #[error("wrong kind: it is {0}")]
    WrongKind(Kind),
    /// A row, column or count outside of what there is.
    #[error("out of range")]
    OutOfRange,
    /// A column of another length than the first one, which has this many rows.
    #[error("uneven: {0} rows expected")]
    Uneven(u32),
    /// A null or a missing column where the schema requires a value.
    #[error("a required value is null or missing")]
    RequiredNull,
    /// Bytes that are not what the kind asks for.
    #[error("malformed")]
    Malformed,
    /// A query or rule failed as a function of its input.
    #[error("failed: {0}")]
    Failed(String),
}

/// How a call from the guest to the host can end badly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The guest sees it and may go on.
    #[error(transparent)]
    Data(#[from] DataError),
    /// It ends the call into the guest; the guest never sees it.
    #[error(transparent)]
    Fault(#[from] Fault),
}
