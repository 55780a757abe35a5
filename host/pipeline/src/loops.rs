//! A host's parts as loops: async for waiting, a bounded pool of blocking threads for work.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use weir_model::{Fault, FaultKind, ScenarioId, SinkId, StreamId, Time};

use crate::host::{Host, backoff};
use crate::notify::{Next, Notify};
use crate::scenario::Step;
use crate::sink::Sink;

/// How often the ledger is asked to drop what retention no longer asks for.
const RETAIN_EVERY: Duration = Duration::from_secs(600);

struct Pool {
    host: Arc<Host>,
    permits: Arc<Semaphore>,
}

impl Pool {
    /// The only way from async to blocking. The permit moves along: a caller that is cancelled does not free a place where
    /// work still goes on.
    async fn work<T: Send + 'static>(&self, f: impl FnOnce(&Host) -> T + Send + 'static) -> Option<T> {
        let permit = self.permits.clone().acquire_owned().await.ok()?;
        let host = self.host.clone();
        let span = tracing::Span::current();
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            span.in_scope(|| f(&host))
        });
        match task.await {
            Ok(done) => Some(done),
            Err(e) => {
                tracing::error!("a worker panicked; this is a defect: {e}");
                None
            }
        }
    }

    fn stopping(&self) -> bool {
        *self.host.stop.borrow()
    }

    /// Until it is `at`, a time of the data, but no longer than `most` as the machine counts; or until the host is asked to
    /// stop.
    async fn sleep_until(&self, at: Time, most: Duration) {
        let clock = &self.host.engines.clock;
        let mut stop = self.host.stop.subscribe();
        tokio::select! {
            () = clock.sleep_until(at) => {}
            () = clock.pause(most) => {}
            _ = stop.wait_for(|s| *s) => {}
        }
    }

    /// As long as the machine counts `by`, or until the host is asked to stop.
    async fn sleep(&self, by: Duration) {
        let mut stop = self.host.stop.subscribe();
        tokio::select! {
            () = self.host.engines.clock.pause(by) => {}
            _ = stop.wait_for(|s| *s) => {}
        }
    }
}

/// Runs the host until it is asked to stop. Then everything has come to rest: no batch is half done; streams are flushed
/// and sinks drained as far as they can be.
pub async fn run(host: Arc<Host>) {
    host.live.store(true, Ordering::Release);
    let pool = Arc::new(Pool { permits: Arc::new(Semaphore::new(host.pace.workers.max(1))), host: host.clone() });
    let mut tasks = JoinSet::new();
    let mut started = Started::default();
    tasks.spawn(upkeep(pool.clone()));
    let mut retained = host.engines.clock.elapsed();
    while !pool.stopping() {
        if let Some(Err(fault)) = pool.work(Host::reconcile).await {
            tracing::error!("looking at the rule store: {fault}");
        }
        started.spawn(&pool, &mut tasks);
        let elapsed = host.engines.clock.elapsed();
        if elapsed.saturating_sub(retained) >= RETAIN_EVERY {
            retained = elapsed;
            let horizon = host.age_now().minus(host.pace.replay_horizon);
            if let Some(Err(fault)) = pool.work(move |h| h.engines.ledger.retain(horizon)).await {
                tracing::warn!("retention: {fault}");
            }
        }
        // New outputs need their loop soon, so a commit wakes this one too.
        let mut committed = host.committed.subscribe();
        committed.borrow_and_update();
        tokio::select! {
            () = pool.sleep(host.pace.look) => {}
            _ = committed.changed() => {}
        }
    }
    while tasks.join_next().await.is_some() {}
    // People are told by the next host: they may be slow to listen, and this one is asked to end.
    match pool.work(Host::settle_tables).await {
        Some(Ok(faults)) => faults.iter().for_each(|f| tracing::warn!("while stopping: {f}")),
        Some(Err(fault)) => tracing::warn!("while stopping: {fault}"),
        None => {}
    }
}

/// Which parts have a loop.
#[derive(Default)]
struct Started {
    streams: BTreeSet<StreamId>,
    scenarios: BTreeSet<ScenarioId>,
    sinks: BTreeSet<SinkId>,
}

impl Started {
    fn spawn(&mut self, pool: &Arc<Pool>, tasks: &mut JoinSet<()>) {
        for id in pool.host.stream_ids() {
            if self.streams.insert(id.clone()) {
                tasks.spawn(ingest(pool.clone(), id.clone()));
                tasks.spawn(flush(pool.clone(), id));
            }
        }
        for id in pool.host.scenario_ids() {
            if self.scenarios.insert(id.clone()) {
                tasks.spawn(tick(pool.clone(), id));
            }
        }
        for id in pool.host.sink_ids() {
            if self.sinks.insert(id.clone()) {
                match pool.host.sink(&id) {
                    Some(sink) if matches!(*sink, Sink::Notify(_)) => tasks.spawn(notify(pool.clone(), id)),
                    _ => tasks.spawn(drain(pool.clone(), id)),
                };
            }
        }
    }
}

async fn ingest(pool: Arc<Pool>, id: StreamId) {
    let mut failures = 0;
    while !pool.stopping() {
        let stream_id = id.clone();
        let read = pool
            .work(move |host| {
                let read = host.ingest(&stream_id)?;
                Some((read, host.stream(&stream_id)?.next_due()))
            })
            .await
            .flatten();
        let Some((read, due)) = read else { return };
        match read {
            Ok(read) if !read.at_end => failures = 0,
            Ok(_) => {
                failures = 0;
                match due {
                    Some(due) => pool.sleep_until(due, pool.host.pace.look).await,
                    None => pool.sleep(pool.host.pace.idle).await,
                }
            }
            Err(fault) => {
                if failures == 0 {
                    tracing::warn!(stream = %id, "reading: {fault}");
                }
                failures += 1;
                pool.sleep(backoff(failures).get()).await;
            }
        }
    }
}

async fn flush(pool: Arc<Pool>, id: StreamId) {
    let mut failures = 0;
    while !pool.stopping() {
        pool.sleep(pool.host.pace.bronze_flush).await;
        if pool.stopping() {
            return;
        }
        let stream_id = id.clone();
        let flushed = pool.work(move |host| host.flush(&stream_id)).await.flatten();
        match flushed {
            Some(Ok(())) => failures = 0,
            Some(Err(fault)) => {
                if failures == 0 {
                    tracing::warn!(stream = %id, "appending to bronze: {fault}");
                }
                failures += 1;
                pool.sleep(backoff(failures).get()).await;
            }
            None => return,
        }
    }
}

async fn tick(pool: Arc<Pool>, id: ScenarioId) {
    let mut failures = 0;
    while !pool.stopping() {
        let scenario = id.clone();
        let stepped = pool.work(move |host| {
            let step = host.step(&scenario);
            if matches!(step, Ok(Step::Committed(_))) {
                host.make_ready(&scenario);
            }
            step
        });
        let Some(step) = stepped.await else {
            pool.sleep(Duration::from_secs(1)).await;
            continue;
        };
        match step {
            Ok(Step::Committed(_)) => failures = 0,
            // Not longer than a look: a trigger that was changed, or a scenario that came back, is seen in time.
            Ok(Step::NotDue(at)) => pool.sleep_until(at, pool.host.pace.look).await,
            Ok(Step::Waiting(_)) => pool.sleep(Duration::from_millis(50)).await,
            Ok(Step::Parked(_) | Step::Ended | Step::Paused) => pool.sleep(pool.host.pace.look).await,
            Ok(Step::Retry(fault)) => {
                tracing::warn!(scenario = %id, "batch will be tried again: {fault}");
                failures += 1;
                pool.sleep(backoff(failures).get()).await;
            }
            Err(fault) if fault.kind == FaultKind::Injected => return,
            Err(fault) => {
                tracing::error!(scenario = %id, "{fault}");
                failures += 1;
                pool.sleep(backoff(failures).get()).await;
            }
        }
    }
}

/// Not in the pool: it takes no place from batches, and there is one of it.
async fn upkeep(pool: Arc<Pool>) {
    loop {
        pool.sleep(pool.host.pace.keeping.every).await;
        if pool.stopping() {
            return;
        }
        for kept in pool.host.tables() {
            let host = pool.host.clone();
            // A fault was logged and stands in the status; the next round tries again.
            if let Err(e) = tokio::task::spawn_blocking(move || host.upkeep_of(kept)).await {
                tracing::error!("an upkeep panicked; this is a defect: {e}");
            }
            if pool.stopping() {
                return;
            }
        }
    }
}

async fn drain(pool: Arc<Pool>, id: SinkId) {
    let mut committed = pool.host.committed.subscribe();
    let mut stop = pool.host.stop.subscribe();
    let mut failures = 0;
    loop {
        committed.borrow_and_update();
        let sink = id.clone();
        let drained: Option<Result<(), Fault>> = pool.work(move |host| host.drain(&sink)).await;
        match drained {
            Some(Ok(())) => {
                failures = 0;
                tokio::select! {
                    _ = committed.changed() => {}
                    _ = stop.wait_for(|s| *s) => {}
                }
                let pace = &pool.host.pace;
                let wait = match pool.host.sink(&id).as_deref() {
                    Some(Sink::Alarms(alarms)) => {
                        let wait = pace.alarms_wait.max(pace.sink_wait);
                        alarms.waits_until(pool.host.engines.clock.elapsed().saturating_add(wait));
                        wait
                    }
                    _ => pace.sink_wait,
                };
                if !wait.is_zero() {
                    pool.sleep(wait).await;
                }
            }
            Some(Err(fault)) => {
                if failures == 0 {
                    tracing::warn!(sink = %id, whose = ?fault.whose, "sink: {fault}");
                }
                failures += 1;
                pool.sleep(backoff(failures).get()).await;
            }
            None => pool.sleep(Duration::from_secs(1)).await,
        }
        if pool.stopping() {
            return;
        }
    }
}

/// Work of a notification sink; none when it was forgotten.
async fn on_notify<T: Send + 'static>(
    pool: &Pool,
    id: &SinkId,
    f: impl FnOnce(&Notify, &Host) -> T + Send + 'static,
) -> Option<T> {
    let id = id.clone();
    let done = pool.work(move |host| match &*host.sink(&id)? {
        Sink::Notify(sink) => Some(f(sink, host)),
        Sink::Rows(_) | Sink::Alarms(_) => None,
    });
    done.await.flatten()
}

/// A message under way takes nobody's place: not one of the pool, and not that of another sink.
async fn notify(pool: Arc<Pool>, id: SinkId) {
    let mut committed = pool.host.committed.subscribe();
    let mut stop = pool.host.stop.subscribe();
    let mut failures = 0;
    while !pool.stopping() {
        committed.borrow_and_update();
        let wait = match on_notify(&pool, &id, |sink, host| sink.next(&host.engines)).await {
            Some(Ok(Next::Send(notifier, message))) => {
                let delivery = tokio::select! {
                    delivery = notifier.send(&message) => delivery,
                    _ = stop.wait_for(|s| *s) => return,
                };
                on_notify(&pool, &id, move |sink, host| sink.finish(&host.engines, delivery)).await
            }
            Some(Ok(Next::Nothing)) | None => {
                failures = 0;
                tokio::select! {
                    _ = committed.changed() => {}
                    _ = stop.wait_for(|s| *s) => {}
                }
                continue;
            }
            Some(Err(fault)) => Some(Err(fault)),
        };
        match wait {
            Some(Ok(None)) | None => failures = 0,
            Some(Ok(Some(wait))) => pool.sleep(wait).await,
            Some(Err(fault)) => {
                if failures == 0 {
                    tracing::warn!(sink = %id, whose = ?fault.whose, "sink: {fault}");
                }
                failures += 1;
                pool.sleep(backoff(failures).get()).await;
            }
        }
    }
}
