//! Texts with columns in braces: `{router_ip}: {err_cnt} errors in {minute:%H:%M}`. A brace itself is written twice.

use weir_model::zone::TimeFormat;

/// A text with places for columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Message<C> {
    parts: Vec<Part<C>>,
}

#[derive(Debug, Clone, PartialEq)]
enum Part<C> {
    Text(String),
    Column(C, Option<TimeFormat>),
}

impl Message<String> {
    /// Reads one. The error says what is wrong.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let brace = &rest[at..at + 1];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
                continue;
            }
            let inner = match (brace, rest.split_once('}')) {
                ("{", Some((inner, after))) if !inner.contains('{') => {
                    rest = after;
                    inner
                }
                _ => return Err(format!("a '{brace}' stands alone; write it twice if a brace is meant")),
            };
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            let (name, format) = match inner.split_once(':') {
                Some((name, format)) => (name, Some(format.parse::<TimeFormat>().map_err(|e| e.to_string())?)),
                None => (inner, None),
            };
            parts.push(Part::Column(name.trim().to_owned(), format));
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self { parts })
    }

    /// Finds the columns: name, and whether it has a format.
    pub fn resolve<D>(self, mut find: impl FnMut(&str, bool) -> Option<D>) -> Option<Message<D>> {
        // All of them are looked for, so that every wrong one is reported.
        let parts: Vec<Option<Part<D>>> = self
            .parts
            .into_iter()
            .map(|part| match part {
                Part::Text(text) => Some(Part::Text(text)),
                Part::Column(name, format) => find(&name, format.is_some()).map(|column| Part::Column(column, format)),
            })
            .collect();
        Some(Message { parts: parts.into_iter().collect::<Option<_>>()? })
    }
}

impl<C> Message<C> {
    /// The text with `cell` for each column.
    pub fn write(&self, cell: impl Fn(&C, Option<&TimeFormat>) -> String) -> String {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Column(column, format) => out.push_str(&cell(column, format.as_ref())),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn written(text: &str) -> String {
        let message = Message::read(text).unwrap();
        message.write(|name, format| format!("<{name}{}>", if format.is_some() { " as a time" } else { "" }))
    }

    #[test]
    fn columns_and_braces() {
        assert_eq!(written("{a} ({b}): {c:%H:%M}, done"), "<a> (<b>): <c as a time>, done");
        assert_eq!(written("{{a}} {{{a}}}"), "{a} {<a>}");
        assert_eq!(written(""), "");
        assert_eq!(written("grüße {ä}"), "grüße <ä>");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for bad in ["{a", "a}", "{a {b}", "{a:%Q}", "}{"] {
            assert!(Message::read(bad).is_err(), "{bad}");
        }
    }
}
