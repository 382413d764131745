//! Many connections between two hosts through one window.
//!
//! A window is cut into partitions, each of which one thread on each side serves. A connection belongs to one
//! partition. Format, version 2, little-endian:
//!
//! ```text
//! window:  area 0, area 1, .. of the connecting side | area 0, area 1, .. of the accepting side
//!          or, where each direction has a window of its own, the areas of its writer
//!
//! area, stored to by its side alone:
//!     0  greeting      u32 "MRPT" | version u8 | shape u8: log2 of the ring's lines, 128 if frames are checked
//!                      | u16 the partition's index
//!   128  incarnation   the side's number, another one after each start; 0 = nobody
//!   256  acknowledged  the peer's incarnation that this side has seen
//!   384  beat          a count that goes up while the side lives
//!   512  returned      lines of the other area's ring that were taken: the writer's shadow read index
//!   640  waits         how often the side has gone to sleep
//!  4096  ring          lines of 64 bytes
//!
//! slot in the ring, whole lines:
//!     0  word          tag u32 | length u16 of what follows | kind u8 | flags u8: 1 = with a check
//!     8  connection    u32 as its receiver numbers it: place 20 bits, generation 12 bits
//!    12  credit        u32 up to where the receiver of this may send, in 64 bytes, cumulative, modulo 2^32
//!   (16) check         u32 CRC32C over word, connection, credit and payload | u32 zero
//! 16/24  payload
//!
//! kinds   1 PAD     the next slot is at the ring's start       (no header)
//!         2 DATA    1 to 8,192 bytes
//!         3 CREDIT  nothing
//!         4 FINISH  u64 how many bytes there were
//!         5 RESET   u32 errno, u32 zero, u64 how many bytes there were
//!         6 CLOSE   nothing
//!         7 URGENT  as DATA; the first of the bytes is urgent
//! ```
//! Each word of an area is the word of a slot. A tag is the low half of the slot's place, mixed with a salt that
//! follows from both incarnations.
//!
//! # A session
//! A side that starts clears its words and its ring's first line, then shows its incarnation. Each side acknowledges
//! the other's, and uses the rings when its own was acknowledged. A side that sees another incarnation than it
//! greeted has lost its peer: all connections are reset, never ended. What was sent in one session is nothing in
//! another.
//!
//! # A connection
//! The monitors agree about it over a connection of their own: each side opens a number
//! ([`Partition::open`]), tells it with its first credit, and takes the peer's ([`Partition::establish`]). A side
//! sends `(DATA | URGENT | CREDIT)* [FINISH CREDIT*] (CLOSE | RESET)`: CLOSE when both have finished, or to answer a RESET. The
//! number is free when both last frames have passed, so no frame ever names a number that is not in use.
//!
//! An urgent byte has its place among the others: it counts as they do, and needs credit as they do. What comes of its
//! being urgent is the endpoints' business.
//!
//! # Credits
//! A receiver sets room aside for each connection and grants no more than that. Whatever lies in the ring therefore
//! has a place to go to, and a receiver that stops delays nobody but its own sender.
//!
//! # Order of service
//! Frames without data first; then classes by deficit round robin, within a class one slice of at most an mtu in
//! turn. While others are active, a connection has about two slices in the ring that were not read, or half its class's
//! weight if that is more. Between two
//! slices of a connection there is thus at most one of each other active connection of its class.
//!
//! # Trust
//! The peer may store anything at any time. What can be laid at one connection's door ([`Breach`]) ends that one;
//! anything else ([`Loss`]) ends the partition. Memory is bounded: the table is made at the start, and what the
//! endpoints keep is what they granted.
//!
//! # Threads, clock, memory
//! One thread at a time has a partition. `now` is passed in. Nothing is allocated by [`Partition::poll`]; each
//! connection is one allocation when it is opened.

mod bucket;
mod connection;
mod endpoints;
mod frame;
mod geometry;
mod name;
#[expect(clippy::module_inception, reason = "one main type a file")]
mod partition;
mod queue;
mod receiving;
mod scheduler;
mod sending;
mod session;
mod table;

pub use bucket::{Bucket, Rate};
pub use endpoints::{
    Breach, CLASSES, Class, ConnectionId, Endpoints, Fetched, Loss, Opened, Opening, Reset,
};
pub use geometry::{PARTITION_VERSION, PartitionGeometry};
pub use name::{ConnectionName, EndName};
pub use partition::{Partition, PartitionSettings, Progress, State, Totals};
pub use table::CONNECTIONS_MAX;
