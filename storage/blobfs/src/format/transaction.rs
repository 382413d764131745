//! What the journal is made of.
//!
//! # Format
//! A transaction is whole logical blocks. Behind the payload, which is
//! [operations](super::operation), the last block is filled up with zeros.
//!
//! ```text
//!  0  magic "MRTX"
//!  4  checksum of the header u32    CRC32C of the uuid and bytes 8 .. 32
//!  8  checksum of the rest u32      CRC32C of the uuid, position, sequence, and all bytes from 32 on
//! 12  payload bytes u32
//! 16  sequence u64                  that of the transaction before, and one
//! 24  position u64                  the block of the journal in which this header is
//! 32  payload
//! ```
//!
//! A block of an earlier round of the journal has a smaller number, one of another volume another uuid, and a
//! copy of a block that was written to a file, and with the file's data came into the journal, is at another
//! position.
//!
//! # Recovery
//! Transactions are valid up to the first that is not. Since each was written when the one before was on the
//! medium, the header of a later one ([`probe`]) proves that the missing one was damaged later, not torn.

use super::key::VolumeKey;
use super::reader::Reader;

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 32;

const MAGIC: [u8; 4] = *b"MRTX";

/// The header of a transaction, whose checksum was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    payload_checksum: u32,
    payload_bytes: u32,
    sequence: u64,
    position: u64,
}

/// Fills in the header of a transaction: `buffer` is whole blocks, with the payload from [`HEADER_BYTES`] on
/// and zeros behind it. `position` is the block of the journal that it is going to be written to.
///
/// # Panics
/// If the payload is longer than the buffer, or than 2^32 - 1 bytes.
pub(crate) fn write_header(
    buffer: &mut [u8],
    payload_bytes: usize,
    key: VolumeKey,
    position: u64,
    sequence: u64,
) {
    assert!(
        payload_bytes <= buffer.len() - HEADER_BYTES,
        "the payload lies in the buffer"
    );
    let (header, rest) = buffer.split_at_mut(HEADER_BYTES);
    let payload_bytes = u32::try_from(payload_bytes).expect("a journal has at most 1 GiB");
    header[12..16].copy_from_slice(&payload_bytes.to_le_bytes());
    header[16..24].copy_from_slice(&sequence.to_le_bytes());
    header[24..].copy_from_slice(&position.to_le_bytes());
    let checksum = rest_checksum(rest, key, position, sequence);
    header[8..12].copy_from_slice(&checksum.to_le_bytes());
    header[..4].copy_from_slice(&MAGIC);
    let checksum = key.checksum(&[&header[8..]]);
    header[4..8].copy_from_slice(&checksum.to_le_bytes());
}

fn rest_checksum(rest: &[u8], key: VolumeKey, position: u64, sequence: u64) -> u32 {
    key.checksum(&[&position.to_le_bytes(), &sequence.to_le_bytes(), rest])
}

impl Header {
    /// The header at the front of a block of the journal, if there is a good one of this volume that was
    /// written to this position.
    fn read(block: &[u8], key: VolumeKey, position: u64) -> Option<Self> {
        let mut reader = Reader::new(block.get(..HEADER_BYTES)?);
        let magic = reader.array()?;
        let checksum = reader.u32()?;
        let header = Self {
            payload_checksum: reader.u32()?,
            payload_bytes: reader.u32()?,
            sequence: reader.u64()?,
            position: reader.u64()?,
        };
        let good = magic == MAGIC
            && checksum == key.checksum(&[&block[8..HEADER_BYTES]])
            && header.position == position;
        good.then_some(header)
    }

    /// The header of the transaction `sequence` if it begins in this block, and says that it is no longer
    /// than `bytes_max` with header and padding.
    pub(crate) fn open(
        block: &[u8],
        key: VolumeKey,
        position: u64,
        sequence: u64,
        bytes_max: u64,
    ) -> Option<Self> {
        let header = Self::read(block, key, position)?;
        let bytes = HEADER_BYTES as u64 + u64::from(header.payload_bytes);
        (header.sequence == sequence && bytes <= bytes_max).then_some(header)
    }

    /// Blocks of the transaction.
    pub(crate) const fn blocks(&self, block_bytes: u32) -> u64 {
        (HEADER_BYTES as u64 + self.payload_bytes as u64).div_ceil(block_bytes as u64)
    }

    /// The payload, if the transaction is as it was written. `whole` are all its blocks, the header among
    /// them, and nothing behind.
    pub(crate) fn verify<'a>(&self, whole: &'a [u8], key: VolumeKey) -> Option<&'a [u8]> {
        let rest = whole.get(HEADER_BYTES..)?;
        let payload = rest.get(..usize::try_from(self.payload_bytes).ok()?)?;
        let checksum = rest_checksum(rest, key, self.position, self.sequence);
        (checksum == self.payload_checksum).then_some(payload)
    }
}

/// The number of the transaction whose header is at the front of this block, if there is a good one of this
/// volume that was written to this position.
pub(crate) fn probe(block: &[u8], key: VolumeKey, position: u64) -> Option<u64> {
    Header::read(block, key, position).map(|header| header.sequence)
}
