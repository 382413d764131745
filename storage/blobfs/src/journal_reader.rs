//! Reader of the transactions that no checkpoint contains.

use crate::Result;
use crate::format::superblock::Superblock;
use crate::format::transaction::{Header, probe};
use crate::format::{Layout, VolumeKey};
use crate::io::read_blocks;
use crate::io_context::IoContexts;

/// Bytes of one read of the journal, so that many small transactions take few reads.
const WINDOW_BYTES: usize = 1 << 20;

/// Contents of the ring after the end of the journal.
#[derive(Debug, Default)]
pub(crate) struct JournalRemainder {
    /// Highest number of a transaction later than the one expected next.
    pub(crate) beyond: Option<u64>,
    /// Positions of unreadable blocks, in ring order.
    pub(crate) unreadable: Vec<u64>,
}

pub(crate) struct JournalReader<'a> {
    io_contexts: &'a IoContexts,
    layout: Layout,
    key: VolumeKey,
    /// Blocks of the ring.
    blocks: u64,
    /// Block of the ring at which the journal begins.
    tail: u64,
    head: u64,
    used: u64,
    expected: u64,
    /// Blocks read last: position of the first, and their bytes.
    window: (u64, Vec<u8>),
    transaction: Vec<u8>,
}

impl<'a> JournalReader<'a> {
    /// A reader that begins at the superblock's journal tail.
    pub(crate) fn new(io_contexts: &'a IoContexts, superblock: &Superblock) -> Self {
        Self {
            io_contexts,
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

    /// Block at which the next transaction would begin.
    pub(crate) const fn head(&self) -> u64 {
        self.head
    }

    /// Blocks of the transactions read so far.
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

    /// Searches the rest of the ring for transactions later than the one expected next. A power cut leaves none,
    /// because each transaction is on the medium before the next is written.
    pub(crate) fn probe_rest(&mut self) -> JournalRemainder {
        let (key, expected) = (self.key, self.expected);
        let mut rest = JournalRemainder::default();
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

    /// The block of the ring at `position`.
    fn block(&mut self, position: u64) -> Result<&[u8]> {
        let bytes = self.layout.block_bytes() as usize;
        let (start, window) = &self.window;
        let end = start + (window.len() / bytes) as u64;
        if !(*start..end).contains(&position) {
            // Blocks before the tail were read at the start, as part of the window from the tail on.
            let end = if position < self.tail {
                self.tail
            } else {
                self.blocks
            };
            let mut blocks = ((WINDOW_BYTES / bytes).max(1) as u64).min(end - position);
            let first = self.layout.block_of(self.layout.journal().start) + position;
            let mut window = vec![0; usize::try_from(blocks).expect("a window") * bytes];
            while let Err(error) = read_blocks(self.io_contexts, first, &mut window) {
                // One unreadable block must not make its neighbours unreadable.
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
