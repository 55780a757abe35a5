//! What a detector says of itself.

use crate::{Field, Kind};

/// What a detector is and everything it may ask for. The host reads it once for each component, before it runs it: a name
/// that is not listed here is [`crate::DataError::Undeclared`] later.
///
/// ```
/// use weir_sdk::{Description, Kind::*};
/// let description = Description::new("slow-hosts", "0.1.0")
///     .query("latencies")
///     .rule("judge")
///     .output("slow_hosts", |o| o.column("host", Text).column("millis", Float64).nullable("zone", Text))
///     .alarm("slow_host", ["host"])
///     .state(1);
/// assert_eq!(description.outputs[0].fields.len(), 3);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Description {
    pub name: String,
    pub version: String,
    pub outputs: Vec<Output>,
    pub alarms: Vec<AlarmType>,
    pub inputs: Vec<String>,
    pub queries: Vec<String>,
    pub rules: Vec<String>,
    pub assets: Vec<String>,
    /// Version of the layout of keys and values; none when it keeps no state.
    pub state: Option<u32>,
}

/// A table of rows that a detector writes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Output {
    pub name: String,
    pub fields: Vec<Field>,
}

impl Output {
    /// A column without nulls.
    #[must_use]
    pub fn column(mut self, name: &str, kind: Kind) -> Self {
        self.fields.push(Field::new(name, kind));
        self
    }
    /// A column that may hold nulls.
    #[must_use]
    pub fn nullable(mut self, name: &str, kind: Kind) -> Self {
        self.fields.push(Field::nullable(name, kind));
        self
    }
}

/// A type of alarm and the names of its key fields.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct AlarmType {
    pub name: String,
    pub key: Vec<String>,
}

impl Description {
    /// A detector that asks for nothing.
    pub fn new(name: &str, version: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            outputs: Vec::new(),
            alarms: Vec::new(),
            inputs: Vec::new(),
            queries: Vec::new(),
            rules: Vec::new(),
            assets: Vec::new(),
            state: None,
        }
    }
    /// It reads this stream, or is fed by it.
    #[must_use]
    pub fn input(mut self, name: &str) -> Self {
        self.inputs.push(name.to_owned());
        self
    }
    /// It runs this query.
    #[must_use]
    pub fn query(mut self, name: &str) -> Self {
        self.queries.push(name.to_owned());
        self
    }
    /// It evaluates this rule.
    #[must_use]
    pub fn rule(mut self, name: &str) -> Self {
        self.rules.push(name.to_owned());
        self
    }
    /// It reads this file of the scenario's `assets` folder.
    #[must_use]
    pub fn asset(mut self, name: &str) -> Self {
        self.assets.push(name.to_owned());
        self
    }
    /// It writes rows of these columns.
    #[must_use]
    pub fn output(mut self, name: &str, columns: impl FnOnce(Output) -> Output) -> Self {
        self.outputs.push(columns(Output { name: name.to_owned(), fields: Vec::new() }));
        self
    }
    /// It raises alarms of this type, each known by the values of these fields.
    #[must_use]
    pub fn alarm<'a>(mut self, name: &str, key: impl IntoIterator<Item = &'a str>) -> Self {
        self.alarms.push(AlarmType { name: name.to_owned(), key: key.into_iter().map(str::to_owned).collect() });
        self
    }
    /// It keeps state whose keys and values have this layout. Another number starts from an empty state.
    #[must_use]
    pub fn state(mut self, version: u32) -> Self {
        self.state = Some(version);
        self
    }
}
