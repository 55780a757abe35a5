//! The lines of a spooled file, in bounded reads.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use weir_model::Fault;
use weir_model::port::{PollLimit, Record};
use weir_model::rows::BYTE_ORDER_MARK;

use super::inside;
use crate::decode::RECORD_BYTES;

/// A spooled file that is being read. Rows are numbered from `first`.
pub struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    position: u64,
    end: u64,
}

impl Lines {
    /// Opens it so that the next line is row `position`.
    pub fn open(path: &Path, first: u64, rows: u64, position: u64) -> Result<Self, Fault> {
        let file = File::open(path).map_err(|e| inside(path, "the spool cannot be read", &e))?;
        let mut lines = Self {
            path: path.to_owned(),
            reader: BufReader::with_capacity(1 << 16, file),
            position: first,
            end: first + rows,
        };
        while lines.position < position && !lines.is_done() {
            lines.line()?;
        }
        Ok(lines)
    }

    /// The row that comes next.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether all rows were read.
    pub fn is_done(&self) -> bool {
        self.position >= self.end
    }

    /// The next lines; empty ones have no record.
    pub fn read(&mut self, limit: PollLimit) -> Result<Vec<Record>, Fault> {
        let mut records = Vec::new();
        let mut bytes = 0;
        while !self.is_done() && records.len() < limit.rows.max(1) && bytes < limit.bytes.max(1) {
            let offset = self.position;
            let value = self.line()?;
            if !value.iter().all(u8::is_ascii_whitespace) {
                bytes += value.len();
                let value = Bytes::from(value);
                records.push(Record { offset, key: None, value, enqueued: None, headers: Vec::new() });
            }
        }
        Ok(records)
    }

    /// One line without its end, and without a mark before it: no object begins with one, also where files of others
    /// were put together.
    fn line(&mut self) -> Result<Vec<u8>, Fault> {
        let line = bounded_line(&mut self.reader).map_err(|e| inside(&self.path, "the spool cannot be read", &e))?;
        let mut line = line.unwrap_or_default();
        self.position += 1;
        while line.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
            line.pop();
        }
        if line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(line)
    }
}

/// One line with its end; none at the end. Of a line that is too long for a record only so much is kept that it shows.
pub fn bounded_line(reader: &mut BufReader<File>) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let most = RECORD_BYTES as u64 + 2;
    reader.take(most).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') && line.len() as u64 == most {
        skip_line(reader)?;
    }
    Ok((!line.is_empty()).then_some(line))
}

fn skip_line(reader: &mut BufReader<File>) -> io::Result<()> {
    loop {
        let buffer = reader.fill_buf()?;
        let (used, found) = match buffer.iter().position(|b| *b == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), false),
        };
        reader.consume(used);
        if found || used == 0 {
            return Ok(());
        }
    }
}
