//! Random writes and reads of one namespace, verified.

use std::collections::HashMap;
use std::time::Duration;

use millrace_memory::{Arena, Buffer};
use millrace_nvme::{Completion, Lba, Namespace, QueuePair, Request};

use crate::failure::{Doing, Failure, Result, ensure};
use crate::report::Report;
use crate::words::Words;
use millrace_random::Random;

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
    words: Words,
    random: Random,
    /// Lengths in blocks at which something changes: the shortest, the longest, and those around the longest
    /// single command.
    edges: Vec<u64>,
    contents: Vec<Content>,
    busy: Vec<bool>,
    pending: HashMap<u64, Pending>,
    version: u32,
    token: u64,
}

impl Workload {
    /// The first `SPAN` bytes of the namespace, of whose controller `transfer_max` is the longest single
    /// command in bytes.
    pub(crate) fn new(namespace: Namespace, seed: u64, transfer_max: u64) -> Result<Self> {
        ensure(namespace.size() >= SIZE_MIN, || {
            let (id, size) = (namespace.id(), namespace.size());
            format!("namespace {id} has {size} bytes, the test needs {SIZE_MIN}")
        })?;
        let blocks = usize::try_from(SPAN >> namespace.block_shift()).doing("count blocks")?;
        Ok(Self {
            words: Words::new(&namespace, seed),
            edges: edges(namespace.block_shift(), transfer_max),
            random: Random::new(seed.wrapping_add(u64::from(namespace.id()))),
            contents: vec![Content::Unknown; blocks],
            busy: vec![false; blocks],
            pending: HashMap::new(),
            version: 0,
            token: 0,
            namespace,
        })
    }

    /// Writes and reads as many blocks as each of the edges has, one request at a time; returns how many
    /// requests that were.
    pub(crate) fn run_edges(
        &mut self,
        pair: &mut QueuePair,
        arena: &Arena,
        report: &mut Report,
    ) -> Result<u32> {
        let mut requests = 0;
        for blocks in self.edges.clone() {
            let first = self.random.below(self.contents.len() as u64 - blocks + 1);
            for read in [false, true] {
                let taken = self.submit_at(pair, arena, first, blocks, read)?;
                ensure(taken, || format!("no room for {blocks} blocks"))?;
                self.finish(pair, report)?;
                requests += 1;
            }
        }
        Ok(requests)
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
        let version = (!read).then(|| self.next_version());
        let token = self.token;
        let request = match version {
            Some(version) => {
                self.words.fill(&mut buffer, first, version);
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

    /// A place and a length: one of the edges, or from one block to the longest, short ones more often.
    fn choose(&mut self) -> (u64, u64) {
        let blocks = if self.random.below(8) == 0 {
            let index = to_index(self.random.below(self.edges.len() as u64));
            self.edges[index]
        } else {
            self.choose_length()
        };
        let first = self.random.below(self.contents.len() as u64 - blocks + 1);
        (first, blocks)
    }

    fn choose_length(&mut self) -> u64 {
        let longest = REQUEST_MAX >> self.namespace.block_shift();
        let shift = self.random.below(u64::from(longest.ilog2()) + 1);
        let shift = if self.random.below(2) == 0 {
            shift
        } else {
            self.random.below(shift + 1)
        };
        let most = 1 << shift;
        let blocks = most / 2 + self.random.below(most - most / 2) + 1;
        blocks.min(longest)
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

    /// Checks what was read from `first` on: whole blocks.
    pub(crate) fn check(&self, read: &[u8], first: u64) -> Result<()> {
        let size = self.words.block_bytes();
        for (block, bytes) in (first..).zip(read.chunks_exact(size)) {
            let content = self.contents[to_range(block, 1)][0];
            let wrong = match content {
                Content::Unknown => None,
                Content::Zero => bytes.iter().position(|byte| *byte != 0),
                Content::Version(version) => self.words.first_difference(bytes, block, version),
            };
            ensure(wrong.is_none(), || {
                let id = self.namespace.id();
                format!("namespace {id}, block {block}, byte {wrong:?}: not {content:?}")
            })?;
        }
        Ok(())
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
        let version = self.next_version();
        self.words.fill(&mut buffer, first, version);
        let blocks = buffer.len() as u64 >> self.namespace.block_shift();
        let written = self.single(pair, Request::write(Lba(first), buffer, 0))?;
        written.result.doing("write")?;
        self.contents[to_range(first, blocks)].fill(Content::Version(version));
        let buffer = written.data.and_then(millrace_nvme::Data::into_buffer);
        buffer.ok_or_else(|| Failure::new("a completion without its buffer"))
    }

    const fn next_version(&mut self) -> u32 {
        self.version += 1;
        self.version
    }

    /// The bytes of a new version of blocks, which the caller writes.
    pub(crate) fn next_content(&mut self, first: u64, blocks: u64) -> Vec<u8> {
        let version = self.next_version();
        let mut bytes = vec![0; to_index(blocks << self.namespace.block_shift())];
        self.words.fill(&mut bytes, first, version);
        self.contents[to_range(first, blocks)].fill(Content::Version(version));
        bytes
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

    /// How many commands of `transfer_max` bytes at most these requests are cut into, or fewer.
    pub(crate) fn commands_under_way_max(&self, transfer_max: u64) -> u64 {
        let commands = |pending: &Pending| {
            let bytes = pending.blocks << self.namespace.block_shift();
            let boundary = self.namespace.optimal_boundary();
            let borders = boundary.map_or(0, |every| pending.blocks.div_ceil(u64::from(every)));
            bytes.div_ceil(transfer_max) + borders
        };
        self.pending.values().map(commands).sum()
    }
}

/// The lengths in blocks that [`Workload::run_edges`] takes, ascending.
fn edges(block_shift: u32, transfer_max: u64) -> Vec<u64> {
    let longest = REQUEST_MAX >> block_shift;
    let single = transfer_max >> block_shift;
    let mut edges = vec![1, single - 1, single, single + 1, longest];
    edges.retain(|blocks| (1..=longest).contains(blocks));
    edges.sort_unstable();
    edges.dedup();
    edges
}

fn to_index(number: u64) -> usize {
    usize::try_from(number).expect("the span fits into memory")
}

fn to_range(first: u64, blocks: u64) -> std::ops::Range<usize> {
    to_index(first)..to_index(first + blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_lie_around_the_longest_command() {
        assert_eq!(edges(9, 512 << 10), [1, 1023, 1024, 1025, 2048]);
        assert_eq!(edges(12, 512 << 10), [1, 127, 128, 129, 256]);
        // The longest request is one command, or each block is.
        assert_eq!(edges(12, 1 << 20), [1, 255, 256]);
        assert_eq!(edges(12, 4 << 10), [1, 2, 256]);
    }
}
