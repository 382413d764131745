//! A controller that this process drives.
//!
//! # Ownership
//! | field | writer | reader |
//! |---|---|---|
//! | `admin` | the lock's holder | the lock's holder |
//! | `epoch` | a reset, with the lock | every queue pair, at every poll |
//! | `is_quiet` | a reset, with the lock, before the epoch | readers of that epoch |
//! | `resets_in_vain` | a reset: increments; a valid completion: clears | a reset |
//! | `recovery` | a reset, an abort, a resubmission: increments | callers of `recovery()` |
//! | `losses` | a reset, with the lock, before the epoch: increments | readers of that epoch; a flush |
//! | `losses_reported` | a flush that fails for a loss: raises | the constructor of a queue pair or handle |
//! | `failure` | a reset, with the lock | callers of `last_failure()` |
//!
//! # Invariants
//! 1. When the epoch's generation has changed and its condition is not `Resetting`, the controller has lost
//!    all queues of earlier generations; unless it has failed and `is_quiet` is false it does not reach
//!    memory that was given to them.
//! 2. When the epoch says that the controller was reset, `losses` counts that reset if the volatile cache may
//!    have been lost by it.
//! 3. While the admin lock is free, the event of vector 0 is signalled if there are asynchronous events that were not
//!    taken; it may be signalled without.
//! 4. An I/O queue belongs to one queue pair at a time, with its interrupt vector.

mod queues;
mod reset;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrace_memory::{Domain, DomainId};
use millrace_pci::Function;
use rustix::event::{EventfdFlags, eventfd};

use self::reset::{begin, silence};
use crate::admin_commands::{Admin, Brought};
use crate::claim::Claim;
use crate::control::Control;
use crate::epoch::{Epoch, EpochCell};
use crate::events::AsyncEvent;
use crate::profile::Profile;
use crate::recovery::{Recovery, RecoveryCounts};
use crate::spec::command::feature;
use crate::spec::identify::ControllerData;
use crate::spec::log::{ERROR_SIZE, ErrorEntry, HEALTH_SIZE, Health, page};
use crate::spec::registers::Capabilities;
use crate::transfer::LIST_ENTRIES_MAX;
use crate::{
    Condition, Error, ErrorKind, Host, Namespace, Options, QueueOptions, QueuePair, Result,
};

/// Entries that a page of the error log is read for at once.
const ERROR_ENTRIES_MAX: usize = 64;

/// Next identifier of a controller, so that namespaces and queue pairs can be matched with their controller.
static CONTROLLERS: AtomicU64 = AtomicU64::new(0);

fn next_number() -> u64 {
    CONTROLLERS.fetch_add(1, Ordering::Relaxed)
}

/// How a namespace's content is to be erased by a format (Base 5.24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Erase {
    /// No particular order.
    No,
    /// User data is overwritten or made unreadable.
    UserData,
    /// The key of encrypted data is destroyed.
    Cryptographic,
}

/// A controller, shared by all threads of the process. Dropping the last share, which each [`QueuePair`]
/// has one of, shuts it down.
#[derive(Debug)]
pub struct Controller {
    number: AtomicU64,
    control: Control,
    data: ControllerData,
    domain: Arc<dyn Domain>,
    profile: Profile,
    vectors: Vec<OwnedFd>,
    epoch: EpochCell,
    is_quiet: AtomicBool,
    resets_in_vain: AtomicU32,
    pub(crate) recovery: RecoveryCounts,
    /// Resets that the volatile cache may not have outlived.
    losses: AtomicU64,
    /// Highest loss that a flush has reported.
    losses_reported: AtomicU64,
    /// Cause of the last reset not requested by the owner, or of the failure.
    failure: Mutex<Option<Arc<Error>>>,
    admin: Mutex<Admin>,
    /// Released last.
    _claim: Claim,
}

impl Controller {
    /// Takes the function's controller over: disables it, enables it with an admin queue, and identifies it.
    ///
    /// # Errors
    /// `Invalid` if the function has a driver already; `NotNvme`, `Unsupported` or `Protocol` if the function is not an
    /// NVMe controller that this driver supports; `TimedOut`, `Failed` or `Gone` if it does not become ready, also
    /// after a reset of the function; `Memory` or `Function` if the provider fails.
    pub fn open(
        function: Arc<dyn Function>,
        host: Arc<dyn Host>,
        options: Options,
    ) -> Result<Arc<Self>> {
        let claim = Claim::new(&function)?;
        let domain = function.domain();
        let control = Control::new(function, host, options)?;
        let mut vectors = make_vectors(&control)?;
        let mut admin = Admin::new(&control, &domain)?;
        let begun = match begin(&control, &vectors, &mut admin) {
            Ok(begun) => begun,
            Err(error) => {
                if !silence(&control) {
                    admin.give_up();
                }
                return Err(error);
            }
        };
        // The host may have fewer left; without any, queue pairs can only poll.
        vectors.truncate(begun.vectors);
        let brought = begun.brought;
        admin.queues_taken = vec![false; usize::from(brought.queues)];
        let profile = profile(&control, &brought, &domain);
        Ok(Arc::new(Self {
            number: AtomicU64::new(next_number()),
            control,
            data: brought.data,
            domain,
            profile,
            vectors,
            epoch: EpochCell::new(Epoch::first()),
            is_quiet: AtomicBool::new(false),
            resets_in_vain: AtomicU32::new(0),
            recovery: RecoveryCounts::default(),
            losses: AtomicU64::new(0),
            losses_reported: AtomicU64::new(0),
            failure: Mutex::new(None),
            admin: Mutex::new(admin),
            _claim: claim,
        }))
    }

    /// Identify Controller data, as read at the open.
    #[must_use]
    pub const fn data(&self) -> &ControllerData {
        &self.data
    }

    /// The capability register (CAP), as read at the open.
    #[must_use]
    pub const fn capabilities(&self) -> Capabilities {
        self.control.capabilities
    }

    /// The version of the specification that it follows: major << 16 | minor << 8 | tertiary.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.control.version
    }

    /// The name of the function that it is.
    #[must_use]
    pub fn name(&self) -> &str {
        self.control.function.name()
    }

    /// Whether queue pairs can sleep until it interrupts.
    #[must_use]
    pub fn has_interrupts(&self) -> bool {
        self.vectors.len() > 1
    }

    /// Where buffers for its requests must be mapped.
    #[must_use]
    pub const fn domain(&self) -> &Arc<dyn Domain> {
        &self.domain
    }

    /// Bytes of the memory page that it is set to: where borders between buffers must lie.
    #[must_use]
    pub const fn page_size(&self) -> u64 {
        self.control.page()
    }

    /// The longest single command in bytes.
    #[must_use]
    pub const fn transfer_max(&self) -> u64 {
        self.profile.transfer_max()
    }

    /// How many queue pairs it gives.
    #[must_use]
    pub fn queue_pairs_max(&self) -> usize {
        self.lock().queues_taken.len()
    }

    /// Condition of the controller: ready, resetting, failed or removed.
    #[must_use]
    pub fn condition(&self) -> Condition {
        self.epoch.load().condition()
    }

    /// How often it was reset since it was opened.
    #[must_use]
    pub fn resets(&self) -> u64 {
        self.epoch.load().generation()
    }

    /// What the driver did handle_unexpected so that requests succeed.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.recovery.read()
    }

    /// Cause of the last reset not requested by the owner, or of the failure; none if there was none.
    #[must_use]
    pub fn last_failure(&self) -> Option<Arc<Error>> {
        let failure = self.failure.lock();
        failure.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The ids of its active namespaces, ascending.
    ///
    /// # Errors
    /// If the controller does not answer, or answers nonsense.
    pub fn namespaces(&self) -> Result<Vec<u32>> {
        let highest = self.data.namespaces;
        self.admin(|admin, control| admin.namespaces(control, highest))
    }

    /// Identifies a namespace.
    ///
    /// # Errors
    /// `NoNamespace` if it is not active, `Unsupported` if it has metadata or blocks of an odd size, or as
    /// [`Controller::namespaces`].
    pub fn namespace(&self, id: u32) -> Result<Namespace> {
        self.check_id(id)?;
        let number = self.number();
        let data = self.admin(|admin, control| admin.namespace(control, id))?;
        let data = data.ok_or_else(|| no_namespace(id))?;
        let transfer_max = self.transfer_max();
        let namespace = Namespace::new(id, number, &self.data, data, transfer_max)?;
        if u64::from(namespace.block_size()) > self.transfer_max() {
            let context = format!(
                "namespace {id} has blocks of {} bytes, a command moves {} at most",
                namespace.block_size(),
                self.transfer_max()
            );
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        Ok(namespace)
    }

    /// The controller's SMART / Health Information log page (Base 5.14.1.2).
    ///
    /// # Errors
    /// As [`Controller::namespaces`].
    pub fn health(&self) -> Result<Health> {
        let read = |admin: &mut Admin, control: &Control| {
            admin.log_page(control, page::HEALTH, HEALTH_SIZE)
        };
        Health::parse(&self.admin(read)?)
    }

    /// The newest entries of its error log, as many as it keeps and 64 at most.
    ///
    /// # Errors
    /// As [`Controller::namespaces`].
    pub fn errors(&self, count: usize) -> Result<Vec<ErrorEntry>> {
        let most = usize::from(self.data.error_entries).min(ERROR_ENTRIES_MAX);
        let size = count.clamp(1, most) * ERROR_SIZE;
        let page = self.admin(|admin, control| admin.log_page(control, page::ERRORS, size))?;
        ErrorEntry::parse_all(&page)
    }

    /// Whether its volatile write cache is used: then only FUA and flush put data on media. False if it has
    /// none.
    ///
    /// # Errors
    /// As [`Controller::namespaces`].
    pub fn is_cache_used(&self) -> Result<bool> {
        if !self.data.volatile_cache {
            return Ok(false);
        }
        let number = feature::VOLATILE_WRITE_CACHE;
        let value = self.admin(|admin, control| admin.feature(control, number))?;
        Ok(value & 1 == 1)
    }

    /// Uses its volatile write cache, or not, also after resets. What is in it stays there until a flush when it
    /// is not used any more.
    ///
    /// # Errors
    /// `Unsupported` if it has none, or as [`Controller::namespaces`].
    pub fn set_cache_used(&self, used: bool) -> Result<()> {
        if !self.data.volatile_cache {
            let context = "the controller has no volatile write cache";
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        self.admin(|admin, control| admin.set_cache_used(control, used))
    }

    /// Asynchronous events since the last call, oldest first, and the number lost because they were not taken. The
    /// owner of the controller must call this now and then, or when [`Controller::event_interrupt`] becomes readable.
    ///
    /// # Errors
    /// As [`Controller::namespaces`]; an error loses no event.
    pub fn take_events(&self) -> Result<(Vec<AsyncEvent>, u64)> {
        self.admin(Admin::take_events)
    }

    /// File descriptor that becomes readable when there are asynchronous events; none without interrupts. It may become
    /// readable without an event. [`Controller::take_events`] clears it.
    #[must_use]
    pub fn event_interrupt(&self) -> Option<BorrowedFd<'_>> {
        // The admin queue has the first.
        self.vectors.first().map(AsFd::as_fd)
    }

    /// Formats a namespace: **all its data is lost**. `format` counts its formats from zero; `limit` is how
    /// long it may take. Each [`Namespace`] of this controller must be identified anew.
    ///
    /// # Errors
    /// `Unsupported` if the controller cannot, `NoNamespace`, `Invalid` if there is no such format or a queue
    /// pair exists, or as [`Controller::namespaces`].
    pub fn format(&self, id: u32, format: usize, erase: Erase, limit: Duration) -> Result<()> {
        if !self.data.has_format() {
            let context = "the controller does not support the Format command";
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        // Not all namespaces at once either, which is what the highest id means.
        self.check_id(id)?;
        let data = self.admin(|admin, control| admin.namespace(control, id))?;
        let formats = data.ok_or_else(|| no_namespace(id))?.formats.len();
        if format >= formats {
            let context = format!("format {format} of {formats}");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let number = u32::try_from(format).expect("there are 64 at most");
        let erase = match erase {
            Erase::No => 0,
            Erase::UserData => 1,
            Erase::Cryptographic => 2,
        };
        let settings = number & 0xf | (number >> 4) << 12 | erase << 9;
        self.admin(|admin, control| {
            if admin.queues_taken.contains(&true) {
                let context = "queue pairs exist, whose requests are of the old format";
                return Err(Error::new(ErrorKind::Invalid, context));
            }
            // Whatever comes of it: namespaces as they were are not to be used.
            self.number.store(next_number(), Ordering::Relaxed);
            admin.format(control, id, settings, limit)
        })
    }

    /// Makes a queue pair for the calling thread.
    ///
    /// # Errors
    /// `NoQueue` if all are given out, or no interrupt vector is left for one that sleeps; `Memory`, or as
    /// [`Controller::namespaces`].
    pub fn queue_pair(self: &Arc<Self>, options: QueueOptions) -> Result<QueuePair> {
        QueuePair::new(Arc::clone(self), options)
    }

    pub(crate) const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// What its namespaces must carry: another number after each format.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    pub(crate) const fn control(&self) -> &Control {
        &self.control
    }

    #[inline]
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch.load()
    }

    /// Records a valid answer of the controller.
    #[inline]
    pub(crate) fn answered(&self) {
        if self.resets_in_vain.load(Ordering::Relaxed) != 0 {
            self.resets_in_vain.store(0, Ordering::Relaxed);
        }
    }

    /// Fails if the controller was removed or reports a fatal status.
    pub(crate) fn check_alive(&self) -> Result<()> {
        self.control.check_alive()
    }

    /// Runs admin commands for a caller.
    fn admin<T>(&self, run: impl FnOnce(&mut Admin, &Control) -> Result<T>) -> Result<T> {
        let result = self.with_lock(run);
        if result.is_ok() {
            self.answered();
        }
        result
    }

    /// Fails if there can be no namespace with this id.
    fn check_id(&self, id: u32) -> Result<()> {
        if id == 0 || id > self.data.namespaces {
            return Err(no_namespace(id));
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Admin> {
        // A caller's panic leaves the queue as consistent as a time-out does: at worst a reset follows.
        self.admin.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        if self.condition() == Condition::Ready {
            // A controller that cannot execute a shutdown is not asked for one.
            let said = Duration::from_micros(u64::from(self.data.shutdown_us));
            let _ = self.control.shut_down(said);
        }
        if !silence(&self.control) {
            self.lock().give_up();
        }
        let _ = self.control.function.set_vectors(&[]);
    }
}

fn no_namespace(id: u32) -> Error {
    Error::new(ErrorKind::NoNamespace, format!("namespace {id}"))
}

/// An eventfd for each vector that may be used.
fn make_vectors(control: &Control) -> Result<Vec<OwnedFd>> {
    if !control.options.interrupts {
        return Ok(Vec::new());
    }
    let wanted = control.options.queue_pairs_max.saturating_add(1);
    let count = control.function.vectors().min(wanted);
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    (0..count)
        .map(|_| {
            eventfd(0, flags).map_err(|source| {
                Error::new(ErrorKind::Function, "an eventfd for interrupts").caused_by(source)
            })
        })
        .collect()
}

/// Has the function signal these; returns how many of them it does.
fn set_vectors(control: &Control, vectors: &[OwnedFd]) -> Result<usize> {
    if vectors.is_empty() {
        return Ok(0);
    }
    let events: Vec<BorrowedFd<'_>> = vectors.iter().map(AsFd::as_fd).collect();
    Ok(control.function.set_vectors(&events)?)
}

/// What requests are checked against. The longest single command is what the controller takes, what the caller
/// wants, and what a list describes; whole pages.
fn profile(control: &Control, brought: &Brought, domain: &Arc<dyn Domain>) -> Profile {
    let page = control.page();
    let Brought { data, limits, .. } = brought;
    let own = data.transfer_max(control.capabilities.page_shift_min());
    let most = control.options.transfer_max.min(own.unwrap_or(u64::MAX));
    let transfer_max = (most / page).clamp(1, LIST_ENTRIES_MAX) * page;
    let wish = control.options.scatter_gather;
    let domain = DomainId::of(domain);
    Profile::new(data, limits, wish, transfer_max, page, domain)
}
