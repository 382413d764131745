//! Serving one request: the same on a worker and on a pool thread.

use std::panic::{AssertUnwindSafe, catch_unwind};

use millrace_wire::{Compressed, Message, MsgFlags, OpCode, OpMsg};

use super::connection::Current;
use super::{Outcome, ReplyBuffer, Request, Resumed, Service};

/// Where a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Worker,
    Executor,
}

/// What came of it. The reply, if any, is a finished frame at `start` of the output.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) outcome: Outcome,
    pub(super) start: usize,
    /// The reply announced another one.
    pub(super) more_to_come: bool,
    /// Close the connection after the reply.
    pub(super) close: bool,
}

/// Serves the request that `bytes` consist of and appends the finished reply to `out`.
pub(super) fn serve<S: Service>(
    service: &S,
    session: &mut S::Session,
    current: &Current,
    bytes: &[u8],
    resumed: Option<Resumed>,
    place: Place,
    out: &mut Vec<u8>,
) -> Served {
    let start = out.len();
    let Ok(message) = Message::parse(bytes) else {
        return Served {
            outcome: Outcome::Close,
            start,
            more_to_come: false,
            close: true,
        };
    };
    let request = Request {
        message,
        began: current.began,
        resumed,
        round: current.round,
    };
    let mut reply = reply_buffer(current, out);
    // A panic is a bug of ours; it costs this client its connection, and the others nothing.
    let outcome = catch_unwind(AssertUnwindSafe(|| match place {
        Place::Worker => service.call(session, &request, &mut reply),
        Place::Executor => service.call_blocking(session, &request, &mut reply),
    }));
    let outcome = match outcome {
        Ok(Outcome::Offload) if place == Place::Executor => {
            tracing::error!(target: "NETWORK", id = 23_300_u32, "A request was offloaded twice");
            Outcome::Close
        }
        Ok(outcome) => outcome,
        Err(_) => {
            service.panicked(&mut reply);
            reply.close_after();
            Outcome::Done
        }
    };
    complete(outcome, reply, start)
}

/// Replaces a parked reply at `start` by the error that its sync failed.
pub(super) fn fail<S: Service>(
    service: &S,
    current: &Current,
    start: usize,
    out: &mut Vec<u8>,
) -> Served {
    out.truncate(start);
    let mut reply = reply_buffer(current, out);
    service.durability_failed(&mut reply);
    complete(Outcome::Done, reply, start)
}

/// Adds to a parked reply at `start` that its time is over. The write stays applied.
pub(crate) fn time_out<S: Service>(
    service: &S,
    session: &mut S::Session,
    current: &Current,
    start: usize,
    out: &mut Vec<u8>,
) -> Served {
    let Some((flags, document)) = read_back(&out[start..]) else {
        // Only a message of ours that is not well-formed: it must not pass for an acknowledgement.
        tracing::error!(target: "NETWORK", id = 23_313_u32, "A parked reply cannot be read back");
        return fail(service, current, start, out);
    };
    out.truncate(start);
    let mut reply = reply_buffer(current, out);
    reply.set_flags(flags);
    reply.document().extend_from_slice(&document);
    service.acknowledgement_timed_out(session, &mut reply);
    complete(Outcome::Done, reply, start)
}

/// The flags and the document of a finished OP_MSG reply.
fn read_back(frame: &[u8]) -> Option<(MsgFlags, Vec<u8>)> {
    let mut inflated = Vec::new();
    let mut message = Message::parse(frame).ok()?;
    if message.op_code == OpCode::Compressed {
        let compressed = Compressed::parse(&message).ok()?;
        compressed.inflate(&mut inflated).ok()?;
        message = Message::parse(&inflated).ok()?;
    }
    let reply = OpMsg::parse(&message).ok()?;
    Some((reply.flags, reply.body.as_bytes().to_vec()))
}

fn reply_buffer<'a>(current: &Current, out: &'a mut Vec<u8>) -> ReplyBuffer<'a> {
    ReplyBuffer::new(
        out,
        current.form,
        current.reply_id,
        current.response_to,
        current.compressor,
    )
}

fn complete(outcome: Outcome, reply: ReplyBuffer<'_>, start: usize) -> Served {
    let close = reply.closes();
    let more_to_come = reply.flags().contains(MsgFlags::MORE_TO_COME);
    match outcome {
        Outcome::Done | Outcome::Acknowledge(_) => {
            reply.finish();
            Served {
                outcome,
                start,
                more_to_come,
                close,
            }
        }
        Outcome::NoReply | Outcome::Offload | Outcome::Wait { .. } | Outcome::Close => {
            reply.abandon();
            Served {
                outcome,
                start,
                more_to_come: false,
                close,
            }
        }
    }
}
