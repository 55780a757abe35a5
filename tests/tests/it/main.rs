//! All integration tests, in one binary: linking one costs less than linking ten.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod faults;
mod protocol;
mod support;
