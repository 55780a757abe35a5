//! Copies a file into the spool, or what was appended to it.

use std::fs::{self, File};
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::path::Path;

use weir_model::rows::BYTE_ORDER_MARK;
use weir_model::stream::FileFormat;
use weir_model::{Digest, Fault};

use super::folder::Found;
use super::manifest::{Entry, remove};
use super::reader::Format;
use super::{inside, outside};
use crate::decode::RECORD_BYTES;

/// What was copied.
pub struct Copied {
    /// Of the file up to `size`.
    pub digest: Digest,
    /// How much of the file is taken: a last line without an end is left where it may still get one.
    pub size: u64,
    /// Lines of the copy, a last one without an end among them.
    pub lines: u64,
    /// Bytes that are new.
    pub bytes: u64,
    /// Only what was appended to a file that was taken before.
    pub appended: bool,
}

/// Copies a file, or only what was appended to it since `before`, and syncs the copy. The copy of what was appended to csv
/// begins with the file's header. None when the file changed meanwhile or vanished.
pub fn copy(file: &Found, before: Option<&Entry>, target: &Path, format: Format) -> Result<Option<Copied>, Fault> {
    let mut from = match File::open(&file.path) {
        Ok(from) => from,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(outside(&file.path, "the file cannot be opened", &e)),
    };
    let mut all = blake3::Hasher::new();
    let mut start = 0;
    if let Some(before) = before {
        let mut head = (&mut from).take(before.size);
        pump(&mut head, &mut all, None).map_err(|e| outside(&file.path, "the file cannot be read", &e))?;
        if Digest(*all.finalize().as_bytes()) == before.digest {
            start = before.size;
        } else {
            from = File::open(&file.path).map_err(|e| outside(&file.path, "the file cannot be opened", &e))?;
            all = blake3::Hasher::new();
        }
    }
    let mut to = File::create(target).map_err(|e| inside(target, "a copy cannot be made", &e))?;
    if start > 0 && format.format == FileFormat::Csv {
        let header = header(&file.path, start, format.delimiter)
            .map_err(|e| outside(&file.path, "the file cannot be read", &e))?;
        to.write_all(&header).map_err(|e| inside(target, "a copy cannot be written", &e))?;
    }
    let mut rest = (&mut from).take(file.size - start);
    let mut counter = Counter { to: &mut to, lines: 0, open_line: None };
    let copied =
        pump(&mut rest, &mut all, Some(&mut counter)).map_err(|e| inside(target, "a copy cannot be written", &e))?;
    let (mut lines, open_line) = (counter.lines, counter.open_line);
    let mut left = 0;
    if let Some(open_line) = open_line {
        let length = to.metadata().map_err(|e| inside(target, "a copy cannot be read", &e))?.len();
        let open = !file.whole && format.format != FileFormat::Parquet && copied > 0;
        if open
            && !is_whole(target, length - open_line.bytes, format)
                .map_err(|e| inside(target, "a copy cannot be read", &e))?
        {
            left = open_line.bytes;
            all = open_line.before;
            to.set_len(length - left).map_err(|e| inside(target, "a copy cannot be cut", &e))?;
        } else {
            lines += 1;
        }
    }
    to.sync_all().map_err(|e| inside(target, "a copy cannot be synced", &e))?;
    if let Some(folder) = target.parent() {
        File::open(folder).and_then(|f| f.sync_all()).map_err(|e| inside(folder, "the spool cannot be synced", &e))?;
    }
    let same =
        fs::metadata(&file.path).is_ok_and(|m| m.len() == file.size && m.modified().is_ok_and(|t| t == file.modified));
    if !same || copied != file.size - start {
        remove(target)?;
        return Ok(None);
    }
    let digest = Digest(*all.finalize().as_bytes());
    Ok(Some(Copied { digest, size: file.size - left, lines, bytes: copied - left, appended: start > 0 }))
}

/// Whether a line without an end, which begins at `from`, is all there: half an object is none. Of csv nobody can tell.
fn is_whole(path: &Path, from: u64, format: Format) -> io::Result<bool> {
    if format.format != FileFormat::JsonLines {
        return Ok(false);
    }
    let mut line = Vec::new();
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    file.take(RECORD_BYTES as u64 + 1).read_to_end(&mut line)?;
    // One that is too long for a record is none, however it ends.
    let object = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&line);
    Ok(line.len() > RECORD_BYTES || serde_json::from_slice::<serde::de::IgnoredAny>(object).is_ok())
}

/// The header of a csv file, with a line end and the empty lines before it; what was taken of the file before ends at
/// `upto`.
fn header(path: &Path, upto: u64, delimiter: u8) -> io::Result<Vec<u8>> {
    let mut header = Vec::new();
    File::open(path)?.take(upto.min(RECORD_BYTES as u64)).read_to_end(&mut header)?;
    if header.starts_with(BYTE_ORDER_MARK) {
        header.drain(..BYTE_ORDER_MARK.len());
    }
    let start = header.iter().position(|b| !b.is_ascii_whitespace()).unwrap_or(0);
    let end = weir_model::rows::csv::record_end(&header[start..], delimiter);
    // A quote that is not closed: the first line is the header, as it was when the file was first read.
    let end = end.or_else(|| header[start..].iter().position(|b| *b == b'\n').map(|at| at + 1));
    header.truncate(end.map_or(header.len(), |end| start + end));
    if header.last() != Some(&b'\n') {
        header.push(b'\n');
    }
    Ok(header)
}

struct Counter<'a> {
    to: &'a mut File,
    lines: u64,
    /// The last line, while it has no end.
    open_line: Option<OpenLine>,
}

struct OpenLine {
    bytes: u64,
    /// The digest of what is before it.
    before: blake3::Hasher,
}

fn pump(from: &mut impl Read, all: &mut blake3::Hasher, mut to: Option<&mut Counter<'_>>) -> io::Result<u64> {
    let mut buffer = vec![0; 1 << 16];
    let mut total = 0;
    loop {
        let n = match from.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        let bytes = &buffer[..n];
        if let Some(counter) = &mut to {
            counter.to.write_all(bytes)?;
            counter.lines += bytes.iter().filter(|b| **b == b'\n').count() as u64;
            let (whole, open) = bytes.split_at(bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1));
            let line = match counter.open_line.take() {
                Some(line) if whole.is_empty() => line,
                _ => {
                    all.update(whole);
                    OpenLine { bytes: 0, before: all.clone() }
                }
            };
            all.update(open);
            let bytes = line.bytes + open.len() as u64;
            counter.open_line = (bytes > 0).then_some(OpenLine { bytes, ..line });
        } else {
            all.update(bytes);
        }
        total += n as u64;
    }
}
