//! A connection between two applications of this host.

use super::end::{BROKEN_PIPE, CONNECTION_RESET, End, Taken};
use super::parked::Parked;

/// Both applications' ends. What one sends goes to the other.
#[derive(Debug)]
pub(super) struct Pipe {
    ends: [End; 2],
    ways: [Way; 2],
}

/// One direction, from the end of the same index.
#[derive(Debug, Default)]
struct Way {
    /// What the other end had no room for.
    parked: Parked,
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

    /// Moves what there is, a part at a time. Returns how many bytes, or none if nothing was to be done.
    pub(super) fn step(&mut self, scratch: &mut [u8]) -> Option<usize> {
        let there = self.carry(0, scratch);
        let back = self.carry(1, scratch);
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
            let for_data = !own.is_ending && !own.is_over && !own.is_full();
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

    fn carry(&mut self, from: usize, scratch: &mut [u8]) -> Option<usize> {
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
        while !way.is_ending && !way.is_full() {
            match source.receive(scratch) {
                Taken::Bytes { .. } if target.is_gone() => broken = Some(lost),
                Taken::Bytes { count, is_urgent } => {
                    let sent = way.parked.give(target, &scratch[..count], is_urgent);
                    moved += sent;
                    is_busy = true;
                    // The other connections' turn.
                    if moved >= scratch.len() || sent < count {
                        break;
                    }
                    continue;
                }
                Taken::Nothing => {}
                Taken::Finished => way.is_ending = true,
                Taken::Reset(errno) => broken = Some(errno),
            }
            break;
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
