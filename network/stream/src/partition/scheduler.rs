//! The order in which connections send.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::connection::QueueState;
use super::endpoints::CLASSES;
use super::queue::{Links, Queue};
use super::table::Table;

/// The connections that have something to send.
///
/// Classes are served by deficit round robin (Shreedhar and Varghese, SIGCOMM 1995): in each round a class may send as
/// many slices as its weight. Within a class each connection in turn sends one slice.
#[derive(Debug)]
pub(super) struct Scheduler {
    links: Links,
    classes: [Queue; CLASSES],
    active: u32,
    capped: Queue,
    /// Due times and indexes. Entries of connections that are over, or have a new rate, stay until their time.
    paced: BinaryHeap<Reverse<(u64, u32)>>,
    paced_max: usize,
    quanta: [i64; CLASSES],
    /// The share of the ring of a connection of each class while others are active, in slices of half the ring share.
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

    /// Queues a connection for data if it can send and is in no queue.
    pub(super) fn activate(&mut self, table: &mut Table, index: u32) {
        let connection = table.at(index);
        if connection.queue == QueueState::None && connection.can_send() {
            connection.queue = QueueState::Active;
            self.active += 1;
            self.classes[usize::from(connection.class)].push(&mut self.links, index);
        }
    }

    /// Queues a connection for control frames, if it has any to send.
    pub(super) fn queue_control(&mut self, table: &mut Table, index: u32) {
        let connection = table.at(index);
        if connection.has_pending_control() && !connection.is_queued {
            connection.is_queued = true;
            self.control.push(&mut self.control_links, index);
        }
    }

    /// Takes the next connection with control frames out of its queue.
    pub(super) fn next_control(&mut self, table: &mut Table) -> Option<u32> {
        let index = self.control.pop(&self.control_links)?;
        table.at(index).is_queued = false;
        Some(index)
    }

    /// Takes the next connection that may send a slice out of its queue.
    pub(super) fn next(&mut self, table: &mut Table) -> Option<u32> {
        if self.active == 0 {
            return None;
        }
        loop {
            let class = &mut self.classes[self.turn];
            if self.deficits[self.turn] > 0 {
                if let Some(index) = class.pop(&self.links) {
                    self.active -= 1;
                    table.at(index).queue = QueueState::None;
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

    /// Charges a class for sent bytes.
    pub(super) fn charge(&mut self, class: u8, bytes: i64) {
        self.deficits[usize::from(class)] -= bytes;
    }

    /// Whether connections other than the one just taken have something to send.
    pub(super) const fn has_others(&self) -> bool {
        self.active + self.capped.len() > 0
    }

    /// Lines of about half of the ring share of this class while others are active.
    pub(super) fn share(&self, class: u8, slice: u64) -> u64 {
        self.shares[usize::from(class)] * slice
    }

    /// Sets a connection aside until the peer has read enough of its slices.
    pub(super) fn cap(&mut self, table: &mut Table, index: u32) {
        table.at(index).queue = QueueState::Capped;
        self.capped.push(&mut self.links, index);
    }

    /// Queues capped connections of which enough lines were returned; or the only one.
    pub(super) fn uncap(&mut self, table: &mut Table, returned: u64, slice: u64) {
        let is_alone = self.active == 0 && self.capped.len() == 1;
        for _ in 0..self.capped.len() {
            let Some(index) = self.capped.pop(&self.links) else {
                break;
            };
            let connection = table.at(index);
            let share = self.share(connection.class, slice);
            let may = is_alone || connection.outgoing.in_flight.has_room(returned, share);
            if !may && connection.can_send() {
                self.capped.push(&mut self.links, index);
                continue;
            }
            connection.queue = QueueState::None;
            self.activate_or_free(table, index);
        }
    }

    /// Sets a connection aside until `due_ns`.
    pub(super) fn pace(&mut self, table: &mut Table, index: u32, due_ns: u64) {
        table.at(index).queue = QueueState::Paced { due_ns };
        if self.paced.len() >= self.paced_max {
            // At least half of the entries are stale.
            self.paced
                .retain(|Reverse((due_ns, index))| table.is_paced(*index, *due_ns));
        }
        self.paced.push(Reverse((due_ns, index)));
    }

    /// Queues a connection that was paced by an earlier rate.
    pub(super) fn unpace_now(&mut self, table: &mut Table, index: u32) {
        let connection = table.at(index);
        if matches!(connection.queue, QueueState::Paced { .. }) {
            connection.queue = QueueState::None;
            self.activate(table, index);
        }
    }

    /// Queues the paced connections whose time has come.
    pub(super) fn unpace(&mut self, table: &mut Table, now_ns: u64) {
        while let Some(&Reverse((due_ns, index))) = self.paced.peek() {
            if due_ns > now_ns {
                break;
            }
            self.paced.pop();
            if table.is_paced(index, due_ns) {
                table.at(index).queue = QueueState::None;
                self.activate_or_free(table, index);
            }
        }
    }

    /// The earliest due time of a paced connection, in nanoseconds.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.paced.peek().map(|Reverse((due_ns, _))| *due_ns)
    }

    /// Whether a frame can be sent, given room.
    pub(super) const fn has_work(&self) -> bool {
        self.active > 0 || !self.control.is_empty()
    }

    /// The count of connections that may send or are capped.
    pub(super) const fn active(&self) -> u32 {
        self.active + self.capped.len()
    }

    /// Frees the table entry of a connection that is over and in no queue.
    pub(super) fn free(table: &mut Table, index: u32) {
        let connection = table.at(index);
        let is_free = matches!(
            connection.queue,
            QueueState::None | QueueState::Paced { .. }
        );
        if connection.state.is_over() && is_free && !connection.is_queued {
            table.remove(index);
        }
    }

    fn activate_or_free(&mut self, table: &mut Table, index: u32) {
        if table.at(index).state.is_over() {
            Self::free(table, index);
        } else {
            self.activate(table, index);
        }
    }
}
