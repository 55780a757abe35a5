//! Notification sinks: webhooks, and files of JSON lines.

mod file;
mod webhook;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use weir_model::notify::{NotifyDef, NotifyKind};
use weir_model::port::{Notifier, Notifiers};
use weir_model::{Clock, Fault, Name, ScenarioId};

/// Looks up a variable of the environment.
pub type Environment = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Opens notification sinks.
pub struct Tellers {
    folder: PathBuf,
    environment: Arc<Environment>,
    clock: Arc<dyn Clock>,
    /// Made when the first webhook is opened: it reads the machine's certificates.
    client: Mutex<Option<reqwest::Client>>,
}

impl Tellers {
    /// `folder`: where files are. `environment`: what `${NAME}` in a header stands for.
    pub fn new(folder: PathBuf, environment: Arc<Environment>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { folder, environment, clock, client: Mutex::new(None) })
    }

    fn client(&self) -> Result<reqwest::Client, Fault> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        match &*client {
            Some(client) => Ok(client.clone()),
            None => Ok(client.insert(webhook::client()?).clone()),
        }
    }
}

impl Notifiers for Tellers {
    fn open(&self, scenario: &ScenarioId, name: &Name, def: &NotifyDef) -> Result<Arc<dyn Notifier>, Fault> {
        match def.kind {
            NotifyKind::Webhook => {
                let opened = webhook::Webhook::new(self.client()?, def, &*self.environment, self.clock.clone());
                Ok(Arc::new(opened.map_err(|f| f.file(format_args!("{scenario}/scenario.toml")).prefixed(name))?))
            }
            NotifyKind::File => {
                let folder = self.folder.join(scenario.tenant.as_str()).join(scenario.scenario.as_str());
                Ok(Arc::new(file::LineFile::new(folder, name)))
            }
        }
    }
}

/// Says of which sink a field is.
trait Prefixed {
    fn prefixed(self, name: &Name) -> Self;
}

impl Prefixed for Fault {
    fn prefixed(mut self, name: &Name) -> Self {
        self.field = Some(match self.field.take() {
            Some(field) => format!("notify.{name}.{field}"),
            None => format!("notify.{name}"),
        });
        self
    }
}
