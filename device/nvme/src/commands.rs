//! The tables of a queue pair: requests under way, and the commands they became.
//!
//! # Invariants
//! 1. A request's `outstanding` is the number of commands in flight that name it.
//! 2. A request ends when nothing of it is outstanding and nothing is left to send.
//! 3. A command's id names its slot and how often the slot was used (its sequence, as far as 16 bits go), so
//!    that a completion that comes twice, or late, is not taken for another's.

use std::time::Duration;

use crate::CommandError;
use crate::request::{Data, Operation};
use crate::transfer::Limits;

/// A request under way.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) operation: Operation,
    pub(crate) namespace: u32,
    pub(crate) block_shift: u32,
    pub(crate) limits: Limits,
    /// The first block.
    pub(crate) lba: u64,
    /// Blocks of it; one for a flush, which has none but is one command.
    pub(crate) blocks: u64,
    /// Blocks of it that were sent, or are not going to be.
    pub(crate) sent: u64,
    pub(crate) outstanding: u32,
    pub(crate) scatter_gather: bool,
    pub(crate) error: Option<CommandError>,
    pub(crate) data: Option<Data>,
    pub(crate) token: u64,
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

/// The requests under way.
#[derive(Debug)]
pub(crate) struct Requests {
    places: Box<[Option<Active>]>,
    free: Vec<u16>,
}

impl Requests {
    pub(crate) fn new(count: u16) -> Self {
        Self {
            places: (0..count).map(|_| None).collect(),
            free: (0..count).rev().collect(),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(crate) fn under_way(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Puts a request into a free place.
    pub(crate) fn put(&mut self, active: Active) -> u16 {
        let index = self.free.pop().expect("the caller has seen a free place");
        self.places[usize::from(index)] = Some(active);
        index
    }

    pub(crate) fn get(&mut self, index: u16) -> &mut Active {
        let place = self.places[usize::from(index)].as_mut();
        place.expect("a command in flight, or a request that waits, names a request")
    }

    /// Takes a request that has ended.
    pub(crate) fn take(&mut self, index: u16) -> Active {
        let taken = self.places[usize::from(index)].take();
        self.free.push(index);
        taken.expect("it is taken once, when it ends")
    }

    /// Takes the request in a place, if there is one.
    pub(crate) fn try_take(&mut self, index: u16) -> Option<Active> {
        let taken = self.places[usize::from(index)].take()?;
        self.free.push(index);
        Some(taken)
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
    free: Vec<u16>,
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
            free: (0..count).rev().collect(),
            // One more than needed at times: then no id is 0xffff, which says "no command".
            index_bits: u16::BITS - count.leading_zeros(),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Puts a command of `request` into a free slot.
    pub(crate) fn put(&mut self, request: u16, offset: u64, blocks: u32) -> u16 {
        let index = self.free.pop().expect("the caller has seen a free slot");
        let slot = &mut self.slots[usize::from(index)];
        slot.in_flight = true;
        slot.attempts = 0;
        slot.request = request;
        slot.offset = offset;
        slot.blocks = blocks;
        index
    }

    pub(crate) fn get(&mut self, index: u16) -> &mut Slot {
        &mut self.slots[usize::from(index)]
    }

    /// The id under which the slot's command is sent now: another one than before.
    pub(crate) fn renew_id(&mut self, index: u16) -> u16 {
        let slot = &mut self.slots[usize::from(index)];
        slot.sequence = slot.sequence.wrapping_add(1);
        slot.aborted = false;
        slot.seen = None;
        Self::id(slot.sequence, index, self.index_bits)
    }

    /// The id under which the slot's command was sent.
    pub(crate) fn id_of(&self, index: u16) -> u16 {
        let sequence = self.slots[usize::from(index)].sequence;
        Self::id(sequence, index, self.index_bits)
    }

    fn id(sequence: u16, index: u16, index_bits: u32) -> u16 {
        sequence << index_bits | index
    }

    /// The slot of the command in flight with this id.
    pub(crate) fn find(&self, id: u16) -> Option<u16> {
        let index = id & ((1 << self.index_bits) - 1);
        let slot = self.slots.get(usize::from(index))?;
        (slot.in_flight && self.id_of(index) == id).then_some(index)
    }

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
