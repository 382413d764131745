//! The steps of a run.

mod admin;
mod commands;
mod data;
mod interrupts;
mod resets;
mod threads;

use std::ops::RangeInclusive;
use std::sync::Arc;

use millrace_memory::{Arena, ArenaOptions, Buffer, Pages, SizeClass, base_page_size};
use millrace_nvme::{
    Controller, ErrorKind, Host, Namespace, Options, QueueOptions, QueuePair, Recovery,
    ScatterGather, Waiting,
};
use millrace_pci::Function;

use crate::failure::{Doing, Result, ensure};
use crate::report::Report;
use crate::workload::Workload;
use crate::{Facts, Settings};

/// How many requests the main phase has under way.
const DEPTH: usize = 16;
/// Commands in flight in a queue pair: fewer than the parts of `DEPTH` requests, so that requests wait.
const QUEUE_DEPTH: u16 = 64;

/// What all phases use.
struct Bench<'a> {
    function: &'a Arc<dyn Function>,
    host: &'a Arc<dyn Host>,
    controller: Arc<Controller>,
    arena: Arena,
    settings: &'a Settings,
    /// What the driver had mended when the last phase ended, and how many resets there had been.
    recovery: Recovery,
    resets: u64,
    say: &'a mut dyn FnMut(&str),
}

/// What may have gone wrong in a phase, because the phase made it go wrong.
#[derive(Clone, Debug)]
struct Excuse {
    /// Resets that were asked of the driver.
    asked: u64,
    /// Resets that the driver had to find the need of.
    unasked: u64,
    /// Commands that were sent again.
    retries: RangeInclusive<u64>,
}

/// Nothing.
const NOTHING: Excuse = Excuse {
    asked: 0,
    unasked: 0,
    retries: 0..=0,
};

pub(crate) fn run(
    function: &Arc<dyn Function>,
    host: &Arc<dyn Host>,
    settings: &Settings,
    say: &mut dyn FnMut(&str),
) -> Result<Report> {
    let mut report = Report::default();
    let mut facts = Facts::default();
    let plain = Options {
        scatter_gather: ScatterGather::Never,
        shadow_doorbells: false,
        interrupts: settings.interrupts,
        ..Options::default()
    };
    let mut bench = Bench::open(function, host, settings, plain, say)?;
    let mut workloads = bench.workloads()?;
    report.namespaces = workloads.len() as u64;
    bench.tell(&workloads, &mut facts);
    settings.expected.check_found(&facts)?;
    bench.logs(&mut report)?;
    bench.main_phase(&mut workloads, &mut report)?;
    for workload in &mut workloads {
        bench.commands(workload, &mut report)?;
        bench.refusals(workload)?;
        bench.reset_under_load(workload, &mut report)?;
        bench.sleeping(workload, &mut report)?;
        bench.pieces(workload, &mut report)?;
    }
    bench.vectors(&workloads[0], &mut report)?;
    let has_function_reset = bench.function_reset(&mut workloads[0], &mut report)?;
    facts.insert("function-reset", word(has_function_reset));
    bench.vectors(&workloads[0], &mut report)?;
    bench.many_threads(&workloads[0].namespace, &mut report)?;
    bench.shared(&workloads[0].namespace, &mut report)?;
    drop(bench);

    // Once more from the beginning, with everything that is optional; what was written is still there.
    let all = Options {
        scatter_gather: ScatterGather::Always,
        interrupts: settings.interrupts,
        ..Options::default()
    };
    let mut bench = Bench::open(function, host, settings, all, say)?;
    bench.all_options(&mut workloads, &mut report)?;
    drop(bench);
    settings.expected.check(&facts)?;
    Ok(report)
}

const fn word(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// Buffers for all phases: close below 32 MiB, so that huge pages of whatever size are worth taking.
fn make_arena(controller: &Controller) -> Result<Arena> {
    let class = |size, count| SizeClass { size, count };
    let options = ArenaOptions {
        classes: vec![
            class(512, 64),
            class(4 << 10, 64),
            class(64 << 10, 32),
            class(1 << 20, 28),
        ],
        pages: Pages::Auto,
        node: None,
        locked: true,
    };
    Arena::new(Arc::clone(controller.domain()), &options).doing("make an arena")
}

impl<'a> Bench<'a> {
    fn open(
        function: &'a Arc<dyn Function>,
        host: &'a Arc<dyn Host>,
        settings: &'a Settings,
        options: Options,
        say: &'a mut dyn FnMut(&str),
    ) -> Result<Self> {
        let sgl = options.scatter_gather;
        let controller = Controller::open(Arc::clone(function), Arc::clone(host), options)
            .doing("open the controller")?;
        let arena = make_arena(&controller)?;
        let data = controller.data();
        say(&format!(
            "{}: model '{}', serial '{}', version {:#x}, {} queue pairs, transfers of {} KiB, pages of {}, \
             scatter-gather {sgl:?}; buffers in pages of {} KiB",
            controller.name(),
            data.model,
            data.serial,
            controller.version(),
            controller.queue_pairs_max(),
            controller.transfer_max() >> 10,
            controller.page_size(),
            arena.region().page_size() >> 10,
        ));
        ensure(controller.has_interrupts() == settings.interrupts, || {
            let vectors = function.vectors();
            format!(
                "interrupts {}: the function has {vectors} vectors",
                word(settings.interrupts)
            )
        })?;
        Ok(Self {
            function,
            host,
            recovery: controller.recovery(),
            resets: controller.resets(),
            controller,
            arena,
            settings,
            say,
        })
    }

    /// Properties found, for comparison with the expected ones.
    fn tell(&self, workloads: &[Workload], facts: &mut Facts) {
        let data = self.controller.data();
        let namespaces = workloads.iter().map(|workload| &workload.namespace);
        let features = [
            ("compare", data.has_compare()),
            ("deallocate", data.has_dataset_management()),
            (
                "reads-zero",
                namespaces.clone().all(Namespace::deallocated_reads_zero),
            ),
            ("sgl", data.has_sgl()),
            ("shadow-doorbells", data.has_doorbell_buffers()),
            ("volatile-cache", data.volatile_cache),
            ("write-zeroes", data.has_write_zeroes()),
        ];
        let features = features.iter().filter(|(_, has)| *has);
        let features: Vec<&str> = features.map(|(name, _)| *name).collect();
        let sizes: Vec<String> = namespaces
            .map(|namespace| {
                let (id, blocks, size) =
                    (namespace.id(), namespace.blocks(), namespace.block_size());
                format!("{id}:{blocks}x{size}")
            })
            .collect();
        facts.insert("features", features.join(","));
        facts.insert("namespaces", sizes.join(","));
        facts.insert("page", base_page_size().to_string());
        facts.insert("arena-page", self.arena.region().page_size().to_string());
        facts.insert("device-page", self.controller.page_size().to_string());
        facts.insert("transfer", self.controller.transfer_max().to_string());
        facts.insert("queue-pairs", self.controller.queue_pairs_max().to_string());
        facts.insert("vectors", self.function.vectors().to_string());
    }

    /// Ends a phase. The driver has mended nothing by itself but what the phase is an excuse for.
    fn end_phase(&mut self, what: &str, excuse: &Excuse) -> Result<()> {
        let recovery = self.controller.recovery();
        let resets = self.controller.resets();
        let (unasked, aborts, retries) = (
            recovery.resets - self.recovery.resets,
            recovery.aborts - self.recovery.aborts,
            recovery.retries - self.recovery.retries,
        );
        let all = resets - self.resets;
        let excused = unasked == excuse.unasked
            && all == excuse.asked + excuse.unasked
            && aborts == 0
            && excuse.retries.contains(&retries);
        ensure(excused, || {
            format!(
                "{what}: {all} resets, {unasked} of them unasked, {aborts} aborts, {retries} commands sent again; \
                 no more is excused than {excuse:?}"
            )
        })?;
        self.recovery = recovery;
        self.resets = resets;
        (self.say)(what);
        Ok(())
    }

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
                "namespace {id}: {} blocks of {} bytes, {} written whole, boundary {:?}",
                namespace.blocks(),
                namespace.block_size(),
                namespace.atomic_write(),
                namespace.optimal_boundary(),
            ));
            let transfer_max = self.controller.transfer_max();
            workloads.push(Workload::new(namespace, self.settings.seed, transfer_max)?);
        }
        let missing = self.controller.namespace(0xffff_fff0).err();
        ensure(
            missing.is_some_and(|error| error.kind() == ErrorKind::NoNamespace),
            || "a namespace that cannot exist was found".into(),
        )?;
        Ok(workloads)
    }
}
