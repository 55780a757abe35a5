//! Text as a decimal of a fixed scale: exactly, or not at all. The parser that Arrow brings cuts digits that do not fit.

/// Digits that every decimal number of this many keeps on its way through a float64.
const FLOAT_DIGITS: usize = 15;

/// Why a text is no decimal of that precision and scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It is no number.
    NoNumber,
    /// It has more digits after the point than the scale.
    TooFine,
    /// It has more digits before the point than the column has room for.
    TooLarge,
}

/// The value times 10^scale. Accepts an optional sign, digits with or without a point, and an exponent.
pub(super) fn exact(text: &str, precision: u8, scale: i8) -> Result<i128, Unfit> {
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (number, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent_of(exponent).ok_or(Unfit::NoNumber)?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut digits: Vec<u8> = [whole, fraction].concat().into_bytes();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Unfit::NoNumber);
    }
    // The value is the digits as an integer times 10^-fine.
    let mut fine = i64::try_from(fraction.len()).unwrap_or(i64::MAX).saturating_sub(exponent);
    while digits.last() == Some(&b'0') {
        digits.pop();
        fine = fine.saturating_sub(1);
    }
    let significant = &digits[digits.iter().take_while(|d| **d == b'0').count()..];
    if significant.is_empty() {
        return Ok(0);
    }
    let scale = i64::from(scale);
    if fine > scale {
        return Err(Unfit::TooFine);
    }
    let zeros = usize::try_from(scale.saturating_sub(fine)).map_err(|_| Unfit::TooLarge)?;
    if significant.len().saturating_add(zeros) > usize::from(precision) {
        return Err(Unfit::TooLarge);
    }
    let digits = significant.iter().copied().chain(std::iter::repeat_n(b'0', zeros));
    // At most 38 digits fit.
    let value = digits.fold(0i128, |sum, digit| sum * 10 + i128::from(digit - b'0'));
    Ok(if negative { -value } else { value })
}

/// An exponent's value; one beyond all numbers is only known to be so.
fn exponent_of(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let beyond = if text.starts_with('-') { -i64::from(i32::MAX) } else { i64::from(i32::MAX) };
    Some(text.parse::<i32>().map_or(beyond, i64::from))
}

/// Whether a number that came as a float64 is known to be what was written: it is when it has few enough digits.
pub(super) fn float_is_exact(value: f64) -> bool {
    // Without an exponent, and the shortest text that reads as this value.
    let text = value.to_string();
    let digits = text.bytes().filter(u8::is_ascii_digit).collect::<Vec<_>>();
    let digits = digits.iter().skip_while(|d| **d == b'0').collect::<Vec<_>>();
    let zeros = digits.iter().rev().take_while(|d| ***d == b'0').count();
    digits.len() - zeros <= FLOAT_DIGITS
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_decimal_is_exact_or_refused() {
        let of = |text| exact(text, 10, 2);
        for (text, value) in [
            ("12.5", 1250),
            ("-12.50", -1250),
            ("+0.10", 10),
            ("12.5000000000000000000", 1250),
            ("00012", 1200),
            ("1.", 100),
            (".25", 25),
            ("1e3", 100_000),
            ("125E-1", 1250),
            ("0.00e-99999999999999", 0),
            ("0e9", 0),
            ("99999999.99", 9_999_999_999),
        ] {
            assert_eq!(of(text), Ok(value), "{text}");
        }
        for text in ["1.234", "0.001", "1e-3", "-7.0000000000000000000000000000000000000001", "1e-99999999999999"] {
            assert_eq!(of(text), Err(Unfit::TooFine), "{text}");
        }
        for text in ["100000000", "1e8", "1e99999999999999", "123456789012345678901234567890123456789012345"] {
            assert_eq!(of(text), Err(Unfit::TooLarge), "{text}");
        }
        for text in ["", "-", ".", "e5", "1e", "1e+", "1e1.5", "1.2.3", "0x1", "1_0", "--1", "NaN", "inf", "1 "] {
            assert_eq!(of(text), Err(Unfit::NoNumber), "{text}");
        }
        let widest = "9".repeat(38);
        assert_eq!(exact(&widest, 38, 0).map(|v| v.to_string()), Ok(widest.clone()));
        assert_eq!(exact(&format!("{widest}0"), 38, 0), Err(Unfit::TooLarge));
        assert_eq!(exact("1200", 3, -2), Ok(12));
        assert_eq!(exact("1250", 3, -2), Err(Unfit::TooFine));
    }

    #[test]
    fn a_float_of_many_digits_is_not_known_to_be_what_was_written() {
        for value in [0.1, -12.5, 123_456_789_012_345.0, 1e300, 0.000_000_123_456_789_012_345, 0.0] {
            assert!(float_is_exact(value), "{value}");
        }
        // What 1234567890123456.78, 0.1 + 0.2 and infinity become.
        for value in [1_234_567_890_123_456.8, 0.1 + 0.2] {
            assert!(!float_is_exact(value), "{value}");
        }
    }
}
