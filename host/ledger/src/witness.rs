//! The file `heads`: how far each run had come, beside the store and not in it.
//!
//! fjall cuts a damaged journal at its last good record and says nothing. The cut leaves a ledger that looks whole and
//! is older, and batches that sinks hold already would be computed again. So every group notes, after its sync, the
//! newest N of each of its runs here; a head that is behind its note when the ledger is opened shows the cut.
//!
//! A note is written and not synced: it survives a crash of the process, and a crash of the machine can only lose it,
//! never bring it before the commit it speaks of. A lost note is a cut that is not noticed, not a false alarm.
//!
//! ```text
//! 0   "weir-heads 1\n" padded with zeros to 16 bytes
//! 16  the ledger's incarnation, padded or cut to 48 bytes
//! 64  slots of 16 bytes, one a run, at 64 + 16 x run: N, then the first 8 bytes of a digest of
//!     (incarnation, run, birth, N); a slot whose digest does not fit says nothing
//! ```

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use weir_model::{Digest, Incarnation};

const MAGIC: &[u8] = b"weir-heads 1\n";
const HEADER: u64 = 64;
const SLOT: u64 = 16;

#[derive(Debug)]
pub(crate) struct Witness {
    file: File,
    incarnation: Incarnation,
}

impl Witness {
    /// Opens the file, or makes it when it is missing or another ledger's.
    pub(crate) fn open(path: &Path, incarnation: Incarnation) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let header = header(&incarnation);
        let mut found = [0; HEADER as usize];
        let is_ours = match file.read_exact_at(&mut found, 0) {
            Ok(()) => found == header,
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => false,
            Err(e) => return Err(e),
        };
        if !is_ours {
            file.set_len(0)?;
            file.write_all_at(&header, 0)?;
            file.sync_all()?;
        }
        Ok(Self { file, incarnation })
    }

    /// Notes that batch `n` of a run is durable.
    pub(crate) fn note(&self, run: u64, birth: u64, n: u64) -> io::Result<()> {
        let mut slot = [0; SLOT as usize];
        slot[..8].copy_from_slice(&n.to_le_bytes());
        slot[8..].copy_from_slice(&self.seal(run, birth, n));
        self.file.write_all_at(&slot, at(run))
    }

    /// The batch that was noted last, if there is a note.
    pub(crate) fn noted(&self, run: u64, birth: u64) -> io::Result<Option<u64>> {
        let mut slot = [0; SLOT as usize];
        match self.file.read_exact_at(&mut slot, at(run)) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(e) => return Err(e),
        }
        let (n, seal) = slot.split_at(8);
        let n = n.try_into().map(u64::from_le_bytes).unwrap_or_default();
        Ok((seal == self.seal(run, birth, n)).then_some(n))
    }

    /// Makes the notes durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn seal(&self, run: u64, birth: u64, n: u64) -> [u8; 8] {
        let Digest(full) = Digest::of_parts([
            self.incarnation.0.as_bytes(),
            &run.to_le_bytes(),
            &birth.to_le_bytes(),
            &n.to_le_bytes(),
        ]);
        let mut out = [0; 8];
        out.copy_from_slice(&full[..8]);
        out
    }
}

fn at(run: u64) -> u64 {
    HEADER.saturating_add(run.saturating_mul(SLOT))
}

fn header(incarnation: &Incarnation) -> [u8; HEADER as usize] {
    let mut out = [0; HEADER as usize];
    out[..MAGIC.len()].copy_from_slice(MAGIC);
    let text = incarnation.0.as_bytes();
    let len = text.len().min(48);
    out[16..16 + len].copy_from_slice(&text[..len]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_notes_of_its_own_ledger_and_run_only() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("heads");
        let ours = Incarnation("a".to_owned());
        let witness = Witness::open(&path, ours.clone()).expect("a new file");
        assert_eq!(witness.noted(1, 9).expect("readable"), None);
        witness.note(1, 9, 41).expect("written");
        witness.note(1, 9, 42).expect("written");
        witness.note(3, 9, 1).expect("written");
        drop(witness);
        let witness = Witness::open(&path, ours).expect("the same file");
        assert_eq!(witness.noted(1, 9).expect("readable"), Some(42));
        assert_eq!(witness.noted(1, 8).expect("readable"), None, "another run of that number");
        assert_eq!(witness.noted(2, 9).expect("readable"), None, "an empty slot");
        drop(witness);
        let other = Witness::open(&path, Incarnation("b".to_owned())).expect("made anew");
        assert_eq!(other.noted(1, 9).expect("readable"), None);
    }

    #[test]
    fn a_damaged_slot_says_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let witness = Witness::open(&dir.path().join("heads"), Incarnation("a".to_owned())).expect("a new file");
        witness.note(1, 9, 42).expect("written");
        witness.file.write_all_at(&[7], HEADER + SLOT).expect("damaged");
        assert_eq!(witness.noted(1, 9).expect("readable"), None);
    }
}
