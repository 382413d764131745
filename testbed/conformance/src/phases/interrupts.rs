//! Completions that the controller interrupts for.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use millrace_nvme::{Lba, Namespace, QueuePair, Request, Waiting};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Bench, DEPTH, Excuse, NOTHING, QUEUE_DEPTH};
use crate::failure::{Doing, Failure, Result, ensure};
use crate::report::Report;
use crate::workload::Workload;

/// So long an interrupt may take. Waiting by itself would end earlier without one.
const INTERRUPT_LIMIT: Duration = Duration::from_secs(30);

impl Bench<'_> {
    /// Completions by interrupt, and by polling first and sleeping later.
    pub(super) fn sleeping(&mut self, workload: &mut Workload, report: &mut Report) -> Result<()> {
        if !self.settings.interrupts {
            return Ok(());
        }
        for waiting in [Waiting::Interrupt, Waiting::Hybrid(2000)] {
            let mut pair = self.pair(QUEUE_DEPTH, waiting)?;
            workload.run(&mut pair, &self.arena, 200, DEPTH / 4, report)?;
        }
        let what = format!("namespace {}: sleeping", workload.namespace.id());
        self.end_phase(&what, &NOTHING)
    }

    /// Each vector interrupts for its own queue and no other, also after a reset.
    pub(super) fn vectors(&mut self, workload: &Workload, report: &mut Report) -> Result<()> {
        if !self.settings.interrupts {
            return Ok(());
        }
        let namespace = &workload.namespace;
        // Vector 0 is the admin queue's, which is polled.
        let vectors = usize::from(self.function.vectors()) - 1;
        let count = vectors.min(self.controller.queue_pairs_max());
        let mut pairs = (0..count)
            .map(|_| self.pair(1, Waiting::Interrupt))
            .collect::<Result<Vec<_>>>()?;
        self.interrupt_by_each(namespace, &mut pairs, report)?;
        self.end_phase(&format!("{count} vectors"), &NOTHING)?;
        self.controller.reset().doing("reset the controller")?;
        report.resets += 1;
        for pair in &mut pairs {
            // Makes its queue anew.
            let count = pair.poll(|_| {});
            ensure(count == 0, || "a completion that nobody asked for".into())?;
        }
        self.interrupt_by_each(namespace, &mut pairs, report)?;
        let excuse = Excuse {
            asked: 1,
            ..NOTHING
        };
        self.end_phase(&format!("{count} vectors after a reset"), &excuse)
    }

    /// Reads by each pair; nobody looks at a ring before the interrupt is there.
    fn interrupt_by_each(
        &self,
        namespace: &Namespace,
        pairs: &mut [QueuePair],
        report: &mut Report,
    ) -> Result<()> {
        for pair in &*pairs {
            empty(event(pair)?);
        }
        for index in 0..pairs.len() {
            let vector = index + 1;
            let buffer = self.buffer(u64::from(namespace.block_size()))?;
            let pair = &mut pairs[index];
            let request = Request::read(Lba(0), buffer, index as u64);
            pair.submit(namespace, request).doing("submit")?;
            pair.ring();
            ensure(is_readable(event(pair)?, INTERRUPT_LIMIT)?, || {
                format!("vector {vector} did not interrupt within {INTERRUPT_LIMIT:?}")
            })?;
            empty(event(pair)?);
            let mut ended = None;
            pair.poll(|completion| ended = Some(completion));
            let ended = ended.ok_or_else(|| {
                Failure::new(format!(
                    "vector {vector} interrupted before the completion was there"
                ))
            })?;
            ended.result.doing("read")?;
            report.interrupts += 1;
            for (other, pair) in (1..).zip(&*pairs) {
                ensure(!is_readable(event(pair)?, Duration::ZERO)?, || {
                    format!("vector {other} interrupted for a request of queue {vector}")
                })?;
            }
        }
        Ok(())
    }
}

fn event(pair: &QueuePair) -> Result<BorrowedFd<'_>> {
    let event = pair.interrupt();
    event.ok_or_else(|| Failure::new("a queue pair that cannot be slept on"))
}

/// Empties an eventfd, which may be empty.
fn empty(event: BorrowedFd<'_>) {
    let _ = rustix::io::read(event, &mut [0; 8]);
}

/// Whether an eventfd is readable within `limit`.
fn is_readable(event: BorrowedFd<'_>, limit: Duration) -> Result<bool> {
    let limit = Timespec::try_from(limit).doing("say a time")?;
    let count = poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&limit));
    Ok(count.doing("wait for an interrupt")? > 0)
}
