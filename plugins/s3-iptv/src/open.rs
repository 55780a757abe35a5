//! Alarms that this detector has raised and not cleared, with the OLT alarms that led to them, kept in the state.

use std::collections::{BTreeMap, BTreeSet};

use weir_sdk::{Alarm, Batch, Fault, state::key};

use crate::{Interface, MEMORY};

/// Keys of open alarms are `open/ADDRESS/INTERFACE`; a value has an OLT alarm a line.
const PREFIX: &str = "open/";
/// How many are read in one call.
const PAGE: u32 = 1_000;

/// Open alarms by their key in the state.
pub(crate) struct Open {
    causes: BTreeMap<String, BTreeSet<String>>,
    /// Keys whose causes are not as they were loaded.
    touched: BTreeSet<String>,
    /// Alarms of this batch: these go on whatever was cleared.
    raised: BTreeSet<String>,
}

impl Open {
    /// Reads them all.
    pub(crate) fn load(b: &Batch) -> Result<Self, Fault> {
        let mut causes = BTreeMap::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = b.state().scan(PREFIX, after.as_deref(), PAGE)?;
            let full = page.len() == PAGE as usize;
            after = page.last().map(|(key, _)| key.clone());
            for (key, value) in page {
                let lines = text(value)?.lines().map(str::to_owned).collect();
                causes.insert(text(key)?, lines);
            }
            if !full {
                break;
            }
        }
        Ok(Self { causes, touched: BTreeSet::new(), raised: BTreeSet::new() })
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.causes.is_empty()
    }

    /// These OLT alarms are over.
    pub(crate) fn forget(&mut self, cleared: &BTreeSet<String>) {
        for (key, causes) in &mut self.causes {
            let before = causes.len();
            causes.retain(|cause| !cleared.contains(cause));
            if causes.len() < before {
                self.touched.insert(key.clone());
            }
        }
    }

    /// An alarm is raised because of these OLT alarms, and of those it was raised for before.
    pub(crate) fn raise(&mut self, interface: &Interface, causes: &BTreeSet<String>) {
        let key = key(["open", &interface.0, &interface.1]);
        self.causes.entry(key.clone()).or_default().extend(causes.iter().cloned());
        self.touched.insert(key.clone());
        self.raised.insert(key);
    }

    /// Clears what has no cause left, and keeps the rest.
    pub(crate) fn save(self, b: &Batch) -> Result<(), Fault> {
        let (mut kept, mut closed, mut alarms) = (Vec::new(), Vec::new(), Vec::new());
        for (key, causes) in self.causes.iter().filter(|(key, _)| self.touched.contains(*key)) {
            if causes.is_empty() && !self.raised.contains(key) {
                let interface: Vec<String> = key.split('/').skip(1).map(part).collect();
                alarms.push(Alarm::clear("multicast_surge", interface).message("the OLT alarm was cleared"));
                closed.push(key);
            } else {
                let lines: Vec<&str> = causes.iter().map(String::as_str).collect();
                kept.push((key, lines.join("\n")));
            }
        }
        b.state().put_many(kept, MEMORY)?;
        b.state().delete(closed)?;
        b.alarms(alarms)
    }
}

/// A part of a key as it was before [`key`] joined it.
fn part(text: &str) -> String {
    text.replace("%2F", "/").replace("%25", "%")
}

fn text(bytes: Vec<u8>) -> Result<String, Fault> {
    String::from_utf8(bytes).map_err(|_| Fault::internal("an open alarm in the state is no text"))
}
