//! Recognition of a device's contents by the signatures at its ends.

use std::fmt;
use std::ops::Range;

use millrace_block::Result;

use super::blocks::Blocks;

/// So many bytes at either end are looked at, and made blank for a new volume.
const END_BYTES: u64 = 1 << 20;

/// Bytes at a place from the device's beginning, and what begins so.
const AT_START: &[(usize, &[u8], &str)] = &[
    (0, b"MRBLOBFS", MILLRACE),
    (0, b"XFSB", "an XFS file system"),
    (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    (0, b"QFI\xfb", "a disk image of QEMU (qcow2)"),
    (0, b"hsqs", "a squashfs file system"),
    (0, b"SPDKBLOB", "a blobstore of SPDK"),
    (0, b"bluestore block device", "a device of Ceph (BlueStore)"),
    (0, &MD_MAGIC, "a member of a RAID array (md)"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (54, b"FAT", "a FAT file system"),
    (82, b"FAT32", "a FAT file system"),
    (512, b"EFI PART", GPT),
    (4096, b"EFI PART", GPT),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (4096, &MD_MAGIC, "a member of a RAID array (md)"),
    // bcache and bcachefs share the first bytes.
    (
        4120,
        b"\xc6\x85\x73\xf6",
        "a bcache device or bcachefs file system",
    ),
    (32_769, b"CD001", "an ISO 9660 file system"),
    (65_600, b"_BHRfS_M", "a btrfs file system"),
];

/// The same from its end on.
const AT_END: &[(usize, &[u8], &str)] = &[(512, b"EFI PART", GPT), (4096, b"EFI PART", GPT)];

const MILLRACE: &str = "a volume of Millrace";
const GPT: &str = "partitions (GPT)";
/// Of md, little-endian.
const MD_MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
/// The pages that swap is made for: its mark is at the end of the first.
const SWAP_PAGES: [usize; 5] = [4096, 8192, 16_384, 32_768, 65_536];

/// What a device holds, as far as its first and last MiB tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    is_blank: bool,
    known: Vec<&'static str>,
}

impl Contents {
    /// Looks at a device.
    pub(super) fn of_device(blocks: &mut Blocks) -> Result<Self> {
        let [first, last] = ends(blocks);
        let block_bytes = u64::from(blocks.geometry().block_bytes);
        let device_bytes = blocks.geometry().bytes();
        let first = blocks.read(first.start, first.end - first.start)?;
        let last = blocks.read(last.start, last.end - last.start)?;
        Ok(Self::of_ends(&first, &last, device_bytes, block_bytes))
    }

    /// What these first and last bytes of a device say.
    #[must_use]
    pub fn of_ends(first: &[u8], last: &[u8], device_bytes: u64, block_bytes: u64) -> Self {
        let is_blank = is_uniform(first) && is_uniform(last);
        let mut known: Vec<&'static str> = Vec::new();
        let mut add = |name| {
            if !known.contains(&name) {
                known.push(name);
            }
        };
        for (offset, magic, name) in AT_START {
            if holds(first, *offset, magic) {
                add(name);
            }
        }
        for (offset, magic, name) in AT_END {
            let offset = last.len().checked_sub(*offset);
            if offset.is_some_and(|offset| holds(last, offset, magic)) {
                add(name);
            }
        }
        // The second superblock is the last whole unit.
        let unit_bytes = block_bytes.max(4096);
        let second = (device_bytes / unit_bytes).saturating_sub(1) * unit_bytes;
        if let Some(offset) = within(last, device_bytes, second) {
            if holds(last, offset, b"MRBLOBFS") {
                add(MILLRACE);
            }
        }
        if let Some(name) = ext(first) {
            add(name);
        }
        if (0..4).any(|sector| {
            let label = 512 * sector;
            holds(first, label, b"LABELONE") && holds(first, label + 24, b"LVM2 001")
        }) {
            add("a physical volume of LVM");
        }
        if SWAP_PAGES.iter().any(|page| {
            holds(first, page - 10, b"SWAPSPACE2") || holds(first, page - 10, b"SWAP-SPACE")
        }) {
            add("swap space");
        }
        if is_zfs(first) {
            add("a member of a ZFS pool");
        }
        if md_places(device_bytes)
            .into_iter()
            .filter_map(|place| within(last, device_bytes, place))
            .any(|offset| holds(last, offset, &MD_MAGIC))
        {
            add("a member of a RAID array (md)");
        }
        // FAT and others have the mark of a boot sector too.
        if known.is_empty() && holds(first, 510, b"\x55\xaa") {
            known.push("partitions (MBR), or a boot sector");
        }
        Self { is_blank, known }
    }

    /// Whether there is nothing at either end: zeros, or ones as erased flash may have.
    #[must_use]
    pub const fn is_blank(&self) -> bool {
        self.is_blank
    }

    /// Names of the recognised contents, each once; empty if the device is blank or holds data of an unknown kind.
    #[must_use]
    pub fn known(&self) -> &[&'static str] {
        &self.known
    }

    /// Whether it is, or was, a volume of ours.
    #[must_use]
    pub fn is_volume(&self) -> bool {
        self.known.contains(&MILLRACE)
    }
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_blank, self.known.is_empty()) {
            (true, _) => f.write_str("nothing"),
            (false, true) => f.write_str("data of an unknown kind"),
            (false, false) => f.write_str(&self.known.join(", ")),
        }
    }
}

/// Zeroes both ends of a device, so that no program recognises the old contents.
pub(super) fn wipe_ends(blocks: &mut Blocks) -> Result<()> {
    for end in ends(blocks) {
        blocks.zero(end.start, end.end - end.start)?;
    }
    blocks.flush()
}

/// The blocks of the first and last MiB.
fn ends(blocks: &Blocks) -> [Range<u64>; 2] {
    let geometry = blocks.geometry();
    let count = (END_BYTES / u64::from(geometry.block_bytes)).min(geometry.blocks);
    [0..count, geometry.blocks - count..geometry.blocks]
}

fn is_uniform(bytes: &[u8]) -> bool {
    let all = |value| bytes.iter().all(|byte| *byte == value);
    all(0) || all(0xff)
}

fn holds(bytes: &[u8], offset: usize, magic: &[u8]) -> bool {
    let rest = bytes.get(offset..);
    rest.is_some_and(|rest| rest.starts_with(magic))
}

/// Where in the last bytes of a device a place of it is.
fn within(last: &[u8], device_bytes: u64, place: u64) -> Option<usize> {
    let begin = device_bytes.checked_sub(last.len() as u64)?;
    usize::try_from(place.checked_sub(begin)?).ok()
}

/// Which of ext2, ext3 and ext4: newer ones have features that older ones do not know.
fn ext(first: &[u8]) -> Option<&'static str> {
    const HAS_JOURNAL: u32 = 0x4;
    /// Extents, 64-bit numbers, groups of groups.
    const ONLY_EXT4: u32 = 0x40 | 0x80 | 0x200;
    if !holds(first, 1080, b"\x53\xef") {
        return None;
    }
    let word = |offset: usize| {
        let bytes = first.get(offset..offset + 4)?;
        bytes.try_into().ok().map(u32::from_le_bytes)
    };
    let (compatible, incompatible) = (word(1024 + 0x5c)?, word(1024 + 0x60)?);
    Some(if incompatible & ONLY_EXT4 != 0 {
        "an ext4 file system"
    } else if compatible & HAS_JOURNAL != 0 {
        "an ext3 file system"
    } else {
        "an ext2 file system"
    })
}

/// ZFS has its uberblocks in the second 128 KiB of each label, in either byte order.
fn is_zfs(first: &[u8]) -> bool {
    const UBERBLOCK: u64 = 0x00ba_b10c;
    (128 << 10..256 << 10).step_by(1024).any(|offset| {
        holds(first, offset, &UBERBLOCK.to_le_bytes())
            || holds(first, offset, &UBERBLOCK.to_be_bytes())
    })
}

/// Where md of the formats 1.0 and 0.90 has its superblock, near the end.
const fn md_places(device_bytes: u64) -> [u64; 2] {
    const KIB: u64 = 1 << 10;
    [
        device_bytes.saturating_sub(8 * KIB) & !(4 * KIB - 1),
        (device_bytes & !(64 * KIB - 1)).saturating_sub(64 * KIB),
    ]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEVICE_BYTES: u64 = 16 << 20;

    /// What a device with these bytes at these places holds.
    fn contents(bytes: &[(u64, &[u8])]) -> String {
        let mut first = vec![0; 1 << 20];
        let mut last = vec![0; 1 << 20];
        for (place, bytes) in bytes {
            let (end, offset) = match place.checked_sub(DEVICE_BYTES - (1 << 20)) {
                Some(offset) => (&mut last, offset),
                None => (&mut first, *place),
            };
            let offset = usize::try_from(offset).expect("it is in one of the ends");
            end[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        Contents::of_ends(&first, &last, DEVICE_BYTES, 512).to_string()
    }

    #[test]
    fn well_known_things_are_recognised() {
        type Row<'a> = (&'a [(u64, &'a [u8])], &'a str);
        let rows: [Row<'_>; 15] = [
            (&[], "nothing"),
            (&[(777_777, b"x")], "data of an unknown kind"),
            (&[(0, b"MRBLOBFS")], "a volume of Millrace"),
            (
                &[(DEVICE_BYTES - 4096, b"MRBLOBFS")],
                "a volume of Millrace",
            ),
            (&[(1080, b"\x53\xef")], "an ext2 file system"),
            (
                &[(1080, b"\x53\xef"), (1116, b"\x04")],
                "an ext3 file system",
            ),
            (
                &[(1080, b"\x53\xef"), (1120, b"\xc2\x02")],
                "an ext4 file system",
            ),
            (&[(0, b"XFSB")], "an XFS file system"),
            (&[(65_600, b"_BHRfS_M")], "a btrfs file system"),
            (&[(510, b"\x55\xaa")], "partitions (MBR), or a boot sector"),
            (
                &[(510, b"\x55\xaa"), (512, b"EFI PART")],
                "partitions (GPT)",
            ),
            (&[(DEVICE_BYTES - 512, b"EFI PART")], "partitions (GPT)"),
            (
                &[(512, b"LABELONE"), (536, b"LVM2 001")],
                "a physical volume of LVM",
            ),
            (&[(4086, b"SWAPSPACE2")], "swap space"),
            (&[(65_526, b"SWAPSPACE2")], "swap space"),
        ];
        for (bytes, expected) in rows {
            assert_eq!(contents(bytes), expected);
        }
        let md = |place| contents(&[(place, &MD_MAGIC)]);
        for place in [4096, DEVICE_BYTES - 8192, DEVICE_BYTES - (64 << 10)] {
            assert_eq!(md(place), "a member of a RAID array (md)");
        }
        let zfs = contents(&[(132 << 10, &0x00ba_b10c_u64.to_le_bytes())]);
        assert_eq!(zfs, "a member of a ZFS pool");
        let both = contents(&[(0, b"XFSB"), (65_600, b"_BHRfS_M")]);
        assert_eq!(both, "an XFS file system, a btrfs file system");
    }

    #[test]
    fn erased_flash_is_blank() {
        let ones = vec![0xff; 4096];
        let contents = Contents::of_ends(&ones, &ones, 8192, 4096);
        assert!(contents.is_blank() && contents.known().is_empty());
        assert!(!contents.is_volume());
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(
            first in proptest::collection::vec(any::<u8>(), 0..4096),
            last in proptest::collection::vec(any::<u8>(), 0..4096),
            device_bytes in any::<u64>(),
        ) {
            let contents = Contents::of_ends(&first, &last, device_bytes, 4096);
            prop_assert!(!contents.to_string().is_empty());
        }
    }
}
