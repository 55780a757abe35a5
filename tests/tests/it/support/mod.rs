//! What the tests share.

pub mod engines;
pub mod fakes;
