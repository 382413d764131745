//! What goes wrong.

use crate::Status;
use crate::random::Random;

/// Which commands a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// All commands on I/O queues.
    Io,
    /// All admin commands, but for Asynchronous Event Requests.
    Admin,
    /// I/O commands of one opcode.
    IoOpcode(u8),
    /// Admin commands of one opcode.
    AdminOpcode(u8),
}

/// How often a rule strikes among its target's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Each time.
    Always,
    /// Once, at the command with this number, counted from 1.
    Nth(u64),
    /// From the command with this number on.
    From(u64),
    /// Once in so many, by chance.
    OneIn(u32),
}

/// Deviation from the normal execution or completion of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not executed and ends with this status.
    Fail(Status),
    /// It is executed after so many steps.
    Delay(u64),
    /// It is executed after 1 to so many steps, so that others overtake it.
    Reorder(u64),
    /// It is executed at once, after up to 1,024 steps, or not, by chance, and never completed. A controller
    /// that is stopping, or has failed, may use its memory again and again.
    Lose,
    /// The controller sets CSTS.CFS and takes no more commands. This one is not completed; its memory, as that
    /// of all others in flight, may be used until the controller is reset.
    Fatal,
    /// It is not executed; the function is pulled out.
    Remove,
    /// It is executed; the completion has an identifier that no command in flight has.
    WrongId,
    /// It is executed; the completion has an identifier of all ones.
    IdOutOfRange,
    /// It is executed and completed twice.
    CompleteTwice,
    /// It is executed; the completion's SQ head lies beyond the queue.
    HeadBeyond,
    /// It is executed; the completion names another submission queue.
    WrongQueue,
    /// It is executed; before its completion the rest of the completion queue is filled with random bytes
    /// whose phase may be either.
    Garbage,
    /// It is executed; its completion is followed by more than the host has room for.
    Overwrite,
    /// It is completed with success and not executed.
    Forget,
}

/// A fault and when it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// Commands that the rule counts and may strike.
    pub target: Target,
    /// Selection among the commands of `target`, by count or by chance.
    pub when: When,
    /// Fault of the commands that the rule selects.
    pub fault: Fault,
}

/// Bytes that are replaced in what an Identify command returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentifyLie {
    /// CNS value of the Identify data structure to change (section 5.15).
    pub cns: u8,
    /// Offset of the first replaced byte in the 4,096 bytes of the structure.
    pub offset: usize,
    /// Bytes to write at `offset`; ignored if they end beyond the structure.
    pub bytes: Vec<u8>,
}

/// What goes wrong. Nothing does by default. [`Faults::add`] takes faults in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Rules for commands; the first that strikes counts.
    pub rules: Vec<FaultRule>,
    /// Whether CSTS.RDY stays zero after the host has set CC.EN.
    pub never_ready: bool,
    /// Whether CSTS.RDY stays one after the host has cleared CC.EN.
    pub never_disabled: bool,
    /// CSTS.SHST never says that the shutdown is complete.
    pub never_shut_down: bool,
    /// The function is pulled out in this step.
    pub remove_at: Option<u64>,
    /// CSTS.CFS is set in this step.
    pub fatal_at: Option<u64>,
    /// The controller loses its configuration in this step, as if it had been reset.
    pub reset_at: Option<u64>,
    /// Completions that nobody asked for: once in so many steps on an I/O queue, by chance; zero for never.
    pub unasked: u32,
    /// Bits of CAP that are cleared, before others are set.
    pub capabilities_clear: u64,
    /// Bits of CAP that are set.
    pub capabilities_set: u64,
    /// Replacements in Identify data, applied in this order.
    pub identify: Vec<IdentifyLie>,
    /// Identify data of this structure is random bytes.
    pub identify_random: Option<u8>,
    /// Whether Get Log Page returns random bytes for every log page that is offered.
    pub logs_random: bool,
    /// Results of Get Features and Set Features are random.
    pub features_random: bool,
}

/// The rules with how far each has counted.
#[derive(Debug)]
pub(crate) struct FaultPlan {
    pub(crate) faults: Faults,
    counts: Vec<u64>,
    random: Random,
}

/// Asynchronous Event Request is never counted: it waits by its nature.
const EVENT_REQUEST: u8 = crate::command::admin::ASYNCHRONOUS_EVENT_REQUEST;

impl FaultPlan {
    pub(crate) fn new(faults: Faults, seed: u64) -> Self {
        Self {
            counts: vec![0; faults.rules.len()],
            faults,
            random: Random::new(seed, 2),
        }
    }

    pub(crate) fn replace(&mut self, faults: Faults) {
        self.counts = vec![0; faults.rules.len()];
        self.faults = faults;
    }

    /// What happens to this command.
    #[inline]
    pub(crate) fn strike(&mut self, is_admin: bool, opcode: u8) -> Option<Fault> {
        if self.faults.rules.is_empty() {
            return None;
        }
        let mut struck = None;
        for (rule, count) in self.faults.rules.iter().zip(&mut self.counts) {
            let meant = match rule.target {
                Target::Io => !is_admin,
                Target::Admin => is_admin && opcode != EVENT_REQUEST,
                Target::IoOpcode(wanted) => !is_admin && opcode == wanted,
                Target::AdminOpcode(wanted) => is_admin && opcode == wanted,
            };
            if !meant {
                continue;
            }
            *count += 1;
            let strikes = match rule.when {
                When::Always => true,
                When::Nth(number) => *count == number,
                When::From(number) => *count >= number,
                When::OneIn(period) => self.random.one_in(period),
            };
            if strikes && struck.is_none() {
                struck = Some(rule.fault);
            }
        }
        struck
    }

    pub(crate) fn random(&mut self) -> &mut Random {
        &mut self.random
    }
}
