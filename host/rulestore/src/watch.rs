//! Notifications: they only say that it is worth to look. Network volumes deliver none, so nothing depends on them.

use std::path::Path;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

/// Calls `changed` when something in the folder may have changed, as long as what is returned lives. None when it cannot be
/// watched: then polling alone has to do.
pub(crate) fn watch(store: &Path, changed: impl Fn() + Send + 'static) -> Option<RecommendedWatcher> {
    let started = notify::recommended_watcher(move |event: notify::Result<Event>| {
        // Reading a file is an event too; without this each look would ask for the next.
        let only_read = |kind: &EventKind| {
            matches!(kind, EventKind::Access(access) if *access != AccessKind::Close(AccessMode::Write))
        };
        if !event.is_ok_and(|e| only_read(&e.kind)) {
            changed();
        }
    })
    .and_then(|mut watcher| watcher.watch(store, RecursiveMode::Recursive).map(|()| watcher));
    match started {
        Ok(watcher) => Some(watcher),
        Err(e) => {
            tracing::warn!(store = %store.display(), error = %e, "the rule store cannot be watched; changes are found by polling alone");
            None
        }
    }
}
