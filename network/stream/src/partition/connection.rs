//! What one side knows of one connection.

use super::bucket::Bucket;
use super::endpoints::{Breach, Opening};
use crate::step::Step;

/// A unit of credit.
pub(super) const UNIT: u64 = 64;
/// The most room that a receiver sets aside: a credit that goes further is a breach.
pub(super) const ROOM_MAX: u64 = 16 << 20;

/// One side of a connection.
///
/// # Invariants
/// 1. `sent <= limit`: what is in the ring is covered by room at the peer.
/// 2. `consumed <= received <= granted <= consumed + room`.
/// 3. The entry is free when both sides' last frames have passed: then no frame in the ring names it.
#[derive(Debug)]
pub(super) struct Connection {
    /// How the endpoints call it.
    pub(super) key: u32,
    pub(super) class: u8,
    /// The peer's number for it; none until the connection is established.
    pub(super) peer: Option<u32>,
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
    /// What stands in the queue of frames without data.
    pub(super) wants: Wants,
    /// In which queue it stands for data.
    pub(super) place: Place,
    /// Until when it is paced, if it is.
    pub(super) paced_ns: u64,
    /// In the queue of frames without data.
    pub(super) is_queued: bool,
    /// Nothing is told to the endpoints any more; what comes is dropped.
    pub(super) is_dropped: bool,
    /// It is over, but stands in a queue yet.
    pub(super) is_over: bool,
}

/// What goes out.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Bytes that were sent.
    pub(super) sent: u64,
    /// Bytes that may be sent.
    pub(super) limit: u64,
    /// The same as last told, in units, modulo 2^32.
    credit: u32,
    pub(super) bucket: Option<Bucket>,
    pub(super) unread: Unread,
    /// The endpoint has bytes.
    pub(super) has_data: bool,
    /// There will be none after those that it has.
    pub(super) is_ending: bool,
    pub(super) has_finished: bool,
    /// The last frame was sent.
    pub(super) is_last: bool,
}

/// What comes in.
#[derive(Debug)]
pub(super) struct Incoming {
    room: u64,
    pub(super) received: u64,
    consumed: u64,
    /// Up to where the peer was told that it may send.
    granted: u64,
    pub(super) has_finished: bool,
    /// The last frame was received.
    pub(super) is_last: bool,
}

/// Frames without data that are to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wants {
    pub(super) credit: bool,
    pub(super) finish: bool,
    pub(super) close: bool,
    /// The errno, if the connection is to be broken off.
    pub(super) reset: Option<u16>,
}

/// In which queue a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// None: there is nothing to send, or no credit.
    None,
    /// Its class's.
    Active,
    /// Of those that have as much in the ring as one may while others are active.
    Capped,
    /// Of those that wait for their rate.
    Paced,
}

/// What a connection has in the ring that was not given back, in two heaps.
#[derive(Debug, Default)]
pub(super) struct Unread {
    ends: [u64; 2],
    lines: [u64; 2],
}

impl Connection {
    pub(super) fn new(opening: &Opening, now_ns: u64) -> Self {
        let room = opening.room.clamp(UNIT, ROOM_MAX) / UNIT * UNIT;
        Self {
            key: opening.key,
            class: opening.class.number(),
            peer: None,
            outgoing: Outgoing {
                sent: 0,
                limit: 0,
                credit: 0,
                bucket: opening.rate.map(|rate| Bucket::new(rate, now_ns)),
                unread: Unread::default(),
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
            wants: Wants::default(),
            place: Place::None,
            paced_ns: 0,
            is_queued: false,
            is_dropped: false,
            is_over: false,
        }
    }

    /// Whether there are bytes to send and room for some of them.
    pub(super) const fn can_send(&self) -> bool {
        let outgoing = &self.outgoing;
        self.peer.is_some()
            && !self.is_dropped
            && outgoing.has_data
            && !outgoing.has_finished
            && outgoing.sent < outgoing.limit
    }

    /// Notes which frames without data there are to be sent. True if there are any that can be.
    pub(super) const fn settle_wants(&mut self) -> bool {
        let (outgoing, incoming) = (&self.outgoing, &self.incoming);
        if outgoing.is_last {
            self.wants = Wants {
                credit: false,
                finish: false,
                close: false,
                reset: None,
            };
            return false;
        }
        if outgoing.is_ending && !outgoing.has_data && !outgoing.has_finished && !self.is_dropped {
            self.wants.finish = true;
        }
        // Nothing can be broken off any more: both have said all, or the peer has broken it off.
        let is_done = outgoing.has_finished && incoming.has_finished;
        if (is_done || incoming.is_last) && !self.wants.finish {
            self.wants.close = true;
        }
        let wants = &self.wants;
        let is_any = wants.credit || wants.finish || wants.close || wants.reset.is_some();
        is_any && self.peer.is_some()
    }

    /// Whether no frame will name it any more.
    pub(super) const fn is_through(&self) -> bool {
        self.outgoing.is_last && self.incoming.is_last
    }
}

impl Outgoing {
    /// Takes the peer's word for how much room it has. True if there is more than before.
    pub(super) fn apply(&mut self, credit: u32) -> Result<bool, Breach> {
        let more = u64::from(credit.wrapping_sub(self.credit)) * UNIT;
        if more > ROOM_MAX {
            return Err(Breach::Credit);
        }
        let limit = self.limit + more;
        if limit.saturating_sub(self.sent) > ROOM_MAX {
            return Err(Breach::Credit);
        }
        (self.limit, self.credit) = (limit, credit);
        Ok(more != 0)
    }

    /// The same by word of mouth, which may be older than what frames have said.
    pub(super) fn apply_first(&mut self, credit: u32) -> Result<(), Breach> {
        let is_older = u64::from(self.credit.wrapping_sub(credit)) * UNIT <= ROOM_MAX;
        if is_older {
            return Ok(());
        }
        self.apply(credit).map(drop)
    }

    /// How many bytes may be sent.
    pub(super) fn credit(&self) -> u64 {
        if Step::CreditAwaited.is_kept() {
            self.limit - self.sent
        } else {
            u64::from(u32::MAX)
        }
    }
}

impl Incoming {
    /// Counts bytes that came.
    pub(super) fn take(&mut self, bytes: u64) -> Result<(), Breach> {
        if self.has_finished {
            return Err(Breach::Order);
        }
        if self.received + bytes > self.granted && Step::CreditChecked.is_kept() {
            return Err(Breach::Room);
        }
        self.received += bytes;
        Ok(())
    }

    /// Checks an end.
    pub(super) fn finish(&mut self, total: u64) -> Result<(), Breach> {
        if self.has_finished {
            return Err(Breach::Order);
        }
        self.check(total)?;
        self.has_finished = true;
        Ok(())
    }

    /// Checks how many bytes there were.
    pub(super) fn check(&self, total: u64) -> Result<(), Breach> {
        if total != self.received && Step::TotalChecked.is_kept() {
            return Err(Breach::Total);
        }
        Ok(())
    }

    /// Counts bytes that the endpoint has room for again. True if the peer must be told.
    pub(super) fn consume(&mut self, bytes: u64) -> bool {
        self.consumed = (self.consumed + bytes).min(self.received);
        let due = self.consumed + self.room - self.granted >= self.room / 2;
        due && !self.has_finished && Step::CreditGiven.is_kept()
    }

    /// The credit to be told now, in units, modulo 2^32.
    pub(super) fn grant(&mut self) -> u32 {
        if Step::CreditGiven.is_kept() {
            self.granted = (self.consumed + self.room) / UNIT * UNIT;
        }
        let units = self.granted / UNIT % (1 << 32);
        u32::try_from(units).expect("reduced")
    }
}

impl Unread {
    /// Whether a slice more may be put into the ring, of which lines up to `returned` were given back, if a heap may
    /// have `heap` lines.
    pub(super) const fn has_room(&mut self, returned: u64, heap: u64) -> bool {
        let mut turn = 0;
        while turn < 2 && self.lines[0] != 0 && self.ends[0] <= returned {
            self.ends[0] = self.ends[1];
            self.lines = [self.lines[1], 0];
            turn += 1;
        }
        self.lines[0] == 0 || self.lines[1] < heap
    }

    /// Counts lines that end at `end`.
    pub(super) const fn add(&mut self, lines: u64, end: u64, heap: u64) {
        let heap = if self.lines[0] < heap && self.lines[1] == 0 {
            0
        } else {
            1
        };
        self.ends[heap] = end;
        self.lines[heap] += lines;
    }
}
