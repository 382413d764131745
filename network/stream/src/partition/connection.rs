//! One side's state of one connection.

use super::bucket::Bucket;
use super::connection_state::ConnectionState;
use super::endpoints::{OpenParams, ProtocolViolation};
use crate::mutation_point::MutationPoint;

/// Bytes of a credit unit.
pub(super) const UNIT: u64 = 64;
/// The largest receive room in bytes: a credit beyond it is a violation.
pub(super) const ROOM_MAX: u64 = 16 << 20;

/// One side of a connection.
///
/// # Invariants
/// 1. `sent <= limit`: what is in the ring is covered by room at the peer.
/// 2. `consumed <= received <= granted <= consumed + room`.
/// 3. The entry is free when both sides' last frames have passed: then no frame in the ring names it.
#[derive(Debug)]
pub(super) struct Connection {
    /// The endpoints' key of the connection.
    pub(super) key: u32,
    pub(super) class: u8,
    /// The peer's number for it; `None` until the connection is established.
    pub(super) peer: Option<u32>,
    pub(super) state: ConnectionState,
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
    /// The queue in which it waits to send data.
    pub(super) queue: QueueState,
    /// Whether it is in the control queue.
    pub(super) is_queued: bool,
}

/// The bytes and credit of the sending half.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The count of bytes sent since the start.
    pub(super) sent: u64,
    /// Bytes that may be sent since the start.
    pub(super) limit: u64,
    /// The peer's last credit, in units, modulo 2^32.
    credit: u32,
    pub(super) bucket: Option<Bucket>,
    pub(super) in_flight: InFlight,
}

/// The bytes and credit of the receiving half.
#[derive(Debug)]
pub(super) struct Incoming {
    room: u64,
    pub(super) received: u64,
    consumed: u64,
    /// Bytes that the peer may send since the start.
    granted: u64,
    /// Whether a CREDIT frame is due. Each other frame carries the credit as well.
    is_credit_due: bool,
}

/// The data queue in which a connection waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueState {
    /// No queue: nothing to send, or no credit.
    None,
    /// The queue of its class.
    Active,
    /// The queue of those at their share of the ring while others are active.
    Capped,
    /// The heap of those that wait for their rate.
    Paced {
        /// The time until which it waits, in nanoseconds.
        due_ns: u64,
    },
}

/// A connection's lines in the ring that the peer has not returned, in two batches.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    ends: [u64; 2],
    lines: [u64; 2],
}

impl Connection {
    pub(super) fn new(params: &OpenParams, now_ns: u64) -> Self {
        let room = params.room.clamp(UNIT, ROOM_MAX) / UNIT * UNIT;
        Self {
            key: params.key,
            class: params.class.number(),
            peer: None,
            state: ConnectionState::NEW,
            outgoing: Outgoing {
                sent: 0,
                limit: 0,
                credit: 0,
                bucket: params.rate.map(|rate| Bucket::new(rate, now_ns)),
                in_flight: InFlight::default(),
            },
            incoming: Incoming {
                room,
                received: 0,
                consumed: 0,
                granted: room,
                is_credit_due: false,
            },
            queue: QueueState::None,
            is_queued: false,
        }
    }

    /// Whether there are bytes to send and credit for some of them.
    pub(super) const fn can_send(&self) -> bool {
        self.peer.is_some() && self.state.has_data() && self.outgoing.sent < self.outgoing.limit
    }

    /// Whether a control frame can be sent.
    pub(super) const fn has_pending_control(&self) -> bool {
        let is_credit_due = self.incoming.is_credit_due && !self.state.has_closed();
        self.peer.is_some() && (self.state.due().is_some() || is_credit_due)
    }

    /// Counts bytes for which the endpoint has room again. True if a CREDIT frame is due.
    pub(super) fn consume(&mut self, bytes: u64) -> bool {
        let is_due = self.incoming.consume(bytes) && self.state.receives_bytes();
        self.incoming.is_credit_due |= is_due;
        is_due
    }
}

impl Outgoing {
    /// Applies the peer's cumulative credit. True if it grew.
    pub(super) fn apply(&mut self, credit: u32) -> Result<bool, ProtocolViolation> {
        let more = u64::from(credit.wrapping_sub(self.credit)) * UNIT;
        if more > ROOM_MAX {
            return Err(ProtocolViolation::Credit);
        }
        let limit = self.limit + more;
        if limit.saturating_sub(self.sent) > ROOM_MAX {
            return Err(ProtocolViolation::Credit);
        }
        (self.limit, self.credit) = (limit, credit);
        Ok(more != 0)
    }

    /// Applies the credit of the open reply, which may be older than that of received frames.
    pub(super) fn apply_first(&mut self, credit: u32) -> Result<(), ProtocolViolation> {
        let is_older = u64::from(self.credit.wrapping_sub(credit)) * UNIT <= ROOM_MAX;
        if is_older {
            return Ok(());
        }
        self.apply(credit).map(drop)
    }

    /// Bytes that may be sent now.
    pub(super) fn credit(&self) -> u64 {
        if MutationPoint::CreditAwaited.is_enabled() {
            self.limit - self.sent
        } else {
            u64::from(u32::MAX)
        }
    }
}

impl Incoming {
    /// Counts received bytes.
    pub(super) fn take(&mut self, bytes: u64) -> Result<(), ProtocolViolation> {
        if self.received + bytes > self.granted && MutationPoint::CreditChecked.is_enabled() {
            return Err(ProtocolViolation::Room);
        }
        self.received += bytes;
        Ok(())
    }

    /// Compares a total with the received bytes.
    pub(super) fn check(&self, total: u64) -> Result<(), ProtocolViolation> {
        if total != self.received && MutationPoint::TotalChecked.is_enabled() {
            return Err(ProtocolViolation::Total);
        }
        Ok(())
    }

    /// Counts bytes for which the endpoint has room again. True if enough of it is not granted yet.
    fn consume(&mut self, bytes: u64) -> bool {
        self.consumed = (self.consumed + bytes).min(self.received);
        let is_enough = self.consumed + self.room - self.granted >= self.room / 2;
        is_enough && MutationPoint::CreditGiven.is_enabled()
    }

    /// The cumulative credit to send now, in units, modulo 2^32.
    pub(super) fn grant(&mut self) -> u32 {
        self.is_credit_due = false;
        if MutationPoint::CreditGiven.is_enabled() {
            self.granted = (self.consumed + self.room) / UNIT * UNIT;
        }
        let units = self.granted / UNIT % (1 << 32);
        u32::try_from(units).expect("reduced")
    }
}

impl InFlight {
    /// Whether another slice may enter the ring, given that the peer has returned the lines up to `returned` and one
    /// batch may have `share` lines.
    pub(super) const fn has_room(&mut self, returned: u64, share: u64) -> bool {
        let mut turn = 0;
        while turn < 2 && self.lines[0] != 0 && self.ends[0] <= returned {
            self.ends[0] = self.ends[1];
            self.lines = [self.lines[1], 0];
            turn += 1;
        }
        self.lines[0] == 0 || self.lines[1] < share
    }

    /// Counts lines that end at position `end`.
    pub(super) const fn add(&mut self, lines: u64, end: u64, share: u64) {
        let share = if self.lines[0] < share && self.lines[1] == 0 {
            0
        } else {
            1
        };
        self.ends[share] = end;
        self.lines[share] += lines;
    }
}
