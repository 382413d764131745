//! Starting and stopping the network.

use std::fmt::Debug;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use millrace_wire::{Decoder, MESSAGE_LEN_MAX};

use super::acceptor::Acceptor;
use super::blocking_pool::BlockingPool;
use super::inbox::Inbox;
use super::worker::Worker;
use super::{Listener, Notifier, Service};
use crate::clock::Clock;
use crate::journal::{Journal, Subscriber};
use crate::memory::MemoryBudget;

/// The limits and times of the network layer.
#[derive(Clone, Copy, Debug)]
pub struct NetworkConfig {
    /// The number of worker threads; at least one.
    pub workers: usize,
    /// The most threads of the blocking pool; at least one.
    pub blocking_threads_max: usize,
    /// How many connections there may be; further ones are closed at once.
    pub connections_max: usize,
    /// How long the longest message may be, in bytes.
    pub message_len_max: usize,
    /// How long a message may take to arrive, from its first byte to its last.
    pub receive_time_max: Duration,
    /// How long a client may leave its replies unread while memory is scarce.
    pub stall_time_max: Duration,
    /// The longest time for which an idle worker polls connections with a wake-up fd before it sleeps; it becomes
    /// shorter while polling finds nothing. 0 for never.
    pub spin_time_max: Duration,
    /// How long running requests may take to end when the server stops.
    pub drain_time_max: Duration,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            blocking_threads_max: 64,
            connections_max: 20_000,
            message_len_max: MESSAGE_LEN_MAX,
            receive_time_max: Duration::from_secs(60),
            stall_time_max: Duration::from_secs(10),
            spin_time_max: Duration::from_micros(20),
            drain_time_max: Duration::from_secs(10),
        }
    }
}

/// What the network has done, for monitoring. All values but `open` only rise.
#[derive(Debug, Default)]
pub struct Counters {
    /// The number of connections open now.
    pub open: AtomicUsize,
    /// The number of connections accepted since the start.
    pub accepted: AtomicU64,
    /// Connections that were closed at once because there were too many.
    pub rejected: AtomicU64,
    /// The number of requests received since the start.
    pub requests: AtomicU64,
    /// The bytes received from clients since the start.
    pub bytes_in: AtomicU64,
    /// The bytes sent to clients since the start.
    pub bytes_out: AtomicU64,
    /// Requests on threads of the blocking pool, since the start.
    pub offloaded: AtomicU64,
    /// Connections closed because a message took too long or was not read.
    pub timed_out: AtomicU64,
}

/// The parts of the server that the network works with.
#[derive(Clone, Debug)]
pub struct NetworkContext {
    /// The clock of every deadline; [`Request::began`](super::Request::began) is its time.
    pub clock: Arc<dyn Clock>,
    /// The journal that parked replies wait for.
    pub journal: Arc<Journal>,
    /// The memory budget that buffers are charged to.
    pub budget: Arc<MemoryBudget>,
    /// The tickets of requests that wait for data.
    pub notifier: Arc<Notifier>,
    /// The counters of the network layer, since the start.
    pub counters: Arc<Counters>,
}

/// What all workers share.
#[derive(Debug)]
pub(super) struct Shared<S: Service> {
    pub(super) service: Arc<S>,
    pub(super) config: NetworkConfig,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) decoder: Decoder,
    pub(super) journal: Arc<Journal>,
    pub(super) budget: Arc<MemoryBudget>,
    pub(super) notifier: Arc<Notifier>,
    pub(super) blocking_pool: Arc<BlockingPool>,
    pub(super) counters: Arc<Counters>,
    pub(super) inboxes: Vec<Arc<Inbox<S::Session>>>,
    pub(super) stopping: AtomicBool,
}

impl<S: Send + Debug> Subscriber for Inbox<S> {
    fn is_waiting(&self) -> bool {
        self.is_parked()
    }

    fn wake(&self) {
        Self::wake(self);
    }
}

/// A running network: its threads and what they share.
#[derive(Debug)]
pub struct Network<S: Service> {
    shared: Arc<Shared<S>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<S: Service> Network<S> {
    /// Starts the workers; they accept from `listeners` until [`Network::stop`].
    ///
    /// # Errors
    /// What the system says when it has no more descriptors or threads.
    pub fn start(
        listeners: Vec<Box<dyn Listener>>,
        service: Arc<S>,
        config: NetworkConfig,
        context: NetworkContext,
    ) -> io::Result<Self> {
        let NetworkContext {
            clock,
            journal,
            budget,
            notifier,
            counters,
        } = context;
        let inboxes = (0..config.workers.max(1))
            .map(|_| Ok(Arc::new(Inbox::new()?)))
            .collect::<io::Result<Vec<_>>>()?;
        for inbox in &inboxes {
            journal.subscribe(Arc::clone(inbox) as Arc<dyn Subscriber>);
        }
        let shared = Arc::new(Shared {
            service,
            config,
            clock,
            decoder: Decoder::with_message_len_max(config.message_len_max),
            journal,
            budget,
            notifier,
            blocking_pool: BlockingPool::new(config.blocking_threads_max),
            counters,
            inboxes,
            stopping: AtomicBool::new(false),
        });
        let network = Self {
            shared,
            threads: Mutex::default(),
        };
        let mut listeners = Some(listeners);
        for index in 0..network.shared.inboxes.len() {
            let acceptor = listeners.take().map(Acceptor::new);
            let worker = Worker::new(index, Arc::clone(&network.shared), acceptor)?;
            let thread = std::thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn(move || worker.run())?;
            network.lock_threads().push(thread);
        }
        Ok(network)
    }

    /// The pool of threads for requests that may block.
    #[must_use]
    pub fn blocking_pool(&self) -> &Arc<BlockingPool> {
        &self.shared.blocking_pool
    }

    /// Stops accepting, lets running requests come to their end, sends what is to be sent, closes
    /// all connections, and returns when all threads have ended.
    pub fn stop(&self) {
        if !self.shared.stopping.load(Ordering::SeqCst) {
            // In this order: a worker that sees the flag finds in its inbox the requests that the service
            // has woken.
            self.shared.service.interrupt_all();
            self.shared.stopping.store(true, Ordering::SeqCst);
        }
        for inbox in &self.shared.inboxes {
            inbox.wake();
        }
        let threads = std::mem::take(&mut *self.lock_threads());
        for thread in threads {
            // A worker that panicked has said so; there is nothing left to wait for.
            let _ = thread.join();
        }
        self.shared.blocking_pool.stop();
    }

    fn lock_threads(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
