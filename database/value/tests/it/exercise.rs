//! What is done with keys of unknown origin: shared by the fuzz target and by the deterministic run in
//! `tests/hostile_keys.rs`.

use millrace_value::key::{TypeBits, TypeBitsReader};
use millrace_value::{Collation, key};

/// Reads `bytes` as a direction, a count of type bits, the type bits, and a key.
pub(crate) fn check_input(bytes: &[u8]) {
    let [head, rest @ ..] = bytes else { return };
    let (bits, key) = rest.split_at(usize::from(head >> 1 & 7).min(rest.len()));
    check(key, bits, head & 1 == 1);
}

/// Decoding ends where skipping ends, and what was decoded has a key that decodes to the same. Must
/// not panic.
pub(crate) fn check(bytes: &[u8], type_bits: &[u8], descending: bool) {
    let (mut rest, mut skipped) = (bytes, bytes);
    let decoded = key::decode(&mut rest, &mut TypeBitsReader::new(type_bits), descending);
    let skip = key::skip(&mut skipped, descending);
    let Ok(value) = decoded else { return };
    skip.expect("what can be decoded can be skipped");
    assert_eq!(rest, skipped);

    let (mut first, mut first_bits) = (Vec::new(), TypeBits::new());
    Collation::SIMPLE
        .encode_key(
            &mut first,
            &mut first_bits,
            value.as_raw_bson_ref(),
            descending,
        )
        .expect("a decoded value is valid BSON");
    let mut reader = TypeBitsReader::new(first_bits.as_bytes());
    let again = key::decode(&mut first.as_slice(), &mut reader, descending)
        .expect("an encoded value can be decoded");
    let (mut second, mut second_bits) = (Vec::new(), TypeBits::new());
    Collation::SIMPLE
        .encode_key(
            &mut second,
            &mut second_bits,
            again.as_raw_bson_ref(),
            descending,
        )
        .expect("a decoded value is valid BSON");
    assert_eq!((first, first_bits), (second, second_bits));
}
