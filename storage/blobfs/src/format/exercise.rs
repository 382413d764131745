//! What is done with bytes of unknown origin, for fuzz targets and for tests: nothing may panic, and what is
//! accepted must be as documented.

use super::checkpoint_image::{Decoder, Image, PAGE_BYTES};
use super::damage::Damage;
use super::extent::Extent;
use super::ids::{InodeId, Timestamp};
use super::layout::{FormatOptions, Layout};
use super::metadata::Metadata;
use super::metadata::validate::Problem;
use super::operation::{Operation, Operations};
use super::replay::{Replay, Replayed};
use super::superblock::{CheckpointLocation, JournalTail, Superblock};
use super::transaction::{Header, probe};

const UUID: [u8; 16] = *b"sixteen bytes...";
const SEQUENCE: u64 = 99;

fn layout() -> Layout {
    Layout::plan(512, 2048, &FormatOptions::new(UUID, Timestamp(0))).expect("1 MiB is enough")
}

fn superblock_of(pages: usize, checksum: u32) -> Superblock {
    let units = u32::try_from(pages).expect("few pages");
    let copy = |index: u32| Extent {
        start: layout().data().start + u64::from(index * units),
        units,
    };
    Superblock {
        uuid: UUID,
        label: String::new(),
        created: Timestamp(0),
        layout: layout(),
        generation: 1,
        checkpoint: CheckpointLocation {
            sequence: SEQUENCE,
            bytes: u64::from(units) * PAGE_BYTES as u64,
            checksum,
            copies: [vec![copy(0)], vec![copy(1)]],
        },
        journal_tail: JournalTail {
            block: 0,
            sequence: SEQUENCE + 1,
        },
        clean: false,
    }
}

/// Takes `bytes` for a superblock, as they are, with the right checksum, and as what is changed in a good
/// one.
///
/// # Panics
/// If one that is accepted is not the same when it is written and read again.
pub fn superblock(bytes: &[u8]) {
    let check = |bytes: &[u8]| {
        if let Ok(superblock) = Superblock::decode(bytes) {
            let encoded = superblock.encode().expect("what was read can be written");
            let again = Superblock::decode(&encoded).expect("what was written can be read");
            assert_eq!(again, superblock);
        }
    };
    let with_checksum_and_check = |mut bytes: Vec<u8>| {
        bytes[..8].copy_from_slice(b"MRBLOBFS");
        let checksum = millrace_checksum::crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        check(&bytes);
    };
    check(bytes);
    let mut whole = bytes.to_vec();
    whole.resize(4096, 0);
    let good = superblock_of(3, 0).encode().expect("it is a good one");
    let changed = good.iter().zip(&whole).map(|(good, change)| good ^ change);
    let changed = changed.collect();
    with_checksum_and_check(whole);
    with_checksum_and_check(changed);
}

/// Takes `bytes` for a block of the journal, and for the payload of a transaction that follows an empty
/// checkpoint, a whole one and a damaged one.
///
/// # Panics
/// If operations that are accepted are not the same when they are written again, or metadata breaks
/// a rule after them.
pub fn transaction(bytes: &[u8]) {
    let superblock = superblock_of(1, 0);
    let key = superblock.key();
    if let Some(header) = Header::open(bytes, key, 0, SEQUENCE, 1 << 20) {
        header.verify(bytes, key);
    }
    probe(bytes, key, 0);

    let mut encoded = Vec::new();
    for operation in Operations::new(bytes).map_while(Result::ok) {
        operation.encode(&mut encoded);
    }
    assert_eq!(encoded, bytes[..encoded.len()]);

    for lenient in [false, true] {
        let damages = if lenient {
            vec![Damage::Mixed]
        } else {
            Vec::new()
        };
        let mut replay = Replay::new(Metadata::new(layout()), damages);
        // A transaction that is refused ends a mount; here the operations before it are looked at.
        let accepted = replay.apply_transaction(bytes).is_ok();
        let Replayed {
            mut metadata,
            overlay,
            ..
        } = replay.finish();
        assert!(accepted || !lenient || encoded.len() < bytes.len());
        check_rules(&mut metadata, lenient);
        for id in overlay.files() {
            let size = metadata.inode(id).map_or(0, |record| record.size());
            for (offset, segment) in overlay.of(id).filter(|_| lenient) {
                let end = offset + u64::try_from(segment.len()).expect("it is in memory");
                assert!(end <= size, "{id} has {size} bytes and data up to {end}");
            }
        }
    }
}

/// Takes `bytes` but the first for the records of a checkpoint's pages; the first says whether there is one
/// more, which is lost.
///
/// # Panics
/// If the metadata that is made of them breaks a rule, or is not the same when it is written and read again.
pub fn checkpoint(bytes: &[u8]) {
    let Some((first, records)) = bytes.split_first() else {
        return;
    };
    let mut pages: Vec<Vec<u8>> = records.chunks(PAGE_BYTES - 32).map(page_of).collect();
    let superblock = superblock_of(pages.len() + usize::from(first % 2), 0);
    let key = superblock.key();
    let mut decoder = Decoder::new(&superblock);
    for (number, page) in (0_u32..).zip(&mut pages) {
        page[16..20].copy_from_slice(&number.to_le_bytes());
        page[20..24].copy_from_slice(&decoder.page_count().to_le_bytes());
        let checksum = key.checksum(&[&page[8..]]);
        page[4..8].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(decoder.page(number, page), Ok(()));
    }
    let (mut metadata, _) = decoder.finish();
    check_rules(&mut metadata, false);

    let image = Image::new(&metadata, key, SEQUENCE);
    let count = image.bytes().len() / PAGE_BYTES;
    let mut decoder = Decoder::new(&superblock_of(count, image.checksum()));
    for (number, page) in (0..decoder.page_count()).zip(image.bytes().chunks_exact(PAGE_BYTES)) {
        assert_eq!(decoder.page(number, page), Ok(()));
    }
    assert_eq!(decoder.finish(), (metadata, Vec::new()));
}

/// A page with these records, but for its number, the count and the checksum.
fn page_of(records: &[u8]) -> Vec<u8> {
    let used = u32::try_from(records.len()).expect("they fit into a page");
    let mut page = vec![0; PAGE_BYTES];
    page[..4].copy_from_slice(b"MRCP");
    page[8..16].copy_from_slice(&SEQUENCE.to_le_bytes());
    page[24..28].copy_from_slice(&used.to_le_bytes());
    page[32..32 + records.len()].copy_from_slice(records);
    page
}

/// That all rules are obeyed, but that files may share units if they are not `parted` yet.
fn check_rules(metadata: &mut Metadata, parted: bool) {
    let problems = metadata.validate(&[]);
    let only_overlaps = problems
        .iter()
        .all(|problem| matches!(problem, Problem::Overlap { .. }));
    assert!(
        only_overlaps && (!parted || problems.is_empty()),
        "{problems:?}"
    );
    let cut = metadata.separate_files(&[], |_| 0);
    assert_eq!(cut.is_empty(), problems.is_empty());
    assert_eq!(metadata.validate(&[]), []);
    let operation = Operation::Create {
        id: metadata.next_id(),
        kind: super::ids::Kind::File,
        parent: InodeId::ROOT,
        name: "one more",
        modified: Timestamp(1),
    };
    if metadata.lookup(InodeId::ROOT, "one more").is_err() && metadata.next_id().0 < u64::MAX {
        assert!(metadata.apply(&operation).is_ok());
        let operation = Operation::Unlink {
            parent: InodeId::ROOT,
            name: "one more",
        };
        assert!(metadata.apply(&operation).is_ok());
    }
}
