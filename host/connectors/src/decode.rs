//! Records of streams to rows, by the stream's schema. Every record becomes either a row or a dead letter that names the
//! column. What a value may look like stands in [`weir_model::rows`].

use arrow_schema::SchemaRef;
use weir_model::Fault;
use weir_model::port::{Decode, Decoded, Payload, Polled, Record};
use weir_model::rows::{Cell, JsonRow, Rows};
use weir_model::stream::{DeadLetter, StreamDef};

/// Longest record; a longer one is a dead letter.
pub const RECORD_BYTES: usize = 1 << 20;
/// How much of a record a dead letter keeps.
const RAW_BYTES: usize = 65_536;

/// Decodes JSON objects.
pub struct Json {
    schema: SchemaRef,
    json: JsonRow,
}

impl Json {
    /// For a stream.
    pub fn new(def: &StreamDef) -> Self {
        Self { schema: def.schema(), json: JsonRow::new(&def.schema.0) }
    }

    fn row<'a>(&self, record: &'a Record, cells: &mut [Cell<'a>]) -> Result<(), String> {
        if record.value.len() > RECORD_BYTES {
            return Err(format!("the record is longer than {RECORD_BYTES} bytes"));
        }
        let text =
            std::str::from_utf8(&record.value).map_err(|e| format!("not UTF-8 after byte {}", e.valid_up_to()))?;
        self.json.read(text, cells)
    }
}

impl Decode for Json {
    fn decode(&self, polled: Polled) -> Result<Decoded, Fault> {
        let range = polled.range;
        let records = match polled.payload {
            Payload::Rows { rows, offsets } => return Ok(Decoded { range, rows, offsets, dead: Vec::new() }),
            Payload::Records(records) => records,
        };
        let mut rows = Rows::new(self.json.columns());
        let (mut offsets, mut dead) = (Vec::with_capacity(records.len()), Vec::new());
        let mut cells = self.json.cells();
        for record in &records {
            match self.row(record, &mut cells) {
                Ok(()) => {
                    rows.push(&cells);
                    offsets.push(record.offset);
                }
                Err(reason) => dead.push(DeadLetter {
                    partition: range.partition,
                    offset: record.offset,
                    reason,
                    raw: String::from_utf8_lossy(&record.value[..record.value.len().min(RAW_BYTES)]).into_owned(),
                }),
            }
        }
        let rows = rows.finish(self.schema.clone()).map_err(Fault::internal)?;
        Ok(Decoded { range, rows, offsets, dead })
    }
}

/// The records of lines, for tests of other modules too.
#[cfg(test)]
pub(crate) fn records(lines: &[&str]) -> Polled {
    let records = lines.iter().enumerate().map(|(i, line)| Record {
        offset: i as u64,
        key: None,
        value: bytes::Bytes::copy_from_slice(line.as_bytes()),
        enqueued: None,
        headers: Vec::new(),
    });
    let range = weir_model::OffsetRange { partition: 0, from: 0, to: lines.len() as u64 };
    Polled { range, payload: Payload::Records(records.collect()) }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
