//! Records of streams to rows, by the stream's schema. Every record becomes either a row or a dead letter that names the
//! column. What a value may look like stands in [`weir_model::rows`].

mod columns;
mod delimited;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use weir_model::port::{Decode, Decoded, Payload, Polled, Record};
use weir_model::rows::{Cell, JsonRow, Rows};
use weir_model::stream::{DeadLetter, StreamDef};
use weir_model::{Fault, OffsetRange};

/// Longest record; a longer one is a dead letter.
pub const RECORD_BYTES: usize = 1 << 20;
/// How much of a record a dead letter keeps.
const RAW_BYTES: usize = 65_536;

/// Decodes what sources of this crate bring: JSON objects, csv records and columns of parquet files.
pub struct Decoder {
    schema: SchemaRef,
    json: JsonRow,
}

impl Decoder {
    /// For a stream.
    pub fn new(def: &StreamDef) -> Self {
        Self { schema: def.schema(), json: JsonRow::new(&def.schema.0) }
    }

    /// Rows of records, each read by `row` into cells.
    fn rows<'a>(
        &self,
        partition: u32,
        records: &'a [Record],
        row: impl Fn(&'a str, &mut [Cell<'a>]) -> Result<(), String>,
    ) -> Result<Sorted, Fault> {
        let mut rows = Rows::new(self.json.columns());
        let (mut offsets, mut dead) = (Vec::with_capacity(records.len()), Vec::new());
        let mut cells = self.json.cells();
        for record in records {
            match text_of(record).and_then(|text| row(text, &mut cells)) {
                Ok(()) => {
                    rows.push(&cells);
                    offsets.push(record.offset);
                }
                Err(reason) => {
                    let raw = String::from_utf8_lossy(&record.value[..record.value.len().min(RAW_BYTES)]).into_owned();
                    dead.push(DeadLetter { partition, offset: record.offset, reason, raw });
                }
            }
        }
        let rows = rows.finish(self.schema.clone()).map_err(Fault::internal)?;
        Ok(Sorted { rows, offsets, dead })
    }
}

/// Rows, and what is none.
struct Sorted {
    rows: RecordBatch,
    offsets: Vec<u64>,
    dead: Vec<DeadLetter>,
}

fn text_of(record: &Record) -> Result<&str, String> {
    if record.value.len() > RECORD_BYTES {
        return Err(format!("the record is longer than {RECORD_BYTES} bytes"));
    }
    std::str::from_utf8(&record.value).map_err(|e| format!("not UTF-8 after byte {}", e.valid_up_to()))
}

impl Decode for Decoder {
    fn decode(&self, polled: Polled) -> Result<Decoded, Fault> {
        let Polled { range, payload, taken } = polled;
        let OffsetRange { partition, .. } = range;
        let Sorted { rows, offsets, dead } = match payload {
            Payload::Rows { rows, offsets } => Sorted { rows, offsets, dead: Vec::new() },
            Payload::Records(records) => self.rows(partition, &records, |text, cells| self.json.read(text, cells))?,
            Payload::Delimited { header, delimiter, records } => {
                let header = delimited::Header::new(&header, delimiter, self.json.columns());
                self.rows(partition, &records, |text, cells| header.read(text, cells))?
            }
            Payload::Columns { rows, offsets } => {
                columns::fitted(&rows, offsets, partition, self.json.columns(), &self.schema)?
            }
            Payload::Refused(dead) => {
                Sorted { rows: RecordBatch::new_empty(self.schema.clone()), offsets: Vec::new(), dead }
            }
        };
        Ok(Decoded { range, rows, offsets, dead, taken })
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
    let range = OffsetRange { partition: 0, from: 0, to: lines.len() as u64 };
    Polled { range, payload: Payload::Records(records.collect()), taken: None }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
