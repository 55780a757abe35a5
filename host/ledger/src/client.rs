//! The caller's side of the writer, and the journals of streams.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};

use weir_model::port::Journal;
use weir_model::{Fault, StreamId};

use crate::committer::{Job, Message};
use crate::keys::{self, Parts};
use crate::slot::Core;
use crate::store::{Ks, Source, ledger_fault};
use crate::tasks::{Reply, Task};

/// What is read from, and the way to the writer.
#[derive(Debug)]
pub(crate) struct Client {
    pub core: Arc<Core>,
    pub outbox: SyncSender<Message>,
}

impl Client {
    /// Lets the writer do something, and waits for its answer.
    pub(crate) fn ask(&self, task: Task) -> Result<Reply, Fault> {
        self.send(task)?.get()
    }

    /// Lets the writer do something. What is sent from one thread is done in order.
    pub(crate) fn send(&self, task: Task) -> Result<Answer, Fault> {
        let (reply, answer) = sync_channel(1);
        self.outbox.send(Message::Job(Job { task, reply })).map_err(|_| stopped())?;
        Ok(Answer(answer))
    }
}

/// An answer that will come.
pub(crate) struct Answer(Receiver<Result<Reply, Fault>>);

impl Answer {
    /// Waits for it.
    pub(crate) fn get(self) -> Result<Reply, Fault> {
        self.0.recv().map_err(|_| stopped())?
    }
}

fn stopped() -> Fault {
    ledger_fault("the ledger's writer has stopped")
}

/// A stream's list. Does not keep the ledger open.
pub(crate) struct StreamJournal {
    pub client: Weak<Client>,
    pub id: StreamId,
}

impl StreamJournal {
    fn client(&self) -> Result<Arc<Client>, Fault> {
        self.client.upgrade().ok_or_else(|| ledger_fault("the ledger was closed"))
    }
}

impl Journal for StreamJournal {
    fn entries(&self) -> Result<Vec<(u64, Vec<u8>)>, Fault> {
        let prefix = keys::stream_journal(&self.id);
        self.client()?.core.read(|pinned| {
            pinned
                .scan(Ks::Streams, &keys::prefixed(&prefix), usize::MAX)?
                .into_iter()
                .map(|(key, value)| {
                    let number = Parts(&key[prefix.len()..])
                        .number()
                        .ok_or_else(|| ledger_fault(format_args!("the journal of {} cannot be read", self.id)))?;
                    Ok((number, value.to_vec()))
                })
                .collect()
        })
    }

    fn put(&self, number: u64, bytes: &[u8]) -> Result<(), Fault> {
        let task = Task::Put {
            ks: Ks::Streams,
            key: keys::stream_entry(&self.id, number),
            value: bytes.into(),
            durable: true,
        };
        self.client()?.ask(task).map(drop)
    }

    fn remove(&self, number: u64) -> Result<(), Fault> {
        let key = keys::stream_entry(&self.id, number);
        let task = Task::Remove(vec![(Ks::Streams, key)]);
        self.client()?.ask(task).map(drop)
    }
}
