//! What a namespace holds, and what a power cut leaves of it.
//!
//! # The write cache
//! Reads see `chunks`, where every write lands at once. What has not reached the medium is a log of records,
//! each with the bytes that were there before. Taking them back in reverse order gives what is durable; so
//! a power cut takes all back and then does anew, in their order, what the seed lets survive. A later
//! write may survive without an earlier one, and of two writes to one block the earlier may.
//!
//! A write of no more blocks than the power-fail atomic unit survives whole or not at all. Of a longer one
//! any blocks may survive (NVM command set specification 1.0, section 2.1.4).
//!
//! A write that is durable by itself (FUA) has a record too if others do, which always survives.
//! When the log holds more than the cache has room for, its oldest records become durable.

use std::collections::{BTreeSet, VecDeque};

use crate::random::Random;

/// Bytes that are allocated at once, if blank means zero zeroed by the kernel when they are touched.
const CHUNK: usize = 1 << 20;
/// Chunks that are listed together.
const GROUP: usize = 1 << 10;

type Chunk = Box<[u8]>;

/// A namespace's blocks.
#[derive(Debug)]
pub(crate) struct Medium {
    block_size: usize,
    blocks: u64,
    /// What every byte reads as that is in no chunk.
    blank: u8,
    groups: Vec<Option<Box<[Option<Chunk>]>>>,
    /// Blocks that cannot be read (Write Uncorrectable).
    bad: BTreeSet<u64>,
    log: VecDeque<Record>,
    log_bytes: usize,
    log_bytes_max: usize,
}

/// A write that may be lost.
#[derive(Debug)]
struct Record {
    first: u64,
    blocks: u64,
    before: Box<[u8]>,
    /// Blocks that could not be read before.
    bad: Vec<u64>,
    durable: bool,
}

/// Bytes as they lie behind each other.
pub(crate) enum Piece<'a> {
    Data(&'a [u8]),
    /// So many bytes that were never written, or are not any more.
    Blank(usize),
}

impl Medium {
    pub(crate) fn new(block_size: u32, blocks: u64, blank: u8, cache_bytes: usize) -> Self {
        let block_size = index(u64::from(block_size));
        let bytes = blocks * block_size as u64;
        let groups = bytes.div_ceil((CHUNK * GROUP) as u64);
        Self {
            block_size,
            blocks,
            blank,
            groups: (0..groups).map(|_| None).collect(),
            bad: BTreeSet::new(),
            log: VecDeque::new(),
            log_bytes: 0,
            log_bytes_max: cache_bytes,
        }
    }

    pub(crate) const fn block_size(&self) -> usize {
        self.block_size
    }

    pub(crate) const fn blocks(&self) -> u64 {
        self.blocks
    }

    pub(crate) const fn blank(&self) -> u8 {
        self.blank
    }

    /// The bytes from `position` on: at most `length`, as many as lie together.
    #[inline]
    pub(crate) fn piece(&self, position: u64, length: usize) -> Piece<'_> {
        let position = index(position);
        let (chunk, offset) = (position / CHUNK, position % CHUNK);
        let length = length.min(CHUNK - offset);
        match self.groups[chunk / GROUP].as_ref() {
            Some(group) => match &group[chunk % GROUP] {
                Some(bytes) => Piece::Data(&bytes[offset..offset + length]),
                None => Piece::Blank(length),
            },
            None => Piece::Blank(length),
        }
    }

    /// The same for writing.
    #[inline]
    pub(crate) fn piece_mut(&mut self, position: u64, length: usize) -> &mut [u8] {
        let position = index(position);
        let (chunk, offset) = (position / CHUNK, position % CHUNK);
        let length = length.min(CHUNK - offset);
        let group =
            self.groups[chunk / GROUP].get_or_insert_with(|| (0..GROUP).map(|_| None).collect());
        let bytes =
            group[chunk % GROUP].get_or_insert_with(|| vec![self.blank; CHUNK].into_boxed_slice());
        &mut bytes[offset..offset + length]
    }

    /// Copies blocks out.
    pub(crate) fn read(&self, first: u64, bytes: &mut [u8]) {
        let mut position = first * self.block_size as u64;
        let mut rest = bytes;
        while !rest.is_empty() {
            let size = match self.piece(position, rest.len()) {
                Piece::Data(data) => {
                    rest[..data.len()].copy_from_slice(data);
                    data.len()
                }
                Piece::Blank(size) => {
                    rest[..size].fill(self.blank);
                    size
                }
            };
            position += size as u64;
            rest = &mut rest[size..];
        }
    }

    /// Copies blocks in, past the cache.
    fn put(&mut self, first: u64, bytes: &[u8]) {
        let mut position = first * self.block_size as u64;
        let mut rest = bytes;
        while !rest.is_empty() {
            let target = self.piece_mut(position, rest.len());
            let size = target.len();
            target.copy_from_slice(&rest[..size]);
            position += size as u64;
            rest = &rest[size..];
        }
    }

    /// Announces that `blocks` blocks will be changed; `durable` if a power cut must not undo it.
    #[inline]
    pub(crate) fn begin(&mut self, first: u64, blocks: u64, durable: bool) {
        if durable && self.log.is_empty() {
            if !self.bad.is_empty() {
                self.heal(first, blocks);
            }
            return;
        }
        let size = index(blocks) * self.block_size;
        let mut before = vec![0; size].into_boxed_slice();
        self.read(first, &mut before);
        let bad = self.heal(first, blocks);
        self.log.push_back(Record {
            first,
            blocks,
            before,
            bad,
            durable,
        });
        self.log_bytes += size;
        while self.log_bytes > self.log_bytes_max {
            let Some(oldest) = self.log.pop_front() else {
                break;
            };
            self.log_bytes -= oldest.before.len();
        }
    }

    /// Makes blocks readable again; returns which were not.
    fn heal(&mut self, first: u64, blocks: u64) -> Vec<u64> {
        let healed: Vec<u64> = self.bad.range(first..first + blocks).copied().collect();
        for block in &healed {
            self.bad.remove(block);
        }
        healed
    }

    /// Fills blocks with a byte: Write Zeroes, or deallocated.
    pub(crate) fn fill(&mut self, first: u64, blocks: u64, byte: u8, durable: bool) {
        let bytes = blocks * self.block_size as u64;
        if bytes > self.log_bytes_max as u64 {
            // More than the cache holds: all before it goes to the medium, and so does this.
            self.flush();
            self.heal(first, blocks);
        } else {
            self.begin(first, blocks, durable);
        }
        let mut position = first * self.block_size as u64;
        let end = position + bytes;
        while position < end {
            let size = index((end - position).min(CHUNK as u64));
            position += self.fill_piece(position, size, byte) as u64;
        }
    }

    fn fill_piece(&mut self, position: u64, length: usize, byte: u8) -> usize {
        let place = index(position);
        let (chunk, offset) = (place / CHUNK, place % CHUNK);
        let length = length.min(CHUNK - offset);
        if byte != self.blank {
            self.piece_mut(position, length).fill(byte);
            return length;
        }
        let Some(group) = self.groups[chunk / GROUP].as_mut() else {
            return length;
        };
        let slot = &mut group[chunk % GROUP];
        match slot {
            Some(_) if length == CHUNK => *slot = None,
            Some(bytes) => bytes[offset..offset + length].fill(byte),
            None => {}
        }
        length
    }

    /// Makes blocks unreadable.
    pub(crate) fn spoil(&mut self, first: u64, blocks: u64) {
        self.flush();
        self.bad.extend(first..first + blocks);
    }

    /// Whether one of these blocks cannot be read.
    #[inline]
    pub(crate) fn is_bad(&self, first: u64, blocks: u64) -> bool {
        !self.bad.is_empty() && self.bad.range(first..first + blocks).next().is_some()
    }

    /// Everything so far is durable.
    pub(crate) fn flush(&mut self) {
        self.log.clear();
        self.log_bytes = 0;
    }

    /// How many writes a power cut may undo.
    pub(crate) fn unflushed(&self) -> usize {
        self.log.iter().filter(|record| !record.durable).count()
    }

    /// Loses what the seed wants of what may be lost. `atomic` is the power-fail atomic unit in blocks.
    pub(crate) fn cut(&mut self, random: &mut Random, atomic: u64) {
        let mut done_anew = Vec::with_capacity(self.log.len());
        while let Some(record) = self.log.pop_back() {
            let mut after = vec![0; record.before.len()].into_boxed_slice();
            self.read(record.first, &mut after);
            self.put(record.first, &record.before);
            self.bad.extend(&record.bad);
            done_anew.push((record, after));
        }
        self.log_bytes = 0;
        // Of all writes in this cut, so many in four survive.
        let chance = random.below(5);
        while let Some((record, after)) = done_anew.pop() {
            if record.durable || random.below(4) < chance {
                self.redo(&record, &after, 0..record.blocks);
            } else if record.blocks > atomic && random.below(4) != 0 {
                self.tear(&record, &after, random);
            }
        }
    }

    /// Lets some blocks of a write survive: the first ones, the last ones or any.
    fn tear(&mut self, record: &Record, after: &[u8], random: &mut Random) {
        let cut = random.below(record.blocks + 1);
        match random.below(3) {
            0 => self.redo(record, after, 0..cut),
            1 => self.redo(record, after, cut..record.blocks),
            _ => {
                for block in 0..record.blocks {
                    if random.below(2) == 0 {
                        self.redo(record, after, block..block + 1);
                    }
                }
            }
        }
    }

    fn redo(&mut self, record: &Record, after: &[u8], blocks: std::ops::Range<u64>) {
        let from = index(blocks.start) * self.block_size;
        let to = index(blocks.end) * self.block_size;
        self.put(record.first + blocks.start, &after[from..to]);
        self.heal(record.first + blocks.start, blocks.end - blocks.start);
    }

    /// A number that differs, very likely, if any byte does (FNV-1a over the chunks that are not blank).
    pub(crate) fn digest(&self) -> u64 {
        let mut digest = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |word: u64| digest = (digest ^ word).wrapping_mul(0x0100_0000_01b3);
        for (number, chunk) in self.chunks() {
            if chunk.iter().all(|byte| *byte == self.blank) {
                continue;
            }
            add(number as u64);
            for piece in chunk.chunks_exact(8) {
                add(u64::from_le_bytes(piece.try_into().expect("eight bytes")));
            }
        }
        digest
    }

    fn chunks(&self) -> impl Iterator<Item = (usize, &Chunk)> {
        let groups = self.groups.iter().enumerate();
        groups
            .filter_map(|(number, group)| Some((number, group.as_ref()?)))
            .flat_map(|(number, group)| {
                let chunks = group.iter().enumerate();
                chunks.filter_map(move |(at, chunk)| Some((number * GROUP + at, chunk.as_ref()?)))
            })
    }
}

/// Positions in memory fit a word: the medium's size was checked when it was made.
#[inline]
fn index(number: u64) -> usize {
    usize::try_from(number).expect("hosts have 64 bits")
}
