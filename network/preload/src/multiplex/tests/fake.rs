//! A source whose peer is the test itself.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use libc::epoll_event;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::errno::{Errno, Outcome};
use crate::multiplex::events::Events;
use crate::multiplex::poll_target::{PollTarget, Target};
use crate::multiplex::set::Set;
use crate::multiplex::sets::Sets;
use crate::readiness::{ERR, HUP, IN, OUT, RDHUP, RDNORM, Ready, Source, WRNORM};

pub(super) static SETS: Sets<Fake> = Sets::new();
static TABLE: Mutex<Option<HashMap<RawFd, Target<Fake>>>> = Mutex::new(None);

fn table() -> MutexGuard<'static, Option<HashMap<RawFd, Target<Fake>>>> {
    TABLE.lock().expect("no test panics with it")
}

/// Gives the number to a fake source.
pub(super) fn enter(fd: RawFd, target: Target<Fake>) {
    table().get_or_insert_default().insert(fd, target);
}

/// Makes the number a kernel descriptor's.
pub(super) fn leave(fd: RawFd) {
    table().get_or_insert_default().remove(&fd);
}

#[derive(Debug)]
#[repr(align(16))]
pub(super) struct Fake {
    wakeup_fd: OwnedFd,
    peer: Mutex<Option<OwnedFd>>,
    arrived: AtomicU64,
    taken: AtomicU64,
    is_full: AtomicBool,
    stalls: AtomicU64,
    waits_for_data: AtomicBool,
    waits_for_room: AtomicBool,
    is_finished: AtomicBool,
    is_hung_up: AtomicBool,
    is_broken: AtomicBool,
    pub(super) is_shared: AtomicBool,
    pub(super) watchers: AtomicU32,
    pub(super) holds: AtomicU32,
    /// Channel of a listener; -1 without one.
    channel: AtomicI32,
    /// Number of polls, each by loads: the cost of passes.
    pub(super) looks: AtomicU64,
    pub(super) arms: AtomicU64,
}

impl Fake {
    /// A source in the table, under the number of its wake-up fd.
    pub(super) fn new() -> &'static Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (wakeup_fd, peer) = pair.expect("there are descriptors left");
        let fake: &'static Self = Box::leak(Box::new(Self {
            wakeup_fd,
            peer: Mutex::new(Some(peer)),
            arrived: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
            stalls: AtomicU64::new(0),
            waits_for_data: AtomicBool::new(false),
            waits_for_room: AtomicBool::new(false),
            is_finished: AtomicBool::new(false),
            is_hung_up: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            is_shared: AtomicBool::new(false),
            watchers: AtomicU32::new(0),
            holds: AtomicU32::new(0),
            channel: AtomicI32::new(-1),
            looks: AtomicU64::new(0),
            arms: AtomicU64::new(0),
        }));
        enter(fake.fd(), Target::Source(fake));
        fake
    }

    pub(super) fn fd(&self) -> RawFd {
        self.wakeup_fd.as_raw_fd()
    }

    /// Attaches this channel to a listener.
    pub(super) fn attach_channel(&self, channel: RawFd) {
        self.channel.store(channel, Ordering::SeqCst);
    }

    fn notify_peer(&self) {
        let peer = self.peer.lock().expect("no test panics with it");
        if let Some(peer) = peer.as_ref() {
            let _ = rustix::net::send(peer, b"", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// One arrival from the peer.
    pub(super) fn arrive(&self) {
        self.arrived.fetch_add(1, Ordering::SeqCst);
        self.tell(&self.waits_for_data);
    }

    fn tell(&self, waits: &AtomicBool) {
        fence(Ordering::SeqCst);
        if waits.swap(false, Ordering::SeqCst) {
            self.notify_peer();
        }
    }

    /// Reads one arrival; false if there is none.
    pub(super) fn take(&self) -> bool {
        let take = |taken: u64| (taken < self.arrived.load(Ordering::SeqCst)).then_some(taken + 1);
        self.taken
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
            .is_ok()
    }

    /// The program sends until there is no room.
    pub(super) fn stall(&self) {
        self.is_full.store(true, Ordering::SeqCst);
        self.stalls.fetch_add(1, Ordering::SeqCst);
        if PollTarget::watchers(self) > 0 {
            SETS.broadcast(self.key());
        }
    }

    /// Room freed by the peer.
    pub(super) fn make_room(&self) {
        self.is_full.store(false, Ordering::SeqCst);
        self.tell(&self.waits_for_room);
    }

    /// End of the peer's direction.
    pub(super) fn finish(&self) {
        self.is_finished.store(true, Ordering::SeqCst);
        self.arrive();
    }

    /// Reset by the peer.
    pub(super) fn abort(&self) {
        self.is_broken.store(true, Ordering::SeqCst);
        self.arrive();
    }

    /// Exit of the peer, which only its wake-up fd shows.
    pub(super) fn die(&self) {
        self.peer.lock().expect("no test panics with it").take();
    }
}

impl Source for Fake {
    fn ready(&self) -> Ready {
        self.looks.fetch_add(1, Ordering::Relaxed);
        let is_broken = self.is_broken.load(Ordering::SeqCst);
        let is_over = self.is_hung_up.load(Ordering::SeqCst) || is_broken;
        let mut ready = 0;
        if self.arrived.load(Ordering::SeqCst) > self.taken.load(Ordering::SeqCst) || is_over {
            ready |= IN | RDNORM;
        }
        if !self.is_full.load(Ordering::SeqCst) || is_over {
            ready |= OUT | WRNORM;
        }
        if self.is_finished.load(Ordering::SeqCst) || is_over {
            ready |= RDHUP;
        }
        if is_over {
            ready |= HUP;
        }
        if is_broken {
            ready |= ERR;
        }
        ready
    }

    fn arm(&self, events: u32) -> Ready {
        self.arms.fetch_add(1, Ordering::Relaxed);
        if events & (IN | RDNORM | RDHUP) != 0 {
            self.waits_for_data.store(true, Ordering::SeqCst);
        }
        if events & (OUT | WRNORM) != 0 {
            self.waits_for_room.store(true, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        self.ready()
    }

    fn wakeup_fd(&self) -> RawFd {
        self.fd()
    }

    fn drain(&self) -> bool {
        let mut taken = 0;
        while let Ok((_, 0)) =
            rustix::net::recv(&self.wakeup_fd, &mut [0_u8; 1], RecvFlags::DONTWAIT)
        {
            taken += 1;
            if taken > 1000 {
                self.is_hung_up.store(true, Ordering::SeqCst);
                return true;
            }
        }
        false
    }

    fn progress(&self) -> (u64, u64) {
        (
            self.arrived.load(Ordering::SeqCst),
            self.stalls.load(Ordering::SeqCst),
        )
    }
}

impl PollTarget for Fake {
    fn sets() -> &'static Sets<Self> {
        &SETS
    }

    fn find(fd: RawFd) -> Target<Self> {
        table()
            .get_or_insert_default()
            .get(&fd)
            .copied()
            .unwrap_or(Target::Kernel)
    }

    fn unpin(&'static self) {}

    fn hold(&'static self, more: bool) {
        let change = if more { 1 } else { u32::MAX };
        self.holds.fetch_add(change, Ordering::SeqCst);
    }

    fn watch(&self, more: bool) {
        let change = if more { 1 } else { u32::MAX };
        self.watchers.fetch_add(change, Ordering::SeqCst);
    }

    fn watchers(&self) -> u32 {
        self.watchers.load(Ordering::SeqCst)
    }

    fn is_closed(&self) -> bool {
        !table().get_or_insert_default().contains_key(&self.fd())
    }

    fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::SeqCst)
    }

    fn channel(&self) -> RawFd {
        self.channel.load(Ordering::SeqCst)
    }

    fn report_hangup_once(&self, channel: RawFd) -> bool {
        assert!(channel >= 0, "a channel is a descriptor");
        let _ = self
            .channel
            .compare_exchange(channel, -1, Ordering::SeqCst, Ordering::SeqCst);
        true
    }
}

/// A set under a number of its own.
#[derive(Debug)]
pub(super) struct Fixture {
    pub(super) outer: OwnedFd,
    pub(super) set: &'static Set<Fake>,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let outer = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)
            .expect("there are descriptors left");
        let set = SETS
            .make(outer.as_raw_fd(), false)
            .expect("no handler is above it");
        Self { outer, set }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.outer.as_raw_fd()
    }

    pub(super) fn control(&self, operation: i32, fd: RawFd, events: u32, data: u64) -> Outcome<()> {
        let event = epoll_event { events, u64: data };
        let event = (operation != libc::EPOLL_CTL_DEL).then_some(event);
        self.set
            .control(self.fd(), operation, fd, Fake::find(fd), event)
    }

    pub(super) fn add(&self, fd: RawFd, events: u32, data: u64) {
        assert_eq!(self.control(libc::EPOLL_CTL_ADD, fd, events, data), Ok(()));
    }

    pub(super) fn modify(&self, fd: RawFd, events: u32, data: u64) {
        assert_eq!(self.control(libc::EPOLL_CTL_MOD, fd, events, data), Ok(()));
    }

    pub(super) fn delete(&self, fd: RawFd) {
        assert_eq!(self.control(libc::EPOLL_CTL_DEL, fd, 0, 0), Ok(()));
    }

    pub(super) fn try_wait(
        &self,
        room: usize,
        timeout: Option<Duration>,
    ) -> Outcome<Vec<(u32, u64)>> {
        let mut events = vec![epoll_event { events: 0, u64: 0 }; room];
        // SAFETY: the vector lives as long as the call.
        let out = unsafe { Events::new(events.as_mut_ptr(), room) };
        // SAFETY: no mask.
        let count = unsafe { self.set.wait(self.fd(), out, timeout, ptr::null()) }?;
        Ok(events[..count]
            .iter()
            .map(|event| (event.events, event.u64))
            .collect())
    }

    /// `epoll_wait` with a timeout of zero.
    pub(super) fn look(&self, room: usize) -> Vec<(u32, u64)> {
        self.try_wait(room, Some(Duration::ZERO))
            .expect("nothing fails")
    }

    /// `epoll_wait` without a timeout.
    pub(super) fn wait(&self, room: usize) -> Vec<(u32, u64)> {
        loop {
            match self.try_wait(room, None) {
                Err(Errno(libc::EINTR)) => {}
                result => return result.expect("nothing fails"),
            }
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.set.close();
    }
}

/// A kernel descriptor that the test can make readable.
#[derive(Debug)]
pub(super) struct Plain {
    near: UnixDatagram,
    far: UnixDatagram,
}

impl Plain {
    pub(super) fn new() -> Self {
        let (near, far) = UnixDatagram::pair().expect("there are descriptors left");
        near.set_nonblocking(true).expect("a socket can be");
        Self { near, far }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.near.as_raw_fd()
    }

    pub(super) fn arrive(&self) {
        self.far.send(b"x").expect("the other end is there");
    }

    pub(super) fn take(&self) {
        self.near.recv(&mut [0; 8]).expect("something arrived");
    }
}
