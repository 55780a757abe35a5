//! Why a call failed, and whose business it is.

use std::fmt;

use crate::Kind;

/// What a host answers when a call cannot be done. Always a function of the input: whatever may pass by itself, such as
/// a lost disk, ends the batch without the detector seeing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataError {
    /// [`crate::Detector::describe`] does not list this name.
    Undeclared,
    /// There is no such column.
    NoSuchColumn,
    /// The column has this kind, which the call does not take.
    WrongKind(Kind),
    /// A row outside of the frame, or a reference to a frame that is not held any more.
    OutOfRange,
    /// A column of another length than the first one, which has this many rows.
    Uneven(u32),
    /// A null where the schema requires a value, or a column that was not written at all.
    RequiredNull,
    /// Bytes that are not what the kind asks for.
    Malformed,
    /// A query or a rule failed as a function of its input.
    Failed(String),
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undeclared => f.write_str("undeclared: describe does not list it"),
            Self::NoSuchColumn => f.write_str("no such column"),
            Self::WrongKind(kind) => write!(f, "wrong kind: it is {kind}"),
            Self::OutOfRange => f.write_str("out of range"),
            Self::Uneven(rows) => write!(f, "uneven: {rows} rows expected"),
            Self::RequiredNull => f.write_str("a required value is null or missing"),
            Self::Malformed => f.write_str("malformed"),
            Self::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

/// What `prepare` and `detect` end with when they cannot do their work. All functions of this crate fail with it, so `?`
/// is enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The configuration or a rule says something that this detector cannot work with.
    Config(String),
    /// The input is not what this detector expects.
    Input(String),
    /// The host refused a call. Only this crate makes it; what it was about goes to the log when it leaves the detector.
    Data {
        /// What the host said.
        error: DataError,
        /// What the call was about, such as `column 'err_cnt' of query 'error_counts'`.
        about: String,
    },
    /// A defect of this detector.
    Internal(String),
}

impl Fault {
    /// The configuration or a rule says something that this detector cannot work with.
    pub fn config(message: impl fmt::Display) -> Self {
        Self::Config(message.to_string())
    }
    /// The input is not what this detector expects.
    pub fn input(message: impl fmt::Display) -> Self {
        Self::Input(message.to_string())
    }
    /// A defect of this detector.
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::Internal(message.to_string())
    }
    /// Says what a refused call was about, unless that is known.
    pub(crate) fn about(mut self, what: impl FnOnce() -> String) -> Self {
        if let Self::Data { about, .. } = &mut self
            && about.is_empty()
        {
            *about = what();
        }
        self
    }
    /// What the host said, if it was the host.
    pub fn data(&self) -> Option<&DataError> {
        match self {
            Self::Data { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<DataError> for Fault {
    fn from(error: DataError) -> Self {
        Self::Data { error, about: String::new() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(why) => write!(f, "config: {why}"),
            Self::Input(why) => write!(f, "input: {why}"),
            Self::Data { error, about } if about.is_empty() => write!(f, "{error}"),
            Self::Data { error, about } => write!(f, "{about}: {error}"),
            Self::Internal(why) => write!(f, "internal: {why}"),
        }
    }
}

impl std::error::Error for Fault {}
