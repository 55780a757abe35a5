//! Keyed state with writes over it that are not committed yet: those of a batch at work, or of a run's batches that wait
//! for their commit. Reads see them as if they were below; sizes are kept with every write.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};

use weir_model::Fault;
use weir_model::batch::{Space, StateValue, StateWrite};
use weir_model::port::StateReader;

/// Entries that are read from below at once.
pub(crate) const PAGE: usize = 1_024;

/// The writes of one space.
#[derive(Default)]
struct Writes {
    values: BTreeMap<Vec<u8>, Option<StateValue>>,
    /// By how much keys and bytes of the space differ from what is below.
    keys: i64,
    bytes: i64,
}

/// The view. Clones share the writes.
#[derive(Clone)]
pub(crate) struct Layered {
    below: Arc<dyn StateReader>,
    writes: Arc<RwLock<BTreeMap<Space, Writes>>>,
}

impl Layered {
    /// Over a state that does not change.
    pub fn new(below: Box<dyn StateReader>) -> Self {
        Self { below: below.into(), writes: Arc::default() }
    }

    /// Puts a value, or deletes it.
    pub fn put(&self, space: &Space, key: &[u8], after: Option<StateValue>) -> Result<(), Fault> {
        let mut all = self.writes.write().unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(space) {
            all.insert(space.clone(), Writes::default());
        }
        let Some(writes) = all.get_mut(space) else { return Err(Fault::internal("a space of state got lost")) };
        let before = match writes.values.get(key) {
            Some(written) => written.as_ref().map(|v| v.value.len()),
            None => self.below.get(space, key)?.map(|v| v.value.len()),
        };
        let size = |len: Option<usize>| len.map_or((0, 0), |len| (1, signed(key.len() + len)));
        let ((k0, b0), (k1, b1)) = (size(before), size(after.as_ref().map(|v| v.value.len())));
        writes.keys += k1 - k0;
        writes.bytes += b1 - b0;
        writes.values.insert(key.to_vec(), after);
        Ok(())
    }

    /// Adds what a batch wrote.
    pub fn write(&self, changes: &[StateWrite]) -> Result<(), Fault> {
        changes.iter().try_for_each(|change| self.put(&change.space, &change.key, change.after.clone()))
    }

    /// All writes, by space and key.
    pub fn writes(&self) -> Vec<StateWrite> {
        let all = self.writes.read().unwrap_or_else(PoisonError::into_inner);
        let of_space = |(space, writes): (&Space, &Writes)| {
            let write = |(key, after): (&Vec<u8>, &Option<StateValue>)| StateWrite {
                space: space.clone(),
                key: key.clone(),
                after: after.clone(),
            };
            writes.values.iter().map(write).collect::<Vec<_>>()
        };
        all.iter().flat_map(of_space).collect()
    }
}

fn signed(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

impl StateReader for Layered {
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<StateValue>, Fault> {
        let all = self.writes.read().unwrap_or_else(PoisonError::into_inner);
        match all.get(space).and_then(|writes| writes.values.get(key)) {
            Some(written) => Ok(written.clone()),
            None => self.below.get(space, key),
        }
    }

    fn scan(
        &self,
        space: &Space,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, StateValue)>, Fault> {
        let all = self.writes.read().unwrap_or_else(PoisonError::into_inner);
        // `after` below the prefix is the same as none.
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let values = all.get(space).map(|writes| &writes.values);
        let mut written = values
            .into_iter()
            .flat_map(|values| values.range::<[u8], _>((start, Bound::Unbounded)))
            .take_while(|(key, _)| key.starts_with(prefix))
            .peekable();
        let mut out = Vec::new();
        let mut cursor = after.map(<[u8]>::to_vec);
        while out.len() < limit {
            let page = self.below.scan(space, prefix, cursor.as_deref(), PAGE)?;
            let last = page.len() < PAGE;
            cursor = page.last().map(|(key, _)| key.clone());
            for (key, value) in page {
                while let Some((k, v)) = written.next_if(|(k, _)| **k < key) {
                    out.extend(v.clone().map(|v| (k.clone(), v)));
                }
                match written.next_if(|(k, _)| **k == key) {
                    Some((k, v)) => out.extend(v.clone().map(|v| (k.clone(), v))),
                    None => out.push((key, value)),
                }
            }
            if last {
                out.extend(written.filter_map(|(k, v)| v.clone().map(|v| (k.clone(), v))));
                break;
            }
        }
        out.truncate(limit);
        Ok(out)
    }

    fn size(&self, space: &Space) -> Result<(u64, u64), Fault> {
        let (keys, bytes) = self.below.size(space)?;
        let all = self.writes.read().unwrap_or_else(PoisonError::into_inner);
        let (k, b) = all.get(space).map_or((0, 0), |writes| (writes.keys, writes.bytes));
        Ok((keys.saturating_add_signed(k), bytes.saturating_add_signed(b)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    struct Map(BTreeMap<Vec<u8>, StateValue>);

    impl StateReader for Map {
        fn get(&self, _: &Space, key: &[u8]) -> Result<Option<StateValue>, Fault> {
            Ok(self.0.get(key).cloned())
        }
        fn scan(
            &self,
            _: &Space,
            prefix: &[u8],
            after: Option<&[u8]>,
            limit: usize,
        ) -> Result<Vec<(Vec<u8>, StateValue)>, Fault> {
            let all = self.0.iter().filter(|(k, _)| k.starts_with(prefix) && after.is_none_or(|a| k.as_slice() > a));
            Ok(all.take(limit).map(|(k, v)| (k.clone(), v.clone())).collect())
        }
        fn size(&self, _: &Space) -> Result<(u64, u64), Fault> {
            Ok((self.0.len() as u64, self.0.iter().map(|(k, v)| (k.len() + v.value.len()) as u64).sum()))
        }
    }

    fn value(text: String) -> StateValue {
        StateValue { value: text.into_bytes(), expires: None }
    }

    /// Against a plain map that has all the writes, with more keys than a page holds.
    #[test]
    fn reads_as_if_everything_was_written_below() {
        let space = Space::Plugin(1);
        let key = |i: usize| format!("{:05}", i * 7_919 % 100_003).into_bytes();
        let mut whole: BTreeMap<_, _> = (0..3_000).map(|i| (key(i), value(format!("v{i}")))).collect();
        let layered = Layered::new(Box::new(Map(whole.clone())));
        for i in 0..4_500_usize {
            let after = (i % 3 != 0).then(|| value("w".repeat(i % 17)));
            match &after {
                Some(value) => whole.insert(key(i), value.clone()),
                None => whole.remove(&key(i)),
            };
            layered.write(&[StateWrite { space: space.clone(), key: key(i), after }]).unwrap();
        }
        let whole = Map(whole);
        assert_eq!(layered.size(&space).unwrap(), whole.size(&space).unwrap());
        for i in (0..5_000).step_by(13) {
            assert_eq!(layered.get(&space, &key(i)).unwrap(), whole.get(&space, &key(i)).unwrap());
        }
        for (prefix, after, limit) in [
            ("", None, 100_000),
            ("", Some("50000"), 2_000),
            ("1", None, 100_000),
            ("1", Some("0"), 10),
            ("1", Some("15000"), 1_500),
            ("1", Some("2"), 10),
            ("9", Some("99"), 100_000),
        ] {
            let ask = |reader: &dyn StateReader| {
                reader.scan(&space, prefix.as_bytes(), after.map(str::as_bytes), limit).unwrap()
            };
            assert_eq!(ask(&layered), ask(&whole), "{prefix} {after:?} {limit}");
        }
        assert_eq!(layered.scan(&Space::Alarms, b"", None, 10).unwrap().len(), 10, "another space is what is below");
    }
}
