//! Whose turn it is.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::connection::Place;
use super::endpoints::CLASSES;
use super::queue::{Links, Queue};
use super::table::Table;

/// Connections that have something to send.
///
/// Classes are served by deficit round robin (Shreedhar and Varghese, SIGCOMM 1995): in each round a class may send
/// as many slices as its weight. Within a class each connection in turn sends one slice.
#[derive(Debug)]
pub(super) struct Scheduler {
    links: Links,
    classes: [Queue; CLASSES],
    active: u32,
    capped: Queue,
    /// Times and places. One whose connection is over, or was given another rate, stays until its time.
    paced: BinaryHeap<Reverse<(u64, u32)>>,
    paced_max: usize,
    quanta: [i64; CLASSES],
    /// How much of the ring a connection of each class may have while others are active, beside the lightest.
    shares: [u64; CLASSES],
    deficits: [i64; CLASSES],
    turn: usize,
    control_links: Links,
    control: Queue,
}

impl Scheduler {
    pub(super) fn new(connections_max: u32, weights: [u16; CLASSES], mtu: u32) -> Self {
        let quantum = |weight: u16| i64::from(weight.max(1)) * i64::from(mtu);
        Self {
            links: Links::new(connections_max),
            classes: [Queue::default(); CLASSES],
            active: 0,
            capped: Queue::default(),
            paced: BinaryHeap::with_capacity(2 * connections_max as usize),
            paced_max: 2 * connections_max as usize,
            quanta: weights.map(quantum),
            shares: weights.map(|weight| u64::from(weight / 4).max(1)),
            deficits: [0; CLASSES],
            turn: 0,
            control_links: Links::new(connections_max),
            control: Queue::default(),
        }
    }

    /// Lines a connection up if it can send and does not stand in a line.
    pub(super) fn activate(&mut self, table: &mut Table, index: u32) {
        let connection = table.at(index);
        if connection.place == Place::None && connection.can_send() {
            connection.place = Place::Active;
            self.active += 1;
            self.classes[usize::from(connection.class)].push(&mut self.links, index);
        }
    }

    /// Lines a connection up for frames without data, if there are any to send.
    pub(super) fn call(&mut self, table: &mut Table, index: u32) {
        let connection = table.at(index);
        if connection.settle_wants() && !connection.is_queued {
            connection.is_queued = true;
            self.control.push(&mut self.control_links, index);
        }
    }

    /// The next that has frames without data, taken out of its line.
    pub(super) fn next_call(&mut self, table: &mut Table) -> Option<u32> {
        let index = self.control.pop(&self.control_links)?;
        table.at(index).is_queued = false;
        Some(index)
    }

    /// The next that may send a slice, taken out of its line.
    pub(super) fn next(&mut self, table: &mut Table) -> Option<u32> {
        if self.active == 0 {
            return None;
        }
        loop {
            let class = &mut self.classes[self.turn];
            if self.deficits[self.turn] > 0 {
                if let Some(index) = class.pop(&self.links) {
                    self.active -= 1;
                    table.at(index).place = Place::None;
                    return Some(index);
                }
            }
            if class.is_empty() {
                self.deficits[self.turn] = 0;
            }
            self.turn = (self.turn + 1) % CLASSES;
            if !self.classes[self.turn].is_empty() {
                self.deficits[self.turn] += self.quanta[self.turn];
            }
        }
    }

    /// Counts what a class has sent.
    pub(super) fn charge(&mut self, class: u8, bytes: i64) {
        self.deficits[usize::from(class)] -= bytes;
    }

    /// Whether others than the one that was just taken out have something to send.
    pub(super) const fn has_others(&self) -> bool {
        self.active + self.capped.len() > 0
    }

    /// About half of the lines that a connection of this class may have in the ring while others are active.
    pub(super) fn heap(&self, class: u8, slice: u64) -> u64 {
        self.shares[usize::from(class)] * slice
    }

    /// Sets one aside until the peer has read of what it sent.
    pub(super) fn cap(&mut self, table: &mut Table, index: u32) {
        table.at(index).place = Place::Capped;
        self.capped.push(&mut self.links, index);
    }

    /// Lets those go on of whose lines enough were given back; or the only one.
    pub(super) fn uncap(&mut self, table: &mut Table, returned: u64, slice: u64) {
        let is_alone = self.active == 0 && self.capped.len() == 1;
        for _ in 0..self.capped.len() {
            let Some(index) = self.capped.pop(&self.links) else {
                break;
            };
            let connection = table.at(index);
            let heap = self.heap(connection.class, slice);
            let may = is_alone || connection.outgoing.unread.has_room(returned, heap);
            if !may && connection.can_send() {
                self.capped.push(&mut self.links, index);
                continue;
            }
            connection.place = Place::None;
            self.activate_or_free(table, index);
        }
    }

    /// Sets one aside until `due_ns`.
    pub(super) fn pace(&mut self, table: &mut Table, index: u32, due_ns: u64) {
        let connection = table.at(index);
        (connection.place, connection.paced_ns) = (Place::Paced, due_ns);
        if self.paced.len() >= self.paced_max {
            // Half of them at least are of no connection.
            self.paced
                .retain(|Reverse((due_ns, index))| table.is_paced(*index, *due_ns));
        }
        self.paced.push(Reverse((due_ns, index)));
    }

    /// Lets one go on that was paced by another rate.
    pub(super) fn hurry(&mut self, table: &mut Table, index: u32) {
        let connection = table.at(index);
        if connection.place == Place::Paced {
            connection.place = Place::None;
            self.activate(table, index);
        }
    }

    /// Lets those go on whose time has come.
    pub(super) fn unpace(&mut self, table: &mut Table, now_ns: u64) {
        while let Some(&Reverse((due_ns, index))) = self.paced.peek() {
            if due_ns > now_ns {
                break;
            }
            self.paced.pop();
            if table.is_paced(index, due_ns) {
                table.at(index).place = Place::None;
                self.activate_or_free(table, index);
            }
        }
    }

    /// When the next one's time comes.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.paced.peek().map(|Reverse((due_ns, _))| *due_ns)
    }

    /// Whether there is something to send now, if there is room.
    pub(super) const fn has_work(&self) -> bool {
        self.active > 0 || !self.control.is_empty()
    }

    /// How many may send, or have as much in the ring as one may.
    pub(super) const fn active(&self) -> u32 {
        self.active + self.capped.len()
    }

    /// Frees the place of one that is over when it stands in no line any more.
    pub(super) fn free(table: &mut Table, index: u32) {
        let connection = table.at(index);
        let is_free = matches!(connection.place, Place::None | Place::Paced);
        if connection.is_over && is_free && !connection.is_queued {
            table.remove(index);
        }
    }

    fn activate_or_free(&mut self, table: &mut Table, index: u32) {
        if table.at(index).is_over {
            Self::free(table, index);
        } else {
            self.activate(table, index);
        }
    }
}
