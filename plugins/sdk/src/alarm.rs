//! Alarms.

use crate::{Named, RowRef, Scalar, Severity};

/// What an alarm does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The condition holds, this badly.
    Raise(Severity),
    /// The condition is over.
    Clear,
}

/// One alarm of a batch. The host keeps its life: raise it in each batch in which its condition holds; the host opens,
/// counts, escalates and, after some quiet batches, clears it.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Alarm {
    /// An alarm type of the description.
    pub name: String,
    /// The values of its key fields, in order.
    pub key: Vec<String>,
    pub action: Action,
    /// For people.
    pub message: String,
    pub fields: Vec<Named>,
    /// The rows it came from.
    pub because: Vec<RowRef>,
}

impl Alarm {
    fn new<K: Into<String>>(name: &str, key: impl IntoIterator<Item = K>, action: Action) -> Self {
        Self {
            name: name.to_owned(),
            key: key.into_iter().map(Into::into).collect(),
            action,
            message: String::new(),
            fields: Vec::new(),
            because: Vec::new(),
        }
    }
    /// The condition holds.
    pub fn raise<K: Into<String>>(name: &str, key: impl IntoIterator<Item = K>, severity: Severity) -> Self {
        Self::new(name, key, Action::Raise(severity))
    }
    /// The condition is over, for certain: no need to wait for quiet batches.
    pub fn clear<K: Into<String>>(name: &str, key: impl IntoIterator<Item = K>) -> Self {
        Self::new(name, key, Action::Clear)
    }
    /// Says it to people.
    #[must_use]
    pub fn message(mut self, text: impl Into<String>) -> Self {
        self.message = text.into();
        self
    }
    /// Adds a value, for people and programs.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl Into<Scalar>) -> Self {
        self.fields.push(Named::new(name, value));
        self
    }
    /// Adds a row that it came from, for the receipt.
    #[must_use]
    pub fn because(mut self, row: RowRef) -> Self {
        self.because.push(row);
        self
    }
}
