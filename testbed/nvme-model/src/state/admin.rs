//! Admin commands (base specification 1.4, section 5).

use crate::command::{Command, admin, dwords};
use crate::host::Table;
use crate::medium::Medium;
use crate::status::Status;
use crate::violation::Rule;

use super::State;
use super::completion_queue::{Completion, CompletionQueue};
use super::enable::{COMPLETION_SHIFT, SUBMISSION_SHIFT};
use super::failure::{Failure, Outcome};
use super::io::BROADCAST;
use super::submission_queue::SubmissionQueue;

impl State {
    /// Carries an admin command out; nothing if it waits for an event.
    pub(super) fn execute_admin(
        &mut self,
        command: &Command,
        host: &Table,
    ) -> Outcome<Option<u32>> {
        if command.is_fused() || command.reserved() != 0 {
            let detail = format!("first word {:#x}", command.dword(0));
            return Err(Failure::breach(
                Status::INVALID_FIELD,
                Rule::ReservedField,
                detail,
            ));
        }
        if command.long(2) | command.metadata() != 0 {
            let detail = format!("opcode {:#04x}, dwords 2 to 5", command.opcode());
            self.violate(Rule::ReservedField, detail);
        }
        self.check_unused(command, unused(command));
        let commands = self.options.commands;
        match command.opcode() {
            admin::DELETE_SUBMISSION_QUEUE => self.delete_submission(command, host).map(Some),
            admin::CREATE_SUBMISSION_QUEUE => self.create_submission(command).map(Some),
            admin::GET_LOG_PAGE => self.get_log_page(command, host).map(Some),
            admin::DELETE_COMPLETION_QUEUE => self.delete_completion(command).map(Some),
            admin::CREATE_COMPLETION_QUEUE => self.create_completion(command).map(Some),
            admin::IDENTIFY => self.identify(command, host).map(Some),
            admin::ABORT => Ok(Some(self.abort(command, host))),
            admin::SET_FEATURES => self.set_features(command, host).map(Some),
            admin::GET_FEATURES => self.get_features(command, host).map(Some),
            admin::ASYNCHRONOUS_EVENT_REQUEST => self.request_event(command).map(|()| None),
            admin::DOORBELL_BUFFER_CONFIG if commands.doorbell_buffer => {
                self.configure_doorbell_buffer(command).map(Some)
            }
            admin::FORMAT_NVM if commands.format => self.format(command).map(Some),
            opcode => Err(Failure::breach(
                Status::INVALID_OPCODE,
                Rule::NotOffered,
                format!("admin opcode {opcode:#04x}"),
            )),
        }
    }

    /// Checks what the creation of either kind of queue has in common; returns identifier and entries.
    fn check_creation(&mut self, command: &Command, granted: u16) -> Outcome<(u16, u32)> {
        let id = (command.dword(10) & 0xffff) as u16;
        let entries = (command.dword(10) >> 16) + 1;
        let shifts = self.configured_entry_sizes();
        if shifts != (SUBMISSION_SHIFT, COMPLETION_SHIFT) {
            return Err(Failure::breach(
                Status::QUEUE_SIZE,
                Rule::Configuration,
                format!("queue entries of 2^{} and 2^{} bytes", shifts.0, shifts.1),
            ));
        }
        if id == 0 || id > granted {
            return Err(Failure::breach(
                Status::QUEUE_ID,
                Rule::QueueId,
                format!("queue {id} of {granted}"),
            ));
        }
        if entries < 2 || entries > self.options.queue_entries_max {
            return Err(Failure::breach(
                Status::QUEUE_SIZE,
                Rule::QueueSize,
                format!("queue of {entries} entries"),
            ));
        }
        let base = command.data_first();
        if command.dword(11) & 1 == 0 {
            return Err(Failure::breach(
                Status::INVALID_FIELD,
                Rule::FieldValue,
                "a queue that is not contiguous",
            ));
        }
        if base & ((1 << self.page_shift) - 1) != 0 {
            return Err(Failure::breach(
                Status::PRP_OFFSET,
                Rule::QueueAlignment,
                format!("queue at {base:#x}"),
            ));
        }
        Ok((id, entries))
    }

    fn create_completion(&mut self, command: &Command) -> Outcome<u32> {
        let (_, granted) = self.features.queues();
        let (id, entries) = self.check_creation(command, granted)?;
        self.check_reserved(command, 11, 0xfffc);
        if self.completion[usize::from(id)].is_some() {
            return Err(Failure::breach(
                Status::QUEUE_ID,
                Rule::QueueId,
                format!("completion queue {id} exists"),
            ));
        }
        let wants_interrupts = command.dword(11) & 2 != 0;
        let vector = (command.dword(11) >> 16) as u16;
        if wants_interrupts && vector >= self.options.vectors {
            return Err(Failure::breach(
                Status::VECTOR,
                Rule::FieldValue,
                format!("vector {vector} of {}", self.options.vectors),
            ));
        }
        let vector = wants_interrupts.then_some(vector);
        let base = command.data_first();
        self.add_completion(CompletionQueue::new(id, base, entries, vector));
        Ok(0)
    }

    fn create_submission(&mut self, command: &Command) -> Outcome<u32> {
        let (granted, _) = self.features.queues();
        let (id, entries) = self.check_creation(command, granted)?;
        self.check_reserved(command, 11, 0xfff8);
        if self.submission[usize::from(id)].is_some() {
            return Err(Failure::breach(
                Status::QUEUE_ID,
                Rule::QueueId,
                format!("submission queue {id} exists"),
            ));
        }
        let completion = (command.dword(11) >> 16) as u16;
        let exists = self
            .completion
            .get(usize::from(completion))
            .is_some_and(Option::is_some);
        if completion == 0 || !exists {
            return Err(Failure::breach(
                Status::COMPLETION_QUEUE,
                Rule::QueueId,
                format!("completion queue {completion} for submission queue {id}"),
            ));
        }
        let base = command.data_first();
        self.add_submission(SubmissionQueue::new(id, base, entries, completion));
        Ok(0)
    }

    fn delete_submission(&mut self, command: &Command, host: &Table) -> Outcome<u32> {
        self.check_reserved(command, 10, 0xffff_0000);
        let id = (command.dword(10) & 0xffff) as u16;
        let exists = self
            .submission
            .get(usize::from(id))
            .is_some_and(Option::is_some);
        if id == 0 || !exists {
            return Err(Failure::breach(
                Status::QUEUE_ID,
                Rule::QueueId,
                format!("deletion of submission queue {id}"),
            ));
        }
        // What was fetched ends with a completion before the deletion's.
        let mut waiting: Vec<u16> = Vec::new();
        self.held.retain(|held| {
            if held.queue == id {
                waiting.push(held.command.id());
            }
            held.queue != id
        });
        for command in waiting {
            let completion = Completion {
                queue: id,
                id: command,
                status: Status::ABORTED_BY_DELETION,
                result: 0,
            };
            self.post(completion, host);
        }
        self.remove_submission(id);
        Ok(0)
    }

    fn delete_completion(&mut self, command: &Command) -> Outcome<u32> {
        self.check_reserved(command, 10, 0xffff_0000);
        let id = (command.dword(10) & 0xffff) as u16;
        let found = self
            .completion
            .get(usize::from(id))
            .and_then(Option::as_ref);
        let Some(queue) = found.filter(|_| id != 0) else {
            return Err(Failure::breach(
                Status::QUEUE_ID,
                Rule::QueueId,
                format!("deletion of completion queue {id}"),
            ));
        };
        if queue.users > 0 {
            return Err(Failure::breach(
                Status::QUEUE_DELETION,
                Rule::Sequence,
                format!("completion queue {id} is in use"),
            ));
        }
        self.remove_completion(id);
        Ok(0)
    }

    /// Whether there is one Abort too many, of those that were announced and are not completed.
    #[cold]
    pub(super) fn has_too_many_aborts(&mut self, host: &Table) -> bool {
        let held = self.held.iter().map(|held| (held.queue, held.command));
        let lost = self.lost.iter().map(|lost| (lost.queue, lost.command));
        let fetched = held.chain(lost).filter(|(queue, _)| *queue == 0);
        let fetched = fetched.filter(|(_, command)| command.opcode() == admin::ABORT);
        let queue = self.submission[0].as_ref();
        let waiting = queue.into_iter().flat_map(|queue| queue.entries_to(None));
        let waiting = waiting.filter_map(|entry| host.read_entry(entry).ok());
        let waiting = waiting.filter(|words| Command { words: *words }.opcode() == admin::ABORT);
        1 + fetched.count() + waiting.count() > usize::from(self.options.aborts_max)
    }

    /// Bit 0 of the result says that nothing was aborted.
    fn abort(&mut self, command: &Command, host: &Table) -> u32 {
        let queue = (command.dword(10) & 0xffff) as u16;
        let id = (command.dword(10) >> 16) as u16;
        let held = self
            .held
            .iter()
            .position(|held| held.queue == queue && held.command.id() == id);
        let lost = self
            .lost
            .iter()
            .position(|lost| lost.queue == queue && lost.command.id() == id);
        let is_aborted = if let Some(index) = held {
            self.held.remove(index);
            true
        } else if let Some(index) = lost.filter(|_| self.plan.random().one_in(2)) {
            self.lost.remove(index);
            true
        } else {
            queue == 0 && self.events.retract(id)
        };
        if is_aborted {
            let completion = Completion {
                queue,
                id,
                status: Status::ABORT_REQUESTED,
                result: 0,
            };
            self.post(completion, host);
        }
        u32::from(!is_aborted)
    }

    /// Format NVM (section 5.23): new sizes, and everything is gone.
    fn format(&mut self, command: &Command) -> Outcome<u32> {
        self.check_reserved(command, 10, !0xfff);
        let format = (command.dword(10) & 0xf) as usize;
        let Some(shift) = super::identify::BLOCK_SHIFTS.get(format) else {
            return Err(Failure::breach(
                Status::FORMAT,
                Rule::FieldValue,
                format!("format {format}"),
            ));
        };
        // No metadata, no protection; erasing means nothing more here than formatting does.
        if command.dword(10) & 0x1f0 != 0 || command.dword(10) >> 9 & 7 > 2 {
            return Err(Failure::breach(
                Status::FORMAT,
                Rule::FieldValue,
                format!("dword 10 {:#x}", command.dword(10)),
            ));
        }
        let id = command.namespace();
        let all = 0..self.namespaces.len();
        let chosen = match id {
            BROADCAST => all,
            _ if self.namespace(id).is_some() => {
                let index = usize::try_from(id - 1).expect("it was found");
                index..index + 1
            }
            _ => {
                return Err(Failure::breach(
                    Status::INVALID_NAMESPACE,
                    Rule::NoNamespace,
                    format!("namespace {id:#x}"),
                ));
            }
        };
        let cache = self.options.cache_bytes;
        for namespace in &mut self.namespaces[chosen] {
            namespace.options.block_size = 1 << shift;
            namespace.options.blocks = namespace.bytes >> shift;
            let (blocks, blank) = (namespace.options.blocks, namespace.options.blank());
            namespace.medium = Medium::new(1 << shift, blocks, blank, cache);
        }
        Ok(0)
    }
}

/// Which dwords a command leaves unused, and must leave zero. Parts of dwords are checked where they are read.
fn unused(command: &Command) -> u16 {
    use dwords::{FROM_10, FROM_11, FROM_12, FROM_14, NAMESPACE, POINTER};
    const PRP2: u16 = 3 << 8;
    match command.opcode() {
        admin::DELETE_SUBMISSION_QUEUE | admin::DELETE_COMPLETION_QUEUE | admin::ABORT => {
            NAMESPACE | POINTER | FROM_11
        }
        admin::CREATE_SUBMISSION_QUEUE | admin::CREATE_COMPLETION_QUEUE => {
            NAMESPACE | PRP2 | FROM_12
        }
        admin::GET_LOG_PAGE => FROM_14,
        admin::IDENTIFY | admin::SET_FEATURES | admin::GET_FEATURES => FROM_12,
        admin::ASYNCHRONOUS_EVENT_REQUEST => NAMESPACE | POINTER | FROM_10,
        admin::DOORBELL_BUFFER_CONFIG => NAMESPACE | FROM_10,
        admin::FORMAT_NVM => POINTER | FROM_11,
        _ => 0,
    }
}
