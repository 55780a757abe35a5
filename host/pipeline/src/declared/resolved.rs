//! A `[detect]` section in which every name was found.

use arrow_schema::SchemaRef;
use weir_model::detect::{AllRows, TimeExpr};
use weir_model::{Kind, Name, Scalar, Severity};

use super::message::Message;

/// The section with every name found.
#[derive(Debug)]
pub struct Resolved {
    /// The query and its file.
    pub query: Named,
    /// Rules that give parameters, each asked once.
    pub asks: Vec<AskRule>,
    /// The query's parameters.
    pub params: Vec<(Name, Param)>,
    /// The rule that judges and its file.
    pub rule: Named,
    /// Columns of the query that it gets.
    pub input: Vec<usize>,
    /// How it gets all rows at once.
    pub all: Option<AllRows>,
    /// Columns of its answer.
    pub want: Vec<(String, Kind)>,
    /// Columns that something below uses.
    pub columns: Vec<Column>,
    /// Whether a row alarms.
    pub when: Option<usize>,
    /// What an alarming row must have.
    pub needed: Vec<usize>,
    /// What makes rows and outcomes the same.
    pub once: Option<OnceColumns>,
    /// The output.
    pub output: Option<Output>,
    /// The alarms.
    pub alarm: Option<Alarm>,
}

/// A query or rule and the file that it is in.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Named {
    pub name: Name,
    pub file: String,
}

/// A rule that is asked with an empty input.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct AskRule {
    pub rule: Name,
    pub file: String,
    pub want: Vec<(String, Kind)>,
}

/// Where a parameter comes from.
#[derive(Debug)]
pub enum Param {
    /// From T.
    Time(TimeExpr),
    /// From a column of the answer of one of the asks.
    Rule {
        /// Which ask.
        ask: usize,
        /// Which column.
        column: usize,
    },
    /// Always this.
    Value(Scalar),
}

/// A column that is used.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Column {
    pub name: String,
    pub from: From,
    pub kind: Kind,
}

/// Where a column comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The query's answer.
    Query(usize),
    /// The rule's answer.
    Answer(usize),
}

/// `[detect.once]`.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct OnceColumns {
    pub per: Vec<usize>,
    pub outcome: Vec<usize>,
    /// Seconds.
    pub keep: u64,
    pub repeat: bool,
}

/// `[detect.output]`.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Output {
    pub name: Name,
    pub schema: SchemaRef,
    pub from: Vec<OutputFrom>,
}

/// Where an output's column comes from.
#[derive(Debug)]
pub enum OutputFrom {
    /// From T.
    Time(TimeExpr),
    /// From a column.
    Column(usize),
}

/// `[detect.alarm]`.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Alarm {
    pub name: Name,
    pub key: Vec<usize>,
    pub severity: SeverityOf,
    pub message: Message<usize>,
    pub fields: Vec<(String, usize)>,
    pub latest: Option<usize>,
    pub clear_at: Option<TimeExpr>,
}

/// How bad an alarm is.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum SeverityOf {
    Column(usize),
    Fixed(Severity),
}
