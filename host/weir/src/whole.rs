//! A small file that is there whole or not at all, whenever this process or the machine ends.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// Puts `bytes` in the place of the file, if they are others than it has. One writer at a time.
pub fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::MetadataExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Who reads meanwhile stands for whoever reads after an end at that moment.
    #[test]
    fn a_reader_sees_one_or_the_other_and_never_half() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("host.json");
        let texts = [vec![b'a'; 300_000], vec![b'b'; 200_000]];
        put(&path, &texts[0]).unwrap();
        let done = AtomicBool::new(false);
        let reads = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut reads = 0;
                while !done.load(Ordering::Acquire) || reads == 0 {
                    assert!(texts.contains(&fs::read(&path).unwrap()), "half a file");
                    reads += 1;
                }
                reads
            });
            (0..40).for_each(|i| put(&path, &texts[i % 2]).unwrap());
            done.store(true, Ordering::Release);
            reader.join().unwrap()
        });
        assert!(reads > 0);
        // What a cut left beside it does no harm, and the same bytes are not written again.
        fs::write(dir.path().join("host.new"), b"cut sho").unwrap();
        put(&path, b"whole").unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        put(&path, b"whole").unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::metadata(&path).unwrap().ino()), (b"whole".to_vec(), inode));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
