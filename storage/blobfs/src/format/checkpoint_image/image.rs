//! Encoder of metadata into checkpoint pages.

use super::{
    DIRECTORY, ENTRY, FILE, MAGIC, MORE_EXTENTS, PAGE_BYTES, PAGE_HEADER_BYTES, VOLUME,
    combined_checksum,
};
use crate::format::extent::{EXTENT_BYTES, Extent, Extents};
use crate::format::ids::InodeId;
use crate::format::inode::InodeRecord;
use crate::format::key::VolumeKey;
use crate::format::metadata::{Metadata, units_in};
use crate::format::reader::{push_extents, push_name};

/// An encoded checkpoint.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Image {
    bytes: Vec<u8>,
    checksum: u32,
}

impl Image {
    /// Image of `metadata` as of transaction `sequence`. On one volume, images of different contents must have
    /// different sequences.
    pub(crate) fn new(metadata: &Metadata, key: VolumeKey, sequence: u64) -> Self {
        let mut pages = Pages::default();
        let mut record = Vec::with_capacity(PAGE_BYTES);
        let inodes = u64::try_from(metadata.len()).expect("a usize has at most 64 bits");
        start(&mut record, VOLUME, &[metadata.next_id().0, inodes]);
        pages.push(&record);
        for (parent, directory) in metadata.inodes() {
            for (name, id) in directory.entries().into_iter().flatten() {
                start(&mut record, ENTRY, &[parent.0, id.0]);
                push_name(&mut record, name);
                pages.push(&record);
            }
        }
        for (id, inode) in metadata.inodes() {
            if let Some(parent) = inode.parent() {
                start(
                    &mut record,
                    DIRECTORY,
                    &[id.0, parent.0, inode.modified().0],
                );
                pages.push(&record);
            } else {
                pages.push_file(&mut record, id, inode);
            }
        }
        pages.finish(key, sequence)
    }

    /// Bytes of all pages.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Checksum for the superblock.
    pub(crate) const fn checksum(&self) -> u32 {
        self.checksum
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image")
            .field("bytes", &self.bytes.len())
            .field("checksum", &self.checksum)
            .finish()
    }
}

fn start(record: &mut Vec<u8>, tag: u8, numbers: &[u64]) {
    record.clear();
    record.push(tag);
    record.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

/// Pages without their headers. The last one may be shorter than a page.
#[derive(Default)]
struct Pages {
    bytes: Vec<u8>,
    /// Bytes of records in each page but the last.
    used: Vec<usize>,
}

impl Pages {
    /// Bytes in the last page, its header among them; 0 if there is no page.
    fn filled(&self) -> usize {
        self.bytes.len() - self.used.len() * PAGE_BYTES
    }

    fn room(&self) -> usize {
        match self.filled() {
            0 => 0,
            filled => PAGE_BYTES - filled,
        }
    }

    fn start_page(&mut self) {
        if self.filled() > 0 {
            self.used.push(self.filled() - PAGE_HEADER_BYTES);
            self.bytes.resize(self.used.len() * PAGE_BYTES, 0);
        }
        self.bytes.resize(self.bytes.len() + PAGE_HEADER_BYTES, 0);
    }

    fn push(&mut self, record: &[u8]) {
        if self.room() < record.len() {
            self.start_page();
        }
        self.bytes.extend_from_slice(record);
    }

    /// Adds a file, and records of further extents that do not fit in the page.
    fn push_file(&mut self, record: &mut Vec<u8>, id: InodeId, file: &InodeRecord) {
        start(record, FILE, &[id.0]);
        record.extend_from_slice(&file.links().to_le_bytes());
        record.extend_from_slice(&file.size().to_le_bytes());
        record.extend_from_slice(&file.modified().0.to_le_bytes());
        let mut rest = self.push_extents(record, file.extents());
        let mut before = 0;
        let mut last = file.extents();
        while !rest.is_empty() {
            let written = &last[..last.len() - rest.len()];
            before += units_in(written.iter().copied());
            last = rest;
            start(record, MORE_EXTENTS, &[id.0, before]);
            rest = self.push_extents(record, rest);
        }
    }

    /// Ends a record with as many extents as fit in the page, at least one if there is one; returns the rest.
    fn push_extents<'e>(&mut self, record: &mut Vec<u8>, extents: &'e [Extent]) -> &'e [Extent] {
        let bytes = record.len() + 4;
        let least = bytes + extents.len().min(1) * EXTENT_BYTES;
        if self.room() < least {
            self.start_page();
        }
        let room = (self.room() - bytes) / EXTENT_BYTES;
        let (here, rest) = extents.split_at(room.min(extents.len()));
        let count = u32::try_from(here.len()).expect("they fit into a page");
        record.extend_from_slice(&count.to_le_bytes());
        push_extents(record, Extents::Listed(here));
        self.push(record);
        rest
    }

    fn finish(mut self, key: VolumeKey, sequence: u64) -> Image {
        self.used.push(self.filled() - PAGE_HEADER_BYTES);
        self.bytes.resize(self.used.len() * PAGE_BYTES, 0);
        let count = u32::try_from(self.used.len()).expect("a volume has at most 2^32 units");
        let pages = self.bytes.chunks_exact_mut(PAGE_BYTES);
        let checksums = (0_u32..)
            .zip(pages)
            .zip(&self.used)
            .map(|((number, page), used)| {
                let used = u32::try_from(*used).expect("a page is small");
                page[..4].copy_from_slice(&MAGIC);
                page[8..16].copy_from_slice(&sequence.to_le_bytes());
                page[16..20].copy_from_slice(&number.to_le_bytes());
                page[20..24].copy_from_slice(&count.to_le_bytes());
                page[24..28].copy_from_slice(&used.to_le_bytes());
                let checksum = key.checksum(&[&page[8..]]);
                page[4..8].copy_from_slice(&checksum.to_le_bytes());
                checksum
            });
        let checksum = combined_checksum(checksums);
        Image {
            bytes: self.bytes,
            checksum,
        }
    }
}
