//! How a controller and its queue pairs are driven.

use std::time::Duration;

/// When transfers are described by scatter-gather lists rather than by lists of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScatterGather {
    /// Never use scatter-gather lists.
    Never,
    /// When PRP lists cannot describe the data: buffers whose borders are not page borders.
    WhenNeeded,
    /// For all data, if the controller supports them.
    Always,
}

/// Options of [`Controller::open`](crate::Controller::open): time limits, retries, queues and transfers.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time without completion after which a command is aborted; after the same time again the controller is reset.
    pub command_timeout: Duration,
    /// Time without completion of an admin command after which the controller is reset.
    pub admin_timeout: Duration,
    /// How often a command is sent again that the controller lost by a reset, or ended with a status that
    /// allows it.
    pub retries: u8,
    /// The longest single command in bytes; the controller's own limit, and 512 device pages, may be lower.
    pub transfer_max: u64,
    /// Use of scatter-gather lists, where the controller supports them.
    pub scatter_gather: ScatterGather,
    /// Whether shadow doorbells are used where the controller offers them.
    pub shadow_doorbells: bool,
    /// The most queue pairs that are asked for.
    pub queue_pairs_max: u16,
    /// Whether interrupts are set up where the function has vectors; without them queue pairs can only
    /// poll.
    pub interrupts: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            command_timeout: Duration::from_secs(30),
            admin_timeout: Duration::from_secs(60),
            retries: 3,
            transfer_max: 1 << 20,
            scatter_gather: ScatterGather::WhenNeeded,
            shadow_doorbells: true,
            queue_pairs_max: 64,
            interrupts: true,
        }
    }
}

/// How the owner of a queue pair waits for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// It polls: the lowest latency, a whole processor.
    Poll,
    /// It sleeps until the controller interrupts.
    Interrupt,
    /// It polls for a while that follows how long completions took of late, then sleeps. The number is the
    /// most rounds of polling.
    Hybrid(u32),
}

impl Waiting {
    /// Whether this mode needs an interrupt vector.
    pub(crate) const fn interrupts(self) -> bool {
        !matches!(self, Self::Poll)
    }
}

/// How one queue pair is made.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// How many commands may be in flight, from 1 on; the controller's limit may lower it.
    pub depth: u16,
    /// Way in which the owner waits for completions.
    pub waiting: Waiting,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            depth: 256,
            waiting: Waiting::Hybrid(4096),
        }
    }
}
