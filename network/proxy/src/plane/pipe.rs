//! A connection between two applications of this host.

use millrace_stream::Service;
use millrace_stream::partition::{Bucket, Class, Rate};

use super::end::{BROKEN_PIPE, CONNECTION_RESET, End, Taken};
use super::parked::Parked;

/// Both applications' ends. What one sends goes to the other.
#[derive(Debug)]
pub(super) struct Pipe {
    ends: [End; 2],
    ways: [Way; 2],
}

/// A sleeping application is not woken for each slice of many: it is told of so many bytes at once, if more can be moved
/// in the next turn.
const TOLD_BYTES: usize = 64 * 1024;

/// One direction, from the end of the same index.
#[derive(Debug, Default)]
struct Way {
    /// What the other end had no room for.
    parked: Parked,
    class: Option<Class>,
    /// How fast the end may send.
    bucket: Option<Bucket>,
    /// It may go on then, if it may not now.
    due_ns: Option<u64>,
    /// The end has finished: the other is to be told.
    is_ending: bool,
    /// Nothing goes this way any more.
    is_over: bool,
}

impl Way {
    /// Whether something waits for room.
    fn is_full(&self) -> bool {
        !self.parked.is_empty()
    }

    /// How many bytes of so many may be taken from the end now.
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
            ways: Default::default(),
        }
    }

    pub(super) const fn end(&mut self, side: usize) -> &mut End {
        &mut self.ends[side]
    }

    /// Serves the application at an end as it wants.
    pub(super) fn serve(&mut self, side: usize, service: Service) {
        let way = &mut self.ways[side];
        way.class = service.class;
        let rate = service.bytes_per_second.map(Rate::steady);
        let is_same = |bucket: &Bucket| rate.is_some_and(|rate| bucket.is_of(rate));
        if !way.bucket.as_ref().is_some_and(is_same) {
            way.bucket = rate.map(|rate| Bucket::new(rate, 0));
        }
    }

    /// The higher class of both ends.
    pub(super) fn class(&self) -> Class {
        let [first, second] = &self.ways;
        first.class.max(second.class).unwrap_or_default()
    }

    /// When one that waits for its rate may go on.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let [first, second] = &self.ways;
        first.due_ns.into_iter().chain(second.due_ns).min()
    }

    /// Moves what there is, up to a slice each way. Returns how many bytes, or none if nothing was to be done.
    pub(super) fn step(&mut self, slice: &mut [u8], now_ns: u64) -> Option<usize> {
        let there = self.carry(0, slice, now_ns);
        let back = self.carry(1, slice, now_ns);
        match (there, back) {
            (None, None) => None,
            (there, back) => Some(there.unwrap_or(0) + back.unwrap_or(0)),
        }
    }

    /// Has both rung for whatever comes next. True if there is something already.
    pub(super) fn arm(&mut self) -> bool {
        let mut is_due = false;
        for side in 0..2 {
            let (own, other) = (&self.ways[side], &self.ways[1 - side]);
            let is_read = !own.is_ending && !own.is_over && !own.is_full();
            let for_data = is_read && own.due_ns.is_none();
            let for_room = !other.is_over && (other.is_full() || other.is_ending);
            is_due |= self.ends[side].arm(for_data, for_room);
        }
        is_due
    }

    /// Whether both directions are over.
    pub(super) fn is_over(&self) -> bool {
        self.ways.iter().all(|way| way.is_over)
    }

    /// Breaks it off.
    pub(super) fn reset(&mut self, errno: u16) {
        for (end, way) in self.ends.iter_mut().zip(&mut self.ways) {
            end.reset(errno);
            way.parked.clear();
            way.is_over = true;
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.ends.iter().map(|end| end.totals().1).sum()
    }

    fn carry(&mut self, from: usize, slice: &mut [u8], now_ns: u64) -> Option<usize> {
        let [first, second] = &mut self.ends;
        let (source, target) = if from == 0 {
            (first, second)
        } else {
            (second, first)
        };
        // As the kernel has it: who was told of the end hears no more than that the pipe is broken.
        let lost = if self.ways[1 - from].is_over {
            BROKEN_PIPE
        } else {
            CONNECTION_RESET
        };
        let way = &mut self.ways[from];
        if way.is_over {
            return None;
        }
        let mut moved = way.parked.drain(target);
        // Nobody will read them, as the sender must hear.
        let is_lost = target.is_gone() && way.is_full();
        let mut broken = is_lost.then_some(lost);
        let mut is_busy = moved > 0;
        if !way.is_ending && !way.is_full() {
            // What was parked is of an earlier slice.
            let left = slice.len() - moved;
            way.due_ns = None;
            let room = if target.is_gone() {
                left
            } else {
                way.allowed(left, source, now_ns)
            };
            let taken = if room > 0 {
                source.receive(&mut slice[..room])
            } else {
                Taken::Nothing
            };
            match taken {
                Taken::Bytes { .. } if target.is_gone() => broken = Some(lost),
                Taken::Bytes { count, is_urgent } => {
                    moved += way.parked.give(target, &slice[..count], is_urgent);
                    way.pay(count);
                    is_busy = true;
                }
                Taken::Nothing => {}
                Taken::Finished => way.is_ending = true,
                Taken::Reset(errno) => broken = Some(errno),
            }
        }
        let is_more_to_come = moved > 0 && !way.is_full() && source.has_bytes();
        if !is_more_to_come || target.untold() >= TOLD_BYTES {
            target.tell();
        }
        if way.is_ending && !way.is_full() {
            // One that is gone makes no room for it.
            way.is_over = target.finish() || target.is_gone();
            is_busy |= way.is_over;
        }
        if let Some(errno) = broken {
            self.reset(errno);
            is_busy = true;
        }
        is_busy.then_some(moved)
    }
}
