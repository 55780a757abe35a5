//! Compiled components on disk, this host's only.
//!
//! A file is `<component digest>-<engine hash>.cwasm`: magic, BLAKE3 of the code, the code. The engine's hash covers
//! wasmtime's version, its settings and the processor, so a host that changed finds nothing and compiles. Files appear
//! whole (written aside, then renamed) and are private to the user, as loading one runs what is in it.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use wasmtime::Engine as Wasm;
use wasmtime::component::Component;
use weir_model::{Digest, Fault, FaultKind};

const MAGIC: &[u8; 16] = b"weir cwasm 1\0\0\0\n";
const HEADER: usize = MAGIC.len() + 32;

/// The folder of compiled components.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    engine: String,
    max_bytes: u64,
}

impl Cache {
    /// Makes the folder, or takes it over; nobody but the user may look into it from then on.
    pub fn open(folder: &Path, wasm: &Wasm, max_bytes: u64) -> Result<Self, Fault> {
        let fault = |e: io::Error| {
            Fault::host(FaultKind::Disk, format_args!("the folder of compiled components cannot be used: {e}"))
                .file(folder.display())
        };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(fault)?;
        fs::set_permissions(folder, Permissions::from_mode(0o700)).map_err(fault)?;
        Ok(Self { folder: folder.to_owned(), engine: hash_of(wasm), max_bytes })
    }

    fn path(&self, component: Digest) -> PathBuf {
        self.folder.join(format!("{component}-{}.cwasm", self.engine))
    }

    /// The compiled component, if it is there and undamaged. A damaged file is as good as none.
    pub fn get(&self, wasm: &Wasm, component: Digest) -> Option<Component> {
        let path = self.path(component);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
            Err(e) => {
                tracing::warn!(file = %path.display(), error = %e, "compiled component cannot be read");
                return None;
            }
        };
        let Some(code) = intact(&bytes) else {
            tracing::warn!(file = %path.display(), "compiled component is damaged; compiling again");
            return None;
        };
        match deserialize(wasm, code) {
            Ok(component) => Some(component),
            Err(e) => {
                tracing::warn!(file = %path.display(), error = format_args!("{e:#}"), "compiled component cannot be loaded; compiling again");
                None
            }
        }
    }

    /// Keeps a compiled component, and makes room for it. That it cannot be kept costs time at the next start only.
    pub fn put(&self, component: Digest, compiled: &Component) {
        let kept = compiled.serialize().map_err(|e| io::Error::other(format!("{e:#}"))).and_then(|code| {
            self.write(component, &code)?;
            self.prune(&self.path(component))
        });
        if let Err(e) = kept {
            tracing::warn!(folder = %self.folder.display(), error = %e, "compiled component cannot be kept");
        }
    }

    fn write(&self, component: Digest, code: &[u8]) -> io::Result<()> {
        let path = self.path(component);
        let aside = path.with_extension(format!("{}.tmp", std::process::id()));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
        file.write_all(MAGIC)?;
        file.write_all(&Digest::of(code).0)?;
        file.write_all(code)?;
        // Not synced: what a crash of the machine leaves half-written fails its digest.
        fs::rename(&aside, &path)
    }

    /// Removes the oldest files until the rest is small enough; never `keep`.
    fn prune(&self, keep: &Path) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            files.push((meta.modified()?, meta.len(), entry.path()));
        }
        files.sort();
        let mut total: u64 = files.iter().map(|(_, len, _)| len).sum();
        for (_, len, path) in files {
            if total <= self.max_bytes {
                break;
            }
            if path != keep {
                fs::remove_file(&path)?;
                total -= len;
            }
        }
        Ok(())
    }
}

/// The code of a file whose digest is right.
fn intact(bytes: &[u8]) -> Option<&[u8]> {
    let (header, code) = bytes.split_at_checked(HEADER)?;
    let digest = header.strip_prefix(MAGIC)?;
    (digest == Digest::of(code).0).then_some(code)
}

fn deserialize(wasm: &Wasm, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: wasmtime runs what is in these bytes, so they must be what `Component::serialize` wrote for this engine.
    // They come from a folder and a file that only this host's user can read or write (modes 0700 and 0600), their
    // BLAKE3 was just compared, and they are in memory already, so they cannot change under way. The file name holds
    // the engine's compatibility hash, and wasmtime checks it once more. Who can write into that folder is this user,
    // who can run any code anyhow.
    #[allow(unsafe_code)]
    unsafe {
        Component::deserialize(wasm, code)
    }
}

/// wasmtime's compatibility hash by BLAKE3; std's hasher may change with the toolchain.
fn hash_of(wasm: &Wasm) -> String {
    struct Blake(blake3::Hasher);
    impl Hasher for Blake {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            u64::from_le_bytes(std::array::from_fn(|i| self.0.finalize().as_bytes()[i]))
        }
    }
    let mut hasher = Blake(blake3::Hasher::new());
    wasm.precompile_compatibility_hash().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("is there").mode() & 0o777
    }

    #[test]
    fn keeps_privately_and_refuses_what_is_damaged() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("cache");
        fs::create_dir(&folder).expect("a folder");
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("modes");
        let wasm = crate::tests::engine();
        let cache = Cache::open(&folder, &wasm, u64::MAX).expect("a cache");
        let digest = Digest::of(COMPONENT);
        assert!(cache.get(&wasm, digest).is_none());
        let compiled = Component::from_binary(&wasm, COMPONENT).expect("the empty component");
        cache.put(digest, &compiled);
        assert!(cache.get(&wasm, digest).is_some());
        let path = cache.path(digest);
        assert_eq!((mode(&folder), mode(&path)), (0o700, 0o600));
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1);

        let whole = fs::read(&path).expect("the file");
        for cut in [0, 5, HEADER, whole.len() - 1] {
            fs::write(&path, &whole[..cut]).expect("writes");
            assert!(cache.get(&wasm, digest).is_none(), "cut at {cut}");
        }
        for flip in [0, 20, HEADER, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[flip] ^= 1;
            fs::write(&path, &bytes).expect("writes");
            assert!(cache.get(&wasm, digest).is_none(), "flipped at {flip}");
        }
        cache.put(digest, &compiled);
        assert!(cache.get(&wasm, digest).is_some());
    }

    #[test]
    fn old_files_make_room_for_new_ones() {
        let dir = tempfile::tempdir().expect("a folder");
        let wasm = crate::tests::engine();
        let cache = Cache::open(dir.path(), &wasm, 1).expect("a cache");
        let compiled = Component::from_binary(&wasm, COMPONENT).expect("the empty component");
        for name in [b"one", b"two"] {
            cache.put(Digest::of(name), &compiled);
        }
        assert!(cache.get(&wasm, Digest::of(b"one")).is_none());
        assert!(cache.get(&wasm, Digest::of(b"two")).is_some());
    }
}
