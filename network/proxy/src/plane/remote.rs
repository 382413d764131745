//! A connection of an application of this host with one of another host.

use millrace_stream::Service;
use millrace_stream::partition::{Class, ConnectionId, Fetched, Opening, Partition, Rate};

use super::end::{CONNECTION_RESET, End, Taken};
use super::parked::Parked;

/// The application's end, and the number of the connection in its partition.
#[derive(Debug)]
pub(super) struct Remote {
    end: End,
    /// Which of the plane's partitions.
    pub(super) link: u32,
    /// None when the number is free again.
    pub(super) id: Option<ConnectionId>,
    /// What the monitor has given it.
    class: Class,
    rate: Option<Rate>,
    /// What came and the application has no room for yet: at most what was granted.
    parked: Parked,
    /// Bytes that have found room and of which the partition does not know yet.
    consumed: u64,
    /// The partition knows that there is something to fetch.
    is_announced: bool,
    input: Input,
    output: Output,
    /// The connection was broken off after all had come: told behind it.
    late_reset: Option<u16>,
}

/// What the application has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Open,
    /// All was fetched; the partition is to be told.
    Finished,
    /// It broke off; the partition is to be told.
    Reset(u16),
    /// The partition knows.
    Told,
}

/// What the application gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    Open,
    /// All came; the application is to be told.
    Finished,
    /// The application knows.
    Told,
}

impl Remote {
    pub(super) fn new(end: End, link: u32, id: ConnectionId, opening: &Opening) -> Self {
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

    /// Serves the application as it wants, within what the monitor has given.
    pub(super) fn serve(&mut self, partition: &mut Partition, service: Service) {
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

    /// Bytes for the partition.
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

    /// Bytes from the partition, for which there is room. The first may be urgent. The application is told in the next
    /// step, of all that came.
    pub(super) fn deliver(&mut self, bytes: &[u8], is_urgent: bool) {
        if self.end.is_gone() {
            // Nobody will read them, as the peer must hear.
            self.input = Input::Reset(CONNECTION_RESET);
            return;
        }
        self.consumed += self.parked.give(&mut self.end, bytes, is_urgent) as u64;
    }

    /// All came.
    pub(super) const fn finished(&mut self) {
        self.output = Output::Finished;
    }

    /// The peer or the partition has broken off. The application gets what it had room for, and this; or all of it,
    /// if all had come.
    pub(super) fn reset(&mut self, errno: u16) {
        self.input = Input::Told;
        if self.output == Output::Finished {
            self.late_reset = Some(errno);
            return;
        }
        self.parked.clear();
        self.end.reset(errno);
        self.output = Output::Told;
    }

    /// Breaks it off on both sides; or gives it up, if it was never established.
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

    /// Moves what there is between the application and the partition, if that is there yet. Whether there was
    /// anything.
    pub(super) fn step(&mut self, partition: Option<&mut Partition>) -> bool {
        if self.end.is_gone() && !self.parked.is_empty() {
            self.parked.clear();
            self.output = Output::Told;
            self.input = Input::Reset(CONNECTION_RESET);
        }
        self.consumed += self.parked.drain(&mut self.end) as u64;
        self.end.tell();
        let mut is_busy = self.consumed > 0;
        if self.output == Output::Finished && self.parked.is_empty() {
            // One that is gone makes no room for it.
            let is_told = self.end.finish() || self.end.is_gone();
            if is_told {
                self.output = Output::Told;
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
                self.input = Input::Told;
                is_busy = true;
            }
            Input::Reset(errno) => {
                partition.reset(id, errno);
                self.end.reset(errno);
                self.parked.clear();
                self.input = Input::Told;
                self.output = Output::Told;
                is_busy = true;
            }
            Input::Open | Input::Told => {}
        }
        is_busy
    }

    /// Has the application ring for whatever comes next. True if there is something already that can be moved.
    pub(super) fn arm(&mut self) -> bool {
        let for_data = self.input == Input::Open && !self.is_announced;
        let for_room = !self.parked.is_empty() || self.output == Output::Finished;
        self.end.arm(for_data, for_room)
    }

    /// Whether nothing is left to be done for it.
    pub(super) fn is_over(&self) -> bool {
        self.id.is_none() && self.output == Output::Told
    }

    pub(super) const fn bytes(&self) -> (u64, u64) {
        self.end.totals()
    }
}
