//! The owner of a listener's channel, and the check of connections that arrive on it.

use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{c_int, socklen_t};
use millrace_stream::Geometry;
use millrace_stream::control::Mode;
use millrace_stream::sockets::packets::Sender;
use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::{Pid, test_kill_process};

use crate::connection_fds::ConnectionFds;
use crate::{broker_link, private_fds, real};

/// The file system of memory that is a file, with pages of the usual size.
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// Lowest port that needs no privilege.
const LOW_PORTS: u16 = 1024;

/// The broker that made a channel, and the user whose processes may lease it.
#[derive(Debug)]
pub(crate) struct ChannelOwner {
    process: AtomicU32,
    user: AtomicU32,
    owner: AtomicU32,
    /// Number of broker exits that this process had seen when it got the channel.
    broker_exits: AtomicU32,
}

impl ChannelOwner {
    pub(crate) const fn new() -> Self {
        Self {
            process: AtomicU32::new(0),
            user: AtomicU32::new(0),
            owner: AtomicU32::new(0),
            broker_exits: AtomicU32::new(0),
        }
    }

    /// Sets the channel. The kernel records the maker of a socket pair: `SO_PEERCRED` returns it.
    pub(crate) fn set(&self, channel: RawFd) {
        let mut maker = libc::ucred {
            pid: 0,
            uid: u32::MAX,
            gid: 0,
        };
        let mut size = socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
        let place = (&raw mut maker).cast();
        let (level, name): (c_int, c_int) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        // SAFETY: the place has as many bytes as the size says.
        unsafe { real::getsockopt(channel, level, name, place, &raw mut size) };
        let process = u32::try_from(maker.pid).unwrap_or(0);
        self.process.store(process, Ordering::Relaxed);
        self.user.store(maker.uid, Ordering::Relaxed);
        let owner = rustix::process::getuid().as_raw();
        self.owner.store(owner, Ordering::Relaxed);
        self.broker_exits
            .store(broker_link::broker_exits(), Ordering::Relaxed);
    }

    /// Whether that broker has exited: this process has seen an exit since, sees the exit of its own broker now, or
    /// finds no process with that id.
    pub(crate) fn is_gone(&self) -> bool {
        let maker = i32::try_from(self.process.load(Ordering::Relaxed));
        let is_no_process = |maker| test_kill_process(maker) == Err(rustix::io::Errno::SRCH);
        self.broker_exits.load(Ordering::Relaxed) != broker_link::broker_exits()
            || broker_link::has_exited()
            || maker
                .ok()
                .and_then(Pid::from_raw)
                .is_some_and(is_no_process)
    }

    /// Whether a sender may put this connection into the channel. The broker always may. A process with a lease must
    /// run as the user of the listener or as root; it may use addresses of this host alone, and its memory and its
    /// wake-up fd are checked: neither may fault in this process, nor make it block.
    pub(crate) fn authenticate(&self, sender: Option<Sender>, ends: &ConnectionFds) -> bool {
        let Some(sender) = sender else {
            return false;
        };
        let user = self.user.load(Ordering::Relaxed);
        if sender.process == self.process.load(Ordering::Relaxed) && sender.user == user {
            return true;
        }
        let is_trusted = sender.user == 0 || sender.user == self.owner.load(Ordering::Relaxed);
        is_trusted && names_itself(sender, ends) && is_sound(ends)
    }
}

fn names_itself(sender: Sender, ends: &ConnectionFds) -> bool {
    let [local, peer] = [ends.link.local, ends.link.peer].map(|name| name.canonical());
    let is_here = match (local.ip(), peer.ip()) {
        (IpAddr::V4(local), IpAddr::V4(peer)) => {
            local == peer || local.is_loopback() && peer.is_loopback()
        }
        (local, peer) => local == peer,
    };
    let is_high = peer.port() >= LOW_PORTS || sender.user == 0;
    ends.link.mode == Mode::Direct && is_here && is_high
}

fn is_sound(ends: &ConnectionFds) -> bool {
    let geometry = Geometry {
        ring_lines: ends.link.ring_lines,
    };
    let (memory, wakeup_fd) = (
        private_fds::borrow(ends.memory),
        private_fds::borrow(ends.wakeup_fd),
    );
    let has_size = geometry.check().is_ok()
        && rustix::fs::fstat(memory)
            .is_ok_and(|status| usize::try_from(status.st_size) == Ok(geometry.size()));
    let is_memory = rustix::fs::fstatfs(memory)
        .is_ok_and(|system| u64::try_from(system.f_type) == Ok(TMPFS_MAGIC));
    // The mapping checks the seals against shrinking.
    has_size
        && is_memory
        && sockopt::socket_domain(wakeup_fd) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(wakeup_fd) == Ok(SocketType::SEQPACKET)
}
