//! A table's upkeep: rows that are too old go, small files are put together, and files that no readable version has are
//! taken away. Rows are read and written beside the writer, which only puts the entry; what it meanwhile took away or
//! replaced is found there and the work thrown away.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use tokio::sync::mpsc;
use weir_model::port::{Upkeep, Upkept};
use weir_model::{Fault, FaultKind, FaultPoints, Time};

use super::choose::{Candidate, Sizes, merges};
use super::entry::{Reason, entry};
use super::files::LiveFile;
use super::folder::{Folder, Put};
use super::held::{Held, read_files};
use super::rewrite::{FileRows, RowWriter, discard};
use super::writer::{Ask, Attempt, TRIES, Writer, same_table};
use super::{Settings, ask};

/// Bytes of files that are put together in one call: it comes again.
const CALL_BYTES: u64 = 128 << 20;

/// What the writer knows of a table that can be kept.
#[derive(Debug)]
pub(crate) struct Survey {
    id: String,
    schema: SchemaRef,
    append_only: bool,
    files: Vec<LiveFile>,
}

impl Survey {
    /// A time at or before that of the earliest row.
    pub fn oldest(&self, column: &str) -> Option<Time> {
        let times = self.files.iter().map(|f| f.stats().times(column).map_or(Time(i64::MIN), |(oldest, _)| oldest));
        times.min()
    }
}

/// Files that take the place of others, for the log.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    reason: Reason,
    removed: Vec<LiveFile>,
    added: Vec<LiveFile>,
}

/// Keeps one table. Tables that we would not write by our own log entries are left to those who made them. `looks`: also
/// for files that nobody can read any more.
pub(crate) async fn keep(
    folder: &Folder,
    settings: &Arc<Settings>,
    faults: &Arc<dyn FaultPoints>,
    asks: &mpsc::Sender<Ask>,
    what: &Upkeep,
    looks: bool,
) -> Result<Upkept, Fault> {
    let mut done = Upkept::default();
    let Some(mut survey) = ask(asks, Ask::Survey).await? else { return Ok(done) };
    done.files_before = survey.files.len();
    if let Some(keep) = what.keep
        && !survey.append_only
    {
        let before = what.now.minus(keep);
        let old: Vec<LiveFile> =
            survey.files.iter().filter(|f| latest(f, what.column.as_deref()) < before).cloned().collect();
        if !old.is_empty() {
            let rows: u64 = old.iter().filter_map(|f| f.stats().rows()).sum();
            let column = what.column.as_deref().unwrap_or("written at");
            let reason = Reason::Expire(format!("{column} < '{before}'"));
            let gone: HashSet<String> = old.iter().map(|f| f.path.clone()).collect();
            let change = Change { reason, removed: old, added: Vec::new() };
            if ask(asks, |reply| Ask::Change(survey.id.clone(), change, reply)).await? {
                done.expired_files = gone.len();
                done.expired_rows = rows;
                survey.files.retain(|f| !gone.contains(&f.path));
            }
        }
    }
    if what.merge {
        merge(folder, settings, faults, asks, what, &survey, &mut done).await?;
    }
    if looks {
        done.removed_files = vacuum(folder, settings, asks, what.now).await?;
    }
    if let Some(survey) = ask(asks, Ask::Survey).await? {
        done.files = survey.files.len();
        done.bytes = survey.files.iter().map(|f| f.size).sum();
        done.rows = survey.files.iter().filter_map(|f| f.stats().rows()).sum();
    }
    Ok(done)
}

/// The latest row of a file, or when it was made where no column tells.
fn latest(file: &LiveFile, column: Option<&str>) -> Time {
    let bounds = column.and_then(|column| file.stats().times(column));
    bounds.map_or(Time(file.modified.saturating_mul(1000)), |(_, latest)| latest)
}

async fn merge(
    folder: &Folder,
    settings: &Arc<Settings>,
    faults: &Arc<dyn FaultPoints>,
    asks: &mpsc::Sender<Ask>,
    what: &Upkeep,
    survey: &Survey,
    done: &mut Upkept,
) -> Result<(), Fault> {
    let candidate = |file: &LiveFile| Candidate {
        size: file.size,
        latest: latest(file, what.column.as_deref()),
        modified: file.modified,
    };
    let candidates: Vec<Candidate> = survey.files.iter().map(candidate).collect();
    let sizes = Sizes { file_bytes: settings.file_bytes, at_least: settings.merge_files };
    let mut bytes = 0u64;
    for group in merges(&candidates, sizes, what.now.micros() / 1000) {
        if bytes > CALL_BYTES {
            break;
        }
        let removed: Vec<LiveFile> = group.into_iter().map(|i| survey.files[i].clone()).collect();
        bytes = bytes.saturating_add(removed.iter().map(|f| f.size).sum());
        let (beside, schema, target) = (folder.clone(), survey.schema.clone(), settings.file_bytes);
        let old = removed.clone();
        let work = move || together(&beside, &schema, target, &old);
        let added = tokio::task::spawn_blocking(work).await.map_err(Fault::internal)??;
        faults.pass("upkeep.file-written")?;
        let merged = removed.len();
        let change = Change { reason: Reason::Compact(target), removed, added: added.clone() };
        if ask(asks, |reply| Ask::Change(survey.id.clone(), change, reply)).await? {
            done.merged_files += merged;
        } else {
            discard(folder, &added);
        }
    }
    Ok(())
}

/// The rows of some files in one, or in a few.
fn together(folder: &Folder, schema: &SchemaRef, target: u64, files: &[LiveFile]) -> Result<Vec<LiveFile>, Fault> {
    // Twice the wanted size at most: the sizes are known, and a leftover would be a small file again.
    let mut writer = RowWriter::new(folder, schema, target.saturating_mul(2));
    for file in files {
        for batch in FileRows::open(folder, schema, file)? {
            writer.write(&batch?)?;
        }
    }
    let mut added = writer.finish()?;
    // As old as its youngest rows, so that rows without a time column of their own grow old.
    let modified = files.iter().map(|f| f.modified).max().unwrap_or_default();
    added.iter_mut().for_each(|file| file.modified = modified);
    Ok(added)
}

/// Takes files away that the table does not have and that no version has which can still be read.
async fn vacuum(folder: &Folder, settings: &Settings, asks: &mpsc::Sender<Ask>, now: Time) -> Result<usize, Fault> {
    let grace = settings.history_of(&folder.name);
    let before = now.minus(grace).micros() / 1000;
    // Listed before the writer is asked: what it is about to add is then either not listed or known to it.
    let beside = folder.clone();
    let listed = tokio::task::spawn_blocking(move || beside.row_files()).await.map_err(Fault::internal)??;
    let Some(survey) = ask(asks, Ask::Survey).await? else { return Ok(0) };
    let live: HashSet<&str> = survey.files.iter().map(|f| f.path.as_str()).collect();
    let unused: Vec<String> = listed
        .into_iter()
        .filter(|(name, modified)| !live.contains(name.as_str()) && *modified <= before)
        .map(|(name, _)| name)
        .collect();
    if unused.is_empty() {
        return Ok(0);
    }
    let folder = folder.clone();
    let work = move || {
        let lately = folder.removed_since(before)?;
        let old = unused.iter().filter(|name| !lately.contains(name.as_str()));
        Ok(old.map(|name| folder.remove_rows(name)).count())
    };
    tokio::task::spawn_blocking(work).await.map_err(Fault::internal)?
}

impl Writer {
    /// What there is to keep; none for a table that has to be left to others.
    pub(super) async fn survey(&mut self) -> Result<Option<Survey>, Fault> {
        if !self.current_files().await? {
            return Ok(None);
        }
        let Some(held) = &self.held else { return Ok(None) };
        Ok(Some(Survey {
            id: held.id.clone(),
            schema: held.schema.clone(),
            append_only: held.append_only,
            files: held.files.clone().unwrap_or_default(),
        }))
    }

    /// The table as it is now, with its files. False for one that has to be left to others.
    async fn current_files(&mut self) -> Result<bool, Fault> {
        let folder = self.folder.clone();
        for _ in 0..TRIES {
            self.current(&[]).await?;
            let Some(held) = &mut self.held else { continue };
            if !held.plain {
                return Ok(false);
            }
            match read_files(&folder, held).await {
                // Another writer went on and cleaned up behind itself: only later versions can be read now.
                Err(_) if !held.is_latest(&folder)? => self.held = None,
                done => return done,
            }
        }
        Err(self.outrun())
    }

    /// Puts other files in the place of some. False when not all of these are there any more: nothing has changed then.
    pub(super) async fn change(&mut self, id: &str, change: &Change) -> Result<bool, Fault> {
        for _ in 0..TRIES {
            let folder = self.folder.clone();
            let known = self.current_files().await?;
            // Taken out: whatever goes wrong below leaves the table to be read anew.
            let Some(held) = self.held.take() else { continue };
            same_table(&folder, &held, id)?;
            let there = known && has(&held, &change.removed);
            if !there {
                self.held = Some(held);
                return Ok(false);
            }
            let (faults, version, work) = (self.faults.clone(), held.version + 1, change.clone());
            let put = move || put(&folder, faults.as_ref(), version, work);
            match tokio::task::spawn_blocking(put).await.map_err(Fault::internal)? {
                Ok(Attempt::Taken) => {}
                Ok(done) => {
                    self.done(held, done, &[]);
                    return Ok(true);
                }
                Err(fault) => {
                    if fault.kind == FaultKind::Injected || !self.changed(change).await {
                        return Err(fault);
                    }
                    return Ok(true);
                }
            }
        }
        Err(self.outrun())
    }

    /// Whether a change that answered with an error is known to be in the log all the same.
    async fn changed(&mut self, change: &Change) -> bool {
        let folder = self.folder.clone();
        if self.current(&[]).await.is_err() {
            return false;
        }
        let Some(held) = &mut self.held else { return false };
        matches!(read_files(&folder, held).await, Ok(true))
            && !change.removed.iter().any(|f| has(held, std::slice::from_ref(f)))
    }
}

fn has(held: &Held, files: &[LiveFile]) -> bool {
    let there: HashSet<&str> = held.files.iter().flatten().map(|f| f.path.as_str()).collect();
    files.iter().all(|f| there.contains(f.path.as_str()))
}

fn put(folder: &Folder, faults: &dyn FaultPoints, version: u64, change: Change) -> Result<Attempt, Fault> {
    let Change { reason, removed, added } = change;
    let staged = folder.stage(None, &entry(&reason, &added, &removed, &[])?)?;
    match folder.put_entry(version, &staged)? {
        Put::Done(stamp) => {
            faults.pass("upkeep.entry-put")?;
            Ok(Attempt::Done { stamp, added, removed })
        }
        Put::Taken => Ok(Attempt::Taken),
    }
}
