//! Records and cells of csv text (RFC 4180): a header, cells that may be quoted, quotes doubled inside of quotes, and line
//! ends inside of quotes.
//!
//! Written here rather than taken from a crate because a quote that is never closed must be noticed, not read as one
//! cell that swallows the rest of a file.

use std::borrow::Cow;

/// Follows the quotes of records, byte after byte.
#[derive(Debug, Clone, Copy)]
pub struct Quotes {
    delimiter: u8,
    /// Inside of a cell's quotes.
    inside: bool,
    /// At the first byte of a cell.
    begins: bool,
    /// In a cell that began with a quote.
    quoted: bool,
    last: u8,
}

impl Quotes {
    /// At the start of a record.
    pub fn new(delimiter: u8) -> Self {
        Self { delimiter, inside: false, begins: true, quoted: false, last: 0 }
    }

    /// Goes over bytes up to the end of a record: how many they are, if it ends in them.
    pub fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate() {
            let last = std::mem::replace(&mut self.last, *byte);
            match *byte {
                b'"' if self.inside => self.inside = false,
                b'"' if self.begins => (self.inside, self.quoted) = (true, true),
                // A doubled quote closes and opens again, which comes to the same.
                b'"' if self.quoted && last == b'"' => self.inside = true,
                b'\n' if !self.inside => {
                    *self = Self::new(self.delimiter);
                    return Some(at + 1);
                }
                _ => {}
            }
            self.begins = !self.inside && *byte == self.delimiter;
            self.quoted &= !self.begins;
        }
        None
    }

    /// Whether a quote is open.
    pub fn is_open(&self) -> bool {
        self.inside
    }
}

/// Where the record that begins at the start of `bytes` ends: the bytes it takes, its line end included. None when a
/// quote is open or no line end comes.
pub fn record_end(bytes: &[u8], delimiter: u8) -> Option<usize> {
    Quotes::new(delimiter).feed(bytes)
}

/// The cells of one record, without its line end. The error says what is wrong with it.
pub fn cells(record: &str, delimiter: u8) -> Result<Vec<Cow<'_, str>>, String> {
    let record = record.strip_suffix('\n').unwrap_or(record);
    let record = record.strip_suffix('\r').unwrap_or(record);
    let delimiter = char::from(delimiter);
    let mut out = Vec::new();
    let mut rest = record;
    loop {
        let after = match rest.strip_prefix('"') {
            Some(inner) => {
                let (cell, after) = quoted(inner).ok_or_else(|| {
                    format!("cell {}: a quote is opened and not closed; double a quote inside of a cell", out.len() + 1)
                })?;
                out.push(cell);
                after
            }
            None => {
                let end = rest.find(delimiter).unwrap_or(rest.len());
                out.push(Cow::Borrowed(&rest[..end]));
                &rest[end..]
            }
        };
        match after.strip_prefix(delimiter) {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(out),
            None => {
                return Err(format!(
                    "cell {}: text after the closing quote; double a quote inside of a cell",
                    out.len()
                ));
            }
        }
    }
}

/// A quoted cell up to its closing quote, and what comes after it.
fn quoted(inner: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut from = 0;
    loop {
        let at = from + inner[from..].find('"')?;
        if inner[at + 1..].starts_with('"') {
            from = at + 2;
            continue;
        }
        let cell = &inner[..at];
        let cell = if from == 0 { Cow::Borrowed(cell) } else { Cow::Owned(cell.replace("\"\"", "\"")) };
        return Some((cell, &inner[at + 1..]));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn split(text: &str) -> Vec<Vec<String>> {
        let (mut rest, mut out) = (text, Vec::new());
        while !rest.is_empty() {
            let end = record_end(rest.as_bytes(), b',').unwrap_or(rest.len());
            out.push(cells(&rest[..end], b',').unwrap().into_iter().map(Cow::into_owned).collect());
            rest = &rest[end..];
        }
        out
    }

    #[test]
    fn records_and_cells_are_those_of_the_rfc() {
        assert_eq!(split("a,b\r\n1,2"), [["a", "b"], ["1", "2"]]);
        assert_eq!(split("\"a,\"\"x\"\"\",\"two\nlines\"\nc,\n"), [["a,\"x\"", "two\nlines"], ["c", ""]]);
        assert_eq!(split("\"\",5\" pipe\n"), [["", "5\" pipe"]]);
        assert_eq!(split("5\"\"x,a\nb,c\n"), [["5\"\"x", "a"], ["b", "c"]]);
        assert_eq!(split("\"\"\"\"\n"), [["\""]]);
        assert_eq!(split(",\n"), [["", ""]]);
    }

    #[test]
    fn a_quote_that_is_not_closed_is_noticed() {
        assert_eq!(record_end(b"a,\"b\nc,d\n", b','), None);
        let is_open = |bytes: &[u8]| {
            let mut quotes = Quotes::new(b',');
            quotes.feed(bytes);
            quotes.is_open()
        };
        assert!(is_open(b"a,\"b") && is_open(b"a,\"b\n") && is_open(b"a,\"b\"\""));
        assert!(!is_open(b"a,b") && !is_open(b"a,\"b\"\"\"") && !is_open(b"a,\"b\n\"\n"));
        assert!(cells("a,\"b", b',').unwrap_err().starts_with("cell 2: a quote is opened"));
        assert!(cells("\"a\"b,c", b',').unwrap_err().starts_with("cell 1: text after the closing quote"));
    }
}
