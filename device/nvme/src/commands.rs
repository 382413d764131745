//! The tables of a queue pair: commands in flight, and the requests that became several.
//!
//! A request that one command serves lives in that command's slot. One that was split, or has to wait for a free
//! slot, has a place of its own, which the slots of its commands name.
//!
//! # Invariants
//! 1. A request's `outstanding` is the number of commands in flight that name it.
//! 2. A request that was split ends when nothing of it is outstanding and nothing is left to send.
//! 3. A command's id names its slot and how often the slot was used (its sequence, as far as 16 bits go), so
//!    that a completion that comes twice, or late, is not taken for another's. A slot's key is that id, with a bit
//!    above it set while nothing is in flight there, or while its command is a part of a request: then no
//!    completion's id equals it.
//! 4. A slot is in the list of free ones exactly while its key says that nothing is in flight there; it has no data
//!    then.

use std::mem;
use std::time::Duration;

use crate::CommandError;
use crate::request::Data;
use crate::shape::Shape;
use crate::spec::command::{Command, io};

/// A request that was split or waits, but for its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Active {
    pub(crate) shape: Shape,
    pub(crate) namespace: u32,
    pub(crate) block_shift: u32,
    /// First block of the command.
    pub(crate) lba: u64,
    /// Blocks of it that were sent, or are not going to be.
    pub(crate) sent: u64,
    pub(crate) outstanding: u32,
    /// Whether a part of it has ended.
    pub(crate) has_ended_parts: bool,
    /// Whether all of it is to be sent once more when the parts in flight have ended.
    pub(crate) is_to_repeat: bool,
    pub(crate) error: Option<CommandError>,
    pub(crate) token: u64,
    /// Whether there is a request in this place.
    pub(crate) is_taken: bool,
}

impl Active {
    /// Begins it anew, when nothing of it is in flight.
    pub(crate) const fn repeat(&mut self) {
        self.sent = 0;
        self.has_ended_parts = false;
        self.is_to_repeat = false;
    }
}

/// What a command is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A request of its own, with this token.
    Token(u64),
    /// The request with this index.
    Request(u16),
}

/// Slot number that means "no free slot".
const NONE: u16 = u16::MAX;
/// The bit of a slot's key that is set while nothing is in flight there.
const FREE: u32 = 1 << 16;
/// The bit of a slot's key that is set while its command is a part of a request.
const PART: u32 = 1 << 17;

/// A command in flight, or the place for one.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Data of a request of its own.
    data: Option<Data>,
    /// Whether an abort was asked for.
    pub(crate) aborted: bool,
    /// How often it was sent again.
    pub(crate) attempts: u8,
    /// While it is free: the slot that was freed before it.
    next: u16,
    /// The command's id, which has the slot's number in the low bits, above it how often the slot was used; with
    /// [`FREE`] and [`PART`].
    key: u32,
    /// The request's token; the request's place, if the command is a part of one.
    owner: u64,
    /// What is sent, and sent again.
    command: Command,
    /// When it was first seen in flight, once it was.
    pub(crate) seen: Option<Duration>,
}

impl Slot {
    pub(crate) const fn in_flight(&self) -> bool {
        self.key & FREE == 0
    }

    /// The id under which its command was sent.
    const fn id(&self) -> u16 {
        (self.key & 0xffff) as u16
    }

    /// What its command is a part of.
    pub(crate) const fn owner(&self) -> Owner {
        if self.key & PART == 0 {
            Owner::Token(self.owner)
        } else {
            Owner::Request((self.owner & 0xffff) as u16)
        }
    }

    /// Whether the request is a flush.
    pub(crate) const fn is_flush(&self) -> bool {
        self.command.opcode() == io::FLUSH
    }

    /// Begins another life of the command: under another id than before, seen by no check.
    #[inline]
    const fn renew(&mut self, flags: u32, id_step: u16) {
        self.key = self.id().wrapping_add(id_step) as u32 | flags;
        self.aborted = false;
        self.seen = None;
    }
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

/// Requests in flight that are not single commands.
#[derive(Debug)]
pub(crate) struct Requests {
    places: Box<[Active]>,
    /// Data of the request with the same index.
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
            has_ended_parts: false,
            is_to_repeat: false,
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

    /// Data of a request.
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

    /// Number of entries.
    pub(crate) fn places(&self) -> u16 {
        u16::try_from(self.places.len()).expect("as many as `new` was given")
    }
}

/// Table of commands in flight.
#[derive(Debug)]
pub(crate) struct Commands {
    slots: Box<[Slot]>,
    /// The slot that was freed last, or [`NONE`]: it is used next.
    free: u16,
    /// The lowest bit of an id that does not name the slot.
    id_step: u16,
    /// Mask of a slot's index in a command id.
    index_mask: u16,
}

impl Commands {
    /// Places for `count` commands, 4,095 at most, so that ids have room for a sequence.
    pub(crate) fn new(count: u16) -> Self {
        let slot = |index| Slot {
            data: None,
            aborted: false,
            attempts: 0,
            next: if index + 1 < count { index + 1 } else { NONE },
            key: u32::from(index) | FREE,
            owner: 0,
            command: Command::new(0, 0),
            seen: None,
        };
        // Sometimes twice as much as needed: then no id is 0xffff, which means "no command".
        let id_step = 1 << (u16::BITS - count.leading_zeros());
        Self {
            slots: (0..count).map(slot).collect(),
            free: if count > 0 { 0 } else { NONE },
            id_step,
            index_mask: id_step - 1,
        }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.free == NONE
    }

    /// Takes a free slot, of which there is one, for the command that `describe` makes of its number and its data;
    /// returns the entry to send. Data is given with a request of the slot's own.
    #[inline(always)]
    pub(crate) fn start(
        &mut self,
        owner: Owner,
        data: Option<Data>,
        describe: impl FnOnce(u16, Option<&Data>) -> Command,
    ) -> [u64; 8] {
        let index = self.free;
        let slot = &mut self.slots[usize::from(index)];
        self.free = slot.next;
        debug_assert!(!slot.in_flight() && slot.data.is_none(), "invariant 4");
        // The last command's was taken when it ended: there is nothing to drop.
        mem::forget(mem::replace(&mut slot.data, data));
        slot.attempts = 0;
        let flags = match owner {
            Owner::Token(token) => {
                slot.owner = token;
                0
            }
            Owner::Request(number) => {
                slot.owner = u64::from(number);
                PART
            }
        };
        slot.renew(flags, self.id_step);
        slot.command = describe(index, slot.data.as_ref());
        slot.command.words(slot.id())
    }

    #[inline]
    pub(crate) fn get(&mut self, index: u16) -> &mut Slot {
        &mut self.slots[usize::from(index)]
    }

    /// The entry to send a slot's command with, under another id than before.
    #[inline]
    pub(crate) fn entry(&mut self, index: u16) -> [u64; 8] {
        let slot = &mut self.slots[usize::from(index)];
        slot.renew(slot.key & !0xffff, self.id_step);
        slot.command.words(slot.id())
    }

    /// The id under which the slot's command was sent.
    pub(crate) fn id_of(&self, index: u16) -> u16 {
        self.slots[usize::from(index)].id()
    }

    /// The slot of the command in flight with this id.
    #[inline]
    pub(crate) fn find(&self, id: u16) -> Option<u16> {
        let index = id & self.index_mask;
        let slot = self.slots.get(usize::from(index))?;
        (slot.in_flight() && slot.id() == id).then_some(index)
    }

    /// Frees the slot of the command in flight with this id, if that is a request of its own; returns token
    /// and data, which is to be taken.
    #[inline(always)]
    pub(crate) fn finish(&mut self, id: u16) -> Option<(u64, &mut Option<Data>)> {
        let index = id & self.index_mask;
        let slot = self.slots.get_mut(usize::from(index))?;
        if slot.key != u32::from(id) {
            return None;
        }
        slot.key |= FREE;
        slot.next = mem::replace(&mut self.free, index);
        Some((slot.owner, &mut slot.data))
    }

    /// Frees a slot; returns the data of a request of its own.
    #[inline(always)]
    pub(crate) fn release(&mut self, index: u16) -> Option<Data> {
        let slot = &mut self.slots[usize::from(index)];
        debug_assert!(slot.in_flight(), "invariant 4");
        slot.key |= FREE;
        slot.next = mem::replace(&mut self.free, index);
        slot.data.take()
    }

    /// Number of slots.
    pub(crate) fn slots(&self) -> u16 {
        u16::try_from(self.slots.len()).expect("as many as `new` was given")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(commands: &mut Commands) -> (u16, u16) {
        let mut taken = 0;
        commands.start(Owner::Token(0), None, |index, _| {
            taken = index;
            Command::new(0, 0)
        });
        (taken, commands.id_of(taken))
    }

    #[test]
    fn an_id_is_known_once() {
        let mut commands = Commands::new(3);
        let (index, id) = sent(&mut commands);
        assert_eq!(commands.find(id), Some(index));
        commands.release(index);
        assert_eq!(commands.find(id), None);
        let (index, next) = sent(&mut commands);
        assert_eq!(commands.find(id), None);
        assert_eq!(commands.find(next), Some(index));
    }

    #[test]
    fn no_id_says_no_command() {
        for count in [1, 2, 3, 4, 255, 256, 4095] {
            let mut commands = Commands::new(count);
            for _ in 0..count {
                let (index, _) = sent(&mut commands);
                for _ in 0..70_000 / u32::from(count) {
                    commands.entry(index);
                    assert_ne!(commands.id_of(index), u16::MAX);
                }
            }
        }
    }
}
