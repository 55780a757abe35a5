//! Noticing damage: a short look when the store is opened, a long one when somebody asks.
//!
//! What can be wrong and how it shows:
//! - the end of the journal was cut: a head behind its note in `heads`, or behind a sink's cursor, because the parts
//!   of the store are flushed at different times;
//! - the middle was cut (an older journal was damaged, a newer one was not): a number that is missing, a digest that does
//!   not name the one before, a batch behind the head;
//! - bytes went bad: a digest that is not that of what is kept.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use weir_model::batch::Space;
use weir_model::{BatchId, Digest, Fault, Retry, RunKey, SinkId, Time};

use crate::codec::{self, OutputEntry, Run, SinkState, ZERO};
use crate::format::Folder;
use crate::keys::{self, Parts};
use crate::outputs;
use crate::retain::{runs, sinks};
use crate::state::load_batch;
use crate::store::{Ks, Pinned, Source, io_fault, ledger_fault};
use crate::witness::Witness;

/// What a look at the whole ledger has found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckReport {
    /// Runs that were looked at.
    pub runs: u64,
    /// Batches that were looked at.
    pub batches: u64,
    /// Outputs whose bytes were looked at.
    pub outputs: u64,
    /// What is wrong. Empty: the ledger is whole.
    pub findings: Vec<Finding>,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The run; none for what belongs to no run.
    pub run: Option<RunKey>,
    /// The batch, where it is one.
    pub batch: Option<BatchId>,
    /// What is wrong, in a sentence without a full stop.
    pub message: String,
}

/// The runs that are damaged, by number, as far as the heads and the latest `depth` batches of each show it.
pub(crate) fn quick(pinned: &Pinned<'_>, witness: &Witness, depth: u64) -> Result<HashMap<u64, Fault>, Fault> {
    let mut damaged = HashMap::new();
    let sinks = sinks_by_run(pinned)?;
    for (key, run) in runs(pinned)? {
        let mut look = Look::new(pinned, &key, &run);
        look.head(witness, sinks.get(&key).map_or(&[], Vec::as_slice))?;
        look.walk(run.oldest.max(run.head.saturating_sub(depth)))?;
        if let Some(finding) = look.findings.first() {
            let fault = ledger_fault(format_args!("{key}: {}", finding.message))
                .retry(Retry::Never)
                .fix("restore the data folder from a backup, or erase the scenario's history with `weir forget`");
            damaged.insert(run.id, fault);
        }
    }
    Ok(damaged)
}

/// Everything.
pub(crate) fn full(folder: &Folder, pinned: &Pinned<'_>, witness: &Witness) -> Result<CheckReport, Fault> {
    let mut report = CheckReport::default();
    let sinks = sinks_by_run(pinned)?;
    let runs = runs(pinned)?;
    for (key, run) in &runs {
        let sinks = sinks.get(key).map_or(&[][..], Vec::as_slice);
        let mut look = Look::new(pinned, key, run);
        look.head(witness, sinks)?;
        look.walk(run.oldest)?;
        look.times()?;
        look.before_images()?;
        look.sizes()?;
        report.outputs += look.outputs(folder, sinks)?;
        report.runs += 1;
        report.batches += look.batches;
        report.findings.append(&mut look.findings);
    }
    for key in sinks.keys() {
        if !runs.iter().any(|(known, _)| known == key) {
            report.findings.push(Finding {
                run: Some(key.clone()),
                batch: None,
                message: "there is a sink of a run that is not there".to_owned(),
            });
        }
    }
    strangers(pinned, &runs, &mut report)?;
    Ok(report)
}

type OfRun = Vec<(SinkId, SinkState)>;

fn sinks_by_run(pinned: &Pinned<'_>) -> Result<BTreeMap<RunKey, OfRun>, Fault> {
    let mut out: BTreeMap<RunKey, OfRun> = BTreeMap::new();
    for (sink, state) in sinks(pinned)? {
        out.entry(sink.key.clone()).or_default().push((sink, state));
    }
    Ok(out)
}

/// Entries of runs that have neither a name nor a mark that they are to be swept.
fn strangers(pinned: &Pinned<'_>, runs: &[(RunKey, Run)], report: &mut CheckReport) -> Result<(), Fault> {
    let mut known: Vec<u64> = runs.iter().map(|(_, run)| run.id).collect();
    for (key, _) in pinned.scan(Ks::Meta, &keys::prefixed(&keys::all_dead()), usize::MAX)? {
        known.extend(Parts(&key[1..]).number());
    }
    for ks in Ks::OF_RUNS {
        let mut range = keys::ALL;
        while let Some((key, _)) = pinned.scan(ks, &range, 1)?.pop() {
            let number = Parts(&key).number().unwrap_or(u64::MAX);
            if !known.contains(&number) {
                report.findings.push(Finding {
                    run: None,
                    batch: None,
                    message: format!("there are entries of run {number}, which is not there"),
                });
            }
            range.0 = match keys::prefixed(&number.to_be_bytes()).1 {
                Bound::Excluded(end) => Bound::Included(end),
                _ => break,
            };
        }
    }
    Ok(())
}

/// A look at one run.
struct Look<'a> {
    pinned: &'a Pinned<'a>,
    key: &'a RunKey,
    run: &'a Run,
    batches: u64,
    findings: Vec<Finding>,
}

impl<'a> Look<'a> {
    fn new(pinned: &'a Pinned<'a>, key: &'a RunKey, run: &'a Run) -> Self {
        Self { pinned, key, run, batches: 0, findings: Vec::new() }
    }

    fn found(&mut self, n: impl Into<Option<u64>>, message: impl Into<String>) {
        self.findings.push(Finding {
            run: Some(self.key.clone()),
            batch: n.into().map(BatchId),
            message: message.into(),
        });
    }

    /// Whether the head is where everybody else says it is.
    fn head(&mut self, witness: &Witness, sinks: &[(SinkId, SinkState)]) -> Result<(), Fault> {
        let head = self.run.head;
        let noted = witness
            .noted(self.run.id, self.run.birth)
            .map_err(|e| io_fault("the ledger's heads cannot be read", &e))?;
        if let Some(noted) = noted.filter(|n| *n > head) {
            self.found(
                noted,
                format!("the journal was cut: batch {noted} was committed, but {head} is the latest one that is kept"),
            );
        }
        for (sink, state) in sinks.iter().filter(|(_, s)| s.drained_to() > head) {
            let to = state.drained_to();
            self.found(
                to,
                format!("the journal was cut: the sink {} has drained batch {to}, but {head} is the latest one that is kept", sink.output),
            );
        }
        let behind = keys::prefixed_after(&self.run.id.to_be_bytes(), keys::batch(self.run.id, head));
        if let Some((key, _)) = self.pinned.scan(Ks::Batches, &behind, 1)?.pop() {
            let n = Parts(&key[8..]).number();
            let which = n.map_or_else(|| "a batch".to_owned(), |n| format!("batch {n}"));
            self.found(n, format!("the journal was cut: {which} is kept, but the run's head is {head}"));
        }
        Ok(())
    }

    /// The chain from batch `from` to the head.
    fn walk(&mut self, from: u64) -> Result<(), Fault> {
        let mut last: Option<(Digest, Time)> = None;
        for n in from..=self.run.head {
            self.batches += 1;
            let Some(batch) = load_batch(self.pinned, self.run, n)? else {
                self.found(n, format!("batch {n} is missing"));
                last = None;
                continue;
            };
            let due = if n == BatchId::FIRST.0 { Some(ZERO) } else { last.map(|(digest, _)| digest) };
            if due.is_some_and(|due| due != batch.previous) {
                self.found(n, format!("batch {n} does not follow the one before it"));
            }
            let content = codec::content(&batch.body, batch.state);
            if codec::chained(batch.previous, content) != batch.digest {
                self.found(n, format!("batch {n} is not what was committed"));
            }
            let plan = batch.record()?.plan;
            if plan.id.0 != n || plan.key != *self.key {
                self.found(n, format!("batch {n} says that it is {} of {}", plan.id, plan.key));
            }
            if last.is_some_and(|(_, time)| time >= plan.time) {
                self.found(n, format!("T of batch {n} is not after the one before it"));
            }
            let indexed = self.pinned.get(Ks::Times, &keys::time(self.run.id, plan.time))?;
            if indexed.as_deref() != Some(&n.to_be_bytes()) {
                self.found(n, format!("batch {n} is not found by its T"));
            }
            last = Some((batch.digest, plan.time));
        }
        if last.is_some_and(|last| last != (self.run.head_digest, self.run.head_time)) {
            self.found(self.run.head, "the head is not the latest batch");
        }
        Ok(())
    }

    /// Whether the index by time holds nothing else.
    fn times(&mut self) -> Result<(), Fault> {
        let all = keys::prefixed(&self.run.id.to_be_bytes());
        let indexed = count(self.pinned.range(Ks::Times, &all))?;
        let kept = self.run.head + 1 - self.run.oldest;
        if indexed != kept {
            self.found(None, format!("{kept} batches are kept, {indexed} are found by T"));
        }
        Ok(())
    }

    /// Whether each change has its before-image, and nothing else has one.
    fn before_images(&mut self) -> Result<(), Fault> {
        let mut listed = 0;
        for n in self.run.oldest..=self.run.head {
            let Some(list) = self.pinned.get(Ks::Touched, &keys::batch(self.run.id, n))? else {
                self.found(n, format!("the changes of batch {n} are missing"));
                continue;
            };
            for mut before in codec::unkey_list(&list)? {
                before.extend(n.to_be_bytes());
                match self.pinned.get(Ks::Before, &before)? {
                    Some(cell) => codec::uncell(&cell).map(|_| listed += 1)?,
                    None => self.found(n, format!("a before-image of batch {n} is missing")),
                }
            }
        }
        let all = keys::prefixed(&self.run.id.to_be_bytes());
        let kept = count(self.pinned.range(Ks::Before, &all))?;
        if kept > listed {
            let extra = kept - listed;
            self.found(None, format!("{extra} before-images belong to no batch"));
        }
        Ok(())
    }

    /// Whether sizes and expiry are those of the cells. Of a fork only the expiry: its sizes count what lies below it.
    fn sizes(&mut self) -> Result<(), Fault> {
        let all = keys::prefixed(&self.run.id.to_be_bytes());
        let mut counted: BTreeMap<Space, (u64, u64)> = BTreeMap::new();
        let mut expiring = 0;
        for entry in self.pinned.range(Ks::State, &all) {
            let (key, cell) = entry?;
            let mut parts = Parts(&key[8..]);
            let space = parts.space().ok_or_else(|| ledger_fault("a key of state cannot be read"))?;
            let Some(value) = codec::uncell(&cell)? else {
                continue;
            };
            if let Some(at) = value.expires {
                expiring += 1;
                let due = keys::expiry(self.run.id, at, &space, parts.0);
                if self.pinned.get(Ks::Expiry, &due)?.is_none() {
                    self.found(None, "a value that expires is not found by its time");
                }
            }
            let size = counted.entry(space).or_default();
            size.0 += 1;
            size.1 += (parts.0.len() + value.value.len()) as u64;
        }
        let indexed = count(self.pinned.range(Ks::Expiry, &all))?;
        if indexed != expiring {
            self.found(None, format!("{expiring} values expire, {indexed} are found by time"));
        }
        if let Some(from) = self.run.expires_from {
            let below = (keys::prefixed(&self.run.id.to_be_bytes()).0, Bound::Excluded(keys::time(self.run.id, from)));
            if self.pinned.range(Ks::Expiry, &below).next().transpose()?.is_some() {
                self.found(None, format!("a value expires before {from}, from where expired ones are looked for"));
            }
        }
        let kept: BTreeMap<Space, (u64, u64)> =
            self.run.sizes.spaces().map(|(space, keys, bytes)| (space.clone(), (keys, bytes))).collect();
        if self.run.base.is_none() && kept != counted {
            self.found(None, format!("state has the sizes {counted:?}, kept are {kept:?}"));
        }
        Ok(())
    }

    /// Whether outputs can be read, and sinks know how many wait. How many were looked at.
    fn outputs(&mut self, folder: &Folder, sinks: &[(SinkId, SinkState)]) -> Result<u64, Fault> {
        let mut looked = 0;
        for (sink, state) in sinks {
            let prefix = keys::outputs(self.run.id, &sink.output);
            let mut waiting = 0;
            for entry in self.pinned.range(Ks::Outputs, &keys::prefixed(&prefix)) {
                let (key, value) = entry?;
                let n = Parts(&key[prefix.len()..])
                    .number()
                    .ok_or_else(|| ledger_fault("the key of an output cannot be read"))?;
                let entry: OutputEntry = codec::decode(&value, "an output")?;
                if let Err(fault) = outputs::read(folder, self.pinned, self.run.id, sink, n, &entry) {
                    self.found(n, fault.message);
                }
                waiting += u64::from(n > state.drained_to());
                looked += 1;
            }
            if waiting != state.waiting {
                let (output, kept) = (&sink.output, state.waiting);
                self.found(None, format!("{waiting} outputs wait for the sink {output}, it counts {kept}"));
            }
        }
        let all = keys::prefixed(&self.run.id.to_be_bytes());
        let kept = count(self.pinned.range(Ks::Outputs, &all))?;
        if kept != looked {
            self.found(None, format!("{} outputs belong to no sink", kept - looked));
        }
        Ok(looked)
    }
}

fn count(mut entries: impl Iterator<Item = Result<(fjall::Slice, fjall::Slice), Fault>>) -> Result<u64, Fault> {
    entries.try_fold(0, |n, entry| entry.map(|_| n + 1))
}
