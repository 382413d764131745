//! Byte counts in text form.

use std::fmt;
use std::str::FromStr;

use crate::{Error, ErrorKind, Result};

/// Suffixes and their exponents of two.
const LETTERS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

/// Number of bytes, displayed with the largest suffix K, M, G or T (powers of 1024) that divides it: `1536M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |shift| self.0 != 0 && self.0.trailing_zeros() >= shift;
        match LETTERS.iter().find(|(_, shift)| whole(*shift)) {
            Some((letter, shift)) => write!(f, "{}{letter}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for Size {
    type Err = Error;

    /// Parses a whole number with an optional suffix, in either case.
    fn from_str(text: &str) -> Result<Self> {
        let find = |last: char| {
            let letter = last.to_ascii_uppercase();
            LETTERS.iter().find(|(known, _)| *known == letter)
        };
        let (digits, shift) = match text.chars().next_back().and_then(find) {
            Some((_, shift)) => (&text[..text.len() - 1], *shift),
            None => (text, 0),
        };
        // The standard library also accepts a leading plus.
        let number = digits
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then_some(digits);
        number
            .and_then(|digits| digits.parse::<u64>().ok())
            .and_then(|number| number.checked_mul(1 << shift))
            .map(Self)
            .ok_or_else(|| {
                let context = format!("{text:?} is not a number of bytes, such as 4096, 64M or 1G");
                Error::new(ErrorKind::Invalid, context)
            })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(number in any::<u64>(), shift in 0..64_u32) {
            let size = Size(number >> shift << shift);
            prop_assert_eq!(size.to_string().parse::<Size>().expect("shown"), size);
        }

        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = text.parse::<Size>();
        }
    }

    #[test]
    fn letters_are_powers_of_1024() {
        for (text, bytes, shown) in [
            ("0", 0, "0"),
            ("1000", 1000, "1000"),
            ("4k", 4096, "4K"),
            ("1024M", 1 << 30, "1G"),
            ("1536M", 3 << 29, "1536M"),
            ("2T", 2 << 40, "2T"),
        ] {
            let size: Size = text.parse().expect("a size");
            assert_eq!((size.0, size.to_string()), (bytes, shown.to_owned()));
        }
        for text in ["", "G", "1.5G", "-1", "+1", "1 G", "1GB", "16777216T", "ß"] {
            let error = text.parse::<Size>().expect_err("none");
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
    }
}
