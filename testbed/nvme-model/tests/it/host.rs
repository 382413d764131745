//! The smallest host that there can be, with offsets of its own, written from the specification.

use std::sync::Arc;

use millrace_memory::{Arena, ArenaOptions, DeviceMemory, Pages, SizeClass};
use millrace_nvme_model::{Controller, Options, Rule};
use millrace_pci::{Bar, Function};

/// Bytes of the memory that the controller may reach, and where its parts are.
pub(crate) const MEMORY: usize = 4 << 20;
pub(crate) const LISTS: usize = 0x8_0000;
pub(crate) const DATA: usize = 0x10_0000;
const QUEUES: usize = 0x1_0000;

/// Entries of every queue here.
pub(crate) const ENTRIES: u32 = 64;

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) result: u32,
    pub(crate) head: u16,
    pub(crate) queue: u16,
    pub(crate) id: u16,
    /// Code in bits 7:0, type in 10:8, more in 13, do not retry in 14.
    pub(crate) status: u16,
}

impl Completion {
    pub(crate) fn code(&self) -> u16 {
        self.status & 0x7ff
    }
}

#[derive(Debug)]
struct Queue {
    submission: usize,
    completion: usize,
    tail: u32,
    head: u32,
    phase: u32,
}

pub(crate) struct Host {
    pub(crate) controller: Controller,
    pub(crate) function: Arc<dyn Function>,
    pub(crate) bar: Arc<Bar>,
    pub(crate) memory: DeviceMemory,
    queues: Vec<Queue>,
    next_id: u16,
}

/// Steps after which nothing more is expected.
const PATIENCE: usize = 10_000;

impl Host {
    /// A host whose controller is not enabled yet.
    pub(crate) fn new(options: Options) -> Self {
        let controller = Controller::new(options).expect("the options are sound");
        Self::of(controller)
    }

    fn of(controller: Controller) -> Self {
        let function = controller.function();
        Self::with_function(controller, function)
    }

    /// A host of the same controller, wherever the function is.
    pub(crate) fn with_function(controller: Controller, function: Arc<dyn Function>) -> Self {
        let host = Self {
            bar: function.bar(0).expect("BAR 0 is there"),
            memory: map(&function, MEMORY),
            controller,
            function,
            queues: Vec::new(),
            next_id: 0,
        };
        host.function
            .set_bus_master(true)
            .expect("the model is there");
        host
    }

    /// A host that can use admin and I/O queue 1.
    pub(crate) fn ready(options: Options) -> Self {
        let mut host = Self::new(options);
        host.enable();
        host.create_queues(1);
        host
    }

    /// Memory that can be unmapped alone.
    pub(crate) fn more_memory(&self) -> DeviceMemory {
        map(&self.function, 64 << 10)
    }

    pub(crate) fn address(&self, offset: usize) -> u64 {
        self.memory.iova().0 + offset as u64
    }

    pub(crate) fn register(&self, offset: u64) -> u32 {
        let register = self.bar.register(offset).expect("it is there");
        register.load().expect("the model answers")
    }

    pub(crate) fn set_register(&self, offset: u64, value: u32) {
        let register = self.bar.register(offset).expect("it is there");
        register.store_released(value).expect("the model answers");
    }

    fn set_long(&self, offset: u64, value: u64) {
        let stored = self.bar.store_long(offset, value);
        stored.expect("the model answers");
    }

    pub(crate) fn wait(&self, mut done: impl FnMut(&Self) -> bool) {
        for _ in 0..PATIENCE {
            if done(self) {
                return;
            }
            self.controller.step();
        }
        panic!("nothing happened in {PATIENCE} steps");
    }

    /// Sets the admin queues up and enables the controller.
    pub(crate) fn enable(&mut self) {
        self.queues = vec![self.queue(0)];
        let attributes = (ENTRIES - 1) << 16 | (ENTRIES - 1);
        self.set_register(0x24, attributes);
        let (submission, completion) = (self.queues[0].submission, self.queues[0].completion);
        self.set_long(0x28, self.address(submission));
        self.set_long(0x30, self.address(completion));
        self.set_register(0x14, 4 << 20 | 6 << 16 | 1);
        self.wait(|host| host.register(0x1c) & 3 != 0);
        assert_eq!(self.register(0x1c), 1, "ready and not fatal");
    }

    /// CSTS.SHST: 1 while a shutdown occurs, 2 when it is complete.
    pub(crate) fn shutdown_status(&self) -> u32 {
        self.register(0x1c) >> 2 & 3
    }

    pub(crate) fn disable(&mut self) {
        self.set_register(0x14, 4 << 20 | 6 << 16);
        self.wait(|host| host.register(0x1c) & 1 == 0);
    }

    /// A fresh queue pair's memory.
    fn queue(&self, id: usize) -> Queue {
        let submission = QUEUES + id * 0x4000;
        for word in (0..0x4000).step_by(8) {
            self.memory.store_u64(submission + word, 0);
        }
        Queue {
            submission,
            completion: submission + 0x2000,
            tail: 0,
            head: 0,
            phase: 1,
        }
    }

    pub(crate) fn create_queues(&mut self, count: usize) {
        for id in 1..=count {
            let queue = self.queue(id);
            let number = u32::try_from(id).expect("few queues");
            let size = (ENTRIES - 1) << 16 | number;
            let mut create = command(0x05, 0);
            set_prp(&mut create, self.address(queue.completion), 0);
            (create[10], create[11]) = (size, number << 16 | 3);
            assert_eq!(self.admin(create).status, 0);
            let mut create = command(0x01, 0);
            set_prp(&mut create, self.address(queue.submission), 0);
            (create[10], create[11]) = (size, number << 16 | 1);
            assert_eq!(self.admin(create).status, 0);
            self.queues.push(queue);
        }
    }

    /// Writes a command with an identifier of its own and rings; returns the identifier.
    pub(crate) fn submit(&mut self, queue: usize, command: [u32; 16]) -> u16 {
        self.next_id = self.next_id.wrapping_add(1) & 0x7fff;
        self.submit_as(queue, self.next_id, command)
    }

    pub(crate) fn submit_as(&mut self, queue: usize, id: u16, command: [u32; 16]) -> u16 {
        self.write_entry(queue, self.queues[queue].tail, id, command);
        let to = &mut self.queues[queue];
        to.tail = (to.tail + 1) % ENTRIES;
        let tail = to.tail;
        self.ring(queue * 2, tail);
        id
    }

    /// Writes a submission queue entry and does not ring.
    pub(crate) fn write_entry(&self, queue: usize, at: u32, id: u16, mut command: [u32; 16]) {
        command[0] |= u32::from(id) << 16;
        let at = self.queues[queue].submission + size(at) * 64;
        for (number, word) in command.iter().enumerate() {
            self.memory.store_u32(at + number * 4, *word);
        }
    }

    pub(crate) fn ring(&self, doorbell: usize, value: u32) {
        let stride = 4 << (self.register(0x04) & 0xf);
        self.set_register(0x1000 + doorbell as u64 * stride, value);
    }

    /// The next completion of a queue, if it is there. The controller is not told that it was taken.
    pub(crate) fn peek(&mut self, queue: usize) -> Option<Completion> {
        let from = &mut self.queues[queue];
        let at = from.completion + size(from.head) * 16;
        let last = self.memory.load_u32(at + 12);
        if last >> 16 & 1 != from.phase {
            return None;
        }
        let third = self.memory.load_u32(at + 8);
        let completion = Completion {
            result: self.memory.load_u32(at),
            head: low(third),
            queue: high(third),
            id: low(last),
            status: high(last) >> 1,
        };
        from.head = (from.head + 1) % ENTRIES;
        from.phase ^= u32::from(from.head == 0);
        Some(completion)
    }

    /// The same, and tells it.
    pub(crate) fn poll(&mut self, queue: usize) -> Option<Completion> {
        let completion = self.peek(queue)?;
        let head = self.queues[queue].head;
        self.ring(queue * 2 + 1, head);
        Some(completion)
    }

    pub(crate) fn next(&mut self, queue: usize) -> Completion {
        for _ in 0..PATIENCE {
            if let Some(completion) = self.poll(queue) {
                return completion;
            }
            self.controller.step();
        }
        panic!("no completion in {PATIENCE} steps");
    }

    /// Gives a command and waits for its end.
    pub(crate) fn run(&mut self, queue: usize, command: [u32; 16]) -> Completion {
        let id = self.submit(queue, command);
        let completion = self.next(queue);
        assert_eq!(completion.id, id);
        assert_eq!(usize::from(completion.queue), queue);
        completion
    }

    pub(crate) fn admin(&mut self, command: [u32; 16]) -> Completion {
        self.run(0, command)
    }

    pub(crate) fn identify(&mut self, cns: u32, namespace: u32) -> Completion {
        let mut identify = command(0x06, namespace);
        set_prp(&mut identify, self.address(DATA), 0);
        identify[10] = cns;
        self.admin(identify)
    }

    /// Reads or writes `blocks` blocks of `size` bytes at `DATA`.
    pub(crate) fn transfer(
        &mut self,
        opcode: u32,
        first: u64,
        blocks: u32,
        block_size: usize,
    ) -> [u32; 16] {
        let mut transfer = command(opcode, 1);
        self.set_data(&mut transfer, size(blocks) * block_size);
        set_blocks(&mut transfer, first, blocks);
        transfer
    }

    /// Names `length` bytes from `DATA` on by PRP entries.
    pub(crate) fn set_data(&mut self, command: &mut [u32; 16], length: usize) {
        let first = self.address(DATA);
        let pages = length.div_ceil(4096);
        let second = match pages {
            0 | 1 => 0,
            2 => first + 4096,
            _ => {
                for page in 1..pages {
                    let entry = first + page as u64 * 4096;
                    self.memory.store_u64(LISTS + (page - 1) * 8, entry);
                }
                self.address(LISTS)
            }
        };
        set_prp(command, first, second);
    }

    pub(crate) fn fill(&self, length: usize, seed: u64) {
        for at in (0..length).step_by(8) {
            self.memory.store_u64(DATA + at, pattern(seed, at));
        }
    }

    pub(crate) fn holds(&self, length: usize, seed: u64) -> bool {
        (0..length)
            .step_by(8)
            .all(|at| self.memory.load_u64(DATA + at) == pattern(seed, at))
    }

    pub(crate) fn byte(&self, offset: usize) -> u8 {
        let word = self.memory.load_u32(DATA + offset / 4 * 4);
        word.to_le_bytes()[offset % 4]
    }

    /// The rules that the host broke, in their order; forgets them.
    pub(crate) fn broken_rules(&self) -> Vec<Rule> {
        let violations = self.controller.violations();
        self.controller.clear_records();
        violations.iter().map(|violation| violation.rule).collect()
    }

    /// Asserts that the host did nothing wrong.
    pub(crate) fn assert_lawful(&self) {
        assert_eq!(self.controller.violations(), []);
        assert_eq!(self.controller.dma_faults(), []);
    }
}

fn map(function: &Arc<dyn Function>, size: usize) -> DeviceMemory {
    let options = ArenaOptions {
        classes: vec![SizeClass { size, count: 1 }],
        pages: Pages::Base,
        node: None,
        locked: true,
    };
    let arena = Arena::new(function.domain(), &options).expect("so little can be locked");
    let buffer = arena.try_buffer(size).expect("the only buffer is free");
    buffer.into_device_memory()
}

pub(crate) fn command(opcode: u32, namespace: u32) -> [u32; 16] {
    let mut command = [0; 16];
    (command[0], command[1]) = (opcode, namespace);
    command
}

pub(crate) fn set_prp(command: &mut [u32; 16], first: u64, second: u64) {
    (command[6], command[7]) = halves(first);
    (command[8], command[9]) = halves(second);
}

pub(crate) fn set_blocks(command: &mut [u32; 16], first: u64, blocks: u32) {
    (command[10], command[11]) = halves(first);
    command[12] = blocks - 1;
}

pub(crate) fn halves(value: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    (
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    )
}

pub(crate) fn pattern(seed: u64, at: usize) -> u64 {
    (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (at as u64 + 1).wrapping_mul(0x1234_5677)
}

fn size(count: u32) -> usize {
    usize::try_from(count).expect("32 bits fit")
}

fn low(word: u32) -> u16 {
    (word & 0xffff) as u16
}

fn high(word: u32) -> u16 {
    (word >> 16) as u16
}
