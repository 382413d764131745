//! Several threads at once.

use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use millrace_memory::{Arena, Buffer};
use millrace_nvme::{
    Completion, Controller, Data, Lba, Namespace, Operation, QueueOptions, QueuePair, Request,
    SharedHandle, SharedQueue, Waiting,
};

use super::{Bench, Excuse, NOTHING};
use crate::failure::{Doing, Failure, Result, ensure};
use crate::report::Report;
use crate::words::{Words, invert};
use crate::workload::SPAN;

/// Threads of a phase.
const THREADS: u64 = 3;
/// What each writes and reads back.
const ROUNDS: u32 = 100;
/// Where the threads of each phase write, behind the span, in bytes.
const OWN_PAIRS: u64 = SPAN;
const ONE_PAIR: u64 = SPAN + (8 << 20);
/// No single wait takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a thread needs.
#[derive(Clone)]
struct Part {
    arena: Arena,
    namespace: Namespace,
    words: Words,
    /// The thread's first block.
    first: u64,
    /// Blocks of a request: a device page.
    blocks: u64,
}

impl Bench<'_> {
    fn part(&self, namespace: &Namespace, number: u64, offset: u64) -> Part {
        let page = self.controller.page_size();
        Part {
            arena: self.arena.clone(),
            namespace: namespace.clone(),
            words: Words::new(namespace, self.settings.seed),
            first: (offset + (number << 20)) >> namespace.block_shift(),
            blocks: page >> namespace.block_shift(),
        }
    }

    /// A queue pair for each thread; one thread also resets the controller.
    pub(super) fn many_threads(
        &mut self,
        namespace: &Namespace,
        report: &mut Report,
    ) -> Result<()> {
        thread::scope(|scope| {
            let threads = (0..THREADS).map(|number| {
                let controller = Arc::clone(&self.controller);
                let part = self.part(namespace, number, OWN_PAIRS);
                scope.spawn(move || part.by_own_pair(&controller, number == 0))
            });
            join(threads.collect())
        })?;
        report.writes += THREADS * u64::from(ROUNDS);
        report.reads += THREADS * u64::from(ROUNDS);
        report.resets += 1;
        let excuse = Excuse {
            asked: 1,
            unasked: 0,
            // One request of each thread. The thread that reset it submits the next before its queue is
            // made anew.
            retries: 0..=THREADS,
        };
        let what = format!("{THREADS} threads, a queue pair each, and a reset");
        self.end_phase(&what, &excuse)
    }

    /// One queue pair for several threads.
    pub(super) fn shared(&mut self, namespace: &Namespace, report: &mut Report) -> Result<()> {
        let waiting = if self.settings.interrupts {
            Waiting::Hybrid(500)
        } else {
            Waiting::Poll
        };
        let queue = SharedQueue::new(self.pair(8, waiting)?, 4);
        thread::scope(|scope| {
            let threads = (0..THREADS).map(|number| {
                let handle = queue.handle();
                let part = self.part(namespace, number, ONE_PAIR);
                scope.spawn(move || part.by_shared_pair(handle))
            });
            join(threads.collect())
        })?;
        drop(queue);
        report.writes += THREADS * u64::from(ROUNDS);
        report.reads += THREADS * u64::from(ROUNDS);
        self.end_phase(&format!("{THREADS} threads on one queue pair"), &NOTHING)
    }
}

fn join(threads: Vec<ScopedJoinHandle<'_, Result<()>>>) -> Result<()> {
    let joined: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
    joined
        .into_iter()
        .try_for_each(|ended| ended.map_err(|_| Failure::new("a thread panicked"))?)
}

impl Part {
    /// Writes and reads blocks that are no other thread's, and resets the controller half way if asked.
    fn by_own_pair(&self, controller: &Arc<Controller>, resets: bool) -> Result<()> {
        let options = QueueOptions {
            depth: 8,
            waiting: Waiting::Poll,
        };
        let mut pair = controller.queue_pair(options).doing("make a queue pair")?;
        self.write_and_read(|round, request| {
            if resets && round == ROUNDS / 2 && matches!(request.operation, Operation::Write { .. })
            {
                controller.reset().doing("reset the controller")?;
            }
            pair.submit(&self.namespace, request).doing("submit")?;
            ended(&mut pair)
        })
    }

    fn by_shared_pair(&self, mut handle: SharedHandle) -> Result<()> {
        self.write_and_read(|_, request| {
            handle.submit(&self.namespace, request).doing("submit")?;
            handle.wait().ok_or_else(|| Failure::new("nothing came"))
        })
    }

    /// Has versions of eight places written and read back.
    fn write_and_read(
        &self,
        mut execute: impl FnMut(u32, Request) -> Result<Completion>,
    ) -> Result<()> {
        let bytes = usize::try_from(self.blocks).doing("count blocks")? * self.words.block_bytes();
        let mut buffer = self.arena.try_buffer(bytes).doing("take a buffer")?;
        for round in 0..ROUNDS {
            let first = self.first + u64::from(round % 8) * self.blocks;
            self.words.fill(&mut buffer, first, round);
            buffer = done(execute(round, Request::write(Lba(first), buffer, 1))?, 1)?;
            invert(&mut buffer);
            buffer = done(execute(round, Request::read(Lba(first), buffer, 2))?, 2)?;
            ensure(self.words.are_in(&buffer, first, round), || {
                format!("a thread read other than it wrote, at block {first}")
            })?;
        }
        Ok(())
    }
}

/// Waits for the one request that is under way.
fn ended(pair: &mut QueuePair) -> Result<Completion> {
    let mut ended = None;
    while pair.requests_in_flight() > 0 {
        let count = pair.wait(PATIENCE, |completion| ended = Some(completion));
        ensure(count > 0, || "a request without completion".into())?;
    }
    ended.ok_or_else(|| Failure::new("nothing came"))
}

/// The buffer of a request that succeeded, and is the one that was asked for.
fn done(completion: Completion, token: u64) -> Result<Buffer> {
    completion.result.doing("a thread's request")?;
    ensure(completion.token == token, || "another's completion".into())?;
    let buffer = completion.data.and_then(Data::into_buffer);
    buffer.ok_or_else(|| Failure::new("no buffer came"))
}
