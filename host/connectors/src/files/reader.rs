//! One spooled file, by its format.

use std::path::Path;

use weir_model::Fault;
use weir_model::port::{Payload, PollLimit};
use weir_model::stream::{DeadLetter, FileFormat};

use super::csv::CsvRecords;
use super::lines::Lines;
use super::manifest::Entry;
use super::parquet::ParquetRows;

/// How files are read.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// Their format.
    pub format: FileFormat,
    /// What is between two cells of csv.
    pub delimiter: u8,
}

impl Format {
    /// Rows of a copy in the spool; or why the file as a whole cannot be used. None: its lines were counted already.
    pub fn count(self, path: &Path) -> Result<Option<Result<u64, String>>, Fault> {
        Ok(match self.format {
            FileFormat::JsonLines => None,
            FileFormat::Csv => Some(CsvRecords::count(path, self.delimiter)?),
            FileFormat::Parquet => Some(ParquetRows::count(path)),
        })
    }

    /// Whether a file may grow at its end, and the new part be read alone.
    pub fn grows(self) -> bool {
        self.format != FileFormat::Parquet
    }
}

/// A file that is being read.
pub enum Reader {
    Lines(Lines),
    Csv(CsvRecords),
    Parquet(Box<ParquetRows>),
    /// A file that cannot be used, which one dead letter stands for.
    Refused {
        letter: Option<DeadLetter>,
        end: u64,
    },
}

impl Reader {
    /// Opens the copy of an entry so that the next row is `position`.
    pub fn open(format: Format, path: &Path, entry: &Entry, position: u64) -> Result<Self, Fault> {
        let (first, rows) = (entry.first, entry.rows);
        if let Some(reason) = &entry.refused {
            let raw = serde_json::json!({ "file": entry.name, "bytes": entry.size }).to_string();
            let letter = DeadLetter { partition: 0, offset: first, reason: reason.clone(), raw };
            return Ok(Self::Refused { letter: Some(letter), end: first + rows });
        }
        Ok(match format.format {
            FileFormat::JsonLines => Self::Lines(Lines::open(path, first, rows, position)?),
            FileFormat::Csv => Self::Csv(CsvRecords::open(path, first, rows, position, format.delimiter)?),
            FileFormat::Parquet => Self::Parquet(Box::new(ParquetRows::open(path, first, rows, position)?)),
        })
    }

    /// The row that comes next.
    pub fn position(&self) -> u64 {
        match self {
            Self::Lines(r) => r.position(),
            Self::Csv(r) => r.position(),
            Self::Parquet(r) => r.position(),
            Self::Refused { letter, end } => letter.as_ref().map_or(*end, |l| l.offset),
        }
    }

    /// Whether all rows were read.
    pub fn is_done(&self) -> bool {
        match self {
            Self::Lines(r) => r.is_done(),
            Self::Csv(r) => r.is_done(),
            Self::Parquet(r) => r.is_done(),
            Self::Refused { letter, .. } => letter.is_none(),
        }
    }

    /// The next rows.
    pub fn read(&mut self, limit: PollLimit) -> Result<Payload, Fault> {
        match self {
            Self::Lines(r) => r.read(limit).map(Payload::Records),
            Self::Csv(r) => r.read(limit),
            Self::Parquet(r) => r.read(limit),
            Self::Refused { letter, .. } => Ok(Payload::Refused(letter.take().into_iter().collect())),
        }
    }
}
