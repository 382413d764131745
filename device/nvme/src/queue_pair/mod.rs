//! A pair of rings, driven by one thread.
//!
//! # Ownership
//! All of it is its owner's. With other threads it shares the controller alone, whose epoch it reads at
//! every poll.
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
    /// Requests under way.
    under_way: usize,
    /// How many there may be: `depth`, or none if the controller was given up.
    under_way_max: usize,
    /// Bytes of a device page.
    page: u64,
    epoch: Epoch,
    /// How many losses of the cache there had been when the queue was made anew.
    losses_seen: u64,
    /// Of how many a flush has told.
    losses_told: u64,
    waiting: Waiting,
    /// Where the rings and lists lie.
    arena: Arena,
    rings: Rings,
    /// Whether the controller may know the queue.
    is_made: bool,
    /// Whether the controller, or this queue of it, was given up; its epoch is never this pair's again.
    is_dead: bool,
    commands: Commands,
    requests: Requests,
    /// Requests of which something is left to send.
    unsent: VecDeque<u16>,
    /// How many completions the controller need not be told of yet.
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
            // What is not told takes room that completions in flight do not need.
            Waiting::Poll => rings.completion.entries() - 1 - depth,
            Waiting::Interrupt | Waiting::Hybrid(_) => 0,
        };
        let mut pair = Self {
            epoch,
            losses_seen: 0,
            losses_told: controller.losses_told(),
            place: rings.place(id, vector),
            waiting: options.waiting,
            arena,
            rings,
            depth,
            under_way: 0,
            under_way_max: usize::from(depth),
            page: controller.page_size(),
            is_made: false,
            is_dead: false,
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

    /// The controller whose queue it is.
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
    pub const fn under_way(&self) -> usize {
        self.under_way
    }

    /// Whether it takes no request now.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.under_way >= self.under_way_max
    }

    /// Whether there is a place for a request, which ends with an error if the controller was given up.
    pub(crate) const fn has_room(&self) -> bool {
        self.under_way < self.depth as usize
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
        let condition = controller.settle();
        if matches!(condition, Condition::Failed | Condition::Gone) && !controller.is_quiet() {
            // The controller may still write there: the memory is given up, mapped and locked as it is. Also
            // of one that is gone, if it is its provider that does not answer.
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
            .field("under_way", &self.under_way())
            .finish_non_exhaustive()
    }
}
