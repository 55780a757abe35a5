//! What the rule engine promises, a file for each group of promises.

// A test says by expect what it takes for granted.
#![allow(clippy::expect_used, clippy::panic)]

mod answers;
mod asks;
mod cases;
mod checks;
mod functions;
mod inputs;
mod limits;
mod starter;
mod support;
mod threads;
