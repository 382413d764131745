//! One connection's state.

use std::time::Duration;

use millrace_wire::{Compressor, OpCode};

use super::buffer::Buffer;
use super::poller::Interest;
use super::{ConnectionId, Ticket, Transport};
use crate::acknowledgement::Acknowledgement;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Receiving; requests are served as they are complete.
    Ready,
    /// Its request, session and receive buffer are with a pool thread.
    Running,
    /// Its last reply starts at this place of the send buffer and waits until its write has come far enough.
    Parked {
        wanted: Acknowledgement,
        start: usize,
    },
    /// Its request waits for a time or a ticket.
    Waiting {
        until: Duration,
        ticket: Option<Ticket>,
    },
    /// Its request is to be served again once the replies so far are sent.
    Repeating,
}

/// The source of a connection's readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// The kernel, through the poller.
    Poller,
    /// The transport, asked in every round because the connection is in the worker's list. It was last ready `since`
    /// then.
    Hot { since: Duration },
    /// The client, which sends a wake-up when the transport is ready for that; the poller watches the wake-up fd.
    Armed(Interest),
}

/// The request being served. Its bytes are at the start of the unconsumed input.
#[derive(Debug)]
pub(super) struct Current {
    /// The length of the frame.
    pub(super) len: usize,
    /// The operation, which decides the form of the reply.
    pub(super) form: OpCode,
    /// What the next reply is an answer to.
    pub(super) response_to: i32,
    /// The number of the next reply.
    pub(super) reply_id: i32,
    /// How the request was compressed.
    pub(super) compressor: Option<Compressor>,
    /// The decompressed message.
    pub(super) inflated: Option<Buffer>,
    /// When this round began.
    pub(super) began: Duration,
    pub(super) round: u32,
}

/// A connection. `S` is the service's session.
#[derive(Debug)]
pub(super) struct Connection<S> {
    pub(super) id: ConnectionId,
    pub(super) transport: Box<dyn Transport>,
    /// Away while [`State::Running`].
    pub(super) session: Option<S>,
    /// Away while [`State::Running`], and while nothing is being received.
    pub(super) input: Option<Buffer>,
    /// How many bytes of the input are served.
    pub(super) consumed: usize,
    pub(super) current: Option<Current>,
    pub(super) output: Option<Buffer>,
    /// How many bytes of the output are sent.
    pub(super) sent: usize,
    pub(super) state: State,
    /// What the connection is watched for. A wake-up fd is watched for wake-ups in any case.
    pub(super) interest: Interest,
    pub(super) watch: Watch,
    /// Whether the poller watches at all: a broken connection whose request still runs is not.
    pub(super) watched: bool,
    /// Whether the last event was one that is of no use now.
    pub(super) disturbed: bool,
    /// Close as soon as everything is sent.
    pub(super) closing: bool,
    /// The client is gone; what is left is to get the session back.
    pub(super) gone: bool,
    /// Reading stopped because the memory budget is used up.
    pub(super) starved: bool,
    /// When the server began to wait for the rest of a message of which it has a part; none while a request is
    /// served or a reply is sent. See [`Connection::update_receive_timer`].
    pub(super) partial_since: Option<Duration>,
    /// Since when the client has not taken its replies.
    pub(super) stalled_since: Option<Duration>,
    /// The deadline in the worker's timers.
    pub(super) deadline: Option<Duration>,
}

impl<S> Connection<S> {
    pub(super) fn new(id: ConnectionId, transport: Box<dyn Transport>, session: S) -> Self {
        Self {
            id,
            transport,
            session: Some(session),
            input: None,
            consumed: 0,
            current: None,
            output: None,
            sent: 0,
            state: State::Ready,
            interest: Interest::Read,
            watch: Watch::Poller,
            watched: true,
            disturbed: false,
            closing: false,
            gone: false,
            starved: false,
            partial_since: None,
            stalled_since: None,
            deadline: None,
        }
    }

    /// The bytes that are received and not served.
    pub(super) fn unserved(&self) -> &[u8] {
        self.input
            .as_ref()
            .map_or(&[], |input| &input.bytes[self.consumed..])
    }

    /// Where the bytes that may be sent end.
    pub(super) fn sendable_end(&self) -> usize {
        match self.state {
            State::Parked { start, .. } => start,
            _ => self.output.as_ref().map_or(0, |output| output.bytes.len()),
        }
    }

    /// The bytes that may be sent.
    pub(super) fn sendable(&self) -> &[u8] {
        let end = self.sendable_end();
        self.output
            .as_ref()
            .map_or(&[], |output| &output.bytes[self.sent..end])
    }

    /// Starts the receive timer at `now` if it does not run and the server waits for the rest of a message; stops it
    /// if the server waits for anything else.
    pub(super) fn update_receive_timer(&mut self, now: Duration) {
        let waits_for_rest = self.state == State::Ready
            && self.current.is_none()
            && self.sendable().is_empty()
            && !self.unserved().is_empty();
        if waits_for_rest {
            self.partial_since.get_or_insert(now);
        } else {
            self.partial_since = None;
        }
    }

    /// What the connection should be watched for. An interest that is merely not needed stays until it disturbs:
    /// most requests are over before the next event, and changing it is a system call, unless there is a wake-up fd.
    pub(super) fn wanted_interest(&self) -> Interest {
        if !self.sendable().is_empty() {
            return Interest::Write;
        }
        let (needed, tolerated) = match self.state {
            State::Ready if self.starved => (Interest::None, false),
            State::Ready => return Interest::Read,
            State::Running | State::Waiting { .. } => (Interest::HangUp, true),
            State::Parked { .. } | State::Repeating => (Interest::None, true),
        };
        let tolerated = tolerated && self.watch == Watch::Poller;
        if tolerated && self.interest == Interest::Read && !self.disturbed {
            Interest::Read
        } else {
            needed
        }
    }
}
