//! The one way from an async handler to a blocking [`Service`] call.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use weir_model::fault::{Fault, FaultKind};
use weir_model::service::Service;

/// How long a request waits for a place before it is told that the host is busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// A bound on how many calls of one sort run at once. Sorts do not wait for each other: ten slow queries leave
/// `/metrics` answering, and a hundred followers leave queries answering.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    what: &'static str,
    places: Arc<Semaphore>,
    patience: Duration,
}

impl Lane {
    pub(crate) fn new(what: &'static str, places: usize) -> Self {
        Self::of(what, places, PATIENCE)
    }
    pub(crate) fn of(what: &'static str, places: usize, patience: Duration) -> Self {
        Self { what, places: Arc::new(Semaphore::new(places)), patience }
    }

    /// Places that are free now.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.places.available_permits()
    }

    /// Runs `call` on a blocking thread. The permit and the span go with it: a caller that hangs up frees no place
    /// that still works.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        service: &Arc<dyn Service>,
        call: impl FnOnce(&dyn Service) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let place = tokio::time::timeout(self.patience, Arc::clone(&self.places).acquire_owned());
        let Ok(Ok(place)) = place.await else {
            return Err(Fault::host(FaultKind::Resources, format_args!("too many requests for {} at once", self.what))
                .fix("try again later"));
        };
        let service = Arc::clone(service);
        let span = tracing::Span::current();
        tokio::task::spawn_blocking(move || {
            let _place = place;
            span.in_scope(|| call(&*service))
        })
        .await
        .unwrap_or_else(|panic| {
            Err(Fault::internal(format_args!("a request for {} ended in a panic: {panic}", self.what)))
        })
    }
}
