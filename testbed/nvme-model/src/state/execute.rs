//! From a fetched command to its completion, with what goes wrong on the way.

use crate::command::{Command, admin};
use crate::faults::Fault;
use crate::host::{DmaFault, Table};
use crate::status::Status;
use crate::violation::Rule;

use super::completion_queue::Completion;
use super::{Held, Lost, State};

/// A lost command may be carried out in so many steps.
const LATE_STEPS: u64 = 1024;

impl State {
    /// Starts a command that was fetched.
    #[inline]
    pub(super) fn begin(&mut self, queue: u16, command: Command, host: &Table) {
        if command.id() == u16::MAX {
            self.note_no_command(queue);
        }
        if !self.take_off(queue, command.id()) {
            let detail = format!("identifier {:#x} on queue {queue}", command.id());
            self.violate(Rule::CommandIdInUse, detail);
            let completion = Completion {
                queue,
                id: command.id(),
                status: Status::ID_CONFLICT.do_not_retry(),
                result: 0,
            };
            self.post(completion, host);
            return;
        }
        let is_abort = queue == 0 && command.opcode() == admin::ABORT;
        if is_abort && self.has_too_many_aborts(host) {
            self.refuse_abort(&command, host);
            return;
        }
        match self.plan.strike(queue == 0, command.opcode()) {
            None => self.execute_and_post(queue, &command, host),
            Some(fault) => self.go_wrong(queue, command, fault, host),
        }
    }

    /// The error log says 0xffff of errors that belong to no command.
    #[cold]
    fn note_no_command(&mut self, queue: u16) {
        let detail = format!("identifier 0xffff on queue {queue}");
        self.violate(Rule::FieldValue, detail);
    }

    #[cold]
    fn refuse_abort(&mut self, command: &Command, host: &Table) {
        let detail = format!("more than {} Aborts", self.options.aborts_max);
        self.violate(Rule::Limit, detail);
        self.log_error(0, command, Status::ABORT_LIMIT);
        let completion = Completion {
            queue: 0,
            id: command.id(),
            status: Status::ABORT_LIMIT,
            result: 0,
        };
        self.post(completion, host);
    }

    #[inline]
    fn execute_and_post(&mut self, queue: u16, command: &Command, host: &Table) {
        if let Some(completion) = self.execute(queue, command, host) {
            self.post(completion, host);
        }
    }

    /// Carries a command out; nothing if it waits.
    #[inline]
    pub(super) fn execute(
        &mut self,
        queue: u16,
        command: &Command,
        host: &Table,
    ) -> Option<Completion> {
        let outcome = if queue == 0 {
            self.execute_admin(command, host)
        } else {
            self.execute_io(command, host).map(|()| Some(0))
        };
        let (status, result) = match outcome {
            Ok(Some(result)) => (Status::SUCCESS, result),
            Ok(None) => return None,
            Err(failure) => {
                let context = format!("queue {queue}, opcode {:#04x}", command.opcode());
                self.record(&failure, &context);
                let status = failure.status;
                self.log_error(queue, command, status);
                (status, 0)
            }
        };
        Some(Completion {
            queue,
            id: command.id(),
            status,
            result,
        })
    }

    fn go_wrong(&mut self, queue: u16, command: Command, fault: Fault, host: &Table) {
        match fault {
            Fault::Fail(status) => {
                self.log_error(queue, &command, status);
                let completion = Completion {
                    queue,
                    id: command.id(),
                    status,
                    result: 0,
                };
                self.post(completion, host);
            }
            Fault::Delay(steps) => self.hold(queue, command, steps),
            Fault::Reorder(steps) => {
                let steps = 1 + self.plan.random().below(steps.max(1));
                self.hold(queue, command, steps);
            }
            Fault::Lose => {
                self.lose(queue, command, host);
            }
            Fault::Fatal => {
                self.lost.push(Lost {
                    due: None,
                    queue,
                    command,
                });
                self.fail_fatally();
            }
            Fault::Remove => self.registers.set_removed(true),
            Fault::Forget => {
                let completion = Completion {
                    queue,
                    id: command.id(),
                    status: Status::SUCCESS,
                    result: 0,
                };
                self.post(completion, host);
            }
            Fault::WrongId
            | Fault::IdOutOfRange
            | Fault::CompleteTwice
            | Fault::HeadBeyond
            | Fault::WrongQueue
            | Fault::Garbage
            | Fault::Overwrite => {
                if let Some(completion) = self.execute(queue, &command, host) {
                    if let Err(fault) = self.lie(completion, fault, host) {
                        self.record_dma(fault);
                    }
                }
            }
        }
    }

    /// Carries a command out now, later or never, and forgets to say so.
    fn lose(&mut self, queue: u16, command: Command, host: &Table) {
        let mut due = None;
        match self.plan.random().below(3) {
            0 => {
                self.execute(queue, &command, host);
            }
            1 => due = Some(self.steps + 1 + self.plan.random().below(LATE_STEPS)),
            _ => {}
        }
        self.lost.push(Lost {
            due,
            queue,
            command,
        });
    }

    /// Carries out those lost commands whose time has come.
    pub(super) fn run_lost(&mut self, host: &Table) {
        let mut index = 0;
        // A command may take others away.
        while let Some(lost) = self.lost.get_mut(index) {
            index += 1;
            if lost.due.is_some_and(|due| due <= self.steps) {
                lost.due = None;
                let (queue, command) = (lost.queue, lost.command);
                self.execute(queue, &command, host);
            }
        }
    }

    pub(super) fn hold(&mut self, queue: u16, command: Command, steps: u64) {
        self.held.push(Held {
            due: self.steps.saturating_add(steps),
            queue,
            command,
        });
    }

    /// Carries out the commands whose time has come, in any order that the seed wants.
    pub(super) fn run_due(&mut self, host: &Table) -> usize {
        let mut done = 0;
        let mut due: Vec<Held> = Vec::new();
        let mut index = 0;
        while index < self.held.len() {
            if self.held[index].due <= self.steps {
                due.push(self.held.swap_remove(index));
            } else {
                index += 1;
            }
        }
        while !due.is_empty() {
            let chosen = self.plan.random().index(due.len());
            let Held { queue, command, .. } = due.swap_remove(chosen);
            // The queue may be gone by now.
            let is_waited_for = self.submission[usize::from(queue)]
                .as_ref()
                .is_some_and(|queue| queue.has_in_flight(command.id()));
            if is_waited_for {
                self.execute_and_post(queue, &command, host);
                done += 1;
            }
        }
        done
    }

    /// Posts a completion that is wrong.
    fn lie(&mut self, completion: Completion, fault: Fault, host: &Table) -> Result<(), DmaFault> {
        let Completion {
            queue, id, status, ..
        } = completion;
        let Some(source) = &mut self.submission[usize::from(queue)] else {
            return Ok(());
        };
        let target = source.completion;
        let head = u64::from(source.report());
        let mut wrong_id = self.plan.random().word();
        while source.has_in_flight(wrong_id) {
            wrong_id = wrong_id.wrapping_add(1);
        }
        let draw = self.plan.random().next();
        let honest =
            head | u64::from(queue) << 16 | u64::from(id) << 32 | u64::from(status.0) << 49;
        if matches!(fault, Fault::HeadBeyond | Fault::Garbage | Fault::Overwrite) {
            self.mislead(target);
        }
        let entry = match fault {
            Fault::WrongId => honest & !(0xffff << 32) | u64::from(wrong_id) << 32,
            Fault::IdOutOfRange => honest | 0xffff << 32,
            Fault::HeadBeyond => {
                self.land(queue, id);
                honest | 0xffff
            }
            Fault::WrongQueue => honest ^ 0xffff << 16,
            Fault::CompleteTwice => {
                self.post(completion, host);
                return self.write_raw(target, honest, host);
            }
            Fault::Overwrite => {
                return self.overwrite(target, [draw, honest], host);
            }
            _ => {
                self.scribble(target, host)?;
                self.post(completion, host);
                return Ok(());
            }
        };
        self.write_raw(target, entry, host)
    }

    /// From now on the host cannot know what is free in the submission queues of this completion queue.
    fn mislead(&mut self, target: u16) {
        let queues = self.submission.iter_mut().flatten();
        for queue in queues.filter(|queue| queue.completion == target) {
            queue.misled = true;
        }
    }

    /// Fills the queue with the same entry: one more than there is ever room for.
    fn overwrite(&mut self, target: u16, entry: [u64; 2], host: &Table) -> Result<(), DmaFault> {
        let Some(to) = &mut self.completion[usize::from(target)] else {
            return Ok(());
        };
        for _ in 0..to.size() {
            self.counters.completions += 1;
            to.write(host, entry[0], entry[1])?;
        }
        Ok(())
    }

    /// Writes random entries where none is due. The one after the next looks as if it were due.
    fn scribble(&mut self, target: u16, host: &Table) -> Result<(), DmaFault> {
        let random = self.plan.random();
        let Some(to) = &self.completion[usize::from(target)] else {
            return Ok(());
        };
        for ahead in 1..to.size() {
            let mut entry = [random.next(), random.next()];
            if ahead == 1 {
                entry[1] = entry[1] & !(1 << 48) | u64::from(to.phase()) << 48;
            }
            to.scribble(host, ahead, entry)?;
        }
        Ok(())
    }

    /// Writes an entry if there is room, but for the phase just as it is.
    fn write_raw(&mut self, target: u16, entry: u64, host: &Table) -> Result<(), DmaFault> {
        let Some(to) = &mut self.completion[usize::from(target)] else {
            return Ok(());
        };
        if to.has_room() {
            self.counters.completions += 1;
            to.write(host, 0, entry)?;
        }
        Ok(())
    }

    /// Completes what nobody asked for, on some I/O queue.
    pub(super) fn complete_unasked(&mut self, host: &Table) {
        let period = self.plan.faults.unasked;
        if !self.plan.random().one_in(period) {
            return;
        }
        let ids = self.completion_ids.len();
        if ids < 2 {
            return;
        }
        let target = self.completion_ids[1 + self.plan.random().index(ids - 1)];
        let entry = u64::from(self.plan.random().word()) << 32
            | u64::from(target) << 16
            | u64::from(self.plan.random().word() & 0xf);
        self.mislead(target);
        if let Err(fault) = self.write_raw(target, entry, host) {
            self.record_dma(fault);
        }
    }
}
