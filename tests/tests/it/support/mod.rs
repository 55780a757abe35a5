//! What the tests share.

pub mod binary;
pub mod engines;
pub mod example;
pub mod fakes;
pub mod feed;
pub mod hook;
