//! One side's state of one connection.

use super::bucket::Bucket;
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
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
    /// The control frames to be sent.
    pub(super) pending: PendingControl,
    /// The queue in which it waits to send data.
    pub(super) queue: QueueState,
    /// The time until which it is paced, in nanoseconds.
    pub(super) paced_ns: u64,
    /// Whether it is in the control queue.
    pub(super) is_queued: bool,
    /// Whether the endpoint is finished with it: received frames are dropped.
    pub(super) is_dropped: bool,
    /// Whether it is over, but still in a queue.
    pub(super) is_over: bool,
}

/// The sending half.
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
    /// Whether the endpoint has bytes.
    pub(super) has_data: bool,
    /// Whether the endpoint gets no further bytes.
    pub(super) is_ending: bool,
    pub(super) has_finished: bool,
    /// Whether the last frame was sent.
    pub(super) is_last: bool,
}

/// The receiving half.
#[derive(Debug)]
pub(super) struct Incoming {
    room: u64,
    pub(super) received: u64,
    consumed: u64,
    /// Bytes that the peer may send since the start.
    granted: u64,
    pub(super) has_finished: bool,
    /// Whether the last frame was received.
    pub(super) is_last: bool,
}

/// The control frames that are to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PendingControl {
    pub(super) credit: bool,
    pub(super) finish: bool,
    pub(super) close: bool,
    /// The errno of a reset to be sent.
    pub(super) reset: Option<u16>,
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
    Paced,
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
            outgoing: Outgoing {
                sent: 0,
                limit: 0,
                credit: 0,
                bucket: params.rate.map(|rate| Bucket::new(rate, now_ns)),
                in_flight: InFlight::default(),
                has_data: false,
                is_ending: false,
                has_finished: false,
                is_last: false,
            },
            incoming: Incoming {
                room,
                received: 0,
                consumed: 0,
                granted: room,
                has_finished: false,
                is_last: false,
            },
            pending: PendingControl::default(),
            queue: QueueState::None,
            paced_ns: 0,
            is_queued: false,
            is_dropped: false,
            is_over: false,
        }
    }

    /// Whether there are bytes to send and credit for some of them.
    pub(super) const fn can_send(&self) -> bool {
        let outgoing = &self.outgoing;
        self.peer.is_some()
            && !self.is_dropped
            && outgoing.has_data
            && !outgoing.has_finished
            && outgoing.sent < outgoing.limit
    }

    /// Updates the control frames to be sent. True if one can be sent.
    pub(super) const fn has_pending_control(&mut self) -> bool {
        let (outgoing, incoming) = (&self.outgoing, &self.incoming);
        if outgoing.is_last {
            self.pending = PendingControl {
                credit: false,
                finish: false,
                close: false,
                reset: None,
            };
            return false;
        }
        if outgoing.is_ending && !outgoing.has_data && !outgoing.has_finished && !self.is_dropped {
            self.pending.finish = true;
        }
        // A reset is pointless now: both have finished, or the peer has reset.
        let is_done = outgoing.has_finished && incoming.has_finished;
        if (is_done || incoming.is_last) && !self.pending.finish {
            self.pending.close = true;
        }
        let pending = &self.pending;
        let is_any = pending.credit || pending.finish || pending.close || pending.reset.is_some();
        is_any && self.peer.is_some()
    }

    /// Whether no further frame will name it.
    pub(super) const fn is_through(&self) -> bool {
        self.outgoing.is_last && self.incoming.is_last
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
        if self.has_finished {
            return Err(ProtocolViolation::Order);
        }
        if self.received + bytes > self.granted && MutationPoint::CreditChecked.is_enabled() {
            return Err(ProtocolViolation::Room);
        }
        self.received += bytes;
        Ok(())
    }

    /// Checks and records the peer's end.
    pub(super) fn finish(&mut self, total: u64) -> Result<(), ProtocolViolation> {
        if self.has_finished {
            return Err(ProtocolViolation::Order);
        }
        self.check(total)?;
        self.has_finished = true;
        Ok(())
    }

    /// Compares a total with the received bytes.
    pub(super) fn check(&self, total: u64) -> Result<(), ProtocolViolation> {
        if total != self.received && MutationPoint::TotalChecked.is_enabled() {
            return Err(ProtocolViolation::Total);
        }
        Ok(())
    }

    /// Counts bytes for which the endpoint has room again. True if a credit frame is due.
    pub(super) fn consume(&mut self, bytes: u64) -> bool {
        self.consumed = (self.consumed + bytes).min(self.received);
        let due = self.consumed + self.room - self.granted >= self.room / 2;
        due && !self.has_finished && MutationPoint::CreditGiven.is_enabled()
    }

    /// The cumulative credit to send now, in units, modulo 2^32.
    pub(super) fn grant(&mut self) -> u32 {
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
