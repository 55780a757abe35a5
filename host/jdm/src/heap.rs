//! The memory of one realm, counted and bounded.
//!
//! QuickJS asks for memory through functions that it is given; `rquickjs` makes them of an [`Allocator`], which is unsafe to
//! write. This one gives what rquickjs's own gives, and refuses what would go beyond the limit; then QuickJS throws an error
//! that JavaScript may catch, so that it was refused is kept until the realm is gone.

// `Allocator` is an unsafe trait. Nothing here touches the memory itself: every pointer comes from `RustAllocator` and goes
// back to it.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr::null_mut;
use std::rc::Rc;

use rquickjs::allocator::{Allocator, RustAllocator};

/// What `RustAllocator` writes before each block.
const HEADER: usize = 8;
/// It rounds sizes up to this.
const ALIGN: usize = 8;
/// The largest limit: below it no sum here or in `RustAllocator` overflows.
const MOST: usize = isize::MAX as usize / 4;
/// What blocks of up to this size may take beyond the limit: an engine that has no memory for its own error goes through
/// code that is seldom run.
const SMALL: usize = 4 << 10;
/// How much that is in all: what a loop makes until it is interrupted.
const RESERVE: usize = 4 << 20;

/// How much a realm has, and may have.
#[derive(Debug)]
pub(crate) struct Count {
    used: Cell<usize>,
    limit: Cell<usize>,
    exceeded: Cell<bool>,
}

impl Count {
    /// Without a limit.
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self { used: Cell::new(0), limit: Cell::new(MOST), exceeded: Cell::new(false) })
    }

    /// Sets the limit of what follows.
    pub(crate) fn limit(&self, bytes: u64) {
        self.limit.set(usize::try_from(bytes).unwrap_or(MOST).min(MOST));
    }

    /// Bytes that are taken, with what the allocator needs for itself.
    pub(crate) fn used(&self) -> usize {
        self.used.get()
    }

    /// Whether more was asked for than the limit, even if it was given.
    pub(crate) fn exceeded(&self) -> bool {
        self.exceeded.get()
    }

    /// What is used when a block of a size takes the place of one that costs `old`. None: it may not.
    fn with(&self, size: usize, old: usize) -> Option<usize> {
        if size > MOST {
            self.exceeded.set(true);
            return None;
        }
        // No sum overflows: a size is at most MOST, and so is what is used, but for the reserve.
        let all = self.used.get().saturating_sub(old) + cost(size);
        if all <= self.limit.get() {
            return Some(all);
        }
        self.exceeded.set(true);
        (size <= SMALL && all <= self.limit.get() + RESERVE).then_some(all)
    }
}

/// What a block of a size, which is at most [`MOST`], takes: what `RustAllocator` makes of it, and so what [`Heap::taken`]
/// answers.
fn cost(size: usize) -> usize {
    size.next_multiple_of(ALIGN) + HEADER
}

/// The allocator of one realm.
pub(crate) struct Heap(pub(crate) Rc<Count>);

impl Heap {
    /// What a block takes.
    ///
    /// # Safety
    /// The pointer is that of a block that this allocator gave and has not taken back.
    unsafe fn taken(ptr: *mut u8) -> usize {
        // SAFETY: blocks that this allocator gives are `RustAllocator`'s.
        unsafe { RustAllocator::usable_size(ptr) + HEADER }
    }

    /// Counts what was given, if it was.
    fn given(&self, ptr: *mut u8, used: usize) -> *mut u8 {
        if !ptr.is_null() {
            self.0.used.set(used);
        }
        ptr
    }
}

// SAFETY: every block is one of `RustAllocator`, of the size that was asked for, or null. All calls of one block go to
// `RustAllocator`, whatever the value of this type, which has no state. Nothing here panics: sizes are compared with `MOST`
// before they are added to.
unsafe impl Allocator for Heap {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        match self.0.with(size, 0) {
            Some(used) => self.given(RustAllocator.alloc(size), used),
            None => null_mut(),
        }
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        match self.0.with(count.saturating_mul(size), 0) {
            Some(used) => self.given(RustAllocator.calloc(count, size), used),
            None => null_mut(),
        }
    }

    unsafe fn dealloc(&mut self, ptr: *mut u8) {
        if ptr.is_null() {
            return;
        }
        // SAFETY: the caller gives back a block of this allocator, and its size is read before it is gone.
        unsafe {
            self.0.used.set(self.0.used.get().saturating_sub(Self::taken(ptr)));
            RustAllocator.dealloc(ptr);
        }
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        if ptr.is_null() {
            return self.alloc(new_size);
        }
        // SAFETY: the caller has the block from this allocator. When a larger one is refused the old one stays as it is, as
        // QuickJS expects.
        unsafe {
            match self.0.with(new_size, Self::taken(ptr)) {
                Some(used) => self.given(RustAllocator.realloc(ptr, new_size), used),
                None => null_mut(),
            }
        }
    }

    unsafe fn usable_size(ptr: *mut u8) -> usize {
        // SAFETY: the caller has the block from this allocator, and it is one of `RustAllocator`.
        unsafe { RustAllocator::usable_size(ptr) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_is_counted_until_it_is_taken_back() {
        let count = Count::new();
        let mut heap = Heap(count.clone());
        for size in 1..100 {
            let block = heap.alloc(size);
            // SAFETY: the block comes from this allocator, and is used no more after it is given back.
            unsafe {
                assert_eq!((count.used(), Heap::taken(block)), (cost(size), cost(size)));
                heap.dealloc(block);
            }
        }
        let a = heap.alloc(100);
        assert_eq!(count.used(), 104 + 8);
        let b = heap.calloc(3, 8);
        assert_eq!(count.used(), 112 + 32);
        // SAFETY: the blocks come from this allocator, and are used no more after they are given back.
        unsafe {
            assert_eq!((0..24).map(|i| b.add(i).read()).collect::<Vec<_>>(), [0; 24]);
            a.write_bytes(7, 100);
            let a = heap.realloc(a, 5_000);
            assert_eq!((0..100).filter(|&i| a.add(i).read() == 7).count(), 100);
            assert_eq!(count.used(), 5_008 + 32);
            heap.dealloc(a);
            heap.dealloc(b);
            heap.dealloc(null_mut());
        }
        assert_eq!((count.used(), count.exceeded()), (0, false));
    }

    #[test]
    fn what_goes_beyond_the_limit_is_refused_and_the_block_stays() {
        let count = Count::new();
        let mut heap = Heap(count.clone());
        count.limit(100_008);
        let a = heap.alloc(100_000);
        assert!(!a.is_null() && !count.exceeded(), "all of it");
        // SAFETY: as above.
        unsafe {
            assert!(heap.realloc(a, 100_001).is_null() && count.exceeded());
            assert_eq!(count.used(), 100_008);
            a.write_bytes(7, 100_000);
            assert!(heap.alloc(SMALL + 1).is_null());
            let small: Vec<_> = std::iter::repeat_with(|| heap.alloc(SMALL)).take_while(|p| !p.is_null()).collect();
            assert_eq!(small.len(), RESERVE / (SMALL + 8), "small blocks have a reserve, which ends too");
            small.into_iter().for_each(|p| heap.dealloc(p));
            heap.dealloc(a);
        }
        assert_eq!(count.used(), 0);
        assert!(count.exceeded(), "for good");
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        let count = Count::new();
        let mut heap = Heap(count.clone());
        count.limit(u64::MAX);
        let a = heap.alloc(16);
        for size in [usize::MAX, usize::MAX - 7, isize::MAX as usize, MOST + 1] {
            assert!(heap.alloc(size).is_null() && heap.calloc(size, 1).is_null() && heap.calloc(1, size).is_null());
            assert!(heap.calloc(size, size).is_null() && heap.calloc(size, 2).is_null());
            // SAFETY: as above.
            assert!(unsafe { heap.realloc(a, size) }.is_null());
        }
        // SAFETY: as above.
        unsafe { heap.dealloc(a) };
        assert_eq!((count.used(), count.exceeded()), (0, true));
    }
}
