//! Checkpoints: whole, damaged, and made of any records.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::superblock::sample;
use super::world::{World, commands};
use super::{key, middle_layout, small_layout};
use crate::format::checkpoint_image::{Decoder, Image, PAGE_BYTES};
use crate::format::damage::Damage;
use crate::format::ids::{InodeId, Kind, Timestamp};
use crate::format::superblock::{CheckpointLocation, Superblock};
use crate::format::{Extent, Metadata, Operation, VolumeKey};

const SEQUENCE: u64 = 99;

/// A superblock that names `image`; where it is does not matter to a decoder.
pub(super) fn superblock_of(metadata: &Metadata, image: &Image) -> Superblock {
    Superblock {
        layout: *metadata.layout(),
        checkpoint: CheckpointLocation {
            sequence: SEQUENCE,
            bytes: u64::try_from(image.bytes().len()).unwrap(),
            checksum: image.checksum(),
            copies: [Vec::new(), Vec::new()],
        },
        ..sample()
    }
}

/// The metadata and the damage when the pages in `lost` are not there.
fn decode(metadata: &Metadata, image: &Image, lost: &BTreeSet<u32>) -> (Metadata, Vec<Damage>) {
    let mut decoder = Decoder::new(&superblock_of(metadata, image));
    let pages = image.bytes().chunks_exact(PAGE_BYTES);
    assert_eq!(decoder.page_count() as usize, pages.len());
    // The order does not matter.
    for (number, page) in (0..decoder.page_count()).zip(pages).rev() {
        if !lost.contains(&number) {
            decoder.check(number, page).unwrap();
            decoder.page(number, page).unwrap();
            decoder.page(number, page).unwrap();
            assert!(decoder.has(number));
        }
    }
    decoder.finish()
}

pub(super) fn decode_whole(metadata: &Metadata, key: VolumeKey) -> Metadata {
    let image = Image::new(metadata, key, SEQUENCE);
    let (decoded, damages) = decode(metadata, &image, &BTreeSet::new());
    assert_eq!(damages, []);
    decoded
}

/// Directories in each other with files in them, some with two names, one with very many extents.
pub(super) fn large(files: u64) -> Metadata {
    let layout = middle_layout();
    let mut metadata = Metadata::new(layout);
    let mut directory = InodeId::ROOT;
    let mut unit = layout.data().start;
    let apply = |metadata: &mut Metadata, operation: &Operation<'_>| {
        metadata.apply(operation).unwrap();
    };
    for number in 0..files {
        let id = metadata.next_id();
        let is_directory = number % 40 == 7;
        let kind = if is_directory {
            Kind::Directory
        } else {
            Kind::File
        };
        let create = Operation::Create {
            id,
            kind,
            parent: directory,
            name: &format!("{number:06}.sst"),
            modified: Timestamp(number),
        };
        apply(&mut metadata, &create);
        if is_directory {
            directory = id;
            continue;
        }
        if number % 10 == 3 {
            let link = Operation::Link {
                id,
                parent: InodeId::ROOT,
                name: &format!("link {number}"),
            };
            apply(&mut metadata, &link);
        }
        let pieces = if number == 5 { 600 } else { number % 3 };
        let extents: Vec<Extent> = (0..pieces)
            .map(|_| {
                unit += 2;
                Extent {
                    start: unit,
                    units: 1,
                }
            })
            .collect();
        let extend = Operation::Extend {
            id,
            size: pieces * 4096,
            extents: (&extents).into(),
            modified: Timestamp(number),
        };
        apply(&mut metadata, &extend);
    }
    assert_eq!(metadata.validate(&[]), []);
    metadata
}

/// The numbers of inodes that a page speaks of, found by what a record looks like.
fn mentioned(page: &[u8], metadata: &Metadata) -> BTreeSet<InodeId> {
    let has = |id: u64| page.windows(8).any(|bytes| bytes == id.to_le_bytes());
    let ids = metadata.inodes().map(|(id, _)| id);
    ids.filter(|id| has(id.0)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn what_is_encoded_is_decoded(commands in commands()) {
        let mut world = World::new(small_layout());
        for command in &commands {
            world.run(command);
        }
        prop_assert_eq!(decode_whole(&world.metadata, key()), world.metadata);
    }

    #[test]
    fn lost_pages_cost_what_they_held(lost in prop::collection::btree_set(0_u32..12, 1..6)) {
        let metadata = large(200);
        let image = Image::new(&metadata, key(), SEQUENCE);
        let (decoded, damages) = decode(&metadata, &image, &lost);
        prop_assert_eq!(decoded.validate(&[]), []);
        let pages = u32::try_from(image.bytes().len() / PAGE_BYTES).unwrap();
        if lost.iter().all(|number| *number >= pages) {
            prop_assert_eq!(damages, []);
            prop_assert_eq!(decoded, metadata);
            return Ok(());
        }
        prop_assert!(!damages.is_empty());
        let mut spoken_of = BTreeMap::<InodeId, u32>::new();
        for page in lost.range(..pages).map(|number| *number as usize) {
            for id in mentioned(&image.bytes()[page * PAGE_BYTES..][..PAGE_BYTES], &metadata) {
                *spoken_of.entry(id).or_default() += 1;
            }
        }
        for (id, record) in metadata.inodes().filter(|(id, _)| !spoken_of.contains_key(id)) {
            prop_assert_eq!(decoded.inode(id).unwrap(), record, "{} is not as before", id);
        }
        // Lost or cut inodes are reported, unless all their records are lost.
        let texts: String = damages.iter().map(|damage| format!("{damage}\n")).collect();
        for (id, record) in metadata.inodes() {
            let now = decoded.inode(id);
            let path_lost = now.is_err() || now.unwrap().links() != record.links();
            let known = spoken_of.get(&id).is_none_or(|pages| *pages < 2);
            if known && (path_lost || now.unwrap().size() != record.size()) {
                prop_assert!(texts.contains(&id.to_string()), "nothing is said of {}", id);
            }
        }
        let again = decode_whole(&decoded, key());
        prop_assert_eq!(again, decoded);
    }
}

#[test]
fn every_bit_counts() {
    let metadata = large(30);
    let image = Image::new(&metadata, key(), SEQUENCE);
    let superblock = superblock_of(&metadata, &image);
    let decoder = Decoder::new(&superblock);
    let mut page = image.bytes()[..PAGE_BYTES].to_vec();
    for bit in 0..PAGE_BYTES * 8 {
        page[bit / 8] ^= 1 << (bit % 8);
        decoder.check(0, &page).unwrap_err();
        page[bit / 8] ^= 1 << (bit % 8);
    }
    decoder.check(0, &page).unwrap();
    decoder.check(1, &page).unwrap_err();
    decoder.check(decoder.page_count(), &page).unwrap_err();
    for len in [0, 31, 32, PAGE_BYTES - 1] {
        decoder.check(0, &page[..len]).unwrap_err();
    }
    let other = Image::new(&metadata, key(), SEQUENCE + 1);
    decoder.check(0, &other.bytes()[..PAGE_BYTES]).unwrap_err();
    let foreign = Image::new(&metadata, VolumeKey::new(&[1; 16]), SEQUENCE);
    decoder
        .check(0, &foreign.bytes()[..PAGE_BYTES])
        .unwrap_err();
}

#[test]
fn pages_of_two_checkpoints_are_told() {
    let metadata = large(200);
    let image = Image::new(&metadata, key(), SEQUENCE);
    let mut superblock = superblock_of(&metadata, &image);
    superblock.checkpoint.checksum ^= 1;
    let mut decoder = Decoder::new(&superblock);
    for (number, page) in (0_u32..).zip(image.bytes().chunks_exact(PAGE_BYTES)) {
        decoder.page(number, page).unwrap();
    }
    assert_eq!(decoder.finish().1, [Damage::Mixed]);
}

#[test]
fn nothing_is_left_but_the_root() {
    let metadata = large(10);
    let image = Image::new(&metadata, key(), SEQUENCE);
    let mut superblock = superblock_of(&metadata, &image);
    // The most pages that a volume of another size could have.
    superblock.checkpoint.bytes = u64::from(u32::MAX) * PAGE_BYTES as u64;
    let (metadata, damages) = Decoder::new(&superblock).finish();
    let root = Damage::Directory(InodeId::ROOT);
    assert_eq!(damages, [Damage::Pages(0..u32::MAX), root]);
    assert_eq!(metadata, Metadata::new(middle_layout()));
}
