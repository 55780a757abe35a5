//! Outputs: rows as Arrow IPC streams, in the store or in files of their own.

use std::collections::HashSet;
use std::io::Cursor;

use arrow_array::{Array, RecordBatch};
use arrow_ipc::CompressionType;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::ArrowError;
use weir_model::batch::{Output, Plan};
use weir_model::{Digest, Fault, Name, SinkId};

use crate::codec::{self, OutputEntry};
use crate::format::{Folder, write_synced};
use crate::keys;
use crate::store::{Ks, Pinned, Source, io_fault, ledger_fault};

/// An output as it will be kept.
#[derive(Debug)]
pub(crate) struct PreparedOutput {
    pub output: Name,
    pub entry: OutputEntry,
    /// The bytes, when they go into the store.
    pub payload: Option<Vec<u8>>,
}

/// Encodes an output. A large one becomes a file, durable when this returns; what never gets committed is swept when
/// the ledger is opened the next time.
pub(crate) fn prepare(
    folder: &Folder,
    spill_bytes: usize,
    plan: &Plan,
    output: &Output,
) -> Result<PreparedOutput, Fault> {
    let bytes = encode(&output.rows)
        .map_err(|e| Fault::internal(format_args!("rows of output {} have no encoding: {e}", output.output)))?;
    let digest = Digest::of(&bytes);
    let mut entry = OutputEntry {
        table: output.table.clone(),
        ruleset: plan.ruleset,
        time: plan.time,
        rows: output.rows.num_rows() as u64,
        bytes: bytes.len() as u64,
        memory: memory(&output.rows),
        digest,
        file: None,
    };
    let payload = if bytes.len() > spill_bytes {
        // Run and content are in the name, so that no two batches ever share a file.
        let run = Digest::of(plan.key.to_string().as_bytes());
        let name = format!("{}-{}-{}-{}.arrow", run.short(), plan.id, output.output, digest.short());
        write_synced(&folder.outputs().join(&name), &bytes).map_err(|e| io_fault("an output cannot be written", &e))?;
        entry.file = Some(name);
        None
    } else {
        Some(bytes)
    };
    Ok(PreparedOutput { output: output.output.clone(), entry, payload })
}

/// The rows of an output, after a look whether its bytes are those that were committed.
pub(crate) fn read(
    folder: &Folder,
    pinned: &Pinned<'_>,
    run: u64,
    sink: &SinkId,
    n: u64,
    entry: &OutputEntry,
) -> Result<RecordBatch, Fault> {
    let of = || format!("the output of batch {n} for {sink}");
    let bytes: Vec<u8> = match &entry.file {
        Some(name) => {
            std::fs::read(folder.outputs().join(name)).map_err(|e| io_fault(&format!("{} cannot be read", of()), &e))?
        }
        None => pinned
            .get(Ks::Payloads, &keys::output(run, &sink.output, n))?
            .ok_or_else(|| ledger_fault(format_args!("{} is missing", of())))?
            .to_vec(),
    };
    if Digest::of(&bytes) != entry.digest {
        return Err(ledger_fault(format_args!("{} is not what was committed: its digest differs", of())));
    }
    decode(bytes).map_err(|e| ledger_fault(format_args!("{} cannot be decoded: {e}", of())))
}

/// Removes files of `outputs/` that no batch names: left by a crash between a file and its commit, or between the
/// removal of an entry and that of its file. Only for a ledger that nobody writes to yet.
pub(crate) fn sweep(folder: &Folder, pinned: &Pinned<'_>) -> Result<u64, Fault> {
    let at = |e| io_fault("the outputs of the ledger cannot be listed", &e);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder.outputs()).map_err(at)? {
        found.push(entry.map_err(at)?);
    }
    if found.is_empty() {
        return Ok(0);
    }
    let mut named = HashSet::new();
    for entry in pinned.range(Ks::Outputs, &keys::ALL) {
        let (_, value) = entry?;
        named.extend(codec::decode::<OutputEntry>(&value, "an output")?.file);
    }
    let mut removed = 0;
    for entry in found {
        let is_named = entry.file_name().to_str().is_some_and(|n| named.contains(n));
        if !is_named {
            std::fs::remove_file(entry.path()).map_err(at)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Removes the file of an output that is gone from the store. A file that stays is swept later.
pub(crate) fn remove_file(folder: &Folder, name: &str) {
    if let Err(e) = std::fs::remove_file(folder.outputs().join(name)) {
        tracing::warn!(file = name, error = %e, "a drained output could not be removed");
    }
}

fn encode(rows: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME))?;
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), &rows.schema(), options)?;
    writer.write(rows)?;
    writer.into_inner()
}

fn decode(bytes: Vec<u8>) -> Result<RecordBatch, ArrowError> {
    let mut reader = StreamReader::try_new(Cursor::new(bytes), None)?;
    let schema = reader.schema();
    reader.next().unwrap_or_else(|| Ok(RecordBatch::new_empty(schema)))
}

fn memory(rows: &RecordBatch) -> u64 {
    // A slice shares the buffers of what it was cut from: only its own part counts.
    rows.columns()
        .iter()
        .map(|c| c.to_data().get_slice_memory_size().unwrap_or_else(|_| c.get_array_memory_size()) as u64)
        .sum()
}
