//! Sorted runs in scratch space, and their merge.
//!
//! # Format
//! An entry is a key and a payload, both of any length. It is laid out as one string of bytes and cut
//! into chunks, so that no limit of the engine on keys or values applies to it:
//! ```text
//! entry    := key_len u32 LE | payload_len u32 LE | key | payload
//! engine key   := run u32 BE | ordinal u64 BE       ordinal counts the chunks of the run
//! engine value := up to CHUNK_LEN bytes of the entry; an entry starts with a new chunk
//! ```
//! Scratch space does not outlive the process: there is no recovery, and nothing need be durable.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use millrace_engine::{Cursor, Scratch};
use millrace_value::{Error, ErrorCode, Operation, Result};

/// How many bytes of an entry go into one value of the engine.
const CHUNK_LEN: usize = 1024 * 1024;

/// The two lengths before an entry.
const HEADER_LEN: usize = 8;

/// Gives scratch space when a stage needs it.
pub type ScratchFactory = Box<dyn Fn() -> Result<Box<dyn Scratch>> + Send>;

/// Scratch space with some runs in it.
#[derive(Debug)]
pub struct Spill {
    scratch: Box<dyn Scratch>,
    run_count: u32,
}

impl Spill {
    /// Empty space.
    pub fn new(scratch: Box<dyn Scratch>) -> Self {
        Self {
            scratch,
            run_count: 0,
        }
    }

    /// Starts the next run. Its entries must be appended in ascending order of their keys.
    pub fn start_run(&mut self) -> RunWriter<'_> {
        let run = self.run_count;
        self.run_count += 1;
        RunWriter {
            scratch: self.scratch.as_mut(),
            run,
            ordinal: 0,
            buffer: Vec::new(),
        }
    }

    /// The entries of one run, in their order.
    pub fn run(&self, run: u32) -> Result<RunReader> {
        let mut cursor = self.scratch.cursor()?;
        let valid = cursor.seek(&engine_key(run, 0))?;
        Ok(RunReader { cursor, run, valid })
    }

    /// The entries of all runs in ascending order of their keys; equal keys in the order of the runs.
    pub fn merge(self) -> Result<Merge> {
        let mut merge = Merge {
            readers: Vec::new(),
            heads: BinaryHeap::new(),
            spill: self,
        };
        for run in 0..merge.spill.run_count {
            let reader = merge.spill.run(run)?;
            merge.readers.push(reader);
            merge.advance(run)?;
        }
        Ok(merge)
    }
}

/// Appends to one run.
#[derive(Debug)]
pub struct RunWriter<'a> {
    scratch: &'a mut dyn Scratch,
    run: u32,
    ordinal: u64,
    buffer: Vec<u8>,
}

impl RunWriter<'_> {
    /// Appends an entry, whose key is not less than the last one's.
    pub fn append(&mut self, operation: &Operation, key: &[u8], payload: &[u8]) -> Result<()> {
        operation.check()?;
        self.buffer.clear();
        self.buffer.extend_from_slice(&encode_len(key.len())?);
        self.buffer.extend_from_slice(&encode_len(payload.len())?);
        self.buffer.extend_from_slice(key);
        self.buffer.extend_from_slice(payload);
        for chunk in self.buffer.chunks(CHUNK_LEN) {
            self.scratch
                .put(&engine_key(self.run, self.ordinal), chunk)?;
            self.ordinal += 1;
        }
        Ok(())
    }
}

/// One entry of a run.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// What the run is sorted by.
    pub key: Vec<u8>,
    /// What goes with it.
    pub payload: Vec<u8>,
}

/// Reads one run from its beginning.
#[derive(Debug)]
pub struct RunReader {
    cursor: Box<dyn Cursor>,
    run: u32,
    valid: bool,
}

impl RunReader {
    /// Reads the next entry; none at the end of the run.
    pub fn read(&mut self) -> Result<Option<Entry>> {
        let Some(mut bytes) = self.chunk()? else {
            return Ok(None);
        };
        let (key_len, payload_len) = decode_header(&bytes).ok_or_else(damaged)?;
        let total = HEADER_LEN + key_len + payload_len;
        bytes.reserve(total.saturating_sub(bytes.len()));
        while bytes.len() < total {
            bytes.extend_from_slice(&self.chunk()?.ok_or_else(damaged)?);
        }
        let payload = bytes.split_off(HEADER_LEN + key_len);
        bytes.drain(..HEADER_LEN);
        Ok(Some(Entry {
            key: bytes,
            payload,
        }))
    }

    fn chunk(&mut self) -> Result<Option<Vec<u8>>> {
        if !self.valid || !self.cursor.key().starts_with(&self.run.to_be_bytes()) {
            self.valid = false;
            return Ok(None);
        }
        let chunk = self.cursor.value().to_vec();
        self.valid = self.cursor.next()?;
        Ok(Some(chunk))
    }
}

/// An entry of a run that waits to be merged: its key, its run, its payload.
type Head = Reverse<(Vec<u8>, u32, Vec<u8>)>;

/// Merges runs. It owns the scratch space, which is freed with it.
#[derive(Debug)]
pub struct Merge {
    readers: Vec<RunReader>,
    /// The least entry of every run that has one left. The number of the run comes after the key, so
    /// that equal keys come out in the order in which they were written.
    heads: BinaryHeap<Head>,
    spill: Spill,
}

impl Merge {
    /// The next entry in order.
    pub fn next(&mut self, operation: &Operation) -> Result<Option<Entry>> {
        operation.check()?;
        let Some(Reverse((key, run, payload))) = self.heads.pop() else {
            return Ok(None);
        };
        self.advance(run)?;
        Ok(Some(Entry { key, payload }))
    }

    /// The key of the entry that [`next`](Self::next) would return.
    pub fn peek_key(&self) -> Option<&[u8]> {
        self.heads.peek().map(|Reverse((key, _, _))| key.as_slice())
    }

    /// Memory held: one entry a run.
    pub fn memory_bytes(&self) -> usize {
        self.heads
            .iter()
            .map(|Reverse((key, _, payload))| key.len() + payload.len())
            .sum()
    }

    fn advance(&mut self, run: u32) -> Result<()> {
        let index = usize::try_from(run).expect("invariant: a run's number is an index");
        if let Some(entry) = self.readers[index].read()? {
            self.heads.push(Reverse((entry.key, run, entry.payload)));
        }
        Ok(())
    }
}

fn engine_key(run: u32, ordinal: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&run.to_be_bytes());
    key[4..].copy_from_slice(&ordinal.to_be_bytes());
    key
}

fn encode_len(len: usize) -> Result<[u8; 4]> {
    u32::try_from(len).map(u32::to_le_bytes).map_err(|_| {
        Error::new(
            ErrorCode::ExceededMemoryLimit,
            "a value is too large to be spilled to disk",
        )
    })
}

fn decode_header(bytes: &[u8]) -> Option<(usize, usize)> {
    let (key_len, rest) = bytes.split_first_chunk::<4>()?;
    let (payload_len, _) = rest.split_first_chunk::<4>()?;
    let len = |bytes: &[u8; 4]| usize::try_from(u32::from_le_bytes(*bytes)).ok();
    Some((len(key_len)?, len(payload_len)?))
}

fn damaged() -> Error {
    Error::new(
        ErrorCode::InternalError,
        "scratch space does not hold what was written to it",
    )
}
