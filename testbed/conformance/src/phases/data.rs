//! Random writes and reads, and transfers of several buffers.

use millrace_memory::Buffer;
use millrace_nvme::{Data, Lba, QueuePair, Refusal, Request, Waiting};

use super::{Bench, DEPTH, NOTHING, QUEUE_DEPTH};
use crate::failure::{Doing, Failure, Result, ensure};
use crate::report::Report;
use crate::words::invert;
use crate::workload::Workload;

/// Bytes of the second of several buffers without page borders; the first has half of it.
const ODD: u64 = 1024;

impl Bench<'_> {
    pub(super) fn main_phase(
        &mut self,
        workloads: &mut [Workload],
        report: &mut Report,
    ) -> Result<()> {
        let mut pair = self.pair(QUEUE_DEPTH, Waiting::Poll)?;
        let count = u32::try_from(workloads.len()).doing("count namespaces")?;
        for workload in &mut *workloads {
            let edges = workload.run_edges(&mut pair, &self.arena, report)?;
            let operations = self.settings.operations.div_ceil(count);
            let operations = operations.saturating_sub(edges);
            workload.run(&mut pair, &self.arena, operations, DEPTH, report)?;
            self.flush(workload, &mut pair, report)?;
            workload.verify_all(&mut pair, &self.arena, report)?;
            self.end_phase(&format!("main phase: {report}"), &NOTHING)?;
        }
        Ok(())
    }

    pub(super) fn flush(
        &self,
        workload: &Workload,
        pair: &mut QueuePair,
        report: &mut Report,
    ) -> Result<()> {
        let flushed = workload.single(pair, Request::flush(0))?;
        flushed.result.doing("flush")?;
        report.flushes += 1;
        Ok(())
    }

    /// Requests of several buffers: refused or served, as their borders and the controller allow.
    pub(super) fn pieces(&mut self, workload: &mut Workload, report: &mut Report) -> Result<()> {
        let mut pair = self.pair(QUEUE_DEPTH, Waiting::Poll)?;
        let namespace = workload.namespace.clone();
        let page = self.controller.page_size();
        let whole = workload.write(&mut pair, self.buffer(8 * page)?, 0)?;
        let many = (0..8)
            .map(|_| self.buffer(page))
            .collect::<Result<Vec<_>>>()?;
        let read = workload.single(&mut pair, Request::read(Lba(0), many, 0))?;
        read.result.doing("read into several buffers")?;
        report.reads += 1;
        let data = read
            .data
            .ok_or_else(|| Failure::new("a read without its buffers"))?;
        let same = data
            .buffers()
            .iter()
            .flat_map(|buffer| buffer.iter())
            .eq(whole.iter());
        ensure(same, || "several buffers hold other than one did".into())?;
        if namespace.block_size() < 4096 {
            // The one in the middle cannot have both its borders on a page's.
            let odd = vec![self.buffer(512)?, self.buffer(512)?, self.buffer(512)?];
            let refused = pair.submit(&namespace, Request::read(Lba(0), odd, 0)).err();
            ensure(
                refused.is_some_and(|refused| refused.reason == Refusal::Alignment),
                || "borders within pages were accepted without scatter-gather lists".into(),
            )?;
        }
        drop(pair);
        self.end_phase(
            &format!("namespace {}: several buffers", namespace.id()),
            &NOTHING,
        )
    }

    /// With scatter-gather lists and shadow doorbells, as far as they are offered.
    pub(super) fn all_options(
        &mut self,
        workloads: &mut [Workload],
        report: &mut Report,
    ) -> Result<()> {
        let mut pair = self.pair(QUEUE_DEPTH, Waiting::Poll)?;
        for workload in workloads {
            let id = workload.namespace.id();
            workload.namespace = self
                .controller
                .namespace(id)
                .doing("identify a namespace")?;
            workload.verify_all(&mut pair, &self.arena, report)?;
            workload.run(&mut pair, &self.arena, 500, DEPTH, report)?;
            if self.controller.data().has_sgl() {
                self.scattered(workload, &mut pair, report)?;
            }
            workload.verify_all(&mut pair, &self.arena, report)?;
        }
        self.end_phase("again with all that is optional", &NOTHING)
    }

    /// A write of buffers, and a read into buffers, whose borders are not borders of pages.
    fn scattered(
        &self,
        workload: &mut Workload,
        pair: &mut QueuePair,
        report: &mut Report,
    ) -> Result<()> {
        let namespace = workload.namespace.clone();
        let total = (2 * ODD).next_multiple_of(u64::from(namespace.block_size()));
        let blocks = total >> namespace.block_shift();
        let first = 1;
        let content = workload.next_content(first, blocks);
        let mut buffers = vec![
            self.buffer(ODD / 2)?,
            self.buffer(ODD)?,
            self.buffer(total - ODD / 2 - ODD)?,
        ];
        let mut rest = &content[..];
        for buffer in &mut buffers {
            let (own, others) = rest.split_at(buffer.len());
            buffer.copy_from_slice(own);
            rest = others;
        }
        let written = workload.single(pair, Request::write(Lba(first), buffers, 0))?;
        written.result.doing("write buffers without page borders")?;
        report.writes += 1;
        // As one piece, and in pieces again.
        let mut whole = self.buffer(total)?;
        whole.fill(0);
        let read = workload.single(pair, Request::read(Lba(first), whole, 0))?;
        read.result.doing("read what was scattered")?;
        workload.check(&joined(&taken(read.data)?), first)?;
        let mut buffers = taken(written.data)?;
        for buffer in &mut buffers {
            invert(buffer);
        }
        let read = workload.single(pair, Request::read(Lba(first), buffers, 0))?;
        read.result
            .doing("read into buffers without page borders")?;
        report.reads += 2;
        workload.check(&joined(&taken(read.data)?), first)
    }
}

/// The buffers that come with a completion.
fn taken(data: Option<Data>) -> Result<Vec<Buffer>> {
    match data {
        Some(Data::One(buffer)) => Ok(vec![buffer]),
        Some(Data::Many(buffers)) => Ok(buffers),
        None => Err(Failure::new("a completion without its buffers")),
    }
}

fn joined(buffers: &[Buffer]) -> Vec<u8> {
    buffers
        .iter()
        .flat_map(|buffer| buffer.iter().copied())
        .collect()
}
