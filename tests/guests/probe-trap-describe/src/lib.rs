//! A component whose `describe` traps, for the host's tests.

use weir_sdk::{Batch, Description, Detector, Fault, Verdict};

/// The detector.
pub struct Trap;

weir_sdk::export!(Trap);

impl Detector for Trap {
    #[allow(clippy::panic)]
    fn describe() -> Description {
        panic!("describe was made to")
    }
    fn prepare(_: &str) -> Result<Self, Fault> {
        Ok(Self)
    }
    fn detect(&self, _: &Batch) -> Result<Verdict, Fault> {
        Ok(Verdict::Judged)
    }
}
