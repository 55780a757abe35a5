//! A group of changes while it is put together: reads see the store with the group's writes over it, so that two
//! changes of one group meet as if one had come after the other.

use std::collections::BTreeMap;
use std::ops::Bound;

use fjall::Slice;
use weir_model::Fault;

use crate::keys::{self, KeyRange};
use crate::store::{Ks, Source, Store};

/// Writes by keyspace and key; none removes. At most one for a key, as fjall needs it within a batch.
pub(crate) type Writes = BTreeMap<(Ks, Vec<u8>), Option<Slice>>;

/// The group so far, and the change that is being added to it.
pub(crate) struct Staging<'a> {
    store: &'a Store,
    group: Writes,
    change: Writes,
}

impl<'a> Staging<'a> {
    pub(crate) fn new(store: &'a Store) -> Self {
        Self { store, group: Writes::new(), change: Writes::new() }
    }

    pub(crate) fn put(&mut self, ks: Ks, key: Vec<u8>, value: impl Into<Slice>) {
        self.change.insert((ks, key), Some(value.into()));
    }

    pub(crate) fn remove(&mut self, ks: Ks, key: Vec<u8>) {
        self.change.insert((ks, key), None);
    }

    /// Takes the change into the group. Whether it writes anything.
    pub(crate) fn keep(&mut self) -> bool {
        let writes = !self.change.is_empty();
        // Not `append`, which builds the whole group anew for each change.
        self.group.extend(std::mem::take(&mut self.change));
        writes
    }

    /// Drops the change, as if it had not been asked for.
    pub(crate) fn undo(&mut self) {
        self.change.clear();
    }

    pub(crate) fn into_writes(self) -> Writes {
        self.group
    }
}

impl Source for Staging<'_> {
    fn store(&self) -> &Store {
        self.store
    }

    fn get(&self, ks: Ks, key: &[u8]) -> Result<Option<Slice>, Fault> {
        let at = (ks, key.to_vec());
        match self.change.get(&at).or_else(|| self.group.get(&at)) {
            Some(staged) => Ok(staged.clone()),
            None => self.store.latest(ks, key),
        }
    }

    fn scan(&self, ks: Ks, range: &KeyRange, limit: usize) -> Result<Vec<(Slice, Slice)>, Fault> {
        let mut staged: BTreeMap<&[u8], Option<&Slice>> = BTreeMap::new();
        if !keys::is_empty(range) {
            for writes in [&self.group, &self.change] {
                let (from, to) = in_keyspace(ks, range);
                for ((found, key), value) in writes.range((from, to)) {
                    if *found == ks {
                        staged.insert(key, value.as_ref());
                    }
                }
            }
        }
        let mut staged = staged.into_iter().peekable();
        let mut stored = self.store.latest_range(ks, range).peekable();
        let mut out = Vec::new();
        while out.len() < limit {
            let staged_first = match (staged.peek(), stored.peek()) {
                (None, None) => break,
                (None, _) | (_, Some(Err(_))) => false,
                (_, None) => true,
                (Some((key, _)), Some(Ok((stored_key, _)))) => *key <= &**stored_key,
            };
            if staged_first {
                if let Some((key, value)) = staged.next() {
                    // What is staged hides what is stored under the same key.
                    stored.next_if(|e| e.as_ref().is_ok_and(|(k, _)| **k == *key));
                    out.extend(value.map(|v| (Slice::from(key), v.clone())));
                }
            } else if let Some(entry) = stored.next() {
                out.push(entry?);
            }
        }
        Ok(out)
    }
}

type Bounds = (Bound<(Ks, Vec<u8>)>, Bound<(Ks, Vec<u8>)>);

/// A range of keys as one of writes. Its end may lie in the next keyspace.
fn in_keyspace(ks: Ks, (from, to): &KeyRange) -> Bounds {
    let with = |key: &Vec<u8>| (ks, key.clone());
    let from = match from {
        // The first key of a keyspace sorts behind all keys of the one before it.
        Bound::Unbounded => Bound::Included((ks, Vec::new())),
        bound => bound.as_ref().map(with),
    };
    (from, to.as_ref().map(with))
}
