//! The ports: what `pipeline` asks of the engines. Each doc states the implementor's duty.

mod ask;
mod detect;
mod lake;
mod ledger;
mod notify;
mod sources;
mod store;

pub use ask::*;
pub use detect::*;
pub use lake::*;
pub use ledger::*;
pub use notify::*;
pub use sources::*;
pub use store::*;
