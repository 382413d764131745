//! Slabs in this process's memory: its own, and those of its ancestors.
//!
//! A slab is mapped once and stays. It is shared with other processes of the same program, and trusted as they are; all
//! accesses are atomic.

mod options;

use std::mem::offset_of;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use millrace_stream::slab::{
    HEADER_SIZE, MAGIC, RECORD_SIZE, RECORDS, SIZE, VERSION, decode_address, encode_address,
    header, record,
};
use millrace_stream::{PeerState, ReceiveCursor, SendCursor};
use rustix::fs::{MemfdFlags, Mode, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

pub(crate) use options::{Options, option};

use crate::errno::{Errno, Outcome};
use crate::lock::{Guard, Lock, Refused, is_dead};
use crate::private_fds;
use crate::thread;
use crate::tokens::Tokens;

/// The first page of a slab.
#[repr(C)]
struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    record_size: AtomicU32,
    records: AtomicU32,
    process: AtomicU32,
    /// The thread that takes a connection from the kernel's queue of a listener that this slab's process announced.
    accepting: AtomicU32,
    _apart: [u32; 9],
    counters: [AtomicU64; header::counter::COUNT],
}

/// State of one end of a connection, shared by all processes that hold this end.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Record {
    state: AtomicU32,
    /// Number of processes that hold the record: see [`crate::holders`].
    pub(crate) holders: AtomicU32,
    /// State of the connection: bits of the module [`flag`].
    pub(crate) flags: AtomicU32,
    /// Pending error: of the next call, or of `SO_ERROR`.
    pub(crate) error: AtomicU32,
    pub(crate) mode: AtomicU32,
    pub(crate) side: AtomicU32,
    /// Process that released the record last without freeing it: it may use the record until it exits.
    leaver: AtomicU32,
    _apart: u32,
    local: Address,
    peer: Address,
    /// Process that reserved room to send, and the number of bytes, while [`flag::RESERVED`] is set. Changed under the
    /// sender's lock.
    reserver: AtomicU32,
    reserved: AtomicU32,
    /// Tokens of the processes that hold the record.
    pub(crate) tokens: Tokens,
    /// Socket options as the program has set them.
    pub(crate) options: Options,
    /// Sending direction of the connection.
    pub(crate) send: Direction,
    /// Receiving direction of the connection.
    pub(crate) receive: Direction,
}

#[repr(C)]
#[derive(Debug)]
struct Address([AtomicU64; 3]);

/// One direction: its lock and the cursor that this protects.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Direction {
    /// Lock of the cursor and of the half of the ring pair with the same name.
    lock: Lock,
    /// 1 after a process exited amid a change: the cursor is not valid.
    poisoned: AtomicU32,
    cursor: [AtomicU64; 8],
}

/// Bits of [`Record::flags`]: how far the connection has ended.
pub(crate) mod flag {
    /// `SHUT_WR` was called: nothing more is sent.
    pub(crate) const SEND_SHUT: u32 = 1;
    /// `SHUT_RD` was called: nothing more is received.
    pub(crate) const RECEIVE_SHUT: u32 = 1 << 1;
    /// The end of the peer's stream was reached, or the peer has hung up and all its bytes were read.
    pub(crate) const END_SEEN: u32 = 1 << 2;
    /// The connection was reset, by either side.
    pub(crate) const RESET: u32 = 1 << 3;
    /// The kernel said that no process holds the peer's end.
    pub(crate) const HUNG_UP: u32 = 1 << 4;
    /// `SHUT_WR` was asked for when there was no room for the end.
    pub(crate) const FINISH_WAITS: u32 = 1 << 5;
    /// A thread writes to the ring in place: no other bytes are sent.
    pub(crate) const RESERVED: u32 = 1 << 6;
    /// There was no place for the token of a process that holds the record.
    pub(crate) const MANY: u32 = 1 << 16;
}

/// Values of [`Record::mode`]: the path of the bytes.
pub(crate) mod mode {
    /// The two processes share the rings.
    pub(crate) const DIRECT: u32 = 1;
    /// A forwarder moves the bytes between two pairs of rings.
    pub(crate) const FORWARDED: u32 = 2;
}

const _: () = assert!(offset_of!(Header, records) == header::RECORDS);
const _: () = assert!(offset_of!(Header, process) == header::PROCESS);
const _: () = assert!(offset_of!(Header, counters) == header::COUNTERS);
const _: () = assert!(size_of::<Header>() <= HEADER_SIZE);
const _: () = assert!(size_of::<Record>() == RECORD_SIZE);
const _: () = assert!(offset_of!(Record, state) == record::STATE);
const _: () = assert!(offset_of!(Record, holders) == record::HOLDERS);
const _: () = assert!(offset_of!(Record, flags) == record::FLAGS);
const _: () = assert!(offset_of!(Record, error) == record::ERROR);
const _: () = assert!(offset_of!(Record, mode) == record::MODE);
const _: () = assert!(offset_of!(Record, side) == record::SIDE);
const _: () = assert!(offset_of!(Record, local) == record::LOCAL);
const _: () = assert!(offset_of!(Record, peer) == record::PEER);
const _: () = assert!(offset_of!(Record, tokens) == record::TOKENS);
const _: () = assert!(offset_of!(Record, options) == record::OPTIONS);
const _: () = assert!(offset_of!(Record, send) == record::SEND);
const _: () = assert!(offset_of!(Record, receive) == record::RECEIVE);
const _: () = assert!(offset_of!(Direction, cursor) == record::CURSOR);
const _: () = assert!(size_of::<SendCursor>() == 64 && offset_of!(SendCursor, total) == 16);
const _: () = assert!(size_of::<ReceiveCursor>() == 64 && offset_of!(ReceiveCursor, total) == 32);

/// A slab that is mapped. It stays so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slab {
    first: NonNull<u8>,
    /// Private descriptor of the slab's file.
    pub(crate) file: RawFd,
}

/// This process's own slab, or null.
static OWN: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// Below this number there was no free record when last looked at.
static FREE_FROM: AtomicUsize = AtomicUsize::new(0);
/// Private descriptor of this process's own slab.
static OWN_FILE: AtomicI32 = AtomicI32::new(-1);

impl Slab {
    /// Makes a slab, which becomes this process's own.
    pub(crate) fn create() -> Outcome<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(c"millrace-slab", flags)?;
        let file = private_fds::hide(file)?;
        let made = Self::fill(file);
        if made.is_err() {
            private_fds::close(file);
        }
        made
    }

    fn fill(file: RawFd) -> Outcome<Self> {
        let fd = private_fds::borrow(file);
        rustix::fs::fchmod(fd, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::ftruncate(fd, SIZE as u64)?;
        rustix::fs::fcntl_add_seals(fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let slab = Self::map(file)?;
        let head = slab.header();
        head.magic.store(MAGIC, Ordering::Relaxed);
        head.version.store(VERSION, Ordering::Relaxed);
        head.record_size
            .store(u32::try_from(RECORD_SIZE).unwrap_or(0), Ordering::Relaxed);
        let process = rustix::process::getpid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs();
        head.process.store(process, Ordering::Relaxed);
        OWN.store(slab.first.as_ptr(), Ordering::Release);
        OWN_FILE.store(file, Ordering::Relaxed);
        Ok(slab)
    }

    /// Maps the slab of another process of this program, by its private descriptor.
    pub(crate) fn attach(file: RawFd) -> Outcome<Self> {
        let fd = private_fds::borrow(file);
        let seals = rustix::fs::fcntl_get_seals(fd)?;
        let status = rustix::fs::fstat(fd)?;
        if !seals.contains(SealFlags::SHRINK) || usize::try_from(status.st_size) != Ok(SIZE) {
            return Err(Errno(libc::EINVAL));
        }
        let slab = Self::map(file)?;
        let head = slab.header();
        if head.magic.load(Ordering::Relaxed) != MAGIC
            || head.version.load(Ordering::Relaxed) != VERSION
        {
            return Err(Errno(libc::EINVAL));
        }
        Ok(slab)
    }

    fn map(file: RawFd) -> Outcome<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let (flags, fd) = (
            MapFlags::SHARED | MapFlags::NORESERVE,
            private_fds::borrow(file),
        );
        // SAFETY: no address is asked for, so that the kernel takes one that is free.
        let first = unsafe { rustix::mm::mmap(ptr::null_mut(), SIZE, protection, flags, fd, 0) }?;
        let first = NonNull::new(first.cast()).ok_or(Errno(libc::ENOMEM))?;
        Ok(Self { first, file })
    }

    /// This process's own slab, or `None` before its first connection.
    pub(crate) fn own() -> Option<Self> {
        let first = NonNull::new(OWN.load(Ordering::Acquire))?;
        let file = OWN_FILE.load(Ordering::Relaxed);
        Some(Self { first, file })
    }

    /// Leaves the slab to the parent, in the child of a fork.
    pub(crate) fn disown() -> Option<Self> {
        let slab = Self::own();
        OWN.store(ptr::null_mut(), Ordering::Relaxed);
        FREE_FROM.store(0, Ordering::Relaxed);
        slab
    }

    /// Unmaps a slab, and closes its file.
    ///
    /// # Safety
    /// No entry has a record of it, and no thread has a reference into it.
    pub(crate) unsafe fn discard(self) {
        // SAFETY: the mapping was made with this size, and no reference into it is used any more, as this function asks
        // for.
        let _unmapped = unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), SIZE) };
        private_fds::close(self.file);
    }

    fn header(self) -> &'static Header {
        // SAFETY: a slab is mapped as a whole and stays so, its file cannot shrink, and all fields are atomic.
        unsafe { self.first.cast::<Header>().as_ref() }
    }

    /// Runs `work` exclusively among all processes that share listeners of this slab's process; false if another one
    /// runs it.
    pub(crate) fn alone(self, work: impl FnOnce()) -> bool {
        let (word, own) = (&self.header().accepting, thread::tid());
        if let Err(owner) = word.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
            if is_dead(owner) {
                // Another may have found that first: then nothing changes.
                let _freed = word.compare_exchange(owner, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
            return false;
        }
        work();
        word.store(0, Ordering::Release);
        true
    }

    /// The record with this number; `None` beyond the last one.
    pub(crate) fn record(self, number: usize) -> Option<&'static Record> {
        if number >= RECORDS {
            return None;
        }
        // SAFETY: the number was checked, so that the record lies within.
        let place = unsafe { self.first.add(HEADER_SIZE + number * RECORD_SIZE) };
        // SAFETY: the record lies within the mapping, which stays; records lie at multiples of their size behind a
        // page, hence aligned; all fields are atomic.
        Some(unsafe { place.cast::<Record>().as_ref() })
    }

    /// The number of a record of this slab.
    pub(crate) fn number_of(self, record: &'static Record) -> Option<usize> {
        let offset = ptr::from_ref(record)
            .addr()
            .checked_sub(self.first.addr().get() + HEADER_SIZE)?;
        Some(offset / RECORD_SIZE).filter(|number| *number < RECORDS)
    }

    /// Takes a free record, all of whose words but the locks are zero then. Without one, it takes a record whose last
    /// holders have exited.
    pub(crate) fn allocate(self) -> Option<&'static Record> {
        // Those below were taken when last looked at.
        let first = FREE_FROM.load(Ordering::Relaxed).min(RECORDS - 1);
        let all = (first..RECORDS).chain(0..first);
        self.take_first(all, |record| {
            let state = &record.state;
            // Acquire pairs with the release of `release`.
            state.load(Ordering::Relaxed) == 0
                && state
                    .compare_exchange(0, 2, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        })
        .or_else(|| self.take_first(0..RECORDS, |record| self.reap(record)))
    }

    fn take_first(
        self,
        numbers: impl Iterator<Item = usize>,
        is_ours: impl Fn(&Record) -> bool,
    ) -> Option<&'static Record> {
        for number in numbers {
            let record = self.record(number)?;
            if is_ours(record) {
                FREE_FROM.store(number + 1, Ordering::Relaxed);
                record.clear();
                record.holders.store(1, Ordering::Relaxed);
                record.state.store(1, Ordering::Release);
                let used = u32::try_from(number + 1).unwrap_or(u32::MAX);
                self.header().records.fetch_max(used, Ordering::Relaxed);
                return Some(record);
            }
        }
        None
    }

    /// Takes a record without a holder, whose last holder has exited.
    fn reap(self, record: &Record) -> bool {
        if record.state.load(Ordering::Acquire) != 1 {
            return false;
        }
        let leaver = record.leaver.load(Ordering::Relaxed);
        let is_left = record.reap_dead_owners(self)
            || record.holders.load(Ordering::Acquire) == 0 && leaver != 0 && is_dead(leaver);
        if !is_left {
            return false;
        }
        self.end(|| {
            let taken = record
                .state
                .compare_exchange(1, 2, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                self.add_up(record);
            }
            taken.is_ok()
        })
    }

    /// Runs `end` between two counters, by which a reader of the slab detects that it missed bytes, or counted them
    /// twice.
    fn end<T>(self, end: impl FnOnce() -> T) -> T {
        let counters = &self.header().counters;
        counters[header::counter::ENDING].fetch_add(1, Ordering::Relaxed);
        // Orders the counter before the writes of `end`.
        fence(Ordering::Release);
        let ended = end();
        counters[header::counter::ENDED].fetch_add(1, Ordering::Release);
        ended
    }

    fn add_up(self, record: &Record) {
        let sent = record.send.cursor[2].load(Ordering::Relaxed);
        let received = record.receive.cursor[4].load(Ordering::Relaxed);
        let counters = &self.header().counters;
        counters[header::counter::SENT].fetch_add(sent, Ordering::Relaxed);
        counters[header::counter::RECEIVED].fetch_add(received, Ordering::Relaxed);
    }

    /// Frees a record, and adds the bytes of its connection to the slab's counters.
    pub(crate) fn release(self, record: &Record) {
        let number = ptr::from_ref(record)
            .addr()
            .saturating_sub(self.first.addr().get() + HEADER_SIZE)
            / RECORD_SIZE;
        FREE_FROM.fetch_min(number, Ordering::Relaxed);
        self.end(|| {
            self.add_up(record);
            record.state.store(0, Ordering::Release);
        });
    }
}

/// Counts in this process's own slab: see [`header::counter`].
pub(crate) fn count(counter: usize) {
    if let Some(slab) = Slab::own() {
        slab.header().counters[counter].fetch_add(1, Ordering::Relaxed);
    }
}

impl Record {
    /// Releases the record in a process that is about to exit, or to execute another program: it may use the record
    /// until then.
    pub(crate) fn release_on_exit(&self) {
        self.leaver.store(std::process::id(), Ordering::Relaxed);
        self.take_own();
        // Release: a thread that sees no holder sees the last one.
        self.holders.fetch_sub(1, Ordering::Release);
    }

    /// Records that this process has reserved `bytes` bytes. The sender's lock is held.
    pub(crate) fn reserve(&self, bytes: usize) {
        let bytes = u32::try_from(bytes).expect("a reservation lies in one ring, below 4 GiB");
        self.reserved.store(bytes, Ordering::Relaxed);
        self.reserver.store(thread::pid(), Ordering::Relaxed);
        self.flags.fetch_or(flag::RESERVED, Ordering::Relaxed);
    }

    /// Size of this process's reservation in bytes, if there is one.
    ///
    /// # Errors
    /// `EBUSY` if another running process reserved room. The reservation of an exited one is void.
    pub(crate) fn reserved(&self) -> Outcome<Option<usize>> {
        if !self.has(flag::RESERVED) {
            return Ok(None);
        }
        let reserver = self.reserver.load(Ordering::Relaxed);
        if reserver == thread::pid() {
            return Ok(Some(self.reserved.load(Ordering::Relaxed) as usize));
        }
        if !is_dead(reserver) {
            return Err(Errno(libc::EBUSY));
        }
        self.void();
        Ok(None)
    }

    /// Voids any reservation. The sender's lock is held.
    pub(crate) fn void(&self) {
        self.flags.fetch_and(!flag::RESERVED, Ordering::Relaxed);
    }

    /// Voids a reservation of this process, which has lost its places. The sender's lock is held, or no other thread
    /// exists yet.
    pub(crate) fn void_own(&self) {
        if matches!(self.reserved(), Ok(Some(_))) {
            self.void();
        }
    }

    fn clear(&self) {
        for word in [
            &self.flags,
            &self.error,
            &self.mode,
            &self.side,
            &self.leaver,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        self.tokens.clear();
        self.options.clear();
        for direction in [&self.send, &self.receive] {
            direction.poisoned.store(0, Ordering::Relaxed);
            for word in &direction.cursor {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn has(&self, flags: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flags != 0
    }

    /// Sets flags; true if all of them were clear.
    pub(crate) fn set(&self, flags: u32) -> bool {
        self.flags.fetch_or(flags, Ordering::Relaxed) & flags == 0
    }

    pub(crate) fn set_addresses(&self, local: &SocketAddr, peer: &SocketAddr) {
        self.local.set(local);
        self.peer.set(peer);
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.local.get()
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer.get()
    }
}

impl Address {
    fn set(&self, address: &SocketAddr) {
        let bytes = encode_address(address);
        for (word, bytes) in self.0.iter().zip(bytes.chunks_exact(8)) {
            let bytes = bytes.try_into().expect("the chunks have eight bytes");
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
    }

    fn get(&self) -> SocketAddr {
        let mut bytes = [0; record::ADDRESS_SIZE];
        for (word, bytes) in self.0.iter().zip(bytes.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        decode_address(&bytes)
    }
}

impl Direction {
    /// Takes the lock of the direction.
    ///
    /// # Errors
    /// `EAGAIN` in a signal handler above the lock's owner; `ECONNRESET` if the cursor is poisoned.
    #[inline]
    pub(crate) fn take(&self) -> Outcome<Guard<'_>> {
        let guard = self.lock.take().map_err(|_| Errno(libc::EAGAIN))?;
        if guard.taken_over {
            self.poisoned.store(1, Ordering::Relaxed);
        }
        if self.is_poisoned() {
            return Err(Errno(libc::ECONNRESET));
        }
        Ok(guard)
    }

    /// Takes the lock also of a poisoned direction, whose cursor must not be used.
    pub(crate) fn take_poisoned(&self) -> Result<Guard<'_>, Refused> {
        let guard = self.lock.take();
        if matches!(&guard, Ok(guard) if guard.taken_over) {
            self.poisoned.store(1, Ordering::Relaxed);
        }
        guard
    }

    /// Whether a process exited amid a change of the cursor.
    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed) != 0
    }

    /// Where the cursor is: without the lock, the answer may be old.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.cursor[0].load(Ordering::Relaxed)
    }

    /// Whether an urgent byte was announced that this receiver has neither taken nor passed.
    #[inline]
    pub(crate) fn has_urgent(&self, peer_state: &PeerState) -> bool {
        let cursor = ReceiveCursor {
            total: self.cursor[4].load(Ordering::Relaxed),
            urgent: self.cursor[7].load(Ordering::Relaxed),
            ..ReceiveCursor::default()
        };
        peer_state.has_urgent(&cursor)
    }

    #[inline]
    fn words<const COUNT: usize>(&self) -> [u64; COUNT] {
        std::array::from_fn(|word| self.cursor[word].load(Ordering::Relaxed))
    }

    #[inline]
    fn set_words<const COUNT: usize>(&self, words: [u64; COUNT]) {
        for (place, word) in self.cursor.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// The cursor of a sender. The lock is held.
    #[inline]
    pub(crate) fn send_cursor(&self) -> SendCursor {
        let [
            position,
            returned,
            total,
            armed,
            notified,
            stride,
            ended,
            pad,
        ] = self.words();
        SendCursor {
            position,
            returned,
            total,
            armed,
            notified,
            stride,
            ended,
            pad,
        }
    }

    /// Puts a sender's cursor back. The lock is held.
    #[inline]
    pub(crate) fn set_send_cursor(&self, cursor: &SendCursor) {
        self.set_words([
            cursor.position,
            cursor.returned,
            cursor.total,
            cursor.armed,
            cursor.notified,
            cursor.stride,
            cursor.ended,
            cursor.pad,
        ]);
    }

    /// The cursor of a receiver. The lock is held.
    #[inline]
    pub(crate) fn receive_cursor(&self) -> ReceiveCursor {
        let [
            position,
            taken,
            credited,
            wake_pending,
            total,
            armed,
            notified,
            urgent,
        ] = self.words();
        ReceiveCursor {
            position,
            taken,
            credited,
            wake_pending,
            total,
            armed,
            notified,
            urgent,
        }
    }

    /// Puts a receiver's cursor back. The lock is held.
    #[inline]
    pub(crate) fn set_receive_cursor(&self, cursor: &ReceiveCursor) {
        self.set_words([
            cursor.position,
            cursor.taken,
            cursor.credited,
            cursor.wake_pending,
            cursor.total,
            cursor.armed,
            cursor.notified,
            cursor.urgent,
        ]);
    }
}
