//! Random writes and reads of one namespace, verified.

use std::collections::HashMap;
use std::time::Duration;

use millrace_memory::{Arena, Buffer};
use millrace_nvme::{Completion, Lba, Namespace, QueuePair, Request};

use crate::failure::{Doing, Failure, Result, ensure};
use crate::random::{Random, mix};
use crate::report::Report;

/// Bytes at the namespace's beginning that are written and read, of which the oracle knows the content.
pub(crate) const SPAN: u64 = 48 << 20;
/// Bytes that a namespace must have: behind the span other phases write.
const SIZE_MIN: u64 = SPAN + (16 << 20);
/// The longest request in bytes.
pub(crate) const REQUEST_MAX: u64 = 1 << 20;
/// No single wait takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// Nobody knows.
    Unknown,
    /// Zeroes.
    Zero,
    /// What the write of this number put there.
    Version(u32),
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Pending {
    first: u64,
    blocks: u64,
    /// The version that is being written; none if it is a read.
    version: Option<u32>,
}

/// The namespace and what its blocks must hold.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) namespace: Namespace,
    seed: u64,
    random: Random,
    contents: Vec<Content>,
    busy: Vec<bool>,
    pending: HashMap<u64, Pending>,
    version: u32,
    token: u64,
}

impl Workload {
    /// The first `SPAN` bytes of the namespace.
    pub(crate) fn new(namespace: Namespace, seed: u64) -> Result<Self> {
        ensure(namespace.size() >= SIZE_MIN, || {
            let (id, size) = (namespace.id(), namespace.size());
            format!("namespace {id} has {size} bytes, the test needs {SIZE_MIN}")
        })?;
        let blocks = usize::try_from(SPAN >> namespace.block_shift()).doing("count blocks")?;
        Ok(Self {
            seed: mix(seed ^ u64::from(namespace.id())),
            random: Random::new(seed.wrapping_add(u64::from(namespace.id()))),
            contents: vec![Content::Unknown; blocks],
            busy: vec![false; blocks],
            pending: HashMap::new(),
            version: 0,
            token: 0,
            namespace,
        })
    }

    /// Does `operations` random writes and reads with up to `depth` under way.
    pub(crate) fn run(
        &mut self,
        pair: &mut QueuePair,
        arena: &Arena,
        operations: u32,
        depth: usize,
        report: &mut Report,
    ) -> Result<()> {
        let mut left = operations;
        while left > 0 || !self.pending.is_empty() {
            while left > 0 && self.pending.len() < depth {
                if !self.submit(pair, arena)? {
                    break;
                }
                left -= 1;
            }
            self.collect(pair, report)?;
        }
        Ok(())
    }

    /// Waits for everything that is under way.
    pub(crate) fn finish(&mut self, pair: &mut QueuePair, report: &mut Report) -> Result<()> {
        while !self.pending.is_empty() {
            self.collect(pair, report)?;
        }
        Ok(())
    }

    /// Submits one random write or read; false if there is no room for it now.
    pub(crate) fn submit(&mut self, pair: &mut QueuePair, arena: &Arena) -> Result<bool> {
        let (first, blocks) = self.choose();
        let range = to_range(first, blocks);
        if self.busy[range.clone()].iter().any(|busy| *busy) {
            return Ok(!self.pending.is_empty() && self.submit_elsewhere(pair, arena)?);
        }
        let known = self.contents[range].iter().all(|c| *c != Content::Unknown);
        let read = known && self.random.below(2) == 0;
        self.submit_at(pair, arena, first, blocks, read)
    }

    /// One more try at another place, of one block.
    fn submit_elsewhere(&mut self, pair: &mut QueuePair, arena: &Arena) -> Result<bool> {
        let first = self.random.below(self.contents.len() as u64);
        if self.busy[to_range(first, 1)][0] {
            return Ok(false);
        }
        self.submit_at(pair, arena, first, 1, false)
    }

    fn submit_at(
        &mut self,
        pair: &mut QueuePair,
        arena: &Arena,
        first: u64,
        blocks: u64,
        read: bool,
    ) -> Result<bool> {
        let bytes = usize::try_from(blocks << self.namespace.block_shift()).doing("count bytes")?;
        let Ok(mut buffer) = arena.try_buffer(bytes) else {
            return Ok(false);
        };
        let version = (!read).then(|| {
            self.version += 1;
            self.version
        });
        let token = self.token;
        let request = match version {
            Some(version) => {
                self.fill(&mut buffer, first, version);
                if self.random.below(8) == 0 {
                    Request::write_through(Lba(first), buffer, token)
                } else {
                    Request::write(Lba(first), buffer, token)
                }
            }
            None => {
                // What was there before must not be taken for what was read.
                buffer.fill(0xa5);
                Request::read(Lba(first), buffer, token)
            }
        };
        match pair.submit(&self.namespace, request) {
            Ok(()) => {}
            Err(refused) if refused.reason == millrace_nvme::Refusal::QueueFull => {
                return Ok(false);
            }
            Err(refused) => return Err(Failure::from_error("submit", &refused)),
        }
        self.token += 1;
        self.busy[to_range(first, blocks)].fill(true);
        let pending = Pending {
            first,
            blocks,
            version,
        };
        self.pending.insert(token, pending);
        Ok(true)
    }

    /// A place and a length: from one block to the longest, short ones more often.
    fn choose(&mut self) -> (u64, u64) {
        let longest = REQUEST_MAX >> self.namespace.block_shift();
        let shift = self.random.below(u64::from(longest.ilog2()) + 1);
        let shift = if self.random.below(2) == 0 {
            shift
        } else {
            self.random.below(shift + 1)
        };
        let most = 1 << shift;
        let blocks = most / 2 + self.random.below(most - most / 2) + 1;
        let blocks = blocks.min(longest);
        let first = self.random.below(self.contents.len() as u64 - blocks + 1);
        (first, blocks)
    }

    /// Waits for completions and verifies them.
    pub(crate) fn collect(&mut self, pair: &mut QueuePair, report: &mut Report) -> Result<()> {
        let mut ended = Vec::new();
        let count = pair.wait(PATIENCE, |completion| ended.push(completion));
        ensure(count > 0 || self.pending.is_empty(), || {
            format!("{} requests without completion", self.pending.len())
        })?;
        for completion in ended {
            self.verify(completion, report)?;
        }
        Ok(())
    }

    fn verify(&mut self, completion: Completion, report: &mut Report) -> Result<()> {
        let Some(pending) = self.pending.remove(&completion.token) else {
            let what = format!("completion of {}, which nobody asked for", completion.token);
            return Err(Failure::new(what));
        };
        let Pending { first, blocks, .. } = pending;
        completion
            .result
            .doing(&format!("request of {blocks} blocks at {first}"))?;
        let buffer = completion.data.and_then(millrace_nvme::Data::into_buffer);
        let buffer = buffer.ok_or_else(|| Failure::new("a completion without its buffer"))?;
        self.busy[to_range(first, blocks)].fill(false);
        report.bytes += buffer.len() as u64;
        if let Some(version) = pending.version {
            report.writes += 1;
            self.contents[to_range(first, blocks)].fill(Content::Version(version));
            return Ok(());
        }
        report.reads += 1;
        self.check(&buffer, first)
    }

    /// Checks what was read from `first` on.
    fn check(&self, buffer: &Buffer, first: u64) -> Result<()> {
        let size = block_bytes(&self.namespace);
        for (block, bytes) in (first..).zip(buffer.chunks_exact(size)) {
            let content = self.contents[to_range(block, 1)][0];
            let wrong = match content {
                Content::Unknown => None,
                Content::Zero => bytes.iter().position(|byte| *byte != 0),
                Content::Version(version) => self.first_difference(bytes, block, version),
            };
            ensure(wrong.is_none(), || {
                let id = self.namespace.id();
                format!("namespace {id}, block {block}, byte {wrong:?}: not {content:?}")
            })?;
        }
        Ok(())
    }

    fn first_difference(&self, bytes: &[u8], block: u64, version: u32) -> Option<usize> {
        let mut word = self.word(block, version);
        for (index, chunk) in bytes.chunks_exact(8).enumerate() {
            if *chunk != word.to_le_bytes() {
                return Some(index * 8);
            }
            word = next_word(word);
        }
        None
    }

    fn fill(&self, buffer: &mut Buffer, first: u64, version: u32) {
        let size = block_bytes(&self.namespace);
        for (block, bytes) in (first..).zip(buffer.chunks_exact_mut(size)) {
            let mut word = self.word(block, version);
            for chunk in bytes.chunks_exact_mut(8) {
                chunk.copy_from_slice(&word.to_le_bytes());
                word = next_word(word);
            }
        }
    }

    /// The first word of a block.
    const fn word(&self, block: u64, version: u32) -> u64 {
        mix(self.seed ^ block.wrapping_mul(0x1_0001) ^ (version as u64) << 40)
    }

    /// Reads everything that is known and verifies it.
    pub(crate) fn verify_all(
        &mut self,
        pair: &mut QueuePair,
        arena: &Arena,
        report: &mut Report,
    ) -> Result<()> {
        let step = REQUEST_MAX >> self.namespace.block_shift();
        let mut first = 0;
        let end = self.contents.len() as u64;
        while first < end || !self.pending.is_empty() {
            while first < end {
                let blocks = step.min(end - first);
                if !self.submit_at(pair, arena, first, blocks, true)? {
                    break;
                }
                first += blocks;
            }
            self.collect(pair, report)?;
        }
        Ok(())
    }

    /// Does a request by itself and returns it; what it does to contents is the caller's to say.
    pub(crate) fn single(&self, pair: &mut QueuePair, request: Request) -> Result<Completion> {
        pair.submit(&self.namespace, request).doing("submit")?;
        let mut ended = None;
        pair.wait(PATIENCE, |completion| ended = Some(completion));
        ended.ok_or_else(|| Failure::new("a request without completion"))
    }

    /// Writes a new version of blocks, waits for it, and returns the buffer.
    pub(crate) fn write(
        &mut self,
        pair: &mut QueuePair,
        mut buffer: Buffer,
        first: u64,
    ) -> Result<Buffer> {
        self.version += 1;
        let version = self.version;
        self.fill(&mut buffer, first, version);
        let blocks = buffer.len() as u64 >> self.namespace.block_shift();
        let written = self.single(pair, Request::write(Lba(first), buffer, 0))?;
        written.result.doing("write")?;
        self.contents[to_range(first, blocks)].fill(Content::Version(version));
        let buffer = written.data.and_then(millrace_nvme::Data::into_buffer);
        buffer.ok_or_else(|| Failure::new("a completion without its buffer"))
    }

    /// Says that blocks now read as zero.
    pub(crate) fn set_zero(&mut self, first: u64, blocks: u64) {
        self.contents[to_range(first, blocks)].fill(Content::Zero);
    }

    /// Says that nobody knows what blocks hold.
    pub(crate) fn set_unknown(&mut self, first: u64, blocks: u64) {
        self.contents[to_range(first, blocks)].fill(Content::Unknown);
    }

    /// How many requests are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.pending.len()
    }
}

const fn next_word(word: u64) -> u64 {
    word.wrapping_mul(0x5851_f42d_4c95_7f2d)
        .wrapping_add(0x1405_7b7e_f767_814f)
}

fn block_bytes(namespace: &Namespace) -> usize {
    usize::try_from(namespace.block_size()).expect("blocks have 64 KiB at most")
}

fn to_range(first: u64, blocks: u64) -> std::ops::Range<usize> {
    let index = |block: u64| usize::try_from(block).expect("the span fits into memory");
    index(first)..index(first + blocks)
}
