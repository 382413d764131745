//! The slab of a process: the state of its connections that survives `fork` and `exec`, and its counters.
//!
//! # Format
//! A sparse memory file of [`SIZE`] bytes, sealed against every change of size. Little-endian.
//! ```text
//!    0  magic u64 | version u32 | record size u32
//!   16  records u32: how many were ever in use | process u32
//!   64  counters, u64 each: see header::counter
//! 4096  records of 512 bytes
//!
//!       a record, that is one end of a connection
//!    0  state u32: 0 free, 1 in use | holders u32: processes
//!    8  flags u32 | error u32
//!   16  mode u32 | side u32
//!   32  local address, 24 bytes | 56  peer's address, 24 bytes
//!   88  tokens of the processes that hold it, 10 words u32, of the process's own
//!  128  options, of the process's own
//!  256  lock u32 | 264 the sender's cursor, 8 words u64: position, returned, total, ..
//!  384  lock u32 | 392 the receiver's cursor, 8 words u64: position, taken, credited, wake_pending, total, ..
//! ```
//! [`Address`] defines the layout of an address.
//!
//! The header's counters hold the bytes of ended connections; open connections have their own. Peers never see a slab.
//! The broker reads it at any time and without a lock: a sum is exact while nothing changes.
//!
//! # Recovery, durability
//! None: the kernel frees a slab when its last descriptor is closed.

use std::net::SocketAddr;

use crate::address::{self, Address};

/// The first eight bytes of a slab.
pub const MAGIC: u64 = u64::from_le_bytes(*b"MRsocket");
/// The version number of the binary layout.
pub const VERSION: u32 = 1;
/// The size of a slab in bytes.
pub const SIZE: usize = 16 << 20;
/// The size of the header in bytes, before the first record.
pub const HEADER_SIZE: usize = 4096;
/// The size of a record in bytes.
pub const RECORD_SIZE: usize = 512;
/// The count of records of a slab.
pub const RECORDS: usize = (SIZE - HEADER_SIZE) / RECORD_SIZE;

/// Byte offsets of the header's fields.
pub mod header {
    /// The offset of [`super::MAGIC`] in the header.
    pub const MAGIC: usize = 0;
    /// The offset of [`super::VERSION`] in the header.
    pub const VERSION: usize = 8;
    /// The offset of [`super::RECORD_SIZE`] in the header.
    pub const RECORD_SIZE: usize = 12;
    /// The offset of the count of records that were ever in use.
    pub const RECORDS: usize = 16;
    /// The offset of the process id of the slab's creator.
    pub const PROCESS: usize = 20;
    /// The offset of the first counter.
    pub const COUNTERS: usize = 64;

    /// Indexes of counters, each a `u64` from [`COUNTERS`] on.
    pub mod counter {
        /// The sum of bytes sent by ended connections.
        pub const SENT: usize = 0;
        /// The sum of bytes received by ended connections.
        pub const RECEIVED: usize = 1;
        /// The count of connections made by this process.
        pub const CONNECTS: usize = 2;
        /// The count of connections accepted by this process.
        pub const ACCEPTS: usize = 3;
        /// Connects that the kernel's TCP served although a broker was asked.
        pub const KERNEL_CONNECTS: usize = 4;
        /// Connections that a listener accepted from the kernel.
        pub const KERNEL_ACCEPTS: usize = 5;
        /// The count of notifications sent to sleeping peers.
        pub const NOTIFICATIONS: usize = 6;
        /// The count of sleeps of the process's threads.
        pub const SLEEPS: usize = 7;
        /// Connections that ended in a reset.
        pub const RESETS: usize = 8;
        /// Connections whose bytes started to move from their records to the sums here.
        pub const ENDING: usize = 9;
        /// Connections of which that move is complete.
        pub const ENDED: usize = 10;
        /// The count of counters in a header.
        pub const COUNT: usize = 11;
    }

    /// The offset behind the last counter.
    pub const COUNTERS_END: usize = COUNTERS + 8 * counter::COUNT;
}

/// Byte offsets of a record's fields.
pub mod record {
    /// The offset of the state; 1 is in use.
    pub const STATE: usize = 0;
    /// The offset of the count of processes that hold it.
    pub const HOLDERS: usize = 4;
    /// The offset of the shutdown flags.
    pub const FLAGS: usize = 8;
    /// The offset of the pending error (`SO_ERROR`).
    pub const ERROR: usize = 12;
    /// The offset of the mode: direct or forwarded.
    pub const MODE: usize = 16;
    /// The offset of the side: 0 connected, 1 accepted.
    pub const SIDE: usize = 20;
    /// The offset of this end's address.
    pub const LOCAL: usize = 32;
    /// The offset of the other end's address.
    pub const PEER: usize = 56;
    /// The offset of the options, in the process's own layout.
    pub const OPTIONS: usize = 128;
    /// The offset of the holders' tokens, in the process's own layout.
    pub const TOKENS: usize = 88;
    /// The offset of the sender's lock.
    pub const SEND: usize = 256;
    /// The offset of the count of bytes sent.
    pub const SENT: usize = 280;
    /// The offset of the receiver's lock.
    pub const RECEIVE: usize = 384;
    /// The offset of the count of bytes received.
    pub const RECEIVED: usize = 424;
    /// Bytes from a lock to its cursor.
    pub const CURSOR: usize = 8;
    /// The size of an address in bytes.
    pub const ADDRESS_SIZE: usize = super::address::SIZE;
}

/// The counters of a process, summed over its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes sent by all of its connections.
    pub sent: u64,
    /// Bytes received by all of its connections.
    pub received: u64,
    /// The count of connections made by this process.
    pub connects: u64,
    /// The count of connections accepted by this process.
    pub accepts: u64,
    /// Connects that the kernel's TCP served although a broker was asked.
    pub kernel_connects: u64,
    /// Connections that a listener accepted from the kernel.
    pub kernel_accepts: u64,
    /// The count of notifications sent to sleeping peers.
    pub notifications: u64,
    /// The count of sleeps of the process's threads.
    pub sleeps: u64,
    /// Connections that ended in a reset.
    pub resets: u64,
    /// The count of connections that are open now.
    pub live: u64,
}

/// One end of a connection in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The count of processes that hold it.
    pub holders: u32,
    /// The mode: direct or forwarded, as in the record.
    pub mode: u32,
    /// The IP address and port of this end.
    pub local: SocketAddr,
    /// The IP address and port of the other end.
    pub peer: SocketAddr,
    /// The count of bytes sent by this end.
    pub sent: u64,
    /// The count of bytes received by this end.
    pub received: u64,
}

/// The bytes of a slab that are in use, from its first [`HEADER_SIZE`] bytes. `None` if they are not a slab's.
#[must_use]
pub fn used(snapshot: &[u8]) -> Option<usize> {
    let known = u64_at(snapshot, header::MAGIC)? == MAGIC
        && u32_at(snapshot, header::VERSION)? == VERSION
        && u32_at(snapshot, header::RECORD_SIZE)? as usize == RECORD_SIZE;
    let records = u32_at(snapshot, header::RECORDS)? as usize;
    known.then_some(HEADER_SIZE + records.min(RECORDS) * RECORD_SIZE)
}

/// The connections whose bytes started to move from records to sums, and those of which the move is complete. Sums read
/// between two snapshots are exact if the second's started count equals the first's completed count. `None` if it is
/// not a slab.
#[must_use]
pub fn endings(snapshot: &[u8]) -> Option<(u64, u64)> {
    used(snapshot)?;
    let counter = |number: usize| u64_at(snapshot, header::COUNTERS + 8 * number);
    let began = counter(header::counter::ENDING)?;
    Some((began, counter(header::counter::ENDED)?))
}

/// The open connections in a snapshot of a slab.
pub fn ends(snapshot: &[u8]) -> impl Iterator<Item = End> + '_ {
    let records = snapshot.get(HEADER_SIZE..).unwrap_or_default();
    records.chunks_exact(RECORD_SIZE).filter_map(End::read)
}

impl Totals {
    /// The counters in a snapshot: the whole slab, or as much as [`used`] says. `None` if it is not a slab.
    #[must_use]
    pub fn read(snapshot: &[u8]) -> Option<Self> {
        used(snapshot)?;
        let counter = |number: usize| u64_at(snapshot, header::COUNTERS + 8 * number);
        let mut totals = Self {
            sent: counter(header::counter::SENT)?,
            received: counter(header::counter::RECEIVED)?,
            connects: counter(header::counter::CONNECTS)?,
            accepts: counter(header::counter::ACCEPTS)?,
            kernel_connects: counter(header::counter::KERNEL_CONNECTS)?,
            kernel_accepts: counter(header::counter::KERNEL_ACCEPTS)?,
            notifications: counter(header::counter::NOTIFICATIONS)?,
            sleeps: counter(header::counter::SLEEPS)?,
            resets: counter(header::counter::RESETS)?,
            live: 0,
        };
        for end in ends(snapshot) {
            totals.sent = totals.sent.wrapping_add(end.sent);
            totals.received = totals.received.wrapping_add(end.received);
            totals.live += u64::from(end.holders > 0);
        }
        Some(totals)
    }
}

impl Totals {
    /// The header of a slab without records that has these counters.
    #[must_use]
    pub fn header(&self, process: u32) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        let mut put = |offset: usize, value: &[u8]| {
            bytes[offset..offset + value.len()].copy_from_slice(value);
        };
        put(header::MAGIC, &MAGIC.to_le_bytes());
        put(header::VERSION, &VERSION.to_le_bytes());
        let record_size = u32::try_from(RECORD_SIZE).expect("a record is small");
        put(header::RECORD_SIZE, &record_size.to_le_bytes());
        put(header::PROCESS, &process.to_le_bytes());
        for (number, value) in [
            (header::counter::SENT, self.sent),
            (header::counter::RECEIVED, self.received),
            (header::counter::CONNECTS, self.connects),
            (header::counter::ACCEPTS, self.accepts),
            (header::counter::KERNEL_CONNECTS, self.kernel_connects),
            (header::counter::KERNEL_ACCEPTS, self.kernel_accepts),
            (header::counter::NOTIFICATIONS, self.notifications),
            (header::counter::SLEEPS, self.sleeps),
            (header::counter::RESETS, self.resets),
        ] {
            put(header::COUNTERS + 8 * number, &value.to_le_bytes());
        }
        bytes
    }
}

impl End {
    fn read(record: &[u8]) -> Option<Self> {
        if u32_at(record, record::STATE)? != 1 {
            return None;
        }
        Some(Self {
            holders: u32_at(record, record::HOLDERS)?,
            mode: u32_at(record, record::MODE)?,
            local: address_at(record, record::LOCAL)?,
            peer: address_at(record, record::PEER)?,
            sent: u64_at(record, record::SENT)?,
            received: u64_at(record, record::RECEIVED)?,
        })
    }
}

/// The bytes of an address in a record.
#[must_use]
pub fn encode_address(address: &SocketAddr) -> [u8; record::ADDRESS_SIZE] {
    Address::from(*address).encode()
}

/// The address in a record; invalid bytes give the unspecified address.
#[must_use]
pub fn decode_address(bytes: &[u8; record::ADDRESS_SIZE]) -> SocketAddr {
    Address::decode(bytes).map_or_else(|| ([0, 0, 0, 0], 0).into(), Into::into)
}

fn address_at(bytes: &[u8], offset: usize) -> Option<SocketAddr> {
    Some(decode_address(bytes.get(offset..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
        bytes[offset..offset + value.len()].copy_from_slice(value);
    }

    fn golden() -> Vec<u8> {
        let mut bytes = vec![0; HEADER_SIZE + 3 * RECORD_SIZE];
        put(
            &mut bytes,
            0,
            b"MRsocket\x01\0\0\0\0\x02\0\0\x03\0\0\0\x2a\0\0\0",
        );
        for counter in 0..9 {
            bytes[64 + 8 * counter] = 10 + u8::try_from(counter).expect("nine are few");
        }
        for (number, sent) in [(0, 100), (2, 50)] {
            let record = &mut bytes[HEADER_SIZE + number * RECORD_SIZE..];
            put(record, 0, &[1, 0, 0, 0, 2, 0, 0, 0]);
            put(record, 32, b"\x02\0\x90\x1f\0\0\0\0\x7f\0\0\x01");
            put(
                record,
                56,
                b"\x0a\0\x50\0\x07\0\0\0\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x01",
            );
            put(record, 280, &[sent, 0, 0, 0, 0, 0, 0, 0]);
            put(record, 424, &[7, 0, 0, 0, 0, 0, 0, 0]);
        }
        bytes
    }

    #[test]
    fn golden_bytes_are_read() {
        let bytes = golden();
        assert_eq!(used(&bytes), Some(bytes.len()));
        let totals = Totals::read(&bytes).expect("it is a slab");
        let expected = Totals {
            sent: 160,
            received: 25,
            connects: 12,
            accepts: 13,
            kernel_connects: 14,
            kernel_accepts: 15,
            notifications: 16,
            sleeps: 17,
            resets: 18,
            live: 2,
        };
        assert_eq!(totals, expected);
        let end = ends(&bytes).next().expect("the first is in use");
        assert_eq!(end.local.to_string(), "127.0.0.1:8080");
        assert_eq!(end.peer.to_string(), "[fe80::1%7]:80");
        assert_eq!(end.holders, 2);
    }

    #[test]
    fn what_is_no_slab_is_refused() {
        let bytes = golden();
        for length in 0..HEADER_SIZE {
            let _ = Totals::read(&bytes[..length]);
        }
        for byte in [0, 8, 12] {
            let mut other = bytes.clone();
            other[byte] ^= 0xff;
            assert_eq!(Totals::read(&other), None);
        }
        assert_eq!(Totals::read(&[]), None);
    }

    #[test]
    fn addresses_come_back() {
        for text in ["1.2.3.4:5", "[::1]:65535", "[fe80::2%9]:1"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(decode_address(&encode_address(&address)), address);
        }
    }
}
