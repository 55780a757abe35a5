//! Keyed state.

use std::time::Duration;

use crate::backend::prelude::*;
use crate::{Blobs, Fault};

/// What survives from batch to batch: keys and values as the last committed batch left them, and this batch's own writes
/// on top. Memory does not survive; a batch that fails leaves the state as it was.
pub struct State<'a> {
    handle: &'a BatchHandle,
}

/// Joins parts into a key with `/` in between. `%` and `/` inside a part are written `%25` and `%2F`, so different parts
/// never make the same key, and a prefix of whole parts finds all that begin with them.
///
/// ```
/// use weir_sdk::state::key;
/// assert_eq!(key(["open", "core/1", "203.0.113.34"]), "open/core%2F1/203.0.113.34");
/// assert_eq!(key(["/50%/", "", "%2F"]), "%2F50%25%2F//%252F");
/// ```
pub fn key<P: AsRef<str>>(parts: impl IntoIterator<Item = P>) -> String {
    let mut out = String::new();
    for (number, part) in parts.into_iter().enumerate() {
        if number > 0 {
            out.push('/');
        }
        let mut rest = part.as_ref();
        while let Some(at) = rest.find(['%', '/']) {
            out.push_str(&rest[..at]);
            out.push_str(if rest[at..].starts_with('%') { "%25" } else { "%2F" });
            rest = &rest[at + 1..];
        }
        out.push_str(rest);
    }
    out
}

impl<'a> State<'a> {
    pub(crate) fn new(handle: &'a BatchHandle) -> Self {
        Self { handle }
    }

    /// One value. For more than a few keys, [`Self::get_many`] is one call.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.get_many([key])?.pop().flatten())
    }
    /// The values of keys, in order.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<Vec<Option<Vec<u8>>>, Fault> {
        let (present, values) = self.handle.state_get(keys.into_iter().collect())?;
        let found = present.iter().zip(values.iter());
        Ok(found.map(|(present, value)| (*present != 0).then(|| value.to_vec())).collect())
    }
    /// Puts a value that lives for `ttl` from T on (in whole seconds, begun ones count), or for ever.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Option<Duration>) -> Result<(), Fault> {
        self.put_many([(key, value)], ttl)
    }
    /// Puts values that all live equally long.
    pub fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
        ttl: Option<Duration>,
    ) -> Result<(), Fault> {
        let (keys, values): (Vec<K>, Vec<V>) = entries.into_iter().unzip();
        if keys.is_empty() {
            return Ok(());
        }
        let seconds = ttl.map(|ttl| ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0));
        self.handle.state_put(keys.into_iter().collect(), values.into_iter().collect(), seconds)
    }
    /// Deletes keys; an absent one is no error.
    pub fn delete<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<(), Fault> {
        let keys: Blobs = keys.into_iter().collect();
        if keys.is_empty() { Ok(()) } else { self.handle.state_delete(keys) }
    }
    /// Keys with a prefix and their values, in the order of their bytes, at most `limit`; those after `after` if it is
    /// given, to go on where the last answer ended.
    #[allow(clippy::type_complexity)]
    pub fn scan(
        &self,
        prefix: impl AsRef<[u8]>,
        after: Option<&[u8]>,
        limit: u32,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Fault> {
        let (keys, values) = self.handle.state_scan(prefix.as_ref(), after, limit)?;
        let entries = keys.iter().zip(values.iter());
        Ok(entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect())
    }
}
