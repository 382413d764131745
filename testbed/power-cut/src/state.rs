//! What all queues of a device share.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use millrace_block::{Completion, Error, ErrorKind, Geometry, Image, Operation, Request};
use millrace_random::Random;

use crate::block_set::BlockSet;
use crate::materialise::write_anything;
use crate::pieces::pieces;
use crate::record::{Asked, Content, Moment, NEVER, Record};
use crate::{Counters, Fault, Kind, Order};

/// A request that a queue has taken.
#[derive(Debug)]
struct InFlight {
    request: Request,
    /// In the record; reads are not there.
    number: Option<usize>,
    /// How it will fail.
    error: Option<ErrorKind>,
    /// Whether it was done.
    applied: bool,
}

/// All of a device that changes.
#[derive(Debug)]
pub(crate) struct State {
    /// What reads see.
    pub(crate) live: Image,
    pub(crate) record: Record,
    clock: Moment,
    order: Order,
    random: Random,
    /// By queue, as they were submitted.
    in_flight: BTreeMap<u64, VecDeque<InFlight>>,
    queues: u64,
    pub(crate) faults: Vec<Fault>,
    pub(crate) bad: BlockSet,
    pub(crate) counters: Counters,
}

impl State {
    pub(crate) fn new(geometry: Geometry, image: Image, order: Order) -> Self {
        let seed = match order {
            Order::AtOnce => 0,
            Order::Shuffled(seed) => seed,
        };
        Self {
            live: image.clone(),
            record: Record::new(geometry, image),
            clock: 0,
            order,
            random: Random::new(seed),
            in_flight: BTreeMap::new(),
            queues: 0,
            faults: Vec::new(),
            bad: BlockSet::default(),
            counters: Counters::default(),
        }
    }

    /// What is seen now is on the medium, and the record is empty.
    pub(crate) fn settle(&mut self) {
        let idle = self.in_flight.values().all(VecDeque::is_empty);
        assert!(idle, "a record begins while nothing is in flight");
        let geometry = self.record.geometry.clone();
        self.record = Record::new(geometry, self.live.clone());
    }

    pub(crate) fn add_queue(&mut self) -> u64 {
        self.queues += 1;
        self.in_flight.insert(self.queues, VecDeque::new());
        self.queues
    }

    /// Takes a request that was checked.
    pub(crate) fn submit(&mut self, queue: u64, request: Request, data: Option<Arc<[u8]>>) {
        let kind = Kind::of(request.operation);
        let blocks = self.blocks(&request);
        let shift = self.record.geometry.block_shift();
        self.counters
            .add(kind, (blocks.end - blocks.start) << shift);
        let error = self.fault(kind, &blocks);
        let content = match (request.operation, data) {
            (Operation::Deallocate(_), _) if !self.record.geometry.deallocated_reads_zero => {
                Content::Anything
            }
            (_, Some(bytes)) => Content::Bytes(bytes),
            (_, None) => Content::Zeros,
        };
        let number = (kind != Kind::Read).then(|| {
            let asked = Asked {
                kind,
                blocks,
                content,
                submitted: self.clock,
                applied: NEVER,
                completed: NEVER,
                failed: error.is_some(),
            };
            self.clock += 1;
            self.record.submitted(asked)
        });
        let mut taken = InFlight {
            request,
            number,
            error,
            applied: false,
        };
        if self.order == Order::AtOnce {
            self.apply(&mut taken);
        }
        self.queue(queue).push_back(taken);
    }

    /// What the queue has finished by now; `must` if it is to finish something.
    pub(crate) fn poll(&mut self, queue: u64, must: bool) -> Option<Completion> {
        if self.order == Order::AtOnce {
            let ended = self.queue(queue).pop_front()?;
            return Some(self.complete(ended));
        }
        for _ in 0..self.random.below(3) {
            self.apply_any();
        }
        let mut own = std::mem::take(self.queue(queue));
        let mut ready: Vec<usize> = (0..own.len()).filter(|at| own[*at].applied).collect();
        if must && ready.is_empty() && !own.is_empty() {
            let at = self.random.index(own.len());
            self.apply(&mut own[at]);
            ready.push(at);
        }
        let ended = if !ready.is_empty() && (must || self.random.chance(1, 2)) {
            own.remove(ready[self.random.index(ready.len())])
        } else {
            None
        };
        *self.queue(queue) = own;
        ended.map(|ended| self.complete(ended))
    }

    /// Ends all that the queue has, and the queue.
    pub(crate) fn remove_queue(&mut self, queue: u64) {
        while self.poll(queue, true).is_some() {}
        self.in_flight.remove(&queue);
    }

    fn queue(&mut self, queue: u64) -> &mut VecDeque<InFlight> {
        let found = self.in_flight.get_mut(&queue);
        found.expect("a queue is there until it is dropped")
    }

    /// Does one of the requests of all queues that were not done.
    fn apply_any(&mut self) {
        let mut waiting = Vec::new();
        for (queue, requests) in &self.in_flight {
            let unapplied = requests.iter().enumerate().filter(|(_, one)| !one.applied);
            waiting.extend(unapplied.map(|(at, _)| (*queue, at)));
        }
        if waiting.is_empty() {
            return;
        }
        let (queue, at) = waiting[self.random.index(waiting.len())];
        let mut requests = std::mem::take(self.queue(queue));
        self.apply(&mut requests[at]);
        *self.queue(queue) = requests;
    }

    fn apply(&mut self, taken: &mut InFlight) {
        taken.applied = true;
        if let Some(number) = taken.number {
            self.record.asked[number].applied = self.clock;
            self.clock += 1;
            self.change(number);
            return;
        }
        let offset = taken.request.lba.0 << self.record.geometry.block_shift();
        let Some(buffer) = &mut taken.request.buffer else {
            return;
        };
        if taken.error.is_some() {
            // Random bytes: software that uses the data of a failed read is caught.
            self.random.fill(buffer);
        } else {
            self.live.read(offset, buffer);
        }
    }

    /// Does what a recorded request says; one that fails does any part of it.
    fn change(&mut self, number: usize) {
        let geometry = &self.record.geometry;
        let shift = geometry.block_shift();
        let Asked {
            kind,
            blocks,
            content,
            failed,
            ..
        } = &self.record.asked[number];
        if !kind.changes() {
            return;
        }
        let parts: Vec<Range<u64>> = if *failed {
            let pieces = pieces(blocks.clone(), geometry.atomic_blocks);
            pieces.filter(|_| self.random.chance(1, 2)).collect()
        } else {
            vec![blocks.clone()]
        };
        for part in parts {
            let offset = part.start << shift;
            let len = (part.end - part.start) << shift;
            match content {
                Content::Bytes(bytes) => {
                    let at = (part.start - blocks.start) << shift;
                    let at = usize::try_from(at).expect("within the data");
                    let end = at + usize::try_from(len).expect("within the data");
                    self.live.write(offset, &bytes[at..end]);
                }
                Content::Zeros => self.live.zero(offset, len),
                Content::Anything => {
                    write_anything(&mut self.live, shift, &part, &mut self.random);
                }
            }
        }
    }

    fn complete(&mut self, ended: InFlight) -> Completion {
        if let Some(number) = ended.number {
            self.record.completed(number, self.clock);
            self.clock += 1;
        }
        let result = match ended.error {
            None => Ok(()),
            Some(kind) => {
                let what = format!("{:?} was to fail", ended.request.operation);
                Err(Error::new(kind, what))
            }
        };
        Completion {
            token: ended.request.token,
            result,
            buffer: ended.request.buffer,
        }
    }

    /// How the request that comes now fails, if it does.
    fn fault(&mut self, kind: Kind, blocks: &Range<u64>) -> Option<ErrorKind> {
        let mut error = None;
        for fault in &mut self.faults {
            // Each counts.
            if fault.meets(kind) {
                error = error.or(Some(fault.error));
            }
        }
        let is_bad = kind == Kind::Read && self.bad.meets(blocks);
        error.or(is_bad.then_some(ErrorKind::Medium))
    }

    fn blocks(&self, request: &Request) -> Range<u64> {
        let count = match (request.operation, &request.buffer) {
            (Operation::Deallocate(blocks) | Operation::WriteZeroes(blocks), _) => blocks,
            (Operation::Flush, _) => return 0..0,
            (_, Some(buffer)) => buffer.len() as u64 >> self.record.geometry.block_shift(),
            (_, None) => 0,
        };
        request.lba.0..request.lba.0 + count
    }
}
