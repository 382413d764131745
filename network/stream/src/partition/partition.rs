//! One partition.

use std::result;

use millrace_window::{Incoming, Mapped, Medium, Outgoing, Window};

use super::bucket::{Bucket, Rate};
use super::connection::Connection;
use super::endpoints::{CLASSES, Class, ConnectionId, Endpoints, Loss, Opened, Opening, Reset};
use super::frame::MTU_MAX;
use super::geometry::{PartitionGeometry, WAITS};
use super::receiving::Receiving;
use super::scheduler::Scheduler;
use super::sending::{Sending, Work};
use super::session::{Session, hear, say};
use super::table::{CONNECTIONS_MAX, Table};
use crate::{Error, ErrorKind, Result, Side};

/// How a side serves a partition.
#[derive(Clone, Copy, Debug)]
pub struct PartitionSettings {
    /// This side's number, another one at each start, and not 0: from a clock or drawn.
    pub incarnation: u64,
    /// The most connections at a time: 1 to [`CONNECTIONS_MAX`].
    pub connections_max: u32,
    /// The most bytes of a slice: 1,024 to 8,192.
    pub mtu: u32,
    /// How many slices each class may send in a round, relative to the others; at least 1.
    pub weights: [u16; CLASSES],
    /// Whether frames are checked by CRC32C; both sides must agree, and the feature `checksum` be on.
    pub has_checks: bool,
    /// How often this side tells that it lives.
    pub beat_every_ns: u64,
    /// After how long without a beat the peer is lost.
    pub lost_after_ns: u64,
}

/// Connections between two hosts, of which one thread has one side.
#[derive(Debug)]
pub struct Partition<M: Medium = Mapped> {
    outgoing: Outgoing<M>,
    incoming: Incoming<M>,
    greeting: u64,
    ring_lines: u32,
    settings: PartitionSettings,
    session: Session,
    state: State,
    table: Table,
    scheduler: Scheduler,
    sending: Sending,
    receiving: Receiving,
    /// How often this side has gone to sleep, and the peer's last sleep that it was rung for.
    armed: u64,
    rung: u64,
    now_ns: u64,
}

/// How far a partition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The peer has not answered yet.
    Greeting,
    /// Connections move.
    Ready,
    /// It is over.
    Lost(Loss),
}

/// What a poll has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// How far the partition is.
    pub state: State,
    /// Slots that were taken.
    pub received: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// The peer sleeps and must be woken, by the window's doorbell.
    pub ring: bool,
    /// There is more to be done at once.
    pub has_more: bool,
    /// When it must be polled again at the latest, in nanoseconds.
    pub due_ns: u64,
}

/// What a partition has done since it was ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames that were sent.
    pub frames_sent: u64,
    /// Bytes of connections that were sent.
    pub bytes_sent: u64,
    /// Frames that were received.
    pub frames_received: u64,
    /// Bytes of connections that were received.
    pub bytes_received: u64,
    /// Connections in which the peer broke the protocol.
    pub breaches: u64,
    /// Connections that are open.
    pub connections: usize,
    /// Connections that have bytes to send and room for them.
    pub active: u32,
}

/// Slots taken, frames sent, whether the peer must be woken.
type Done = (u64, u64, bool);

/// The most slots that are taken, and bytes that are sent, by one poll.
const SLOTS_A_POLL: u64 = 64;
const BYTES_A_POLL: u64 = 128 * 1024;

impl Default for PartitionSettings {
    fn default() -> Self {
        Self {
            incarnation: 0,
            connections_max: 4096,
            mtu: 8192,
            weights: [1, 2, 3, 4, 5, 6, 7, 8],
            has_checks: false,
            beat_every_ns: 50_000_000,
            lost_after_ns: 2_000_000_000,
        }
    }
}

impl PartitionSettings {
    fn check(&self) -> Result<()> {
        let is_sound = self.incarnation != 0
            && (1..=CONNECTIONS_MAX).contains(&self.connections_max)
            && (1024..=MTU_MAX).contains(&(self.mtu as usize))
            && (!self.has_checks || cfg!(feature = "checksum"));
        if is_sound {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Geometry,
            "settings that no partition has",
        ))
    }
}

impl<M: Medium> Partition<M> {
    /// This side of the partition `index` of a window for both directions.
    ///
    /// # Errors
    /// [`ErrorKind::Geometry`] if there is no such geometry, index or setting; [`ErrorKind::Window`] if the window is
    /// smaller, for one direction alone, or the partition is in use.
    pub fn new(
        window: &Window<M>,
        geometry: PartitionGeometry,
        index: u16,
        side: Side,
        settings: PartitionSettings,
    ) -> Result<Self> {
        geometry.check()?;
        if index >= geometry.partitions {
            return Err(Error::new(ErrorKind::Geometry, "no such partition"));
        }
        let outgoing = window.outgoing(geometry.range(side, index))?;
        let incoming = window.incoming(geometry.range(side.peer(), index))?;
        Self::over(outgoing, incoming, geometry, index, settings)
    }

    /// The same where each direction has a window of its own: the two areas.
    ///
    /// # Errors
    /// As [`Partition::new`].
    pub fn over(
        mut outgoing: Outgoing<M>,
        incoming: Incoming<M>,
        geometry: PartitionGeometry,
        index: u16,
        settings: PartitionSettings,
    ) -> Result<Self> {
        geometry.check()?;
        settings.check()?;
        if outgoing.size() < geometry.area() || incoming.size() < geometry.area() {
            return Err(Error::new(ErrorKind::Geometry, "an area is larger"));
        }
        let greeting = geometry.greeting(index, settings.has_checks);
        let session = Session::new(
            settings.incarnation,
            greeting,
            settings.beat_every_ns,
            settings.lost_after_ns,
        );
        session.begin(&mut outgoing);
        let (lines, checks) = (geometry.ring_lines, settings.has_checks);
        Ok(Self {
            outgoing,
            incoming,
            greeting,
            ring_lines: lines,
            session,
            state: State::Greeting,
            table: Table::new(settings.connections_max),
            scheduler: Scheduler::new(settings.connections_max, settings.weights, settings.mtu),
            sending: Sending::new(lines, 0, settings.mtu as usize, checks),
            receiving: Receiving::new(lines, 0, checks),
            armed: 0,
            rung: 0,
            now_ns: 0,
            settings,
        })
    }

    /// A number for a connection, at which the peer may send to it from now on. None if there is none free, or the
    /// partition is lost.
    pub fn open(&mut self, opening: &Opening) -> Option<Opened> {
        if matches!(self.state, State::Lost(_)) {
            return None;
        }
        let mut connection = Connection::new(opening, self.now_ns);
        let credit = connection.incoming.grant();
        let id = self.table.insert(connection)?;
        Some(Opened { id, credit })
    }

    /// Tells of the peer's side of a connection that was opened here: what [`Partition::open`] said there. False if
    /// there is no such connection, or that cannot be.
    pub fn establish(&mut self, id: ConnectionId, peer: Opened) -> bool {
        let Some(index) = self.table.find(id) else {
            return false;
        };
        let connection = self.table.at(index);
        if connection.peer.is_some() || connection.outgoing.apply_first(peer.credit).is_err() {
            return false;
        }
        connection.peer = Some(peer.id.0);
        self.scheduler.activate(&mut self.table, index);
        self.scheduler.call(&mut self.table, index);
        true
    }

    /// Frees the number of a connection that was never established. The peer must not know of it, or must have said
    /// that it gave it up: a frame that names it is a breach. False if it was established, or is not there. The
    /// endpoint is told of nothing.
    pub fn cancel(&mut self, id: ConnectionId) -> bool {
        let Some(index) = self.table.find(id) else {
            return false;
        };
        let is_free = self.table.at(index).peer.is_none();
        if is_free {
            self.table.remove(index);
        }
        is_free
    }

    /// Serves a connection by another class and rate from now on.
    pub fn serve(&mut self, id: ConnectionId, class: Class, rate: Option<Rate>) {
        let Some(index) = self.table.find(id) else {
            return;
        };
        let connection = self.table.at(index);
        connection.class = class.number();
        let bucket = &mut connection.outgoing.bucket;
        let is_same = match (&bucket, rate) {
            (None, None) => true,
            (Some(bucket), Some(rate)) => bucket.is_of(rate),
            _ => false,
        };
        if !is_same {
            *bucket = rate.map(|rate| Bucket::new(rate, self.now_ns));
            self.scheduler.hurry(&mut self.table, index);
        }
    }

    /// The endpoint has bytes to send.
    pub fn ready(&mut self, id: ConnectionId) {
        if let Some(index) = self.table.find(id) {
            self.table.at(index).outgoing.has_data = true;
            self.scheduler.activate(&mut self.table, index);
        }
    }

    /// The endpoint will have no more bytes than it has: when they were fetched, the end is sent.
    pub fn finish(&mut self, id: ConnectionId) {
        if let Some(index) = self.table.find(id) {
            self.table.at(index).outgoing.is_ending = true;
            self.scheduler.call(&mut self.table, index);
        }
    }

    /// Breaks a connection off, with an errno from 1 to 4095. The endpoint is told of nothing but its
    /// [`Endpoints::closed`].
    pub fn reset(&mut self, id: ConnectionId, errno: u16) {
        if let Some(index) = self.table.find(id) {
            let connection = self.table.at(index);
            connection.is_dropped = true;
            connection.wants.reset = Some(errno);
            self.scheduler.call(&mut self.table, index);
        }
    }

    /// The endpoint has room again for so many bytes that were delivered to it.
    pub fn consumed(&mut self, id: ConnectionId, bytes: u64) {
        if let Some(index) = self.table.find(id) {
            let connection = self.table.at(index);
            if connection.incoming.consume(bytes) && !connection.is_dropped {
                connection.wants.credit = true;
                self.scheduler.call(&mut self.table, index);
            }
        }
    }

    /// Does what there is to do, of which a part at a time. `now_ns` does not go back.
    pub fn poll(&mut self, now_ns: u64, endpoints: &mut impl Endpoints) -> Progress {
        self.now_ns = now_ns;
        let done = match self.state {
            State::Lost(_) => Ok((0, 0, false)),
            State::Greeting => self.greet(),
            State::Ready => self.work(endpoints),
        };
        let (received, sent, ring) = done.unwrap_or_else(|loss| {
            self.lose(loss, endpoints);
            (0, 0, false)
        });
        let due_ns = self.scheduler.due_ns().unwrap_or(u64::MAX);
        Progress {
            state: self.state,
            received,
            sent,
            ring,
            has_more: received > 0 || self.scheduler.has_work() && !self.sending.is_full,
            due_ns: due_ns.min(self.session.due_ns()),
        }
    }

    /// Ends the partition: its connections are reset, here and at the peer.
    pub fn close(&mut self, endpoints: &mut impl Endpoints) {
        if !matches!(self.state, State::Lost(_)) {
            self.lose(Loss::Closed, endpoints);
        }
    }

    /// Says that this side goes to sleep. True if it must not, as there is something to be done.
    ///
    /// Where [`Partition::can_sleep`] is false a ring can be missed: who sleeps looks again after a time.
    #[must_use]
    pub fn arm(&mut self) -> bool {
        self.armed = self.armed.wrapping_add(1);
        say(&mut self.outgoing, WAITS, self.armed);
        self.outgoing.settle();
        let is_due = match self.state {
            State::Lost(_) => false,
            State::Greeting => self.session.has_news(&self.incoming),
            State::Ready => {
                self.receiving.is_readable(&self.incoming)
                    || !self.session.is_same(&self.incoming)
                    || self.sending.has_come_back(&self.incoming)
            }
        };
        is_due || self.scheduler.has_work() && !self.sending.is_full
    }

    /// Whether a side that has armed and found nothing is rung for whatever comes later.
    #[must_use]
    pub fn can_sleep(&mut self) -> bool {
        self.outgoing.settle()
    }

    /// How far it is.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// What it has done.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            frames_sent: self.sending.frames,
            bytes_sent: self.sending.bytes,
            frames_received: self.receiving.frames,
            bytes_received: self.receiving.bytes,
            breaches: self.receiving.breaches,
            connections: self.table.count(),
            active: self.scheduler.active(),
        }
    }

    fn greet(&mut self) -> result::Result<Done, Loss> {
        let Self {
            outgoing,
            incoming,
            session,
            ..
        } = self;
        session.beat(outgoing, incoming, self.now_ns)?;
        if session.greet(outgoing, incoming, self.greeting)? {
            let (out, back) = session.salts();
            let PartitionSettings {
                mtu, has_checks, ..
            } = self.settings;
            self.sending = Sending::new(self.ring_lines, out, mtu as usize, has_checks);
            self.receiving = Receiving::new(self.ring_lines, back, has_checks);
            self.state = State::Ready;
        }
        // The peer may sleep over the answer.
        let ring = self.wake();
        Ok((u64::from(self.state == State::Ready), 0, ring))
    }

    fn work(&mut self, endpoints: &mut impl Endpoints) -> result::Result<Done, Loss> {
        let Self {
            outgoing,
            incoming,
            session,
            ..
        } = self;
        debug_assert!(session.is_ready(), "the state follows it");
        session.beat(outgoing, incoming, self.now_ns)?;
        if !session.is_same(incoming) {
            return Err(Loss::Incarnation);
        }
        let mut work = Work {
            table: &mut self.table,
            scheduler: &mut self.scheduler,
            endpoints,
            now_ns: self.now_ns,
        };
        let received = self.receiving.receive(incoming, &mut work, SLOTS_A_POLL);
        let received = received.map_err(|loss| self.session.blame(loss, incoming))?;
        let gave = self.receiving.give(outgoing, received < SLOTS_A_POLL);
        let looked = self.sending.look_back(incoming, &mut work);
        looked.map_err(|loss| self.session.blame(loss, incoming))?;
        work.scheduler.unpace(work.table, work.now_ns);
        let sent = self.sending.send(outgoing, &mut work, BYTES_A_POLL)?;
        let ring = (gave || sent > 0) && self.wake();
        Ok((received, sent, ring))
    }

    /// Whether the peer sleeps and was not rung yet for this sleep.
    fn wake(&mut self) -> bool {
        self.outgoing.settle();
        let waits = hear(&self.incoming, WAITS);
        let is_new = waits != self.rung;
        self.rung = waits;
        is_new
    }

    fn lose(&mut self, loss: Loss, endpoints: &mut impl Endpoints) {
        Session::end(&mut self.outgoing);
        let indexes: Vec<u32> = self.table.indexes().collect();
        for index in indexes {
            let connection = self.table.at(index);
            if !connection.is_over {
                let (key, is_dropped) = (connection.key, connection.is_dropped);
                if !is_dropped {
                    endpoints.reset(key, Reset::Lost(loss));
                }
                endpoints.closed(key);
            }
        }
        let settings = self.settings;
        self.table = Table::new(0);
        self.scheduler = Scheduler::new(0, settings.weights, settings.mtu);
        self.state = State::Lost(loss);
    }
}
