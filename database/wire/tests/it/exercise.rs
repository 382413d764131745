//! What a receiver does with bytes of unknown origin: shared by the fuzz target and by the
//! deterministic run in `tests/it/hostile_bytes.rs`.

use millrace_wire::{Compressed, Decoder, Frame, Message, MsgFlags, OpCode, OpMsg, OpQuery};

/// Inflating is the one step whose memory the sender decides: stay far below the protocol's limit.
const INFLATED_LEN_MAX: usize = 1 << 20;

/// Cuts `bytes` into messages and reads every one of them to its last element. Must not panic; what
/// was accepted must be readable without an error.
pub(crate) fn receive(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some(length)) = Decoder::default().frame(rest) {
        let Some((message, next)) = rest.split_at_checked(length.get()) else {
            return;
        };
        read(message, true);
        rest = next;
    }
}

fn read(bytes: &[u8], may_inflate: bool) {
    let Ok(message) = Message::parse(bytes) else {
        return;
    };
    match message.op_code {
        OpCode::Msg => {
            if let Ok(request) = OpMsg::parse(&message) {
                read_request(&request);
            }
        }
        OpCode::Query => {
            if let Ok(query) = OpQuery::parse(&message) {
                bson::Document::try_from(query.query).expect("an accepted document is readable");
            }
        }
        OpCode::Compressed if may_inflate => {
            let Ok(compressed) = Compressed::parse(&message) else {
                return;
            };
            let mut inflated = Vec::new();
            if compressed.inflated_len() <= INFLATED_LEN_MAX
                && compressed.inflate(&mut inflated).is_ok()
            {
                assert_eq!(inflated.len(), compressed.inflated_len());
                read(&inflated, false);
            }
        }
        OpCode::Compressed | OpCode::Reply => {}
    }
}

fn read_request(request: &OpMsg<'_>) {
    bson::Document::try_from(request.body).expect("an accepted body is readable");
    for sequence in request.sequences() {
        let mut count = 0;
        for document in sequence.documents() {
            bson::Document::try_from(document).expect("an accepted document is readable");
            count += 1;
        }
        assert_eq!(count, sequence.len());
    }

    // What was read can be written again.
    let mut out = Vec::new();
    let frame = Frame::begin_msg(
        &mut out,
        request.header.request_id,
        request.header.response_to,
    );
    out.extend_from_slice(request.body.as_bytes());
    frame.finish(&mut out, request.flags.without(MsgFlags::EXHAUST_ALLOWED));
    let message = Message::parse(&out).expect("our own message is well-formed");
    let again = OpMsg::parse(&message).expect("our own message is well-formed");
    assert_eq!(again.body, request.body);
}
