//! What the controller goes on with when it takes no more commands: it is stopping or shutting down, or has
//! failed. Hardware has transfers under way then, and may use every byte that it was given until CSTS.RDY is
//! zero (base specification 1.4, sections 3.1.6 and 7.3.2). So does this one, as the seed wants.

use crate::command::admin;
use crate::host::Table;

use super::enable::{Phase, Shutdown};
use super::{Held, Lost, State};

/// A command that will not be completed is carried out once more in one of so many steps.
const AGAIN: u32 = 4;

impl State {
    /// From now on doorbells say nothing. Commands that were announced before may still be fetched.
    pub(super) fn close_doorbells(&mut self) {
        for id in self.submission_ids.iter().copied() {
            let place = usize::from(id);
            let rung = self.registers.doorbells.take(place * 2);
            if let (Some(tail), Some(queue)) = (rung, &mut self.submission[place]) {
                // What is wrong with it is of no interest any more.
                let _ = queue.announce(tail);
            }
        }
        self.registers.doorbells.clear();
    }

    /// Has commands that were fetched run, if they do at all, in the next `steps` steps.
    pub(super) fn hurry(&mut self, steps: u64) {
        for held in &mut self.held {
            held.due = self.steps + self.plan.random().below(steps.max(1));
        }
    }

    /// Goes on for a step; returns how many commands ended.
    pub(super) fn wind_down(&mut self, host: &Table, bus_master: bool) -> usize {
        if !bus_master || self.submission_ids.is_empty() || self.shutdown == Shutdown::Complete {
            return 0;
        }
        if matches!(self.phase, Phase::Stopping { .. }) && !self.fatal {
            self.fetch_on(host);
        }
        let done = self.end_held(host);
        if !self.lost.is_empty() && self.plan.random().one_in(AGAIN) {
            let index = self.plan.random().index(self.lost.len());
            let Lost { queue, command, .. } = self.lost[index];
            if is_harmless(queue, command.opcode()) {
                self.execute(queue, &command, host);
            }
        }
        self.interrupt();
        done
    }

    /// Fetches what was announced on I/O queues, or not.
    fn fetch_on(&mut self, host: &Table) {
        for turn in 1..self.submission_ids.len() {
            let id = self.submission_ids[turn];
            if self.plan.random().one_in(2) {
                continue;
            }
            for _ in 0..self.options.burst {
                let Some(command) = self.fetch(id, host) else {
                    break;
                };
                if self.take_off(id, command.id()) {
                    self.hold(id, command, 0);
                }
            }
        }
    }

    /// Carries out the commands whose time has come. Of some the host even hears.
    fn end_held(&mut self, host: &Table) -> usize {
        let mut done = 0;
        let mut index = 0;
        while index < self.held.len() {
            if self.held[index].due > self.steps {
                index += 1;
                continue;
            }
            let Held { queue, command, .. } = self.held.swap_remove(index);
            let completion = match is_harmless(queue, command.opcode()) {
                true => self.execute(queue, &command, host),
                false => None,
            };
            match completion {
                Some(completion) if self.plan.random().one_in(2) => {
                    self.post(completion, host);
                    done += 1;
                }
                _ => self.lost.push(Lost {
                    due: None,
                    queue,
                    command,
                }),
            }
        }
        done
    }
}

/// Whether a command does nothing but move data, so that it may run late and twice.
const fn is_harmless(queue: u16, opcode: u8) -> bool {
    queue != 0 || matches!(opcode, admin::IDENTIFY | admin::GET_LOG_PAGE)
}
