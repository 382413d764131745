//! Resets while requests are under way.

use millrace_nvme::{QueuePair, Waiting};
use millrace_pci::ErrorKind;

use super::{Bench, DEPTH, Excuse, QUEUE_DEPTH};
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
        self.end_phase(&what, &super::NOTHING)
    }

    /// Resets the function behind the driver's back while requests are under way: the driver finds the
    /// controller disabled and brings it up again. Whether the function can be reset.
    pub(super) fn function_reset(
        &mut self,
        workload: &mut Workload,
        report: &mut Report,
    ) -> Result<bool> {
        let what = "reset of the function under load";
        let mut pair = self.pair(QUEUE_DEPTH, Waiting::Poll)?;
        let in_flight = self.load(workload, &mut pair)?;
        match self.function.reset() {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                workload.finish(&mut pair, report)?;
                (self.say)(&format!("{what}: {error}"));
                return Ok(false);
            }
            Err(error) => return Err(error).doing("reset the function"),
        }
        report.resets += 1;
        workload.finish(&mut pair, report)?;
        // If all had ended before it is found now.
        workload.run(&mut pair, &self.arena, 20, DEPTH, report)?;
        workload.verify_all(&mut pair, &self.arena, report)?;
        let excuse = Excuse {
            asked: 0,
            unasked: 1,
            retries: 1..=(*in_flight.end()).max(DEPTH as u64),
        };
        self.end_phase(what, &excuse)?;
        Ok(true)
    }

    /// Gives the controller as much to do as there may be; returns how many commands are in flight, which
    /// until their completions are collected all of them are.
    fn load(
        &self,
        workload: &mut Workload,
        pair: &mut QueuePair,
    ) -> Result<std::ops::RangeInclusive<u64>> {
        while workload.under_way() < DEPTH && workload.submit(pair, &self.arena)? {}
        pair.ring();
        let depth = pair.depth() as u64;
        let requests = workload.under_way() as u64;
        let commands = workload.commands_under_way_max(self.controller.transfer_max());
        Ok(requests.min(depth)..=commands.min(depth))
    }
}
