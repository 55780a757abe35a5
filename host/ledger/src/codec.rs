//! Values: how they become bytes and come back. The layout is documented in `format.rs`. Pure.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weir_model::batch::{BatchRecord, SinkCursor, Space, StateValue};
use weir_model::{Digest, Fault, Name, Time};

use crate::store::ledger_fault;

/// The digest before the first of a run.
pub(crate) const ZERO: Digest = Digest([0; 32]);

/// MessagePack with field names.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Fault> {
    rmp_serde::to_vec_named(value)
        .map_err(|e| Fault::internal(format_args!("a value of the ledger has no encoding: {e}")))
}

/// The value back. `what` names it in the fault.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, Fault> {
    rmp_serde::from_slice(bytes).map_err(|e| ledger_fault(format_args!("{what} cannot be read: {e}")))
}

/// A number as a value.
pub(crate) fn number(bytes: &[u8], what: &str) -> Result<u64, Fault> {
    let bytes = bytes.try_into().map_err(|_| ledger_fault(format_args!("{what} cannot be read: it is no number")))?;
    Ok(u64::from_be_bytes(bytes))
}

/// What is known of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Its number in keys.
    pub id: u64,
    /// Random; tells this run from one that had the same number in a part of the journal that was lost.
    pub birth: u64,
    /// N of its latest batch.
    pub head: u64,
    /// T of it.
    pub head_time: Time,
    /// Digest of it.
    pub head_digest: Digest,
    /// N of the oldest batch that is kept.
    pub oldest: u64,
    /// Sizes of its state after the head.
    pub sizes: Sizes,
    /// What it forked from.
    #[serde(default)]
    pub base: Option<Base>,
    /// No own value expires before this: what did is gone. A look from the beginning would walk over every entry of
    /// `expiry` that was ever removed, until the store compacts. None: not known.
    #[serde(default)]
    pub expires_from: Option<Time>,
}

/// What lies below a fork's own state: the state of `run` before its batch `before`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Base {
    pub run: u64,
    pub before: u64,
}

/// Keys and bytes of spaces.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Sizes(Vec<Size>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Size {
    space: Space,
    keys: u64,
    bytes: u64,
}

impl Sizes {
    pub(crate) fn get(&self, space: &Space) -> (u64, u64) {
        self.0.iter().find(|s| s.space == *space).map_or((0, 0), |s| (s.keys, s.bytes))
    }

    /// A value of `key` went from `old` to `new`.
    pub(crate) fn change(&mut self, space: &Space, key: &[u8], old: Option<&StateValue>, new: Option<&StateValue>) {
        let at = match self.0.iter().position(|s| s.space == *space) {
            Some(at) => at,
            None => {
                self.0.push(Size { space: space.clone(), keys: 0, bytes: 0 });
                self.0.len() - 1
            }
        };
        let size = &mut self.0[at];
        let bytes = |v: &StateValue| (key.len() + v.value.len()) as u64;
        if let Some(old) = old {
            size.keys = size.keys.saturating_sub(1);
            size.bytes = size.bytes.saturating_sub(bytes(old));
        }
        if let Some(new) = new {
            size.keys += 1;
            size.bytes += bytes(new);
        }
    }

    /// Spaces that have keys, with their sizes.
    pub(crate) fn spaces(&self) -> impl Iterator<Item = (&Space, u64, u64)> {
        self.0.iter().filter(|s| s.keys > 0).map(|s| (&s.space, s.keys, s.bytes))
    }
}

/// Unfinished attempts at batch `n` of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Attempts {
    pub n: u64,
    pub by_ruleset: BTreeMap<Digest, u32>,
}

/// What is known of a sink.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct SinkState {
    pub cursor: Option<SinkCursor>,
    /// Outputs above the cursor.
    pub waiting: u64,
}

impl SinkState {
    pub(crate) fn drained_to(&self) -> u64 {
        self.cursor.as_ref().map_or(0, |c| c.drained_to.0)
    }
}

/// What is known of an output without reading it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OutputEntry {
    pub table: Name,
    pub ruleset: Digest,
    /// T of its batch.
    pub time: Time,
    pub rows: u64,
    /// Bytes as kept.
    pub bytes: u64,
    /// Bytes of the rows in memory, about.
    pub memory: u64,
    /// Of the kept bytes.
    pub digest: Digest,
    /// The file in `outputs/` that holds the bytes; none: they are in `payloads`.
    #[serde(default)]
    pub file: Option<String>,
}

/// A batch as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredBatch {
    pub previous: Digest,
    pub digest: Digest,
    /// Of the changes of state.
    pub state: Digest,
    /// Sizes of the state before it.
    pub sizes_before: Sizes,
    /// The record, with zeros for both digests: the bytes that `digest` covers.
    pub body: Vec<u8>,
}

impl StoredBatch {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, Fault> {
        let sizes = encode(&self.sizes_before)?;
        let mut out = Vec::with_capacity(100 + sizes.len() + self.body.len());
        for digest in [&self.previous, &self.digest, &self.state] {
            out.extend_from_slice(&digest.0);
        }
        let len = u32::try_from(sizes.len()).map_err(|_| Fault::internal("a batch with more than 4 GiB of spaces"))?;
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(&sizes);
        out.extend_from_slice(&self.body);
        Ok(out)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        fn parts(mut bytes: &[u8]) -> Option<([Digest; 3], &[u8], &[u8])> {
            let mut digests = [ZERO; 3];
            for digest in &mut digests {
                let (head, rest) = bytes.split_first_chunk::<32>()?;
                *digest = Digest(*head);
                bytes = rest;
            }
            let (len, rest) = bytes.split_first_chunk::<4>()?;
            let (sizes, body) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
            Some((digests, sizes, body))
        }
        let ([previous, digest, state], sizes, body) =
            parts(bytes).ok_or_else(|| ledger_fault("a batch cannot be read: it is too short"))?;
        Ok(Self { previous, digest, state, sizes_before: decode(sizes, "sizes of state")?, body: body.to_vec() })
    }

    /// The record with its digests.
    pub(crate) fn record(&self) -> Result<BatchRecord, Fault> {
        let mut record: BatchRecord = decode(&self.body, "a batch")?;
        record.previous = self.previous;
        record.digest = self.digest;
        Ok(record)
    }
}

/// Digest over everything that is committed with a batch, wherever in a run it stands.
pub(crate) fn content(body: &[u8], state: Digest) -> Digest {
    Digest::of_parts([body, &state.0])
}

/// Digest of a batch with this content after `previous`.
pub(crate) fn chained(previous: Digest, content: Digest) -> Digest {
    Digest::of_parts([previous.0.as_slice(), &content.0])
}

const PLAIN: u8 = 1;
const EXPIRING: u8 = 2;
const NOTHING: u8 = 3;

/// A cell of state, or what one held before.
pub(crate) fn cell(value: Option<&StateValue>) -> Vec<u8> {
    let Some(value) = value else {
        return vec![NOTHING];
    };
    let mut out = Vec::with_capacity(9 + value.value.len());
    match value.expires {
        None => out.push(PLAIN),
        Some(at) => {
            out.push(EXPIRING);
            out.extend(at.micros().to_be_bytes());
        }
    }
    out.extend_from_slice(&value.value);
    out
}

/// What a cell holds.
pub(crate) fn uncell(bytes: &[u8]) -> Result<Option<StateValue>, Fault> {
    let broken = || ledger_fault("a cell of state cannot be read");
    let (tag, rest) = bytes.split_first().ok_or_else(broken)?;
    match *tag {
        PLAIN => Ok(Some(StateValue { value: rest.to_vec(), expires: None })),
        EXPIRING => {
            let (at, value) = rest.split_first_chunk::<8>().ok_or_else(broken)?;
            Ok(Some(StateValue { value: value.to_vec(), expires: Some(Time(i64::from_be_bytes(*at))) }))
        }
        NOTHING if rest.is_empty() => Ok(None),
        _ => Err(broken()),
    }
}

/// Keys, as one value.
pub(crate) fn key_list<'a>(keys: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for key in keys {
        out.extend((key.len() as u32).to_be_bytes());
        out.extend_from_slice(key);
    }
    out
}

/// The keys back.
pub(crate) fn unkey_list(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
    fn next(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let (len, rest) = bytes.split_first_chunk::<4>()?;
        rest.split_at_checked(u32::from_be_bytes(*len) as usize)
    }
    let mut out = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (key, after) = next(rest).ok_or_else(|| ledger_fault("the keys of a batch cannot be read"))?;
        out.push(key.to_vec());
        rest = after;
    }
    Ok(out)
}
