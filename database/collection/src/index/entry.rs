//! The layout of an index entry in the engine.

use millrace_value::ident::Ident;
use millrace_value::{Error, ErrorCode, Result};

/// One entry of an index, borrowed from the engine.
///
/// # Format
/// ```text
/// key    ident(4, big-endian) fields                  of a unique index
///        ident(4, big-endian) fields record_id        of any other
/// value  varint(record id length) record_id type_bits of a unique index
///        varint(record id length) type_bits           of any other
/// ```
/// `fields` are the encoded values of the index's fields, one after the other (see [`millrace_value::key`]), and
/// `type_bits` restore their types. `varint` is little-endian base 128: seven bits a byte, the highest bit
/// says that another byte follows. In a unique index a second document with the same fields would have
/// the same key, so that the engine's conflict detection keeps it unique; in others the record id makes
/// keys differ and sorts those of equal fields.
///
/// # Recovery, durability
/// An entry is written and removed in the batch that writes or removes its document. The record id's
/// length is in the value, so that the key of a non-unique index can be cut without decoding the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry<'a> {
    /// The encoded values of the index's fields, in their order.
    pub fields: &'a [u8],
    /// The record id of the indexed document.
    pub record_id: &'a [u8],
    /// The bits that restore the types of the fields; see [`millrace_value::key`].
    pub type_bits: &'a [u8],
}

impl<'a> IndexEntry<'a> {
    /// The engine key of an entry.
    #[must_use]
    pub fn key(ident: Ident, unique: bool, fields: &[u8], record_id: &[u8]) -> Vec<u8> {
        let suffix = if unique { &[][..] } else { record_id };
        let mut key = Vec::with_capacity(Ident::LEN + fields.len() + suffix.len());
        key.extend_from_slice(&ident.prefix());
        key.extend_from_slice(fields);
        key.extend_from_slice(suffix);
        key
    }

    /// The engine value of an entry.
    #[must_use]
    pub fn value(unique: bool, record_id: &[u8], type_bits: &[u8]) -> Vec<u8> {
        let inside = if unique { record_id } else { &[][..] };
        let mut value = Vec::with_capacity(2 + inside.len() + type_bits.len());
        push_varint(&mut value, record_id.len());
        value.extend_from_slice(inside);
        value.extend_from_slice(type_bits);
        value
    }

    /// Takes an entry of the engine apart.
    ///
    /// # Errors
    /// `InternalError` if it is not one: it is damaged.
    pub fn parse(unique: bool, key: &'a [u8], value: &'a [u8]) -> Result<Self> {
        let body = key.get(Ident::LEN..).ok_or_else(damaged)?;
        let (length, rest) = take_varint(value).ok_or_else(damaged)?;
        if unique {
            let (record_id, type_bits) = rest.split_at_checked(length).ok_or_else(damaged)?;
            return Ok(Self {
                fields: body,
                record_id,
                type_bits,
            });
        }
        let cut = body.len().checked_sub(length).ok_or_else(damaged)?;
        let (fields, record_id) = body.split_at(cut);
        Ok(Self {
            fields,
            record_id,
            type_bits: rest,
        })
    }
}

fn damaged() -> Error {
    Error::new(ErrorCode::InternalError, "an index entry is damaged")
}

fn push_varint(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push(low_seven_bits(number) | 0x80);
        number >>= 7;
    }
    out.push(low_seven_bits(number));
}

fn low_seven_bits(number: usize) -> u8 {
    u8::try_from(number & 0x7F).unwrap_or(0)
}

/// The number at the front of `bytes` and what follows it; `None` if it does not end or does not fit.
fn take_varint(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut number = 0_usize;
    for (place, byte) in bytes.iter().enumerate() {
        let shift = u32::try_from(place * 7).ok()?;
        let part = usize::from(byte & 0x7F);
        let shifted = part.checked_shl(shift)?;
        if shifted >> shift != part {
            return None;
        }
        number |= shifted;
        if byte & 0x80 == 0 {
            return Some((number, &bytes[place + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn golden() {
        let ident = Ident::new(0x0102_0304);
        let (fields, record_id, type_bits) = (&b"\x2D\x02"[..], &b"\x2D\x0A"[..], &b"\x02"[..]);
        assert_eq!(
            IndexEntry::key(ident, true, fields, record_id),
            b"\x01\x02\x03\x04\x2D\x02"
        );
        assert_eq!(
            IndexEntry::key(ident, false, fields, record_id),
            b"\x01\x02\x03\x04\x2D\x02\x2D\x0A"
        );
        assert_eq!(
            IndexEntry::value(true, record_id, type_bits),
            b"\x02\x2D\x0A\x02"
        );
        assert_eq!(IndexEntry::value(false, record_id, type_bits), b"\x02\x02");
        assert_eq!(IndexEntry::value(false, &[0; 300], &[]), b"\xAC\x02");
    }

    #[test]
    fn damaged_entries_are_errors() {
        for (unique, key, value) in [
            (true, &b"abc"[..], &b"\x00"[..]),
            (true, b"abcd", b""),
            (true, b"abcd", b"\x02a"),
            (false, b"abcdef", b"\x03"),
            (false, b"abcdef", b"\x80"),
            (
                false,
                b"abcdef",
                b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F",
            ),
            (
                true,
                b"abcdef",
                b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01",
            ),
        ] {
            assert!(
                IndexEntry::parse(unique, key, value).is_err(),
                "{unique} {key:?} {value:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn parts_come_back(
            unique: bool,
            ident: u32,
            fields in prop::collection::vec(any::<u8>(), 0..40),
            record_id in prop::collection::vec(any::<u8>(), 0..300),
            type_bits in prop::collection::vec(any::<u8>(), 0..4),
        ) {
            let key = IndexEntry::key(Ident::new(ident), unique, &fields, &record_id);
            let value = IndexEntry::value(unique, &record_id, &type_bits);
            let entry = IndexEntry::parse(unique, &key, &value).unwrap();
            prop_assert_eq!(entry.fields, fields);
            prop_assert_eq!(entry.record_id, record_id);
            prop_assert_eq!(entry.type_bits, type_bits);
        }

        #[test]
        fn any_bytes_are_an_error_or_an_entry(
            unique: bool,
            key in prop::collection::vec(any::<u8>(), 0..20),
            value in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            if let Ok(entry) = IndexEntry::parse(unique, &key, &value) {
                prop_assert!(entry.fields.len() + entry.record_id.len() <= key.len() + value.len());
            }
        }
    }
}
