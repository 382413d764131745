//! Superblock: root of the on-disk format.
//!
//! # Format
//! One unit, in two copies. Behind the extents, which follow each other, all is zero.
//!
//! ```text
//!   0  magic            "MRBLOBFS"
//!   8  checksum u32     CRC32C of all that follows, to the end of the unit
//!  12  version u32      1
//!  16  features u64     a reader that does not know a bit must not use the volume; bit 0: blocks have checksums
//!  24  hints u64        a reader ignores bits that it does not know
//!  32  uuid             16 bytes
//!  48  label            64 bytes of UTF-8, filled up with zeros
//! 112  created u64      milliseconds since 1970
//! 120  generation u64   the copy with the higher generation is valid
//! 128  block bytes u32, clean u32 (1 after an orderly end)
//! 136  blocks u64
//! 144  journal units u64
//! 152  group units u32, zero u32
//! 160  journal tail     block u64 (from the journal's start), transaction u64 (the one expected there)
//! 176  checkpoint       transaction u64 (the last that it contains), bytes u64,
//! 192                   checksum u32 (see the module `checkpoint_image`), zero u32,
//! 200                   extents of the first copy u32, of the second u32
//! 208  zeros
//! 256  extents          start u32, units u32 each; those of the first copy, then those of the second
//! ```
//!
//! # Recovery
//! A copy that does not match its checksum, or is older than the other, is written again from the other.

use super::extent::{EXTENT_BYTES, Extent};
use super::ids::Timestamp;
use super::key::VolumeKey;
use super::layout::{Layout, UNIT_BYTES_MIN};
use super::metadata::units_in;
use super::reader::Reader;
use crate::error::{Error, ErrorKind, Result};

const MAGIC: [u8; 8] = *b"MRBLOBFS";
const VERSION: u32 = 1;
/// Blocks of files end in a checksum, see the module `data_layout`.
const DATA_CHECKSUMS: u64 = 1;
const LABEL_BYTES: usize = 64;
/// Highest generation and transaction number, so that increments never overflow.
const NUMBER_MAX: u64 = 1 << 62;
/// First byte that the checksum covers.
const CHECKED_FROM: usize = 12;
/// End of the counts of extents.
const COUNTS_UNTIL: usize = 208;
const EXTENTS_FROM: usize = 256;

/// Most extents of a copy of the checkpoint, on any volume.
pub(crate) const CHECKPOINT_EXTENTS_MAX: usize =
    (UNIT_BYTES_MIN as usize - EXTENTS_FROM) / EXTENT_BYTES / 2;

/// Location of a checkpoint on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointLocation {
    /// Number of the last transaction that it contains.
    pub(crate) sequence: u64,
    /// Bytes of a copy: whole pages.
    pub(crate) bytes: u64,
    /// Checksum of the pages' checksums: `checkpoint_image::Image::checksum`.
    pub(crate) checksum: u32,
    /// Extents of the two copies, each as many units as its bytes need.
    pub(crate) copies: [Vec<Extent>; 2],
}

/// Position at which a replay of the journal begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalTail {
    /// Block, counted from the first of the journal.
    pub(crate) block: u64,
    /// The number of the first transaction expected there.
    pub(crate) sequence: u64,
}

/// Contents of a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// Unique identifier of the volume.
    pub(crate) uuid: [u8; 16],
    /// Label for display; at most 64 bytes and none of them zero.
    pub(crate) label: String,
    /// Time of the formatting.
    pub(crate) created: Timestamp,
    /// Sizes and positions on the device.
    pub(crate) layout: Layout,
    /// Generation, incremented with each write of the superblock.
    pub(crate) generation: u64,
    /// The last checkpoint.
    pub(crate) checkpoint: CheckpointLocation,
    /// Position at which the journal continues after it.
    pub(crate) journal_tail: JournalTail,
    /// Whether the volume was unmounted cleanly, with an empty journal.
    pub(crate) clean: bool,
}

impl Superblock {
    /// Seed of the volume's checksums.
    pub(crate) fn key(&self) -> VolumeKey {
        VolumeKey::new(&self.uuid)
    }

    /// Encodes the superblock as a whole unit.
    ///
    /// # Errors
    /// Those of [`Superblock::decode`]: an invalid superblock is not encoded.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        self.check()?;
        let mut label = [0; LABEL_BYTES];
        label[..self.label.len()].copy_from_slice(self.label.as_bytes());
        let mut bytes = Vec::with_capacity(self.layout.unit_bytes() as usize);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        let features = if self.layout.data_checksums() {
            DATA_CHECKSUMS
        } else {
            0
        };
        push_all(&mut bytes, &[features, 0]);
        bytes.extend_from_slice(&self.uuid);
        bytes.extend_from_slice(&label);
        push_all(&mut bytes, &[self.created.0, self.generation]);
        bytes.extend_from_slice(&self.layout.block_bytes().to_le_bytes());
        bytes.extend_from_slice(&u32::from(self.clean).to_le_bytes());
        let group_units = u64::from(self.layout.group_units());
        let layout = [
            self.layout.blocks(),
            self.layout.journal_units(),
            group_units,
        ];
        push_all(&mut bytes, &layout);
        push_all(
            &mut bytes,
            &[self.journal_tail.block, self.journal_tail.sequence],
        );
        let mapping = &self.checkpoint;
        let checksum = u64::from(mapping.checksum);
        push_all(&mut bytes, &[mapping.sequence, mapping.bytes, checksum]);
        for copy in &mapping.copies {
            let count = u32::try_from(copy.len()).expect("check() has bounded it");
            bytes.extend_from_slice(&count.to_le_bytes());
        }
        bytes.resize(EXTENTS_FROM, 0);
        for extent in mapping.copies.iter().flatten() {
            bytes.extend_from_slice(&extent.to_bytes());
        }
        bytes.resize(self.layout.unit_bytes() as usize, 0);
        let checksum = millrace_checksum::crc32c(&bytes[CHECKED_FROM..]);
        bytes[8..CHECKED_FROM].copy_from_slice(&checksum.to_le_bytes());
        Ok(bytes)
    }

    /// Decodes the superblock from a unit.
    ///
    /// # Errors
    /// [`ErrorKind::NotAVolume`] without the magic number, [`ErrorKind::NewerFormat`] for unknown versions or features,
    /// [`ErrorKind::Corruption`] if the checksum or a field is invalid.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        if reader.array() != Some(MAGIC) {
            return Err(Error::new(
                ErrorKind::NotAVolume,
                "the device holds no superblock here",
            ));
        }
        let checksum = reader.u32().ok_or_else(|| corrupt("is too short"))?;
        if checksum != millrace_checksum::crc32c(&bytes[CHECKED_FROM..]) {
            return Err(corrupt("does not match its checksum"));
        }
        let version = reader.u32().ok_or_else(|| corrupt("is too short"))?;
        let features = reader.u64().ok_or_else(|| corrupt("is too short"))?;
        if version > VERSION || features & !DATA_CHECKSUMS != 0 {
            return Err(Error::new(
                ErrorKind::NewerFormat,
                format!("the volume has version {version} and features {features:#x}"),
            ));
        }
        if version == 0 {
            return Err(corrupt("has no version"));
        }
        let mut superblock = Self::decode_fields(&mut reader)?;
        let data_checksums = features & DATA_CHECKSUMS != 0;
        superblock.layout = superblock.layout.with_data_checksums(data_checksums);
        if superblock.layout.unit_bytes() as usize != bytes.len() {
            return Err(corrupt("is of a volume with another unit size"));
        }
        superblock.check()?;
        Ok(superblock)
    }

    /// Decodes the fields after the features.
    fn decode_fields(reader: &mut Reader<'_>) -> Result<Self> {
        let short = || corrupt("is cut short");
        let _hints = reader.u64().ok_or_else(short)?;
        let uuid = reader.array().ok_or_else(short)?;
        let label: [u8; LABEL_BYTES] = reader.array().ok_or_else(short)?;
        let len = label.iter().position(|byte| *byte == 0);
        let label = std::str::from_utf8(&label[..len.unwrap_or(LABEL_BYTES)])
            .map_err(|error| corrupt("has a label that is not UTF-8").caused_by(error))?;
        let created = reader.timestamp().ok_or_else(short)?;
        let generation = reader.u64().ok_or_else(short)?;
        let block_bytes = reader.u32().ok_or_else(short)?;
        let clean = reader.u32().ok_or_else(short)? != 0;
        let blocks = reader.u64().ok_or_else(short)?;
        let journal_units = reader.u64().ok_or_else(short)?;
        let group_units = reader.u32().ok_or_else(short)?;
        let layout = Layout::new(block_bytes, blocks, journal_units, group_units)
            .map_err(|error| corrupt("describes an invalid layout").caused_by(error))?;
        let _zero = reader.u32().ok_or_else(short)?;
        let journal_tail = JournalTail {
            block: reader.u64().ok_or_else(short)?,
            sequence: reader.u64().ok_or_else(short)?,
        };
        let checkpoint = CheckpointLocation {
            sequence: reader.u64().ok_or_else(short)?,
            bytes: reader.u64().ok_or_else(short)?,
            checksum: reader.u32().ok_or_else(short)?,
            copies: Self::decode_copies(reader).ok_or_else(short)?,
        };
        Ok(Self {
            uuid,
            label: label.to_owned(),
            created,
            layout,
            generation,
            checkpoint,
            journal_tail,
            clean,
        })
    }

    fn decode_copies(reader: &mut Reader<'_>) -> Option<[Vec<Extent>; 2]> {
        let _zero = reader.u32()?;
        let counts = [
            usize::try_from(reader.u32()?).ok()?,
            usize::try_from(reader.u32()?).ok()?,
        ];
        reader.bytes(EXTENTS_FROM - COUNTS_UNTIL)?;
        let first = reader.extents_of(counts[0])?.iter().collect();
        let second = reader.extents_of(counts[1])?.iter().collect();
        Some([first, second])
    }

    /// Checks that the fields are consistent.
    fn check(&self) -> Result<()> {
        let mapping = &self.checkpoint;
        if self.label.len() > LABEL_BYTES || self.label.contains('\0') {
            return Err(Error::new(
                ErrorKind::Invalid,
                "a label has at most 64 bytes, none of them zero",
            ));
        }
        if self.journal_tail.block >= self.layout.journal_blocks() {
            return Err(corrupt("names a block outside of the journal"));
        }
        let numbers = [
            self.generation,
            mapping.sequence,
            self.journal_tail.sequence,
        ];
        if numbers.iter().any(|number| *number > NUMBER_MAX) {
            return Err(corrupt("has a number above 2^62"));
        }
        if self.journal_tail.sequence <= mapping.sequence {
            return Err(corrupt(
                "expects a transaction that its checkpoint contains",
            ));
        }
        let bytes_min = super::checkpoint_image::PAGE_BYTES as u64;
        if mapping.bytes < bytes_min || mapping.bytes % bytes_min != 0 {
            return Err(corrupt("names a checkpoint that is not whole pages"));
        }
        let mut all: Vec<Extent> = mapping.copies.concat();
        for copy in &mapping.copies {
            if copy.len() > CHECKPOINT_EXTENTS_MAX {
                return Err(corrupt("names a checkpoint of too many extents"));
            }
            if units_in(copy.iter().copied()) != self.layout.units_of(mapping.bytes) {
                return Err(corrupt(
                    "names a checkpoint of another length than its extents",
                ));
            }
        }
        all.sort_unstable();
        let apart = all.windows(2).all(|pair| pair[0].end() <= pair[1].start);
        if !apart || !all.iter().all(|extent| self.layout.holds(*extent)) {
            return Err(corrupt("names a checkpoint outside of the groups"));
        }
        Ok(())
    }
}

fn push_all(bytes: &mut Vec<u8>, numbers: &[u64]) {
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

fn corrupt(what: &str) -> Error {
    Error::new(ErrorKind::Corruption, format!("a superblock {what}"))
}

/// The valid superblock of a volume.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// Contents of the newer copy.
    pub(crate) superblock: Superblock,
    /// Whether the first and the second copy are damaged or old, and must be rewritten.
    pub(crate) stale: [bool; 2],
}

/// Chooses the newer valid copy.
///
/// # Errors
/// [`ErrorKind::NewerFormat`] if a copy has it; [`ErrorKind::Corruption`] if the copies are of different volumes, or
/// one is damaged and the other has no magic number; the error of the first copy otherwise.
pub(crate) fn choose(first: Result<Superblock>, second: Result<Superblock>) -> Result<Chosen> {
    let chosen = |superblock, stale| Ok(Chosen { superblock, stale });
    match (first, second) {
        (Ok(first), Ok(second)) if first.uuid != second.uuid => Err(Error::new(
            ErrorKind::Corruption,
            "the two superblocks are of different volumes",
        )),
        (Ok(first), Ok(second)) if first.generation < second.generation => {
            chosen(second, [true, false])
        }
        (Ok(first), Ok(second)) => {
            let stale = first != second;
            chosen(first, [false, stale])
        }
        (Ok(_), Err(error)) | (Err(error), Ok(_)) if error.kind() == ErrorKind::NewerFormat => {
            Err(error)
        }
        (Ok(first), Err(_)) => chosen(first, [false, true]),
        (Err(_), Ok(second)) => chosen(second, [true, false]),
        (Err(first), Err(second)) => {
            let rank = |error: &Error| match error.kind() {
                ErrorKind::NewerFormat => 0,
                ErrorKind::Corruption => 1,
                ErrorKind::NotAVolume => 3,
                _ => 2,
            };
            Err(if rank(&second) < rank(&first) {
                second
            } else {
                first
            })
        }
    }
}
