//! Commands but reads and writes, and what is no request at all.

use millrace_nvme::{CommandError, Data, Lba, Refusal, Request, Status, Waiting};

use super::{Bench, NOTHING, QUEUE_DEPTH};
use crate::failure::{Doing, Failure, Result, ensure};
use crate::report::Report;
use crate::workload::{REQUEST_MAX, Workload};

impl Bench<'_> {
    /// Compare, Write Zeroes, deallocation.
    pub(super) fn commands(&mut self, workload: &mut Workload, report: &mut Report) -> Result<()> {
        let mut pair = self.pair(QUEUE_DEPTH, Waiting::Poll)?;
        let namespace = workload.namespace.clone();
        let data = self.controller.data().clone();
        let bytes = REQUEST_MAX / 2;
        let blocks = bytes >> namespace.block_shift();
        let mut buffer = workload.write(&mut pair, self.buffer(bytes)?, 3)?;
        if data.has_compare() {
            let equal = workload.single(&mut pair, Request::compare(Lba(3), buffer, 0))?;
            equal.result.doing("compare equal blocks")?;
            let returned = equal.data.and_then(Data::into_buffer);
            buffer = returned.ok_or_else(|| Failure::new("a compare without its buffer"))?;
            let last = buffer.len() - 1;
            buffer[last] ^= 1;
            let differing = workload.single(&mut pair, Request::compare(Lba(3), buffer, 0))?;
            let failed = matches!(
                differing.result,
                Err(CommandError::Status(status)) if status.is(Status::COMPARE_FAILURE)
            );
            ensure(failed, || {
                format!("compare of differing blocks: {:?}", differing.result)
            })?;
            report.compares += 2;
        }
        if data.has_write_zeroes() {
            let request = Request::write_zeroes(Lba(3), blocks, 0);
            let zeroed = workload.single(&mut pair, request)?;
            zeroed.result.doing("write zeroes")?;
            workload.set_zero(3, blocks);
            report.erasures += 1;
        }
        if data.has_dataset_management() {
            workload.write(&mut pair, self.buffer(bytes)?, 3 + blocks)?;
            let request = Request::deallocate(Lba(3 + blocks), blocks, 0);
            let deallocated = workload.single(&mut pair, request)?;
            deallocated.result.doing("deallocate")?;
            if namespace.deallocated_reads_zero() {
                workload.set_zero(3 + blocks, blocks);
            } else {
                workload.set_unknown(3 + blocks, blocks);
            }
            report.erasures += 1;
        }
        self.flush(workload, &mut pair, report)?;
        workload.verify_all(&mut pair, &self.arena, report)?;
        self.end_phase(&format!("namespace {}: commands", namespace.id()), &NOTHING)
    }

    /// What must not be accepted is not, and nothing is done.
    pub(super) fn refusals(&mut self, workload: &Workload) -> Result<()> {
        let mut pair = self.pair(1, Waiting::Poll)?;
        let namespace = &workload.namespace;
        let size = u64::from(namespace.block_size());
        let last = namespace.blocks() - 1;
        let cases = [
            (
                Request::read(Lba(last), self.buffer(2 * size)?, 0),
                Refusal::OutOfRange,
            ),
            (
                Request::read(Lba(u64::MAX), self.buffer(size)?, 0),
                Refusal::OutOfRange,
            ),
            (
                Request::read(Lba(0), self.buffer(size - 4)?, 0),
                Refusal::Length,
            ),
            (Request::write_zeroes(Lba(0), 0, 0), Refusal::Length),
            (
                Request::write_zeroes(Lba(1), namespace.blocks(), 0),
                Refusal::OutOfRange,
            ),
        ];
        for (request, reason) in cases {
            let what = format!("{:?}", request.operation);
            let refused = pair.submit(namespace, request).err();
            ensure(
                refused
                    .as_ref()
                    .is_some_and(|refused| refused.reason == reason),
                || format!("{what} was not refused as {reason:?} but {refused:?}"),
            )?;
        }
        let full = [(); 2].map(|()| {
            let buffer = self.buffer(size)?;
            Ok(pair
                .submit(namespace, Request::read(Lba(0), buffer, 0))
                .err())
        });
        let [first, second] = full;
        let full =
            first?.is_none() && second?.is_some_and(|refused| refused.reason == Refusal::QueueFull);
        ensure(full, || {
            "a queue pair of depth 1 takes other than 1 request".into()
        })?;
        drop(pair);
        self.end_phase(&format!("namespace {}: refusals", namespace.id()), &NOTHING)
    }
}
