//! What the store knows of each scenario and stream between looks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use weir_model::port::{Notice, Prepared, ScenarioView, StreamView};
use weir_model::stream::StreamDef;
use weir_model::{Digest, Name, Problem, Ruleset, ScenarioId, StreamId, Time};

use crate::decide::{Candidate, Checked};
use crate::history::Past;

/// Rulesets of a scenario that stay ready, so that going back to one costs nothing.
const RECENT: usize = 4;

/// Everything behind the store's lock.
#[derive(Default)]
pub(crate) struct State {
    /// Scenarios that have a folder or a past.
    pub scenarios: BTreeMap<ScenarioId, Scenario>,
    /// Streams that have a file or a past.
    pub streams: BTreeMap<StreamId, Stream>,
    /// The device that the store was on when it was last read.
    pub device: Option<u64>,
    /// What was last said about the store as a whole, so that it is said once.
    pub told: Vec<String>,
    /// A view has changed and is not published yet.
    pub dirty: bool,
}

/// One scenario.
#[derive(Default)]
pub(crate) struct Scenario {
    /// What batches run on.
    pub active: Option<Arc<Prepared>>,
    /// Rulesets that were made ready, the latest last.
    pub recent: VecDeque<Arc<Prepared>>,
    /// As it is on disk.
    pub past: Past,
    /// What is waited for.
    pub pending: Option<Notice>,
    /// What was found bad.
    pub rejected: Option<(Digest, Notice)>,
    /// The folder is gone.
    pub removed: bool,
    /// Since when it has not been seen.
    pub gone: Option<Duration>,
    /// Fingerprint of the folder when it was last read.
    pub seen: Option<Digest>,
    /// Digest of what was last read.
    pub content: Option<Digest>,
    /// Streams that the manifest named then.
    pub inputs: BTreeSet<Name>,
    /// Content that is not decided on yet.
    pub candidate: Option<Candidate>,
    /// The last good ruleset was asked for, so that a host that starts on a bad folder runs it.
    pub restoring: bool,
}

impl Scenario {
    /// A ruleset that is still ready.
    pub(crate) fn ready(&self, digest: Digest) -> Option<Arc<Prepared>> {
        self.recent.iter().chain(&self.active).find(|p| p.ruleset.digest == digest).cloned()
    }
    /// Keeps one ready.
    pub(crate) fn remember(&mut self, prepared: &Arc<Prepared>) {
        self.recent.retain(|p| p.ruleset.digest != prepared.ruleset.digest);
        self.recent.push_back(Arc::clone(prepared));
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }
    /// Whether a look has to read the folder, given its fingerprint.
    pub(crate) fn must_read(&self, fingerprint: Digest, at: Duration, settle: Duration) -> bool {
        if self.seen != Some(fingerprint) || self.gone.is_some() || self.removed {
            return true;
        }
        match &self.candidate {
            None => false,
            Some(c) => match c.checked {
                Checked::Running => false,
                Checked::No => at.saturating_sub(c.seen) >= settle,
                Checked::Bad { found, .. } => at.saturating_sub(found) >= settle,
            },
        }
    }
    /// When a look could bring something new without any change of the folder.
    pub(crate) fn due(&self, settle: Duration) -> Option<Duration> {
        let candidate = self.candidate.as_ref().and_then(|c| match c.checked {
            Checked::Running => None,
            Checked::No => Some(c.seen),
            Checked::Bad { found, .. } => Some(found),
        });
        [candidate, self.gone.filter(|_| !self.removed)].into_iter().flatten().min().map(|from| from + settle)
    }
    /// Says what is waited for; `since` stays that of the wait's begin.
    pub(crate) fn wait_for(&mut self, file: String, reason: String, now: Time, problems: Vec<Problem>) {
        let since = self.pending.as_ref().map_or(now, |n| n.since);
        self.pending = Some(Notice { reason, file, since, problems });
    }
    /// As others see it.
    pub(crate) fn view(&self, id: &ScenarioId) -> ScenarioView {
        ScenarioView {
            id: id.clone(),
            active: self.active.clone(),
            active_since: self.active.as_ref().and(self.past.since),
            pending: self.pending.clone(),
            rejected: self.rejected.as_ref().map(|(_, notice)| notice.clone()),
            pinned: self.past.pin.as_ref().map(|p| p.digest),
            removed: self.removed,
        }
    }
}

/// One stream.
#[derive(Default)]
pub(crate) struct Stream {
    /// The last good definition.
    pub def: Option<Arc<StreamDef>>,
    /// Its digest.
    pub digest: Option<Digest>,
    /// The last good definition's text, as kept on disk.
    pub stored: Option<Vec<u8>>,
    /// What was found bad.
    pub rejected: Option<(Digest, Notice)>,
    /// Stamp of the file when it was last read.
    pub seen: Option<Digest>,
    /// Content that is not decided on yet, and when it was first seen.
    pub candidate: Option<(Digest, Duration)>,
    /// Since when the file has not been seen.
    pub gone: Option<Duration>,
}

impl Stream {
    /// As others see it.
    pub(crate) fn view(&self, id: &StreamId) -> StreamView {
        StreamView {
            id: id.clone(),
            def: self.def.clone(),
            digest: self.digest,
            rejected: self.rejected.as_ref().map(|(_, notice)| notice.clone()),
        }
    }
    /// When a look could bring something new without any change of the file.
    pub(crate) fn due(&self, settle: Duration) -> Option<Duration> {
        self.candidate.map(|(_, seen)| seen).or(self.gone).map(|from| from + settle)
    }
}

/// The notice of problems.
pub(crate) fn notice(problems: Vec<Problem>, since: Time) -> Notice {
    let (file, reason) = match problems.first() {
        Some(first) => {
            let mut plain = first.clone();
            let file = std::mem::take(&mut plain.file);
            (file, plain.to_string().trim_start_matches(": ").to_owned())
        }
        None => (String::new(), "no reason was given".to_owned()),
    };
    Notice { reason, file, since, problems }
}

/// What differs between two rulesets, for the history.
pub(crate) fn changes(before: Option<&Ruleset>, after: &Ruleset) -> String {
    let Some(before) = before else { return "first version".to_owned() };
    let mut out: Vec<String> = Vec::new();
    for (path, entry) in &after.files {
        match before.files.get(path) {
            None => out.push(format!("added {path}")),
            Some(old) if old != entry => out.push(format!("changed {path}")),
            Some(_) => {}
        }
    }
    out.extend(before.files.keys().filter(|p| !after.files.contains_key(*p)).map(|p| format!("removed {p}")));
    let more = out.len().saturating_sub(10);
    out.truncate(10);
    match more {
        0 if out.is_empty() => "the same files".to_owned(),
        0 => out.join(", "),
        n => format!("{} and {n} more", out.join(", ")),
    }
}
