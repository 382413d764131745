//! Connections that this process makes itself, by a listener's channel that the broker has leased to it.
//!
//! A process that connects to one address repeatedly gets a lease: the right to put connections into the listener's
//! channel, for a number of ports and a time ([`Lease`]). After that the broker is asked again, so that its decision
//! (rules, the listener, the turn among several) is never older than the lease.

use std::cell::UnsafeCell;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::time::Duration;

use millrace_stream::control::{Lease, Link, Message, Mode, Packet};
use millrace_stream::{Address, Geometry};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, Mode as FileMode, SealFlags};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::clock::now;
use crate::connection_fds::ConnectionFds;
use crate::errno::Outcome;
use crate::lock::Lock;
use crate::private_fds;

/// To how many addresses there are leases at once.
const PLACES: usize = 8;
/// Time within which a second connection to an address makes a lease worth a request.
const OFTEN: Duration = Duration::from_millis(10);

/// Outcome of a search for a lease.
#[derive(Debug)]
pub(crate) enum LeaseLookup {
    /// The connection, made by a lease.
    Connected(ConnectionFds),
    /// A lease would be of use: the last connection to the address is not long ago.
    ShouldRequest,
    /// No lease, and no use for one.
    Never,
}

/// An address to which this process has connected.
#[derive(Clone, Copy)]
struct Place {
    peer: Option<Address>,
    /// Time of the last connection.
    last: Duration,
    held: Option<Held>,
}

/// A lease that this process has.
#[derive(Clone, Copy)]
struct Held {
    lease: Lease,
    /// Private descriptor of the listener's channel.
    channel: RawFd,
    /// How many of the ports were used.
    used: u16,
    until: Duration,
    /// User and process that got the lease.
    user: u32,
    process: u32,
}

struct Leases {
    lock: Lock,
    /// Accessed under the lock.
    places: UnsafeCell<[Place; PLACES]>,
}

// SAFETY: the cell is accessed under the lock.
unsafe impl Sync for Leases {}

static LEASES: Leases = Leases {
    lock: Lock::new(),
    places: UnsafeCell::new([Place::NONE; PLACES]),
};

impl Leases {
    /// Runs `work` under the lock; `None` in a signal handler above code that has it.
    fn with<T>(&self, work: impl FnOnce(&mut [Place; PLACES]) -> T) -> Option<T> {
        let _guard = self.lock.take().ok()?;
        // SAFETY: the lock is held, so that no other reference exists.
        Some(work(unsafe { &mut *self.places.get() }))
    }
}

/// Makes a connection by a lease for the address, if there is one.
pub(crate) fn connect(peer: Address) -> LeaseLookup {
    let now = now();
    LEASES
        .with(|places| {
            let place = Place::of(places, peer);
            let is_often = place.last != Duration::ZERO && now < place.last + OFTEN;
            place.last = now;
            match place.connect(peer, now) {
                Some(ends) => LeaseLookup::Connected(ends),
                None if is_often && place.held.is_none() => LeaseLookup::ShouldRequest,
                None => LeaseLookup::Never,
            }
        })
        .unwrap_or(LeaseLookup::Never)
}

/// Stores a lease; the channel is an open descriptor, which is replaced by a private one, or closed.
pub(crate) fn insert(peer: Address, lease: Lease, channel: RawFd) {
    let hidden = private_fds::hide_copy(private_fds::borrow(channel));
    private_fds::close_raw(channel);
    let Ok(channel) = hidden else {
        return;
    };
    let held = Held {
        lease,
        channel,
        used: 0,
        until: now() + Duration::from_micros(u64::from(lease.lasts_us)),
        user: rustix::process::getuid().as_raw(),
        process: std::process::id(),
    };
    let kept = LEASES.with(|places| {
        let place = Place::of(places, peer);
        place.end();
        place.held = Some(held);
    });
    if kept.is_none() {
        private_fds::close(channel);
    }
}

/// Drops all leases, after the broker that granted them exited.
pub(crate) fn forget_all() {
    LEASES.with(|places| places.iter_mut().for_each(Place::end));
}

/// In the child of a fork: leases are the parent's.
pub(crate) fn forget_in_child() {
    LEASES.lock.reset();
    forget_all();
}

impl Place {
    const NONE: Self = Self {
        peer: None,
        last: Duration::ZERO,
        held: None,
    };

    /// The slot of an address; for a new address, the one that was unused for the longest time.
    fn of(places: &mut [Self; PLACES], peer: Address) -> &mut Self {
        let known = places.iter().position(|place| place.peer == Some(peer));
        let index = known.unwrap_or_else(|| {
            let last = |index: &usize| places[*index].last;
            (0..PLACES).min_by_key(last).unwrap_or(0)
        });
        let place = &mut places[index];
        if known.is_none() {
            place.end();
            place.last = Duration::ZERO;
            place.peer = Some(peer);
        }
        place
    }

    fn end(&mut self) {
        if let Some(held) = self.held.take() {
            private_fds::close(held.channel);
        }
    }

    fn connect(&mut self, peer: Address, now: Duration) -> Option<ConnectionFds> {
        let held = self.held.as_mut()?;
        if now >= held.until || held.used >= held.lease.ports {
            self.end();
            return None;
        }
        match held.connect(peer) {
            Ok(ends) => ends,
            Err(_) => {
                self.end();
                None
            }
        }
    }
}

impl Held {
    /// Makes a connection and puts it into the channel. `None` if the channel is full: a request to the broker then
    /// decides.
    fn connect(&mut self, peer: Address) -> Outcome<Option<ConnectionFds>> {
        let lease = self.lease;
        if !is_writable(self.channel)? {
            return Ok(None);
        }
        let local = lease.local.with_port(lease.local.port() + self.used);
        self.used += 1;
        let link = |local: Address, peer: Address, mapped: bool| Link {
            mode: Mode::Direct,
            ring_lines: lease.ring_lines,
            local: if mapped { local.mapped() } else { local },
            peer: if mapped { peer.mapped() } else { peer },
        };
        let [ours, theirs, memory] = objects(lease.ring_lines)?;
        let packet = Packet {
            serial: 0,
            message: Message::Incoming {
                link: link(lease.peer, local, lease.mapped),
                user: self.user,
                process: self.process,
            },
        };
        let sent = send(self.channel, &packet, [theirs, memory]);
        private_fds::close_raw(theirs);
        if sent.is_err() {
            private_fds::close_raw(ours);
            private_fds::close_raw(memory);
        }
        match sent {
            Ok(()) => Ok(Some(ConnectionFds {
                link: link(local, lease.peer, peer.is_mapped()),
                wakeup_fd: ours,
                memory,
            })),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::TOOMANYREFS) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// The two ends of a wake-up socket pair, and memory as the broker makes it.
fn objects(ring_lines: u32) -> Outcome<[RawFd; 3]> {
    let geometry = Geometry { ring_lines };
    let size = geometry.check().map_or(0, |()| geometry.size() as u64);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = private_fds::into_raw(rustix::fs::memfd_create(c"millrace-connection", flags)?);
    let made = shape(memory, size).and_then(|()| {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        Ok(rustix::net::socketpair(
            AddressFamily::UNIX,
            kind,
            flags,
            None,
        )?)
    });
    match made {
        Ok((ours, theirs)) => Ok([
            private_fds::into_raw(ours),
            private_fds::into_raw(theirs),
            memory,
        ]),
        Err(errno) => {
            private_fds::close_raw(memory);
            Err(errno)
        }
    }
}

fn shape(memory: RawFd, size: u64) -> Outcome<()> {
    let memory = private_fds::borrow(memory);
    rustix::fs::fchmod(memory, FileMode::RUSR | FileMode::WUSR)?;
    rustix::fs::ftruncate(memory, size)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    Ok(rustix::fs::fcntl_add_seals(memory, seals)?)
}

fn send(channel: RawFd, packet: &Packet, descriptors: [RawFd; 2]) -> rustix::io::Result<()> {
    let bytes = packet.encode();
    let descriptors = descriptors.map(private_fds::borrow);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(rustix::io::Errno::NOBUFS);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let pieces = [IoSlice::new(&bytes)];
    rustix::net::sendmsg(private_fds::borrow(channel), &pieces, &mut control, flags).map(drop)
}

/// Whether fewer connections wait than may.
fn is_writable(channel: RawFd) -> Outcome<bool> {
    let channel = private_fds::borrow(channel);
    let mut polled = [PollFd::new(&channel, PollFlags::OUT)];
    let time = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&time))?;
    Ok(polled[0].revents().contains(PollFlags::OUT))
}
