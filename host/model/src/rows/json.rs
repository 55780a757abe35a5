//! JSON objects as rows.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::cell::{Cell, Number, missing, wrong};
use crate::stream::Column;

/// Reads objects by a schema.
#[derive(Debug)]
pub struct JsonRow {
    columns: Vec<Column>,
    by_name: HashMap<String, usize>,
}

impl JsonRow {
    /// For rows of these columns.
    pub fn new(columns: &[Column]) -> Self {
        let by_name = columns.iter().enumerate().map(|(i, c)| (c.name.clone(), i)).collect();
        Self { columns: columns.to_vec(), by_name }
    }

    /// Its columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Cells for one row.
    pub fn cells<'a>(&self) -> Vec<Cell<'a>> {
        vec![Cell::Null; self.columns.len()]
    }

    /// The one object that the text is. The error says what is wrong with it.
    pub fn read<'a>(&self, text: &'a str, cells: &mut [Cell<'a>]) -> Result<(), String> {
        let mut json = serde_json::Deserializer::from_str(text);
        cells.fill(Cell::Null);
        json.deserialize_any(RowVisitor { json: self, cells }).and_then(|()| json.end()).map_err(|e| e.to_string())?;
        missing(&self.columns, cells).map_or(Ok(()), Err)
    }

    /// The object that the text begins with: how many bytes it takes, and what is wrong in it, if anything. The error is
    /// that it is no JSON, with the byte from which on it is not.
    pub fn read_first<'a>(
        &self,
        text: &'a str,
        cells: &mut [Cell<'a>],
    ) -> Result<(usize, Result<(), String>), serde_json::Error> {
        // What is no JSON ends the text; a wrong value in it does not. So the object's end is found first.
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
        match values.next() {
            Some(Ok(_)) => {}
            Some(Err(e)) => return Err(e),
            None => return Err(serde_json::Error::custom("an object is missing")),
        }
        let used = values.byte_offset();
        Ok((used, self.read(&text[..used], cells)))
    }
}

struct RowVisitor<'j, 'c, 'de> {
    json: &'j JsonRow,
    cells: &'c mut [Cell<'de>],
}

impl<'de> Visitor<'de> for RowVisitor<'_, '_, 'de> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            match self.json.by_name.get(key.as_ref()) {
                Some(&i) => self.cells[i] = map.next_value_seed(CellSeed(&self.json.columns[i]))?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct Key<'a>(Cow<'a, str>);
impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }
            fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(v)))
            }
            fn visit_str<E>(self, v: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(v.to_owned())))
            }
        }
        d.deserialize_str(V)
    }
}

struct CellSeed<'c>(&'c Column);

impl<'de> DeserializeSeed<'de> for CellSeed<'_> {
    type Value = Cell<'de>;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Cell<'de>, D::Error> {
        d.deserialize_any(self)
    }
}

impl CellSeed<'_> {
    fn number<'de, E: serde::de::Error>(&self, number: Number) -> Result<Cell<'de>, E> {
        Cell::of_number(self.0, number).map_err(E::custom)
    }
    fn wrong<E: serde::de::Error, T>(&self, got: impl fmt::Display) -> Result<T, E> {
        Err(E::custom(wrong(self.0, got)))
    }
}

impl<'de> Visitor<'de> for CellSeed<'_> {
    type Value = Cell<'de>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for column {}", self.0.ty, self.0.name)
    }
    fn visit_unit<E>(self) -> Result<Cell<'de>, E> {
        Ok(Cell::Null)
    }
    fn visit_bool<E: serde::de::Error>(self, v: bool) -> Result<Cell<'de>, E> {
        if self.0.ty == crate::columns::ColumnType::Boolean { Ok(Cell::Boolean(v)) } else { self.wrong(v) }
    }
    fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<Cell<'de>, E> {
        self.number(Number::Signed(v))
    }
    fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<Cell<'de>, E> {
        self.number(Number::Unsigned(v))
    }
    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<Cell<'de>, E> {
        self.number(Number::Float(v))
    }
    fn visit_borrowed_str<E: serde::de::Error>(self, v: &'de str) -> Result<Cell<'de>, E> {
        Cell::of_text(self.0, Cow::Borrowed(v)).map_err(E::custom)
    }
    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Cell<'de>, E> {
        Cell::of_text(self.0, Cow::Owned(v.to_owned())).map_err(E::custom)
    }
    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Cell<'de>, A::Error> {
        self.wrong("an object")
    }
    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, _: A) -> Result<Cell<'de>, A::Error> {
        self.wrong("an array")
    }
}
