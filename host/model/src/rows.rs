//! Text, JSON and columns of other systems as rows of a schema: the same rules for streams and for reference tables. Pure.
//!
//! Strict where leniency would change values in silence: a JSON string is no number, `1.5` is no int64, a number is no
//! timestamp. Lenient where nothing is lost: unknown fields are ignored, a missing field is null, `2.0` is an int64, a
//! timestamp without a zone is UTC, and a decimal may be a string (JSON numbers do not hold all of them). A decimal with
//! more digits after the point than its column keeps is refused, not rounded; zeros at its end are no digits.

mod cell;
pub mod csv;
mod decimal;
mod fit;
mod json;

/// What some systems put at the beginning of a UTF-8 text. It is no part of it.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

pub use cell::{Cell, Rows, missing};
pub use fit::{Fitted, fit};
pub use json::JsonRow;
