//! Who tells people.

use crate::fault::Fault;
use crate::id::{Name, ScenarioId};
use crate::notify::{Message, NotifyDef};
use crate::time::BoxFuture;
use std::sync::Arc;
use std::time::Duration;

/// What came of sending a message once.
#[derive(Debug, Clone, PartialEq)]
pub enum Delivery {
    /// It was taken.
    Done,
    /// Whether it was taken is not known, or it was not; it may be later.
    Later {
        /// Why.
        fault: Fault,
        /// Not before this time has passed, as the receiver asks for.
        after: Option<Duration>,
    },
    /// It will never be taken.
    Refused(Fault),
}

/// One notification sink that is open.
pub trait Notifier: Send + Sync {
    /// Sends a message. Ends by itself, within the definition's timeout; may be dropped at any time.
    fn send<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Delivery>;
}

/// Opens notification sinks.
pub trait Notifiers: Send + Sync {
    /// Opens one. Blocks; sends nothing.
    fn open(&self, scenario: &ScenarioId, name: &Name, def: &NotifyDef) -> Result<Arc<dyn Notifier>, Fault>;
}
