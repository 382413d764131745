//! The slab of a process: what its ends of connections have in common over `fork` and `exec`, and what it counts.
//!
//! # Format
//! A file in memory of [`SIZE`] bytes, sparse, sealed against every change of size. Little-endian.
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
//!  384  lock u32 | 392 the receiver's cursor, 8 words u64: position, taken, given, gave, total, ..
//! ```
//! An address is laid out as [`Address`] says.
//!
//! Counters of the header hold what ended connections have moved; those in use hold their own. Peers never see a
//! slab; the monitor reads it, at any time and without a lock: a sum is exact when nothing moves.
//!
//! # Recovery, durability
//! None: a slab lives as long as somebody has it open.

use std::net::SocketAddr;

use crate::address::{self, Address};

/// The first eight bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"MRsocket");
/// The layout's number.
pub const VERSION: u32 = 1;
/// Bytes of a slab.
pub const SIZE: usize = 16 << 20;
/// Bytes before the first record.
pub const HEADER_SIZE: usize = 4096;
/// Bytes of a record.
pub const RECORD_SIZE: usize = 512;
/// How many records a slab has.
pub const RECORDS: usize = (SIZE - HEADER_SIZE) / RECORD_SIZE;

/// Offsets in the header.
pub mod header {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// [`super::VERSION`].
    pub const VERSION: usize = 8;
    /// [`super::RECORD_SIZE`].
    pub const RECORD_SIZE: usize = 12;
    /// How many records were ever in use: behind them there are none to look at.
    pub const RECORDS: usize = 16;
    /// The process that made the slab.
    pub const PROCESS: usize = 20;
    /// The first counter.
    pub const COUNTERS: usize = 64;

    /// Numbers of counters, each a `u64` from [`COUNTERS`] on.
    pub mod counter {
        /// Bytes sent by connections that ended.
        pub const SENT: usize = 0;
        /// Bytes received by connections that ended.
        pub const RECEIVED: usize = 1;
        /// Connections made.
        pub const CONNECTS: usize = 2;
        /// Connections accepted.
        pub const ACCEPTS: usize = 3;
        /// Connections that the kernel's TCP made, though a monitor was asked.
        pub const KERNEL_CONNECTS: usize = 4;
        /// Connections that a listener took from the kernel.
        pub const KERNEL_ACCEPTS: usize = 5;
        /// Bells rung.
        pub const BELLS: usize = 6;
        /// Times that a thread went to sleep.
        pub const SLEEPS: usize = 7;
        /// Connections that ended in a reset.
        pub const RESETS: usize = 8;
        /// Connections whose bytes began to go from their records to the sums here.
        pub const ENDING: usize = 9;
        /// Of these how many have gone.
        pub const ENDED: usize = 10;
        /// How many there are.
        pub const COUNT: usize = 11;
    }

    /// Where the counters end.
    pub const COUNTERS_END: usize = COUNTERS + 8 * counter::COUNT;
}

/// Offsets in a record.
pub mod record {
    /// 1: in use.
    pub const STATE: usize = 0;
    /// How many processes have it.
    pub const HOLDERS: usize = 4;
    /// What was shut down.
    pub const FLAGS: usize = 8;
    /// The error that waits to be told.
    pub const ERROR: usize = 12;
    /// Direct, or through the proxy.
    pub const MODE: usize = 16;
    /// 0 connected, 1 accepted.
    pub const SIDE: usize = 20;
    /// This end's address.
    pub const LOCAL: usize = 32;
    /// The other end's.
    pub const PEER: usize = 56;
    /// Options, laid out by the process.
    pub const OPTIONS: usize = 128;
    /// Tokens of holders, of the process's own.
    pub const TOKENS: usize = 88;
    /// The sender's lock.
    pub const SEND: usize = 256;
    /// Bytes sent.
    pub const SENT: usize = 280;
    /// The receiver's lock.
    pub const RECEIVE: usize = 384;
    /// Bytes received.
    pub const RECEIVED: usize = 424;
    /// Bytes from a lock to its cursor.
    pub const CURSOR: usize = 8;
    /// Bytes of an address.
    pub const ADDRESS_SIZE: usize = super::address::SIZE;
}

/// What a process has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// Connections made.
    pub connects: u64,
    /// Connections accepted.
    pub accepts: u64,
    /// Connections that the kernel's TCP made, though a monitor was asked.
    pub kernel_connects: u64,
    /// Connections that a listener took from the kernel.
    pub kernel_accepts: u64,
    /// Bells rung.
    pub bells: u64,
    /// Times that a thread went to sleep.
    pub sleeps: u64,
    /// Connections that ended in a reset.
    pub resets: u64,
    /// Connections there are.
    pub live: u64,
}

/// One end of a connection, as a snapshot shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Processes that have it.
    pub holders: u32,
    /// Direct, or through the proxy.
    pub mode: u32,
    /// This end's address.
    pub local: SocketAddr,
    /// The other end's.
    pub peer: SocketAddr,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
}

/// How many bytes from the start on hold all there is, by the first [`HEADER_SIZE`] of them. `None` if it is no
/// slab.
#[must_use]
pub fn used(snapshot: &[u8]) -> Option<usize> {
    let known = u64_at(snapshot, header::MAGIC)? == MAGIC
        && u32_at(snapshot, header::VERSION)? == VERSION
        && u32_at(snapshot, header::RECORD_SIZE)? as usize == RECORD_SIZE;
    let records = u32_at(snapshot, header::RECORDS)? as usize;
    known.then_some(HEADER_SIZE + records.min(RECORDS) * RECORD_SIZE)
}

/// Connections whose bytes began to go from records to sums, and how many of them have gone. What was read between two
/// snapshots is no more and no less than all if the second says that no more began than the first says have gone.
/// `None` if it is no slab.
#[must_use]
pub fn endings(snapshot: &[u8]) -> Option<(u64, u64)> {
    used(snapshot)?;
    let counter = |number: usize| u64_at(snapshot, header::COUNTERS + 8 * number);
    let began = counter(header::counter::ENDING)?;
    Some((began, counter(header::counter::ENDED)?))
}

/// The connections in a snapshot.
pub fn ends(snapshot: &[u8]) -> impl Iterator<Item = End> + '_ {
    let records = snapshot.get(HEADER_SIZE..).unwrap_or_default();
    records.chunks_exact(RECORD_SIZE).filter_map(End::read)
}

impl Totals {
    /// Reads what a snapshot counts: the whole slab, or as much as [`used`] says. `None` if it is no slab.
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
            bells: counter(header::counter::BELLS)?,
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
    /// The first bytes of a slab without records that has counted this.
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
            (header::counter::BELLS, self.bells),
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

/// An address as a record holds it.
#[must_use]
pub fn encode_address(address: &SocketAddr) -> [u8; record::ADDRESS_SIZE] {
    Address::from(*address).encode()
}

/// The address that a record holds; what is none is the unspecified address.
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
            bells: 16,
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
