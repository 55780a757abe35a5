//! The memory that a tenant's queries share, and the part of it that one run may take.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::{Result, resources_datafusion_err};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use weir_model::{Fault, FaultKind, Name, Retry};

/// Pools by tenant.
#[derive(Debug, Default)]
pub(crate) struct Tenants(Mutex<HashMap<Name, Arc<Share>>>);

impl Tenants {
    /// The tenant's share. The largest limit that any of its rulesets has is the tenant's own.
    pub fn share(&self, tenant: &Name, limit: usize) -> Arc<Share> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let share = all.entry(tenant.clone()).or_default();
        share.limit.fetch_max(limit, Ordering::Relaxed);
        share.clone()
    }

    /// A share that nobody else has a part of.
    pub fn share_alone(limit: usize) -> Arc<Share> {
        Arc::new(Share { limit: AtomicUsize::new(limit), used: AtomicUsize::new(0) })
    }
}

/// What all runs of one tenant use together.
#[derive(Debug, Default)]
pub(crate) struct Share {
    limit: AtomicUsize,
    used: AtomicUsize,
}

#[cfg(test)]
impl Share {
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// One plan's pool: bounded by itself and by the tenant's share. Nothing spills: an order of rows that depends on what
/// else runs would show in answers.
#[derive(Debug)]
pub(crate) struct Pool {
    limit: usize,
    used: AtomicUsize,
    share: Arc<Share>,
}

impl Pool {
    pub fn new(limit: usize, share: Arc<Share>) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0), share })
    }

    /// An environment whose executions use this pool.
    pub fn runtime(self: &Arc<Self>) -> Result<Arc<RuntimeEnv>> {
        let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
        RuntimeEnvBuilder::new().with_memory_pool(self.clone()).with_disk_manager_builder(disk).build_arc()
    }

    /// The fault of a run that asked for more. What the tenant's other queries hold passes; what it needs itself does not.
    pub fn fault(&self, detail: &str) -> Fault {
        let own = !detail.contains(SHARED);
        let fault = if own {
            Fault::tenant(FaultKind::SqlLimit, format_args!("a query needs more than {} bytes of memory", self.limit))
                .fix("read less at once, or ask the operator for more sql_memory_bytes")
        } else {
            Fault::tenant(
                FaultKind::SqlLimit,
                format_args!(
                    "the tenant's queries together need more than {} bytes of memory",
                    self.share.limit.load(Ordering::Relaxed)
                ),
            )
            .retry(Retry::Later)
        };
        fault.field("sql_memory_bytes")
    }
}

const SHARED: &str = "of the tenant";

fn take(used: &AtomicUsize, limit: usize, more: usize) -> bool {
    used.try_update(Ordering::Relaxed, Ordering::Relaxed, |now| now.checked_add(more).filter(|next| *next <= limit))
        .is_ok()
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "weir({})", self.limit)
    }
}

impl MemoryPool for Pool {
    fn name(&self) -> &str {
        "weir"
    }

    fn grow(&self, _: &MemoryReservation, additional: usize) {
        self.used.fetch_add(additional, Ordering::Relaxed);
        self.share.used.fetch_add(additional, Ordering::Relaxed);
    }

    fn shrink(&self, _: &MemoryReservation, shrink: usize) {
        self.used.fetch_sub(shrink, Ordering::Relaxed);
        self.share.used.fetch_sub(shrink, Ordering::Relaxed);
    }

    fn try_grow(&self, _: &MemoryReservation, additional: usize) -> Result<()> {
        if !take(&self.used, self.limit, additional) {
            return Err(resources_datafusion_err!("more than {} bytes of memory of the query", self.limit));
        }
        let limit = self.share.limit.load(Ordering::Relaxed);
        if !take(&self.share.used, limit, additional) {
            self.used.fetch_sub(additional, Ordering::Relaxed);
            return Err(resources_datafusion_err!("more than {limit} bytes of memory {SHARED}"));
        }
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit)
    }
}
