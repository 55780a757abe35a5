//! The integration tests: one binary, because each one links every engine.

// What a test or its helper cannot do without is a failure of the test, said by a panic.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod alarms;
mod architecture;
mod backfill;
mod backfill_kill;
mod bad_input;
mod cli;
mod disk;
mod docs;
mod faults;
mod generate;
mod kill;
mod lifecycle;
mod limits;
mod network_cep;
mod notify;
mod oracle;
mod pause;
mod protocol;
mod reference;
mod rejected;
mod review;
mod review_asked;
mod review_none;
mod s1;
mod s1_forms;
mod s2;
mod s3;
mod speed;
mod support;
mod swaps;
mod upkeep;
mod windows;
mod zones;
