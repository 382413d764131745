//! A pair of rings, driven by one thread.
//!
//! # Ownership
//! The owner has exclusive access to all fields. Shared with other threads is only the controller, whose epoch the
//! owner reads at every poll.
//!
//! # Invariants
//! 1. No more commands are in flight than there are slots, which is less than either ring has entries.
//! 2. Data of a request is given back only when none of its commands is in flight, or the controller has
//!    lost the queue they were in.
//! 3. What is in flight is in the queue of `epoch`; when the controller's epoch is another, the queue is made
//!    anew and all of it is sent again or fails.

mod completion;
mod memory;
mod recovery;
mod submission;
mod waiting;

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use millrace_memory::Arena;

use self::memory::Rings;
pub(crate) use self::recovery::TIME_BETWEEN_CHECKS;
use crate::admin_commands::QueuePlace;
use crate::commands::{Commands, Requests};
use crate::epoch::Epoch;
use crate::{CommandError, Condition, Controller, Error, ErrorKind, QueueOptions, Result, Waiting};

/// A queue pair. It belongs to one thread at a time: it is `Send` and not `Sync`.
///
/// Dropping it takes its queue from the controller; data of requests that are still under way is freed after
/// that.
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<millrace_nvme::QueuePair>();
/// ```
pub struct QueuePair {
    controller: Arc<Controller>,
    place: QueuePlace,
    /// The most requests under way, and commands in flight.
    depth: u16,
    /// Number of requests in flight.
    requests_in_flight: usize,
    /// Most requests in flight: `depth`, or 0 if the controller has failed.
    requests_in_flight_max: usize,
    /// Bytes of a page of the controller.
    page: u64,
    epoch: Epoch,
    /// How many losses of the cache there had been when the queue was made anew.
    losses_seen: u64,
    /// Number of losses that a flush has reported.
    losses_reported: u64,
    waiting: Waiting,
    /// Where the rings and lists lie.
    arena: Arena,
    rings: Rings,
    /// Whether the controller may have the queue.
    is_made: bool,
    /// Whether the controller, or this queue of it, has failed; the controller's epoch never equals this pair's again.
    is_failed: bool,
    commands: Commands,
    requests: Requests,
    /// Requests of which something is left to send.
    unsent: VecDeque<u16>,
    /// Completions that the head doorbell may lag behind.
    lag: u16,
    polls: u32,
    checked: Duration,
    /// Rounds of polling before it sleeps, under [`Waiting::Hybrid`].
    rounds: u32,
    /// Whether the owner has asked for the interrupt's event, and may watch it. (The cell also keeps the pair from being
    /// `Sync`.)
    is_watched: Cell<bool>,
}

/// It goes from thread to thread.
const _: () = {
    const fn goes<T: Send>() {}
    goes::<QueuePair>();
};

impl QueuePair {
    pub(crate) fn new(controller: Arc<Controller>, options: QueueOptions) -> Result<Self> {
        if options.depth == 0 {
            let context = "a queue pair for no commands";
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let epoch = controller.epoch();
        let (id, vector) = controller.take_queue(options.waiting.interrupts())?;
        let made = Rings::new(&controller, id, options.depth);
        let (rings, depth, arena) = made.inspect_err(|_| controller.give_queue(id))?;
        let lag = match options.waiting {
            // The lag leaves space for all completions in flight.
            Waiting::Poll => rings.completion.entries() - 1 - depth,
            Waiting::Interrupt | Waiting::Hybrid(_) => 0,
        };
        let mut pair = Self {
            epoch,
            losses_seen: 0,
            losses_reported: controller.losses_reported(),
            place: rings.place(id, vector),
            waiting: options.waiting,
            arena,
            rings,
            depth,
            requests_in_flight: 0,
            requests_in_flight_max: usize::from(depth),
            page: controller.page_size(),
            is_made: false,
            is_failed: false,
            commands: Commands::new(depth),
            requests: Requests::new(depth),
            unsent: VecDeque::with_capacity(usize::from(depth)),
            lag,
            polls: 0,
            checked: Duration::ZERO,
            rounds: 0,
            is_watched: Cell::new(false),
            controller,
        };
        pair.make_queue()?;
        // Nothing is in flight.
        pair.losses_seen = pair.controller.losses();
        Ok(pair)
    }

    /// The controller of this queue pair.
    #[must_use]
    pub const fn controller(&self) -> &Arc<Controller> {
        &self.controller
    }

    /// How many requests can be under way.
    #[must_use]
    pub fn depth(&self) -> usize {
        usize::from(self.depth)
    }

    /// How many requests are under way.
    #[must_use]
    pub const fn requests_in_flight(&self) -> usize {
        self.requests_in_flight
    }

    /// Whether it takes no request now.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.requests_in_flight >= self.requests_in_flight_max
    }

    /// Whether a request can be accepted; it ends with an error if the controller has failed.
    pub(crate) const fn has_room(&self) -> bool {
        self.requests_in_flight < self.depth as usize
    }

    /// How many losses of the cache there had been when the queue was made anew.
    pub(crate) const fn losses_seen(&self) -> u64 {
        self.losses_seen
    }

    /// Whether a completion lies there that was not taken.
    pub(crate) fn has_completed(&self) -> bool {
        self.rings.completion.peek().is_some()
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let controller = Arc::clone(&self.controller);
        if self.is_made {
            let deleted = controller.delete_queue(self.place.id, self.epoch);
            if let Err(error) = deleted {
                // A reset takes the queue from it as well.
                controller.reset_from(self.epoch, error);
            }
        }
        let condition = controller.wait_for_reset();
        if matches!(condition, Condition::Failed | Condition::Gone) && !controller.is_quiet() {
            // The controller may still write there: the memory is leaked, mapped and locked. Also that of a removed
            // controller, if its provider does not answer.
            self.fail_all(CommandError::Failed, &mut |_| {});
            mem::forget(self.arena.clone());
        }
        controller.give_queue(self.place.id);
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("controller", &self.controller.name())
            .field("id", &self.place.id)
            .field("depth", &self.depth())
            .field("under_way", &self.requests_in_flight())
            .finish_non_exhaustive()
    }
}
