//! Columns as a detector reads them.

use std::ops::Index;

use crate::{Blobs, DataError, Decimals, Fault};

/// Which rows hold a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Validity(Option<Vec<u8>>);

impl Validity {
    /// Every row holds a value.
    pub const ALL: Self = Self(None);

    pub(crate) fn new(bits: Option<Vec<u8>>) -> Self {
        Self(bits)
    }
    /// Whether a row holds a value. Beyond the last row the answer means nothing.
    pub fn is_valid(&self, row: usize) -> bool {
        self.0.as_ref().is_none_or(|bits| bits.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1))
    }
    /// Whether it is known without a look at the rows that there are no nulls.
    pub fn is_all(&self) -> bool {
        self.0.is_none()
    }
    /// As the interface has it: lowest bit first; none = no nulls.
    pub fn bits(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }
}

impl FromIterator<bool> for Validity {
    /// No bitmap is kept where every row holds a value.
    fn from_iter<I: IntoIterator<Item = bool>>(rows: I) -> Self {
        let (mut bits, mut all) = (Vec::new(), true);
        for (row, valid) in rows.into_iter().enumerate() {
            if row % 8 == 0 {
                bits.push(0);
            }
            if let Some(byte) = bits.last_mut().filter(|_| valid) {
                *byte |= 1 << (row % 8);
            }
            all &= valid;
        }
        Self((!all).then_some(bits))
    }
}

/// A column of numbers, booleans or times.
#[derive(Debug, Clone, PartialEq)]
pub struct Column<T> {
    values: Vec<T>,
    validity: Validity,
}

impl<T: Copy> Column<T> {
    pub(crate) fn new(values: Vec<T>, validity: Validity) -> Self {
        Self { values, validity }
    }
    /// How many rows.
    pub fn len(&self) -> usize {
        self.values.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
    /// The value of a row; none where it is null, and beyond the last row.
    pub fn get(&self, row: usize) -> Option<T> {
        self.values.get(row).copied().filter(|_| self.validity.is_valid(row))
    }
    /// All rows.
    pub fn iter(&self) -> impl Iterator<Item = Option<T>> {
        self.values.iter().enumerate().map(|(row, value)| self.validity.is_valid(row).then_some(*value))
    }
    /// All values as they came, nulls as zero.
    pub fn values(&self) -> &[T] {
        &self.values
    }
    /// Which rows hold a value.
    pub fn validity(&self) -> &Validity {
        &self.validity
    }
}

impl Column<bool> {
    /// The rows that are true, for [`crate::Frame::take`].
    pub fn trues(&self) -> Vec<usize> {
        (0..self.len()).filter(|row| self.get(*row) == Some(true)).collect()
    }
}

impl<T> Index<usize> for Column<T> {
    type Output = T;
    /// The value of a row, zero where it is null.
    ///
    /// # Panics
    /// Beyond the last row.
    fn index(&self, row: usize) -> &T {
        &self.values[row]
    }
}

/// A column of texts: one buffer, and `&str` out of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Texts {
    offsets: Vec<u32>,
    data: String,
    validity: Validity,
}

impl Texts {
    pub(crate) fn new(blobs: Blobs, validity: Validity) -> Result<Self, Fault> {
        let well_formed = blobs.is_well_formed();
        let Blobs { offsets, data } = blobs;
        let data = String::from_utf8(data).map_err(|_| DataError::Malformed)?;
        let cut = |offset: &u32| data.is_char_boundary(*offset as usize);
        // Most texts are ASCII, which can be cut anywhere.
        if !(well_formed && (data.is_ascii() || offsets.iter().all(cut))) {
            return Err(DataError::Malformed.into());
        }
        Ok(Self { offsets, data, validity })
    }
    /// How many rows.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The text of a row; none where it is null, and beyond the last row.
    pub fn get(&self, row: usize) -> Option<&str> {
        (row < self.len() && self.validity.is_valid(row)).then(|| &self[row])
    }
    /// All rows.
    pub fn iter(&self) -> impl Iterator<Item = Option<&str>> {
        (0..self.len()).map(|row| self.get(row))
    }
    /// Which rows hold a value.
    pub fn validity(&self) -> &Validity {
        &self.validity
    }
}

impl Index<usize> for Texts {
    type Output = str;
    /// The text of a row, empty where it is null.
    ///
    /// # Panics
    /// Beyond the last row.
    fn index(&self, row: usize) -> &str {
        &self.data[self.offsets[row] as usize..self.offsets[row + 1] as usize]
    }
}

/// A column of byte strings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bytes {
    pub(crate) blobs: Blobs,
    pub(crate) validity: Validity,
}

impl Bytes {
    /// How many rows.
    pub fn len(&self) -> usize {
        self.blobs.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.blobs.is_empty()
    }
    /// The bytes of a row; none where they are null, and beyond the last row.
    pub fn get(&self, row: usize) -> Option<&[u8]> {
        self.blobs.get(row).filter(|_| self.validity.is_valid(row))
    }
}

/// A column of decimals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecimalColumn {
    pub(crate) values: Decimals,
    pub(crate) validity: Validity,
}

impl DecimalColumn {
    /// How many digits stand after the point.
    pub fn scale(&self) -> i8 {
        self.values.scale
    }
    /// How many rows.
    pub fn len(&self) -> usize {
        self.values.low.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.low.is_empty()
    }
    /// The unscaled value of a row: 12.50 with scale 2 is 1250. None where it is null, and beyond the last row.
    pub fn unscaled(&self, row: usize) -> Option<i128> {
        self.values.unscaled(row).filter(|_| self.validity.is_valid(row))
    }
    /// The nearest float.
    pub fn float(&self, row: usize) -> Option<f64> {
        self.values.float(row).filter(|_| self.validity.is_valid(row))
    }
}

/// A column of texts with each distinct value once: group by code, look at the text when it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dictionary {
    pub(crate) codes: Vec<u32>,
    pub(crate) values: Texts,
}

impl Dictionary {
    /// The code of a null.
    pub const NULL: u32 = u32::MAX;

    /// The code of each row, [`Self::NULL`] where it is null. Below [`Self::NULL`] they count up from 0 in the order in
    /// which values first appear.
    pub fn codes(&self) -> &[u32] {
        &self.codes
    }
    /// The distinct values.
    pub fn values(&self) -> &Texts {
        &self.values
    }
    /// The text of a row; none where it is null, and beyond the last row.
    pub fn get(&self, row: usize) -> Option<&str> {
        self.values.get(*self.codes.get(row)? as usize)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn validity_keeps_no_bitmap_without_nulls() {
        assert!([true; 9].into_iter().collect::<Validity>().is_all());
        let holes: Validity = (0..9).map(|row| row != 8).collect();
        assert_eq!(holes.bits(), Some(&[0xff, 0][..]));
        assert!(holes.is_valid(7) && !holes.is_valid(8) && !holes.is_valid(16));
    }

    #[test]
    fn texts_that_make_no_sense_are_refused() {
        let texts = |offsets: &[u32], data: &str| {
            let (offsets, data) = (offsets.to_vec(), data.into());
            Texts::new(Blobs { offsets, data }, Validity::ALL)
        };
        assert_eq!(texts(&[0, 1, 3], "aé").unwrap().get(1), Some("é"));
        for offsets in [&[][..], &[1, 3], &[0, 2, 3], &[0, 3, 1], &[0, 2], &[0, 9]] {
            assert!(texts(offsets, "aé").is_err(), "{offsets:?}");
        }
    }

    #[test]
    fn decimals_cross_whole() {
        let values = [0, 1250, -1250, i128::MAX, i128::MIN];
        let decimals = Decimals::new(2, values);
        for (row, value) in values.into_iter().enumerate() {
            assert_eq!(decimals.unscaled(row), Some(value));
        }
        assert_eq!(decimals.float(2), Some(-12.5));
    }
}
