//! The writer: one thread that turns what waits into one atomic batch and one sync, and finds out what became of a batch
//! that failed.
//!
//! While a group is being synced the next one gathers, so that a thousand scenarios share an fsync and a lone one does
//! not wait for company. Everything is staged here, on one thread: before-images, counters and the order of N need no
//! lock.
//!
//! If the process dies
//! - before the write: nothing of the group is there, nobody has got an answer;
//! - after it and before the sync: the journal ends with the group as a whole or without it; nobody has got an answer,
//!   and nobody has seen it, because readers only see what is synced;
//! - after the sync: the group is there. A caller without an answer commits again and gets the same digest.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender};

use weir_model::{Fault, FaultKind, Stage};

use crate::slot::Core;
use crate::staging::Staging;
use crate::store::{Store, disk_fault};
use crate::tasks::{Reply, Task};

/// A task and who waits for it.
pub(crate) struct Job {
    pub task: Task,
    pub reply: SyncSender<Result<Reply, Fault>>,
}

/// What the writer is told.
pub(crate) enum Message {
    Job(Job),
    Stop,
}

/// Why a group did not get through.
enum Stop {
    /// A test asked for it: to look as if the process had ended here.
    Injected(Fault),
    /// The store failed; what became of the group is not known.
    Store(Fault),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Store(fault)
    }
}

/// Room that a group must leave on the disk beyond twice its own size.
const HEADROOM: u64 = 1 << 20;

/// Runs until it is told to stop or nobody is left to tell it anything.
pub(crate) fn run(core: Arc<Core>, inbox: Receiver<Message>) {
    let mut next = None;
    loop {
        let first = match next.take().map_or_else(|| inbox.recv(), Ok) {
            Ok(Message::Job(job)) => job,
            Ok(Message::Stop) | Err(_) => return,
        };
        let mut bytes = first.task.bytes();
        let mut group = vec![first];
        while group.len() < core.config.group_tasks {
            match inbox.try_recv() {
                Ok(Message::Job(job)) if bytes + job.task.bytes() <= core.config.group_bytes => {
                    bytes += job.task.bytes();
                    group.push(job);
                }
                Ok(message) => {
                    next = Some(message);
                    break;
                }
                Err(_) => break,
            }
        }
        Group { core: &core, jobs: group, bytes: bytes as u64 }.write();
    }
}

struct Group<'a> {
    core: &'a Core,
    jobs: Vec<Job>,
    bytes: u64,
}

impl Group<'_> {
    /// Writes the group, again when the store fails, and answers everybody.
    fn write(mut self) {
        let mut last = None;
        for _ in 0..=self.core.config.retries {
            match self.attempt() {
                Ok(()) => return,
                Err(Stop::Injected(fault)) => {
                    self.core.close();
                    return self.answer_all(|_| Err(fault.clone()));
                }
                Err(Stop::Store(fault)) => {
                    tracing::warn!(%fault, tasks = self.jobs.len(), "a group failed; opening the store again to see what became of it");
                    self.core.close();
                    last = Some(fault);
                }
            }
        }
        let fault = last.unwrap_or_else(|| Fault::internal("a group was never tried"));
        self.conclude(fault);
    }

    /// One attempt. What has been answered is no longer in `jobs` after it.
    fn attempt(&mut self) -> Result<(), Stop> {
        let core = self.core;
        core.with_store(|store| self.attempt_with(store))
    }

    fn attempt_with(&mut self, store: &Store) -> Result<(), Stop> {
        let core = self.core;
        let mut staging = Staging::new(store);
        let mut answers = Vec::with_capacity(self.jobs.len());
        let (mut durable, mut commits) = (false, Vec::new());
        for job in &mut self.jobs {
            let answer = job.task.stage(&mut staging);
            let writes = match &answer {
                Ok(reply) => {
                    let writes = staging.keep();
                    if let Reply::Landed(landed) = reply {
                        commits.push(*landed);
                    }
                    durable |= writes && job.task.is_durable();
                    writes
                }
                Err(_) => {
                    staging.undo();
                    false
                }
            };
            answers.push((answer, writes));
        }
        let writes = staging.into_writes();
        if !writes.is_empty() {
            if core.lacks(2 * self.bytes + HEADROOM) {
                let full = disk_fault("there is no room for what is to be written");
                for (answer, writes) in &mut answers {
                    if *writes {
                        *answer = Err(full.clone());
                    }
                }
                self.answer(answers);
                return Ok(());
            }
            let failed = |e: fjall::Error| core.write_fault(&e, self.bytes);
            store.settle().map_err(failed)?;
            self.sabotaged(|| store.write(&writes)).map_err(failed)?;
            if !commits.is_empty() {
                core.faults.pass("commit.written").map_err(Stop::Injected)?;
            }
            if durable {
                store.sync().map_err(failed)?;
                core.counters.syncs.fetch_add(1, Relaxed);
            }
        }
        for landed in &commits {
            if let Err(error) = core.witness.note(landed.run, landed.birth, landed.n) {
                tracing::warn!(%error, "a head could not be noted; a cut of the journal could go unseen");
            }
        }
        if !commits.is_empty() {
            core.faults.pass("commit.synced").map_err(Stop::Injected)?;
        }
        store.publish();
        let counters = &core.counters;
        counters.groups.fetch_add(1, Relaxed);
        counters.commits.fetch_add(commits.len() as u64, Relaxed);
        counters.largest_group.fetch_max(self.jobs.len() as u64, Relaxed);
        self.answer(answers);
        Ok(())
    }

    #[cfg(not(test))]
    fn sabotaged(&self, write: impl FnOnce() -> Result<(), fjall::Error>) -> Result<(), fjall::Error> {
        write()
    }

    /// A test can make a write fail before or after it has happened.
    #[cfg(test)]
    fn sabotaged(&self, write: impl FnOnce() -> Result<(), fjall::Error>) -> Result<(), fjall::Error> {
        self.core.sabotage.around(write)
    }

    /// All attempts have failed. The store is opened once more, only to look: what is there has happened, what is not
    /// there has not, and if it cannot be opened nobody knows.
    fn conclude(mut self, fault: Fault) {
        let core = self.core;
        let looked = core.with_store(|store| {
            let pinned = store.published();
            let answers = self
                .jobs
                .iter()
                .map(|job| {
                    let found = match &job.task {
                        Task::Commit(prepared) => prepared.look(&pinned)?,
                        _ => None,
                    };
                    Ok(found.map(Reply::Landed).ok_or_else(|| fault.clone()))
                })
                .collect::<Result<Vec<_>, Fault>>()?;
            self.answer(answers.into_iter().map(|a| (a, false)).collect());
            Ok::<_, Fault>(())
        });
        if let Err(blind) = looked {
            self.answer_all(|task| {
                Err(match task {
                    Task::Commit(_) => Fault::host(
                        FaultKind::Unknown,
                        format_args!("nobody knows whether the batch was committed: {fault}; then, to look: {blind}"),
                    )
                    .file("ledger")
                    .fix("commit the same batch again"),
                    _ => blind.clone(),
                })
            });
        }
    }

    fn answer(&mut self, answers: Vec<(Result<Reply, Fault>, bool)>) {
        for (job, (answer, _)) in self.jobs.drain(..).zip(answers) {
            job.answer(answer);
        }
    }

    fn answer_all(&mut self, with: impl Fn(&Task) -> Result<Reply, Fault>) {
        for job in self.jobs.drain(..) {
            let answer = with(&job.task);
            job.answer(answer);
        }
    }
}

impl Job {
    fn answer(self, answer: Result<Reply, Fault>) {
        let answer = match self.task {
            Task::Commit(_) => answer.map_err(|fault| fault.at(Stage::Commit)),
            _ => answer,
        };
        // Whoever asked may have gone; what was written stays written.
        let _ = self.reply.send(answer);
    }
}
