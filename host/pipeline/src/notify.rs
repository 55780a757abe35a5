//! A notification sink: tells somebody of changes of alarms, in order, each at least once and with an identity by which a
//! second time is recognised.
//!
//! Three steps that a loop takes in turn: [`Notify::next`] and [`Notify::finish`] block shortly on the ledger, and between
//! them the message is under way, which may take as long as its receiver likes and holds nobody's place.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_model::batch::{DEAD_LETTERS, SinkCursor, Stage};
use weir_model::notify::{HeaderPart, Message, NotifyDef, NotifyKind, OnFull, granted};
use weir_model::port::{Append, Delivery, Notifier};
use weir_model::ruleset::Grants;
use weir_model::{BatchId, Digest, Fault, FaultKind, Name, SinkId};

use crate::drain::{Drained, app};
use crate::engines::Engines;
use crate::host::backoff;
use crate::notices;
use crate::output::{self, Letter};

/// Most bytes of outputs that are looked at together.
const PAGE_BYTES: usize = 32 << 20;
/// Changes of one batch are fewer than this, so that (N, index) is one number that grows.
const INDEX_BITS: u32 = 20;

/// One notification sink of one live run.
pub struct Notify {
    sink: SinkId,
    name: Name,
    inner: Mutex<Inner>,
    fault: Mutex<Option<Fault>>,
    dead: AtomicU64,
}

#[derive(Default)]
struct Inner {
    queue: VecDeque<Waiting>,
    /// What has been delivered or put aside. None: nobody has looked yet.
    place: Option<i64>,
    open: Option<Open>,
    failures: u32,
}

struct Waiting {
    message: Message,
    ruleset: Digest,
    /// The last one of its batch.
    last: bool,
}

#[derive(Clone)]
struct Open {
    ruleset: Digest,
    def: Arc<NotifyDef>,
    grants: Grants,
    notifier: Option<Arc<dyn Notifier>>,
}

/// What is to be done next.
pub enum Next {
    /// Send this.
    Send(Arc<dyn Notifier>, Message),
    /// There is nothing.
    Nothing,
}

impl Notify {
    /// Opens the sink `name`, whose output is `sink`'s.
    pub fn new(sink: SinkId, name: Name) -> Self {
        let (inner, fault) = (Mutex::default(), Mutex::new(None));
        Self { sink, name, inner, fault, dead: AtomicU64::new(0) }
    }

    /// Sends what waits until nothing does, or something cannot be delivered now. Blocks.
    pub fn drain(&self, engines: &Engines) -> Result<Drained, Fault> {
        loop {
            match self.next(engines)? {
                Next::Nothing => return Ok(Drained::Nothing),
                Next::Send(notifier, message) => {
                    let delivery = engines.runtime.block_on(notifier.send(&message));
                    if self.finish(engines, delivery)?.is_some() {
                        return Err(self.fault().unwrap_or_else(|| Fault::internal("a delivery failed for no reason")));
                    }
                }
            }
        }
    }

    /// Finds the message that is due; what must not be sent any more becomes a dead letter. Blocks shortly.
    pub fn next(&self, engines: &Engines) -> Result<Next, Fault> {
        let mut inner = self.lock();
        let next = self.next_inner(&mut inner, engines).map_err(|f| f.at(Stage::Sink));
        if let Err(fault) = &next {
            inner.failures = inner.failures.saturating_add(1);
            self.show(Some(fault.clone()));
        }
        next
    }

    /// Takes note of what came of the message. Answers how long to wait before the next attempt, if it has to be made
    /// again. Blocks shortly.
    pub fn finish(&self, engines: &Engines, delivery: Delivery) -> Result<Option<Duration>, Fault> {
        let mut inner = self.lock();
        let finished = self.finish_inner(&mut inner, engines, delivery).map_err(|f| f.at(Stage::Sink));
        if let Err(fault) = &finished {
            inner.failures = inner.failures.saturating_add(1);
            self.show(Some(fault.clone()));
        }
        finished
    }

    fn finish_inner(
        &self,
        inner: &mut Inner,
        engines: &Engines,
        delivery: Delivery,
    ) -> Result<Option<Duration>, Fault> {
        match delivery {
            Delivery::Done => {
                engines.faults.pass("sink.after-append")?;
                self.count("delivered", 1);
                self.passed(inner, engines, 1)?;
            }
            Delivery::Refused(fault) => {
                tracing::warn!(sink = %self.sink, "a notification was refused: {fault}");
                self.put_aside(inner, engines, 1, "refused", &fault.to_string())?;
            }
            Delivery::Later { fault, after } => {
                inner.failures = inner.failures.saturating_add(1);
                if inner.failures == 1 {
                    tracing::warn!(sink = %self.sink, whose = ?fault.whose, "a notification waits: {fault}");
                }
                self.show(Some(fault.at(Stage::Sink)));
                return Ok(Some(backoff(inner.failures).get().max(after.unwrap_or_default())));
            }
        }
        inner.failures = 0;
        self.show(None);
        Ok(None)
    }

    fn next_inner(&self, inner: &mut Inner, engines: &Engines) -> Result<Next, Fault> {
        loop {
            // After a failure what came meanwhile counts as backlog too.
            if inner.queue.is_empty() || inner.failures > 0 {
                self.load(inner, engines)?;
            }
            let Some(front) = inner.queue.front() else {
                self.show(None);
                inner.failures = 0;
                return Ok(Next::Nothing);
            };
            let open = match self.definition(inner.open.as_ref(), engines, front.ruleset) {
                Ok(open) => open,
                Err(fault) if fault.kind == FaultKind::NotReplayable => {
                    self.put_aside(inner, engines, 1, "expired", "its ruleset is not kept any more")?;
                    continue;
                }
                Err(fault) => return Err(fault),
            };
            let gone = expired(&inner.queue, &open.def, engines);
            if let Some((count, why)) = gone {
                self.put_aside(inner, engines, count, "expired", &why)?;
                continue;
            }
            if let Err(why) = self.allowed(&open, engines) {
                self.put_aside(inner, engines, 1, "refused", &why)?;
                continue;
            }
            let message = front.message.clone();
            let notifier = match &open.notifier {
                Some(notifier) => notifier.clone(),
                None => engines.notifiers.open(&self.sink.key.scenario, &self.name, &open.def)?,
            };
            inner.open = Some(Open { notifier: Some(notifier.clone()), ..open });
            engines.faults.pass("sink.before-append")?;
            return Ok(Next::Send(notifier, message));
        }
    }

    /// Reads what waits in the ledger.
    fn load(&self, inner: &mut Inner, engines: &Engines) -> Result<(), Fault> {
        let after = engines.ledger.cursor(&self.sink)?.map(|c| c.drained_to);
        let outputs = engines.ledger.outputs(&self.sink, after, PAGE_BYTES)?;
        inner.queue.clear();
        if outputs.is_empty() {
            return Ok(());
        }
        let place = match inner.place {
            Some(place) => place,
            // The host may have ended between a dead letter and the note of it. What was delivered before such an end
            // is sent again, and known by its identity.
            None => *inner.place.insert(self.put_aside_before(engines)?),
        };
        let app = app(engines, &self.sink)?;
        let mut passed = None;
        for output in &outputs {
            let mut messages = notices::messages(output, &app)?;
            messages.retain(|m| number(m) > place);
            let last = messages.len().saturating_sub(1);
            if messages.is_empty() && inner.queue.is_empty() {
                passed = Some(output.batch);
            }
            let waiting = |(i, message)| Waiting { message, ruleset: output.ruleset, last: i == last };
            inner.queue.extend(messages.into_iter().enumerate().map(waiting));
        }
        if let Some(batch) = passed {
            self.advance(engines, batch)?;
        }
        Ok(())
    }

    /// How it is to be sent, by the ruleset that made it.
    fn definition(&self, open: Option<&Open>, engines: &Engines, ruleset: Digest) -> Result<Open, Fault> {
        if let Some(open) = open.filter(|o| o.ruleset == ruleset) {
            return Ok(open.clone());
        }
        let prepared = engines.store.stored(&self.sink.key.scenario, ruleset)?;
        let def = prepared.ruleset.manifest.notify.get(&self.name).ok_or_else(|| {
            Fault::internal(format_args!("ruleset {} has no sink notify.{}", ruleset.short(), self.name))
        })?;
        let grants = prepared.ruleset.tenant.grants.clone();
        Ok(Open { ruleset, def: Arc::new(def.clone()), grants, notifier: None })
    }

    /// Whether the tenant may still do that: what an operator takes away holds at once, also for what was made before.
    fn allowed(&self, open: &Open, engines: &Engines) -> Result<(), String> {
        if open.def.kind != NotifyKind::Webhook {
            return Ok(());
        }
        let active = engines.store.scenario(&self.sink.key.scenario).and_then(|v| v.active);
        let now = active.map(|p| p.ruleset.tenant.grants.clone());
        for grants in [Some(&open.grants), now.as_ref()].into_iter().flatten() {
            granted(open.def.url.as_deref().unwrap_or_default(), &grants.webhooks)?;
            for text in open.def.headers.values() {
                for part in text.parts()? {
                    if let HeaderPart::Variable(name) = part
                        && !grants.env.iter().any(|g| g == name)
                    {
                        return Err(format!("the variable {name} is not granted"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes the first `count` of what waits dead letters, in one transaction.
    fn put_aside(
        &self,
        inner: &mut Inner,
        engines: &Engines,
        count: usize,
        result: &'static str,
        why: &str,
    ) -> Result<(), Fault> {
        let Some(last) = inner.queue.get(count.saturating_sub(1)).map(|w| number(&w.message)) else {
            return Ok(());
        };
        let (origin, source) = (self.sink.key.scenario.to_string(), format!("notify:{}", self.name));
        let reason = format!("not delivered: {why}");
        let bodies: Vec<String> = inner.queue.iter().take(count).map(|w| w.message.json()).collect();
        let letters = inner.queue.iter().zip(&bodies).map(|(w, body)| Letter {
            origin: origin.clone(),
            source: &source,
            partition: 0,
            offset: w.message.batch.0,
            time: Some(w.message.time),
            reason: &reason,
            raw: body,
        });
        let rows = output::letters_batch(letters)?;
        let app = self.dead_app(engines)?;
        let table = self.dead_table(engines)?;
        engines.runtime.block_on(table.append(vec![Append { app, version: last, rows }]))?;
        self.dead.fetch_add(count as u64, Ordering::Relaxed);
        self.count(result, count as u64);
        self.passed(inner, engines, count)
    }

    fn put_aside_before(&self, engines: &Engines) -> Result<i64, Fault> {
        let table = self.dead_table(engines)?;
        let app = self.dead_app(engines)?;
        Ok(engines.runtime.block_on(table.held(&app))?.unwrap_or(-1))
    }

    fn dead_app(&self, engines: &Engines) -> Result<String, Fault> {
        Ok(format!("{}/dead", app(engines, &self.sink)?))
    }

    fn dead_table(&self, engines: &Engines) -> Result<Arc<dyn weir_model::port::Table>, Fault> {
        let name = Name::new(DEAD_LETTERS).map_err(Fault::internal)?;
        let tenant = &self.sink.key.scenario.tenant;
        engines.runtime.block_on(engines.lake.table(tenant, &name, output::dead_letter_schema()))
    }

    /// The first `count` are done with.
    fn passed(&self, inner: &mut Inner, engines: &Engines, count: usize) -> Result<(), Fault> {
        let mut batch = None;
        for waiting in inner.queue.drain(..count.min(inner.queue.len())) {
            inner.place = Some(number(&waiting.message));
            if waiting.last {
                batch = Some(waiting.message.batch);
            }
        }
        match batch {
            Some(batch) => {
                // If this fails, the queue is read again, and the place says what of it is done with.
                let advanced = self.advance(engines, batch);
                if advanced.is_err() {
                    inner.queue.clear();
                }
                advanced
            }
            None => Ok(()),
        }
    }

    fn advance(&self, engines: &Engines, batch: BatchId) -> Result<(), Fault> {
        engines.ledger.advance(&self.sink, &SinkCursor { drained_to: batch, table_id: None })?;
        engines.faults.pass("sink.cursor-moved")
    }

    fn count(&self, result: &'static str, n: u64) {
        let id = &self.sink.key.scenario;
        metrics::counter!("weir_notifications_total", "tenant" => id.tenant.to_string(),
            "scenario" => id.scenario.to_string(), "sink" => self.name.to_string(), "result" => result)
        .increment(n);
    }

    /// Why the last message was not delivered, if it was not.
    pub fn fault(&self) -> Option<Fault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Messages that became dead letters since the host was started.
    pub fn dead_letters(&self) -> u64 {
        self.dead.load(Ordering::Relaxed)
    }

    fn show(&self, fault: Option<Fault>) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// (N, index) as one number.
fn number(message: &Message) -> i64 {
    let n = i64::try_from(message.batch.0).unwrap_or(i64::MAX >> INDEX_BITS).min(i64::MAX >> INDEX_BITS);
    (n << INDEX_BITS) | i64::from(message.index.min((1 << INDEX_BITS) - 1))
}

/// How many of the first are too many or too old, and why.
fn expired(queue: &VecDeque<Waiting>, def: &NotifyDef, engines: &Engines) -> Option<(usize, String)> {
    if def.on_full() == OnFull::Wait {
        return None;
    }
    let oldest = engines.clock.now().minus(def.backlog_age.get());
    let old = queue.iter().take_while(|w| w.message.time < oldest).count();
    if old > 0 {
        return Some((old, format!("it waited for longer than {}", def.backlog_age)));
    }
    let most = usize::try_from(def.backlog_rows).unwrap_or(usize::MAX);
    let over = queue.len().saturating_sub(most);
    (over > 0).then(|| (over, format!("more than {most} notifications waited")))
}
