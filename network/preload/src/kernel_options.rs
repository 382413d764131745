//! Options of the kernel's sockets, from which connections take theirs.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET, socklen_t};
use rustix::net::sockopt;
use rustix::net::sockopt::Timeout;

use crate::slab::{Options, option};
use crate::{private_fds, real};

/// The options of a kernel's socket, which are asked for once as long as they stay the same.
#[derive(Debug)]
pub(crate) struct Model {
    options: Options,
    /// Number of changes, plus one.
    changes: AtomicU32,
    /// Value of `changes` at the last read; 0 before the first.
    read_at: AtomicU32,
}

impl Model {
    pub(crate) const fn new() -> Self {
        Self {
            options: Options::new(),
            changes: AtomicU32::new(1),
            read_at: AtomicU32::new(0),
        }
    }

    /// Marks the options as changed, so that the next copy reads them.
    pub(crate) fn change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn copy_to(&self, socket: c_int, family: c_int, options: &Options) {
        let changes = self.changes.load(Ordering::Acquire);
        if self.read_at.load(Ordering::Acquire) == changes {
            return options.copy(&self.options);
        }
        read(socket, family, options);
        self.options.copy(options);
        // Release: a thread that sees the number sees the options. Concurrent threads store the same values.
        self.read_at.store(changes, Ordering::Release);
    }
}

/// Asks the kernel for a socket's options.
pub(crate) fn read(socket: c_int, family: c_int, options: &Options) {
    let socket = private_fds::borrow(socket);
    let bits = [
        (option::NODELAY, sockopt::tcp_nodelay(socket)),
        (option::KEEPALIVE, sockopt::socket_keepalive(socket)),
        (option::CORK, sockopt::tcp_cork(socket)),
        (option::REUSEADDR, sockopt::socket_reuseaddr(socket)),
        (option::REUSEPORT, sockopt::socket_reuseport(socket)),
        (option::QUICKACK, sockopt::tcp_quickack(socket)),
        (option::OOBINLINE, sockopt::socket_oobinline(socket)),
    ];
    for (bit, value) in bits {
        options.set(bit, value.unwrap_or(false));
    }
    if family == libc::AF_INET6 {
        options.set(
            option::V6ONLY,
            sockopt::ipv6_v6only(socket).unwrap_or(false),
        );
    }
    let linger = sockopt::socket_linger(socket).ok().flatten();
    let seconds = linger.map_or(-1, |linger| {
        i32::try_from(linger.as_secs()).unwrap_or(i32::MAX)
    });
    options.linger.store(seconds, Ordering::Relaxed);
    let nanoseconds = |id| {
        let timeout = sockopt::socket_timeout(socket, id)
            .ok()
            .flatten()
            .unwrap_or_default();
        u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)
    };
    options
        .send_timeout
        .store(nanoseconds(Timeout::Send), Ordering::Relaxed);
    options
        .receive_timeout
        .store(nanoseconds(Timeout::Recv), Ordering::Relaxed);
    let seconds = |time: rustix::io::Result<Duration>| {
        u32::try_from(time.unwrap_or_default().as_secs()).unwrap_or(u32::MAX)
    };
    let size =
        |size: rustix::io::Result<usize>| u32::try_from(size.unwrap_or(0)).unwrap_or(u32::MAX);
    let numbers = [
        (
            &options.send_buffer,
            size(sockopt::socket_send_buffer_size(socket)),
        ),
        (
            &options.receive_buffer,
            size(sockopt::socket_recv_buffer_size(socket)),
        ),
        (&options.keep_idle, seconds(sockopt::tcp_keepidle(socket))),
        (
            &options.keep_interval,
            seconds(sockopt::tcp_keepintvl(socket)),
        ),
        (
            &options.keep_count,
            sockopt::tcp_keepcnt(socket).unwrap_or(0),
        ),
        (
            &options.user_timeout,
            sockopt::tcp_user_timeout(socket).unwrap_or(0),
        ),
        (
            &options.type_of_service,
            u32::from(sockopt::ip_tos(socket).unwrap_or(0)),
        ),
    ];
    for (place, number) in numbers {
        place.store(number, Ordering::Relaxed);
    }
    read_numbers(socket.as_raw_fd(), family, options);
    read_rate(socket.as_raw_fd(), options);
}

/// Asks for numbers as they are.
fn read_numbers(socket: c_int, family: c_int, options: &Options) {
    let numbers = [
        (SOL_SOCKET, libc::SO_PRIORITY, &options.priority),
        (SOL_SOCKET, libc::SO_MARK, &options.mark),
        (SOL_SOCKET, libc::SO_BUSY_POLL, &options.busy_poll),
        (IPPROTO_TCP, libc::TCP_LINGER2, &options.orphan_seconds),
        (IPPROTO_TCP, libc::TCP_SYNCNT, &options.connect_tries),
        (IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &options.defer_accept),
        (IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &options.keep_unsent),
        (IPPROTO_IP, libc::IP_TTL, &options.time_to_live),
        (IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, &options.hop_limit),
    ];
    for (level, name, place) in numbers {
        if level == IPPROTO_IPV6 && family != libc::AF_INET6 {
            continue;
        }
        let mut value = [0; 4];
        let mut size = 4;
        // SAFETY: there is room for a number.
        let result = unsafe {
            real::getsockopt(
                socket,
                level,
                name,
                value.as_mut_ptr().cast(),
                &raw mut size,
            )
        };
        if result == 0 {
            place.store(u32::from_ne_bytes(value), Ordering::Relaxed);
        }
    }
}

/// Asks for the rate of a kernel's socket.
fn read_rate(socket: c_int, options: &Options) {
    let mut value = [0_u8; 8];
    let mut size = 8 as socklen_t;
    // SAFETY: there is room for as many bytes as it says.
    let result = unsafe {
        real::getsockopt(
            socket,
            SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            value.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    if result == 0 {
        options.rate.set(u64::from_ne_bytes(value));
    }
}
