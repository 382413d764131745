//! What is measured, and by which loop.

pub(crate) mod driver;
pub(crate) mod kernel;
pub(crate) mod served;

use std::error::Error;
use std::time::{Duration, Instant};

use millrace_random::Random;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// Bytes of a read.
pub(crate) const BLOCK: usize = 4096;
/// Blocks that are read from: 256 MiB.
pub(crate) const BLOCKS: u64 = 64 << 10;
/// The most reads in flight.
pub(crate) const DEPTH_MAX: u16 = 128;

/// How long a side runs in a round.
const ROUND: Duration = Duration::from_millis(400);
/// Reads, at least, after which the clock is looked at.
const READS_BETWEEN_LOOKS: usize = 256;

/// Something that reads blocks.
pub(crate) trait Side {
    /// What it is called in the table.
    fn name(&self) -> &str;

    /// Where the blocks lie.
    fn medium(&self) -> String;

    /// Reads for the time of a round, with so many in flight.
    fn run(&mut self, depth: u16) -> Outcome<Span>;
}

/// What was done, and how long it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) reads: u64,
    /// How often some of them were found to have ended.
    pub(crate) turns: u64,
    pub(crate) time: Duration,
}

impl Span {
    /// Calls `turn` for the time of a round. It returns how many reads ended, and has begun as many others.
    pub(crate) fn of_round(mut turn: impl FnMut() -> Outcome<usize>) -> Outcome<Self> {
        let start = Instant::now();
        let (mut reads, mut turns) = (0, 0);
        loop {
            let mut ended = 0;
            while ended < READS_BETWEEN_LOOKS {
                let count = turn()?;
                turns += u64::from(count > 0);
                ended += count;
            }
            reads += ended as u64;
            let time = start.elapsed();
            if time >= ROUND {
                return Ok(Self { reads, turns, time });
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub(crate) fn ns_a_read(self) -> f64 {
        self.time.as_secs_f64() * 1e9 / self.reads as f64
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub(crate) fn reads_a_turn(self) -> f64 {
        self.reads as f64 / self.turns as f64
    }
}

/// Draws of blocks: the same for all sides.
#[derive(Debug)]
pub(crate) struct Draws(Random);

impl Draws {
    pub(crate) const fn new() -> Self {
        Self(Random::new(0))
    }

    /// A block below `blocks`.
    pub(crate) fn next(&mut self, blocks: u64) -> u64 {
        self.0.below(blocks)
    }
}

/// What is written to a block before the blocks are read: its number, and again something of it to the end.
pub(crate) fn fill(block: u64, bytes: &mut [u8]) {
    let byte = u8::try_from(block % 251).expect("it is less than 251");
    bytes.fill(byte);
    bytes[..8].copy_from_slice(&block.to_le_bytes());
}

/// Fails if `bytes` are not what was written to the block.
pub(crate) fn check(block: u64, bytes: &[u8]) -> Outcome<()> {
    let mut expected = [0; BLOCK];
    fill(block, &mut expected);
    if bytes == expected {
        return Ok(());
    }
    Err(format!("block {block} was read wrong").into())
}
