//! Resets while requests are under way.

use std::ops::RangeInclusive;

use millrace_nvme::{QueuePair, Waiting};
use millrace_pci::ErrorKind;

use super::{Bench, DEPTH, Excuse, NOTHING, QUEUE_DEPTH};
use crate::failure::{Doing, Result};
use crate::report::Report;
use crate::workload::Workload;

/// Resets of a phase.
const ROUNDS: u64 = 3;

impl Bench<'_> {
    /// Resets the controller while requests are under way; all of them still complete.
    pub(super) fn reset_under_load(
        &mut self,
        workload: &mut Workload,
        report: &mut Report,
    ) -> Result<()> {
        let what = format!("namespace {}: reset under load", workload.namespace.id());
        let mut pair = self.pair(QUEUE_DEPTH, Waiting::Poll)?;
        for _ in 0..ROUNDS {
            let in_flight = self.load(workload, &mut pair)?;
            pair.ring();
            self.controller.reset().doing("reset the controller")?;
            report.resets += 1;
            workload.finish(&mut pair, report)?;
            workload.run(&mut pair, &self.arena, 20, DEPTH, report)?;
            let excuse = Excuse {
                asked: 1,
                unasked: 0,
                retries: in_flight,
            };
            self.end_phase(&what, &excuse)?;
        }
        workload.verify_all(&mut pair, &self.arena, report)?;
        self.end_phase(&what, &NOTHING)
    }

    /// Resets the function behind the driver's back when the controller is about to be told of requests: the
    /// driver finds it disabled and brings it up again. Whether the function can be reset.
    ///
    /// The controller does not know of them yet, so that it is not cut off in the midst of a transfer, which
    /// would look like a transfer that nobody allowed.
    pub(super) fn function_reset(
        &mut self,
        workload: &mut Workload,
        report: &mut Report,
    ) -> Result<bool> {
        let what = "reset of the function";
        let mut pair = self.pair(QUEUE_DEPTH, Waiting::Poll)?;
        let in_flight = self.load(workload, &mut pair)?;
        match self.function.reset() {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                workload.finish(&mut pair, report)?;
                self.end_phase(&format!("{what}: {error}"), &NOTHING)?;
                return Ok(false);
            }
            Err(error) => return Err(error).doing("reset the function"),
        }
        report.resets += 1;
        workload.finish(&mut pair, report)?;
        workload.run(&mut pair, &self.arena, 20, DEPTH, report)?;
        workload.verify_all(&mut pair, &self.arena, report)?;
        let excuse = Excuse {
            asked: 0,
            unasked: 1,
            retries: in_flight,
        };
        self.end_phase(what, &excuse)?;
        Ok(true)
    }

    /// Submits as much as there may be; returns how many commands are in flight, which until their
    /// completions are collected all of them are.
    fn load(&self, workload: &mut Workload, pair: &mut QueuePair) -> Result<RangeInclusive<u64>> {
        while workload.under_way() < DEPTH && workload.submit(pair, &self.arena)? {}
        let depth = pair.depth() as u64;
        let requests = workload.under_way() as u64;
        let commands = workload.commands_under_way_max(self.controller.transfer_max());
        Ok(requests.min(depth)..=commands.min(depth))
    }
}
