//! The tables of a queue pair: requests under way, and the commands they became.
//!
//! # Invariants
//! 1. A request's `outstanding` is the number of commands in flight that name it.
//! 2. A request ends when nothing of it is outstanding and nothing is left to send.
//! 3. A command's id names its slot and how often the slot was used (its sequence, as far as 16 bits go), so
//!    that a completion that comes twice, or late, is not taken for another's.

use std::time::Duration;

use crate::CommandError;
use crate::check::Shape;
use crate::request::Data;

/// A request under way, but for its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Active {
    pub(crate) shape: Shape,
    pub(crate) namespace: u32,
    pub(crate) block_shift: u32,
    /// The first block.
    pub(crate) lba: u64,
    /// Blocks of it that were sent, or are not going to be.
    pub(crate) sent: u64,
    pub(crate) outstanding: u32,
    pub(crate) error: Option<CommandError>,
    pub(crate) token: u64,
    /// Whether there is a request in this place.
    pub(crate) is_taken: bool,
}

impl Active {
    /// Where a command's data begins within the request's, and how long it is, in bytes.
    #[inline]
    pub(crate) const fn bytes(&self, offset: u64, blocks: u32) -> (u64, u64) {
        (
            offset << self.block_shift,
            (blocks as u64) << self.block_shift,
        )
    }
}

/// A command in flight, or the place for one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) in_flight: bool,
    /// Whether an abort was asked for.
    pub(crate) aborted: bool,
    /// How often it was sent again.
    pub(crate) attempts: u8,
    sequence: u16,
    /// Its request.
    pub(crate) request: u16,
    /// Its first block within the request.
    pub(crate) offset: u64,
    pub(crate) blocks: u32,
    /// When it was first seen in flight, once it was.
    pub(crate) seen: Option<Duration>,
}

/// Numbers that are free, the one that was freed last first.
#[derive(Debug)]
struct Free {
    numbers: Box<[u16]>,
    count: usize,
}

impl Free {
    /// All numbers below `count`.
    fn new(count: u16) -> Self {
        Self {
            numbers: (0..count).rev().collect(),
            count: usize::from(count),
        }
    }

    #[inline]
    fn pop(&mut self) -> u16 {
        assert!(self.count > 0, "the caller has seen that one is free");
        self.count -= 1;
        self.numbers[self.count]
    }

    #[inline]
    fn push(&mut self, number: u16) {
        self.numbers[self.count] = number;
        self.count += 1;
    }
}

/// The requests under way.
#[derive(Debug)]
pub(crate) struct Requests {
    places: Box<[Active]>,
    /// Of the place with the same index.
    data: Box<[Option<Data>]>,
    free: Free,
}

impl Requests {
    pub(crate) fn new(count: u16) -> Self {
        let nothing = Active {
            shape: Shape::NOTHING,
            namespace: 0,
            block_shift: 0,
            lba: 0,
            sent: 0,
            outstanding: 0,
            error: None,
            token: 0,
            is_taken: false,
        };
        Self {
            places: vec![nothing; usize::from(count)].into(),
            data: (0..count).map(|_| None).collect(),
            free: Free::new(count),
        }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.free.count == 0
    }

    pub(crate) fn under_way(&self) -> usize {
        self.places.len() - self.free.count
    }

    /// Puts a request into a free place.
    #[inline]
    pub(crate) fn put(&mut self, active: Active, data: Option<Data>) -> u16 {
        let index = self.free.pop();
        self.places[usize::from(index)] = active;
        self.data[usize::from(index)] = data;
        index
    }

    #[inline]
    pub(crate) fn get(&self, index: u16) -> &Active {
        &self.places[usize::from(index)]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u16) -> &mut Active {
        &mut self.places[usize::from(index)]
    }

    /// A request's data.
    #[inline]
    pub(crate) fn data(&self, index: u16) -> Option<&Data> {
        self.data[usize::from(index)].as_ref()
    }

    /// Takes the request in this place; returns its data.
    #[inline]
    pub(crate) fn take(&mut self, index: u16) -> Option<Data> {
        self.places[usize::from(index)].is_taken = false;
        self.free.push(index);
        self.data[usize::from(index)].take()
    }

    /// How many places there are.
    pub(crate) fn places(&self) -> u16 {
        u16::try_from(self.places.len()).expect("as many as `new` was given")
    }
}

/// The commands in flight.
#[derive(Debug)]
pub(crate) struct Commands {
    slots: Box<[Slot]>,
    free: Free,
    /// Bits of an id that name the slot.
    index_bits: u32,
}

impl Commands {
    /// Places for `count` commands, 4,095 at most, so that ids have room for a sequence.
    pub(crate) fn new(count: u16) -> Self {
        let slot = Slot {
            in_flight: false,
            aborted: false,
            attempts: 0,
            sequence: 0,
            request: 0,
            offset: 0,
            blocks: 0,
            seen: None,
        };
        Self {
            slots: vec![slot; usize::from(count)].into(),
            free: Free::new(count),
            // One more than needed at times: then no id is 0xffff, which says "no command".
            index_bits: u16::BITS - count.leading_zeros(),
        }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.free.count == 0
    }

    #[inline]
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.count
    }

    /// Puts a command of `request` into a free slot.
    #[inline]
    pub(crate) fn put(&mut self, request: u16, offset: u64, blocks: u32) -> u16 {
        let index = self.free.pop();
        let slot = &mut self.slots[usize::from(index)];
        slot.in_flight = true;
        slot.attempts = 0;
        slot.request = request;
        slot.offset = offset;
        slot.blocks = blocks;
        index
    }

    #[inline]
    pub(crate) fn get(&mut self, index: u16) -> &mut Slot {
        &mut self.slots[usize::from(index)]
    }

    /// The id under which the slot's command is sent now: another one than before.
    #[inline]
    pub(crate) fn renew_id(&mut self, index: u16) -> u16 {
        let slot = &mut self.slots[usize::from(index)];
        slot.sequence = slot.sequence.wrapping_add(1);
        slot.aborted = false;
        slot.seen = None;
        Self::id(slot.sequence, index, self.index_bits)
    }

    /// The id under which the slot's command was sent.
    #[inline]
    pub(crate) fn id_of(&self, index: u16) -> u16 {
        let sequence = self.slots[usize::from(index)].sequence;
        Self::id(sequence, index, self.index_bits)
    }

    #[inline]
    fn id(sequence: u16, index: u16, index_bits: u32) -> u16 {
        sequence << index_bits | index
    }

    /// The slot of the command in flight with this id.
    #[inline]
    pub(crate) fn find(&self, id: u16) -> Option<u16> {
        let index = id & ((1 << self.index_bits) - 1);
        let slot = self.slots.get(usize::from(index))?;
        (slot.in_flight && self.id_of(index) == id).then_some(index)
    }

    #[inline]
    pub(crate) fn release(&mut self, index: u16) {
        self.slots[usize::from(index)].in_flight = false;
        self.free.push(index);
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> u16 {
        u16::try_from(self.slots.len()).expect("as many as `new` was given")
    }

    /// Takes all commands out.
    pub(crate) fn clear(&mut self) {
        for index in 0..self.slots() {
            if self.slots[usize::from(index)].in_flight {
                self.release(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_known_once() {
        let mut commands = Commands::new(3);
        let slot = commands.put(0, 0, 1);
        let id = commands.renew_id(slot);
        assert_eq!(commands.find(id), Some(slot));
        commands.release(slot);
        assert_eq!(commands.find(id), None);
        let slot = commands.put(0, 0, 1);
        let next = commands.renew_id(slot);
        assert_eq!(commands.find(id), None);
        assert_eq!(commands.find(next), Some(slot));
    }

    #[test]
    fn no_id_says_no_command() {
        for count in [1, 2, 3, 4, 255, 256, 4095] {
            let mut commands = Commands::new(count);
            for _ in 0..count {
                let slot = commands.put(0, 0, 1);
                for _ in 0..70_000 / u32::from(count) {
                    assert_ne!(commands.renew_id(slot), u16::MAX);
                }
            }
        }
    }
}
