//! Test with random requests against a model in memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use millrace_memory::Arena;

use super::{arena, filled, run};
use crate::{Completion, Deallocation, Device, Geometry, Lba, Operation, Queue, Request};

/// Number of requests in one run.
const STEPS: u64 = 400;
/// Number of blocks in the run: half at the start of the device, half at its end.
const BLOCKS: u64 = 160;

/// Random requests on two queues, several in flight. Two requests in flight share a block only if both read. Each read
/// must return the bytes written last.
pub fn random_operations_match_bytes(device: &Arc<dyn Device>, seed: u64) {
    let mut run = Run::new(&**device, seed);
    for _ in 0..STEPS {
        match run.below(8) {
            0..5 => run.submit(),
            5..7 => run.poll(),
            _ => run.run_one(),
        }
    }
    run.finish();
}

struct Run<'a> {
    geometry: &'a Geometry,
    arena: Arena,
    queues: [Box<dyn Queue>; 2],
    /// Byte of each block; none where it is unknown.
    model: Vec<Option<u8>>,
    /// By token: the queue, the operation, the blocks, and the byte of a write.
    in_flight: BTreeMap<u64, (usize, Operation, Range<u64>, u8)>,
    draws: u64,
    tokens: u64,
    seed: u64,
}

impl<'a> Run<'a> {
    fn new(device: &'a dyn Device, seed: u64) -> Self {
        let queues = [0, 1].map(|_| device.queue().expect("a queue"));
        Self {
            geometry: device.geometry(),
            arena: arena(device),
            queues,
            model: vec![None; usize::try_from(BLOCKS).expect("few")],
            in_flight: BTreeMap::new(),
            draws: seed,
            tokens: 0,
            seed,
        }
    }

    /// A draw below `bound` (SplitMix64).
    fn below(&mut self, bound: u64) -> u64 {
        self.draws = self.draws.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.draws;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// Address of a block of the run; the second half lies at the end of the device.
    fn lba(&self, block: u64) -> Lba {
        let half = BLOCKS / 2;
        Lba(match block < half {
            true => block,
            false => self.geometry.blocks - BLOCKS + block,
        })
    }

    /// A request whose blocks no write in flight touches.
    fn draw(&mut self) -> Option<(Request, Range<u64>, u8)> {
        let half = BLOCKS / 2;
        let base = self.below(2) * half;
        let first = self.below(half);
        let longest = (self.geometry.transfer_bytes_max >> self.geometry.block_shift()) as u64;
        let count = match self.below(8) {
            0 => 1 + self.below(longest.min(half - first)),
            _ => 1 + self.below(16.min(half - first)),
        };
        let blocks = base + first..base + first + count;
        let token = self.tokens;
        let byte = u8::try_from(self.below(256)).expect("a byte");
        let bytes = usize::try_from(count).expect("few") << self.geometry.block_shift();
        let lba = self.lba(blocks.start);
        let kind = self.below(16);
        let is_read = kind < 6;
        let meets = |(_, operation, other, _): &(usize, Operation, Range<u64>, u8)| {
            let both_read = is_read && *operation == Operation::Read;
            !both_read && other.start < blocks.end && blocks.start < other.end
        };
        if self.in_flight.values().any(meets) {
            return None;
        }
        let arena = &self.arena;
        // Some are ranges of longer buffers.
        let buffer = |byte| {
            let start = match token % 3 {
                0 => self.geometry.block_bytes as usize,
                _ => 0,
            };
            let mut buffer = filled(arena, start + bytes, byte);
            buffer
                .set_range(start..start + bytes)
                .expect("so long it is");
            buffer
        };
        let request = match kind {
            0..6 => Request::read(lba, buffer(!byte), token),
            6..10 => Request::write(lba, buffer(byte), token),
            10..12 => Request::write_through(lba, buffer(byte), token),
            12 => Request::flush(token),
            13 if self.geometry.deallocation != Deallocation::None => {
                Request::deallocate(lba, count, token)
            }
            _ => Request::write_zeroes(lba, count, token),
        };
        self.tokens += 1;
        let blocks = if request.operation == Operation::Flush {
            0..0
        } else {
            blocks
        };
        Some((request, blocks, byte))
    }

    fn submit(&mut self) {
        // The arena has buffers for at most 6.
        if self.in_flight.len() >= 6.min(self.geometry.queue_depth) {
            return self.poll();
        }
        let queue = usize::try_from(self.below(2)).expect("few");
        if let Some((request, blocks, byte)) = self.draw() {
            let entry = (queue, request.operation, blocks, byte);
            self.in_flight.insert(request.token, entry);
            self.queues[queue]
                .submit(request)
                .expect("the request is valid");
        }
    }

    fn run_one(&mut self) {
        let idle = self.queues.iter().position(|queue| queue.in_flight() == 0);
        let (Some(queue), Some((request, blocks, byte))) = (idle, self.draw()) else {
            return;
        };
        self.in_flight
            .insert(request.token, (queue, request.operation, blocks, byte));
        let completion = run(&mut *self.queues[queue], request);
        self.completed(queue, completion);
    }

    fn poll(&mut self) {
        let queue = usize::try_from(self.below(2)).expect("few");
        let completion = match self.below(4) {
            0 => self.queues[queue].wait(),
            _ => self.queues[queue].poll(),
        };
        if let Some(completion) = completion {
            self.completed(queue, completion);
        }
    }

    fn completed(&mut self, queue: usize, completion: Completion) {
        let what = format!("seed {}, {completion:?}", self.seed);
        let asked = self.in_flight.remove(&completion.token);
        let (own, operation, blocks, byte) =
            asked.unwrap_or_else(|| panic!("not asked for: {what}"));
        assert_eq!(own, queue, "{what}");
        completion.result.expect("the device works");
        let first = usize::try_from(blocks.start).expect("few");
        let end = usize::try_from(blocks.end).expect("few");
        let model = &mut self.model[first..end];
        let known = match operation {
            Operation::Flush => return assert!(completion.buffer.is_none(), "{what}"),
            Operation::Read => {
                let buffer = completion.buffer.as_ref().expect("a read has a buffer");
                let block = self.geometry.block_bytes as usize;
                assert_eq!(buffer.len(), model.len() * block, "{what}");
                for (found, known) in buffer.chunks(block).zip(model) {
                    let Some(byte) = *known else { continue };
                    assert!(found.iter().all(|own| *own == byte), "not {byte}: {what}");
                }
                return;
            }
            Operation::Write | Operation::WriteThrough => Some(byte),
            Operation::Deallocate(_) => self.geometry.deallocated_reads_zero.then_some(0),
            Operation::WriteZeroes(_) => Some(0),
        };
        model.fill(known);
    }

    fn finish(mut self) {
        for queue in 0..2 {
            while let Some(completion) = self.queues[queue].wait() {
                self.completed(queue, completion);
            }
        }
        assert!(self.in_flight.is_empty(), "seed {}", self.seed);
        let block = self.geometry.block_bytes as usize;
        for index in 0..BLOCKS {
            let token = self.tokens;
            let request = Request::read(self.lba(index), filled(&self.arena, block, 1), token);
            self.in_flight
                .insert(token, (0, Operation::Read, index..index + 1, 0));
            let completion = run(&mut *self.queues[0], request);
            self.completed(0, completion);
        }
    }
}
