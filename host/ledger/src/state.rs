//! Keyed state as a batch sees it: cells of a run, before-images over them, and what a fork lies on.

use std::cmp::Ordering;
use std::sync::{Mutex, PoisonError, Weak};

use fjall::Snapshot;
use weir_model::batch::{Space, StateValue};
use weir_model::port::StateReader;
use weir_model::{BatchId, Fault, FaultKind, RunId, RunKey};

use crate::codec::{self, Base, Run, Sizes, StoredBatch};
use crate::keys::{self, KeyRange, Parts};
use crate::slot::Core;
use crate::store::{Ks, Pinned, Source, ledger_fault};

/// What is known of a run; none before its first commit. The fault of a damaged one.
pub(crate) fn load_run(source: &impl Source, key: &RunKey) -> Result<Option<Run>, Fault> {
    let Some(bytes) = source.get(Ks::Runs, &keys::run(key))? else {
        return Ok(None);
    };
    let run: Run = codec::decode(&bytes, "a run")?;
    match source.store().damaged.get(&run.id) {
        Some(fault) => Err(fault.clone()),
        None => Ok(Some(run)),
    }
}

/// One batch of a run.
pub(crate) fn load_batch(source: &impl Source, run: &Run, n: u64) -> Result<Option<StoredBatch>, Fault> {
    source.get(Ks::Batches, &keys::batch(run.id, n))?.map(|bytes| StoredBatch::decode(&bytes)).transpose()
}

/// The cells of one run, as they were before its batch `before`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layer {
    /// Whose.
    pub key: RunKey,
    /// Its number.
    pub run: u64,
    /// The batch.
    pub before: u64,
    /// Whether `before` lies in the past, so that before-images must be asked first.
    pub past: bool,
}

impl Layer {
    fn at_head(key: &RunKey, run: &Run) -> Self {
        Self { key: key.clone(), run: run.id, before: run.head + 1, past: false }
    }

    fn at(key: &RunKey, run: &Run, before: u64) -> Result<Self, Fault> {
        if before < run.oldest || before > run.head + 1 {
            let (oldest, head) = (run.oldest, run.head);
            return Err(Fault::host(
                FaultKind::NotReplayable,
                format_args!(
                    "the state of {key} before batch {before} is not kept: the ledger has batches {oldest} to {head}"
                ),
            )
            .retry(weir_model::Retry::Never));
        }
        Ok(Self { past: before <= run.head, before, ..Self::at_head(key, run) })
    }
}

/// The state of a run: its own cells, and below them what it forked from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Layers(Vec<Layer>);

impl Layers {
    /// Of a run that has committed, after its head.
    pub(crate) fn of_head(source: &impl Source, key: &RunKey, run: &Run) -> Result<Self, Fault> {
        let mut layers = vec![Layer::at_head(key, run)];
        layers.extend(Self::base(source, key, run.base)?);
        Ok(Self(layers))
    }

    fn base(source: &impl Source, key: &RunKey, base: Option<Base>) -> Result<Option<Layer>, Fault> {
        let Some(base) = base else { return Ok(None) };
        let live = RunKey::live(key.scenario.clone());
        match load_run(source, &live)? {
            Some(run) if run.id == base.run => Layer::at(&live, &run, base.before).map(Some),
            _ => Err(ledger_fault(format_args!("{key} forked from a run that is gone"))),
        }
    }

    /// One value.
    pub(crate) fn get(&self, source: &impl Source, space: &Space, key: &[u8]) -> Result<Option<StateValue>, Fault> {
        for layer in &self.0 {
            if layer.past {
                let from = keys::before(layer.run, space, key, layer.before);
                let range =
                    (std::ops::Bound::Included(from), keys::prefixed(&keys::before_key(layer.run, space, key)).1);
                // The first change at or after `before` holds what was there before it.
                if let Some((_, cell)) = source.scan(Ks::Before, &range, 1)?.pop() {
                    return codec::uncell(&cell);
                }
            }
            if let Some(cell) = source.get(Ks::State, &keys::state(layer.run, space, key))? {
                return codec::uncell(&cell);
            }
        }
        Ok(None)
    }

    /// Entries with a prefix, after a key, in bytewise order.
    pub(crate) fn scan(
        &self,
        pinned: &Pinned<'_>,
        space: &Space,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, StateValue)>, Fault> {
        let mut out = Vec::new();
        let mut after = match after.map(|a| (a, a.cmp(prefix))) {
            Some((a, Ordering::Greater)) if !a.starts_with(prefix) => return Ok(out),
            Some((a, Ordering::Greater | Ordering::Equal)) => Some(a.to_vec()),
            _ => None,
        };
        if let [layer] = self.0.as_slice()
            && !layer.past
        {
            let range = state_range(layer, space, prefix, after.as_deref());
            for entry in pinned.range(Ks::State, &range).take(limit) {
                let (key, cell) = entry?;
                if let Some(value) = codec::uncell(&cell)? {
                    out.push((state_key(&key)?, value));
                }
            }
            return Ok(out);
        }
        // Several places may know a key: the next one is the least that any of them knows.
        while out.len() < limit {
            let mut next: Option<Vec<u8>> = None;
            for layer in &self.0 {
                let range = state_range(layer, space, prefix, after.as_deref());
                let own = pinned.scan(Ks::State, &range, 1)?.pop();
                let own = own.map(|(key, _)| state_key(&key)).transpose()?;
                let before = if layer.past {
                    let range = before_range(layer, space, prefix, after.as_deref());
                    let found = pinned.scan(Ks::Before, &range, 1)?.pop();
                    found.map(|(key, _)| before_key(&key)).transpose()?
                } else {
                    None
                };
                next = next.into_iter().chain(own).chain(before).min();
            }
            let Some(key) = next else { break };
            if let Some(value) = self.get(pinned, space, &key)? {
                out.push((key.clone(), value));
            }
            after = Some(key);
        }
        Ok(out)
    }

    /// The same layers in another opening of the store.
    fn found_again(&self, pinned: &Pinned<'_>) -> Result<Self, Fault> {
        self.0
            .iter()
            .map(|layer| match load_run(pinned, &layer.key)? {
                Some(run) if run.id == layer.run => Layer::at(&layer.key, &run, layer.before),
                _ => Err(ledger_fault(format_args!(
                    "the scenario of {} was forgotten while its state was read",
                    layer.key
                ))),
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

fn state_range(layer: &Layer, space: &Space, prefix: &[u8], after: Option<&[u8]>) -> KeyRange {
    let prefix = keys::state(layer.run, space, prefix);
    match after {
        Some(after) => keys::prefixed_after(&prefix, keys::state(layer.run, space, after)),
        None => keys::prefixed(&prefix),
    }
}

fn before_range(layer: &Layer, space: &Space, prefix: &[u8], after: Option<&[u8]>) -> KeyRange {
    let prefix = keys::before_prefix(layer.run, space, prefix);
    match after {
        Some(after) => {
            let last = keys::before(layer.run, space, after, u64::MAX);
            keys::prefixed_after(&prefix, last)
        }
        None => keys::prefixed(&prefix),
    }
}

/// The state key in a key of `state`.
pub(crate) fn state_key(key: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut parts = Parts(key);
    parts
        .number()
        .and_then(|_| parts.space())
        .map(|_| parts.0.to_vec())
        .ok_or_else(|| ledger_fault("a key of state cannot be read"))
}

fn before_key(key: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut parts = Parts(key);
    parts
        .number()
        .and_then(|_| parts.space())
        .and_then(|_| parts.escaped())
        .ok_or_else(|| ledger_fault("a key of a before-image cannot be read"))
}

/// State at one moment.
///
/// Holds a snapshot, so that the view stays as it is; snapshots make the store keep what they see, so a reader should
/// live as long as a batch and no longer. It holds no handle of the store and never keeps it from being opened
/// again: a reader of an opening that is gone finds its batch in the new one through before-images.
pub(crate) struct View {
    core: Weak<Core>,
    sizes: Sizes,
    held: Mutex<Held>,
}

#[derive(Clone)]
struct Held {
    generation: u64,
    snapshot: Snapshot,
    layers: Layers,
}

impl View {
    /// State after the run's head.
    pub(crate) fn at_head(core: Weak<Core>, pinned: &Pinned<'_>, key: &RunKey) -> Result<Self, Fault> {
        let (layers, sizes) = match load_run(pinned, key)? {
            Some(run) => (Layers::of_head(pinned, key, &run)?, run.sizes),
            None if key.run == RunId::Live => Default::default(),
            // It has not forked yet and reads live.
            None => {
                let live = RunKey::live(key.scenario.clone());
                match load_run(pinned, &live)? {
                    Some(run) => (Layers(vec![Layer::at_head(&live, &run)]), run.sizes),
                    None => Default::default(),
                }
            }
        };
        Ok(Self::new(core, pinned, layers, sizes))
    }

    /// State as batch `id` saw it.
    pub(crate) fn before(core: Weak<Core>, pinned: &Pinned<'_>, key: &RunKey, id: BatchId) -> Result<Self, Fault> {
        let Some(run) = load_run(pinned, key)? else {
            if id == BatchId::FIRST {
                return Self::at_head(core, pinned, key);
            }
            return Err(Fault::host(FaultKind::NotReplayable, format_args!("{key} has no batch {id}"))
                .retry(weir_model::Retry::Never));
        };
        let own = Layer::at(key, &run, id.0)?;
        let sizes = if own.past {
            load_batch(pinned, &run, id.0)?
                .ok_or_else(|| ledger_fault(format_args!("batch {id} of {key} is missing")))?
                .sizes_before
        } else {
            run.sizes
        };
        let mut layers = vec![own];
        layers.extend(Layers::base(pinned, key, run.base)?);
        Ok(Self::new(core, pinned, Layers(layers), sizes))
    }

    fn new(core: Weak<Core>, pinned: &Pinned<'_>, layers: Layers, sizes: Sizes) -> Self {
        Self {
            core,
            sizes,
            held: Mutex::new(Held { generation: pinned.store().generation, snapshot: pinned.snapshot(), layers }),
        }
    }

    fn with<T>(&self, f: impl FnOnce(&Pinned<'_>, &Layers) -> Result<T, Fault>) -> Result<T, Fault> {
        let core = self.core.upgrade().ok_or_else(|| ledger_fault("the ledger was closed"))?;
        core.with_store(|store| {
            let held = {
                let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
                if held.generation != store.generation {
                    let pinned = store.published();
                    *held = Held {
                        generation: store.generation,
                        layers: held.layers.found_again(&pinned)?,
                        snapshot: pinned.snapshot(),
                    };
                }
                held.clone()
            };
            f(&store.pinned(held.snapshot), &held.layers)
        })
    }
}

impl StateReader for View {
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<StateValue>, Fault> {
        self.with(|pinned, layers| layers.get(pinned, space, key))
    }
    fn scan(
        &self,
        space: &Space,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, StateValue)>, Fault> {
        self.with(|pinned, layers| layers.scan(pinned, space, prefix, after, limit))
    }
    fn size(&self, space: &Space) -> Result<(u64, u64), Fault> {
        Ok(self.sizes.get(space))
    }
}
