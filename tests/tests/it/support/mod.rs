//! What the tests share.

pub mod engines;
pub mod example;
pub mod fakes;
