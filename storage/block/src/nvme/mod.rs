//! An NVMe namespace as a block device, driven without the kernel.

mod convert;
mod flushed_queue;
mod pair_queue;
mod quirks;
mod shared_queue;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_memory::{Domain, DomainId};
use millrace_nvme::{
    Controller, Host, Namespace, Options, QueueOptions, QueuePair, SharedQueue, Waiting,
};
use millrace_pci::Function;

use self::convert::failure;
use self::flushed_queue::FlushedQueue;
use self::pair_queue::PairQueue;
use self::quirks::Quirks;
use self::shared_queue::SharedPairQueue;
use crate::{Deallocation, Device, Error, ErrorKind, Geometry, Queue, Result};

/// Preferred alignment of requests, in bytes: the page size of flash is at least as large.
const OPTIMAL_BYTES: u32 = 4096;
/// Longest buffer of one request, in bytes; the driver splits it into commands. A multiple of every block size.
const TRANSFER_BYTES_MAX: usize = 1 << 20;

/// Options of [`NvmeDevice::new`]: waiting, queue depth, trust in FUA, and the driver's options.
#[derive(Clone, Debug)]
pub struct NvmeOptions {
    /// Mode in which threads wait for completions; by default [`Waiting::Hybrid`] if the function has interrupts, and
    /// polling otherwise.
    pub waiting: Option<Waiting>,
    /// Depth of one queue, in requests; the controller may support fewer.
    pub queue_depth: u16,
    /// Whether a completed write with the FUA bit counts as durable. Controllers that are known to ignore the bit are
    /// never trusted.
    pub trust_fua: bool,
    /// Options of the NVMe driver itself.
    pub driver: Options,
}

impl Default for NvmeOptions {
    fn default() -> Self {
        Self {
            waiting: None,
            queue_depth: QueueOptions::default().depth,
            trust_fua: true,
            driver: Options::default(),
        }
    }
}

/// A namespace of an NVMe controller.
///
/// Each of the controller's queue pairs but one belongs to one queue, as long as there are any; further queues share
/// the last one, which each waiting thread drives. The pair of a dropped queue is used again.
///
/// # Durability
/// The controller reports whether it has a volatile cache, and whether the cache is enabled. A write-through sets the
/// command's FUA bit where that is trusted, and is a write and a flush elsewhere ([`NvmeOptions::trust_fua`]). A
/// controller guarantees atomicity for commands up to a length, and for no part of longer ones:
/// [`Geometry::atomic_blocks`] is more than one only if no request is longer.
#[derive(Debug)]
pub struct NvmeDevice {
    name: String,
    pairs: Arc<Pairs>,
}

/// Queue pairs of a device, shared by its queues.
#[derive(Debug)]
struct Pairs {
    controller: Arc<Controller>,
    namespace: Namespace,
    geometry: Geometry,
    waiting: Waiting,
    depth: u16,
    /// Most queues with a pair of their own.
    given_max: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Number of pairs that belong to one queue.
    given: usize,
    /// Pairs without a queue, with nothing in flight.
    spare: Vec<QueuePair>,
    shared: Option<SharedQueue>,
}

impl NvmeDevice {
    /// Takes over the controller `function`, and opens the namespace with this id, or the first active one. `name` is
    /// the device's name; `host` provides the time.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such namespace, [`ErrorKind::Unsupported`] if the driver does not support
    /// it, [`ErrorKind::InUse`] if this process drives the function already, [`ErrorKind::Memory`],
    /// [`ErrorKind::Device`] if the controller fails.
    pub fn new(
        name: impl Into<String>,
        function: Arc<dyn Function>,
        namespace: Option<u32>,
        host: Arc<dyn Host>,
        options: NvmeOptions,
    ) -> Result<Self> {
        let name = name.into();
        let failed = |what: &str, error| failure(format!("{what} {name}"), error);
        let identity = function.identity().map_err(|error| {
            Error::new(
                ErrorKind::Device,
                format!("reading the PCI identity of {name}"),
            )
            .caused_by(error)
        })?;
        let controller = Controller::open(function, host, options.driver).map_err(|error| {
            let in_use = error.kind() == millrace_nvme::ErrorKind::Invalid;
            match in_use {
                true => Error::new(ErrorKind::InUse, format!("{name} is in use")).caused_by(error),
                false => failed("opening", error),
            }
        })?;
        let id = match namespace {
            Some(id) => id,
            None => {
                let ids = controller.namespaces();
                let ids = ids.map_err(|error| failed("listing the namespaces of", error))?;
                ids.first().copied().ok_or_else(|| {
                    let context = format!("{name} has no active namespace");
                    Error::new(ErrorKind::NotFound, context)
                })?
            }
        };
        let namespace = controller
            .namespace(id)
            .map_err(|error| failed(&format!("identifying namespace {id} of"), error))?;
        let cached = controller
            .is_cache_used()
            .map_err(|error| failed("reading the cache feature of", error))?;
        let waiting = options
            .waiting
            .unwrap_or(match controller.has_interrupts() {
                true => QueueOptions::default().waiting,
                false => Waiting::Poll,
            });
        let first = make_pair(&controller, options.queue_depth, waiting)
            .map_err(|error| failed("making a queue of", error))?;
        let given_max = controller.queue_pairs_max().saturating_sub(1);
        let geometry = Geometry {
            write_through: options.trust_fua && !Quirks::of(identity).ignores_fua,
            ..geometry(&controller, &namespace, cached, first.depth(), given_max)
        };
        geometry.check().map_err(|error| {
            let context = format!("namespace {id} of {name} has an unusable geometry");
            Error::new(ErrorKind::Unsupported, context).caused_by(error)
        })?;
        let pairs = Pairs {
            namespace,
            geometry,
            waiting,
            depth: options.queue_depth,
            given_max,
            state: Mutex::new(State {
                given: 0,
                spare: vec![first],
                shared: None,
            }),
            controller,
        };
        Ok(Self {
            name,
            pairs: Arc::new(pairs),
        })
    }

    /// The controller, for its health and events.
    #[must_use]
    pub fn controller(&self) -> &Arc<Controller> {
        &self.pairs.controller
    }
}

impl Device for NvmeDevice {
    fn geometry(&self) -> &Geometry {
        &self.pairs.geometry
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn domain(&self) -> &Arc<dyn Domain> {
        self.pairs.controller.domain()
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        let pairs = &self.pairs;
        let mut state = pairs.lock();
        let pair = if state.given < pairs.given_max {
            pairs.take_pair(&mut state)?
        } else {
            None
        };
        if let Some(pair) = pair {
            state.given += 1;
            return Ok(pairs.durable(PairQueue::new(Arc::clone(pairs), pair)));
        }
        if state.shared.is_none() {
            let pair = pairs.take_pair(&mut state)?.ok_or_else(|| {
                let context = format!("{} has no queue left", self.name);
                Error::new(ErrorKind::Device, context)
            })?;
            let depth = pair.depth();
            state.shared = Some(SharedQueue::new(pair, depth));
        }
        let shared = state.shared.as_ref().expect("made above");
        let queue = SharedPairQueue::new(Arc::clone(pairs), shared.handle());
        Ok(pairs.durable(queue))
    }
}

impl Pairs {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pair without a queue; none if the controller has no more.
    fn take_pair(&self, state: &mut State) -> Result<Option<QueuePair>> {
        if let Some(pair) = state.spare.pop() {
            return Ok(Some(pair));
        }
        match make_pair(&self.controller, self.depth, self.waiting) {
            Ok(pair) => Ok(Some(pair)),
            Err(error) if error.kind() == millrace_nvme::ErrorKind::NoQueue => Ok(None),
            Err(error) => Err(failure("making a queue", error)),
        }
    }

    /// Takes back the pair of a dropped queue.
    fn give_back(&self, pair: QueuePair) {
        let mut state = self.lock();
        state.given -= 1;
        if pair.requests_in_flight() == 0 {
            state.spare.push(pair);
        }
    }

    /// The queue itself, or a [`FlushedQueue`] around it where FUA is not trusted.
    fn durable(&self, queue: impl Queue + 'static) -> Box<dyn Queue> {
        let geometry = &self.geometry;
        match geometry.write_through || !geometry.volatile_cache {
            true => Box::new(queue),
            false => Box::new(FlushedQueue::new(Box::new(queue), geometry.queue_depth)),
        }
    }

    fn domain(&self) -> DomainId {
        DomainId::of(self.controller.domain())
    }
}

/// A queue pair that waits in this way, or polls if no interrupt is left for it.
fn make_pair(
    controller: &Arc<Controller>,
    depth: u16,
    waiting: Waiting,
) -> millrace_nvme::Result<QueuePair> {
    let made = controller.queue_pair(QueueOptions { depth, waiting });
    match made {
        Err(error) if error.kind() == millrace_nvme::ErrorKind::NoQueue => {
            let waiting = Waiting::Poll;
            controller.queue_pair(QueueOptions { depth, waiting })
        }
        made => made,
    }
}

/// Geometry of a namespace, for a controller that obeys the FUA bit.
fn geometry(
    controller: &Controller,
    namespace: &Namespace,
    volatile_cache: bool,
    queue_depth: usize,
    given_max: usize,
) -> Geometry {
    let longest = TRANSFER_BYTES_MAX as u64 >> namespace.block_shift();
    let all_atomic = u64::from(namespace.atomic_write()) >= longest;
    let atomic = if all_atomic && namespace.atomic_boundary().is_none() {
        longest.next_power_of_two()
    } else {
        1
    };
    Geometry {
        block_bytes: namespace.block_size(),
        blocks: namespace.blocks(),
        atomic_blocks: u32::try_from(atomic).unwrap_or(1),
        optimal_bytes: OPTIMAL_BYTES.max(namespace.block_size()),
        transfer_bytes_max: TRANSFER_BYTES_MAX,
        volatile_cache,
        write_through: true,
        deallocation: match controller.data().has_dataset_management() {
            true => Deallocation::Cheap,
            false => Deallocation::None,
        },
        deallocated_reads_zero: namespace.deallocated_reads_zero(),
        queues_max: given_max.max(1),
        queue_depth,
    }
}
