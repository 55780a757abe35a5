//! The files of rows that a table consists of, and what their statistics say about the rows.

use deltalake::DeltaTable;
use serde_json::Value;
use weir_model::{Fault, Time};

use super::folder::Folder;
use crate::error::delta_fault;

/// A text bound of this length or more may have been cut short by another writer.
const EXACT_TEXT: usize = 32;

/// A file of rows that the table's latest version has.
#[derive(Debug, Clone)]
pub(crate) struct LiveFile {
    /// Its place below the table's folder.
    pub path: String,
    /// Its length in bytes.
    pub size: u64,
    /// When it was made, in milliseconds since the epoch.
    pub modified: i64,
    /// Its statistics, as the log holds them.
    pub stats: Option<Box<str>>,
}

/// Statistics of one file, read.
#[derive(Debug)]
pub(crate) struct FileStats(Value);

/// All files of a table, oldest first. None when rows of it are elsewhere than in whole files below the folder.
pub(crate) fn live_files(folder: &Folder, table: &DeltaTable) -> Result<Option<Vec<LiveFile>>, Fault> {
    let snapshot = table.snapshot().map_err(|e| delta_fault(&folder.name, &e))?;
    let mut files = Vec::new();
    for view in snapshot.log_data().iter() {
        let path = view.path().into_owned();
        if view.deletion_vector_descriptor().is_some() || path.contains("://") || path.starts_with('/') {
            return Ok(None);
        }
        files.push(LiveFile {
            path,
            size: u64::try_from(view.size()).unwrap_or(0),
            modified: view.modification_time(),
            stats: view.stats().map(String::into_boxed_str),
        });
    }
    files.sort_by(|a, b| (a.modified, &a.path).cmp(&(b.modified, &b.path)));
    Ok(Some(files))
}

impl LiveFile {
    /// Its statistics, read. Without any, nothing is known.
    pub fn stats(&self) -> FileStats {
        FileStats(self.stats.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null))
    }
}

impl FileStats {
    /// Its number of rows.
    pub fn rows(&self) -> Option<u64> {
        self.0.get("numRecords")?.as_u64()
    }

    fn bound(&self, which: &str, column: &str) -> Option<&str> {
        self.0.get(which)?.get(column)?.as_str()
    }

    /// Whether every row has a value in this column. False when it is not known.
    pub fn filled(&self, column: &str) -> bool {
        self.0.get("nullCount").and_then(|n| n.get(column)).and_then(Value::as_u64) == Some(0)
    }

    /// Whether no row has a value in this column. False when it is not known.
    pub fn empty(&self, column: &str) -> bool {
        let nulls = self.0.get("nullCount").and_then(|n| n.get(column)).and_then(Value::as_u64);
        nulls.is_some() && nulls == self.rows()
    }

    /// Bounds of a text column, and whether they are values that rows have.
    pub fn texts(&self, column: &str) -> Option<(&str, &str, bool)> {
        let (low, high) = (self.bound("minValues", column)?, self.bound("maxValues", column)?);
        Some((low, high, low.len() < EXACT_TEXT && high.len() < EXACT_TEXT))
    }

    /// Bounds of a time column. Both are rows' own or further out.
    pub fn times(&self, column: &str) -> Option<(Time, Time)> {
        let time = |which| self.bound(which, column)?.parse::<Time>().ok();
        let (low, high) = (time("minValues")?, time("maxValues")?);
        // The log holds milliseconds, and some writers cut the upper bound off instead of rounding it up.
        Some((low, Time(high.micros().saturating_add(999))))
    }
}
