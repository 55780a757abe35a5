//! Keys: building and taking apart. The layout is documented in `format.rs`. Pure.

use std::ops::Bound;

use weir_model::batch::Space;
use weir_model::{Name, RunKey, ScenarioId, SinkId, StreamId, Time};

/// fjall's limit for a key.
pub(crate) const KEY_LIMIT: usize = u16::MAX as usize;

pub(crate) const INCARNATION: &[u8] = b"\0incarnation";
pub(crate) const NEXT_RUN: &[u8] = b"\0next-run";
const SCENARIOS: u8 = 1;
const DEAD: u8 = 2;
const PAUSED: u8 = 3;
const STREAM_META: u8 = 0;
const STREAM_BRONZE: u8 = 1;
const STREAM_JOURNAL: u8 = 2;

/// A range of keys.
pub(crate) type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// All keys that begin with `prefix`.
pub(crate) fn prefixed(prefix: &[u8]) -> KeyRange {
    (Bound::Included(prefix.to_vec()), prefix_end(prefix))
}

/// All keys of a keyspace.
pub(crate) const ALL: KeyRange = (Bound::Unbounded, Bound::Unbounded);

/// All keys that begin with `prefix` and sort after `key`.
pub(crate) fn prefixed_after(prefix: &[u8], key: Vec<u8>) -> KeyRange {
    (Bound::Excluded(key), prefix_end(prefix))
}

/// The bound behind all keys that begin with `prefix`.
fn prefix_end(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Bound::Excluded(end);
        }
    }
    Bound::Unbounded
}

/// Whether nothing can lie in the range.
pub(crate) fn is_empty(range: &KeyRange) -> bool {
    use Bound::{Excluded, Included, Unbounded};
    match range {
        (Unbounded, _) | (_, Unbounded) => false,
        (Included(from), Included(to)) => from > to,
        (Included(from) | Excluded(from), Included(to) | Excluded(to)) => from >= to,
    }
}

pub(crate) fn push_name(out: &mut Vec<u8>, name: &str) {
    // A Name has at most 64 bytes, a run's text at most 73.
    debug_assert!(name.len() <= usize::from(u8::MAX));
    out.push(name.len() as u8);
    out.extend_from_slice(name.as_bytes());
}

fn pair(tenant: &Name, name: &Name) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 + tenant.as_str().len() + name.as_str().len());
    push_name(&mut out, tenant.as_str());
    push_name(&mut out, name.as_str());
    out
}

/// `meta`: a scenario.
pub(crate) fn scenario(id: &ScenarioId) -> Vec<u8> {
    let mut out = scenarios();
    out.extend(pair(&id.tenant, &id.scenario));
    out
}

/// `meta`: prefix of all scenarios.
pub(crate) fn scenarios() -> Vec<u8> {
    vec![SCENARIOS]
}

/// `meta`: that a scenario is paused.
pub(crate) fn paused(id: &ScenarioId) -> Vec<u8> {
    let mut out = vec![PAUSED];
    out.extend(pair(&id.tenant, &id.scenario));
    out
}

/// `meta`: a forgotten run.
pub(crate) fn dead(run: u64) -> Vec<u8> {
    let mut out = all_dead();
    out.extend(run.to_be_bytes());
    out
}

/// `meta`: prefix of all forgotten runs.
pub(crate) fn all_dead() -> Vec<u8> {
    vec![DEAD]
}

/// `runs`, `attempts`, `sinks`: prefix of all runs of a scenario.
pub(crate) fn scenario_runs(id: &ScenarioId) -> Vec<u8> {
    pair(&id.tenant, &id.scenario)
}

/// `runs`, `attempts`: a run.
pub(crate) fn run(key: &RunKey) -> Vec<u8> {
    let mut out = scenario_runs(&key.scenario);
    push_name(&mut out, &key.run.to_string());
    out
}

/// `sinks`: a sink.
pub(crate) fn sink(id: &SinkId) -> Vec<u8> {
    let mut out = run(&id.key);
    push_name(&mut out, id.output.as_str());
    out
}

/// `batches`, `touched`: a batch.
pub(crate) fn batch(run: u64, n: u64) -> Vec<u8> {
    let mut out = run.to_be_bytes().to_vec();
    out.extend(n.to_be_bytes());
    out
}

/// `times`: a batch by its T.
pub(crate) fn time(run: u64, time: Time) -> Vec<u8> {
    let mut out = run.to_be_bytes().to_vec();
    out.extend(ordered(time).to_be_bytes());
    out
}

fn ordered(time: Time) -> u64 {
    (time.micros() as u64) ^ (1 << 63)
}

/// `outputs`, `payloads`: prefix of all batches of an output.
pub(crate) fn outputs(run: u64, output: &Name) -> Vec<u8> {
    let mut out = run.to_be_bytes().to_vec();
    push_name(&mut out, output.as_str());
    out
}

/// `outputs`, `payloads`: an output of a batch.
pub(crate) fn output(run: u64, output: &Name, n: u64) -> Vec<u8> {
    let mut out = outputs(run, output);
    out.extend(n.to_be_bytes());
    out
}

fn push_space(out: &mut Vec<u8>, space: &Space) {
    match space {
        Space::Plugin(version) => {
            out.push(1);
            out.extend(version.to_be_bytes());
        }
        Space::Alarms => out.push(2),
    }
}

/// `state`: a key, or the prefix of all keys that begin so.
pub(crate) fn state(run: u64, space: &Space, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(13 + key.len());
    out.extend(run.to_be_bytes());
    push_space(&mut out, space);
    out.extend_from_slice(key);
    out
}

/// `expiry`: a value that expires.
pub(crate) fn expiry(run: u64, expires: Time, space: &Space, key: &[u8]) -> Vec<u8> {
    let mut out = time(run, expires);
    push_space(&mut out, space);
    out.extend_from_slice(key);
    out
}

/// `expiry`: everything that has expired at `at`, of what expires at `from` or later.
pub(crate) fn expired(run: u64, from: Option<Time>, at: Time) -> KeyRange {
    let from = from.map_or_else(|| run.to_be_bytes().to_vec(), |from| time(run, from));
    (Bound::Included(from), Bound::Excluded(time(run, after(at))))
}

/// The next moment.
pub(crate) fn after(at: Time) -> Time {
    Time(at.micros().saturating_add(1))
}

/// `before`: prefix of all keys that begin with `key`.
pub(crate) fn before_prefix(run: u64, space: &Space, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(23 + key.len());
    out.extend(run.to_be_bytes());
    push_space(&mut out, space);
    for byte in key {
        out.push(*byte);
        if *byte == 0 {
            out.push(u8::MAX);
        }
    }
    out
}

/// `before`: prefix of the before-images of one key. What `touched` lists.
pub(crate) fn before_key(run: u64, space: &Space, key: &[u8]) -> Vec<u8> {
    let mut out = before_prefix(run, space, key);
    out.extend([0, 0]);
    out
}

/// `before`: what a key held before batch `n`.
pub(crate) fn before(run: u64, space: &Space, key: &[u8], n: u64) -> Vec<u8> {
    let mut out = before_key(run, space, key);
    out.extend(n.to_be_bytes());
    out
}

/// `streams`: what a stream is.
pub(crate) fn stream_meta(id: &StreamId) -> Vec<u8> {
    stream(id, STREAM_META)
}

/// `streams`: how far its bronze table is.
pub(crate) fn stream_bronze(id: &StreamId) -> Vec<u8> {
    stream(id, STREAM_BRONZE)
}

/// `streams`: prefix of its journal.
pub(crate) fn stream_journal(id: &StreamId) -> Vec<u8> {
    stream(id, STREAM_JOURNAL)
}

/// `streams`: an entry of its journal.
pub(crate) fn stream_entry(id: &StreamId, number: u64) -> Vec<u8> {
    let mut out = stream_journal(id);
    out.extend(number.to_be_bytes());
    out
}

fn stream(id: &StreamId, part: u8) -> Vec<u8> {
    let mut out = pair(&id.tenant, &id.stream);
    out.push(part);
    out
}

/// Takes keys apart. Each step answers none when the key is not one that this file builds.
pub(crate) struct Parts<'a>(pub(crate) &'a [u8]);

impl<'a> Parts<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }
    pub(crate) fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }
    pub(crate) fn number(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }
    fn text(&mut self) -> Option<&'a str> {
        let len = self.byte()?;
        std::str::from_utf8(self.take(usize::from(len))?).ok()
    }
    pub(crate) fn name(&mut self) -> Option<Name> {
        Name::new(self.text()?).ok()
    }
    pub(crate) fn scenario(&mut self) -> Option<ScenarioId> {
        Some(ScenarioId::new(self.name()?, self.name()?))
    }
    pub(crate) fn run(&mut self) -> Option<RunKey> {
        Some(RunKey { scenario: self.scenario()?, run: self.text()?.parse().ok()? })
    }
    pub(crate) fn sink(&mut self) -> Option<SinkId> {
        Some(SinkId { key: self.run()?, output: self.name()? })
    }
    pub(crate) fn space(&mut self) -> Option<Space> {
        match self.byte()? {
            1 => Some(Space::Plugin(u32::from_be_bytes(self.take(4)?.try_into().ok()?))),
            2 => Some(Space::Alarms),
            _ => None,
        }
    }
    /// The key of a before-image.
    pub(crate) fn escaped(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        loop {
            match self.byte()? {
                0 => match self.byte()? {
                    0 => return Some(out),
                    u8::MAX => out.push(0),
                    _ => return None,
                },
                byte => out.push(byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_keys_sort_as_the_state_keys_do() {
        let keys: [&[u8]; 9] = [b"", b"\0", b"\0\0", b"\0\x01", b"\0\xff", b"\x01", b"a", b"a\0", b"ab"];
        for (low, high) in keys.iter().zip(&keys[1..]) {
            assert!(low < high);
            let (low, high) = (before(1, &Space::Alarms, low, u64::MAX), before(1, &Space::Alarms, high, 0));
            assert!(low < high, "{low:?} {high:?}");
        }
        for key in keys {
            let built = before(7, &Space::Plugin(3), key, 9);
            let mut parts = Parts(&built);
            assert_eq!(parts.number(), Some(7));
            assert_eq!(parts.space(), Some(Space::Plugin(3)));
            assert_eq!(parts.escaped().as_deref(), Some(key));
            assert_eq!(parts.number(), Some(9));
            assert!(parts.0.is_empty());
        }
    }

    #[test]
    fn ranges_end_where_their_prefix_does() {
        assert_eq!(prefixed(&[1, 255]).1, Bound::Excluded(vec![2]));
        assert_eq!(prefixed(&[255, 255]).1, Bound::Unbounded);
        assert!(is_empty(&prefixed_after(&[1], vec![2])));
        assert!(!is_empty(&prefixed_after(&[1], vec![1])));
    }

    #[test]
    fn times_before_the_epoch_sort_first() {
        assert!(time(1, Time(i64::MIN)) < time(1, Time(-1)));
        assert!(time(1, Time(-1)) < time(1, Time(0)));
        assert!(time(1, Time(0)) < time(1, Time(i64::MAX)));
    }

    #[test]
    fn names_never_run_into_each_other() {
        let key = |t: &str, s: &str| scenario(&format!("{t}/{s}").parse().expect("a scenario"));
        assert_ne!(key("ab", "c"), key("a", "bc"));
        let id: SinkId = SinkId {
            key: RunKey { scenario: "t/s".parse().expect("a scenario"), run: "side:x".parse().expect("a run") },
            output: "o".parse().expect("a name"),
        };
        assert_eq!(Parts(&sink(&id)).sink(), Some(id));
    }
}
