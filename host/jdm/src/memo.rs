//! Bounded caches: the least recently used entry goes first.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use weir_model::Digest;

/// Values by digest, bounded in number and in weight.
#[derive(Debug)]
pub(crate) struct Cache<T> {
    state: Mutex<State<T>>,
    entries: usize,
    weight: usize,
}

#[derive(Debug)]
struct State<T> {
    values: HashMap<Digest, Entry<T>>,
    by_use: BTreeMap<u64, Digest>,
    clock: u64,
    weight: usize,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    weight: usize,
    used: u64,
}

impl<T: Clone> Cache<T> {
    /// Holds at most that many entries, and at most that weight in all.
    pub(crate) fn new(entries: usize, weight: usize) -> Self {
        let state = State { values: HashMap::new(), by_use: BTreeMap::new(), clock: 0, weight: 0 };
        Self { state: Mutex::new(state), entries, weight }
    }

    /// The value, which is now the one used last.
    pub(crate) fn get(&self, key: &Digest) -> Option<T> {
        let state = &mut *self.lock();
        let entry = state.values.get_mut(key)?;
        state.clock += 1;
        state.by_use.remove(&entry.used);
        entry.used = state.clock;
        state.by_use.insert(entry.used, *key);
        Some(entry.value.clone())
    }

    /// Keeps a value, unless it alone outweighs the cache.
    pub(crate) fn put(&self, key: Digest, value: T, weight: usize) {
        if weight > self.weight {
            return;
        }
        let state = &mut *self.lock();
        if state.values.contains_key(&key) {
            return;
        }
        state.clock += 1;
        state.weight += weight;
        state.by_use.insert(state.clock, key);
        let used = state.clock;
        state.values.insert(key, Entry { value, weight, used });
        while state.values.len() > self.entries || state.weight > self.weight {
            let Some((_, oldest)) = state.by_use.pop_first() else {
                return;
            };
            if let Some(gone) = state.values.remove(&oldest) {
                state.weight -= gone.weight;
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_goes_first() {
        let cache = Cache::new(2, 10);
        let [a, b, c] = [b"a", b"b", b"c"].map(|k| Digest::of(k));
        cache.put(a, 1, 1);
        cache.put(b, 2, 1);
        assert_eq!(cache.get(&a), Some(1));
        cache.put(c, 3, 1);
        assert_eq!((cache.get(&a), cache.get(&b), cache.get(&c)), (Some(1), None, Some(3)));
    }

    #[test]
    fn weight_is_bounded_too() {
        let cache = Cache::new(100, 10);
        let [a, b, c] = [b"a", b"b", b"c"].map(|k| Digest::of(k));
        cache.put(a, 1, 6);
        cache.put(b, 2, 6);
        cache.put(c, 3, 11);
        assert_eq!((cache.get(&a), cache.get(&b), cache.get(&c)), (None, Some(2), None));
    }
}
