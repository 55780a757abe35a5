//! Values as they leave an evaluation: owned and `Send`, where zen's `Variable` is neither.

use std::fmt::Write as _;

use rust_decimal::Decimal;
use zen_expression::Variable;

/// The engine keeps objects of more fields than this in an order of its own, another one each time: they are put into the
/// order of their names, so that equal inputs give equal bytes.
const ORDERED_FIELDS: usize = 32;
/// Values in one result. Variables share what they hold, so a small one can unfold into an endless one.
const MAX_VALUES: usize = 1_000_000;
/// Nesting of a result: what a JSON reader takes.
const MAX_DEPTH: usize = 128;

/// A JSON value with exact decimals.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(Decimal),
    Text(String),
    Array(Vec<Value>),
    Object(Vec<(String, Value)>),
}

impl Value {
    /// Takes a variable out of the engine. The error says which bound it breaks.
    pub(crate) fn of(variable: &Variable) -> Result<Self, String> {
        let mut left = MAX_VALUES;
        copy(variable, MAX_DEPTH, &mut left)
    }

    /// The value at a dot path: names of fields and numbers of elements. An empty path is the value itself.
    pub(crate) fn at(&self, path: &str) -> Option<&Self> {
        if path.is_empty() {
            return Some(self);
        }
        path.split('.').try_fold(self, |value, part| match value {
            Self::Object(fields) => fields.iter().find(|(name, _)| name == part).map(|(_, v)| v),
            Self::Array(items) => part.parse::<usize>().ok().and_then(|i| items.get(i)),
            _ => None,
        })
    }

    /// As JSON text. Numbers keep all their digits.
    pub(crate) fn to_json(&self) -> String {
        let mut out = String::new();
        self.write_json(&mut out);
        out
    }

    fn write_json(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
            Self::Number(n) => {
                let _ = write!(out, "{}", n.normalize());
            }
            Self::Text(text) => out.push_str(&quoted(text)),
            Self::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    item.write_json(out);
                }
                out.push(']');
            }
            Self::Object(fields) => {
                out.push('{');
                for (i, (name, value)) in fields.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    out.push_str(&quoted(name));
                    out.push(':');
                    value.write_json(out);
                }
                out.push('}');
            }
        }
    }

    /// For people: the kind and a short rendering.
    pub(crate) fn describe(&self) -> String {
        let kind = match self {
            Self::Null => return "null".to_owned(),
            Self::Bool(_) => "boolean",
            Self::Number(_) => "number",
            Self::Text(_) => "text",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        };
        format!("{kind} {}", shorten(&self.to_json(), 80))
    }

    /// Roughly how much memory it holds.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Text(text) => text.len(),
                Self::Array(items) => items.iter().map(Self::bytes).sum(),
                Self::Object(fields) => {
                    fields.iter().map(|(name, value)| size_of::<String>() + name.len() + value.bytes()).sum()
                }
                _ => 0,
            }
    }
}

fn copy(variable: &Variable, depth: usize, left: &mut usize) -> Result<Value, String> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(format!("the result is nested deeper than {MAX_DEPTH}"));
    };
    *left = left.checked_sub(1).ok_or_else(|| format!("the result holds more than {MAX_VALUES} values"))?;
    Ok(match variable {
        Variable::Null => Value::Null,
        Variable::Bool(b) => Value::Bool(*b),
        Variable::Number(n) => Value::Number(*n),
        Variable::String(text) => Value::Text(text.to_string()),
        Variable::Array(items) => {
            Value::Array(items.borrow().iter().map(|item| copy(item, depth, left)).collect::<Result<_, _>>()?)
        }
        Variable::Object(object) => {
            let object = object.borrow();
            let mut fields = object
                .iter()
                .map(|(name, value)| Ok((name.to_string(), copy(value, depth, left)?)))
                .collect::<Result<Vec<_>, String>>()?;
            if fields.len() > ORDERED_FIELDS {
                fields.sort_by(|a, b| a.0.cmp(&b.0));
            }
            Value::Object(fields)
        }
        // Dates: the text they were made of, or RFC 3339.
        Variable::Dynamic(other) => Value::Text(other.to_string()),
    })
}

/// All of a variable that an evaluation can tell apart, in one sequence of bytes: the key under which the result of a pure
/// rule is kept. Numbers are written with their scale, because a rule can see it.
pub(crate) fn fingerprint(variable: &Variable, out: &mut Vec<u8>) {
    let text = |tag: u8, text: &str, out: &mut Vec<u8>| {
        out.push(tag);
        out.extend_from_slice(&(text.len() as u64).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    };
    match variable {
        Variable::Null => out.push(0),
        Variable::Bool(b) => out.extend_from_slice(&[1, u8::from(*b)]),
        Variable::Number(n) => {
            out.push(2);
            out.extend_from_slice(&n.serialize());
        }
        Variable::String(s) => text(3, s.as_str(), out),
        Variable::Array(items) => {
            let items = items.borrow();
            out.push(4);
            out.extend_from_slice(&(items.len() as u64).to_le_bytes());
            items.iter().for_each(|item| fingerprint(item, out));
        }
        Variable::Object(object) => {
            let object = object.borrow();
            out.push(5);
            out.extend_from_slice(&(object.len() as u64).to_le_bytes());
            let mut fields: Vec<_> = object.iter().collect();
            if fields.len() > ORDERED_FIELDS {
                fields.sort_by(|a, b| a.0.as_str().cmp(b.0.as_str()));
            }
            for (name, value) in fields {
                text(6, name.as_str(), out);
                fingerprint(value, out);
            }
        }
        Variable::Dynamic(other) => text(7, &other.to_string(), out),
    }
}

/// A JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The text, cut to a number of characters.
pub(crate) fn shorten(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
