//! The records of a spooled csv file, in bounded reads.
//!
//! A record ends at a line end outside of quotes. Where a quote is never closed, that would be the rest of the file: when
//! none closes it within the length of a record, every line up to there is taken as a record of its own, so that one bad
//! line costs itself (it is a dead letter) and what it hides, not the file.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use weir_model::Fault;
use weir_model::port::{Payload, PollLimit, Record};
use weir_model::rows::{BYTE_ORDER_MARK, csv};

use super::inside;
use super::lines::bounded_line;
use crate::decode::RECORD_BYTES;

/// A spooled file that is being read. Its first record is the header; rows are numbered from `first`.
pub struct CsvRecords {
    path: PathBuf,
    reader: BufReader<File>,
    delimiter: u8,
    header: Bytes,
    /// Lines that were read and not given out.
    ahead: std::collections::VecDeque<Vec<u8>>,
    /// How many of them are records of their own.
    single: usize,
    position: u64,
    end: u64,
    /// No line comes after those that are ahead.
    ended: bool,
}

impl CsvRecords {
    /// Opens it so that the next record is row `position`.
    pub fn open(path: &Path, first: u64, rows: u64, position: u64, delimiter: u8) -> Result<Self, Fault> {
        let mut records = Self::begin(path, delimiter)?;
        (records.position, records.end) = (first, first + rows);
        while records.position < position && !records.is_done() {
            records.record()?;
        }
        Ok(records)
    }

    /// Number of its records, header not among them; or why the file cannot be used: without a header nothing of it can.
    pub fn count(path: &Path, delimiter: u8) -> Result<Result<u64, String>, Fault> {
        let mut records = Self::begin(path, delimiter)?;
        let header = &records.header;
        if header.starts_with(b"\xff\xfe") || header.starts_with(b"\xfe\xff") {
            return Ok(Err("it is UTF-16; save it as UTF-8".to_owned()));
        }
        if header.len() > RECORD_BYTES {
            return Ok(Err(format!("its header is longer than {RECORD_BYTES} bytes")));
        }
        if header.iter().zip(header.iter().skip(1)).any(|(byte, next)| *byte == b'\r' && !matches!(next, b'\r' | b'\n'))
        {
            return Ok(Err("its lines end with a carriage return alone; end them with a line feed".to_owned()));
        }
        while records.record()?.is_some() {}
        Ok(Ok(records.position))
    }

    fn begin(path: &Path, delimiter: u8) -> Result<Self, Fault> {
        let unreadable = |e| inside(path, "the spool cannot be read", &e);
        let mut reader = BufReader::with_capacity(1 << 16, File::open(path).map_err(unreadable)?);
        if reader.fill_buf().map_err(unreadable)?.starts_with(BYTE_ORDER_MARK) {
            reader.consume(BYTE_ORDER_MARK.len());
        }
        let mut records = Self {
            path: path.to_owned(),
            reader,
            delimiter,
            header: Bytes::new(),
            ahead: std::collections::VecDeque::new(),
            single: 0,
            position: 0,
            end: u64::MAX,
            ended: false,
        };
        while let Some(header) = records.record()? {
            // Lines before the header that are empty, as people and spreadsheets leave them.
            if !is_blank(&header) {
                records.header = Bytes::from(header);
                break;
            }
        }
        records.position = 0;
        Ok(records)
    }

    /// The row that comes next.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether all rows were read.
    pub fn is_done(&self) -> bool {
        self.position >= self.end
    }

    /// The next records; empty lines have none.
    pub fn read(&mut self, limit: PollLimit) -> Result<Payload, Fault> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        while !self.is_done() && records.len() < limit.rows.max(1) && bytes < limit.bytes.max(1) {
            let offset = self.position;
            let Some(value) = self.record()? else {
                // The spool is shorter than its entry says: the rows that are missing have no record.
                self.position = self.end;
                break;
            };
            if !is_blank(&value) {
                bytes += value.len();
                let value = Bytes::from(value);
                records.push(Record { offset, key: None, value, enqueued: None, headers: Vec::new() });
            }
        }
        Ok(Payload::Delimited { header: self.header.clone(), delimiter: self.delimiter, records })
    }

    /// The next record with its line end, if there is one.
    fn record(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        if self.ahead.is_empty() {
            self.line()?;
        }
        let Some(mut record) = self.ahead.pop_front() else { return Ok(None) };
        self.position += 1;
        if self.single > 0 {
            self.single -= 1;
            return Ok(Some(record));
        }
        let mut quotes = csv::Quotes::new(self.delimiter);
        quotes.feed(&record);
        let mut lines = 0;
        while record.len() <= RECORD_BYTES && quotes.is_open() {
            if self.ahead.len() == lines {
                self.line()?;
            }
            let Some(more) = self.ahead.get(lines) else { break };
            quotes.feed(more);
            record.extend_from_slice(more);
            lines += 1;
        }
        if lines == 0 || (record.len() <= RECORD_BYTES && !quotes.is_open()) {
            self.ahead.drain(..lines);
            return Ok(Some(record));
        }
        let first = record.iter().position(|b| *b == b'\n').map_or(record.len(), |at| at + 1);
        record.truncate(first);
        self.single = lines;
        Ok(Some(record))
    }

    /// One more line ahead.
    fn line(&mut self) -> Result<(), Fault> {
        if self.ended {
            return Ok(());
        }
        match bounded_line(&mut self.reader).map_err(|e| inside(&self.path, "the spool cannot be read", &e))? {
            Some(line) => self.ahead.push_back(line),
            None => self.ended = true,
        }
        Ok(())
    }
}

fn is_blank(record: &[u8]) -> bool {
    record.iter().all(u8::is_ascii_whitespace)
}
