//! Properties of an open file or block special.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::fs::{
    AtFlags, FileType, SeekFrom, Statx, StatxFlags, ioctl_blkpbszget, ioctl_blksszget, seek, statx,
};
use rustix::io::Errno;

use crate::{Deallocation, Geometry};

/// Logical block size, in bytes, if the kernel reports none.
const BLOCK_BYTES: u32 = 512;
/// Largest alignment required of buffers, in bytes; smaller blocks need only their own size.
const ALIGNMENT_MAX: u32 = 4096;
/// Longest buffer of one request, in bytes.
const TRANSFER_BYTES_MAX: usize = 1 << 20;
/// Number of queues with rings of their own.
const QUEUES_MAX: usize = 256;
const QUEUE_DEPTH: usize = 128;

/// Properties of an open file, as the kernel reports them.
#[derive(Debug)]
pub(super) struct Probe {
    is_block: bool,
    bytes: u64,
    /// Block size of direct transfers; none if they are not supported.
    direct_block: Option<u32>,
    /// Block size of buffered transfers.
    block: u32,
    optimal: u32,
    /// The sysfs folder of the disk's queue, if there is one.
    disk: Option<String>,
}

impl Probe {
    pub(super) fn new(file: &OwnedFd) -> rustix::io::Result<Self> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN;
        let said = statx(file, "", AtFlags::EMPTY_PATH, wanted)?;
        let kind = FileType::from_raw_mode(said.stx_mode.into());
        if kind == FileType::BlockDevice {
            let block = ioctl_blksszget(file)?;
            let direct_block = direct_block(&said).unwrap_or(Some(block));
            return Ok(Self {
                is_block: true,
                bytes: seek(file, SeekFrom::End(0))?,
                direct_block: direct_block.map(|direct| direct.max(block)),
                block,
                optimal: ioctl_blkpbszget(file).unwrap_or(block),
                disk: disk(said.stx_rdev_major, said.stx_rdev_minor),
            });
        }
        Ok(Self {
            is_block: false,
            bytes: said.stx_size,
            direct_block: direct_block(&said).unwrap_or_else(|| direct_block_by_trial(file)),
            block: BLOCK_BYTES,
            optimal: said.stx_blksize,
            disk: disk(said.stx_dev_major, said.stx_dev_minor),
        })
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether transfers can bypass the page cache.
    pub(super) const fn can_direct(&self) -> bool {
        self.direct_block.is_some()
    }

    pub(super) fn geometry(&self, direct: bool) -> Geometry {
        let block = self.direct_block.filter(|_| direct).unwrap_or(self.block);
        let says = |name, value: &str| self.attribute(name).is_some_and(|said| said == value);
        // The file system's metadata is on the medium only after a flush.
        let is_through = self.is_block && direct && says("write_cache", "write through");
        let deallocation = if self.is_block {
            let has = |name| self.attribute(name).is_some_and(|most| most != "0");
            match has("discard_max_bytes") && has("write_zeroes_max_bytes") {
                true => Deallocation::Cheap,
                false => Deallocation::None,
            }
        } else {
            // Testing for holes would make one, which changes the file's time of modification: the first deallocation
            // fails if they are not supported.
            Deallocation::Costly
        };
        Geometry {
            block_bytes: block,
            blocks: self.bytes / u64::from(block),
            atomic_blocks: 1,
            optimal_bytes: self.optimal.max(ALIGNMENT_MAX).max(block),
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            volatile_cache: !is_through,
            write_through: says("fua", "1"),
            deallocation,
            deallocated_reads_zero: true,
            queues_max: QUEUES_MAX,
            queue_depth: QUEUE_DEPTH,
        }
    }

    /// An attribute of the disk's queue in sysfs.
    fn attribute(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(format!("{}/{name}", self.disk.as_ref()?));
        Some(text.ok()?.trim().to_owned())
    }
}

/// Block size of direct transfers as `statx` reports it, from Linux 6.1 on.
fn direct_block(said: &Statx) -> Option<Option<u32>> {
    if said.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return None;
    }
    let (memory, block) = (said.stx_dio_mem_align, said.stx_dio_offset_align);
    // Buffers get the alignment of blocks, so large enough blocks satisfy both.
    let block = block.max(memory).max(BLOCK_BYTES);
    Some((said.stx_dio_offset_align > 0 && memory <= ALIGNMENT_MAX).then_some(block))
}

/// Block size of direct transfers by trial, on a kernel that does not report it.
fn direct_block_by_trial(file: &OwnedFd) -> Option<u32> {
    #[repr(align(4096))]
    struct Page([u8; ALIGNMENT_MAX as usize]);

    let mut page = Page([0; ALIGNMENT_MAX as usize]);
    [BLOCK_BYTES, ALIGNMENT_MAX].into_iter().find(|block| {
        let read = rustix::io::pread(file, &mut page.0[..*block as usize], 0);
        !matches!(read, Err(Errno::INVAL))
    })
}

/// The sysfs folder of the queue of a disk, or of the disk of a partition.
fn disk(major: u32, minor: u32) -> Option<String> {
    ["", "../"].into_iter().find_map(|up| {
        let folder = format!("/sys/dev/block/{major}:{minor}/{up}queue");
        fs::metadata(&folder).ok().map(|_| folder)
    })
}
