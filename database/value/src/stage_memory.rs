//! The memory of one blocking stage: a sort, a group, a set of record ids.
//!
//! A stage may hold [`Limits::stage_memory_bytes`](crate::operation::Limits), and all stages of all
//! operations together what the [`Environment`] gives. The first [`FREE_BYTES`] are not asked for, so that
//! small stages cost nothing; beyond them memory is taken in steps and given back when the stage ends.

use std::sync::Arc;

use crate::{Environment, Operation};

/// What a stage may hold without asking.
pub const FREE_BYTES: usize = 64 * 1024;

/// How much is asked for at once.
const STEP_BYTES: usize = 512 * 1024;

/// What one stage has taken. Gives it back when dropped.
#[derive(Debug, Default)]
pub struct StageMemory {
    taken: usize,
    environment: Option<Arc<dyn Environment>>,
}

impl StageMemory {
    /// Whether the stage may hold `bytes` in all. If not it has to spill or fail.
    #[must_use]
    pub fn allows(&mut self, operation: &Operation, bytes: usize) -> bool {
        let limit = operation.limits().stage_memory_bytes;
        if bytes > limit {
            return false;
        }
        if bytes <= self.taken.max(FREE_BYTES) {
            return true;
        }
        let wanted = bytes.next_multiple_of(STEP_BYTES).min(limit);
        let environment = self
            .environment
            .get_or_insert_with(|| Arc::clone(operation.environment()));
        let allowed = environment.try_reserve_memory(wanted - self.taken);
        if allowed {
            self.taken = wanted;
        }
        allowed
    }

    /// Gives everything back: the stage has written it out.
    pub fn release(&mut self) {
        if let (Some(environment), 1..) = (&self.environment, self.taken) {
            environment.release_memory(std::mem::take(&mut self.taken));
        }
    }
}

impl Drop for StageMemory {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::Interrupt;
    use crate::operation::Limits;

    /// A budget that all stages share, in bytes.
    #[derive(Debug)]
    struct Shared {
        left: AtomicUsize,
    }

    impl Environment for Shared {
        fn wall_clock_ms(&self) -> i64 {
            0
        }

        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }

        fn random(&self) -> u64 {
            0
        }

        fn try_reserve_memory(&self, bytes: usize) -> bool {
            let left = self.left.load(Ordering::Relaxed).checked_sub(bytes);
            if let Some(left) = left {
                self.left.store(left, Ordering::Relaxed);
            }
            left.is_some()
        }

        fn release_memory(&self, bytes: usize) {
            self.left.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn operation(shared: &Arc<Shared>, stage_memory_bytes: usize) -> Operation {
        let environment: Arc<dyn Environment> = shared.clone();
        Operation::new(
            environment,
            Arc::new(Interrupt::default()),
            Limits { stage_memory_bytes },
        )
    }

    #[test]
    fn stages_share_what_there_is_and_give_it_back() {
        let all = 4 * STEP_BYTES;
        let shared = Arc::new(Shared {
            left: AtomicUsize::new(all),
        });
        let left = || shared.left.load(Ordering::Relaxed);
        let operation = operation(&shared, usize::MAX / 2);
        let (mut first, mut second) = (StageMemory::default(), StageMemory::default());
        assert!(first.allows(&operation, FREE_BYTES));
        assert_eq!(left(), all, "little is not asked for");
        assert!(first.allows(&operation, FREE_BYTES + 1));
        assert!(first.allows(&operation, STEP_BYTES));
        assert_eq!(left(), all - STEP_BYTES);
        assert!(second.allows(&operation, 3 * STEP_BYTES));
        assert_eq!(left(), 0);
        assert!(!first.allows(&operation, STEP_BYTES + 1));
        assert!(first.allows(&operation, STEP_BYTES), "what it has it keeps");
        second.release();
        second.release();
        assert_eq!(left(), 3 * STEP_BYTES);
        assert!(first.allows(&operation, 2 * STEP_BYTES));
        drop((first, second));
        assert_eq!(left(), all);
    }

    #[test]
    fn a_stage_has_a_limit_of_its_own() {
        let shared = Arc::new(Shared {
            left: AtomicUsize::new(usize::MAX),
        });
        let asked = || usize::MAX - shared.left.load(Ordering::Relaxed);
        let large = operation(&shared, STEP_BYTES + 7);
        let mut memory = StageMemory::default();
        assert!(memory.allows(&large, STEP_BYTES + 1));
        assert_eq!(asked(), STEP_BYTES + 7, "no more than it may hold");
        assert!(memory.allows(&large, STEP_BYTES + 7));
        assert!(!memory.allows(&large, STEP_BYTES + 8));
        assert_eq!(asked(), STEP_BYTES + 7, "a refusal takes nothing");
        let small = operation(&shared, 1000);
        assert!(StageMemory::default().allows(&small, 1000));
        assert!(!StageMemory::default().allows(&small, 1001));
        assert!(!memory.allows(&small, 1001), "the limit is the operation's");
    }
}
