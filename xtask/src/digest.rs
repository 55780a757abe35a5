//! One digest over a set of sources, to know whether what was built from them is still theirs.

use std::path::Path;

use crate::paths::list;

/// Collects parts; a part is preceded by its length, so that no two lists of parts look alike.
#[derive(Default)]
pub struct Digest(blake3::Hasher);

impl Digest {
    /// Adds some bytes.
    pub fn part(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// Adds names and bytes of all files below a folder, in order. Folders named `target` and hidden entries do not
    /// count, and a folder that does not exist is empty.
    pub fn tree(&mut self, root: &Path, folder: &str) -> Result<(), String> {
        let dir = root.join(folder);
        if !dir.is_dir() {
            return Ok(());
        }
        for path in list(&dir)? {
            let Some(name) = path.file_name().and_then(|n| n.to_str()) else {
                continue;
            };
            let inside = format!("{folder}/{name}");
            if name.starts_with('.') || name == "target" {
                continue;
            } else if path.is_dir() {
                self.tree(root, &inside)?;
            } else {
                let bytes = std::fs::read(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
                self.part(inside.as_bytes());
                self.part(&bytes);
            }
        }
        Ok(())
    }

    /// As hexadecimal digits.
    pub fn text(&self) -> String {
        self.0.finalize().to_hex().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::{remove_dir, write};

    #[test]
    fn names_and_bytes_count_and_target_folders_do_not() {
        let root = std::env::temp_dir().join(format!("xtask-digest-{}", std::process::id()));
        let of = || {
            let mut d = Digest::default();
            d.tree(&root, "src").expect("readable");
            d.tree(&root, "absent").expect("absent is empty");
            d.text()
        };
        write(&root.join("src/a/one.rs"), "1").expect("write");
        let first = of();
        write(&root.join("src/target/x"), "1").expect("write");
        write(&root.join("src/.hidden"), "1").expect("write");
        assert_eq!(of(), first);
        write(&root.join("src/a/one.rs"), "2").expect("write");
        let second = of();
        assert_ne!(second, first);
        std::fs::rename(root.join("src/a/one.rs"), root.join("src/a/two.rs")).expect("rename");
        assert_ne!(of(), second);
        remove_dir(&root).expect("clean");
    }
}
