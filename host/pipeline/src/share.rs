//! What the hot windows of one tenant may hold together: rows that are within their retention are in memory, and a tenant
//! that sends more of them than that must not take the memory of the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_model::{Fault, FaultKind, Retry, StreamId};

/// A tenant's share of memory.
#[derive(Debug)]
pub struct Share {
    most: u64,
    used: AtomicU64,
}

impl Share {
    /// Of so many bytes.
    pub fn new(most: u64) -> Arc<Self> {
        Arc::new(Self { most, used: AtomicU64::new(0) })
    }
}

/// What one stream holds of its tenant's share; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Part {
    share: Arc<Share>,
    held: AtomicU64,
}

impl Part {
    pub fn of(share: Arc<Share>) -> Self {
        Self { share, held: AtomicU64::new(0) }
    }

    /// Bytes that a window may have when it is read back. It was a read beyond the share perhaps, and its rows are laid out
    /// otherwise: what could be held before a restart must fit after it.
    pub fn read_back(&self) -> usize {
        usize::try_from(self.share.most.saturating_mul(2)).unwrap_or(usize::MAX)
    }

    /// Takes note of how much the stream holds now.
    pub fn hold(&self, bytes: u64) {
        let before = self.held.swap(bytes, Ordering::AcqRel);
        // Wraps where less is held than before, as a difference does.
        self.share.used.fetch_add(bytes.wrapping_sub(before), Ordering::AcqRel);
    }

    /// Refuses to read on while the tenant's windows hold all that they may.
    pub fn room(&self, id: &StreamId) -> Result<(), Fault> {
        let (used, most) = (self.share.used.load(Ordering::Acquire), self.share.most);
        if used < most {
            Ok(())
        } else {
            Err(full(id, format_args!("the hot windows of tenant {} hold {used} bytes", id.tenant), most))
        }
    }

    /// A window that cannot be read back.
    pub fn too_large(&self, id: &StreamId) -> Fault {
        full(id, "its hot window is larger", self.share.most)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.hold(0);
    }
}

fn full(id: &StreamId, what: impl std::fmt::Display, most: u64) -> Fault {
    Fault::tenant(
        FaultKind::Resources,
        format_args!("stream {id} is not read: {what}, and {most} are allowed (ingest.window_bytes)"),
    )
    .retry(Retry::Later)
    .file(format_args!("{}/streams/{}.toml", id.tenant, id.stream))
    .field("retention")
    .fix("send fewer or smaller rows, or set a shorter retention; it is read on when rows have grown old")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_one_stream_holds_another_one_cannot_have_until_it_is_given_back() {
        let share = Share::new(100);
        let (one, two) = (Part::of(share.clone()), Part::of(share.clone()));
        let id: StreamId = "t/events".parse().unwrap();
        one.hold(60);
        two.hold(39);
        assert_eq!(two.room(&id), Ok(()));
        two.hold(40);
        assert_eq!(one.room(&id).unwrap_err().kind, FaultKind::Resources);
        one.hold(10);
        assert_eq!(one.room(&id), Ok(()));
        two.hold(95);
        assert!(one.room(&id).is_err());
        drop(two);
        assert_eq!(one.room(&id), Ok(()));
        drop(one);
        assert_eq!(share.used.load(Ordering::Acquire), 0);
    }
}
