//! Well-formed messages, damaged in many ways from a fixed seed: a short run of the fuzz target.

use bson::rawdoc;
use millrace_random::Random;
use millrace_wire::{Compressor, Frame, MsgFlags, encode_msg, encode_query};

/// How many damaged messages are tried for each well-formed one.
const DAMAGES: u64 = 4_000;

fn well_formed() -> Vec<Vec<u8>> {
    let find = rawdoc! {
        "find": "c", "filter": { "a": { "$in": [1, 2.5, "x", null, true] } }, "$db": "test",
        "regex": bson::Regex { pattern: bson::raw::CString::try_from("^a").expect("no NUL"),
                               options: bson::raw::CString::try_from("i").expect("no NUL") },
        "binary": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1, 2] },
    };
    let document = rawdoc! { "_id": bson::oid::ObjectId::from_bytes([7; 12]), "n": 5_i64 };
    let insert = rawdoc! { "insert": "c", "$db": "test" };
    let mut messages = Vec::new();
    for flags in [MsgFlags::NONE, MsgFlags::CHECKSUM_PRESENT] {
        let mut bytes = Vec::new();
        encode_msg(&mut bytes, 1, flags, &find, &[]);
        messages.push(bytes);
        let mut bytes = Vec::new();
        encode_msg(
            &mut bytes,
            2,
            flags,
            &insert,
            &[("documents", &[&document, &document])],
        );
        messages.push(bytes);
    }
    let mut bytes = Vec::new();
    encode_query(&mut bytes, 3, "admin.$cmd", &rawdoc! { "isMaster": 1 });
    messages.push(bytes);
    for compressor in Compressor::ALL {
        let mut bytes = Vec::new();
        encode_msg(&mut bytes, 4, MsgFlags::NONE, &find, &[]);
        Frame::compress(&mut bytes, 0, compressor).expect("compression of our own message");
        messages.push(bytes);
    }
    messages
}

fn damage(message: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = message.to_vec();
    for _ in 0..=random.index(3) {
        let at = random.index(bytes.len().max(1));
        match random.index(5) {
            0 => bytes[at] = random.number().to_le_bytes()[0],
            1 => bytes[at] ^= 1 << random.index(8),
            2 => bytes.truncate(at.max(1)),
            3 => bytes.insert(at, random.number().to_le_bytes()[0]),
            _ => {
                // Lengths are where trouble starts: replace four bytes by an interesting number.
                let number =
                    [0, 1, 4, 5, -1, i32::MIN, i32::MAX, 16, 255][random.index(9)].to_le_bytes();
                let end = (at + 4).min(bytes.len());
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
        }
    }
    // Most damage would be found by the length in the header: repair it half of the time.
    if random.number() % 2 == 0 && bytes.len() >= 4 {
        let length = i32::try_from(bytes.len()).expect("small");
        bytes[..4].copy_from_slice(&length.to_le_bytes());
    }
    bytes
}

#[test]
fn damaged_messages_are_errors_and_never_panics() {
    let mut random = Random::new(20_260_101);
    for message in well_formed() {
        crate::exercise::receive(&message);
        for _ in 0..DAMAGES {
            crate::exercise::receive(&damage(&message, &mut random));
        }
    }
}

#[test]
fn every_prefix_of_a_message_is_an_error_once_its_length_is_repaired() {
    for message in well_formed() {
        for end in 16..message.len() {
            let mut prefix = message[..end].to_vec();
            prefix[..4].copy_from_slice(&i32::try_from(end).expect("small").to_le_bytes());
            crate::exercise::receive(&prefix);
        }
    }
}
