//! Where rulesets come from: a folder is watched, read whole, named by the digest of its content, validated whole, and
//! published as one pointer. What ran before is kept on disk.
//!
//! The way of a change: `watch` or a poll says "look"; `tree` looks by `stat`; `load` reads and checks; `decide` says what
//! it means; `look` carries that out; `store` has it admitted and publishes it; `history` keeps it.

mod check;
mod check_notify;
mod decide;
mod history;
mod load;
mod look;
mod near;
mod state;
mod store;
mod toml_file;
mod tree;
mod validate;
mod watch;

pub use history::Keep;
pub use store::{FolderStore, StoreConfig};
pub use validate::{Subject, check_folder};
