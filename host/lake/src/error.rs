//! What the SQL engine and the table format say, in the host's words: whose fault it is, and a text worth reading.

use std::error::Error;

use datafusion::arrow::error::ArrowError;
use datafusion::common::{SchemaError, TableReference};
use datafusion::error::DataFusionError;
use deltalake::DeltaTableError;
use weir_model::{CallError, DataError, Fault, FaultKind, Problem};

/// Why a query is not accepted: a part of it (column, parameter; empty: the query), what is wrong, what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Refusal {
    pub part: String,
    pub message: String,
    pub fix: String,
    /// It is what a half-written file looks like.
    pub partial: bool,
}

impl Refusal {
    pub fn new(part: impl ToString, message: impl ToString, fix: impl ToString) -> Self {
        Self { part: part.to_string(), message: message.to_string(), fix: fix.to_string(), partial: false }
    }

    /// Of a name with more than a table's own in it; none: it has not.
    pub fn of_schema_before(name: &TableReference) -> Option<Self> {
        name.schema()?;
        let message = format!("there is no table {name}");
        Some(Self::new(name.table(), message, "tables have no schema before their name"))
    }

    pub fn partial(mut self) -> Self {
        self.partial = true;
        self
    }

    /// As a problem of `file`; `owner` is named where no smaller part is.
    pub fn problem(self, file: &str, owner: &str) -> Problem {
        let field = if self.part.is_empty() { owner } else { &self.part };
        let problem = Problem::new(file, &self.message).field(field).fix(&self.fix);
        if self.partial { problem.partial() } else { problem }
    }

    /// What planning answered.
    pub fn of(error: &DataFusionError) -> Self {
        match innermost(error) {
            DataFusionError::External(cause) => {
                if let Some(refusal) = cause.downcast_ref::<Self>() {
                    return refusal.clone();
                }
                Self::new("", cause, "")
            }
            DataFusionError::SchemaError(schema, _) => of_schema(schema),
            e @ DataFusionError::SQL(..) => Self::new("", sql_text(e), "").partial(),
            e => Self::new("", sql_text(e), ""),
        }
    }
}

fn of_schema(error: &SchemaError) -> Refusal {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let names: Vec<&str> = valid_fields.iter().map(|c| c.name.as_str()).collect();
            let near = names.iter().find(|n| n.eq_ignore_ascii_case(&field.name) && **n != field.name);
            let mut listed = names.clone();
            listed.sort_unstable();
            listed.dedup();
            let fix = match near {
                Some(n) => format!("write it as \"{n}\", with the quotes: names without quotes are read as lower case"),
                None if listed.is_empty() => "read it from a table that has it".to_owned(),
                None => "write one of these, or add the column where the table is defined".to_owned(),
            };
            let message = if listed.is_empty() {
                format!("there is no column {}", field.name)
            } else {
                format!("there is no column {}; the columns are {}", field.name, listed.join(", "))
            };
            Refusal::new(&field.name, message, fix)
        }
        SchemaError::AmbiguousReference { field } => Refusal::new(
            &field.name,
            format!("column {} is in more than one table", field.name),
            "write the table's name before it",
        ),
        SchemaError::DuplicateUnqualifiedField { name } | SchemaError::DuplicateQualifiedField { name, .. } => {
            Refusal::new(name, format!("two columns are named {name}"), "give one of them another name with AS")
        }
    }
}

/// Without the wrappers that only tell the way.
fn innermost(error: &DataFusionError) -> &DataFusionError {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => innermost(inner),
        DataFusionError::Shared(inner) => innermost(inner),
        DataFusionError::Collection(all) => all.first().map_or(error, innermost),
        DataFusionError::ArrowError(arrow, _) => match arrow.as_ref() {
            ArrowError::ExternalError(cause) => cause.downcast_ref::<DataFusionError>().map_or(error, innermost),
            _ => error,
        },
        DataFusionError::External(cause) => cause.downcast_ref::<DataFusionError>().map_or(error, innermost),
        _ => error,
    }
}

/// The innermost text, without the engine's prefixes and backtraces, on one line.
pub(crate) fn sql_text(error: &DataFusionError) -> String {
    let text = match innermost(error) {
        DataFusionError::SQL(parser, _) => strip_kind(&parser.to_string()),
        DataFusionError::Plan(m)
        | DataFusionError::Execution(m)
        | DataFusionError::NotImplemented(m)
        | DataFusionError::Configuration(m)
        | DataFusionError::ResourcesExhausted(m)
        | DataFusionError::Internal(m) => m.clone(),
        DataFusionError::ArrowError(arrow, _) => match arrow.as_ref() {
            ArrowError::DivideByZero => "division by zero".to_owned(),
            other => strip_kind(&other.to_string()),
        },
        DataFusionError::SchemaError(schema, _) => of_schema(schema).message,
        other => other.to_string(),
    };
    let text = text.split("\n\nbacktrace:").next().unwrap_or_default().trim();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `Cast error: Cannot cast ...` -> `Cannot cast ...`; the words before the colon name a type of the engine.
fn strip_kind(text: &str) -> String {
    match text.split_once(": ") {
        Some((kind, rest)) if kind.len() < 32 && kind.to_ascii_lowercase().ends_with(" error") => rest.to_owned(),
        _ => text.to_owned(),
    }
}

/// What executing a plan answered: limits and defects are faults, the rest is a function of the data.
pub(crate) fn call_error(error: &DataFusionError) -> CallError {
    let inner = innermost(error);
    match inner {
        DataFusionError::External(cause) => {
            if let Some(fault) = cause.downcast_ref::<Fault>() {
                return CallError::Fault(fault.clone());
            }
            if let Some(delta) = cause.downcast_ref::<DeltaTableError>() {
                return CallError::Fault(delta_fault("", delta));
            }
            CallError::Fault(Fault::internal(sql_text(inner)))
        }
        DataFusionError::Internal(_) | DataFusionError::ExecutionJoin(_) | DataFusionError::Ffi(_) => {
            CallError::Fault(Fault::internal(sql_text(inner)))
        }
        DataFusionError::IoError(_) | DataFusionError::ObjectStore(_) | DataFusionError::ParquetError(_) => {
            CallError::Fault(Fault::external(
                FaultKind::Sink,
                format_args!("a table cannot be read: {}", sql_text(inner)),
            ))
        }
        DataFusionError::ArrowError(arrow, _)
            if matches!(
                arrow.as_ref(),
                ArrowError::IoError(..)
                    | ArrowError::SchemaError(_)
                    | ArrowError::CDataInterface(_)
                    | ArrowError::IpcError(_)
            ) =>
        {
            CallError::Fault(Fault::internal(sql_text(inner)))
        }
        _ => CallError::Data(DataError::Failed(sql_text(inner))),
    }
}

/// An error of the table format: the storage is another system's.
pub(crate) fn delta_fault(table: &str, error: &DeltaTableError) -> Fault {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = inner.source();
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let fault = Fault::external(FaultKind::Sink, text);
    if table.is_empty() { fault } else { fault.file(table) }
}

/// An error of the file system under a table.
pub(crate) fn io_fault(table: &str, doing: &str, error: &std::io::Error) -> Fault {
    let fault = match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            Fault::host(FaultKind::Disk, format_args!("{doing}: there is no room left"))
        }
        _ => Fault::external(FaultKind::Sink, format_args!("{doing}: {error}")),
    };
    fault.file(table)
}
