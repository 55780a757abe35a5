//! The allocator of the whole process: jemalloc. A batch is many short-lived pieces on a handful of threads. glibc's malloc
//! keeps an arena for each thread and gives little of it back, so a long backfill stays at its highest point; jemalloc took
//! a fifth less CPU time for it and a fifth less memory.
//!
//! What it starts with stands in `.cargo/config.toml`: pages that are free for a second go back, by a thread of its own
//! and not in the middle of a batch.

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;
