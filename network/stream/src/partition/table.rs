//! The connections of one side.

use super::connection::{Connection, Place as Standing};
use super::endpoints::ConnectionId;

/// Bits of a number that are a place.
const INDEX_BITS: u32 = 20;
/// The most connections of a partition.
pub const CONNECTIONS_MAX: u32 = 1 << INDEX_BITS;
const GENERATIONS: u32 = 1 << (32 - INDEX_BITS);

/// Places for connections. All memory is taken at the start.
#[derive(Debug)]
pub(super) struct Table {
    places: Vec<Place>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place {
    generation: u32,
    connection: Option<Box<Connection>>,
}

impl Table {
    pub(super) fn new(connections_max: u32) -> Self {
        let place = |_| Place {
            generation: 0,
            connection: None,
        };
        Self {
            places: (0..connections_max).map(place).collect(),
            free: (0..connections_max).rev().collect(),
        }
    }

    /// A number for a connection, unless there is none free.
    pub(super) fn insert(&mut self, connection: Connection) -> Option<ConnectionId> {
        let index = self.free.pop()?;
        let place = &mut self.places[index as usize];
        place.connection = Some(Box::new(connection));
        Some(ConnectionId(index | place.generation << INDEX_BITS))
    }

    /// The place of a number that is in use.
    pub(super) fn find(&self, id: ConnectionId) -> Option<u32> {
        let index = id.0 & (CONNECTIONS_MAX - 1);
        let place = self.places.get(index as usize)?;
        let connection = place.connection.as_deref()?;
        (!connection.is_over && place.generation == id.0 >> INDEX_BITS).then_some(index)
    }

    /// The connection at a place that is in use.
    pub(super) fn at(&mut self, index: u32) -> &mut Connection {
        self.places[index as usize]
            .connection
            .as_deref_mut()
            .expect("places in queues are in use")
    }

    /// Frees a place for the next generation.
    pub(super) fn remove(&mut self, index: u32) {
        let place = &mut self.places[index as usize];
        if place.connection.take().is_some() {
            place.generation = (place.generation + 1) % GENERATIONS;
            self.free.push(index);
        }
    }

    /// Whether the connection at a place is paced until `due_ns`: who was paced may be gone.
    pub(super) fn is_paced(&self, index: u32, due_ns: u64) -> bool {
        let place = self.places.get(index as usize);
        let connection = place.and_then(|place| place.connection.as_deref());
        connection.is_some_and(|it| it.place == Standing::Paced && it.paced_ns == due_ns)
    }

    /// How many connections there are.
    pub(super) fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// The places in use.
    pub(super) fn indexes(&self) -> impl Iterator<Item = u32> + '_ {
        (0..)
            .zip(&self.places)
            .filter_map(|(index, place)| place.connection.as_ref().map(|_| index))
    }
}
