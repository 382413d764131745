//! Values as bytes whose order is the order of the values.
//!
//! # Purpose
//! Comparing two encodings byte by byte (`memcmp`) gives what [`Collation::compare`] says of the values,
//! so that the engine, which only knows bytes, keeps indexes in MongoDB's order. An encoding says itself
//! where it ends: appending several makes a compound key, and whatever may follow it. [`Collation`] has the
//! methods that encode.
//!
//! # Format
//! Every value starts with a tag; the tags are in the order of the types. Multi-byte integers are
//! big-endian.
//! ```text
//! 0A                                      MinKey
//! 0F                                      undefined (also: the key of an empty array)
//! 14                                      null
//! 20..35  magnitude                       numbers, see below
//! 40  text                                string and symbol, as the collation's sort key
//! 48  { rank(1) name 00 value }* 00       document; rank: canonical rank of the value's type + 1
//! 50  { value }* 00                       array
//! 58  length(4) subtype(1) bytes          binary; the length is that on the wire
//! 60  id(12)                              ObjectId
//! 68                                      false
//! 69                                      true
//! 70  milliseconds(8), sign bit inverted  date
//! 78  seconds(4) increment(4)             timestamp
//! 80  pattern 00 options 00               regular expression
//! 88  length(4) namespace id(12)          DBPointer
//! 90  text                                code
//! 98  text { rank name 00 value }* 00     code with scope
//! F0                                      MaxKey
//!
//! text: the bytes, each 00 written as 00 FF, then 00 01
//! ```
//! A **descending** field is the bitwise complement of all of that.
//!
//! ## Numbers
//! The four types share one order, so a number is encoded by its value alone:
//! ```text
//! 20                 NaN
//! 21     real        negative, magnitude of 2^63 or more (also infinity)
//! 22..29 whole real? negative, magnitude of 1 or more; 22 has 8 bytes of `whole`, 29 has 1
//! 2A     real        negative, magnitude below 1
//! 2B                 zero
//! 2C     real        positive, below 1
//! 2D..34 whole real? positive, 1 or more; 2D has 1 byte of `whole`, 34 has 8
//! 35     real        positive, 2^63 or more (also infinity)
//!
//! whole: 2 * integer part + (1 if there is a fraction), in as few bytes as possible;
//!        `real` follows if there is a fraction
//! real:  d(8) [tail(17)]
//!        d: the bits of the largest double that is not above the magnitude, shifted left by one;
//!           the lowest bit says that the double is below the magnitude, and then `tail` follows
//! tail:  exponent of the highest decimal digit + 6176 (2), coefficient scaled to 34 digits (15)
//! ```
//! `whole`, `real` and `tail` of a negative number are complemented. Everything in them is a
//! non-decreasing function of the magnitude, and together they determine it: a double is its own `d`, an
//! integer is its `whole`, and only a decimal that no double equals has a `tail`.
//!
//! # Type bits
//! What the order does not see is kept aside in [`TypeBits`], value by value, depth first:
//! ```text
//! string          0, symbol 1
//! number          type (2): int 00, long 01, double 10, decimal 11; then
//!   double zero   sign (1)
//!   decimal zero  sign (1), exponent + 6176 (14)
//!   other decimal how many trailing zeros the coefficient has (6); none for NaN and infinity
//! ```
//! Bit *i* is bit `i % 8` of byte `i / 8`. Trailing zero bytes are left out, so that strings, 32-bit
//! integers and everything without type bits need none. Sign and payload of NaN are not restored.
//!
//! # Limits, safety
//! Values may nest [`NESTING_MAX`] levels deep. Any bytes can be given to
//! [`decode()`] and [`skip`]: what `encode_key` cannot have written is an error or some other value, never a
//! panic. Encoding an ObjectId, a string or an integer allocates nothing but room in `out`.
//!
//! # Example
//! ```
//! use bson::RawBsonRef;
//! use millrace_value::key::{self, TypeBits, TypeBitsReader};
//! use millrace_value::Collation;
//!
//! let (mut key, mut type_bits) = (Vec::new(), TypeBits::new());
//! Collation::SIMPLE.encode_key(&mut key, &mut type_bits, RawBsonRef::Int64(7), false)?;
//! Collation::SIMPLE.encode_key(&mut key, &mut type_bits, RawBsonRef::String("a"), true)?;
//! assert_eq!(key, [0x2D, 14, !0x40, !b'a', !0x00, !0x01]);
//!
//! let (mut rest, mut reader) = (key.as_slice(), TypeBitsReader::new(type_bits.as_bytes()));
//! key::skip(&mut &key[..], false)?;
//! assert_eq!(key::decode(&mut rest, &mut reader, false)?, bson::RawBson::Int64(7));
//! assert_eq!(key::decode(&mut rest, &mut reader, true)?, bson::RawBson::String("a".into()));
//! assert!(rest.is_empty());
//! # Ok::<(), millrace_value::Error>(())
//! ```

mod decode;
mod encode;
mod number;
mod reader;
mod tag;
mod type_bits;

pub use decode::{decode, skip};
pub use type_bits::{TypeBits, TypeBitsReader};

#[cfg(doc)]
use crate::Collation;
use crate::NESTING_MAX;

/// How many levels of documents and arrays a key may have: those of a stored document, and one more
/// for a value made from it.
const DEPTH_MAX: usize = NESTING_MAX + 1;

#[cfg(test)]
mod tests;
