//! What an operation brings with it: time, randomness, memory, the ways it can be interrupted, its
//! limits.

use std::cell::Cell;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use bson::Timestamp;
use bson::oid::ObjectId;

use crate::{Error, ErrorCode, ReadView, Result};

/// Time, randomness and memory, given from outside so that a simulator can drive the crate.
pub trait Environment: Send + Sync + Debug {
    /// The wall clock, in milliseconds since 1970-01-01 UTC.
    fn wall_clock_ms(&self) -> i64;
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
    /// 64 random bits. Used for ObjectIds, UUIDs, cursor ids and `$sample`; unguessable in production.
    fn random(&self) -> u64;
    /// Takes `bytes` from the memory that sorts and groups of all operations share; `false` if it does not
    /// have them. Without an answer of its own there is no common limit.
    fn try_reserve_memory(&self, bytes: usize) -> bool {
        let _ = bytes;
        true
    }
    /// Gives back what was taken.
    fn release_memory(&self, bytes: usize) {
        let _ = bytes;
    }
}

/// The ways to stop a running operation from another thread.
///
/// `code` is written by any thread that kills and read by the operation; `deadline_us` is written before
/// the operation starts. Nothing else is published through them, so `Relaxed` suffices.
#[derive(Debug)]
pub struct Interrupt {
    /// The error code to fail with; 0 while not killed.
    code: AtomicI32,
    /// Monotonic microseconds at which `maxTimeMS` is over; `u64::MAX` for never.
    deadline_us: AtomicU64,
}

impl Default for Interrupt {
    fn default() -> Self {
        Self {
            code: AtomicI32::new(0),
            deadline_us: AtomicU64::new(u64::MAX),
        }
    }
}

impl Interrupt {
    /// Makes the operation fail with `code` at its next check.
    pub fn kill(&self, code: ErrorCode) {
        self.code.store(code.number(), Ordering::Relaxed);
    }

    /// Makes the operation fail with `MaxTimeMSExpired` once the monotonic clock reaches `deadline`.
    pub fn set_deadline(&self, deadline: Option<Duration>) {
        let us = deadline.map_or(u64::MAX, |d| {
            u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
        });
        self.deadline_us.store(us, Ordering::Relaxed);
    }

    /// The monotonic time at which `maxTimeMS` is over.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        match self.deadline_us.load(Ordering::Relaxed) {
            u64::MAX => None,
            us => Some(Duration::from_micros(us)),
        }
    }
}

/// The memory limits of one operation, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many bytes one blocking stage (sort, group) may hold before it spills or fails.
    pub stage_memory_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            stage_memory_bytes: 100 * 1024 * 1024,
        }
    }
}

/// How many cheap checks pass between two readings of the clock.
const CHECKS_PER_CLOCK: u32 = 64;

/// One running operation. It belongs to the thread that runs it.
#[derive(Debug)]
pub struct Operation {
    environment: Arc<dyn Environment>,
    interrupt: Arc<Interrupt>,
    limits: Limits,
    view: Option<ReadView>,
    started_wall_ms: i64,
    checks: Cell<u32>,
}

impl Operation {
    /// An operation that starts now, by the wall clock of `environment`.
    #[must_use]
    pub fn new(
        environment: Arc<dyn Environment>,
        interrupt: Arc<Interrupt>,
        limits: Limits,
    ) -> Self {
        let started_wall_ms = environment.wall_clock_ms();
        Self {
            environment,
            interrupt,
            limits,
            view: None,
            started_wall_ms,
            checks: Cell::new(0),
        }
    }

    /// The same operation with all its reads at `view`, which is of the engine of the database that the
    /// operation runs on. Without a view of its own an operation reads at the latest one.
    #[must_use]
    pub fn reading_at(self, view: ReadView) -> Self {
        Self {
            view: Some(view),
            ..self
        }
    }

    /// The view that was chosen for the operation; none if it reads at the latest one.
    /// The catalog's `read_view` answers for both.
    #[must_use]
    pub const fn view(&self) -> Option<&ReadView> {
        self.view.as_ref()
    }

    /// Fails if the operation was killed or is out of time. Cheap: call it once a document.
    ///
    /// # Errors
    /// `MaxTimeMSExpired`, or the code it was killed with (`Interrupted`, `CursorKilled`, ...).
    pub fn check(&self) -> Result<()> {
        match self.interrupt.code.load(Ordering::Relaxed) {
            0 => {}
            code => {
                return Err(Error::new(
                    ErrorCode::from_number(code),
                    "operation was interrupted",
                ));
            }
        }
        let Some(deadline) = self.interrupt.deadline() else {
            return Ok(());
        };
        let checks = self.checks.get();
        self.checks.set(checks.wrapping_add(1));
        if checks % CHECKS_PER_CLOCK == 0 && self.environment.monotonic() >= deadline {
            return Err(Error::new(
                ErrorCode::MaxTimeMSExpired,
                "operation exceeded time limit",
            ));
        }
        Ok(())
    }

    /// The clocks and the randomness that the operation uses.
    #[must_use]
    pub fn environment(&self) -> &Arc<dyn Environment> {
        &self.environment
    }

    /// The handle by which other threads stop the operation.
    #[must_use]
    pub fn interrupt(&self) -> &Arc<Interrupt> {
        &self.interrupt
    }

    /// The operation's memory limits, fixed when it started.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// When the operation started (`$$NOW`), in milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn started_wall_ms(&self) -> i64 {
        self.started_wall_ms
    }
}

/// The present time as a timestamp: seconds, and the milliseconds within the second as an increment that
/// is never zero, because a zero timestamp means "fill me in".
#[must_use]
pub fn current_timestamp(environment: &dyn Environment) -> Timestamp {
    let now_ms = environment.wall_clock_ms();
    Timestamp {
        time: u32::try_from(now_ms.div_euclid(1000)).unwrap_or(0),
        increment: u32::try_from(now_ms.rem_euclid(1000)).unwrap_or(0) + 1,
    }
}

/// A new ObjectId: 4 bytes of seconds, then 8 random bytes (the specification's machine part and
/// counter, which only have to be unique).
#[must_use]
pub fn new_object_id(environment: &dyn Environment) -> ObjectId {
    let seconds = environment
        .wall_clock_ms()
        .div_euclid(1000)
        .rem_euclid(1 << 32);
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&u32::try_from(seconds).unwrap_or(0).to_be_bytes());
    bytes[4..].copy_from_slice(&environment.random().to_be_bytes());
    ObjectId::from_bytes(bytes)
}
