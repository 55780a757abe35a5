//! What crosses between Arrow and a guest: pure functions, no limits but the sizes they are given.
//!
//! [`pull`] and [`render`] take columns apart for a guest, [`build`] makes columns of what a guest wrote, [`size`] knows
//! how large something is before it is made. The shapes here are those of the WIT; its versions only rename them.

pub mod build;
pub mod pull;
pub mod render;
pub mod size;
#[cfg(test)]
mod tests;

use weir_model::DataError;

/// Texts or bytes: `rows + 1` offsets from 0, and the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blobs {
    /// Where each value begins; the last one is where the data ends.
    pub offsets: Vec<u32>,
    /// All values, one after the other.
    pub data: Vec<u8>,
}

impl Blobs {
    /// Room for `rows` values.
    pub fn with_capacity(rows: usize, bytes: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self { offsets, data: Vec::with_capacity(bytes) }
    }

    /// Ends the value that `data` was extended by, unless all together are larger than `max`.
    pub fn end_value(&mut self, max: u64) -> Result<(), ColumnError> {
        if self.data.len() as u64 > max {
            return Err(ColumnError::TooBig);
        }
        let end = u32::try_from(self.data.len()).map_err(|_| ColumnError::TooBig)?;
        self.offsets.push(end);
        Ok(())
    }

    /// Adds one value.
    pub fn push(&mut self, value: &[u8], max: u64) -> Result<(), ColumnError> {
        self.data.extend_from_slice(value);
        self.end_value(max)
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// One value after the other. What a guest sent must have passed [`Blobs::check`].
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.offsets.windows(2).map(|w| &self.data[w[0] as usize..w[1] as usize])
    }

    /// Whether offsets begin at 0, never fall, and end where the data does.
    pub fn check(&self) -> Result<(), DataError> {
        let (Some(0), Some(&last)) = (self.offsets.first(), self.offsets.last()) else {
            return Err(DataError::Malformed);
        };
        if last as usize != self.data.len() || !self.offsets.is_sorted() {
            return Err(DataError::Malformed);
        }
        Ok(())
    }
}

/// Decimals: `(high << 64 | low) / 10^scale`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decimals {
    /// Digits after the point, of every value.
    pub scale: i8,
    /// Lower halves.
    pub low: Vec<u64>,
    /// Upper halves, signed.
    pub high: Vec<i64>,
}

/// Each value once, in the order of first appearance, and which one each row has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dictionary {
    /// Index of the row's value; [`NO_CODE`] where the row is null.
    pub codes: Vec<u32>,
    /// The values.
    pub values: Blobs,
}

/// The code of a null row.
pub const NO_CODE: u32 = u32::MAX;

/// Microseconds of a day.
pub const DAY: i64 = 86_400_000_000;

/// Why a column cannot cross.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnError {
    /// The guest may see it.
    Data(DataError),
    /// It would be larger than all of the guest's memory.
    TooBig,
}

impl From<DataError> for ColumnError {
    fn from(error: DataError) -> Self {
        Self::Data(error)
    }
}
