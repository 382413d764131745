//! Decoder of checkpoint pages into metadata, tolerant of missing pages.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{
    DIRECTORY, ENTRY, FILE, MAGIC, MORE_EXTENTS, PAGE_BYTES, PAGE_HEADER_BYTES, VOLUME,
    combined_checksum,
};
use crate::format::damage::Damage;
use crate::format::extent::Extents;
use crate::format::ids::{InodeId, Timestamp};
use crate::format::key::VolumeKey;
use crate::format::metadata::{Metadata, Salvage};
use crate::format::reader::Reader;
use crate::format::superblock::Superblock;

/// A page is damaged, or belongs to another checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a page of the checkpoint is damaged")]
pub(crate) struct BadPage;

/// Collector of pages. Its memory grows with the contents of the pages.
#[derive(Debug)]
pub(crate) struct Decoder {
    key: VolumeKey,
    sequence: u64,
    count: u32,
    checksum: u32,
    /// Checksums of the pages received.
    pages: BTreeMap<u32, u32>,
    /// Next inode number and number of inodes.
    volume: Option<(u64, u64)>,
    salvage: Salvage,
}

enum Record<'a> {
    Volume {
        next_id: u64,
        inodes: u64,
    },
    File {
        id: InodeId,
        links: u32,
        size: u64,
        modified: Timestamp,
        extents: Extents<'a>,
    },
    MoreExtents {
        id: InodeId,
        before: u64,
        extents: Extents<'a>,
    },
    Directory {
        id: InodeId,
        parent: InodeId,
        modified: Timestamp,
    },
    Entry {
        parent: InodeId,
        id: InodeId,
        name: &'a str,
    },
}

impl Decoder {
    /// A decoder for the checkpoint that `superblock` names.
    pub(crate) fn new(superblock: &Superblock) -> Self {
        let mapping = &superblock.checkpoint;
        Self {
            key: superblock.key(),
            sequence: mapping.sequence,
            count: u32::try_from(mapping.bytes / PAGE_BYTES as u64).unwrap_or(u32::MAX),
            checksum: mapping.checksum,
            pages: BTreeMap::new(),
            volume: None,
            salvage: Salvage::new(superblock.layout),
        }
    }

    /// Number of pages; pages are numbered from 0.
    pub(crate) const fn page_count(&self) -> u32 {
        self.count
    }

    /// Whether `bytes` are page `number` of this checkpoint.
    pub(crate) fn check(&self, number: u32, bytes: &[u8]) -> Result<(), BadPage> {
        self.records(number, bytes).map(|_| ())
    }

    /// The checksum and the records of a page.
    fn records<'a>(&self, number: u32, bytes: &'a [u8]) -> Result<(u32, &'a [u8]), BadPage> {
        let header = || {
            let mut reader = Reader::new(bytes);
            let magic = reader.array()?;
            let checksum = reader.u32()?;
            let named = (reader.u64()?, reader.u32()?, reader.u32()?);
            let used = usize::try_from(reader.u32()?).ok()?;
            let records = bytes[PAGE_HEADER_BYTES..].get(..used)?;
            Some((magic, checksum, named, records))
        };
        if bytes.len() != PAGE_BYTES || number >= self.count {
            return Err(BadPage);
        }
        let (magic, checksum, named, records) = header().ok_or(BadPage)?;
        let good = magic == MAGIC
            && named == (self.sequence, number, self.count)
            && checksum == self.key.checksum(&[&bytes[8..]]);
        if good {
            Ok((checksum, records))
        } else {
            Err(BadPage)
        }
    }

    /// Adds a page of either copy. Pages may come in any order; a repeated page is ignored.
    ///
    /// # Errors
    /// [`BadPage`]: try the page of the other copy. A page that is never added is lost.
    pub(crate) fn page(&mut self, number: u32, bytes: &[u8]) -> Result<(), BadPage> {
        let (checksum, records) = self.records(number, bytes)?;
        if self.pages.insert(number, checksum).is_some() {
            return Ok(());
        }
        let mut reader = Reader::new(records);
        while !reader.is_empty() {
            let Some(record) = Record::decode(&mut reader) else {
                self.salvage.report(Damage::Records(number));
                break;
            };
            self.take(&record);
        }
        Ok(())
    }

    fn take(&mut self, record: &Record<'_>) {
        match *record {
            Record::Volume { next_id, inodes } => self.volume = Some((next_id, inodes)),
            Record::File {
                id,
                links,
                size,
                modified,
                extents,
            } => self.salvage.file(id, links, size, modified, extents),
            Record::MoreExtents {
                id,
                before,
                extents,
            } => self.salvage.more_extents(id, before, extents),
            Record::Directory {
                id,
                parent,
                modified,
            } => self.salvage.directory(id, parent, modified),
            Record::Entry { parent, id, name } => self.salvage.entry(parent, id, name),
        }
    }

    /// Whether a page was added.
    pub(crate) fn has(&self, number: u32) -> bool {
        self.pages.contains_key(&number)
    }

    /// Runs of pages that were not added.
    fn missing(&self) -> Vec<Range<u32>> {
        let mut missing = Vec::new();
        let mut next = 0;
        for number in self.pages.keys().copied().chain([self.count]) {
            if next < number {
                missing.push(next..number);
            }
            next = number.saturating_add(1);
        }
        missing
    }

    /// The metadata, and the damage. Without damage it is the metadata written. With damage all invariants hold but
    /// one: two files may share units ([`Metadata::separate_files`]).
    pub(crate) fn finish(mut self) -> (Metadata, Vec<Damage>) {
        let missing = self.missing();
        let complete = missing.is_empty();
        for pages in missing {
            self.salvage.report(Damage::Pages(pages));
        }
        if complete && combined_checksum(self.pages.values().copied()) != self.checksum {
            self.salvage.report(Damage::Mixed);
        }
        let found = self.salvage.inodes();
        match self.volume {
            Some((_, expected)) if expected != found => {
                self.salvage.report(Damage::Count { expected, found });
            }
            None if complete => self.salvage.report(Damage::Records(0)),
            _ => {}
        }
        self.salvage.finish(
            self.volume
                .map_or(InodeId::FIRST, |(next_id, _)| InodeId(next_id)),
        )
    }
}

impl<'a> Record<'a> {
    fn decode(reader: &mut Reader<'a>) -> Option<Self> {
        let record = match reader.u8()? {
            VOLUME => Self::Volume {
                next_id: reader.u64()?,
                inodes: reader.u64()?,
            },
            FILE => Self::File {
                id: reader.inode_id()?,
                links: reader.u32()?,
                size: reader.u64()?,
                modified: reader.timestamp()?,
                extents: reader.extents()?,
            },
            MORE_EXTENTS => Self::MoreExtents {
                id: reader.inode_id()?,
                before: reader.u64()?,
                extents: reader.extents()?,
            },
            DIRECTORY => Self::Directory {
                id: reader.inode_id()?,
                parent: reader.inode_id()?,
                modified: reader.timestamp()?,
            },
            ENTRY => Self::Entry {
                parent: reader.inode_id()?,
                id: reader.inode_id()?,
                name: reader.name()?,
            },
            _ => return None,
        };
        Some(record)
    }
}
