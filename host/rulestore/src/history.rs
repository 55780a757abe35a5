//! What ran before, on disk.
//!
//! ```text
//! <history>/<digest>/ruleset.json                     listing of a ruleset; there last, so a folder without it is no ruleset
//! <history>/<digest>/<tenant>/tenant.toml, streams/*, <scenario>/**   its files, laid out as in the store
//! <history>/scenarios/<tenant>/<scenario>.json        what is active, pinned and kept
//! <history>/scenarios/<tenant>/<scenario>.jsonl       what happened, one event a line
//! <history>/streams/<tenant>/<stream>.json            the last good definition
//! ```
//! Everything is written beside its place, synced, and renamed into it. Files that the ruleset before had too are hard
//! links to its copies: an edit of a rule costs the rule, not the component.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weir_model::ruleset::FileEntry;
use weir_model::service::HistoryEntry;
use weir_model::{Digest, Fault, FaultKind, Limits, Name, Ruleset, ScenarioId, StreamId, Time};

use crate::load::{Pool, Raw, assemble};

/// Events kept of a scenario; the file is cut to this many when it has twice as many.
const EVENTS: usize = 1_000;

/// How long rulesets are kept.
#[derive(Debug, Clone, Copy)]
pub struct Keep {
    /// At least this many of a scenario, the newest ones.
    pub digests: usize,
    /// And all that ran within this time.
    pub horizon: Duration,
}

/// What is known of a scenario's past.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Past {
    /// The last good ruleset.
    pub active: Option<Digest>,
    /// Since when.
    pub since: Option<Time>,
    /// What an operator pinned.
    pub pin: Option<Pin>,
    /// Rulesets that are kept, in the order in which they came from the folder.
    pub kept: Vec<Kept>,
}

/// A pin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pin {
    /// What runs.
    pub digest: Digest,
    /// What the folder held when it was pinned; none: not known yet.
    pub over: Option<Digest>,
}

/// A ruleset that is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// Which.
    pub digest: Digest,
    /// Until when it ran; none while it does.
    pub until: Option<Time>,
}

#[derive(Serialize, Deserialize)]
struct Listing {
    digest: Digest,
    scenario: ScenarioId,
    time: Time,
    files: BTreeMap<String, FileEntry>,
}

#[derive(Serialize, Deserialize)]
struct StreamFile {
    text: String,
}

/// The folder.
#[derive(Debug)]
pub(crate) struct Disk {
    root: PathBuf,
}

impl Disk {
    /// Opens it, makes it when it is not there, and removes what an interrupted write left.
    pub(crate) fn open(root: &Path) -> Result<Self, Fault> {
        let disk = Self { root: root.to_owned() };
        disk.make().map_err(|e| disk.fault("be opened", &e))?;
        Ok(disk)
    }

    fn make(&self) -> io::Result<()> {
        for sub in ["scenarios", "streams"] {
            fs::create_dir_all(self.root.join(sub))?;
        }
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(".new-") {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    fn fault(&self, what: &str, e: &io::Error) -> Fault {
        let kind = if e.kind() == io::ErrorKind::StorageFull { FaultKind::Disk } else { FaultKind::Internal };
        Fault::host(kind, format_args!("the history of rulesets cannot {what}: {e}"))
            .file(self.root.display())
            .fix("see that the data folder is there, writable and not full")
    }

    fn past_path(&self, id: &ScenarioId) -> PathBuf {
        self.root.join("scenarios").join(id.tenant.as_str()).join(format!("{}.json", id.scenario))
    }
    fn log_path(&self, id: &ScenarioId) -> PathBuf {
        self.past_path(id).with_extension("jsonl")
    }
    fn folder(&self, digest: Digest) -> PathBuf {
        self.root.join(digest.to_string())
    }

    /// Everything known of all scenarios. A damaged record is made anew from what happened and what is kept.
    pub(crate) fn scenarios(&self) -> Result<BTreeMap<ScenarioId, Past>, Fault> {
        let mut out = BTreeMap::new();
        for (tenant, scenario) in self.pairs("scenarios").map_err(|e| self.fault("be read", &e))? {
            let id = ScenarioId::new(tenant, scenario);
            let past = match read_json::<Past>(&self.past_path(&id)) {
                Ok(past) => past,
                Err(e) => {
                    tracing::warn!(scenario = %id, error = %e, "the record of a scenario's rulesets is damaged; it is made anew");
                    self.rebuilt(&id)
                }
            };
            out.insert(id, past);
        }
        Ok(out)
    }

    fn rebuilt(&self, id: &ScenarioId) -> Past {
        let mut past = Past::default();
        for event in self.events(id) {
            if matches!(event.event.as_str(), "active" | "pinned")
                && self.folder(event.digest).join("ruleset.json").exists()
            {
                past.became(event.digest, event.time);
            }
        }
        past
    }

    fn pairs(&self, kind: &str) -> io::Result<BTreeSet<(Name, Name)>> {
        let mut out = BTreeSet::new();
        for tenant in fs::read_dir(self.root.join(kind))? {
            let tenant = tenant?;
            let Ok(name) = Name::new(&tenant.file_name().to_string_lossy()) else { continue };
            for file in fs::read_dir(tenant.path())? {
                let file = file?.file_name();
                let file = file.to_string_lossy();
                let stem = file.strip_suffix(".json").or_else(|| file.strip_suffix(".jsonl"));
                if let Some(Ok(second)) = stem.map(Name::new) {
                    out.insert((name.clone(), second));
                }
            }
        }
        Ok(out)
    }

    /// Keeps a ruleset; durable when it returns. `like`: another one that may have some of the same files.
    pub(crate) fn save(&self, ruleset: &Ruleset, now: Time, like: Option<&Ruleset>) -> Result<(), Fault> {
        self.write(ruleset, now, like).map_err(|e| self.fault("be written", &e))
    }

    fn write(&self, ruleset: &Ruleset, now: Time, like: Option<&Ruleset>) -> io::Result<()> {
        let place = self.folder(ruleset.digest);
        if place.join("ruleset.json").exists() {
            return Ok(());
        }
        if place.exists() {
            fs::remove_dir_all(&place)?;
        }
        let new = self.root.join(format!(".new-{}", ruleset.digest));
        if new.exists() {
            fs::remove_dir_all(&new)?;
        }
        let mut folders = BTreeSet::from([new.clone()]);
        for (path, bytes) in &ruleset.content {
            let below = in_folder(&ruleset.scenario, path);
            let target = new.join(&below);
            let mut parent = target.parent();
            while let Some(dir) = parent.filter(|dir| dir.starts_with(&new)) {
                folders.insert(dir.to_owned());
                parent = dir.parent();
            }
            if let Some(dir) = target.parent() {
                fs::create_dir_all(dir)?;
            }
            let same = like.filter(|l| l.files.get(path) == ruleset.files.get(path));
            let linked = same.is_some_and(|l| fs::hard_link(self.folder(l.digest).join(&below), &target).is_ok());
            if !linked {
                synced(&target, bytes)?;
            }
        }
        let listing = Listing {
            digest: ruleset.digest,
            scenario: ruleset.scenario.clone(),
            time: now,
            files: ruleset.files.clone(),
        };
        fs::create_dir_all(&new)?;
        synced(&new.join("ruleset.json"), &serde_json::to_vec_pretty(&listing)?)?;
        for dir in &folders {
            File::open(dir)?.sync_all()?;
        }
        fs::rename(&new, &place)?;
        File::open(&self.root)?.sync_all()
    }

    /// Reads a ruleset of this scenario back, every byte checked.
    pub(crate) fn load(&self, id: &ScenarioId, digest: Digest, host: &Limits, pool: &Pool) -> Result<Ruleset, Fault> {
        let gone = |why: String| {
            Fault::host(FaultKind::NotReplayable, format_args!("ruleset {} of {id} {why}", digest.short()))
                .retry(weir_model::Retry::Never)
                .fix("weir history lists the rulesets that are kept")
        };
        let folder = self.folder(digest);
        let listing: Listing = match read_json(&folder.join("ruleset.json")) {
            Ok(listing) => listing,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(gone("is not kept".into())),
            Err(e) => return Err(gone(format!("is damaged: ruleset.json: {e}"))),
        };
        if listing.scenario != *id {
            return Err(gone(format!("is one of {}", listing.scenario)));
        }
        let mut raw = Raw::default();
        let mut streams = BTreeSet::new();
        for (path, entry) in &listing.files {
            let bytes =
                fs::read(folder.join(in_folder(id, path))).map_err(|e| gone(format!("is damaged: {path}: {e}")))?;
            if Digest::of(&bytes) != entry.digest {
                return Err(gone(format!("is damaged: {path} is not what it was")));
            }
            raw.put(path, bytes, pool);
            let stream = path.strip_prefix("../streams/").and_then(|p| p.strip_suffix(".toml"));
            streams.extend(stream.and_then(|s| Name::new(s).ok()));
        }
        let ruleset = assemble(id, raw, host, &streams)
            .map_err(|problems| gone(format!("is not accepted any more: {}", first(&problems))))?;
        if ruleset.digest != digest {
            return Err(gone("is damaged: its files are not its own".into()));
        }
        Ok(ruleset)
    }

    /// Writes what is known of a scenario.
    pub(crate) fn put(&self, id: &ScenarioId, past: &Past) -> Result<(), Fault> {
        let write = || write_json(&self.past_path(id), past);
        write().map_err(|e| self.fault("be written", &e))
    }

    /// Adds an event, unless it only repeats the last one. Only the last line is read: there may be thousands.
    pub(crate) fn note(&self, id: &ScenarioId, event: HistoryEntry) -> Result<(), Fault> {
        let text = fs::read_to_string(self.log_path(id)).unwrap_or_default();
        let last = text.lines().rev().find_map(|line| serde_json::from_str::<HistoryEntry>(line).ok());
        if last
            .is_some_and(|last| last.digest == event.digest && last.event == event.event && last.reason == event.reason)
        {
            return Ok(());
        }
        let write = || -> io::Result<()> {
            let path = self.log_path(id);
            if let Some(dir) = path.parent() {
                fs::create_dir_all(dir)?;
            }
            let mut line = serde_json::to_vec(&event)?;
            line.push(b'\n');
            let lines = text.lines().count();
            if lines + 1 >= 2 * EVENTS {
                let mut all = Vec::new();
                for old in text.lines().skip(lines + 1 - EVENTS) {
                    all.extend_from_slice(old.as_bytes());
                    all.push(b'\n');
                }
                all.extend_from_slice(&line);
                return replace(&path, &all);
            }
            if !text.is_empty() && !text.ends_with('\n') {
                // A crash cut the last line short: this one must not become a part of it.
                line.insert(0, b'\n');
            }
            let mut file = fs::OpenOptions::new().create(true).append(true).open(&path)?;
            file.write_all(&line)?;
            file.sync_data()
        };
        write().map_err(|e| self.fault("be written", &e))
    }

    /// What happened, oldest first. A line that a crash cut short is left out.
    pub(crate) fn events(&self, id: &ScenarioId) -> Vec<HistoryEntry> {
        let text = fs::read_to_string(self.log_path(id)).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Removes rulesets that retention no longer asks for. What it cannot remove is left for the next time.
    pub(crate) fn retain(&self, past: &mut Past, keep: Keep, now: Time) {
        let horizon = now.minus(keep.horizon);
        let spare = past.kept.len().saturating_sub(keep.digests);
        let held = [past.active, past.pin.as_ref().map(|p| p.digest), past.pin.as_ref().and_then(|p| p.over)];
        let mut at = 0;
        past.kept.retain(|kept| {
            at += 1;
            let old =
                at <= spare && kept.until.is_some_and(|until| until < horizon) && !held.contains(&Some(kept.digest));
            !(old && self.remove(kept.digest).is_ok())
        });
    }

    fn remove(&self, digest: Digest) -> io::Result<()> {
        let folder = self.folder(digest);
        // The listing goes first: what is left after a crash in between is no ruleset.
        for result in [fs::remove_file(folder.join("ruleset.json")), fs::remove_dir_all(&folder)] {
            result.or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })?;
        }
        Ok(())
    }

    /// Erases a scenario. Its rulesets cover its id, so no other scenario has them; what they share is linked.
    pub(crate) fn forget(&self, id: &ScenarioId, past: &Past) -> Result<(), Fault> {
        let erase = || -> io::Result<()> {
            for kept in &past.kept {
                self.remove(kept.digest)?;
            }
            for path in [self.log_path(id), self.past_path(id)] {
                fs::remove_file(path).or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })?;
            }
            Ok(())
        };
        erase().map_err(|e| self.fault("be erased", &e))
    }

    fn stream_path(&self, id: &StreamId) -> PathBuf {
        self.root.join("streams").join(id.tenant.as_str()).join(format!("{}.json", id.stream))
    }
    /// Texts of the last good definitions.
    pub(crate) fn streams(&self) -> Result<BTreeMap<StreamId, Vec<u8>>, Fault> {
        let pairs = self.pairs("streams").map_err(|e| self.fault("be read", &e))?;
        let ids = pairs.into_iter().map(|(tenant, stream)| StreamId::new(tenant, stream));
        Ok(ids
            .filter_map(|id| {
                let file: StreamFile = read_json(&self.stream_path(&id)).ok()?;
                Some((id, file.text.into_bytes()))
            })
            .collect())
    }
    /// Keeps the text of a good definition.
    pub(crate) fn put_stream(&self, id: &StreamId, text: &[u8]) -> Result<(), Fault> {
        let file = StreamFile { text: String::from_utf8_lossy(text).into_owned() };
        write_json(&self.stream_path(id), &file).map_err(|e| self.fault("be written", &e))
    }
    /// Forgets a definition.
    pub(crate) fn remove_stream(&self, id: &StreamId) {
        let _gone_or_tried_again_at_the_next_start = fs::remove_file(self.stream_path(id));
    }
}

impl Past {
    /// A ruleset from the folder begins to run.
    pub(crate) fn became(&mut self, digest: Digest, now: Time) {
        self.runs(digest, now);
        self.kept.retain(|k| k.digest != digest);
        self.kept.push(Kept { digest, until: None });
    }
    /// A ruleset that is kept begins to run again; the order stays, so that going back twice goes back two.
    pub(crate) fn runs(&mut self, digest: Digest, now: Time) {
        for kept in &mut self.kept {
            if kept.digest == digest {
                kept.until = None;
            } else if Some(kept.digest) == self.active {
                kept.until = Some(now);
            }
        }
        if self.active != Some(digest) {
            self.since = Some(now);
        }
        self.active = Some(digest);
    }
    /// The ruleset before the one that runs.
    pub(crate) fn before(&self) -> Option<Digest> {
        let at = self.kept.iter().position(|k| Some(k.digest) == self.active)?;
        Some(self.kept.get(at.checked_sub(1)?)?.digest)
    }
}

/// The first problem in words, and how many more there are.
pub(crate) fn first(problems: &[weir_model::Problem]) -> String {
    match problems {
        [] => "no reason was given".to_owned(),
        [one] => one.to_string(),
        [one, rest @ ..] => format!("{one} (and {} more)", rest.len()),
    }
}

/// A ruleset's path as a path in its folder of the history: laid out as in the store.
fn in_folder(id: &ScenarioId, path: &str) -> PathBuf {
    let tenant = Path::new(id.tenant.as_str());
    match path.strip_prefix("../") {
        Some(beside) => tenant.join(beside),
        None => tenant.join(id.scenario.as_str()).join(path),
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    replace(path, &serde_json::to_vec_pretty(value)?)
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    synced(&new, bytes)?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

fn synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(n: usize) -> HistoryEntry {
        let digest = Digest::of(&n.to_le_bytes());
        HistoryEntry { digest, time: Time::EPOCH, event: "active".into(), reason: n.to_string() }
    }

    #[test]
    fn events_are_kept_once_cut_to_the_newest_and_not_lost_behind_a_torn_line() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path()).unwrap();
        let id: ScenarioId = "t/s".parse().unwrap();
        for n in [1, 2, 2] {
            disk.note(&id, event(n)).unwrap();
        }
        assert_eq!(disk.events(&id), [event(1), event(2)]);
        let text = fs::read(disk.log_path(&id)).unwrap();
        fs::write(disk.log_path(&id), &text[..text.len() - 9]).unwrap();
        disk.note(&id, event(3)).unwrap();
        assert_eq!(disk.events(&id), [event(1), event(3)]);

        let lines: Vec<_> = (0..2 * EVENTS - 1).map(|n| serde_json::to_string(&event(n)).unwrap() + "\n").collect();
        fs::write(disk.log_path(&id), lines.concat()).unwrap();
        disk.note(&id, event(2 * EVENTS)).unwrap();
        let kept = disk.events(&id);
        assert_eq!((kept.len(), &kept[0], &kept[EVENTS - 1]), (EVENTS, &event(EVENTS), &event(2 * EVENTS)));
    }
}
