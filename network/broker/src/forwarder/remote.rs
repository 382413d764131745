//! A connection between an application of this host and one of another host.

use millrace_stream::Service;
use millrace_stream::partition::{Class, ConnectionId, Fetched, OpenParams, Partition, Rate};

use super::end::{CONNECTION_RESET, End, Taken};
use super::parked::Parked;

/// The application's end, and the connection's number in its partition.
#[derive(Debug)]
pub(super) struct Remote {
    end: End,
    /// The partition's number at this forwarder.
    pub(super) link: u32,
    /// The connection's number; `None` when it is free again.
    pub(super) id: Option<ConnectionId>,
    /// The class that the broker has set.
    class: Class,
    rate: Option<Rate>,
    /// Received bytes that wait for room at the application; at most the granted room.
    parked: Parked,
    /// Bytes sent to the application and not yet reported to the partition.
    consumed: u64,
    /// Whether the partition knows that bytes can be fetched.
    is_announced: bool,
    input: Input,
    output: Output,
    /// A reset that arrived behind the end; it is sent behind all bytes.
    late_reset: Option<u16>,
}

/// The state of the application's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Open,
    /// All bytes were fetched; the partition is to be notified.
    Finished,
    /// The application reset the connection; the partition is to be notified.
    Reset(u16),
    /// The partition is notified of the end.
    Reported,
}

/// The state of the application's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    Open,
    /// All bytes have arrived; the application is to get the end.
    Finished,
    /// The application has got the end.
    Reported,
}

impl Remote {
    pub(super) fn new(end: End, link: u32, id: ConnectionId, opening: &OpenParams) -> Self {
        Self {
            end,
            link,
            id: Some(id),
            class: opening.class,
            rate: opening.rate,
            parked: Parked::default(),
            consumed: 0,
            is_announced: false,
            input: Input::Open,
            output: Output::Open,
            late_reset: None,
        }
    }

    pub(super) const fn end(&mut self) -> &mut End {
        &mut self.end
    }

    /// Applies the service that the application requests, within the broker's limits.
    pub(super) fn set_service(&mut self, partition: &mut Partition, service: Service) {
        let wanted = service.bytes_per_second.map(Rate::steady);
        let rate = match (self.rate, wanted) {
            (Some(own), Some(wanted)) if wanted.bytes_per_second < own.bytes_per_second => {
                Some(wanted)
            }
            (own, wanted) => own.or(wanted),
        };
        if let Some(id) = self.id {
            partition.serve(id, service.class.unwrap_or(self.class), rate);
        }
    }

    /// Fetches bytes of the application for the partition.
    pub(super) fn fetch(&mut self, into: &mut [u8]) -> Fetched {
        let (mut bytes, mut is_urgent) = (0, false);
        if self.input == Input::Open {
            match self.end.receive(into) {
                Taken::Bytes {
                    count,
                    is_urgent: is_first,
                } => (bytes, is_urgent) = (count, is_first),
                Taken::Nothing => {}
                Taken::Finished => self.input = Input::Finished,
                Taken::Reset(errno) => self.input = Input::Reset(errno),
            }
        }
        let has_more = bytes > 0 && self.end.is_readable();
        self.is_announced = has_more;
        Fetched {
            bytes,
            has_more,
            is_urgent,
        }
    }

    /// Takes bytes from the partition, for which room was granted. If `is_urgent`, the first is urgent. The next step
    /// notifies the application.
    pub(super) fn deliver(&mut self, bytes: &[u8], is_urgent: bool) {
        if self.end.is_gone() {
            // The bytes cannot be received: the peer must get a reset.
            self.input = Input::Reset(CONNECTION_RESET);
            return;
        }
        self.consumed += self.parked.push(&mut self.end, bytes, is_urgent) as u64;
    }

    /// Records that all bytes have arrived.
    pub(super) const fn finished(&mut self) {
        self.output = Output::Finished;
    }

    /// Handles a reset by the peer or the partition. The application gets the reset at once, or behind all bytes if the
    /// end had arrived.
    pub(super) fn reset(&mut self, errno: u16) {
        self.input = Input::Reported;
        if self.output == Output::Finished {
            self.late_reset = Some(errno);
            return;
        }
        self.parked.clear();
        self.end.reset(errno);
        self.output = Output::Reported;
    }

    /// Resets both sides; or cancels a connection that was not established.
    pub(super) fn break_off(&mut self, partition: &mut Partition, errno: u16) {
        self.reset(errno);
        if let Some(id) = self.id {
            if partition.cancel(id) {
                self.id = None;
            } else {
                partition.reset(id, errno);
            }
        }
    }

    /// Moves bytes between the application and the partition, if the partition still exists. True if anything was done.
    pub(super) fn step(&mut self, partition: Option<&mut Partition>) -> bool {
        if self.end.is_gone() && !self.parked.is_empty() {
            self.parked.clear();
            self.output = Output::Reported;
            self.input = Input::Reset(CONNECTION_RESET);
        }
        self.consumed += self.parked.drain(&mut self.end) as u64;
        self.end.notify_pending();
        let mut is_busy = self.consumed > 0;
        if self.output == Output::Finished && self.parked.is_empty() {
            // An exited application makes no room for the end.
            let is_reported = self.end.finish() || self.end.is_gone();
            if is_reported {
                self.output = Output::Reported;
                is_busy = true;
                if let Some(errno) = self.late_reset.take() {
                    self.end.reset(errno);
                }
            }
        }
        let (Some(id), Some(partition)) = (self.id, partition) else {
            return is_busy;
        };
        if self.consumed > 0 {
            partition.consumed(id, std::mem::take(&mut self.consumed));
        }
        match self.input {
            Input::Open if !self.is_announced && self.end.is_readable() => {
                self.is_announced = true;
                partition.ready(id);
                is_busy = true;
            }
            Input::Finished => {
                partition.finish(id);
                self.input = Input::Reported;
                is_busy = true;
            }
            Input::Reset(errno) => {
                partition.reset(id, errno);
                self.end.reset(errno);
                self.parked.clear();
                self.input = Input::Reported;
                self.output = Output::Reported;
                is_busy = true;
            }
            Input::Open | Input::Reported => {}
        }
        is_busy
    }

    /// Requests notifications from the application. True if data or room is there already.
    pub(super) fn arm(&mut self) -> bool {
        let for_data = self.input == Input::Open && !self.is_announced;
        let for_room = !self.parked.is_empty() || self.output == Output::Finished;
        self.end.arm(for_data, for_room)
    }

    /// Whether both sides are over.
    pub(super) fn is_over(&self) -> bool {
        self.id.is_none() && self.output == Output::Reported
    }

    pub(super) const fn bytes(&self) -> (u64, u64) {
        self.end.totals()
    }
}
