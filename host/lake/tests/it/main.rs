//! The lake as others use it: through its ports, on real folders.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod adhoc;
mod generate;
mod joins;
mod queries;
mod reference;
mod reference_delta;
mod refused;
mod replace;
mod support;
mod tables;
mod upkeep;
mod windows;
