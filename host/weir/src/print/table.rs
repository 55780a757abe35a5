//! Tables in plain text: two blanks between columns, no lines.

use std::fmt;

use super::clean;

/// On which side the blanks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table; shown as text with a line break at the end of each row.
#[derive(Debug, Clone, Default)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    headless: bool,
}

impl Table {
    /// With these columns.
    pub fn new<T: Into<String>>(columns: impl IntoIterator<Item = (T, Align)>) -> Self {
        Self { columns: columns.into_iter().map(|(c, a)| (c.into(), a)).collect(), ..Self::default() }
    }
    /// Without its first line: it goes on one that was printed.
    #[must_use]
    pub fn headless(mut self, headless: bool) -> Self {
        self.headless = headless;
        self
    }
    /// Adds a row, one cell a column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = self.columns.iter().map(|(name, _)| clean(name)).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(|cell| clean(cell)).collect::<Vec<_>>());
        let lines: Vec<Vec<_>> = std::iter::once(head).chain(rows).collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|c| {
                let cells = lines.iter().filter_map(|line| line.get(c));
                cells.map(|cell| width(cell)).max().unwrap_or(0)
            })
            .collect();
        for line in lines.iter().skip(usize::from(self.headless)) {
            let mut text = String::new();
            for ((cell, (_, align)), wide) in line.iter().zip(&self.columns).zip(&widths) {
                let blanks = " ".repeat(wide.saturating_sub(width(cell)));
                match align {
                    Align::Left => text.extend([cell.as_ref(), &blanks, "  "]),
                    Align::Right => text.extend([blanks.as_str(), cell, "  "]),
                }
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

/// How many places of a terminal a text takes. East Asian letters take two.
pub(super) fn width(text: &str) -> usize {
    text.chars()
        .map(|c| match u32::from(c) {
            0x1100..=0x115f
            | 0x2e80..=0xa4cf
            | 0xac00..=0xd7a3
            | 0xf900..=0xfaff
            | 0xfe30..=0xfe6f
            | 0xff00..=0xff60
            | 0xffe0..=0xffe6
            | 0x1f300..=0x1faff
            | 0x20000..=0x3fffd => 2,
            _ => 1,
        })
        .sum()
}
