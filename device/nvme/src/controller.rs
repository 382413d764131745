//! A controller that this process drives.
//!
//! # Ownership
//! | what | who changes it | who reads it |
//! |---|---|---|
//! | `admin` | whoever has the lock | the same |
//! | `epoch` | whoever resets, with the lock | every queue pair, at every poll |
//! | `is_quiet` | whoever resets, with the lock, before the epoch | who sees that epoch |
//! | `resets_in_vain` | whoever resets: up; who saw an answer: to zero | the same |
//! | `recovery` | whoever resets, aborts or sends again: up | who asks |
//!
//! # Invariants
//! 1. When the epoch's generation has changed and its condition is not `Resetting`, the controller has lost
//!    all queues of earlier generations; unless it has failed and `is_quiet` is false it does not reach
//!    memory that was given to them.
//! 2. An I/O queue is given to one queue pair at a time, with its interrupt vector.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use millrace_memory::{Domain, DomainId};
use millrace_pci::Function;
use rustix::event::{EventfdFlags, eventfd};

use crate::admin_commands::{Admin, QueuePlace};
use crate::check::Profile;
use crate::claim::Claim;
use crate::control::Control;
use crate::doorbell::{Doorbell, Shadow};
use crate::epoch::{Epoch, EpochCell};
use crate::events::AsyncEvent;
use crate::recovery::{Recovery, RecoveryCounts};
use crate::spec::command::feature;
use crate::spec::identify::ControllerData;
use crate::spec::log::{ERROR_SIZE, ErrorEntry, HEALTH_SIZE, Health, page};
use crate::spec::registers::Capabilities;
use crate::transfer::LIST_ENTRIES_MAX;
use crate::{
    Condition, Error, ErrorKind, Host, Namespace, Options, QueueOptions, QueuePair, Result,
};

/// After so many resets without an answer as it should be the controller is given up.
const RESETS_IN_VAIN_MAX: u32 = 8;
/// Entries that a page of the error log is read for at once.
const ERROR_ENTRIES_MAX: usize = 64;

/// Numbers controllers, so that namespaces and queue pairs know theirs.
static CONTROLLERS: AtomicU64 = AtomicU64::new(0);

fn next_number() -> u64 {
    CONTROLLERS.fetch_add(1, Ordering::Relaxed)
}

/// How a namespace's content is to be erased by a format (Base 5.24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Erase {
    /// Not in particular.
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
    admin: Mutex<Admin>,
    /// Given up last.
    _claim: Claim,
}

impl Controller {
    /// Takes the function's controller over: disables it, enables it with an admin queue, and identifies it.
    ///
    /// # Errors
    /// `Invalid` if the function is driven already; `NotNvme`, `Unsupported` or `Protocol` if it is no controller that this driver can drive, `TimedOut`,
    /// `Failed` or `Gone` if it does not get ready, `Memory` or `Function` if the provider cannot give what
    /// is needed.
    pub fn open(
        function: Arc<dyn Function>,
        host: Arc<dyn Host>,
        options: Options,
    ) -> Result<Arc<Self>> {
        let claim = Claim::new(&function)?;
        let domain = function.domain();
        let control = Control::new(function, host, options)?;
        if let Err(error) = control.disable() {
            if error.kind() == ErrorKind::Gone {
                return Err(error);
            }
            // A function whose last owner left it in a bad state may come back by a reset.
            control.function.reset()?;
            control.function.set_bus_master(true)?;
            control.disable()?;
        }
        let mut vectors = make_vectors(&control)?;
        let mut admin = Admin::new(&control, &domain)?;
        // The host may have fewer left; without any, queue pairs can only poll.
        vectors.truncate(set_vectors(&control, &vectors)?);
        let (data, queues) = match admin.bring_up(&control) {
            Ok(brought) => brought,
            Err(error) => {
                if !silence(&control) {
                    admin.give_up();
                }
                return Err(error);
            }
        };
        admin.queues_taken = vec![false; usize::from(queues)];
        let profile = profile(&control, &data, &domain);
        Ok(Arc::new(Self {
            number: AtomicU64::new(next_number()),
            control,
            data,
            domain,
            profile,
            vectors,
            epoch: EpochCell::new(Epoch::first()),
            is_quiet: AtomicBool::new(false),
            resets_in_vain: AtomicU32::new(0),
            recovery: RecoveryCounts::default(),
            admin: Mutex::new(admin),
            _claim: claim,
        }))
    }

    /// What it says of itself.
    #[must_use]
    pub const fn data(&self) -> &ControllerData {
        &self.data
    }

    /// Its capability register.
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

    /// Whether it can be used.
    #[must_use]
    pub fn condition(&self) -> Condition {
        self.epoch.load().condition()
    }

    /// How often it was reset since it was opened.
    #[must_use]
    pub fn resets(&self) -> u64 {
        self.epoch.load().generation()
    }

    /// What the driver did unasked so that requests succeed.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.recovery.read()
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
        let none = || Error::new(ErrorKind::NoNamespace, format!("namespace {id}"));
        if id == 0 || id > self.data.namespaces {
            return Err(none());
        }
        let number = self.number();
        let data = self.admin(|admin, control| admin.namespace(control, id))?;
        let data = data.ok_or_else(none)?;
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

    /// Its health.
    ///
    /// # Errors
    /// As [`Controller::namespaces`].
    pub fn health(&self) -> Result<Health> {
        let read = |admin: &mut Admin, control: &Control| {
            admin.log_page(control, page::HEALTH, HEALTH_SIZE)
        };
        Health::parse(&self.admin(read)?)
    }

    /// The newest entries of its error log, 64 at most.
    ///
    /// # Errors
    /// As [`Controller::namespaces`].
    pub fn errors(&self, count: usize) -> Result<Vec<ErrorEntry>> {
        let size = count.clamp(1, ERROR_ENTRIES_MAX) * ERROR_SIZE;
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

    /// Uses its volatile write cache, or not, also after resets.
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

    /// What it said unasked since the last call, the oldest first, and how many of those were lost because
    /// they were too many. Whoever owns the controller calls this now and then.
    ///
    /// # Errors
    /// As [`Controller::namespaces`].
    pub fn take_events(&self) -> Result<(Vec<AsyncEvent>, u64)> {
        self.admin(Admin::take_events)
    }

    /// Formats a namespace: **all its data is lost**. `format` counts its formats from zero; `limit` is how
    /// long it may take. Each [`Namespace`] of this controller must be identified anew.
    ///
    /// # Errors
    /// `Unsupported` if the controller cannot, `Invalid` if there is no such format or a queue pair exists, or as
    /// [`Controller::namespaces`].
    pub fn format(&self, id: u32, format: usize, erase: Erase, limit: Duration) -> Result<()> {
        if !self.data.has_format() {
            let context = "the controller has no Format command";
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        let data = self.admin(|admin, control| admin.namespace(control, id))?;
        let formats = data.map_or(0, |data| data.formats.len());
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

    /// Resets it. What is in flight is sent again, by each queue pair at its next poll.
    ///
    /// # Errors
    /// `Failed` or `Gone` if it does not come back.
    pub fn reset(&self) -> Result<()> {
        // This one is not for want of success.
        self.resets_in_vain.store(0, Ordering::Relaxed);
        let observed = self.epoch.load();
        self.reset_locked(&mut self.lock(), observed);
        self.check_usable()
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

    /// Whether memory that a failed controller was given can be used again (invariant 1).
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::Relaxed)
    }

    /// Says that the controller has answered as it should.
    #[inline]
    pub(crate) fn answered(&self) {
        if self.resets_in_vain.load(Ordering::Relaxed) != 0 {
            self.resets_in_vain.store(0, Ordering::Relaxed);
        }
    }

    /// Fails if the controller is gone or says that it cannot go on.
    pub(crate) fn check_alive(&self) -> Result<()> {
        self.control.check_alive()
    }

    /// Gives out an I/O queue, with the interrupt vector of the same number if it is to interrupt.
    pub(crate) fn take_queue(&self, interrupts: bool) -> Result<(u16, Option<u16>)> {
        let mut admin = self.lock();
        let mut ids = admin.queues_taken.iter();
        // The lowest have vectors: who polls leaves them to others.
        let free = if interrupts {
            ids.position(|taken| !taken)
        } else {
            ids.rposition(|taken| !taken)
        };
        let count = admin.queues_taken.len();
        let Some(index) = free else {
            let context = format!("the controller gives {count}, all are in use");
            return Err(Error::new(ErrorKind::NoQueue, context));
        };
        let id = u16::try_from(index + 1).expect("there are 4,096 at most");
        if interrupts && index + 1 >= self.vectors.len() {
            let context = format!(
                "there are {} interrupt vectors; a queue pair that polls can still be had",
                self.vectors.len()
            );
            return Err(Error::new(ErrorKind::NoQueue, context));
        }
        admin.queues_taken[index] = true;
        Ok((id, interrupts.then_some(id)))
    }

    pub(crate) fn give_queue(&self, id: u16) {
        self.lock().queues_taken[usize::from(id) - 1] = false;
    }

    /// The eventfd of a vector.
    pub(crate) fn vector(&self, vector: u16) -> BorrowedFd<'_> {
        self.vectors[usize::from(vector)].as_fd()
    }

    pub(crate) fn doorbells(&self, id: u16) -> Result<(Doorbell, Doorbell)> {
        self.control.doorbells(id)
    }

    /// Makes a queue known to the controller. Returns the epoch that it is of, and its shadow doorbells.
    pub(crate) fn create_queue(&self, place: &QueuePlace) -> Result<(Epoch, [Option<Shadow>; 2])> {
        self.with_lock(|admin, control| {
            let shadows = admin.create_queue(control, place)?;
            Ok((self.epoch.load(), shadows))
        })
    }

    /// Takes a queue of this epoch from the controller. One of an epoch that is over it has lost already.
    pub(crate) fn delete_queue(&self, id: u16, epoch: Epoch) -> Result<()> {
        self.with_lock(|admin, control| {
            if self.epoch.load() == epoch {
                admin.delete_queue(control, id)
            } else {
                Ok(())
            }
        })
    }

    /// Asks for a command to be aborted, if that can be done without waiting; whether it was.
    pub(crate) fn try_abort(&self, queue: u16, command: u16) -> bool {
        let mut admin = match self.admin.try_lock() {
            Ok(admin) => admin,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let asked = admin.try_abort(queue, command).unwrap_or(false);
        if asked {
            self.recovery.count_abort();
        }
        asked
    }

    /// Resets the controller unless somebody has done so since `observed`.
    pub(crate) fn reset_from(&self, observed: Epoch) {
        self.recover_locked(&mut self.lock(), observed);
    }

    /// Waits for a reset that is under way; what it came to. One whose thread has panicked is done again.
    pub(crate) fn settle(&self) -> Condition {
        let mut admin = self.lock();
        let epoch = self.epoch.load();
        if epoch.condition() == Condition::Resetting {
            self.recover_locked(&mut admin, epoch);
        }
        self.condition()
    }

    /// The same without waiting; whether no reset is under way any more.
    pub(crate) fn try_settle(&self) -> bool {
        let mut admin = match self.admin.try_lock() {
            Ok(admin) => admin,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let epoch = self.epoch.load();
        if epoch.condition() == Condition::Resetting {
            self.recover_locked(&mut admin, epoch);
        }
        true
    }

    fn recover_locked(&self, admin: &mut Admin, observed: Epoch) {
        if self.reset_locked(admin, observed) {
            self.recovery.count_reset();
        }
    }

    /// Whether it was reset, or tried to be.
    fn reset_locked(&self, admin: &mut Admin, observed: Epoch) -> bool {
        let current = self.epoch.load();
        let due = match current.condition() {
            Condition::Ready => current == observed,
            // Under the lock nobody else is at it: whoever was has panicked.
            Condition::Resetting => true,
            Condition::Failed | Condition::Gone => false,
        };
        if !due {
            return false;
        }
        let resetting = current.next();
        self.epoch.store(resetting);
        let condition = match self.restart(admin) {
            Ok(()) => Condition::Ready,
            Err(error) => {
                self.is_quiet
                    .store(silence(&self.control), Ordering::Relaxed);
                match error.kind() {
                    ErrorKind::Gone => Condition::Gone,
                    _ => Condition::Failed,
                }
            }
        };
        self.epoch.store(resetting.with(condition));
        true
    }

    fn restart(&self, admin: &mut Admin) -> Result<()> {
        let in_vain = self.resets_in_vain.fetch_add(1, Ordering::Relaxed);
        if in_vain >= RESETS_IN_VAIN_MAX {
            let context = "resets did not help";
            return Err(self.control.error(ErrorKind::Failed, context));
        }
        if let Err(error) = self.control.disable() {
            if error.kind() == ErrorKind::Gone {
                return Err(error);
            }
            self.control.function.reset()?;
            self.control.disable()?;
        }
        // Whatever has reset the function, this driver or not, has taken these from it.
        self.control.function.set_bus_master(true)?;
        if set_vectors(&self.control, &self.vectors)? < self.vectors.len() {
            let context = "the host has fewer interrupt vectors after a reset";
            return Err(self.control.error(ErrorKind::Function, context));
        }
        let (data, queues) = admin.bring_up(&self.control)?;
        if (&data.serial, &data.model) != (&self.data.serial, &self.data.model) {
            let context = "another controller came back from a reset";
            return Err(self.control.error(ErrorKind::Protocol, context));
        }
        if usize::from(queues) < admin.queues_taken.len() {
            let context = "fewer queues after a reset";
            return Err(self.control.error(ErrorKind::Protocol, context));
        }
        Ok(())
    }

    /// Runs admin commands for a caller.
    fn admin<T>(&self, run: impl FnOnce(&mut Admin, &Control) -> Result<T>) -> Result<T> {
        let result = self.with_lock(run);
        if result.is_ok() {
            self.answered();
        }
        result
    }

    /// Runs admin commands. If the controller does not answer them as it should it is reset.
    fn with_lock<T>(&self, run: impl FnOnce(&mut Admin, &Control) -> Result<T>) -> Result<T> {
        let mut admin = self.lock();
        let epoch = self.epoch.load();
        if admin.is_broken() || epoch.condition() == Condition::Resetting {
            // An abort has found it so, or who was at it has panicked.
            self.recover_locked(&mut admin, epoch);
        }
        self.check_usable()?;
        let epoch = self.epoch.load();
        let result = run(&mut admin, &self.control);
        if admin.is_broken() {
            self.recover_locked(&mut admin, epoch);
        }
        result
    }

    fn check_usable(&self) -> Result<()> {
        let kind = match self.condition() {
            Condition::Ready | Condition::Resetting => return Ok(()),
            Condition::Failed => ErrorKind::Failed,
            Condition::Gone => ErrorKind::Gone,
        };
        Err(self.control.error(kind, "it was given up"))
    }

    fn lock(&self) -> MutexGuard<'_, Admin> {
        // A caller's panic leaves the queue as consistent as a time-out does: at worst a reset follows.
        self.admin.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        if self.condition() == Condition::Ready {
            // Who cannot be told to put its cache on media, cannot be told.
            let said = Duration::from_micros(u64::from(self.data.shutdown_us));
            let _ = self.control.shut_down(said);
        }
        if !silence(&self.control) {
            self.lock().give_up();
        }
        let _ = self.control.function.set_vectors(&[]);
    }
}

/// Keeps the controller from memory, one way or another; whether that succeeded.
fn silence(control: &Control) -> bool {
    let function = &control.function;
    match control.disable() {
        Ok(()) => true,
        // Its registers are gone. What is off the bus as a whole reaches nothing.
        Err(error) if error.kind() == ErrorKind::Gone && !function.is_present() => {
            // Of a provider that does not answer nothing is known: its device may still be at work.
            function.identity().is_ok()
        }
        Err(_) => function.reset().is_ok() || function.set_bus_master(false).is_ok(),
    }
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
fn profile(control: &Control, data: &ControllerData, domain: &Arc<dyn Domain>) -> Profile {
    let page = control.page();
    let own = data.transfer_max(control.capabilities.page_shift_min());
    let most = control.options.transfer_max.min(own.unwrap_or(u64::MAX));
    let transfer_max = (most / page).clamp(1, LIST_ENTRIES_MAX) * page;
    let wish = control.options.scatter_gather;
    Profile::new(data, wish, transfer_max, page, DomainId::of(domain))
}
