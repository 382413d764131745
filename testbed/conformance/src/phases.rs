//! The steps of a run.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use millrace_memory::{Arena, ArenaOptions, Buffer, Pages, SizeClass};
use millrace_nvme::{
    CommandError, Controller, Data, ErrorKind, Host, Lba, Options, QueueOptions, QueuePair,
    Refusal, Request, ScatterGather, SharedQueue, Status, Waiting,
};
use millrace_pci::Function;

use crate::Settings;
use crate::failure::{Doing, Failure, Result, ensure};
use crate::report::Report;
use crate::workload::{REQUEST_MAX, SPAN, Workload};

/// How many requests the main phase has under way.
const DEPTH: usize = 16;
/// Commands in flight in a queue pair: fewer than the parts of `DEPTH` requests, so that requests wait.
const QUEUE_DEPTH: u16 = 64;
/// Threads of the phase with many.
const THREADS: u64 = 3;

/// What all phases use.
struct Bench<'a> {
    controller: Arc<Controller>,
    arena: Arena,
    settings: Settings,
    say: &'a mut dyn FnMut(&str),
}

pub(crate) fn run(
    function: &Arc<dyn Function>,
    host: &Arc<dyn Host>,
    settings: Settings,
    say: &mut dyn FnMut(&str),
) -> Result<Report> {
    let mut report = Report::default();
    let plain = Options {
        scatter_gather: ScatterGather::Never,
        shadow_doorbells: false,
        interrupts: settings.interrupts,
        ..Options::default()
    };
    let controller = open(function, host, plain, say)?;
    let mut bench = Bench {
        arena: make_arena(&controller)?,
        controller,
        settings,
        say,
    };
    let mut workloads = bench.workloads()?;
    report.namespaces = workloads.len() as u64;
    bench.events()?;
    bench.main_phase(&mut workloads, &mut report)?;
    for workload in &mut workloads {
        bench.commands(workload, &mut report)?;
        bench.refusals(workload)?;
        bench.reset_under_load(workload, &mut report)?;
        bench.sleeping(workload, &mut report)?;
        bench.pieces(workload, &mut report)?;
    }
    bench.many_threads(&mut report)?;
    bench.shared(&mut report)?;
    drop(bench);

    // Once more from the beginning, with everything that is optional; what was written is still there.
    let all = Options {
        scatter_gather: ScatterGather::Always,
        interrupts: settings.interrupts,
        ..Options::default()
    };
    let controller = open(function, host, all, say)?;
    let mut bench = Bench {
        arena: make_arena(&controller)?,
        controller,
        settings,
        say,
    };
    bench.all_options(&mut workloads, &mut report)?;
    Ok(report)
}

fn open(
    function: &Arc<dyn Function>,
    host: &Arc<dyn Host>,
    options: Options,
    say: &mut dyn FnMut(&str),
) -> Result<Arc<Controller>> {
    let sgl = options.scatter_gather;
    let controller = Controller::open(Arc::clone(function), Arc::clone(host), options)
        .doing("open the controller")?;
    let data = controller.data();
    say(&format!(
        "{}: model '{}', serial '{}', version {:#x}, {} queue pairs, transfers of {} KiB, pages of {}, \
         volatile cache {}, scatter-gather {sgl:?} (offered {}), shadow doorbells offered {}",
        controller.name(),
        data.model,
        data.serial,
        controller.version(),
        controller.queue_pairs_max(),
        controller.transfer_max() >> 10,
        controller.page_size(),
        data.volatile_cache,
        data.has_sgl(),
        data.has_doorbell_buffers(),
    ));
    Ok(controller)
}

/// Buffers for all phases.
fn make_arena(controller: &Controller) -> Result<Arena> {
    let class = |size, count| SizeClass { size, count };
    let options = ArenaOptions {
        classes: vec![
            class(512, 64),
            class(4 << 10, 64),
            class(64 << 10, 32),
            class(1 << 20, 16),
        ],
        pages: Pages::Auto,
        node: None,
        locked: true,
    };
    Arena::new(Arc::clone(controller.domain()), &options).doing("make an arena")
}

impl Bench<'_> {
    fn pair(&self, depth: u16, waiting: Waiting) -> Result<QueuePair> {
        let options = QueueOptions { depth, waiting };
        let made = self.controller.queue_pair(options);
        made.doing(&format!("make a queue pair for {waiting:?}"))
    }

    fn buffer(&self, bytes: u64) -> Result<Buffer> {
        let bytes = usize::try_from(bytes).doing("count bytes")?;
        self.arena.try_buffer(bytes).doing("take a buffer")
    }

    fn workloads(&mut self) -> Result<Vec<Workload>> {
        let ids = self.controller.namespaces().doing("list namespaces")?;
        ensure(!ids.is_empty(), || "no namespace is active".into())?;
        let mut workloads = Vec::new();
        for id in ids {
            let namespace = self
                .controller
                .namespace(id)
                .doing("identify a namespace")?;
            (self.say)(&format!(
                "namespace {id}: {} blocks of {} bytes, {} written whole, boundary {:?}, deallocated \
                 reads zero {}",
                namespace.blocks(),
                namespace.block_size(),
                namespace.atomic_write(),
                namespace.optimal_boundary(),
                namespace.deallocated_reads_zero(),
            ));
            workloads.push(Workload::new(namespace, self.settings.seed)?);
        }
        let missing = self.controller.namespace(0xffff_fff0).err();
        ensure(
            missing.is_some_and(|error| error.kind() == ErrorKind::NoNamespace),
            || "a namespace that cannot exist was found".into(),
        )?;
        Ok(workloads)
    }

    /// Health, log pages, features, and that events can be asked for.
    fn events(&mut self) -> Result<()> {
        let health = self.controller.health().doing("read the health log")?;
        (self.say)(&format!(
            "health: {} K, {} % used, {} unsafe shutdowns, warnings {:?}",
            health.temperature,
            health.used,
            health.unsafe_shutdowns,
            health.warning_names(),
        ));
        self.controller.errors(4).doing("read the error log")?;
        self.controller.take_events().doing("take events")?;
        if self.controller.data().volatile_cache {
            for used in [false, true] {
                self.controller
                    .set_cache_used(used)
                    .doing("switch the volatile cache")?;
                let is = self.controller.is_cache_used().doing("ask for the cache")?;
                ensure(is == used, || format!("volatile cache {is}, not {used}"))?;
            }
        }
        Ok(())
    }

    fn main_phase(&mut self, workloads: &mut [Workload], report: &mut Report) -> Result<()> {
        let mut pair = self.pair(QUEUE_DEPTH, Waiting::Poll)?;
        let count = u32::try_from(workloads.len()).doing("count namespaces")?;
        for workload in &mut *workloads {
            let operations = self.settings.operations.div_ceil(count);
            workload.run(&mut pair, &self.arena, operations, DEPTH, report)?;
            self.flush(workload, &mut pair, report)?;
            (self.say)(&format!("main phase: {report}"));
        }
        Ok(())
    }

    fn flush(&self, workload: &Workload, pair: &mut QueuePair, report: &mut Report) -> Result<()> {
        let flushed = workload.single(pair, Request::flush(0))?;
        flushed.result.doing("flush")?;
        report.flushes += 1;
        Ok(())
    }

    /// Compare, Write Zeroes, deallocation.
    fn commands(&mut self, workload: &mut Workload, report: &mut Report) -> Result<()> {
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
        (self.say)(&format!("namespace {}: commands", namespace.id()));
        Ok(())
    }

    /// What must not be accepted is not, and nothing is done.
    fn refusals(&mut self, workload: &Workload) -> Result<()> {
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
        (self.say)(&format!("namespace {}: refusals", namespace.id()));
        Ok(())
    }

    /// Resets the controller while requests are under way; all of them still complete.
    fn reset_under_load(&mut self, workload: &mut Workload, report: &mut Report) -> Result<()> {
        let mut pair = self.pair(QUEUE_DEPTH, Waiting::Poll)?;
        for _ in 0..3 {
            while workload.under_way() < DEPTH && workload.submit(&mut pair, &self.arena)? {}
            pair.ring();
            self.controller.reset().doing("reset the controller")?;
            report.resets += 1;
            workload.finish(&mut pair, report)?;
            workload.run(&mut pair, &self.arena, 20, DEPTH, report)?;
        }
        workload.verify_all(&mut pair, &self.arena, report)?;
        (self.say)(&format!(
            "namespace {}: reset under load",
            workload.namespace.id()
        ));
        Ok(())
    }

    /// Completions by interrupt, and by polling first and sleeping later.
    fn sleeping(&mut self, workload: &mut Workload, report: &mut Report) -> Result<()> {
        if !self.controller.has_interrupts() {
            (self.say)("no interrupts to sleep on");
            return Ok(());
        }
        for waiting in [Waiting::Interrupt, Waiting::Hybrid(2000)] {
            let mut pair = self.pair(QUEUE_DEPTH, waiting)?;
            workload.run(&mut pair, &self.arena, 200, 4, report)?;
        }
        (self.say)(&format!(
            "namespace {}: interrupts",
            workload.namespace.id()
        ));
        Ok(())
    }

    /// Requests of several buffers: refused or served, as their borders and the controller allow.
    fn pieces(&mut self, workload: &mut Workload, report: &mut Report) -> Result<()> {
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
        (self.say)(&format!("namespace {}: several buffers", namespace.id()));
        Ok(())
    }

    /// A queue pair for each thread, one of whom resets the controller.
    fn many_threads(&mut self, report: &mut Report) -> Result<()> {
        let ids = self.controller.namespaces().doing("list namespaces")?;
        let namespace = self
            .controller
            .namespace(ids[0])
            .doing("identify a namespace")?;
        let page = self.controller.page_size();
        let parts: Result<Vec<(u64, u64)>> = thread::scope(|scope| {
            let mut threads = Vec::new();
            for number in 0..THREADS {
                let controller = Arc::clone(&self.controller);
                let arena = self.arena.clone();
                let namespace = namespace.clone();
                let first = (SPAN + (number << 20)) >> namespace.block_shift();
                let run = move || part(&controller, &arena, &namespace, first, page, number);
                threads.push(scope.spawn(run));
            }
            threads
                .into_iter()
                .map(|thread| {
                    let joined = thread.join();
                    joined.map_err(|_| Failure::new("a thread panicked"))?
                })
                .collect()
        });
        for (writes, reads) in parts? {
            report.writes += writes;
            report.reads += reads;
        }
        report.resets += 1;
        (self.say)(&format!("{THREADS} threads, a queue pair each"));
        Ok(())
    }

    /// One queue pair for several threads.
    fn shared(&mut self, report: &mut Report) -> Result<()> {
        let ids = self.controller.namespaces().doing("list namespaces")?;
        let namespace = self
            .controller
            .namespace(ids[0])
            .doing("identify a namespace")?;
        let waiting = if self.controller.has_interrupts() {
            Waiting::Hybrid(500)
        } else {
            Waiting::Poll
        };
        let queue = SharedQueue::new(self.pair(8, waiting)?, 4);
        let page = self.controller.page_size();
        let blocks = page >> namespace.block_shift();
        let outcome: Result<Vec<()>> = thread::scope(|scope| {
            let mut threads = Vec::new();
            for number in 0..THREADS {
                let mut handle = queue.handle();
                let arena = self.arena.clone();
                let namespace = namespace.clone();
                let lba = Lba(((SPAN + (8 << 20)) >> namespace.block_shift()) + number * blocks);
                threads.push(scope.spawn(move || {
                    for round in 0..100_u8 {
                        let fill = round
                            .wrapping_mul(7)
                            .wrapping_add(u8::try_from(number).unwrap_or(0));
                        let bytes = usize::try_from(page).doing("count bytes")?;
                        let mut buffer = arena.try_buffer(bytes).doing("take a buffer")?;
                        buffer.fill(fill);
                        let write = Request::write(lba, buffer, 1);
                        handle.submit(&namespace, write).doing("submit")?;
                        let written = handle.wait().ok_or_else(|| Failure::new("nothing came"))?;
                        written.result.doing("write")?;
                        let buffer = written.data.and_then(Data::into_buffer);
                        let mut buffer = buffer.ok_or_else(|| Failure::new("no buffer came"))?;
                        buffer.fill(0);
                        handle
                            .submit(&namespace, Request::read(lba, buffer, 2))
                            .doing("submit")?;
                        let read = handle.wait().ok_or_else(|| Failure::new("nothing came"))?;
                        read.result.doing("read")?;
                        let buffer = read.data.and_then(Data::into_buffer);
                        let right = buffer.is_some_and(|b| b.iter().all(|byte| *byte == fill));
                        ensure(right && read.token == 2, || "a shared read is wrong".into())?;
                    }
                    Ok(())
                }));
            }
            threads
                .into_iter()
                .map(|thread| {
                    let joined = thread.join();
                    joined.map_err(|_| Failure::new("a thread panicked"))?
                })
                .collect()
        });
        outcome?;
        report.writes += 100 * THREADS;
        report.reads += 100 * THREADS;
        (self.say)(&format!("{THREADS} threads on one queue pair"));
        Ok(())
    }

    /// With scatter-gather lists and shadow doorbells, as far as they are offered.
    fn all_options(&mut self, workloads: &mut [Workload], report: &mut Report) -> Result<()> {
        let mut pair = self.pair(QUEUE_DEPTH, Waiting::Poll)?;
        for workload in workloads {
            let id = workload.namespace.id();
            workload.namespace = self
                .controller
                .namespace(id)
                .doing("identify a namespace")?;
            workload.verify_all(&mut pair, &self.arena, report)?;
            workload.run(&mut pair, &self.arena, 500, DEPTH, report)?;
            if self.controller.data().has_sgl() && workload.namespace.block_size() < 4096 {
                let odd = vec![self.buffer(512)?, self.buffer(1024)?, self.buffer(512)?];
                let read = workload.single(&mut pair, Request::read(Lba(1), odd, 0))?;
                read.result
                    .doing("read into buffers without page borders")?;
                report.reads += 1;
            }
            workload.verify_all(&mut pair, &self.arena, report)?;
        }
        (self.say)("again with all that is optional");
        Ok(())
    }
}

/// One thread's part of the phase with many: writes and reads of its own blocks.
fn part(
    controller: &Arc<Controller>,
    arena: &Arena,
    namespace: &millrace_nvme::Namespace,
    first: u64,
    page: u64,
    number: u64,
) -> Result<(u64, u64)> {
    let options = QueueOptions {
        depth: 8,
        waiting: Waiting::Poll,
    };
    let mut pair = controller.queue_pair(options).doing("make a queue pair")?;
    let bytes = usize::try_from(page).doing("count bytes")?;
    let blocks = page >> namespace.block_shift();
    let mut buffer = Some(arena.try_buffer(bytes).doing("take a buffer")?);
    for round in 0..100 {
        if number == 0 && round == 50 {
            controller.reset().doing("reset the controller")?;
        }
        let lba = Lba(first + round % 8 * blocks);
        let fill = u8::try_from((round * 5 + number * 31) % 251).doing("make a byte")?;
        for write in [true, false] {
            let taken = buffer.take();
            let mut memory = taken.ok_or_else(|| Failure::new("no buffer came"))?;
            let request = if write {
                memory.fill(fill);
                Request::write(lba, memory, 0)
            } else {
                memory.fill(!fill);
                Request::read(lba, memory, 0)
            };
            pair.submit(namespace, request).doing("submit")?;
            let mut ended = None;
            while ended.is_none() {
                pair.wait(Duration::from_secs(60), |completion| {
                    ended = Some(completion)
                });
                ensure(ended.is_some(), || "a request without completion".into())?;
            }
            let completion = ended.ok_or_else(|| Failure::new("nothing came"))?;
            completion.result.doing("a thread's request")?;
            buffer = completion.data.and_then(Data::into_buffer);
        }
        let right = buffer
            .as_ref()
            .is_some_and(|buffer| buffer.iter().all(|byte| *byte == fill));
        ensure(right, || {
            format!("thread {number} read what it did not write")
        })?;
    }
    Ok((100, 100))
}
