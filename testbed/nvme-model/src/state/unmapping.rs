//! Which memory the controller may still use when the host unmaps some.

use std::ops::Range;

use crate::command::{Command, admin, nvm};
use crate::host::Table;
use crate::violation::Rule;

use super::State;
use super::enable::Phase;
use super::identify;

impl State {
    /// Records a breach if the controller may still use some of `range`, which is about to be unmapped.
    pub(crate) fn check_unmapping(&mut self, range: &Range<u64>, host: &Table) {
        let user = self
            .ring_in(range)
            .or_else(|| self.shadow_in(range))
            .or_else(|| self.command_in(range, host));
        if let Some(user) = user {
            let detail = format!("{:#x}..{:#x} holds {user}", range.start, range.end);
            self.violate(Rule::UnmappedInUse, detail);
        }
    }

    fn ring_in(&self, range: &Range<u64>) -> Option<String> {
        let submission = self.submission.iter().flatten();
        let submission = submission.map(|queue| ("submission", queue.id, queue.ring()));
        let completion = self.completion.iter().flatten();
        let completion = completion.map(|queue| ("completion", queue.id, queue.ring()));
        let [first, second] = match self.phase {
            // What was told to stop before it was ready will not begin.
            Phase::Starting { .. } if self.registers.is_enabled() => self.admin_rings(),
            _ => [0..0, 0..0],
        };
        let starting = [("submission", 0, first), ("completion", 0, second)];
        let mut rings = submission.chain(completion).chain(starting);
        let (kind, id, _) = rings.find(|(_, _, ring)| overlap(ring, range))?;
        Some(format!("{kind} queue {id}"))
    }

    fn shadow_in(&self, range: &Range<u64>) -> Option<String> {
        let buffers = self.shadow?.buffers(self.options.doorbells());
        let is_hit = buffers.iter().any(|buffer| overlap(buffer, range));
        is_hit.then(|| "shadow doorbells or event indices".to_owned())
    }

    /// A command that was announced, and is not completed, with its list or data in the range.
    fn command_in(&mut self, range: &Range<u64>, host: &Table) -> Option<String> {
        let held = self.held.iter().map(|held| (held.queue, held.command));
        let lost = self.lost.iter().map(|lost| (lost.queue, lost.command));
        let mut commands: Vec<(u16, Command)> = held.chain(lost).collect();
        for id in self.submission_ids.iter().copied() {
            let tail = self.announced_tail(id, host);
            let Some(queue) = &self.submission[usize::from(id)] else {
                continue;
            };
            let entries = queue.entries_to(tail);
            let fetched = entries.filter_map(|entry| host.read_entry(entry).ok());
            commands.extend(fetched.map(|words| (id, Command { words })));
        }
        let found = commands.into_iter().find(|(queue, command)| {
            let used = self.memory_of(*queue, command, host);
            used.iter().any(|used| overlap(used, range))
        });
        found.map(|(queue, command)| {
            format!(
                "what command {:#x} of queue {queue}, opcode {:#04x}, uses",
                command.id(),
                command.opcode()
            )
        })
    }

    /// Up to where a queue's entries were announced, in whichever way.
    fn announced_tail(&self, id: u16, host: &Table) -> Option<u32> {
        let doorbell = usize::from(id) * 2;
        match self.shadow {
            Some(shadow) if id != 0 => host.read_shadow(shadow.doorbell(doorbell)).ok(),
            _ => self.registers.doorbells.peek(doorbell),
        }
    }

    /// Where a command's lists and data are, as far as can be told.
    fn memory_of(&mut self, queue: u16, command: &Command, host: &Table) -> Vec<Range<u64>> {
        let length = self.data_length(queue == 0, command);
        if length == 0 {
            return Vec::new();
        }
        // What is wrong with the pointers is told when the command runs.
        let known = self.violations.len();
        let _ = self.locate(command, length, queue == 0, host);
        self.violations.truncate(known);
        let segments = self.segments.iter().chain(&self.lists);
        segments
            .map(|segment| segment.address..segment.address.saturating_add(segment.length as u64))
            .collect()
    }

    /// How many bytes a command transfers; zero if its fields are wrong.
    fn data_length(&self, is_admin: bool, command: &Command) -> usize {
        if is_admin {
            return match command.opcode() {
                admin::IDENTIFY => identify::SIZE,
                admin::GET_LOG_PAGE => super::log_pages::length(command),
                _ => 0,
            };
        }
        match command.opcode() {
            nvm::READ | nvm::WRITE | nvm::COMPARE => {
                let Some(medium) = self.medium(command.namespace()) else {
                    return 0;
                };
                let blocks = usize::from((command.dword(12) & 0xffff) as u16) + 1;
                blocks * medium.block_size()
            }
            nvm::DATASET_MANAGEMENT => (usize::from((command.dword(10) & 0xff) as u8) + 1) * 16,
            _ => 0,
        }
    }
}

const fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
