//! This crate's values and those of the bindings, into each other.

use super::{plugin, types};
use crate::alarm::Action;
use crate::describe::{AlarmType, Output};
use crate::{Alarm, Blobs, DataError, Description, Fault, Field, Kind, Named, RowRef, Scalar, Severity, Verdict};

/// Enumerations with the same cases on both sides.
macro_rules! same_cases {
    ($($ours:ty => $theirs:ty { $($case:ident)* })*) => {$(
        impl From<$ours> for $theirs {
            fn from(value: $ours) -> Self {
                match value { $(<$ours>::$case => Self::$case,)* }
            }
        }
    )*};
}
same_cases! {
    Kind => types::Kind { Boolean Int64 Float64 Decimal Text Bytes Timestamp Date Json }
    types::Kind => Kind { Boolean Int64 Float64 Decimal Text Bytes Timestamp Date Json }
    Severity => types::Severity { Info Warning Minor Major Critical }
    Verdict => plugin::Verdict { Judged NoVerdict }
}

/// Records with the same fields on both sides.
macro_rules! same_fields {
    ($($from:ty => $to:ty { $($field:ident)* })*) => {$(
        impl From<$from> for $to {
            fn from(value: $from) -> Self {
                Self { $($field: value.$field.into(),)* }
            }
        }
    )*};
}
same_fields! {
    Field => types::Field { name kind nullable }
    types::Field => Field { name kind nullable }
    Blobs => types::Blobs { offsets data }
    types::Blobs => Blobs { offsets data }
    Named => types::Named { name value }
    RowRef => types::RowRef { frame row }
    AlarmType => plugin::AlarmType { name key }
}

impl From<Scalar> for types::Scalar {
    fn from(value: Scalar) -> Self {
        match value {
            Scalar::Null => Self::Null,
            Scalar::Boolean(v) => Self::Boolean(v),
            Scalar::Int64(v) => Self::Int64(v),
            Scalar::Float64(v) => Self::Float64(v),
            Scalar::Decimal(v) => Self::Decimal(v),
            Scalar::Text(v) => Self::Text(v),
            Scalar::Bytes(v) => Self::Bytes(v),
            Scalar::Timestamp(v) => Self::Timestamp(v.micros()),
        }
    }
}

impl From<Alarm> for types::Alarm {
    fn from(alarm: Alarm) -> Self {
        Self {
            name: alarm.name,
            key: alarm.key,
            action: match alarm.action {
                Action::Raise(severity) => types::Action::Raise(severity.into()),
                Action::Clear => types::Action::Clear,
            },
            message: alarm.message,
            fields: super::handles::named(alarm.fields),
            because: alarm.because.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Output> for plugin::Output {
    fn from(output: Output) -> Self {
        Self { name: output.name, fields: output.fields.into_iter().map(Into::into).collect() }
    }
}

impl From<Description> for plugin::Description {
    fn from(it: Description) -> Self {
        Self {
            name: it.name,
            version: it.version,
            outputs: it.outputs.into_iter().map(Into::into).collect(),
            alarms: it.alarms.into_iter().map(Into::into).collect(),
            inputs: it.inputs,
            queries: it.queries,
            rules: it.rules,
            assets: it.assets,
            state: it.state,
        }
    }
}

impl From<Fault> for types::Fault {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Config(why) => Self::Config(why),
            Fault::Input(why) => Self::Input(why),
            Fault::Data { error, .. } => Self::Data(error.into()),
            Fault::Internal(why) => Self::Internal(why),
        }
    }
}
impl From<types::Fault> for Fault {
    fn from(fault: types::Fault) -> Self {
        match fault {
            types::Fault::Config(why) => Self::Config(why),
            types::Fault::Input(why) => Self::Input(why),
            types::Fault::Data(error) => DataError::from(error).into(),
            types::Fault::Internal(why) => Self::Internal(why),
        }
    }
}

macro_rules! data_error {
    ($from:ty => $to:ty) => {
        impl From<$from> for $to {
            fn from(error: $from) -> Self {
                type E = $from;
                match error {
                    E::Undeclared => Self::Undeclared,
                    E::NoSuchColumn => Self::NoSuchColumn,
                    E::WrongKind(kind) => Self::WrongKind(kind.into()),
                    E::OutOfRange => Self::OutOfRange,
                    E::Uneven(rows) => Self::Uneven(rows),
                    E::RequiredNull => Self::RequiredNull,
                    E::Malformed => Self::Malformed,
                    E::Failed(why) => Self::Failed(why),
                }
            }
        }
    };
}
data_error!(DataError => types::DataError);
data_error!(types::DataError => DataError);
