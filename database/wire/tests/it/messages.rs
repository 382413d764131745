//! Golden messages, round trips, and the error of every malformation.

use bson::{RawDocumentBuf, rawdoc};
use millrace_wire::{
    Compressed, Compressor, DOCUMENT_LEN_MAX, Decoder, ErrorKind, Frame, MESSAGE_LEN_MAX, Message,
    MsgFlags, NESTING_DEPTH_MAX, OpCode, OpMsg, OpQuery, encode_msg, encode_query,
};
use proptest::prelude::*;

fn msg(flags: MsgFlags, body: &RawDocumentBuf) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_msg(&mut bytes, 7, flags, body, &[]);
    bytes
}

/// A message of the given sections behind flag bits, with a correct length.
fn raw_msg(flags: u32, sections: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(&2013_i32.to_le_bytes());
    bytes.extend_from_slice(&flags.to_le_bytes());
    for section in sections {
        bytes.extend_from_slice(section);
    }
    let length = i32::try_from(bytes.len()).expect("small");
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

fn body_section(body: &RawDocumentBuf) -> Vec<u8> {
    [&[0], body.as_bytes()].concat()
}

fn sequence_section(name: &str, documents: &[u8]) -> Vec<u8> {
    let length = i32::try_from(4 + name.len() + 1 + documents.len()).expect("small");
    [
        &[1],
        &length.to_le_bytes()[..],
        name.as_bytes(),
        &[0],
        documents,
    ]
    .concat()
}

fn kind_of(bytes: &[u8]) -> ErrorKind {
    let message = match Message::parse(bytes) {
        Ok(message) => message,
        Err(error) => return error.kind(),
    };
    OpMsg::parse(&message)
        .expect_err("the message is malformed")
        .kind()
}

#[test]
fn golden_ping() {
    // { "ping": 1, "$db": "admin" }, as every driver sends it.
    let expected: &[u8] = b"\x33\0\0\0\x07\0\0\0\0\0\0\0\xDD\x07\0\0\0\0\0\0\0\
        \x1E\0\0\0\x10ping\0\x01\0\0\0\x02$db\0\x06\0\0\0admin\0\0";
    let body = rawdoc! { "ping": 1, "$db": "admin" };
    assert_eq!(msg(MsgFlags::NONE, &body), expected);
    let message = Message::parse(expected).unwrap();
    assert_eq!(message.op_code, OpCode::Msg);
    assert_eq!(OpMsg::parse(&message).unwrap().body, &*body);
}

#[test]
fn golden_checksum() {
    // The CRC32C of "123456789" is 0xE3069283 (RFC 3720, B.4): the polynomial is the right one.
    assert_eq!(crc32c::crc32c(b"123456789"), 0xE306_9283);
    let bytes = msg(MsgFlags::CHECKSUM_PRESENT, &rawdoc! { "ping": 1 });
    let (content, sum) = bytes.split_last_chunk::<4>().unwrap();
    assert_eq!(crc32c::crc32c(content), u32::from_le_bytes(*sum));
    let message = Message::parse(&bytes).unwrap();
    assert!(
        OpMsg::parse(&message)
            .unwrap()
            .flags
            .contains(MsgFlags::CHECKSUM_PRESENT)
    );
}

#[test]
fn golden_reply() {
    let mut bytes = b"before".to_vec();
    let frame = Frame::begin_reply(&mut bytes, 2, 7);
    bytes.extend_from_slice(rawdoc! { "ok": 1 }.as_bytes());
    assert_eq!(frame.finish(&mut bytes, MsgFlags::NONE), 6);
    let expected: &[u8] = b"before\x31\0\0\0\x02\0\0\0\x07\0\0\0\x01\0\0\0\
        \x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x0D\0\0\0\x10ok\0\x01\0\0\0\0";
    assert_eq!(bytes, expected);
}

#[test]
fn golden_query() {
    let mut bytes = Vec::new();
    encode_query(&mut bytes, 7, "admin.$cmd", &rawdoc! { "isMaster": 1 });
    let expected: &[u8] = b"\x3A\0\0\0\x07\0\0\0\0\0\0\0\xD4\x07\0\0\0\0\0\0admin.$cmd\0\
        \0\0\0\0\xFF\xFF\xFF\xFF\x13\0\0\0\x10isMaster\0\x01\0\0\0\0";
    assert_eq!(bytes, expected);
    let query = Message::parse(&bytes)
        .and_then(|message| OpQuery::parse(&message))
        .unwrap();
    assert_eq!(query.command_database(), Some("admin"));
    assert_eq!(query.limit, -1);
    assert_eq!(query.query, &*rawdoc! { "isMaster": 1 });
}

#[test]
fn headers_are_judged_as_they_arrive() {
    let decoder = Decoder::default();
    let bytes = msg(MsgFlags::NONE, &rawdoc! { "ping": 1 });
    for end in 0..16 {
        assert_eq!(decoder.frame(&bytes[..end]).unwrap(), None);
    }
    assert_eq!(
        decoder.frame(&bytes[..16]).unwrap().unwrap().get(),
        bytes.len()
    );
    let too_long = i32::try_from(MESSAGE_LEN_MAX + 1).unwrap();
    for length in [-1, 0, 15, too_long, i32::MIN, i32::MAX] {
        let error = decoder.frame(&length.to_le_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MessageLength);
        assert!(!error.can_be_answered());
    }
    let small = Decoder::with_message_len_max(20);
    assert_eq!(
        small.frame(&bytes).unwrap_err().kind(),
        ErrorKind::MessageLength
    );
}

#[test]
fn malformed_sections() {
    let body = body_section(&rawdoc! { "insert": "c" });
    let document = rawdoc! { "_id": 1 };
    let sequence = |name| sequence_section(name, document.as_bytes());
    let cases: [(ErrorKind, Vec<u8>); 12] = [
        (ErrorKind::MissingBody, raw_msg(0, &[])),
        (
            ErrorKind::MissingBody,
            raw_msg(0, &[&sequence("documents")]),
        ),
        (ErrorKind::MultipleBodies, raw_msg(0, &[&body, &body])),
        (ErrorKind::SectionKind, raw_msg(0, &[&body, &[2]])),
        (ErrorKind::IllegalFlag, raw_msg(1 << 2, &[&body])),
        (ErrorKind::IllegalFlag, raw_msg(1 << 15, &[&body])),
        (
            ErrorKind::DuplicateSequence,
            raw_msg(0, &[&sequence("a"), &sequence("a"), &body]),
        ),
        (
            ErrorKind::TooManySequences,
            raw_msg(0, &[&sequence("a"), &sequence("b"), &sequence("c"), &body]),
        ),
        (
            ErrorKind::DuplicateField,
            raw_msg(0, &[&body, &sequence("insert")]),
        ),
        (
            ErrorKind::Truncated,
            raw_msg(0, &[&body, &[1, 200, 0, 0, 0, b'a', 0]]),
        ),
        (ErrorKind::Truncated, raw_msg(0, &[&body, &[1, 3, 0, 0, 0]])),
        (
            ErrorKind::Truncated,
            raw_msg(0, &[&body, &[1, 6, 0, 0, 0, b'a', b'b']]),
        ),
    ];
    for (kind, bytes) in cases {
        assert_eq!(kind_of(&bytes), kind, "{bytes:?}");
    }
    // Bits of the upper half may be ignored.
    let bytes = raw_msg(1 << 31 | 1 << 16, &[&body]);
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(
        OpMsg::parse(&message).unwrap().flags,
        MsgFlags::EXHAUST_ALLOWED
    );
}

#[test]
fn wrong_checksum_is_fatal() {
    let mut bytes = msg(MsgFlags::CHECKSUM_PRESENT, &rawdoc! { "ping": 1 });
    *bytes.last_mut().unwrap() ^= 1;
    let error = OpMsg::parse(&Message::parse(&bytes).unwrap()).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Checksum, 288));
    assert!(error.closes_connection());
}

#[test]
fn malformed_documents() {
    let cases: [(&str, &[u8]); 13] = [
        ("no length", b"\x05\0"),
        ("not terminated", b"\x05\0\0\0\x01"),
        ("longer than the message", b"\x09\0\0\0\0"),
        ("unknown type", b"\x08\0\0\0\x20a\0\0"),
        ("boolean of 2", b"\x09\0\0\0\x08a\0\x02\0"),
        ("string without a length", b"\x0D\0\0\0\x02a\0\0\0\0\0\0\0"),
        ("string without an end", b"\x0E\0\0\0\x02a\0\x02\0\0\0bc\0"),
        (
            "string that is not UTF-8",
            b"\x0E\0\0\0\x02a\0\x02\0\0\0\xFF\0\0",
        ),
        ("key that is not UTF-8", b"\x08\0\0\0\x0A\xFF\0\0"),
        ("key without an end", b"\x07\0\0\0\x0Aab"),
        (
            "embedded document too short",
            b"\x0D\0\0\0\x03a\0\x04\0\0\0\0\0",
        ),
        (
            "old binary with another length",
            b"\x11\0\0\0\x05a\0\x04\0\0\0\x02\x01\0\0\0\0",
        ),
        ("bytes after the end", b"\x06\0\0\0\0\0"),
    ];
    for (what, document) in cases {
        let bytes = raw_msg(0, &[&[0], document]);
        assert_eq!(kind_of(&bytes), ErrorKind::InvalidBson, "{what}");
    }
    let too_long = i32::try_from(DOCUMENT_LEN_MAX + 1).unwrap().to_le_bytes();
    for length in [too_long, 4_i32.to_le_bytes(), (-5_i32).to_le_bytes()] {
        assert_eq!(
            kind_of(&raw_msg(0, &[&[0], &length])),
            ErrorKind::DocumentLength
        );
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |levels: usize| {
        let mut document = bson::Document::new();
        for _ in 1..levels {
            document = bson::doc! { "a": document };
        }
        RawDocumentBuf::try_from(&document).unwrap()
    };
    let bytes = raw_msg(0, &[&body_section(&nested(NESTING_DEPTH_MAX))]);
    let message = Message::parse(&bytes).unwrap();
    assert!(OpMsg::parse(&message).is_ok());
    let bytes = raw_msg(0, &[&body_section(&nested(NESTING_DEPTH_MAX + 1))]);
    assert_eq!(kind_of(&bytes), ErrorKind::NestingDepth);
}

#[test]
fn unknown_operations_cannot_be_answered() {
    for op_code in [0_i32, 2001, 2002, 2005, 2013 << 8] {
        let mut bytes = msg(MsgFlags::NONE, &rawdoc! { "ping": 1 });
        bytes[12..16].copy_from_slice(&op_code.to_le_bytes());
        let error = Message::parse(&bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OpCode);
        assert!(!error.can_be_answered() && error.closes_connection());
    }
}

#[test]
fn announced_lengths_of_compressed_messages_are_checked() {
    for compressor in [
        Compressor::Noop,
        Compressor::Snappy,
        Compressor::Zlib,
        Compressor::Zstd,
    ] {
        let mut bytes = msg(
            MsgFlags::NONE,
            &rawdoc! { "ping": 1, "pad": "x".repeat(1000) },
        );
        Frame::compress(&mut bytes, 0, compressor).unwrap();
        let announced = i32::from_le_bytes(bytes[20..24].try_into().unwrap());
        for wrong in [announced - 1, announced + 1, 0] {
            bytes[20..24].copy_from_slice(&wrong.to_le_bytes());
            let message = Message::parse(&bytes).unwrap();
            let compressed = Compressed::parse(&message).unwrap();
            let error = compressed.inflate(&mut Vec::new()).unwrap_err();
            assert_eq!(
                error.kind(),
                ErrorKind::Compression,
                "{compressor:?} {wrong}"
            );
        }
        for absurd in [-1, i32::MAX, i32::try_from(MESSAGE_LEN_MAX).unwrap()] {
            bytes[20..24].copy_from_slice(&absurd.to_le_bytes());
            let message = Message::parse(&bytes).unwrap();
            assert_eq!(
                Compressed::parse(&message).unwrap_err().kind(),
                ErrorKind::Compression
            );
        }
    }
}

#[test]
fn compressed_messages_do_not_nest() {
    let mut bytes = msg(MsgFlags::NONE, &rawdoc! { "ping": 1 });
    Frame::compress(&mut bytes, 0, Compressor::Snappy).unwrap();
    Frame::compress(&mut bytes, 0, Compressor::Snappy).unwrap();
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(
        Compressed::parse(&message).unwrap_err().kind(),
        ErrorKind::Compression
    );
}

fn any_document() -> impl Strategy<Value = RawDocumentBuf> {
    let value = prop_oneof![
        any::<i32>().prop_map(bson::Bson::Int32),
        any::<i64>().prop_map(bson::Bson::Int64),
        any::<f64>().prop_map(bson::Bson::Double),
        ".{0,20}".prop_map(bson::Bson::String),
        any::<bool>().prop_map(bson::Bson::Boolean),
        Just(bson::Bson::Null),
        Just(bson::Bson::MinKey),
        any::<i64>().prop_map(|ms| bson::Bson::DateTime(bson::DateTime::from_millis(ms))),
        proptest::collection::vec(any::<i32>(), 0..4)
            .prop_map(|numbers| numbers.into_iter().map(bson::Bson::Int32).collect()),
    ];
    proptest::collection::vec(("[a-z]{1,6}", value), 0..8).prop_map(|fields| {
        let document: bson::Document = fields.into_iter().collect();
        RawDocumentBuf::try_from(&document).expect("the document is small")
    })
}

proptest! {
    #[test]
    fn messages_survive_the_round_trip(
        request_id: i32,
        body in any_document(),
        documents in proptest::collection::vec(any_document(), 0..5),
        checksum: bool,
        compressor in prop_oneof![
            Just(None),
            Just(Some(Compressor::Snappy)),
            Just(Some(Compressor::Zlib)),
            Just(Some(Compressor::Zstd)),
        ],
    ) {
        let flags = if checksum { MsgFlags::CHECKSUM_PRESENT } else { MsgFlags::NONE };
        let views: Vec<_> = documents.iter().map(|document| &**document).collect();
        let mut bytes = b"the message before".to_vec();
        let start = bytes.len();
        encode_msg(&mut bytes, request_id, flags, &body, &[("Documents", &views)]);
        let plain = bytes[start..].to_vec();

        if let Some(compressor) = compressor {
            Frame::compress(&mut bytes, start, compressor).unwrap();
            let message = Message::parse(&bytes[start..]).unwrap();
            let compressed = Compressed::parse(&message).unwrap();
            prop_assert_eq!(compressed.compressor(), compressor);
            let mut inflated = Vec::new();
            compressed.inflate(&mut inflated).unwrap();
            prop_assert_eq!(&inflated, &plain);
        }

        let length = Decoder::default().frame(&plain).unwrap().unwrap();
        prop_assert_eq!(length.get(), plain.len());
        let message = Message::parse(&plain).unwrap();
        let request = OpMsg::parse(&message).unwrap();
        prop_assert_eq!(request.header.request_id, request_id);
        prop_assert_eq!(request.flags, flags);
        prop_assert_eq!(request.body, &*body);
        let sequence = request.sequence("Documents").unwrap();
        prop_assert_eq!(sequence.documents().collect::<Vec<_>>(), views);
        prop_assert_eq!(sequence.len(), documents.len());
    }
}
