//! What the rule engine promises, a file for each group of promises.

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
