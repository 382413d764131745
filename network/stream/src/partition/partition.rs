//! One side of a partition.

use std::result;

use millrace_window::{Incoming, Mapped, Medium, Outgoing, Window};

use super::bucket::{Bucket, Rate};
use super::connection::Connection;
use super::endpoints::{
    CLASSES, Class, ConnectionId, Endpoints, OpenParams, OpenReply, Reset, SessionError,
};
use super::frame::MTU_MAX;
use super::geometry::{PartitionGeometry, WAITS};
use super::receiving::Receiving;
use super::scheduler::Scheduler;
use super::sending::{Sending, Work};
use super::session::{Session, load_word, store_word};
use super::table::{CONNECTIONS_MAX, Table};
use crate::{Error, ErrorKind, Result, Side};

/// One side's settings of a partition.
#[derive(Clone, Copy, Debug)]
pub struct PartitionSettings {
    /// This side's incarnation: a number that differs at each start, not 0; from a clock or a random source.
    pub incarnation: u64,
    /// The most connections at a time: 1 to [`CONNECTIONS_MAX`].
    pub connections_max: u32,
    /// The most bytes of a slice: 1,024 to 8,192.
    pub mtu: u32,
    /// The slices of each class in a round, relative to the others; at least 1.
    pub weights: [u16; CLASSES],
    /// Whether frames have CRC32C checksums; both sides must agree, and the feature `checksum` be on.
    pub has_checks: bool,
    /// The time between two heartbeats, in nanoseconds.
    pub beat_every_ns: u64,
    /// The time without a heartbeat after which the peer is lost, in nanoseconds.
    pub lost_after_ns: u64,
}

/// One side of the connections between two hosts, for one thread.
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
    /// The count of this side's sleeps, and the peer's last sleep for which it was notified.
    armed: u64,
    notified: u64,
    now_ns: u64,
}

/// The state of a partition on this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The peer has not answered yet.
    Greeting,
    /// The session is established, and connections can move bytes.
    Ready,
    /// The partition is lost for this reason.
    Lost(SessionError),
}

/// The result of one poll of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The current state of the partition's session.
    pub state: State,
    /// The count of slots received by this poll.
    pub received: u64,
    /// The count of frames sent by this poll.
    pub sent: u64,
    /// Whether the peer sleeps and must be woken by the window's doorbell.
    pub notify: bool,
    /// Whether more can be done at once.
    pub has_more: bool,
    /// The latest time of the next poll, in nanoseconds.
    pub due_ns: u64,
}

/// The totals of a partition since its session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames sent since the session began.
    pub frames_sent: u64,
    /// The count of payload bytes sent.
    pub bytes_sent: u64,
    /// Frames received since the session began.
    pub frames_received: u64,
    /// The count of payload bytes received.
    pub bytes_received: u64,
    /// Connections in which the peer broke the protocol.
    pub violations: u64,
    /// The count of connections that are open now.
    pub connections: usize,
    /// Connections that have bytes to send and credit for them.
    pub active: u32,
}

/// Slots received, frames sent, and whether the peer must be woken.
type Done = (u64, u64, bool);

/// The most slots received and bytes sent by one poll.
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
            "invalid settings: incarnation 0, connections_max not 1 to 2^20, mtu not 1,024 to 8,192, or no checksums",
        ))
    }
}

impl<M: Medium> Partition<M> {
    /// This side of the partition `index` of a window for both directions.
    ///
    /// # Errors
    /// [`ErrorKind::Geometry`] if the geometry, index or settings are invalid; [`ErrorKind::Window`] if the window is
    /// too small, for one direction alone, or the partition is in use.
    pub fn new(
        window: &Window<M>,
        geometry: PartitionGeometry,
        index: u16,
        side: Side,
        settings: PartitionSettings,
    ) -> Result<Self> {
        geometry.check()?;
        if index >= geometry.partitions {
            return Err(Error::new(
                ErrorKind::Geometry,
                "the partition index is not below the number of partitions",
            ));
        }
        let outgoing = window.outgoing(geometry.range(side, index))?;
        let incoming = window.incoming(geometry.range(side.peer(), index))?;
        Self::over(outgoing, incoming, geometry, index, settings)
    }

    /// This side of a partition whose directions have a window each: the two areas.
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
            return Err(Error::new(
                ErrorKind::Geometry,
                "the window is smaller than the area of the geometry",
            ));
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
            notified: 0,
            now_ns: 0,
            settings,
        })
    }

    /// Opens a connection: a number that the peer may send to from now on. `None` if no number is free, or the
    /// partition is lost.
    pub fn open(&mut self, params: &OpenParams) -> Option<OpenReply> {
        if matches!(self.state, State::Lost(_)) {
            return None;
        }
        let mut connection = Connection::new(params, self.now_ns);
        let credit = connection.incoming.grant();
        let id = self.table.insert(connection)?;
        Some(OpenReply { id, credit })
    }

    /// Establishes an open connection with the peer's reply to [`Partition::open`]. False if the connection is unknown
    /// or established, or the credit is invalid.
    pub fn establish(&mut self, id: ConnectionId, peer: OpenReply) -> bool {
        let Some(index) = self.table.find(id) else {
            return false;
        };
        let connection = self.table.at(index);
        if connection.peer.is_some() || connection.outgoing.apply_first(peer.credit).is_err() {
            return false;
        }
        connection.peer = Some(peer.id.0);
        self.scheduler.activate(&mut self.table, index);
        self.scheduler.queue_control(&mut self.table, index);
        true
    }

    /// Cancels a connection that was not established, and frees its number. The peer must not know the number, or must
    /// have cancelled it: a later frame that names it is a violation. False if the connection is established or
    /// unknown. The endpoint gets no call.
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

    /// Sets the class and the rate limit of a connection.
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
            self.scheduler.unpace_now(&mut self.table, index);
        }
    }

    /// Reports that the endpoint has bytes to send.
    pub fn ready(&mut self, id: ConnectionId) {
        if let Some(index) = self.table.find(id) {
            let connection = self.table.at(index);
            connection.state = connection.state.ready();
            self.scheduler.activate(&mut self.table, index);
        }
    }

    /// Reports that the endpoint gets no further bytes: the end is sent behind them.
    pub fn finish(&mut self, id: ConnectionId) {
        if let Some(index) = self.table.find(id) {
            let connection = self.table.at(index);
            connection.state = connection.state.finish();
            self.scheduler.queue_control(&mut self.table, index);
        }
    }

    /// Resets a connection with an errno from 1 to 4095. The endpoint gets only [`Endpoints::closed`].
    pub fn reset(&mut self, id: ConnectionId, errno: u16) {
        if let Some(index) = self.table.find(id) {
            let connection = self.table.at(index);
            connection.state = connection.state.reset(errno);
            self.scheduler.queue_control(&mut self.table, index);
        }
    }

    /// Reports that the endpoint has room again for `bytes` delivered bytes.
    pub fn consumed(&mut self, id: ConnectionId, bytes: u64) {
        if let Some(index) = self.table.find(id) {
            if self.table.at(index).consume(bytes) {
                self.scheduler.queue_control(&mut self.table, index);
            }
        }
    }

    /// Receives and sends a bounded amount. `now_ns` must be monotonic.
    pub fn poll(&mut self, now_ns: u64, endpoints: &mut impl Endpoints) -> Progress {
        self.now_ns = now_ns;
        let done = match self.state {
            State::Lost(_) => Ok((0, 0, false)),
            State::Greeting => self.greet(),
            State::Ready => self.work(endpoints),
        };
        let (received, sent, notify) = done.unwrap_or_else(|loss| {
            self.lose(loss, endpoints);
            (0, 0, false)
        });
        let due_ns = self.scheduler.due_ns().unwrap_or(u64::MAX);
        Progress {
            state: self.state,
            received,
            sent,
            notify,
            has_more: received > 0 || self.scheduler.has_work() && !self.sending.is_full,
            due_ns: due_ns.min(self.session.due_ns()),
        }
    }

    /// Ends the partition: its connections are reset, here and at the peer.
    pub fn close(&mut self, endpoints: &mut impl Endpoints) {
        if !matches!(self.state, State::Lost(_)) {
            self.lose(SessionError::Closed, endpoints);
        }
    }

    /// Announces a sleep. True if this side must not sleep, as there is work.
    ///
    /// Where [`Partition::can_sleep`] is false, a notification can be lost: the sleep must have a timeout.
    #[must_use]
    pub fn arm(&mut self) -> bool {
        self.armed = self.armed.wrapping_add(1);
        store_word(&mut self.outgoing, WAITS, self.armed);
        self.outgoing.settle();
        let is_due = match self.state {
            State::Lost(_) => false,
            State::Greeting => self.session.has_news(&self.incoming),
            State::Ready => {
                self.receiving.is_readable(&self.incoming)
                    || !self.session.is_same(&self.incoming)
                    || self.sending.has_new_credit(&self.incoming)
            }
        };
        is_due || self.scheduler.has_work() && !self.sending.is_full
    }

    /// Whether an announced sleep is reliably notified of all later work.
    #[must_use]
    pub fn can_sleep(&mut self) -> bool {
        self.outgoing.settle()
    }

    /// The current state of the partition's session.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The totals since the session began.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            frames_sent: self.sending.frames,
            bytes_sent: self.sending.bytes,
            frames_received: self.receiving.frames,
            bytes_received: self.receiving.bytes,
            violations: self.receiving.violations,
            connections: self.table.count(),
            active: self.scheduler.active(),
        }
    }

    fn greet(&mut self) -> result::Result<Done, SessionError> {
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
        // The peer may sleep in its handshake.
        let notify = self.wake();
        Ok((u64::from(self.state == State::Ready), 0, notify))
    }

    fn work(&mut self, endpoints: &mut impl Endpoints) -> result::Result<Done, SessionError> {
        let Self {
            outgoing,
            incoming,
            session,
            ..
        } = self;
        debug_assert!(session.is_ready(), "the state follows it");
        session.beat(outgoing, incoming, self.now_ns)?;
        if !session.is_same(incoming) {
            return Err(SessionError::PeerRestarted);
        }
        let mut work = Work {
            table: &mut self.table,
            scheduler: &mut self.scheduler,
            endpoints,
            now_ns: self.now_ns,
        };
        let received = self.receiving.receive(incoming, &mut work, SLOTS_A_POLL);
        let received = received.map_err(|loss| self.session.attribute_loss(loss, incoming))?;
        let credited = self
            .receiving
            .return_credit(outgoing, received < SLOTS_A_POLL);
        let looked = self.sending.read_credit(incoming, &mut work);
        looked.map_err(|loss| self.session.attribute_loss(loss, incoming))?;
        work.scheduler.unpace(work.table, work.now_ns);
        let sent = self.sending.send(outgoing, &mut work, BYTES_A_POLL)?;
        let notify = (credited || sent > 0) && self.wake();
        Ok((received, sent, notify))
    }

    /// Whether the peer sleeps and was not notified for this sleep yet.
    fn wake(&mut self) -> bool {
        self.outgoing.settle();
        let waits = load_word(&self.incoming, WAITS);
        let is_new = waits != self.notified;
        self.notified = waits;
        is_new
    }

    fn lose(&mut self, loss: SessionError, endpoints: &mut impl Endpoints) {
        Session::end(&mut self.outgoing);
        let indexes: Vec<u32> = self.table.indexes().collect();
        for index in indexes {
            let connection = self.table.at(index);
            if !connection.state.is_over() {
                let (key, state) = (connection.key, connection.state);
                if !state.is_discarding() {
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
