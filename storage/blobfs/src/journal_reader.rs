//! Reads the transactions that no checkpoint contains.

use crate::Result;
use crate::format::superblock::Superblock;
use crate::format::transaction::{Header, probe};
use crate::format::{Layout, VolumeKey};
use crate::lanes::Lanes;
use crate::mount::read_blocks;

/// Blocks are read so many bytes at a time, so that many small transactions are few reads.
const WINDOW_BYTES: usize = 1 << 20;

/// What stands behind the end of the journal.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// The highest number of a transaction that is later than the one expected next.
    pub(crate) beyond: Option<u64>,
    /// Blocks that cannot be read, in the order of the ring.
    pub(crate) unreadable: Vec<u64>,
}

pub(crate) struct JournalReader<'a> {
    lanes: &'a Lanes,
    layout: Layout,
    key: VolumeKey,
    /// Blocks of the ring.
    blocks: u64,
    /// Where in the ring it began.
    tail: u64,
    head: u64,
    used: u64,
    expected: u64,
    /// Blocks that were read: the first one's place, and their bytes.
    window: (u64, Vec<u8>),
    transaction: Vec<u8>,
}

impl<'a> JournalReader<'a> {
    /// Begins where the superblock says.
    pub(crate) fn new(lanes: &'a Lanes, superblock: &Superblock) -> Self {
        Self {
            lanes,
            layout: superblock.layout,
            key: superblock.key(),
            blocks: superblock.layout.journal_blocks(),
            tail: superblock.journal_tail.block,
            head: superblock.journal_tail.block,
            used: 0,
            expected: superblock.journal_tail.sequence,
            window: (0, Vec::new()),
            transaction: Vec::new(),
        }
    }

    /// Where the next transaction would begin.
    pub(crate) const fn head(&self) -> u64 {
        self.head
    }

    /// Blocks of the transactions so far.
    pub(crate) const fn used(&self) -> u64 {
        self.used
    }

    /// The operations of the next transaction; none if the journal ends here.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>> {
        let block_bytes = self.layout.block_bytes();
        let left = self.blocks - self.used;
        if left <= 1 {
            return Ok(None);
        }
        let (head, key, expected) = (self.head, self.key, self.expected);
        let bytes_max = left * u64::from(block_bytes);
        let first = self.block(head)?;
        let Some(header) = Header::open(first, key, head, expected, bytes_max) else {
            return Ok(None);
        };
        let blocks = header.blocks(block_bytes);
        if blocks >= left {
            return Ok(None);
        }
        let mut bytes = std::mem::take(&mut self.transaction);
        bytes.clear();
        for index in 0..blocks {
            bytes.extend_from_slice(self.block((head + index) % self.blocks)?);
        }
        self.transaction = bytes;
        let Some(payload) = header.verify(&self.transaction, key) else {
            return Ok(None);
        };
        self.head = (head + blocks) % self.blocks;
        self.used += blocks;
        self.expected += 1;
        Ok(Some(payload))
    }

    /// Looks through the rest of the ring for transactions later than the one expected next. There are none after a
    /// power cut, since each is on the medium before the next is written.
    pub(crate) fn probe_rest(&mut self) -> Rest {
        let (key, expected) = (self.key, self.expected);
        let mut rest = Rest::default();
        for index in 0..self.blocks - self.used {
            let position = (self.head + index) % self.blocks;
            match self.block(position) {
                Ok(block) => {
                    let found = probe(block, key, position).filter(|&number| number > expected);
                    rest.beyond = rest.beyond.max(found);
                }
                Err(_) => rest.unreadable.push(position),
            }
        }
        rest
    }

    /// A block of the ring.
    fn block(&mut self, position: u64) -> Result<&[u8]> {
        let bytes = self.layout.block_bytes() as usize;
        let (start, window) = &self.window;
        let end = start + (window.len() / bytes) as u64;
        if !(*start..end).contains(&position) {
            // What lies behind the tail was read at first.
            let end = if position < self.tail {
                self.tail
            } else {
                self.blocks
            };
            let mut blocks = ((WINDOW_BYTES / bytes).max(1) as u64).min(end - position);
            let first = self.layout.block_of(self.layout.journal().start) + position;
            let mut window = vec![0; usize::try_from(blocks).expect("a window") * bytes];
            while let Err(error) = read_blocks(self.lanes, first, &mut window) {
                // One bad block must not cost its neighbours.
                if blocks == 1 {
                    return Err(error);
                }
                blocks /= 2;
                window.truncate(usize::try_from(blocks).expect("a window") * bytes);
            }
            self.window = (position, window);
        }
        let (start, window) = &self.window;
        let at = usize::try_from(position - start).expect("within the window") * bytes;
        Ok(&window[at..at + bytes])
    }
}
