//! Threads that evaluate. The engine's variables and futures are not `Send`, so a call goes to a thread of its own kind and
//! everything the engine makes stays there.
//!
//! A thread is the capacity: it is free again when its job has ended, whatever became of the caller. Jobs ask nothing of
//! the pool, so that a pool of one thread cannot wait for itself.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::sync_channel;
use std::thread::Builder;
use std::time::Duration;

use flume::{Receiver, RecvTimeoutError, Sender, bounded};
use tokio::runtime::Runtime;
use weir_model::{Fault, FaultKind};

use crate::spare;

/// Deeply nested expressions are parsed by recursion, and an overflow would end the process. `expression::MAX_NESTING`
/// is chosen for this size; only touched pages are real memory.
const STACK_BYTES: usize = 64 << 20;
/// How long after a job a thread tidies up: the batch that asked goes on, and may need this core.
const QUIET: Duration = Duration::from_millis(4);
/// Jobs that may wait, for each thread. More callers than that wait outside.
const QUEUE: usize = 4;

type Job = Box<dyn FnOnce(&Runtime) + Send>;

/// A fixed number of threads with a bounded queue.
#[derive(Debug)]
pub(crate) struct Pool {
    jobs: Sender<Job>,
}

impl Pool {
    /// Starts the threads. They end when the pool is dropped and their jobs are done.
    pub(crate) fn new(threads: usize) -> Result<Self, Fault> {
        let (jobs, queue) = bounded::<Job>(threads.saturating_mul(QUEUE));
        for i in 0..threads {
            let queue = queue.clone();
            start(format!("rule-{i}"), move |runtime| work(&queue, runtime))?;
        }
        Ok(Self { jobs })
    }

    /// Runs a job on one of the threads and waits for it.
    pub(crate) fn run<R: Send + 'static>(&self, job: impl FnOnce(&Runtime) -> R + Send + 'static) -> Result<R, Fault> {
        let (reply, answer) = sync_channel(1);
        let job: Job = Box::new(move |runtime| {
            let _ = reply.send(job(runtime));
        });
        self.jobs.send(job).map_err(|_| Fault::internal("the threads that evaluate rules are gone"))?;
        answer.recv().map_err(|_| panicked())
    }
}

/// Runs one job on a thread of its own and waits for it: loading, which may take long and must not delay a batch, nor
/// another tenant's loading.
pub(crate) fn alone<R: Send + 'static>(job: impl FnOnce(&Runtime) -> R + Send + 'static) -> Result<R, Fault> {
    let (reply, answer) = sync_channel(1);
    start("rule-load".to_owned(), move |runtime| {
        let _ = reply.send(job(runtime));
    })?;
    answer.recv().map_err(|_| panicked())
}

/// A thread that the engine can run on.
fn start(name: String, body: impl FnOnce(&Runtime) + Send + 'static) -> Result<(), Fault> {
    let failed = |e: std::io::Error| Fault::host(FaultKind::Internal, format_args!("no thread for rules: {e}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || body(&runtime)).map_err(failed)?;
    Ok(())
}

fn panicked() -> Fault {
    Fault::internal("the rule engine panicked; the log has the place")
}

fn work(queue: &Receiver<Job>, runtime: &Runtime) {
    let mut realms = 0;
    while let Some(job) = next(queue, realms) {
        // Nothing outlives a job but caches that hold whole values only, and realms that wait to be freed.
        if catch_unwind(AssertUnwindSafe(|| job(runtime))).is_err() {
            tracing::error!("the rule engine panicked; its thread goes on");
        }
        realms = realms.max(spare::unfreed());
    }
}

/// The next job. When none has come for a while, realms are freed, loaded and made.
fn next(queue: &Receiver<Job>, realms: usize) -> Option<Job> {
    loop {
        match queue.recv_timeout(QUIET) {
            Ok(job) => return Some(job),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) if spare::tidy(realms) => while queue.is_empty() && spare::tidy(realms) {},
            Err(RecvTimeoutError::Timeout) => return queue.recv().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_panic_fails_its_own_job_only() {
        let pool = Pool::new(1).expect("a pool");
        let fault = pool.run(|_| -> u8 { panic!("a defect") }).expect_err("it panicked");
        assert_eq!(fault.kind, FaultKind::Internal);
        assert_eq!(pool.run(|_| 7).expect("the thread goes on"), 7);
    }

    #[test]
    fn a_thread_that_nobody_asks_runs_sources_ahead() {
        let source = "function handler() { return 1 }";
        let pool = Pool::new(1).expect("a pool");
        pool.run(|_| spare::note(source, true, Duration::ZERO, Duration::ZERO)).expect("an answer");
        // A job comes late enough for the thread to have had nothing to do, unless the machine is busy.
        let (_keep, never) = sync_channel::<()>(0);
        let loaded = (0..1_000).any(|_| {
            let _ = never.recv_timeout(QUIET * 2);
            pool.run(|_| spare::waiting(source)).expect("an answer") == 1
        });
        assert!(loaded);
    }

    #[test]
    fn a_caller_that_is_gone_does_not_free_the_thread() {
        let pool = Arc::new(Pool::new(1).expect("a pool"));
        let (go, wait) = sync_channel::<()>(0);
        let (started, is_started) = sync_channel::<()>(0);
        let job: Job = Box::new(move |_| {
            started.send(()).expect("the test listens");
            wait.recv().expect("the test lets go");
        });
        pool.jobs.send(job).expect("the pool is there");
        is_started.recv().expect("it runs");
        let waiting = {
            let pool = pool.clone();
            std::thread::spawn(move || pool.run(|_| 1))
        };
        assert!(!waiting.is_finished(), "the only thread is busy");
        go.send(()).expect("the job listens");
        assert_eq!(waiting.join().expect("no panic").expect("an answer"), 1);
    }
}
