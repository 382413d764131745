//! A connection between two applications of this host.

use millrace_stream::Service;
use millrace_stream::partition::{Bucket, Class, Rate};

use super::end::{BROKEN_PIPE, CONNECTION_RESET, End, Taken};
use super::parked::Parked;

/// Both applications' ends, and the two directions between them.
#[derive(Debug)]
pub(super) struct Pipe {
    ends: [End; 2],
    directions: [Direction; 2],
}

/// Bytes after which a sleeping application is notified although more follow in the next turn.
const NOTIFY_BYTES: usize = 64 * 1024;

/// One direction, from the end of the same index.
#[derive(Debug, Default)]
struct Direction {
    /// Bytes that wait for room at the other end.
    parked: Parked,
    class: Option<Class>,
    /// The rate limit of the sending end.
    bucket: Option<Bucket>,
    /// The time at which the rate allows more bytes, in nanoseconds.
    due_ns: Option<u64>,
    /// The end has finished: the other end is still to get the end.
    is_ending: bool,
    /// Whether the direction is closed.
    is_over: bool,
}

impl Direction {
    /// Whether bytes wait for room.
    fn is_full(&self) -> bool {
        !self.parked.is_empty()
    }

    /// The part of `wanted` bytes that the rate allows now.
    fn allowed(&mut self, wanted: usize, source: &End, now_ns: u64) -> usize {
        let Some(bucket) = self.bucket.as_mut().filter(|_| source.has_bytes()) else {
            return wanted;
        };
        match bucket.allowed(wanted as u64, now_ns) {
            Ok(bytes) => usize::try_from(bytes).unwrap_or(wanted),
            Err(due_ns) => {
                self.due_ns = Some(due_ns);
                0
            }
        }
    }

    fn pay(&mut self, bytes: usize) {
        if let Some(bucket) = &mut self.bucket {
            bucket.take(bytes as u64);
        }
    }
}

impl Pipe {
    pub(super) fn new(ends: [End; 2]) -> Self {
        Self {
            ends,
            directions: Default::default(),
        }
    }

    pub(super) const fn end(&mut self, side: usize) -> &mut End {
        &mut self.ends[side]
    }

    /// Applies the service that an application requests.
    pub(super) fn set_service(&mut self, side: usize, service: Service) {
        let direction = &mut self.directions[side];
        direction.class = service.class;
        let rate = service.bytes_per_second.map(Rate::steady);
        let is_same = |bucket: &Bucket| rate.is_some_and(|rate| bucket.is_of(rate));
        if !direction.bucket.as_ref().is_some_and(is_same) {
            direction.bucket = rate.map(|rate| Bucket::new(rate, 0));
        }
    }

    /// The higher class of both ends.
    pub(super) fn class(&self) -> Class {
        let [first, second] = &self.directions;
        first.class.max(second.class).unwrap_or_default()
    }

    /// The earliest time at which a rate allows more bytes, in nanoseconds.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let [first, second] = &self.directions;
        first.due_ns.into_iter().chain(second.due_ns).min()
    }

    /// Moves up to a slice in each direction. Returns the count of bytes, or `None` if nothing was done.
    pub(super) fn step(&mut self, slice: &mut [u8], now_ns: u64) -> Option<usize> {
        let there = self.transfer(0, slice, now_ns);
        let back = self.transfer(1, slice, now_ns);
        match (there, back) {
            (None, None) => None,
            (there, back) => Some(there.unwrap_or(0) + back.unwrap_or(0)),
        }
    }

    /// Requests notifications from both ends. True if data or room is there already.
    pub(super) fn arm(&mut self) -> bool {
        let mut is_due = false;
        for side in 0..2 {
            let (own, other) = (&self.directions[side], &self.directions[1 - side]);
            let is_read = !own.is_ending && !own.is_over && !own.is_full();
            let for_data = is_read && own.due_ns.is_none();
            let for_room = !other.is_over && (other.is_full() || other.is_ending);
            is_due |= self.ends[side].arm(for_data, for_room);
        }
        is_due
    }

    /// Whether both directions are closed.
    pub(super) fn is_over(&self) -> bool {
        self.directions.iter().all(|direction| direction.is_over)
    }

    /// Resets both ends.
    pub(super) fn reset(&mut self, errno: u16) {
        for (end, direction) in self.ends.iter_mut().zip(&mut self.directions) {
            end.reset(errno);
            direction.parked.clear();
            direction.is_over = true;
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.ends.iter().map(|end| end.totals().1).sum()
    }

    fn transfer(&mut self, from: usize, slice: &mut [u8], now_ns: u64) -> Option<usize> {
        let [first, second] = &mut self.ends;
        let (source, target) = if from == 0 {
            (first, second)
        } else {
            (second, first)
        };
        // As in the kernel: an application that has received the end gets EPIPE.
        let lost = if self.directions[1 - from].is_over {
            BROKEN_PIPE
        } else {
            CONNECTION_RESET
        };
        let direction = &mut self.directions[from];
        if direction.is_over {
            return None;
        }
        let mut moved = direction.parked.drain(target);
        // The bytes cannot be received: the sender must get a reset.
        let is_lost = target.is_gone() && direction.is_full();
        let mut broken = is_lost.then_some(lost);
        let mut is_busy = moved > 0;
        if !direction.is_ending && !direction.is_full() {
            // Parked bytes belong to an earlier slice.
            let left = slice.len() - moved;
            direction.due_ns = None;
            let room = if target.is_gone() {
                left
            } else {
                direction.allowed(left, source, now_ns)
            };
            let taken = if room > 0 {
                source.receive(&mut slice[..room])
            } else {
                Taken::Nothing
            };
            match taken {
                Taken::Bytes { .. } if target.is_gone() => broken = Some(lost),
                Taken::Bytes { count, is_urgent } => {
                    moved += direction.parked.push(target, &slice[..count], is_urgent);
                    direction.pay(count);
                    is_busy = true;
                }
                Taken::Nothing => {}
                Taken::Finished => direction.is_ending = true,
                Taken::Reset(errno) => broken = Some(errno),
            }
        }
        let is_more_to_come = moved > 0 && !direction.is_full() && source.has_bytes();
        if !is_more_to_come || target.unnotified() >= NOTIFY_BYTES {
            target.notify_pending();
        }
        if direction.is_ending && !direction.is_full() {
            // An exited application makes no room for the end.
            direction.is_over = target.finish() || target.is_gone();
            is_busy |= direction.is_over;
        }
        if let Some(errno) = broken {
            self.reset(errno);
            is_busy = true;
        }
        is_busy.then_some(moved)
    }
}
