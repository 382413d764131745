//! State of one user-level descriptor in this process.
//!
//! # Access rules
//! | field | read | written |
//! |---|---|---|
//! | `kind`, `slab`; `record`, `peer_state` of a connection; `set`, `on_release` of an epoll set | with the entry pinned, or with a direction's lock after a second lookup | when the entry is made, before it is in the table |
//! | `sender`, `receiver` of a connection | with the lock of the record's direction | likewise |
//! | the others | at any time | at any time, atomically |
//!
//! # Invariants
//! 1. Entries are never unmapped: a stale reference finds an entry, though perhaps another descriptor's.
//! 2. [`Entry::holds`] counts descriptor numbers, system calls in progress, and interests of epoll sets. The last
//!    release drops the parts of the entry, and frees it.
//! 3. A thread that has taken a direction's lock *and then* found the number in the table, and the same record in the
//!    entry, may use that direction until it releases the lock: parts are dropped under both locks, after the numbers
//!    left the table. (Both threads change the lock's word, so that the second one sees what the first one did.)

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use millrace_stream::{PeerState, Receiver, RingPair, Sender};
use rustix::mm::{MapFlags, ProtFlags};

use crate::errno::{Errno, Outcome};
use crate::limits::NUMBERS;
use crate::listener::{Listener, ListenerState};
use crate::lock::Lock;
use crate::private_fds;
use crate::slab::{Record, Slab};
use crate::table::FdTable;

/// Kind of a user-level descriptor, or free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// A free entry.
    Free = 0,
    /// One end of a connection; the number is its wake-up fd's.
    Connection = 1,
    /// A listening socket of the kernel that the broker knows as well.
    Listener = 2,
    /// An epoll set with interests in connections or listeners.
    EpollSet = 3,
}

/// One thing that keeps an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum RefKind {
    /// One descriptor number.
    Fd = 1,
    /// A call of some thread, that may sleep.
    Syscall = 1 << 20,
    /// An interest of an epoll set.
    Interest = 1 << 40,
}

/// Mask of one of the three counts within [`Entry::holds`].
const COUNT: u64 = (1 << 20) - 1;

/// One user-level descriptor, shared by all of its numbers. Each kind uses one of the three parts.
#[repr(align(128))]
pub(crate) struct Entry {
    kind: AtomicU32,
    wakeup_fd: AtomicI32,
    holds: AtomicU64,
    /// Number of sets and sleeping threads of this process that watch it.
    pub(crate) watchers: AtomicU32,
    slab: UnsafeCell<Option<Slab>>,
    /// Part of a connection.
    pub(crate) connection: Connection,
    /// Part of a listener.
    pub(crate) listener: Listener,
    epoll_set: EpollSet,
    next: AtomicPtr<Entry>,
}

/// The part of an entry that a connection has.
pub(crate) struct Connection {
    record: AtomicPtr<Record>,
    peer_state: UnsafeCell<Option<PeerState>>,
    sender: UnsafeCell<Option<Sender>>,
    receiver: UnsafeCell<Option<Receiver>>,
    /// Private descriptor of the memory; -1 without one.
    memory: AtomicI32,
    /// Number of wake-ups that were read from the wake-up fd.
    pub(crate) wakeups: AtomicU64,
    /// Ring position, in 64-byte lines, already scanned for arrivals.
    pub(crate) arrived: AtomicU64,
    /// Whether the stream ends at `arrived`.
    pub(crate) is_finished: AtomicBool,
    /// Number of sends that found no room.
    pub(crate) stalls: AtomicU64,
    /// Number of calls of `shutdown`, which are edges for sets.
    pub(crate) shutdowns: AtomicU32,
    /// Number of receives in a row that found no bytes.
    pub(crate) empty: AtomicU32,
}

/// The part of an entry that an epoll set has.
struct EpollSet {
    set: AtomicPtr<c_void>,
    on_release: UnsafeCell<Option<fn(*mut c_void)>>,
}

impl Connection {
    const fn new() -> Self {
        Self {
            record: AtomicPtr::new(ptr::null_mut()),
            peer_state: UnsafeCell::new(None),
            sender: UnsafeCell::new(None),
            receiver: UnsafeCell::new(None),
            memory: AtomicI32::new(-1),
            wakeups: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            is_finished: AtomicBool::new(false),
            stalls: AtomicU64::new(0),
            shutdowns: AtomicU32::new(0),
            empty: AtomicU32::new(0),
        }
    }

    /// Resets the counters for another connection.
    fn reset(&self) {
        for counter in [&self.empty, &self.shutdowns] {
            counter.store(0, Ordering::Relaxed);
        }
        for counter in [&self.wakeups, &self.stalls, &self.arrived] {
            counter.store(0, Ordering::Relaxed);
        }
        self.is_finished.store(false, Ordering::Relaxed);
        self.memory.store(-1, Ordering::Relaxed);
    }
}

// SAFETY: the cells are accessed as the table above says; all else is atomic.
unsafe impl Sync for Entry {}

/// User-level descriptors of this process, by number.
pub(crate) static FDS: FdTable<Entry> = FdTable {
    slots: [const { AtomicPtr::new(ptr::null_mut()) }; NUMBERS],
    highest: AtomicUsize::new(0),
};

/// Entries that are mapped at once.
const CHUNK: usize = 1024;
/// Lock of making, freeing and renaming entries.
pub(crate) static CONTROL: Lock = Lock::new();
/// List of free entries; changed under [`CONTROL`].
static FREE: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("kind", &self.kind())
            .finish_non_exhaustive()
    }
}

impl Entry {
    /// Makes the entry of a connection, without a number; see [`Entry::add_number`].
    pub(crate) fn connection(
        lane: RingPair,
        slab: Slab,
        record: &'static Record,
        memory: Option<RawFd>,
    ) -> Outcome<&'static Self> {
        let entry = Self::take(Kind::Connection)?;
        let connection = &entry.connection;
        connection
            .record
            .store(ptr::from_ref(record).cast_mut(), Ordering::Release);
        connection
            .memory
            .store(memory.unwrap_or(-1), Ordering::Relaxed);
        // SAFETY: the entry was just taken, and no other reference to it exists.
        unsafe { *entry.slab.get() = Some(slab) };
        // SAFETY: the entry was just taken, and no other reference to it exists.
        unsafe { *connection.peer_state.get() = Some(lane.peer_state) };
        // SAFETY: the entry was just taken, and no other reference to it exists.
        unsafe { *connection.sender.get() = Some(lane.sender) };
        // SAFETY: the entry was just taken, and no other reference to it exists.
        unsafe { *connection.receiver.get() = Some(lane.receiver) };
        Ok(entry)
    }

    /// Makes the entry of a listener with this private channel.
    pub(crate) fn listener(channel: RawFd) -> Outcome<&'static Self> {
        let entry = Self::take(Kind::Listener)?;
        entry.listener.channel_owner.set(channel);
        // SAFETY: the entry was just taken, and no other reference to it exists.
        unsafe { *entry.slab.get() = Slab::own() };
        entry.listener.attach_channel(channel);
        Ok(entry)
    }

    /// Makes the entry of an epoll set. The last release of the entry passes `set` to `on_release`.
    pub(crate) fn epoll_set(
        set: *mut c_void,
        on_release: fn(*mut c_void),
    ) -> Outcome<&'static Self> {
        let entry = Self::take(Kind::EpollSet)?;
        // SAFETY: `take` removed the entry from the free list, and no number means it yet: this is the only reference.
        unsafe { *entry.epoll_set.on_release.get() = Some(on_release) };
        entry.epoll_set.set.store(set, Ordering::Release);
        Ok(entry)
    }

    fn take(kind: Kind) -> Outcome<&'static Self> {
        let _guard = CONTROL.take().map_err(|_| Errno(libc::EAGAIN))?;
        if FREE.load(Ordering::Relaxed).is_null() {
            Self::map_more()?;
        }
        let first = FREE.load(Ordering::Relaxed);
        // SAFETY: entries live for ever, and there is one now.
        let entry: &'static Self = unsafe { first.as_ref() }.ok_or(Errno(libc::ENOMEM))?;
        FREE.store(entry.next.load(Ordering::Relaxed), Ordering::Relaxed);
        entry.watchers.store(0, Ordering::Relaxed);
        entry.holds.store(0, Ordering::Relaxed);
        entry.wakeup_fd.store(-1, Ordering::Relaxed);
        entry.connection.reset();
        entry.listener.reset();
        entry.kind.store(kind as u32, Ordering::Relaxed);
        Ok(entry)
    }

    fn map_more() -> Outcome<()> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let size = CHUNK * size_of::<Self>();
        // SAFETY: no address is asked for, so that the kernel takes one that is free.
        let first =
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), size, protection, flags) }?;
        let first = first.cast::<Self>();
        for number in 0..CHUNK {
            // SAFETY: the mapping has `CHUNK` slots, and begins at a page, so that all are aligned.
            let place = unsafe { first.add(number) };
            // SAFETY: the slot was just mapped, is aligned, and no other reference to it exists.
            unsafe { place.write(Self::free(FREE.load(Ordering::Relaxed))) };
            FREE.store(place, Ordering::Relaxed);
        }
        Ok(())
    }

    const fn free(next: *mut Self) -> Self {
        Self {
            kind: AtomicU32::new(Kind::Free as u32),
            wakeup_fd: AtomicI32::new(-1),
            holds: AtomicU64::new(0),
            watchers: AtomicU32::new(0),
            slab: UnsafeCell::new(None),
            connection: Connection::new(),
            listener: Listener::new(),
            epoll_set: EpollSet {
                set: AtomicPtr::new(ptr::null_mut()),
                on_release: UnsafeCell::new(None),
            },
            next: AtomicPtr::new(next),
        }
    }

    /// Kind of the descriptor; it changes when the entry is freed.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        match self.kind.load(Ordering::Relaxed) {
            1 => Kind::Connection,
            2 => Kind::Listener,
            3 => Kind::EpollSet,
            _ => Kind::Free,
        }
    }

    /// Record of a connection in its slab.
    #[inline]
    pub(crate) fn record(&self) -> Option<&'static Record> {
        // SAFETY: what is stored came from a reference; slabs stay mapped.
        unsafe { self.connection.record.load(Ordering::Acquire).as_ref() }
    }

    /// The slab of a connection's record. The entry is pinned.
    pub(crate) fn slab(&self) -> Option<Slab> {
        // SAFETY: the entry is pinned: the part stays as it is.
        unsafe { *self.slab.get() }
    }

    /// Read access to both halves of the ring pair. The entry is pinned, or one of its directions is locked and was
    /// looked up again.
    #[inline]
    pub(crate) fn peer_state(&self) -> Option<&PeerState> {
        // SAFETY: as the invariants say, the part stays while the caller may use it.
        unsafe { &*self.connection.peer_state.get() }.as_ref()
    }

    /// Sender of a connection: its half of the ring pair.
    ///
    /// # Safety
    /// The lock of the sending direction is held, after which the entry was pinned or looked up again, and no other
    /// reference to it exists.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the lock makes it exclusive")]
    pub(crate) unsafe fn sender(&self) -> Option<&mut Sender> {
        // SAFETY: the caller holds the lock, so that no other reference exists.
        unsafe { &mut *self.connection.sender.get() }.as_mut()
    }

    /// Receiver of a connection: its half of the ring pair.
    ///
    /// # Safety
    /// As for [`Entry::sender`], of the receiving direction.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the lock makes it exclusive")]
    pub(crate) unsafe fn receiver(&self) -> Option<&mut Receiver> {
        // SAFETY: the caller holds the lock, so that no other reference exists.
        unsafe { &mut *self.connection.receiver.get() }.as_mut()
    }

    /// The pointer of an epoll set.
    pub(crate) fn set(&self) -> *mut c_void {
        self.epoll_set.set.load(Ordering::Acquire)
    }

    /// An open number of this entry, which is also its wake-up fd; -1 after the last one closed.
    #[inline]
    pub(crate) fn wakeup_fd(&self) -> RawFd {
        self.wakeup_fd.load(Ordering::Relaxed)
    }

    /// Private descriptor of a connected listener's channel; `None` otherwise.
    pub(crate) fn channel(&self) -> Option<RawFd> {
        match self.listener_state() {
            ListenerState::Connected(channel) => Some(channel),
            ListenerState::Disconnected | ListenerState::Closed => None,
        }
    }

    /// How a listener gets connections besides the kernel's.
    pub(crate) fn listener_state(&self) -> ListenerState {
        if self.kind() != Kind::Listener {
            return ListenerState::Closed;
        }
        self.listener.state()
    }

    /// Private descriptor of a connection's memory, or of a listener's channel; `None` without one.
    pub(crate) fn private_fd(&self) -> Option<RawFd> {
        if self.kind() == Kind::Listener {
            return self.listener.channel_fd();
        }
        Some(self.connection.memory.load(Ordering::Relaxed)).filter(|memory| *memory >= 0)
    }

    /// How many numbers mean this entry.
    pub(crate) fn numbers(&self) -> u64 {
        self.holds.load(Ordering::Relaxed) & COUNT
    }

    /// Gives a number to the entry. False if the number is too high to be kept.
    pub(crate) fn add_number(&'static self, fd: c_int) -> bool {
        self.holds.fetch_add(RefKind::Fd as u64, Ordering::Relaxed);
        if self.wakeup_fd() < 0 {
            self.wakeup_fd.store(fd, Ordering::Relaxed);
        }
        if FDS.insert(fd, self) {
            return true;
        }
        self.holds.fetch_sub(RefKind::Fd as u64, Ordering::Relaxed);
        false
    }

    /// Drops the reference of a number that left the table, and selects another wake-up fd. True if it was the last
    /// number. The caller has another reference.
    pub(crate) fn drop_number(&'static self, fd: c_int) -> bool {
        let before = self.holds.fetch_sub(RefKind::Fd as u64, Ordering::AcqRel);
        if before & COUNT <= 1 {
            return true;
        }
        if self.wakeup_fd() == fd {
            let other = FDS
                .numbers(0, usize::MAX)
                .find(|(_, entry)| ptr::eq(*entry, self));
            if let Some((other, _)) = other {
                self.wakeup_fd.store(other, Ordering::Relaxed);
            }
        }
        false
    }

    /// Detaches the wake-up fd before the last number gets another meaning: no thread may read it, or notify by it.
    pub(crate) fn detach_wakeup(&self) {
        self.wakeup_fd.store(-1, Ordering::Relaxed);
    }

    /// Holds an entry that is held already.
    pub(crate) fn hold(&self, hold: RefKind) {
        self.holds.fetch_add(hold as u64, Ordering::Relaxed);
    }

    /// Takes a reference to the entry of a number; false if the number has another meaning by now.
    pub(crate) fn pin(&'static self, fd: c_int, hold: RefKind) -> bool {
        let mut holds = self.holds.load(Ordering::Relaxed);
        loop {
            if holds == 0 {
                return false;
            }
            // Acquire: writes to the entry before it got the number are visible.
            match self.holds.compare_exchange_weak(
                holds,
                holds + hold as u64,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => holds = now,
            }
        }
        if FDS.holds(fd, self) {
            return true;
        }
        self.release(hold);
        false
    }

    /// Runs a short call with a reference to the entry.
    ///
    /// # Errors
    /// `EBADF` if the number has another meaning by now; else the error of `run`.
    pub(crate) fn held<T>(
        &'static self,
        fd: c_int,
        run: impl FnOnce() -> Outcome<T>,
    ) -> Outcome<T> {
        if !self.pin(fd, RefKind::Syscall) {
            return Err(Errno(libc::EBADF));
        }
        let outcome = run();
        self.release(RefKind::Syscall);
        outcome
    }

    /// Releases one reference. The last one drops the parts.
    pub(crate) fn release(&'static self, hold: RefKind) {
        // Release: accesses under the reference come before the drop of the parts. Acquire: for the last one.
        if self.holds.fetch_sub(hold as u64, Ordering::AcqRel) == hold as u64 {
            self.destroy();
        }
    }

    /// In the child of a fork: the other threads, and so their calls, are not there.
    pub(crate) fn forget_calls(&self) {
        self.holds.fetch_and(!(COUNT << 20), Ordering::Relaxed);
        // Sets count their interests again.
        self.watchers.store(0, Ordering::Relaxed);
    }

    #[cold]
    fn destroy(&'static self) {
        if let Some(record) = self.record() {
            let _send = record.send.take_poisoned();
            let _receive = record.receive.take_poisoned();
            record.void_own();
            self.connection
                .record
                .store(ptr::null_mut(), Ordering::Release);
            // SAFETY: nothing holds the entry, and both locks are held: invariant 3.
            if let Some(slab) = unsafe { *self.slab.get() } {
                if record.release_ref(slab) {
                    slab.release(record);
                }
            }
            // SAFETY: nothing holds the entry, and both locks are held: invariant 3.
            drop(unsafe { (*self.connection.peer_state.get()).take() });
            // SAFETY: nothing holds the entry, and both locks are held: invariant 3.
            drop(unsafe { (*self.connection.sender.get()).take() });
            // SAFETY: nothing holds the entry, and both locks are held: invariant 3.
            drop(unsafe { (*self.connection.receiver.get()).take() });
        }
        let set = self.epoll_set.set.swap(ptr::null_mut(), Ordering::AcqRel);
        if !set.is_null() {
            // SAFETY: nothing holds the entry any more, so that the cell is this call's alone.
            if let Some(release) = unsafe { (*self.epoll_set.on_release.get()).take() } {
                release(set);
            }
        }
        let memory = self.connection.memory.swap(-1, Ordering::Relaxed);
        if memory >= 0 {
            private_fds::close(memory);
        }
        self.listener.destroy();
        self.kind.store(Kind::Free as u32, Ordering::Relaxed);
        let Ok(_guard) = CONTROL.take() else {
            // In a signal handler above the code that has the lock: the entry leaks.
            return;
        };
        self.next
            .store(FREE.load(Ordering::Relaxed), Ordering::Relaxed);
        FREE.store(ptr::from_ref(self).cast_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::multiplex::poll_target::PollTarget;

    /// A channel whose other end is closed.
    fn ended() -> RawFd {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let pair = socketpair(AddressFamily::UNIX, kind, flags, None);
        let (channel, broker_end) = pair.expect("there are descriptors left");
        drop(broker_end);
        private_fds::hide(channel).expect("there are numbers left")
    }

    #[test]
    fn a_new_channel_may_reuse_the_number_of_a_reported_one() {
        let first = ended();
        let entry = Entry::listener(first).expect("there is memory");
        assert_eq!(PollTarget::channel(entry), first);
        assert!(entry.report_hangup_once(first));
        assert_eq!(PollTarget::channel(entry), -1);
        for _ in 0..2 {
            entry.listener.attach_channel(ended());
        }
        // The first channel was closed: the lowest free number is its own, unless another test has it.
        let next = ended();
        if next != first {
            private_fds::replace(next, first, true).expect("the number is below the limit");
            private_fds::close(next);
        }
        entry.listener.attach_channel(first);
        assert_eq!(PollTarget::channel(entry), first);
    }
}
