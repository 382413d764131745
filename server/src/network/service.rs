//! The seam between the network and what answers requests.

use std::fmt;
use std::time::Duration;

use millrace_wire::{Compressor, Frame, Message, MsgFlags, OpCode};

use super::Ticket;
use crate::acknowledgement::Acknowledgement;

/// A connection's number: from 1, never used twice in the life of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "conn{}", self.0)
    }
}

/// What is known about a connection when it opens.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// The number of the connection, unique in the process.
    pub id: ConnectionId,
    /// The other end, `address:port` for TCP.
    pub peer: String,
}

/// Why a request is served again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// [`Outcome::Wait`]'s ticket was notified.
    Notified,
    /// [`Outcome::Wait`]'s time is over.
    TimedOut,
}

/// A request as the service sees it: a whole message, not looked into.
#[derive(Debug)]
pub struct Request<'a> {
    /// The message; never a compressed one.
    pub message: Message<'a>,
    /// Monotonic time at which this round began: when the request's last byte was received or, in an exhaust stream, when
    /// the reply before was out of the way.
    pub began: Duration,
    /// Set when the request waited before and is served again.
    pub resumed: Option<Resumed>,
    /// How many replies this request has had: above 0 only in an exhaust stream.
    pub round: u32,
}

/// The result of serving a request: what the network does next.
#[derive(Debug)]
#[must_use]
pub enum Outcome {
    /// The reply is in the buffer.
    Done,
    /// There is no reply (the request had the flag moreToCome).
    NoReply,
    /// The reply is in the buffer and may be sent once its write has come that far. A reply that may be sent at once
    /// is [`Outcome::Done`].
    Acknowledge(Acknowledgement),
    /// This may take long: serve it with [`Service::call_blocking`] on a pool thread. Whatever
    /// is in the buffer is dropped.
    Offload,
    /// Serve the request again when the ticket is notified, at the latest at `until`. Whatever is in
    /// the buffer is dropped.
    Wait {
        /// The latest monotonic time.
        until: Duration,
        /// What may end the wait earlier.
        ticket: Option<Ticket>,
    },
    /// Close the connection without a reply.
    Close,
}

/// What answers requests. Called from many threads at once, but for one connection from one at a time.
pub trait Service: Send + Sync + fmt::Debug + 'static {
    /// What is kept for each connection.
    type Session: Send + fmt::Debug + 'static;

    /// A connection was accepted.
    fn open(&self, connection: &ConnectionInfo) -> Self::Session;

    /// Serves a request on a worker thread: must not block.
    fn call(
        &self,
        session: &mut Self::Session,
        request: &Request<'_>,
        reply: &mut ReplyBuffer<'_>,
    ) -> Outcome;

    /// Serves a request for which [`Service::call`] answered [`Outcome::Offload`]. May block.
    /// [`Outcome::Offload`] is no answer to this.
    fn call_blocking(
        &self,
        session: &mut Self::Session,
        request: &Request<'_>,
        reply: &mut ReplyBuffer<'_>,
    ) -> Outcome;

    /// The sync that a finished reply waited for failed: replaces the reply by the error.
    fn durability_failed(&self, reply: &mut ReplyBuffer<'_>);

    /// The time limit of a finished reply is over, which is [written](ReplyBuffer::written) as it was: says in it that
    /// the write was applied and is not acknowledged.
    fn acknowledgement_timed_out(&self, session: &mut Self::Session, reply: &mut ReplyBuffer<'_>);

    /// Serving a request panicked: writes the reply that the client gets before the connection is
    /// closed.
    fn panicked(&self, reply: &mut ReplyBuffer<'_>);

    /// The client of a request that is on a pool thread is gone.
    fn disconnected(&self, connection: ConnectionId);

    /// The server is shutting down: requests on pool threads should come to an end, and those that
    /// wait for a ticket should be woken. What waits after this is closed without a reply.
    fn interrupt_all(&self);

    /// A connection is over.
    fn close(&self, session: Self::Session);
}

/// Where a reply is written to: the end of the connection's send buffer.
///
/// The header is there before the service sees it; the service appends one document to
/// [`ReplyBuffer::document`], and the network layer completes the frame.
#[derive(Debug)]
pub struct ReplyBuffer<'a> {
    out: &'a mut Vec<u8>,
    frame: Frame,
    flags: MsgFlags,
    compressor: Option<Compressor>,
    close: bool,
}

impl<'a> ReplyBuffer<'a> {
    pub(crate) fn new(
        out: &'a mut Vec<u8>,
        form: OpCode,
        reply_id: i32,
        response_to: i32,
        compressor: Option<Compressor>,
    ) -> Self {
        let frame = if form == OpCode::Query {
            Frame::begin_reply(out, reply_id, response_to)
        } else {
            Frame::begin_msg(out, reply_id, response_to)
        };
        Self {
            out,
            frame,
            flags: MsgFlags::NONE,
            compressor,
            close: false,
        }
    }

    /// The vector to which the reply's document is appended. What was appended before is dropped.
    pub fn document(&mut self) -> &mut Vec<u8> {
        self.frame.rewind(self.out);
        self.out
    }

    /// The bytes of the reply's document that are written so far.
    #[must_use]
    pub fn written(&self) -> &[u8] {
        &self.out[self.frame.document_start()..]
    }

    /// Adds flags to those that the reply has.
    pub fn set_flags(&mut self, flags: MsgFlags) {
        self.flags = self.flags.with(flags);
    }

    /// Sends the reply as it is even if the request was compressed: for handshakes.
    pub fn do_not_compress(&mut self) {
        self.compressor = None;
    }

    /// Closes the connection once the reply is sent.
    pub fn close_after(&mut self) {
        self.close = true;
    }

    pub(crate) const fn flags(&self) -> MsgFlags {
        self.flags
    }

    pub(crate) const fn closes(&self) -> bool {
        self.close
    }

    pub(crate) fn abandon(self) {
        self.frame.abandon(self.out);
    }

    /// Completes the frame and returns where it starts.
    pub(crate) fn finish(self) -> usize {
        let start = self.frame.finish(self.out, self.flags);
        if let Some(compressor) = self.compressor {
            // A reply that cannot be compressed is sent as it is: receivers accept both.
            let _ = Frame::compress(self.out, start, compressor);
        }
        start
    }
}
