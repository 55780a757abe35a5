//! Rows of fixtures, and how their values look as other kinds.

use serde_json::{Map, Number, Value};

use crate::{Field, Kind, Scalar, Time};

/// Rows: of an input, of a query's answer, or given to a query.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rows {
    pub(super) fields: Vec<Field>,
    /// One list a field, all of equal length. Each value is null or of its field's kind.
    pub(super) columns: Vec<Vec<Scalar>>,
}

impl Rows {
    /// No columns.
    pub fn new() -> Self {
        Self::default()
    }
    /// Adds a column. Times and dates may be given as text, floats as ints; an option that is none is null.
    ///
    /// # Panics
    /// When a value does not fit the kind, or there are more or fewer of them than in the columns before.
    #[must_use]
    pub fn column<V: Into<Scalar>>(self, name: &str, kind: Kind, values: impl IntoIterator<Item = V>) -> Self {
        let fit = |value: V| {
            fit(value.into(), kind)
                .unwrap_or_else(|value| panic!("column '{name}': {value:?} does not fit the kind {kind}"))
        };
        let values: Vec<_> = values.into_iter().map(fit).collect();
        self.with(Field::nullable(name, kind), values)
    }
    /// Rows given as one JSON object a line: times as ISO 8601 text, bytes as hex. A field that is missing is null.
    ///
    /// # Panics
    /// When a line is no object, or a value does not fit its kind.
    pub fn json_lines(fields: &[(&str, Kind)], lines: &str) -> Self {
        let lines: Vec<Value> = lines
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
            .collect();
        fields.iter().fold(Self::new(), |rows, (name, kind)| {
            let values = lines.iter().map(|line| {
                from_json(line.get(name).unwrap_or(&Value::Null), *kind)
                    .unwrap_or_else(|| panic!("{line}: '{name}' does not fit the kind {kind}"))
            });
            rows.column(name, *kind, values)
        })
    }
    /// One object a row: times as ISO 8601 text, bytes as hex.
    pub fn to_json(&self) -> Vec<Value> {
        (0..self.len()).map(|row| self.row(row)).collect()
    }
    /// How many rows.
    pub fn len(&self) -> usize {
        self.columns.first().map_or(0, Vec::len)
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn with(mut self, field: Field, values: Vec<Scalar>) -> Self {
        assert!(
            self.columns.is_empty() || values.len() == self.len(),
            "column '{}' has {} values, the others have {}",
            field.name,
            values.len(),
            self.len()
        );
        self.fields.push(field);
        self.columns.push(values);
        self
    }
    pub(super) fn row(&self, row: usize) -> Value {
        let cells = self.fields.iter().zip(&self.columns);
        Value::Object(
            cells.map(|(field, column)| (field.name.clone(), to_json(&column[row], field.kind))).collect::<Map<_, _>>(),
        )
    }
}

/// The value as one of that kind; back as it was where it does not fit.
pub(super) fn fit(value: Scalar, kind: Kind) -> Result<Scalar, Scalar> {
    Ok(match (kind, value) {
        (Kind::Float64, Scalar::Int64(v)) => Scalar::Float64(v as f64),
        (Kind::Decimal, Scalar::Int64(v)) => Scalar::Decimal(v.to_string()),
        (Kind::Decimal, Scalar::Text(v)) if decimal(&v).is_some() => Scalar::Decimal(v),
        (Kind::Timestamp | Kind::Date, Scalar::Text(v)) => Scalar::Timestamp(v.parse().map_err(|_| Scalar::Text(v))?),
        (kind, value) if fits(&value, kind) => value,
        (_, other) => return Err(other),
    })
}

/// Whether a value is of that kind as it stands.
pub(super) fn fits(value: &Scalar, kind: Kind) -> bool {
    matches!(
        (kind, value),
        (_, Scalar::Null)
            | (Kind::Boolean, Scalar::Boolean(_))
            | (Kind::Int64, Scalar::Int64(_))
            | (Kind::Float64, Scalar::Float64(_))
            | (Kind::Decimal, Scalar::Decimal(_))
            | (Kind::Text | Kind::Json, Scalar::Text(_))
            | (Kind::Bytes, Scalar::Bytes(_))
            | (Kind::Timestamp | Kind::Date, Scalar::Timestamp(_))
    )
}

/// Unscaled value and scale of decimal text.
pub(super) fn decimal(text: &str) -> Option<(i128, i8)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let unscaled = format!("{whole}{fraction}").parse().ok()?;
    Some((unscaled, i8::try_from(fraction.len()).ok()?))
}

/// Decimal text of an unscaled value.
pub(super) fn decimal_text(unscaled: i128, scale: i8) -> String {
    let scale = usize::try_from(scale).unwrap_or(0);
    let sign = if unscaled < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let point = if scale > 0 { "." } else { "" };
    format!("{sign}{whole}{point}{fraction}")
}

/// The value as a rule sees it.
pub(super) fn to_json(value: &Scalar, kind: Kind) -> Value {
    match value {
        Scalar::Null => Value::Null,
        Scalar::Boolean(v) => Value::Bool(*v),
        Scalar::Int64(v) => Value::from(*v),
        Scalar::Float64(v) => Number::from_f64(*v).map_or(Value::Null, Value::Number),
        Scalar::Decimal(v) => v.parse().map_or(Value::Null, Value::Number),
        Scalar::Text(v) if kind == Kind::Json => serde_json::from_str(v).unwrap_or_else(|error| panic!("{v}: {error}")),
        Scalar::Text(v) => Value::from(v.as_str()),
        Scalar::Bytes(_) | Scalar::Timestamp(_) => Value::from(to_text(value, kind)),
    }
}

/// The value as text.
pub(super) fn to_text(value: &Scalar, kind: Kind) -> String {
    match value {
        Scalar::Null => String::new(),
        Scalar::Boolean(v) => v.to_string(),
        Scalar::Int64(v) => v.to_string(),
        Scalar::Float64(v) => v.to_string(),
        Scalar::Decimal(v) | Scalar::Text(v) => v.clone(),
        Scalar::Bytes(v) => v.iter().map(|byte| format!("{byte:02x}")).collect(),
        Scalar::Timestamp(v) if kind == Kind::Date => v.to_string()[..10].to_owned(),
        Scalar::Timestamp(v) => v.to_string(),
    }
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// A JSON value as one of a kind; none where it does not fit.
pub(super) fn from_json(value: &Value, kind: Kind) -> Option<Scalar> {
    let time = |text: &str| text.parse::<Time>().ok();
    Some(match (kind, value) {
        (_, Value::Null) => Scalar::Null,
        (Kind::Json, value) => Scalar::Text(value.to_string()),
        (Kind::Boolean, value) => Scalar::Boolean(value.as_bool()?),
        (Kind::Int64, value) => Scalar::Int64(value.as_i64()?),
        (Kind::Float64, value) => Scalar::Float64(value.as_f64()?),
        (Kind::Decimal, Value::Number(number)) => fit(number.to_string().into(), kind).ok()?,
        (Kind::Decimal, value) => fit(value.as_str()?.into(), kind).ok()?,
        (Kind::Text, value) => Scalar::Text(value.as_str()?.to_owned()),
        (Kind::Bytes, value) => Scalar::Bytes(hex(value.as_str()?)?),
        (Kind::Timestamp | Kind::Date, value) => Scalar::Timestamp(time(value.as_str()?)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_and_bytes_are_read_from_text() {
        for text in ["0", "-0.05", "12.50", "-12.5", "100"] {
            let (unscaled, scale) = decimal(text).unwrap();
            assert_eq!(decimal_text(unscaled, scale), text);
        }
        assert_eq!((hex("00fF"), hex("0"), hex("xx")), (Some(vec![0, 255]), None, None));
        assert!(decimal("1e3").is_none() && decimal("").is_none() && decimal("1.2.3").is_none());
    }
}
