//! Files that the scenario gives its plugin: weights of a model, tables. [`crate::Description::asset`] lists them.

/// How much comes over in one call: well below what a host lets cross at once.
#[cfg(target_family = "wasm")]
const CHUNK: u32 = 1 << 20;

/// All bytes of a file; none when it is not listed. For use in [`crate::Detector::prepare`].
pub fn read(name: &str) -> Option<Vec<u8>> {
    #[cfg(target_family = "wasm")]
    {
        use crate::wasm::bindings::weir::detect::assets;
        let size = assets::size(name)?;
        let mut bytes = Vec::with_capacity(usize::try_from(size).ok()?);
        while (bytes.len() as u64) < size {
            let chunk = assets::read(name, bytes.len() as u64, CHUNK)?;
            if chunk.is_empty() {
                break;
            }
            bytes.extend(chunk);
        }
        Some(bytes)
    }
    #[cfg(not(target_family = "wasm"))]
    {
        Some(crate::backend::ambient()?.asset(name)?.to_vec())
    }
}
