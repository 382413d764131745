//! Queues: what was announced is fetched, what is done is posted (base specification 1.4, section 4.1).

use crate::command::Command;
use crate::host::Table;
use crate::violation::Rule;

use super::completion_queue::{Completion, CompletionQueue};
use super::features::ShadowBuffers;
use super::submission_queue::SubmissionQueue;
use super::{Event, State};

/// In one of so many steps the heads in shadow doorbells are looked at, though there is room.
const SHADOW_STEPS: u64 = 16;

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
        self.lost.retain(|lost| lost.queue != id);
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
        if !self.lost.is_empty() {
            self.run_lost(host);
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
            self.take_head(id, head, host);
            done += 1;
        } else if self.shadow.is_some() && self.steps % SHADOW_STEPS == 0 {
            self.read_shadow_head(id, host);
        }
        let Some(queue) = &self.completion[usize::from(id)] else {
            return done;
        };
        if queue.backlog.is_empty() {
            return done;
        }
        self.read_shadow_head(id, host);
        while let Some(queue) = &mut self.completion[usize::from(id)] {
            let Some(next) = queue.next_waiting() else {
                break;
            };
            self.write_completion(id, next, host);
            done += 1;
        }
        done
    }

    /// Takes the head that was written to the register.
    #[inline]
    fn take_head(&mut self, id: u16, head: u32, host: &Table) {
        let Some(queue) = &self.completion[usize::from(id)] else {
            return;
        };
        if self.shadow.is_some() && id != 0 && head < queue.size() {
            // The shadow doorbell, which was written before, may be ahead of it.
            self.read_shadow_head(id, host);
        } else if head == queue.head() {
            let detail = format!("head {head:#x} of queue {id}, which it was before");
            self.violate(Rule::DoorbellValue, detail);
            self.events.raise(Event::InvalidDoorbellValue);
        } else {
            self.release(id, head);
        }
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
            let is_excused = queue.misled;
            if let Err((rule, detail)) = queue.announce(tail) {
                if rule != Rule::SubmissionOverrun || !is_excused {
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
            if tail != queue.tail() || !queue.is_empty() {
                return Ok(tail);
            }
            host.write_event_index(shadow.event_index(place * 2), tail)?;
            let again = host.read_shadow(shadow.doorbell(place * 2))?;
            queue.awake = again != queue.tail();
            Ok(again)
        });
        match read {
            Ok(tail) => (tail != queue.tail()).then_some(tail),
            Err(fault) => {
                self.record_dma(fault);
                None
            }
        }
    }

    /// The next command of a queue, if there is one and room for its completion.
    #[inline(always)]
    pub(super) fn fetch(&mut self, id: u16, host: &Table) -> Option<Command> {
        let queue = self.submission[usize::from(id)].as_ref()?;
        if queue.is_empty() {
            return None;
        }
        let completion = queue.completion;
        if !self.completion[usize::from(completion)]
            .as_ref()?
            .has_room()
        {
            self.read_shadow_head(completion, host);
            if !self.completion[usize::from(completion)]
                .as_ref()?
                .has_room()
            {
                self.counters.stalls += 1;
                return None;
            }
        }
        let queue = self.submission[usize::from(id)].as_mut()?;
        match host.read_entry(queue.next_entry()) {
            Ok(words) => {
                queue.advance();
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
            Some(queue) => queue.take_off(id),
            None => false,
        }
    }

    /// Takes a command back from those in flight.
    pub(super) fn land(&mut self, queue: u16, id: u16) {
        if let Some(queue) = &mut self.submission[usize::from(queue)] {
            queue.land(id);
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
        if !waiting.has_room() {
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
        source.land(completion.id);
        let head = u64::from(source.report());
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
    pub(super) fn interrupt(&mut self) {
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
