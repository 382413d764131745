//! Many connections between two hosts through one window.
//!
//! A window is divided into partitions, each of which one thread on each side serves. A connection belongs to one
//! partition. Format, version 2, little-endian:
//!
//! ```text
//! window:  area 0, area 1, .. of the connecting side | area 0, area 1, .. of the accepting side
//!          or, where each direction has a window of its own, the areas of its writer
//!
//! area, stored to by its side alone:
//!     0  greeting      u32 "MRPT" | version u8 | shape u8: log2 of the ring's lines, 128 if frames are checked
//!                      | u16 the partition's index
//!   128  incarnation   the side's number, another one after each start; 0 = not started
//!   256  acknowledged  the peer's incarnation that this side has seen
//!   384  beat          the heartbeat counter
//!   512  returned      lines of the other area's ring that were taken: the writer's shadow read index
//!   640  waits         the count of sleeps of this side
//!  4096  ring          lines of 64 bytes
//!
//! slot in the ring, whole lines:
//!     0  word          tag u32 | length u16 of what follows | kind u8 | flags u8: 1 = with a checksum
//!     8  connection    u32, the receiver's number: index 20 bits, generation 12 bits
//!    12  credit        u32, cumulative credit of the receiver of this frame, in 64 bytes, modulo 2^32
//!   (16) check         u32 CRC32C over word, connection, credit and payload | u32 zero
//! 16/24  payload
//!
//! kinds   1 PAD     the next slot is at the ring's start       (no header)
//!         2 DATA    1 to 8,192 bytes
//!         3 CREDIT  no payload
//!         4 FINISH  u64 count of bytes
//!         5 RESET   u32 errno, u32 zero, u64 count of bytes
//!         6 CLOSE   no payload
//!         7 URGENT  as DATA; the first of the bytes is urgent
//! ```
//! Each word of an area is the word of a slot. A tag is the low half of the slot's position, mixed with a salt that
//! follows from both incarnations.
//!
//! # A session
//! A side that starts clears its words and its ring's first line, then stores its incarnation. Each side acknowledges
//! the other's, and uses the rings when its own was acknowledged. A side that sees a different incarnation than before
//! has lost its peer: all connections are reset, never finished. No slot of one session is valid in another.
//!
//! # A connection
//! The brokers negotiate it over their own connection: each side opens a number ([`Partition::open`]), sends it with
//! its first credit, and applies the peer's ([`Partition::establish`]). A side sends `(DATA | URGENT | CREDIT)* [FINISH
//! CREDIT*] (CLOSE | RESET)`: CLOSE when both have finished, or to answer a RESET. The number is free when both last
//! frames have passed, so no frame ever names a number that is not in use.
//!
//! An urgent byte has its position among the others, is counted as they are, and needs credit as they do. The endpoints
//! define the effect of its urgency.
//!
//! # Credits
//! A receiver grants each connection at most its receive room. Every frame in the ring therefore has room at its
//! endpoint, and a receiver that stops delays only its own sender.
//!
//! # Order of service
//! Control frames first; then classes by deficit round robin, and within a class one slice of at most an mtu in turn.
//! While others are active, a connection has about two unread slices in the ring, or half its class's weight if that is
//! more. Between two slices of a connection there is thus at most one of each other active connection of its class.
//!
//! # Trust
//! The peer may store anything at any time. A violation within one connection ([`ProtocolViolation`]) ends that
//! connection; any other ([`SessionError`]) ends the partition. Memory is bounded: the table is allocated at the start,
//! and the endpoints keep at most what they granted.
//!
//! # Threads, clock, memory
//! One thread at a time uses a partition. `now` is passed in. [`Partition::poll`] allocates nothing; each connection is
//! one allocation when it is opened.

mod bucket;
mod connection;
mod connection_state;
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
    CLASSES, Class, ConnectionId, Endpoints, Fetched, OpenParams, OpenReply, ProtocolViolation,
    Reset, SessionError,
};
pub use geometry::{PARTITION_VERSION, PartitionGeometry};
pub use name::{ConnectionName, EndName};
pub use partition::{Partition, PartitionSettings, Progress, State, Totals};
pub use table::CONNECTIONS_MAX;
