//! The kernel: io_uring on files, block devices, and nothing.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use io_uring::{IoUring, opcode, squeue, types};

use super::{BLOCK, BLOCKS, DEPTH_MAX, Draws, Outcome, Side, Span, check, fill};

/// Memory that is read into: O_DIRECT wants it aligned.
#[derive(Clone)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK]);

/// What a side reads.
struct Source {
    file: File,
    blocks: u64,
    /// Whether the blocks hold what [`fill`] put there.
    filled: bool,
}

/// A ring, with reads of one file or with NOPs.
pub(crate) struct Uring {
    name: String,
    medium: String,
    source: Option<Source>,
    draws: Draws,
    /// Which block was read last into which memory.
    last: Vec<u64>,
    ring: IoUring,
    /// Never freed: closing the ring does not wait for reads that are under way.
    memory: &'static mut [Block],
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A ring as cheap as the kernel has them, and what kind that is.
fn make_ring() -> io::Result<(IoUring, &'static str)> {
    let entries = u32::from(DEPTH_MAX);
    let mut builder = IoUring::builder();
    builder.setup_single_issuer().setup_defer_taskrun();
    match builder.build(entries) {
        Ok(ring) => Ok((ring, "single issuer, deferred task work")),
        // Linux before 6.1 has no such rings.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Ok((IoUring::new(entries)?, "plain ring"))
        }
        Err(error) => Err(error),
    }
}

impl Uring {
    pub(crate) const FILE: &str = "io_uring-direct-file";
    pub(crate) const NOP: &str = "io_uring-nop";
    pub(crate) const ZERO: &str = "io_uring-zero";

    /// NOPs: what the ring costs, without a file system, a block layer and a device.
    pub(crate) fn nop() -> Outcome<Self> {
        Self::new(Self::NOP.to_owned(), "no medium", None)
    }

    /// A file of the folder, which is filled.
    pub(crate) fn file(folder: &Path) -> Outcome<Self> {
        let path = folder.join("blocks");
        let mut file = File::create(&path)?;
        let mut block = [0; BLOCK];
        for number in 0..BLOCKS {
            fill(number, &mut block);
            file.write_all(&block)?;
        }
        file.sync_all()?;
        let source = Source {
            file: open_direct(&path)?,
            blocks: BLOCKS,
            filled: true,
        };
        let medium = format!("256 MiB on {}, fsynced", mount_of(&path));
        Self::new(Self::FILE.to_owned(), &medium, Some(source))
    }

    /// The device of zeros: the ring, and the bytes written by the kernel.
    pub(crate) fn zero() -> Outcome<Self> {
        let source = Source {
            file: File::open("/dev/zero")?,
            blocks: BLOCKS,
            filled: false,
        };
        let medium = "no medium: the kernel writes zeros";
        Self::new(Self::ZERO.to_owned(), medium, Some(source))
    }

    /// A block device, which is not written to; none if it is empty.
    pub(crate) fn device(path: &Path) -> Outcome<Option<Self>> {
        let mut file = open_direct(path)?;
        let blocks = file.seek(SeekFrom::End(0))? / BLOCK as u64;
        if blocks == 0 {
            return Ok(None);
        }
        let source = Source {
            file,
            blocks: blocks.min(BLOCKS),
            filled: false,
        };
        let name = format!("io_uring-{}", path.display());
        let medium = "what the kernel's device has, memory or none";
        Self::new(name, medium, Some(source)).map(Some)
    }

    fn new(name: String, medium: &str, source: Option<Source>) -> Outcome<Self> {
        let (ring, kind) = make_ring()?;
        let memory = vec![Block([0; BLOCK]); usize::from(DEPTH_MAX)].leak();
        let mut registered = "";
        if let Some(source) = &source {
            ring.submitter()
                .register_files(&[source.file.as_raw_fd()])?;
            let buffers: Vec<_> = memory
                .iter_mut()
                .map(|block| libc::iovec {
                    iov_base: block.0.as_mut_ptr().cast(),
                    iov_len: BLOCK,
                })
                .collect();
            // SAFETY: the memory was leaked, so it stays where it is.
            unsafe { ring.submitter().register_buffers(&buffers)? };
            registered = "; file and buffers registered";
        }
        Ok(Self {
            name,
            medium: format!("{medium}; {kind}{registered}, sleeps for completions"),
            source,
            draws: Draws::new(),
            last: vec![0; usize::from(DEPTH_MAX)],
            ring,
            memory,
        })
    }

    /// What is asked of the kernel next with the memory of this number.
    fn entry(&mut self, number: u16) -> squeue::Entry {
        let index = usize::from(number);
        let entry = match &self.source {
            None => {
                black_box(self.draws.next(BLOCKS));
                opcode::Nop::new().build()
            }
            Some(source) => {
                let block = self.draws.next(source.blocks);
                self.last[index] = block;
                let size = u32::try_from(BLOCK).expect("a small number");
                let memory = self.memory[index].0.as_mut_ptr();
                opcode::ReadFixed::new(types::Fixed(0), memory, size, number)
                    .offset(block * BLOCK as u64)
                    .build()
            }
        };
        entry.user_data(u64::from(number))
    }

    /// Begins a read into all memory that is ready.
    fn push(&mut self, ready: &mut Vec<u16>) -> Outcome<()> {
        while let Some(number) = ready.pop() {
            let entry = self.entry(number);
            // SAFETY: the memory was leaked; its number is ready only when no read into it is under way, and
            // until the next time it is nobody looks at it.
            unsafe { self.ring.submission().push(&entry)? };
        }
        Ok(())
    }

    /// Submits, waits, and takes what has ended; how many.
    fn take(&mut self, ready: &mut Vec<u16>) -> Outcome<usize> {
        self.ring.submit_and_wait(1)?;
        let before = ready.len();
        let expected = if self.source.is_some() { BLOCK } else { 0 };
        for completion in self.ring.completion() {
            if usize::try_from(completion.result()) != Ok(expected) {
                return Err(format!("a read ended with {}", completion.result()).into());
            }
            ready.push(u16::try_from(completion.user_data())?);
        }
        Ok(ready.len() - before)
    }
}

impl Side for Uring {
    fn name(&self) -> &str {
        &self.name
    }

    fn medium(&self) -> String {
        self.medium.clone()
    }

    fn run(&mut self, depth: u16) -> Outcome<Span> {
        let mut ready: Vec<_> = (0..depth).collect();
        self.draws = Draws::new();
        self.push(&mut ready)?;
        let span = Span::of_round(|| {
            let ended = self.take(&mut ready)?;
            self.push(&mut ready)?;
            Ok(ended)
        })?;
        while ready.len() < usize::from(depth) {
            self.take(&mut ready)?;
        }
        if self.source.as_ref().is_some_and(|source| source.filled) {
            for number in ready.into_iter().map(usize::from) {
                check(self.last[number], &self.memory[number].0)?;
            }
        }
        Ok(span)
    }
}

fn open_direct(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
}

/// The device and file system that a path is on, as far as can be told.
fn mount_of(path: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let found = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?, words.next()?))
        })
        .filter(|(_, folder, _)| path.starts_with(folder))
        .max_by_key(|(_, folder, _)| folder.len());
    found.map_or_else(
        || "some file system".to_owned(),
        |(device, _, kind)| format!("{device} ({kind})"),
    )
}
