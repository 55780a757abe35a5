//! The example on real engines and a virtual clock, as the tests have it.

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/it/support/example.rs"]
pub mod example;

/// What the example takes from its neighbour.
pub mod fakes {
    /// A name that is one.
    pub fn name(text: &str) -> weir_model::Name {
        weir_model::Name::new(text).unwrap()
    }
}
