//! The SDK's types and the host's, one for one.

use weir_model::alarm::{AlarmAction, Because};
use weir_model::{AlarmRaise, FieldDef, Name};
use weir_model::{DataError as HostError, Kind as HostKind, Scalar as HostScalar, Severity as HostSeverity};
use weir_sdk::{Action, Alarm, DataError, Field, Kind, Named, Scalar, Severity};

macro_rules! same_names {
    ($name:ident: $a:ident => $b:ident { $($variant:ident),* }) => {
        pub fn $name(from: $a) -> $b {
            match from { $($a::$variant => $b::$variant),* }
        }
    };
}
same_names!(kind: Kind => HostKind { Boolean, Int64, Float64, Decimal, Text, Bytes, Timestamp, Date, Json });
same_names!(back: HostKind => Kind { Boolean, Int64, Float64, Decimal, Text, Bytes, Timestamp, Date, Json });
same_names!(severity: Severity => HostSeverity { Info, Warning, Minor, Major, Critical });

pub fn scalar(value: Scalar) -> HostScalar {
    match value {
        Scalar::Null => HostScalar::Null,
        Scalar::Boolean(v) => HostScalar::Boolean(v),
        Scalar::Int64(v) => HostScalar::Int64(v),
        Scalar::Float64(v) => HostScalar::Float64(v),
        Scalar::Decimal(v) => HostScalar::Decimal(v),
        Scalar::Text(v) => HostScalar::Text(v),
        Scalar::Bytes(v) => HostScalar::Bytes(v),
        Scalar::Timestamp(v) => HostScalar::Timestamp(v.micros()),
    }
}

pub fn values(values: Vec<Named>) -> Vec<(String, HostScalar)> {
    values.into_iter().map(|named| (named.name, scalar(named.value))).collect()
}

pub fn data_error(error: HostError) -> DataError {
    match error {
        HostError::Undeclared => DataError::Undeclared,
        HostError::NoSuchColumn => DataError::NoSuchColumn,
        HostError::WrongKind(kind) => DataError::WrongKind(back(kind)),
        HostError::OutOfRange => DataError::OutOfRange,
        HostError::Uneven(rows) => DataError::Uneven(rows),
        HostError::RequiredNull => DataError::RequiredNull,
        HostError::Malformed => DataError::Malformed,
        HostError::Failed(why) => DataError::Failed(why),
    }
}

pub fn field(field: Field) -> FieldDef {
    FieldDef { name: field.name, kind: kind(field.kind), nullable: field.nullable }
}

pub fn alarm(name: Name, alarm: Alarm, because: Vec<Because>) -> AlarmRaise {
    let action = match alarm.action {
        Action::Raise(level) => AlarmAction::Raise(severity(level)),
        Action::Clear => AlarmAction::Clear,
    };
    AlarmRaise { name, key: alarm.key, action, message: alarm.message, fields: values(alarm.fields), because }
}
