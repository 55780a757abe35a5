//! Text, JSON and columns of other systems as rows of a schema: the same rules for streams and for reference tables. Pure.
//!
//! Strict where leniency would change values in silence: a JSON string is no number, `1.5` is no int64, a number is no
//! timestamp. Lenient where nothing is lost: unknown fields are ignored, a missing field is null, `2.0` is an int64, a
//! timestamp without a zone is UTC, and a decimal may be a string (JSON numbers do not hold all of them).

mod cell;
pub mod csv;
mod fit;
mod json;

pub use cell::{Cell, Rows, missing};
pub use fit::{Fitted, fit};
pub use json::JsonRow;
