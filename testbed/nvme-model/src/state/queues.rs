//! Queues: what was announced is fetched, what is done is posted (base specification 1.4, section 4.1).

use std::collections::VecDeque;

use crate::command::Command;
use crate::host::Table;
use crate::status::Status;
use crate::violation::Rule;

use super::features::ShadowBuffers;
use super::{Event, State};

/// Bytes of a submission and a completion queue entry.
const SUBMISSION_ENTRY: u64 = 64;
const COMPLETION_ENTRY: u64 = 16;

/// Where commands come from.
#[derive(Debug)]
pub(super) struct SubmissionQueue {
    id: u16,
    base: u64,
    size: u32,
    head: u32,
    tail: u32,
    /// The head that the host knows of.
    reported: u32,
    pub(super) completion: u16,
    in_flight: IdSet,
    /// Whether the shadow doorbell is looked at without a doorbell being rung.
    awake: bool,
}

/// Where completions go.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    id: u16,
    base: u64,
    size: u32,
    head: u32,
    tail: u32,
    phase: bool,
    pub(super) vector: Option<u16>,
    /// Completions for which there is no room.
    backlog: VecDeque<Completion>,
    /// How many submission queues complete here.
    pub(super) users: u32,
    interrupt: bool,
}

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) queue: u16,
    pub(super) id: u16,
    pub(super) status: Status,
    pub(super) result: u32,
}

/// The identifiers in flight.
#[derive(Debug)]
struct IdSet {
    words: Box<[u64]>,
    count: u32,
}

impl IdSet {
    fn new() -> Self {
        Self {
            words: vec![0; 1 << 10].into_boxed_slice(),
            count: 0,
        }
    }

    /// Returns whether it was new.
    #[inline]
    fn insert(&mut self, id: u16) -> bool {
        let word = &mut self.words[usize::from(id >> 6)];
        let bit = 1 << (id & 63);
        let is_new = *word & bit == 0;
        *word |= bit;
        self.count += u32::from(is_new);
        is_new
    }

    #[inline]
    fn remove(&mut self, id: u16) {
        let word = &mut self.words[usize::from(id >> 6)];
        let bit = 1 << (id & 63);
        self.count -= u32::from(*word & bit != 0);
        *word &= !bit;
    }

    fn contains(&self, id: u16) -> bool {
        self.words[usize::from(id >> 6)] & 1 << (id & 63) != 0
    }
}

impl SubmissionQueue {
    pub(super) fn new(id: u16, base: u64, size: u32, completion: u16) -> Self {
        Self {
            id,
            base,
            size,
            head: 0,
            tail: 0,
            reported: 0,
            completion,
            in_flight: IdSet::new(),
            awake: true,
        }
    }

    pub(super) fn has_in_flight(&self, id: u16) -> bool {
        self.in_flight.contains(id)
    }

    /// Entries from `from` up to `to`.
    #[inline]
    const fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from {
            to - from
        } else {
            self.size - from + to
        }
    }

    /// Takes a new tail; false if the host may not have written it.
    #[inline]
    fn announce(&mut self, tail: u32) -> Result<(), (Rule, String)> {
        if tail >= self.size {
            let detail = format!("tail {tail:#x} of queue {} of {}", self.id, self.size);
            return Err((Rule::DoorbellValue, detail));
        }
        let added = self.distance(self.tail, tail);
        let room = self.size - 1 - self.distance(self.reported, self.tail);
        self.tail = tail;
        if added > room {
            let detail = format!("queue {}: {added} entries where {room} were free", self.id);
            return Err((Rule::SubmissionOverrun, detail));
        }
        Ok(())
    }
}

impl CompletionQueue {
    pub(super) fn new(id: u16, base: u64, size: u32, vector: Option<u16>) -> Self {
        Self {
            id,
            base,
            size,
            head: 0,
            tail: 0,
            phase: true,
            vector,
            backlog: VecDeque::new(),
            users: 0,
            interrupt: false,
        }
    }

    #[inline]
    const fn used(&self) -> u32 {
        if self.tail >= self.head {
            self.tail - self.head
        } else {
            self.size - self.head + self.tail
        }
    }

    #[inline]
    pub(super) const fn is_full(&self) -> bool {
        self.used() + 1 >= self.size
    }

    /// Takes a new head.
    #[inline]
    fn release(&mut self, head: u32) -> Result<(), (Rule, String)> {
        if head >= self.size {
            let detail = format!("head {head:#x} of queue {} of {}", self.id, self.size);
            return Err((Rule::DoorbellValue, detail));
        }
        let freed = if head >= self.head {
            head - self.head
        } else {
            self.size - self.head + head
        };
        if freed > self.used() {
            let detail = format!(
                "queue {}: {freed} entries taken of {} posted",
                self.id,
                self.used()
            );
            return Err((Rule::CompletionHead, detail));
        }
        self.head = head;
        Ok(())
    }

    /// Writes two words as the next entry, with the phase that is due, and moves on.
    pub(super) fn write(
        &mut self,
        host: &Table,
        low: u64,
        high: u64,
    ) -> Result<(), crate::host::DmaFault> {
        let address = self.base + u64::from(self.tail) * COMPLETION_ENTRY;
        let phase = u64::from(self.phase) << 48;
        host.write_entry(address, [low, high & !(1 << 48) | phase])?;
        self.tail += 1;
        if self.tail == self.size {
            self.tail = 0;
            self.phase = !self.phase;
        }
        self.interrupt = self.vector.is_some();
        Ok(())
    }

    /// Writes an entry as it is, `ahead` of the next one, and does not move on.
    pub(super) fn scribble(
        &self,
        host: &Table,
        ahead: u32,
        entry: [u64; 2],
    ) -> Result<(), crate::host::DmaFault> {
        let at = (self.tail + ahead) % self.size;
        host.write_entry(self.base + u64::from(at) * COMPLETION_ENTRY, entry)
    }

    pub(super) const fn size(&self) -> u32 {
        self.size
    }

    pub(super) const fn phase(&self) -> bool {
        self.phase
    }
}

impl State {
    pub(super) fn add_completion(&mut self, queue: CompletionQueue) {
        let id = queue.id;
        self.completion_ids.push(id);
        self.completion[usize::from(id)] = Some(queue);
        self.set_live(usize::from(id) * 2 + 1, true);
    }

    pub(super) fn add_submission(&mut self, queue: SubmissionQueue) {
        let id = queue.id;
        if let Some(completion) = &mut self.completion[usize::from(queue.completion)] {
            completion.users += 1;
        }
        self.submission_ids.push(id);
        self.submission[usize::from(id)] = Some(queue);
        self.set_live(usize::from(id) * 2, true);
    }

    /// Takes a submission queue away; what is in flight there ends without completions.
    pub(super) fn remove_submission(&mut self, id: u16) {
        let removed = self.submission[usize::from(id)].take();
        if let Some(queue) = removed {
            if let Some(completion) = &mut self.completion[usize::from(queue.completion)] {
                completion.users -= 1;
                completion.backlog.retain(|waiting| waiting.queue != id);
            }
        }
        self.submission_ids.retain(|other| *other != id);
        self.held.retain(|held| held.queue != id);
        self.lost.retain(|(queue, _)| *queue != id);
        self.set_live(usize::from(id) * 2, false);
    }

    pub(super) fn remove_completion(&mut self, id: u16) {
        self.completion[usize::from(id)] = None;
        self.completion_ids.retain(|other| *other != id);
        self.set_live(usize::from(id) * 2 + 1, false);
    }

    fn set_live(&mut self, doorbell: usize, live: bool) {
        let was_rung = self.registers.doorbells.set_live(doorbell, live);
        if was_rung && live {
            let detail = format!("doorbell {doorbell} was rung before");
            self.violate(Rule::DoorbellWithoutQueue, detail);
        }
    }

    /// Looks at all queues once.
    pub(super) fn poll_queues(&mut self, host: &Table, bus_master: bool) -> usize {
        if !bus_master {
            return self.poll_without_memory();
        }
        let mut done = 0;
        for index in 0..self.completion_ids.len() {
            done += self.poll_completion(self.completion_ids[index], host);
        }
        if !self.held.is_empty() {
            done += self.run_due(host);
        }
        let count = self.submission_ids.len();
        for turn in 0..count {
            // A command may take queues away.
            let Some(id) = self.submission_ids.get(turn).copied() else {
                break;
            };
            done += self.poll_submission(id, host);
            if self.fatal || self.registers.is_removed() {
                return done;
            }
        }
        self.deliver_events(host);
        if self.plan.faults.unasked != 0 {
            self.complete_unasked(host);
        }
        self.interrupt();
        done
    }

    /// The host forbade memory access and must not ring.
    fn poll_without_memory(&mut self) -> usize {
        for index in 0..self.submission_ids.len() {
            let id = self.submission_ids[index];
            if self.registers.doorbells.take(usize::from(id) * 2).is_some() {
                let detail = format!("queue {id} was rung");
                self.violate(Rule::NotBusMaster, detail);
            }
        }
        0
    }

    /// Takes the host's new head, and posts what waited for room.
    #[inline]
    fn poll_completion(&mut self, id: u16, host: &Table) -> usize {
        let mut done = 0;
        if let Some(head) = self.registers.doorbells.take(usize::from(id) * 2 + 1) {
            self.counters.doorbells += 1;
            self.release(id, head);
            done += 1;
        }
        let Some(queue) = &self.completion[usize::from(id)] else {
            return done;
        };
        if queue.backlog.is_empty() {
            return done;
        }
        self.read_shadow_head(id, host);
        while let Some(queue) = &mut self.completion[usize::from(id)] {
            if queue.is_full() {
                break;
            }
            let Some(next) = queue.backlog.pop_front() else {
                break;
            };
            self.write_completion(id, next, host);
            done += 1;
        }
        done
    }

    fn release(&mut self, id: u16, head: u32) {
        let Some(queue) = &mut self.completion[usize::from(id)] else {
            return;
        };
        if let Err((rule, detail)) = queue.release(head) {
            self.violate(rule, detail);
            self.events.raise(Event::InvalidDoorbellValue);
        }
    }

    /// The head as the shadow doorbell has it, if there are shadow doorbells.
    fn read_shadow_head(&mut self, id: u16, host: &Table) {
        let Some(shadow) = self.shadow.filter(|_| id != 0) else {
            return;
        };
        match host.read_shadow(shadow.doorbell(usize::from(id) * 2 + 1)) {
            Ok(head) => self.release(id, head),
            Err(fault) => self.record_dma(fault),
        }
    }

    /// Fetches and starts the commands of a queue.
    #[inline]
    fn poll_submission(&mut self, id: u16, host: &Table) -> usize {
        let place = usize::from(id);
        let rung = self.registers.doorbells.take(place * 2);
        let announced = match self.shadow {
            Some(shadow) if id != 0 => self.read_shadow_tail(id, rung, shadow, host),
            _ => rung,
        };
        if let Some(tail) = announced {
            self.counters.doorbells += u64::from(rung.is_some());
            let Some(queue) = &mut self.submission[place] else {
                return 0;
            };
            if let Err((rule, detail)) = queue.announce(tail) {
                // Lies about the head may have led the host astray.
                if rule != Rule::SubmissionOverrun || self.plan.faults.rules.is_empty() {
                    self.violate(rule, detail);
                }
                self.events.raise(Event::InvalidDoorbellValue);
            }
        }
        let mut done = 0;
        for _ in 0..self.options.burst {
            let Some(command) = self.fetch(id, host) else {
                break;
            };
            self.begin(id, command, host);
            done += 1;
            if self.fatal || self.registers.is_removed() {
                break;
            }
        }
        done
    }

    /// The tail as the shadow doorbell has it. A queue that finds nothing new says at which tail it wants
    /// to be rung and sleeps until then.
    fn read_shadow_tail(
        &mut self,
        id: u16,
        rung: Option<u32>,
        shadow: ShadowBuffers,
        host: &Table,
    ) -> Option<u32> {
        let place = usize::from(id);
        let queue = self.submission[place].as_mut()?;
        queue.awake |= rung.is_some();
        if !queue.awake {
            return None;
        }
        let read = host.read_shadow(shadow.doorbell(place * 2));
        let read = read.and_then(|tail| {
            if tail != queue.tail || queue.head != queue.tail {
                return Ok(tail);
            }
            host.write_event_index(shadow.event_index(place * 2), tail)?;
            let again = host.read_shadow(shadow.doorbell(place * 2))?;
            queue.awake = again != queue.tail;
            Ok(again)
        });
        match read {
            Ok(tail) => (tail != queue.tail).then_some(tail),
            Err(fault) => {
                self.record_dma(fault);
                None
            }
        }
    }

    /// The next command of a queue, if there is one and room for its completion.
    #[inline]
    fn fetch(&mut self, id: u16, host: &Table) -> Option<Command> {
        let queue = self.submission[usize::from(id)].as_mut()?;
        if queue.head == queue.tail {
            return None;
        }
        let completion = queue.completion;
        let target = self.completion[usize::from(completion)].as_ref()?;
        if target.is_full() || !target.backlog.is_empty() {
            self.read_shadow_head(completion, host);
            let target = self.completion[usize::from(completion)].as_ref()?;
            if target.is_full() || !target.backlog.is_empty() {
                self.counters.stalls += 1;
                return None;
            }
        }
        let queue = self.submission[usize::from(id)].as_mut()?;
        let address = queue.base + u64::from(queue.head) * SUBMISSION_ENTRY;
        match host.read_entry(address) {
            Ok(words) => {
                queue.head += 1;
                if queue.head == queue.size {
                    queue.head = 0;
                }
                self.counters.commands += 1;
                Some(Command { words })
            }
            Err(fault) => {
                self.record_dma(fault);
                self.fail_fatally();
                None
            }
        }
    }

    /// Counts a command as in flight; false if its identifier is.
    #[inline]
    pub(super) fn take_off(&mut self, queue: u16, id: u16) -> bool {
        match &mut self.submission[usize::from(queue)] {
            Some(queue) => queue.in_flight.insert(id),
            None => false,
        }
    }

    /// Takes a command back from those in flight.
    pub(super) fn land(&mut self, queue: u16, id: u16) {
        if let Some(queue) = &mut self.submission[usize::from(queue)] {
            queue.in_flight.remove(id);
        }
    }

    /// Posts a completion, or keeps it until there is room.
    #[inline]
    pub(super) fn post(&mut self, completion: Completion, host: &Table) {
        let Some(queue) = &self.submission[usize::from(completion.queue)] else {
            return;
        };
        let target = queue.completion;
        let Some(waiting) = &mut self.completion[usize::from(target)] else {
            return;
        };
        if waiting.is_full() || !waiting.backlog.is_empty() {
            waiting.backlog.push_back(completion);
            return;
        }
        self.write_completion(target, completion, host);
    }

    #[inline]
    fn write_completion(&mut self, target: u16, completion: Completion, host: &Table) {
        let Some(source) = &mut self.submission[usize::from(completion.queue)] else {
            return;
        };
        source.in_flight.remove(completion.id);
        source.reported = source.head;
        let head = u64::from(source.head);
        let Some(queue) = &mut self.completion[usize::from(target)] else {
            return;
        };
        let low = u64::from(completion.result);
        let high = head
            | u64::from(completion.queue) << 16
            | u64::from(completion.id) << 32
            | u64::from(completion.status.0) << 49;
        self.counters.completions += 1;
        if let Err(fault) = queue.write(host, low, high) {
            self.record_dma(fault);
            self.fail_fatally();
        }
    }

    /// Signals the vectors of queues with new completions.
    #[inline]
    fn interrupt(&mut self) {
        for index in 0..self.completion_ids.len() {
            let id = self.completion_ids[index];
            let Some(queue) = &mut self.completion[usize::from(id)] else {
                continue;
            };
            if !queue.interrupt {
                continue;
            }
            queue.interrupt = false;
            if let Some(vector) = queue.vector {
                self.counters.interrupts += u64::from(self.lines.signal(vector));
            }
        }
    }
}
