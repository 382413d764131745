//! The rule by which strings are compared.
//!
//! # Purpose
//! Whether two strings are equal, and which one is the lesser, is the choice of a command or an index. The
//! methods of [`Collation`] are the only way to compare values, to encode them as keys and to tell equal
//! ones when grouping, so that the choice cannot be forgotten:
//! - `compare` and `compare_bson`: the order of two values;
//! - `encode_key` and `encode_key_bson`: bytes that have that order;
//! - `equality_key`: bytes that are the same for equal values.
//!
//! Only [`Collation::SIMPLE`] exists: strings are compared as the bytes of their UTF-8.
//!
//! # Where the value comes from
//! ```text
//! command's `collation`, else the collection's default     index's `collation`
//!        |                                                        |
//!        v                                                        v
//!      Scope ------> Matcher, Accumulation, Update ...       IndexSpec
//!        |                                                        |
//!        +---------> EvaluationContext, pipeline's Context        v
//!                    SortPattern, IntervalSet                  IndexKeys
//! ```
//!
//! # Where MongoDB 8.0 uses a collation
//! - of the command: filters, sorts, `distinct`, groups and joins, operators that compare values in expressions
//!   and updates, array filters;
//! - of the collection, its default, fixed when it is created: commands and indexes that name none, the
//!   validator, and always the `_id` index. Strings that are equal under it cannot both be an `_id`;
//! - of the index: its keys. Bounds that hold strings can use the index only if the command has the same one.
//!
//! # Where it never does
//! Names of fields, regular expressions, `$jsonSchema`, operators that work on text (`$strcasecmp`,
//! `$indexOfBytes`, `$replaceAll`), the scope of JavaScript code, names of databases, collections and
//! indexes. These and catalog keys are compared by [`Collation::SIMPLE`]. The record id of a clustered
//! collection is the key of its `_id`, so that it is made by the collection's collation.

use std::borrow::Cow;
use std::cmp::Ordering;

/// The rule by which strings are compared; a copy costs nothing. See [the module's page](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collation {
    rule: Rule,
}

/// What decides about two strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// The bytes of their UTF-8.
    Binary,
}

impl Collation {
    /// The collation with the locale `simple`: strings are compared as the bytes of their UTF-8.
    pub const SIMPLE: Self = Self { rule: Rule::Binary };

    /// The collation of `locale`; none if it is not supported.
    #[must_use]
    pub fn of_locale(locale: &str) -> Option<Self> {
        (locale == "simple").then_some(Self::SIMPLE)
    }

    /// The order of two strings.
    #[inline]
    pub(super) fn compare_text(self, a: &str, b: &str) -> Ordering {
        match self.rule {
            Rule::Binary => a.as_bytes().cmp(b.as_bytes()),
        }
    }

    /// Bytes whose order, byte by byte, is the order of the strings.
    #[inline]
    pub(crate) fn sort_key(self, text: &str) -> Cow<'_, [u8]> {
        match self.rule {
            Rule::Binary => Cow::Borrowed(text.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simple_collation_compares_the_bytes_of_utf_8() {
        let ascending = [
            "",
            "B",
            "a",
            "a\0",
            "b",
            "z",
            "\u{e4}",
            "\u{ffff}",
            "\u{10000}",
        ];
        let collation = Collation::SIMPLE;
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(collation.compare_text(a, b), i.cmp(&j), "{a:?} and {b:?}");
                let keys = (collation.sort_key(a), collation.sort_key(b));
                assert_eq!(keys.0.cmp(&keys.1), i.cmp(&j), "keys of {a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn a_locale_is_simple_or_not_supported() {
        assert_eq!(Collation::of_locale("simple"), Some(Collation::SIMPLE));
        for locale in ["", "Simple", "de", "en_US"] {
            assert_eq!(Collation::of_locale(locale), None, "{locale}");
        }
    }

    #[test]
    fn a_collation_takes_no_more_than_a_byte() {
        assert!(size_of::<Collation>() <= 1);
    }
}
