//! What one thread of a run does.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use millrace_memory::{Arena, ArenaOptions, Buffer, Pages, SizeClass};
use millrace_nvme::{Completion, Lba, Namespace, QueueOptions, QueuePair, Request, Waiting};

use super::addresses::{Addresses, Random};
use super::report::{Workload, latencies};
use crate::nvme::error::device_error;
use crate::nvme::{Device, ErrorKind, ToolError};

/// How long a thread waits before it looks whether the run is over.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// When a thread's part ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) time: Option<Duration>,
    pub(super) operations: u64,
}

/// What others may know of a thread while it runs.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Operations that have completed.
    pub(super) completed: AtomicU64,
    /// Operations that were sent and have not completed.
    pub(super) under_way: AtomicU64,
}

/// An operation in flight, found by its token.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    place: u64,
    is_read: bool,
}

/// A thread's queue and buffers, and what it is to do with them.
pub(super) struct Worker {
    pair: QueuePair,
    namespace: Namespace,
    /// Blocks of one operation.
    blocks: u64,
    read_percent: u64,
    addresses: Addresses,
    random: Random,
    limits: Limits,
    /// Tokens that are free, with their buffers.
    idle: Vec<(u64, Buffer)>,
    sent: Vec<Option<Sent>>,
    outcome: Outcome,
}

/// What a thread has measured.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Latencies in nanoseconds.
    pub(super) reads: Histogram<u64>,
    /// Latencies in nanoseconds.
    pub(super) writes: Histogram<u64>,
    /// When the last operation completed.
    pub(super) end: Instant,
    /// What ended the run before its time.
    pub(super) failure: Option<Box<dyn StdError + Send + Sync>>,
}

/// An operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("{kind} at block {lba}")]
struct Failure {
    kind: &'static str,
    lba: Lba,
    source: Box<dyn StdError + Send + Sync>,
}

impl Worker {
    pub(super) fn new(
        device: &Device,
        namespace: &Namespace,
        workload: &Workload,
        waiting: Waiting,
        addresses: Addresses,
        mut random: Random,
        limits: Limits,
    ) -> Result<Self, ToolError> {
        let controller = device.controller();
        let options = QueueOptions {
            depth: u16::try_from(workload.depth).expect("an option of 16 bits"),
            waiting,
        };
        let pair = controller
            .queue_pair(options)
            .map_err(device_error(device.name(), "making a queue"))?;
        let size = workload.block_size.0;
        let depth = pair.depth();
        let arena = ArenaOptions {
            classes: vec![SizeClass {
                size: size.next_power_of_two().max(SizeClass::SIZE_MIN),
                count: u32::try_from(depth).expect("a queue has 4,095 commands at most"),
            }],
            pages: Pages::Auto,
            node: None,
            locked: true,
        };
        let memory = |source: Box<dyn StdError + Send + Sync>| {
            let context = format!("{}: no buffers", device.name());
            ToolError::new(ErrorKind::Device, context)
                .caused_by(source)
                .advise("ask for less: --depth, --block-size, --threads")
        };
        let arena = Arena::new(Arc::clone(controller.domain()), &arena)
            .map_err(|source| memory(source.into()))?;
        let mut idle = Vec::with_capacity(depth);
        for token in 0..depth as u64 {
            let mut buffer = arena
                .try_buffer(size)
                .map_err(|source| memory(source.into()))?;
            if workload.read_percent < 100 {
                // Devices that compress, or drop zeroes, are not to be faster for it.
                for chunk in buffer.chunks_mut(8) {
                    chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
                }
            }
            idle.push((token, buffer));
        }
        Ok(Self {
            pair,
            namespace: namespace.clone(),
            blocks: size as u64 >> namespace.block_shift(),
            read_percent: u64::from(workload.read_percent),
            addresses,
            random,
            limits,
            idle,
            sent: vec![None; depth],
            outcome: Outcome {
                reads: latencies(),
                writes: latencies(),
                end: Instant::now(),
                failure: None,
            },
        })
    }

    pub(super) fn depth(&self) -> usize {
        self.pair.depth()
    }

    /// Runs to its end, and tells meanwhile how far it is.
    pub(super) fn run(mut self, start: Instant, stop: &AtomicBool, tally: &Tally) -> Outcome {
        let deadline = self.limits.time.and_then(|time| start.checked_add(time));
        self.outcome.end = start;
        loop {
            let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let is_over = is_late || self.limits.operations == 0 || stop.load(Ordering::Relaxed);
            if !is_over {
                self.submit();
            } else if self.pair.under_way() == 0 {
                return self.outcome;
            }
            self.take_completions();
            if self.outcome.failure.is_some() {
                stop.store(true, Ordering::Relaxed);
            }
            let completed = self.outcome.reads.len() + self.outcome.writes.len();
            tally.completed.store(completed, Ordering::Relaxed);
            let under_way = self.pair.under_way() as u64;
            tally.under_way.store(under_way, Ordering::Relaxed);
        }
    }

    /// Fills the queue.
    fn submit(&mut self) {
        while self.limits.operations > 0 {
            let Some((token, buffer)) = self.idle.pop() else {
                return;
            };
            let place = self.addresses.next(&mut self.random);
            let is_read = self.read_percent == 100 || self.random.below(100) < self.read_percent;
            let lba = Lba(place * self.blocks);
            let request = match is_read {
                true => Request::read(lba, buffer, token),
                false => Request::write(lba, buffer, token),
            };
            let sent = Sent {
                at: Instant::now(),
                place,
                is_read,
            };
            let index = usize::try_from(token).expect("tokens are below the depth");
            self.sent[index] = Some(sent);
            if let Err(refused) = self.pair.submit(&self.namespace, request) {
                self.sent[index] = None;
                let failure = sent.failure(self.blocks, refused);
                self.outcome.failure.get_or_insert(failure);
                return;
            }
            self.limits.operations -= 1;
        }
    }

    fn take_completions(&mut self) {
        let Self {
            pair,
            idle,
            sent,
            outcome,
            blocks,
            ..
        } = self;
        // One look at the clock for all that a poll brings.
        let mut seen = None;
        pair.wait(WAIT_MAX, |completion: Completion| {
            let now = *seen.get_or_insert_with(Instant::now);
            let token = completion.token;
            let index = usize::try_from(token).expect("tokens are below the depth");
            let sent = sent[index].take().expect("a request completes once");
            if let Err(error) = completion.result {
                outcome.failure.get_or_insert(sent.failure(*blocks, error));
                return;
            }
            let latency = now.saturating_duration_since(sent.at).as_nanos();
            let latency = u64::try_from(latency).unwrap_or(u64::MAX);
            let latencies = match sent.is_read {
                true => &mut outcome.reads,
                false => &mut outcome.writes,
            };
            latencies.saturating_record(latency);
            outcome.end = now;
            let buffer = completion.data.and_then(millrace_nvme::Data::into_buffer);
            idle.extend(buffer.map(|buffer| (token, buffer)));
        });
    }
}

impl Sent {
    fn failure(
        self,
        blocks: u64,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Box<dyn StdError + Send + Sync> {
        Box::new(Failure {
            kind: if self.is_read { "read" } else { "write" },
            lba: Lba(self.place * blocks),
            source: source.into(),
        })
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("pair", &self.pair)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
