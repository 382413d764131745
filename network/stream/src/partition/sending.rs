//! The sending half of a partition.

use millrace_window::{Incoming, LINE, Medium, Outgoing, WORD};

use super::connection::Connection;
use super::connection_state::EndFrame;
use super::endpoints::{Endpoints, SessionError};
use super::frame::{CHECKED, HEADER, HEADER_CHECKED, Header, Kind, MTU_MAX, check};
use super::geometry::{RETURNED, RING};
use super::scheduler::Scheduler;
use super::session::load_word;
use super::table::Table;
use crate::mutation_point::MutationPoint;
use crate::ring::{Batch, Ring, lines_of};

/// The lines after which a batch is published.
const BATCH_LINES: u64 = 32;
/// The most lines of a batch: [`BATCH_LINES`] and one slice.
const BATCH_LINES_MAX: u64 = BATCH_LINES + 136;

/// The writer of a partition's ring.
#[derive(Debug)]
pub(super) struct Sending {
    ring: Ring<Kind>,
    position: u64,
    /// Lines that the peer has returned, as known.
    returned: u64,
    mtu: usize,
    has_checks: bool,
    frame: Box<[u8; HEADER_CHECKED + MTU_MAX]>,
    /// Whether the last send stopped for lack of room.
    pub(super) is_full: bool,
    pub(super) frames: u64,
    pub(super) bytes: u64,
}

/// The connections to serve, and their endpoints.
pub(super) struct Work<'a, E> {
    pub(super) table: &'a mut Table,
    pub(super) scheduler: &'a mut Scheduler,
    pub(super) endpoints: &'a mut E,
    pub(super) now_ns: u64,
}

impl Sending {
    pub(super) fn new(ring_lines: u32, salt: u32, mtu: usize, has_checks: bool) -> Self {
        Self {
            ring: Ring::new(RING, ring_lines, salt),
            position: 0,
            returned: 0,
            mtu,
            has_checks,
            frame: Box::new([0; HEADER_CHECKED + MTU_MAX]),
            is_full: false,
            frames: 0,
            bytes: 0,
        }
    }

    const fn header(&self) -> usize {
        if self.has_checks {
            HEADER_CHECKED
        } else {
            HEADER
        }
    }

    /// Lines of a whole slice.
    fn slice(&self) -> u64 {
        lines_of(self.header() + self.mtu)
    }

    /// The count of free lines, without the one behind the last slot.
    fn room(&self) -> u64 {
        let out = if MutationPoint::RoomAwaited.is_enabled() {
            self.position - self.returned
        } else {
            0
        };
        (self.ring.lines() - 1).saturating_sub(out)
    }

    /// Reads the returned lines, and queues the capped connections that waited for them.
    pub(super) fn read_credit<M: Medium, E>(
        &mut self,
        incoming: &Incoming<M>,
        work: &mut Work<'_, E>,
    ) -> Result<(), SessionError> {
        let returned = load_word(incoming, RETURNED);
        if !(self.returned..=self.position).contains(&returned) {
            return Err(SessionError::InvalidCredit);
        }
        self.returned = returned;
        let slice = self.slice();
        work.scheduler.uncap(work.table, returned, slice);
        Ok(())
    }

    /// Whether the peer has returned lines since the last read.
    pub(super) fn has_new_credit<M: Medium>(&self, incoming: &Incoming<M>) -> bool {
        load_word(incoming, RETURNED) != self.returned
    }

    /// Sends until nothing is left, the room is used up, or `bytes_max` bytes were sent. Returns the count of frames.
    pub(super) fn send<M: Medium, E: Endpoints>(
        &mut self,
        outgoing: &mut Outgoing<M>,
        work: &mut Work<'_, E>,
        bytes_max: u64,
    ) -> Result<u64, SessionError> {
        let (frames, end) = (self.frames, self.bytes + bytes_max);
        self.is_full = false;
        while work.scheduler.has_work() && self.bytes < end {
            let room = self.room();
            if room < self.slice().min(self.ring.lines() / 4) {
                self.is_full = true;
                break;
            }
            let ring = self.ring;
            let batch = ring.batch(outgoing, self.position, room, BATCH_LINES_MAX);
            let mut batch = batch.map_err(|_| SessionError::Window)?;
            self.fill(&mut batch, work)?;
            self.position = batch.publish().map_err(|_| SessionError::Window)?;
        }
        Ok(self.frames - frames)
    }

    fn fill<M: Medium, E: Endpoints>(
        &mut self,
        batch: &mut Batch<'_, Kind, M>,
        work: &mut Work<'_, E>,
    ) -> Result<(), SessionError> {
        let start = batch.position();
        while batch.room() > 0 && batch.position() - start < BATCH_LINES {
            if let Some(index) = work.scheduler.next_control(work.table) {
                self.control(batch, work, index)?;
            } else if let Some(index) = work.scheduler.next(work.table) {
                self.data(batch, work, index)?;
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Sends a control frame, if the connection has one.
    fn control<M: Medium, E: Endpoints>(
        &mut self,
        batch: &mut Batch<'_, Kind, M>,
        work: &mut Work<'_, E>,
        index: u32,
    ) -> Result<(), SessionError> {
        let connection = work.table.at(index);
        if !connection.has_pending_control() {
            Scheduler::free(work.table, index);
            return Ok(());
        }
        let sent = connection.outgoing.sent;
        let mut payload = [0; 2 * WORD];
        let (kind, length) = match connection.state.due() {
            Some((frame, after)) => {
                connection.state = after;
                match frame {
                    EndFrame::Finish => {
                        payload[..WORD].copy_from_slice(&sent.to_le_bytes());
                        (Kind::Finish, WORD)
                    }
                    EndFrame::Close => (Kind::Close, 0),
                    EndFrame::Reset(errno) => {
                        payload[..2].copy_from_slice(&errno.to_le_bytes());
                        payload[WORD..].copy_from_slice(&sent.to_le_bytes());
                        (Kind::Reset, 2 * WORD)
                    }
                }
            }
            None => (Kind::Credit, 0),
        };
        let header = self.header();
        self.frame[header..header + length].copy_from_slice(&payload[..length]);
        self.put(batch, connection, kind, length)?;
        work.scheduler.queue_control(work.table, index);
        close(work, index);
        Ok(())
    }

    /// Sends a slice, if the connection may.
    fn data<M: Medium, E: Endpoints>(
        &mut self,
        batch: &mut Batch<'_, Kind, M>,
        work: &mut Work<'_, E>,
        index: u32,
    ) -> Result<(), SessionError> {
        let header = self.header();
        let connection = work.table.at(index);
        if !connection.can_send() {
            Scheduler::free(work.table, index);
            return Ok(());
        }
        let share = work.scheduler.share(connection.class, self.slice());
        let outgoing = &mut connection.outgoing;
        let has_room = outgoing.in_flight.has_room(self.returned, share);
        if !has_room && work.scheduler.has_others() {
            work.scheduler.cap(work.table, index);
            return Ok(());
        }
        let lines = usize::try_from(batch.room()).expect("a batch is small");
        let room = lines * LINE - WORD - header;
        let wanted = outgoing.credit().min(self.mtu.min(room) as u64);
        let allowed = match &mut outgoing.bucket {
            Some(bucket) => bucket.allowed(wanted, work.now_ns),
            None => Ok(wanted),
        };
        let allowed = match allowed {
            Ok(bytes) => usize::try_from(bytes).expect("no more than a slice"),
            Err(due_ns) => {
                work.scheduler.pace(work.table, index, due_ns);
                return Ok(());
            }
        };
        let into = &mut self.frame[header..header + allowed];
        let fetched = work.endpoints.fetch(connection.key, into);
        let bytes = fetched.bytes.min(allowed);
        if !fetched.has_more {
            connection.state = connection.state.drained();
        }
        if bytes > 0 {
            outgoing.sent += bytes as u64;
            if let Some(bucket) = &mut outgoing.bucket {
                bucket.take(bytes as u64);
            }
            let lines = lines_of(header + bytes);
            outgoing
                .in_flight
                .add(lines, batch.position() + lines, share);
            let kind = if fetched.is_urgent {
                Kind::Urgent
            } else {
                Kind::Data
            };
            self.put(batch, connection, kind, bytes)?;
            self.bytes += bytes as u64;
            let cost = i64::try_from(bytes + LINE).expect("a slice is small");
            work.scheduler.charge(connection.class, cost);
        }
        work.scheduler.activate(work.table, index);
        work.scheduler.queue_control(work.table, index);
        Ok(())
    }

    /// Adds a frame to the batch. Its payload of `length` bytes lies in `self.frame`.
    fn put<M: Medium>(
        &mut self,
        batch: &mut Batch<'_, Kind, M>,
        connection: &mut Connection,
        kind: Kind,
        length: usize,
    ) -> Result<(), SessionError> {
        let connection_number = connection.peer.expect("a queued connection is established");
        let header = Header {
            connection: connection_number,
            credit: connection.incoming.grant(),
        };
        let size = self.header() + length;
        header.put(&mut self.frame[..HEADER]);
        let flags = if self.has_checks { CHECKED } else { 0 };
        if self.has_checks {
            let length = u16::try_from(size).expect("a frame is small");
            let word = self.ring.word(batch.position(), kind, flags, length);
            self.frame[HEADER..HEADER_CHECKED].fill(0);
            let check = check(word, &self.frame[..size]);
            self.frame[HEADER..HEADER + 4].copy_from_slice(&check.to_le_bytes());
        }
        self.frames += 1;
        batch
            .put(kind, flags, &self.frame[..size])
            .map_err(|_| SessionError::Window)
    }
}

/// Closes a connection that no further frame will name. A frame of it was just sent or received.
pub(super) fn close<E: Endpoints>(work: &mut Work<'_, E>, index: u32) {
    let connection = work.table.at(index);
    if connection.state.is_over() {
        let key = connection.key;
        work.endpoints.closed(key);
    }
    Scheduler::free(work.table, index);
}
