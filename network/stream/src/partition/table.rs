//! The table of one side's connections.

use super::connection::{Connection, QueueState};
use super::endpoints::ConnectionId;

/// Bits of a connection number that are the table index.
const INDEX_BITS: u32 = 20;
/// The most connections of a partition.
pub const CONNECTIONS_MAX: u32 = 1 << INDEX_BITS;
const GENERATIONS: u32 = 1 << (32 - INDEX_BITS);

/// A table of connections, allocated at the start.
#[derive(Debug)]
pub(super) struct Table {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    connection: Option<Box<Connection>>,
}

impl Table {
    pub(super) fn new(connections_max: u32) -> Self {
        let entry = |_| Entry {
            generation: 0,
            connection: None,
        };
        Self {
            entries: (0..connections_max).map(entry).collect(),
            free: (0..connections_max).rev().collect(),
        }
    }

    /// Adds a connection and returns its number; `None` if the table is full.
    pub(super) fn insert(&mut self, connection: Connection) -> Option<ConnectionId> {
        let index = self.free.pop()?;
        let entry = &mut self.entries[index as usize];
        entry.connection = Some(Box::new(connection));
        Some(ConnectionId(index | entry.generation << INDEX_BITS))
    }

    /// The index of a number that is in use.
    pub(super) fn find(&self, id: ConnectionId) -> Option<u32> {
        let index = id.0 & (CONNECTIONS_MAX - 1);
        let entry = self.entries.get(index as usize)?;
        let connection = entry.connection.as_deref()?;
        (!connection.state.is_over() && entry.generation == id.0 >> INDEX_BITS).then_some(index)
    }

    /// The connection at an index that is in use.
    pub(super) fn at(&mut self, index: u32) -> &mut Connection {
        self.entries[index as usize]
            .connection
            .as_deref_mut()
            .expect("entries in queues are in use")
    }

    /// Frees an entry and advances its generation.
    pub(super) fn remove(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        if entry.connection.take().is_some() {
            entry.generation = (entry.generation + 1) % GENERATIONS;
            self.free.push(index);
        }
    }

    /// Whether the connection at an index is paced until `due_ns`; an earlier paced one may be gone.
    pub(super) fn is_paced(&self, index: u32, due_ns: u64) -> bool {
        let entry = self.entries.get(index as usize);
        let connection = entry.and_then(|entry| entry.connection.as_deref());
        connection.is_some_and(|it| it.queue == QueueState::Paced { due_ns })
    }

    /// The count of connections.
    pub(super) fn count(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// The indexes in use.
    pub(super) fn indexes(&self) -> impl Iterator<Item = u32> + '_ {
        (0..)
            .zip(&self.entries)
            .filter_map(|(index, entry)| entry.connection.as_ref().map(|_| index))
    }
}
