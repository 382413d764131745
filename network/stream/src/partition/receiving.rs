//! The receiving half of a partition.

use millrace_window::{Incoming, Medium, Outgoing, WORD};

use super::endpoints::{ConnectionId, Endpoints, ProtocolViolation, Reset, SessionError};
use super::frame::{CHECKED, HEADER, HEADER_CHECKED, Header, Kind, MTU_MAX, check, number, total};
use super::geometry::{RETURNED, RING};
use super::sending::{Work, close};
use super::session::store_word;
use crate::mutation_point::MutationPoint;
use crate::ring::Ring;

/// The least lines that are returned from a drained ring.
const CREDIT_RETURN_MIN: u64 = 16;
/// EPROTO, for a peer that broke the protocol.
const PROTOCOL: u16 = 71;

/// The reader of a partition's ring.
#[derive(Debug)]
pub(super) struct Receiving {
    ring: Ring<Kind>,
    position: u64,
    credited: u64,
    has_checks: bool,
    frame: Box<[u8; HEADER_CHECKED + MTU_MAX]>,
    pub(super) frames: u64,
    pub(super) bytes: u64,
    pub(super) violations: u64,
}

impl Receiving {
    pub(super) fn new(ring_lines: u32, salt: u32, has_checks: bool) -> Self {
        Self {
            ring: Ring::new(RING, ring_lines, salt),
            position: 0,
            credited: 0,
            has_checks,
            frame: Box::new([0; HEADER_CHECKED + MTU_MAX]),
            frames: 0,
            bytes: 0,
            violations: 0,
        }
    }

    /// Receives at most `slots_max` slots. Returns their count.
    pub(super) fn receive<M: Medium, E: Endpoints>(
        &mut self,
        incoming: &Incoming<M>,
        work: &mut Work<'_, E>,
        slots_max: u64,
    ) -> Result<u64, SessionError> {
        for slots in 0..slots_max {
            let found = self.ring.look(incoming, self.position);
            let Some((head, slot)) = found.map_err(|_| SessionError::InvalidSlot)? else {
                return Ok(slots);
            };
            self.position += head.lines;
            if head.kind == Kind::Pad {
                continue;
            }
            let frame = &mut self.frame[..head.length];
            slot.load(WORD, frame).map_err(|_| SessionError::Window)?;
            let word = slot.word();
            let flags = word.to_le_bytes()[7];
            if (flags == CHECKED) != self.has_checks {
                return Err(SessionError::InvalidSlot);
            }
            let header = if self.has_checks {
                if number(frame, HEADER) != check(word, frame) {
                    return Err(SessionError::Checksum);
                }
                HEADER_CHECKED
            } else {
                HEADER
            };
            self.frames += 1;
            self.frame(head.kind, header, head.length, work)?;
        }
        Ok(slots_max)
    }

    /// Whether a slot can be received.
    pub(super) fn is_readable<M: Medium>(&self, incoming: &Incoming<M>) -> bool {
        self.ring.is_set(incoming, self.position)
    }

    /// Returns lines when half of the ring is pending, or when it was drained. True if it did.
    pub(super) fn return_credit<M: Medium>(
        &mut self,
        outgoing: &mut Outgoing<M>,
        drained: bool,
    ) -> bool {
        let pending = self.position - self.credited;
        let is_due = pending >= self.ring.lines() / 2 || drained && pending >= CREDIT_RETURN_MIN;
        if !is_due || !MutationPoint::GivenBack.is_enabled() {
            return false;
        }
        store_word(outgoing, RETURNED, self.position);
        self.credited = self.position;
        true
    }

    fn frame<E: Endpoints>(
        &mut self,
        kind: Kind,
        start: usize,
        end: usize,
        work: &mut Work<'_, E>,
    ) -> Result<(), SessionError> {
        let header = Header::get(&self.frame[..HEADER]);
        let id = ConnectionId(header.connection);
        let index = work.table.find(id).ok_or(SessionError::UnknownConnection)?;
        let connection = work.table.at(index);
        let applied = if connection.state.is_discarding() {
            let after = connection.state.receive(kind);
            after.map(|after| connection.state = after)
        } else {
            self.apply(kind, header, start..end, work, index)
        };
        if let Err(violation) = applied {
            self.violations += 1;
            let connection = work.table.at(index);
            connection.state = connection.state.reset(PROTOCOL);
            let key = connection.key;
            work.endpoints
                .reset(key, Reset::ProtocolViolation(violation));
        }
        work.scheduler.queue_control(work.table, index);
        close(work, index);
        Ok(())
    }

    fn apply<E: Endpoints>(
        &mut self,
        kind: Kind,
        header: Header,
        payload: std::ops::Range<usize>,
        work: &mut Work<'_, E>,
        index: u32,
    ) -> Result<(), ProtocolViolation> {
        let connection = work.table.at(index);
        let payload = &self.frame[payload];
        let key = connection.key;
        if connection.state.has_peer_closed() {
            return Err(ProtocolViolation::Order);
        }
        if connection.outgoing.apply(header.credit)? {
            work.scheduler.activate(work.table, index);
        }
        let connection = work.table.at(index);
        let after = connection.state.receive(kind)?;
        match kind {
            Kind::Data => {
                connection.incoming.take(payload.len() as u64)?;
                self.bytes += payload.len() as u64;
                work.endpoints.deliver(key, payload);
            }
            Kind::Urgent => {
                connection.incoming.take(payload.len() as u64)?;
                self.bytes += payload.len() as u64;
                work.endpoints.deliver_urgent(key, payload);
            }
            Kind::Finish => {
                connection.incoming.check(total(payload, 0))?;
                connection.state = after;
                work.endpoints.finished(key);
            }
            Kind::Reset => {
                // It is the peer's last frame also if its total is wrong.
                connection.state = after;
                connection.incoming.check(total(payload, WORD))?;
                let errno = number(payload, 0).clamp(1, 4095);
                let errno = u16::try_from(errno).expect("clamped");
                work.endpoints.reset(key, Reset::Peer(errno));
            }
            Kind::Close => connection.state = after,
            Kind::Credit | Kind::Pad => {}
        }
        Ok(())
    }
}
