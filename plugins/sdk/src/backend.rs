//! What a detector runs on. In a component that is the host behind the WIT; natively it is whatever implements these
//! traits: [`crate::testkit`] over fixtures, or a host's bench over its own data.
//!
//! The traits mirror the resources of the WIT, one call each, and promise what `wit/README.md` promises. An implementor
//! may be asked on one thread only. It makes [`Fault::Data`] by [`DataError`]'s `into`, and nothing else.
//!
//! [`DataError`]: crate::DataError

use std::any::Any;

use crate::{Alarm, Blobs, Bounds, Decimals, Fault, Field, Kind, Named, RowFault, RowRef};

#[cfg(not(target_family = "wasm"))]
pub use native::*;

/// In a component there is one backend, so nothing is called through a pointer.
#[cfg(target_family = "wasm")]
pub use crate::wasm::handles::{BatchHandle, FrameHandle, WriterHandle};

#[cfg(not(target_family = "wasm"))]
mod native {
    use std::cell::RefCell;
    use std::rc::Rc;

    use crate::log::Level;

    /// A batch.
    pub type BatchHandle = Rc<dyn super::Batch>;
    /// A frame. A backend gets its own type back by `(&**handle as &dyn Any).downcast_ref()`.
    pub type FrameHandle = Rc<dyn super::Frame>;
    /// A writer.
    pub type WriterHandle = Box<dyn super::Writer>;

    /// What answers outside of a batch too.
    pub trait Ambient {
        /// Takes a line of the log.
        fn log(&self, level: Level, message: &str);
        /// The bytes of an asset; none when it is not listed.
        fn asset(&self, name: &str) -> Option<Rc<[u8]>>;
    }

    thread_local! {
        static AMBIENT: RefCell<Option<Rc<dyn Ambient>>> = const { RefCell::new(None) };
    }

    /// Runs `work` with `ambient` behind [`crate::log`] and [`crate::assets`] of this thread.
    pub fn with_ambient<R>(ambient: Rc<dyn Ambient>, work: impl FnOnce() -> R) -> R {
        struct Restore(Option<Rc<dyn Ambient>>);
        impl Drop for Restore {
            fn drop(&mut self) {
                AMBIENT.set(self.0.take());
            }
        }
        let _restore = Restore(AMBIENT.replace(Some(ambient)));
        work()
    }

    pub(crate) fn ambient() -> Option<Rc<dyn Ambient>> {
        AMBIENT.with_borrow(Clone::clone)
    }
}

/// What this crate's own modules use: the handles and, for both kinds of them, their methods.
pub(crate) mod prelude {
    pub use super::{Batch as _, Frame as _, Writer as _};
    pub use super::{BatchHandle, FrameHandle, QueryCall, RuleCall, Values, WriterHandle};
}

/// One call of a query.
#[derive(Clone)]
#[allow(missing_docs)]
pub struct QueryCall<'a> {
    pub name: &'a str,
    /// Parameters.
    pub values: Vec<Named>,
    /// Parameters that are rows.
    pub rows: Vec<(&'a str, &'a FrameHandle)>,
}

/// One call of a rule.
#[derive(Clone)]
#[allow(missing_docs)]
pub struct RuleCall<'a> {
    pub name: &'a str,
    /// Fields of the input object.
    pub values: Vec<Named>,
    /// Fields that hold an array of objects.
    pub rows: Vec<(&'a str, &'a FrameHandle)>,
    /// One evaluation a row.
    pub each: Option<&'a FrameHandle>,
    /// The elements of the array at this path are the answer's rows.
    pub unnest: Option<&'a str>,
    /// Columns of the answer.
    pub want: Vec<(&'a str, Kind)>,
}

/// A column for a writer.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum Values<'a> {
    /// One byte a row, 0 or 1.
    Booleans(&'a [u8]),
    Int64s(&'a [i64]),
    Float64s(&'a [f64]),
    /// Microseconds; for date columns too.
    Timestamps(&'a [i64]),
    Decimals(Decimals),
    /// Texts, bytes or JSON.
    Blobs(Blobs),
}

/// One batch. Mirrors `batch`, with `query`, `rule` and `state` as single calls.
#[allow(missing_docs)]
pub trait Batch {
    /// T in microseconds.
    fn time(&self) -> i64;
    fn input(&self, name: &str) -> Result<FrameHandle, Fault>;
    fn window(&self, input: &str) -> Result<Bounds, Fault>;
    fn query(&self, call: QueryCall<'_>) -> Result<FrameHandle, Fault>;
    /// The answer, and the rows of `each` that failed.
    fn rule(&self, call: RuleCall<'_>) -> Result<(FrameHandle, Vec<RowFault>), Fault>;
    /// One byte a key, 1 = present, and the values, empty where absent.
    fn state_get(&self, keys: Blobs) -> Result<(Vec<u8>, Blobs), Fault>;
    fn state_put(&self, keys: Blobs, values: Blobs, ttl_seconds: Option<u64>) -> Result<(), Fault>;
    fn state_delete(&self, keys: Blobs) -> Result<(), Fault>;
    fn state_scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: u32) -> Result<(Blobs, Blobs), Fault>;
    fn output(&self, name: &str) -> WriterHandle;
    fn scratch(&self, fields: Vec<Field>) -> WriterHandle;
    fn alarms(&self, alarms: Vec<Alarm>) -> Result<(), Fault>;
    fn reject(&self, rows: &[RowRef], reason: &str) -> Result<(), Fault>;
}

/// Immutable columns. Mirrors `frame`.
#[allow(missing_docs)]
pub trait Frame: Any {
    /// Unique in the batch.
    fn id(&self) -> u32;
    fn rows(&self) -> u32;
    fn fields(&self) -> Vec<Field>;
    fn column(&self, name: &str) -> Option<u32>;
    /// Lowest bit first, spare bits 0; none = no nulls.
    fn validity(&self, col: u32) -> Result<Option<Vec<u8>>, Fault>;
    /// One byte a row, 0 or 1.
    fn booleans(&self, col: u32) -> Result<Vec<u8>, Fault>;
    fn int64s(&self, col: u32) -> Result<Vec<i64>, Fault>;
    fn float64s(&self, col: u32) -> Result<Vec<f64>, Fault>;
    fn timestamps(&self, col: u32) -> Result<Vec<i64>, Fault>;
    fn decimals(&self, col: u32) -> Result<Decimals, Fault>;
    fn blobs(&self, col: u32) -> Result<Blobs, Fault>;
    /// Any kind, canonical rendering.
    fn texts(&self, col: u32) -> Result<Blobs, Fault>;
    /// Codes, 0xffffffff = null, and the distinct values in the order in which they first appear.
    fn dictionary(&self, col: u32) -> Result<(Vec<u32>, Blobs), Fault>;
    fn json(&self, columns: &[u32]) -> Result<String, Fault>;
    fn slice(&self, start: u32, count: u32) -> Result<FrameHandle, Fault>;
    fn take(&self, rows: &[u32]) -> Result<FrameHandle, Fault>;
}

/// Takes columns. Mirrors `writer`.
#[allow(missing_docs)]
pub trait Writer {
    fn write(&mut self, column: &str, values: Values<'_>, validity: Option<&[u8]>) -> Result<(), Fault>;
    /// Columns that hold one value in all of `rows` rows.
    fn fill(&mut self, values: Vec<Named>, rows: u32) -> Result<(), Fault>;
    fn copy(&mut self, column: &str, source: &FrameHandle, col: u32) -> Result<(), Fault>;
    /// Called once, last.
    fn finish(&mut self) -> Result<FrameHandle, Fault>;
}
