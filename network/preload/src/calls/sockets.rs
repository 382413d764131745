//! How connections come to be, and `shutdown`.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libc::{SOCK_CLOEXEC, SOCK_NONBLOCK, sockaddr, socklen_t};
use millrace_stream::slab::header::counter;
use millrace_stream::{Address, Side};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::FdFlags;
use rustix::net::sockopt;
use rustix::thread::{NanosleepRelativeResult, nanosleep};

use super::cancel;
use crate::broker::{self, Answer};
use crate::clock::now;
use crate::connection::{self, establish};
use crate::connection_fds::ConnectionFds;
use crate::entry::{Entry, FDS, Kind, RefKind};
use crate::errno::{Errno, Outcome, to_c_result};
use crate::fd_transition::FdTransition;
use crate::listener::ListenerState;
use crate::multiplex::hooks;
use crate::multiplex::touched::touched;
use crate::multiplex::wait::Deadline;
use crate::slab::{self, Record, flag, option};
use crate::socket_kind::{family, is_stream};
use crate::wait::handlers_restart;
use crate::{
    listeners, lost_channels, names, pristine_sockets, private_fds, real, socket_cache, stream_end,
};

/// For how long a call that blocks waits for room in a backlog before the kernel's TCP does: after as long that sends
/// its request again.
const BACKLOG_PATIENCE: Duration = Duration::from_secs(1);
/// Number of a socket's copies that become connections with it, at most.
const COPIES_MAX: usize = 16;
/// A timeout of zero.
const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

export! {
    fn listen(fd: c_int, backlog: c_int) -> c_int {
        if connection::lookup(fd).is_some() {
            return to_c_result(Err(Errno(libc::EINVAL)));
        }
        pristine_sockets::mark_modified(fd);
        let done = real::listen(fd, backlog);
        if done == 0 {
            listeners::announce(fd, backlog);
        }
        done
    }

}

export_points! {
    fn accept(fd: c_int, address: *mut sockaddr, size: *mut socklen_t) -> c_int {
        match FDS.lookup(fd) {
            None => real::accept(fd, address, size),
            Some(entry) => to_c_result(accept_from(fd, entry, address, size, 0)),
        }
    }

    fn accept4(fd: c_int, address: *mut sockaddr, size: *mut socklen_t, flags: c_int) -> c_int {
        match FDS.lookup(fd) {
            None => real::accept4(fd, address, size, flags),
            Some(entry) => to_c_result(accept_from(fd, entry, address, size, flags)),
        }
    }

}

export! {
    fn connect(fd: c_int, address: *const sockaddr, size: socklen_t) -> c_int {
        if let Some((_, record)) = connection::recorded(fd) {
            return to_c_result(connect_again(record));
        }
        let peer = names::read(address, size);
        match peer.map(|peer| connect_to(fd, peer)) {
            // A listener of this process may have a connection now.
            Some(Ok(Some(outcome))) => touched(to_c_result(outcome)),
            Some(Err(errno)) => to_c_result(Err(errno)),
            Some(Ok(None)) | None => {
                pristine_sockets::mark_modified(fd);
                touched(real::connect(fd, address, size))
            }
        }
    }

    fn shutdown(fd: c_int, how: c_int) -> c_int {
        match connection::recorded(fd) {
            None => {
                let done = real::shutdown(fd, how);
                if done == 0 && how != libc::SHUT_WR {
                    listeners::stop(fd);
                }
                done
            }
            Some((entry, record)) => touched(to_c_result(shut(fd, entry, record, how))),
        }
    }
}

/// `connect` on a connected socket: 0 once after a non-blocking connect, else `EISCONN`.
fn connect_again(record: &Record) -> Outcome<c_int> {
    if record.options.has(option::CONNECT_TOLD_LATER) {
        record.options.set(option::CONNECT_TOLD_LATER, false);
        return Ok(0);
    }
    Err(Errno(libc::EISCONN))
}

/// Connects by the broker. `None`: the kernel is to.
fn connect_to(fd: c_int, peer: SocketAddr) -> Outcome<Option<Outcome<c_int>>> {
    if FDS.lookup(fd).is_some() {
        return Ok(None);
    }
    let known = pristine_sockets::family(fd);
    let Some(family) = known.or_else(|| family(fd).filter(|_| is_stream(fd))) else {
        return Ok(None);
    };
    if family == libc::AF_INET && peer.is_ipv6() || peer.port() == 0 || !is_idle(fd) {
        return Ok(None);
    }
    if family == libc::AF_INET6 && peer.is_ipv4() {
        // The kernel has an answer to that.
        return Ok(None);
    }
    let Some(local) = own_name(fd) else {
        return Ok(None);
    };
    let _change = FdTransition::begin(fd);
    let flags = rustix::fs::fcntl_getfl(private_fds::borrow(fd))?;
    let is_nonblocking = flags.contains(OFlags::NONBLOCK);
    let waits_on = (!is_nonblocking).then_some(fd);
    match ask(local, peer, waits_on)? {
        Answer::Kernel | Answer::Full => {
            slab::count(counter::KERNEL_CONNECTS);
            Ok(None)
        }
        Answer::Connected(ends) => {
            let is_any = local.canonical().ip().is_unspecified() && local.port() == 0;
            let is_spare = known.is_some() && is_any && !flags.contains(OFlags::ASYNC);
            let spare = if is_spare {
                socket_cache::save(fd)
            } else {
                None
            };
            let replaced = replace(fd, &ends, family, flags);
            if let Some(spare) = spare {
                match replaced {
                    Ok(()) => socket_cache::keep(spare, family, flags),
                    Err(_) => private_fds::close(spare),
                }
            }
            replaced?;
            if is_nonblocking {
                return Ok(Some(Err(Errno(libc::EINPROGRESS))));
            }
            Ok(Some(Ok(0)))
        }
    }
}

/// Asks the broker; for a blocking socket, repeatedly while the listener has its backlog full. A signal ends that: the
/// kernel's call then follows.
fn ask(local: Address, peer: SocketAddr, waits_on: Option<c_int>) -> Outcome<Answer> {
    let mut answer = broker::connect(local, Address::from(peer))?;
    let (Answer::Full, Some(fd)) = (&answer, waits_on) else {
        return Ok(answer);
    };
    let own = sockopt::socket_timeout(private_fds::borrow(fd), sockopt::Timeout::Send);
    let patience = own.ok().flatten().unwrap_or(BACKLOG_PATIENCE);
    let limit = now() + patience.min(BACKLOG_PATIENCE);
    let mut pause = Timespec {
        tv_sec: 0,
        tv_nsec: 50_000,
    };
    while matches!(answer, Answer::Full) && now() < limit {
        if !matches!(nanosleep(&pause), NanosleepRelativeResult::Ok) {
            break;
        }
        answer = broker::connect(local, Address::from(peer))?;
        pause.tv_nsec = (pause.tv_nsec * 2).min(10_000_000);
    }
    Ok(answer)
}

/// Whether a socket was neither connected nor asked to.
fn is_idle(fd: c_int) -> bool {
    const CLOSE: u8 = 7;
    let mut state = [0u8; 4];
    let mut size = socklen_t::try_from(state.len()).unwrap_or(0);
    // SAFETY: the pointers are of as many bytes as the size says.
    let asked = unsafe {
        real::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            state.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    asked == 0 && state[0] == CLOSE
}

fn own_name(fd: c_int) -> Option<Address> {
    let name = rustix::net::getsockname(private_fds::borrow(fd)).ok()?;
    SocketAddr::try_from(name).ok().map(Address::from)
}

/// Puts a connection in the place of the program's socket.
fn replace(fd: c_int, ends: &ConnectionFds, family: c_int, flags: OFlags) -> Outcome<()> {
    let made = establish(ends, Side::Connecting, fd, family);
    let Ok(entry) = made else {
        private_fds::close_raw(ends.wakeup_fd);
        return made.map(drop);
    };
    let is_nonblocking = flags.contains(OFlags::NONBLOCK);
    // Sets look the entry up when it has its number.
    entry.hold(RefKind::Syscall);
    if let Some(record) = entry.record() {
        record.options.set(
            option::NONBLOCK | option::CONNECT_TOLD_LATER,
            is_nonblocking,
        );
    }
    let copies = copies_of(fd);
    let placed = hooks::moved(fd, || {
        place(fd, ends.wakeup_fd, is_nonblocking)?;
        connection::enter(fd, entry)
    });
    for copy in copies.into_iter().flatten().filter(|_| placed.is_ok()) {
        // A copy that cannot be replaced stays a socket.
        let _replaced = hooks::moved(copy, || {
            place(copy, ends.wakeup_fd, is_nonblocking)?;
            connection::enter(copy, entry)
        });
    }
    private_fds::close_raw(ends.wakeup_fd);
    entry.release(RefKind::Syscall);
    placed
}

/// Other numbers of this process for the same socket, as many as are looked for.
fn copies_of(fd: c_int) -> [Option<c_int>; COPIES_MAX] {
    let mut found = [None; COPIES_MAX];
    if !pristine_sockets::is_copied(fd) {
        return found;
    }
    let file = |fd| {
        rustix::fs::fstat(private_fds::borrow(fd)).map(|status| (status.st_dev, status.st_ino))
    };
    let Ok(own) = file(fd) else {
        return found;
    };
    let others = pristine_sockets::copies().filter(|copy| *copy != fd && file(*copy) == Ok(own));
    for (place, copy) in found.iter_mut().zip(others) {
        *place = Some(copy);
    }
    found
}

fn place(fd: c_int, wakeup_fd: c_int, is_nonblocking: bool) -> Outcome<()> {
    let is_closed_on_exec =
        rustix::io::fcntl_getfd(private_fds::borrow(fd))?.contains(FdFlags::CLOEXEC);
    if is_nonblocking {
        rustix::fs::fcntl_setfl(private_fds::borrow(wakeup_fd), OFlags::NONBLOCK)?;
    }
    private_fds::replace(wakeup_fd, fd, is_closed_on_exec)
}

/// Accepts from a listener: first from the channel, then from the kernel.
///
/// # Safety
/// The pointers are null or valid, as the call asks for.
unsafe fn accept_from(
    fd: c_int,
    entry: &'static Entry,
    address: *mut sockaddr,
    size: *mut socklen_t,
    flags: c_int,
) -> Outcome<c_int> {
    if entry.kind() == Kind::Connection || flags & !(SOCK_CLOEXEC | SOCK_NONBLOCK) != 0 {
        return Err(Errno(libc::EINVAL));
    }
    if entry.kind() != Kind::Listener {
        // SAFETY: the pointers are null or valid, as this function asks for.
        return real_accept(unsafe { real::accept4(fd, address, size, flags) });
    }
    let mut deadline = None;
    loop {
        if let Some(accepted) = take_incoming(fd, entry, flags)? {
            if let Some((_, record)) = connection::recorded(accepted).filter(|_| !address.is_null())
            {
                // SAFETY: the pointers are null or valid, as this function asks for.
                if let Err(errno) = unsafe { names::write(&record.peer(), address, size) } {
                    // SAFETY: the program does not know of the number.
                    unsafe { super::descriptors::close(accepted) };
                    return Err(errno);
                }
            }
            return Ok(accepted);
        }
        // SAFETY: the pointers are null or valid, as this function asks for.
        let accept = || real_accept(unsafe { real::accept4(fd, address, size, flags) });
        let accepted = match next_queue(fd, entry, &mut deadline)? {
            Queue::Kernel => accept(),
            Queue::KernelInTurn => match in_turn(fd, entry, accept) {
                Some(accepted) => accepted,
                None => continue,
            },
            Queue::Channel => continue,
        };
        if accepted.is_ok() {
            slab::count(counter::KERNEL_ACCEPTS);
            listeners::close_if_broker_exited(fd, entry);
        }
        return accepted;
    }
}

/// Accepts from the kernel, as the only one of the threads and processes that share the listener, if the kernel still
/// has a connection: else this thread would block there while connections arrive on the channel. `None`: not now.
fn in_turn(
    fd: c_int,
    entry: &'static Entry,
    accept: impl FnOnce() -> Outcome<c_int>,
) -> Option<Outcome<c_int>> {
    let mut accepted = None;
    let work = || {
        let listener = private_fds::borrow(fd);
        let mut polled = [PollFd::new(&listener, PollFlags::IN)];
        if !matches!(rustix::event::poll(&mut polled, Some(&NOW)), Ok(0)) {
            accepted = Some(accept());
        }
    };
    // The pin keeps the entry: the program may close the number meanwhile.
    let slab = entry.held(fd, || Ok(entry.slab())).ok().flatten();
    match slab {
        Some(slab) => {
            if !slab.alone(work) {
                rustix::thread::sched_yield();
            }
        }
        None => work(),
    }
    accepted
}

fn real_accept(accepted: c_int) -> Outcome<c_int> {
    if accepted >= 0 {
        return Ok(accepted);
    }
    Err(Errno(
        std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EINVAL),
    ))
}

/// Number of a connection from the channel, if there is one.
fn take_incoming(fd: c_int, entry: &'static Entry, flags: c_int) -> Outcome<Option<c_int>> {
    let channel = entry.channel();
    let Some(channel) = channel.or_else(|| listeners::announce_again(fd, entry)) else {
        return Ok(None);
    };
    match broker::incoming(
        channel,
        &entry.listener.channel_owner,
        flags & SOCK_CLOEXEC != 0,
    ) {
        Ok(Some(ends)) => enter_incoming(fd, &ends, flags & SOCK_NONBLOCK != 0).map(Some),
        Ok(None) => {
            listeners::mark_disconnected(fd, entry)?;
            Ok(None)
        }
        Err(Errno(libc::EAGAIN | libc::EINTR)) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn enter_incoming(fd: c_int, ends: &ConnectionFds, is_nonblocking: bool) -> Outcome<c_int> {
    let family = family(fd).unwrap_or(libc::AF_INET);
    let entered = establish(ends, Side::Accepting, fd, family).and_then(|entry| {
        // Without a number the entry ends with this reference.
        entry.hold(RefKind::Syscall);
        let mut entered = Ok(());
        if is_nonblocking {
            entered =
                rustix::fs::fcntl_setfl(private_fds::borrow(ends.wakeup_fd), OFlags::NONBLOCK);
        }
        if let Some(record) = entry.record() {
            record.options.set(option::NONBLOCK, is_nonblocking);
        }
        let entered = entered
            .map_err(Errno::from)
            .and_then(|()| connection::enter(ends.wakeup_fd, entry));
        entry.release(RefKind::Syscall);
        entered
    });
    if let Err(errno) = entered {
        private_fds::close_raw(ends.wakeup_fd);
        return Err(errno);
    }
    Ok(ends.wakeup_fd)
}

/// Where the next connection is to be taken.
enum Queue {
    /// From the kernel, which does not wait or is all there is.
    Kernel,
    /// From the kernel, unless another thread takes it.
    KernelInTurn,
    /// From the channel to the broker.
    Channel,
}

/// Source of the next connection, after the channel was found empty. Waits for either queue until `deadline`, which the
/// first wait sets. While the listener is disconnected a wait is short: it may get another channel.
fn next_queue(fd: c_int, entry: &'static Entry, deadline: &mut Option<Deadline>) -> Outcome<Queue> {
    if rustix::fs::fcntl_getfl(private_fds::borrow(fd))?.contains(OFlags::NONBLOCK) {
        return Ok(Queue::Kernel);
    }
    let channel = match entry.listener_state() {
        ListenerState::Connected(channel) => Some(private_fds::borrow(channel)),
        ListenerState::Disconnected => None,
        ListenerState::Closed => return Ok(Queue::Kernel),
    };
    let listener = private_fds::borrow(fd);
    let timeout = sockopt::socket_timeout(listener, sockopt::Timeout::Recv)?;
    let deadline = *deadline.get_or_insert_with(|| Deadline::after(timeout));
    let asleep = cancel::Sleep::begin()?;
    loop {
        let left = match channel {
            Some(_) => deadline.left(),
            None => Some(lost_channels::shortened(deadline.left())),
        };
        let time = left.and_then(|left| Timespec::try_from(left).ok());
        let watched = [Some(&listener), channel.as_ref()];
        let mut fds = watched.map(|fd| PollFd::new(fd.unwrap_or(&listener), PollFlags::IN));
        let woken = rustix::event::poll(&mut fds, time.as_ref()).map_err(Errno::from);
        let is_by_channel = channel.is_some() && !fds[1].revents().is_empty();
        match asleep.ended(woken) {
            Ok(0) if deadline.is_over() => return Err(Errno(libc::EAGAIN)),
            Ok(0) => return Ok(Queue::Channel),
            Ok(_) if is_by_channel => return Ok(Queue::Channel),
            Ok(_) => return Ok(Queue::KernelInTurn),
            Err(Errno(libc::EINTR)) if timeout.is_none() && handlers_restart() => {
                // Frequent signals must not delay the next attempt to connect the listener.
                if channel.is_none() {
                    return Ok(Queue::Channel);
                }
            }
            Err(errno) => return Err(errno),
        }
    }
}

fn shut(fd: c_int, entry: &'static Entry, record: &Record, how: c_int) -> Outcome<c_int> {
    let flags = match how {
        libc::SHUT_RD => flag::RECEIVE_SHUT,
        libc::SHUT_WR => flag::SEND_SHUT,
        libc::SHUT_RDWR => flag::RECEIVE_SHUT | flag::SEND_SHUT,
        _ => return Err(Errno(libc::EINVAL)),
    };
    if !entry.pin(fd, RefKind::Syscall) {
        return Err(Errno(libc::EBADF));
    }
    // As with TCP, a connection that is over on both sides cannot be shut down.
    let is_over = entry.is_closed();
    let outcome = if is_over {
        Err(Errno(libc::ENOTCONN))
    } else {
        Ok(0)
    };
    let was_open = !record.has(flag::SEND_SHUT);
    if outcome.is_ok() {
        record.set(flags);
        if flags & flag::SEND_SHUT != 0 && was_open {
            // It fails only in a signal handler above a send: then the last close sends the end.
            let _unsaid = stream_end::finish(entry, record);
        }
    }
    // As the kernel does, even if nothing has changed.
    entry.connection.shutdowns.fetch_add(1, Ordering::Relaxed);
    hooks::broadcast(entry);
    entry.release(RefKind::Syscall);
    outcome
}
