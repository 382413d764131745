//! This process's connection to its broker.
//!
//! The connection is made at the first request. Without a broker every connection is the kernel's; after a failed
//! connect, or after the broker exited, the next attempt follows at the earliest one second later. Requests are sent
//! one at a time.

use std::ffi::{CStr, c_char, c_int};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use millrace_stream::Address;
use millrace_stream::control::{DESCRIPTORS_MAX, Message, PACKET, Packet};
use millrace_stream::sockets::packets::Sender;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sockopt,
};

use crate::ancillary::{self, Descriptors};
use crate::broker_link::{EXITS, SOCKET, is_dead};
use crate::channel_owner::ChannelOwner;
use crate::clock::now;
use crate::connection_fds::ConnectionFds;
use crate::errno::{Errno, Outcome};
use crate::leases::{self, LeaseLookup};
use crate::lock::Lock;
use crate::multiplex::spin;
use crate::private_fds;
use crate::slab::Slab;

/// Between two attempts to reach a broker.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time after which a request to a broker that does not answer fails. The next attempt follows after [`REST`].
const SILENCE: Duration = Duration::from_secs(2);
const REST: Duration = Duration::from_secs(30);

/// Lock of the broker's socket: held for one request and its reply.
static TALK: Lock = Lock::new();
/// Serial number of the last request.
static SERIAL: AtomicU32 = AtomicU32::new(0);
/// Parent of this process introduced itself to the broker, and this process did not yet.
static IS_UNKNOWN: AtomicBool = AtomicBool::new(false);
/// Time of the last failed connect, in nanoseconds; 0 without one.
static MISSED: AtomicU64 = AtomicU64::new(0);
/// Address of the broker; see [`path`].
static PATH: OnceLock<Option<SocketAddrUnix>> = OnceLock::new();

/// Reply of the broker to a request to connect.
#[derive(Debug)]
pub(crate) enum Answer {
    Connected(ConnectionFds),
    /// The kernel's TCP carries the connection.
    Kernel,
    /// The listener has its backlog full.
    Full,
}

/// Asks for a connection. It does not wait for a listener that has its backlog full.
///
/// # Errors
/// The error that a rule of the broker gives.
pub(crate) fn connect(local: Address, peer: Address) -> Outcome<Answer> {
    let is_any = local.canonical().ip().is_unspecified() && local.port() == 0;
    let lease = if is_any {
        leases::connect(peer)
    } else {
        LeaseLookup::Never
    };
    if let LeaseLookup::Connected(ends) = lease {
        return Ok(Answer::Connected(ends));
    }
    // A connection that the broker made cannot be undone: the other side would see it end.
    if private_fds::spare(DESCRIPTORS_MAX).is_err() {
        return Ok(Answer::Kernel);
    }
    let wants_lease = matches!(lease, LeaseLookup::ShouldRequest);
    match request(local, peer, wants_lease)? {
        Some(answer) => Ok(answer),
        // The lease was of no use: its listener may have closed, and another may accept.
        None => Ok(request(local, peer, false)?.unwrap_or(Answer::Kernel)),
    }
}

/// `None` if the reply was a lease that did not help.
fn request(local: Address, peer: Address, wants_lease: bool) -> Outcome<Option<Answer>> {
    let message = Message::Connect {
        no_wait: true,
        wants_lease,
        local,
        peer,
    };
    let Some((reply, mut fds)) = ask(message, None) else {
        leases::forget_all();
        return Ok(Some(Answer::Kernel));
    };
    match (reply, fds.is_both()) {
        (Message::Connected(link), true) => {
            let ends = fds.both().map(|[wakeup_fd, memory]| ConnectionFds {
                link,
                wakeup_fd,
                memory,
            });
            Ok(Some(ends.map_or(Answer::Kernel, Answer::Connected)))
        }
        (Message::Lease(lease), _) => {
            if let Some(channel) = fds.take() {
                leases::insert(peer, lease, channel);
            }
            match leases::connect(peer) {
                LeaseLookup::Connected(ends) => Ok(Some(Answer::Connected(ends))),
                _ => Ok(None),
            }
        }
        (Message::Refused { errno }, _) => match c_int::try_from(errno).unwrap_or(libc::EACCES) {
            libc::EAGAIN => Ok(Some(Answer::Full)),
            errno => Err(Errno(errno)),
        },
        _ => Ok(Some(Answer::Kernel)),
    }
}

/// Registers a listening socket. The private descriptor of its channel, if the broker accepts it.
pub(crate) fn listen(fd: c_int, backlog: u32) -> Option<RawFd> {
    let (reply, mut fds) = ask(Message::Listen { backlog }, Some(private_fds::borrow(fd)))?;
    if reply != Message::Listening {
        return None;
    }
    let channel = fds.take()?;
    let hidden = private_fds::hide_copy(private_fds::borrow(channel)).ok();
    private_fds::close_raw(channel);
    hidden
}

/// Takes a connection from a listener's channel. `None` if the broker has closed the channel.
///
/// # Errors
/// `EAGAIN` if no connection waits; `EMFILE` without room for its descriptors: the connection stays in the channel.
pub(crate) fn incoming(
    channel: RawFd,
    channel_owner: &ChannelOwner,
    is_closed_on_exec: bool,
) -> Outcome<Option<ConnectionFds>> {
    let flags = if is_closed_on_exec {
        libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC
    } else {
        libc::MSG_DONTWAIT
    };
    if !is_readable(channel) {
        return Err(Errno(libc::EAGAIN));
    }
    private_fds::spare(DESCRIPTORS_MAX)?;
    let parcel = match receive(channel, flags)? {
        Received::Packet(parcel) => parcel,
        // A process with a lease of the channel may have sent it.
        Received::Malformed => return Err(Errno(libc::EAGAIN)),
        Received::End => return Ok(None),
    };
    let Message::Incoming { link, .. } = parcel.packet.message else {
        return Err(Errno(libc::EAGAIN));
    };
    let sender = parcel.sender;
    let Some([wakeup_fd, memory]) = parcel.descriptors.both() else {
        return Err(Errno(libc::EAGAIN));
    };
    let ends = ConnectionFds {
        link,
        wakeup_fd,
        memory,
    };
    if !channel_owner.authenticate(sender, &ends) {
        private_fds::close_raw(wakeup_fd);
        private_fds::close_raw(memory);
        return Err(Errno(libc::EAGAIN));
    }
    Ok(Some(ends))
}

/// Whether a channel has a packet, or is at its end.
fn is_readable(channel: RawFd) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let looked = rustix::net::recv(private_fds::borrow(channel), &mut [0; 1], flags);
    !matches!(looked, Err(rustix::io::Errno::AGAIN))
}

/// Whether this thread is in a request to the broker, so that the caller is a signal handler above it.
pub(crate) fn is_own() -> bool {
    TALK.is_own()
}

/// Closes the connection in the child of a fork, where it is the parent's.
pub(crate) fn forget() {
    let socket = SOCKET.swap(-1, Ordering::Relaxed);
    if socket >= 0 {
        private_fds::close(socket);
    }
    TALK.reset();
    leases::forget_in_child();
    MISSED.store(0, Ordering::Relaxed);
    if socket >= 0 {
        IS_UNKNOWN.store(true, Ordering::Relaxed);
    }
}

/// Introduces this process to the broker, if it is the child of a process that the broker knows: at its first
/// connection, or before it drops privileges. Most children do neither, and execute another program. Without a broker
/// only counters are lost.
pub(crate) fn introduce() {
    if !IS_UNKNOWN.load(Ordering::Relaxed) || !IS_UNKNOWN.swap(false, Ordering::Relaxed) {
        return;
    }
    if let Ok(_guard) = TALK.take() {
        let _reached = reach();
    }
}

/// Sends a request to the broker and waits for the reply. `None` without a broker.
fn ask(message: Message, fd: Option<BorrowedFd<'_>>) -> Option<(Message, Descriptors)> {
    let _guard = TALK.take().ok()?;
    // The broker may have exited since the last request: one more attempt connects to the next one.
    for _ in 0..2 {
        let socket = reach()?;
        if let Some(answer) = exchange(socket, message, fd) {
            return Some(answer);
        }
        if SOCKET.swap(-1, Ordering::Relaxed) == socket {
            // A broker that only timed out may answer again: it is not counted as exited.
            if is_dead(socket) {
                EXITS.fetch_add(1, Ordering::Relaxed);
            }
            private_fds::close(socket);
        }
    }
    None
}

fn exchange(
    socket: RawFd,
    message: Message,
    fd: Option<BorrowedFd<'_>>,
) -> Option<(Message, Descriptors)> {
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    send(socket, Packet { serial, message }, fd).ok()?;
    loop {
        match receive(socket, libc::MSG_CMSG_CLOEXEC) {
            Ok(Received::Packet(parcel)) if parcel.packet.serial == serial => {
                return Some((parcel.packet.message, parcel.descriptors));
            }
            // Reply to an abandoned request.
            Ok(Received::Packet(_)) | Err(Errno(libc::EINTR)) => {}
            Err(Errno(libc::EAGAIN)) => {
                miss(now() + REST - PATIENCE);
                return None;
            }
            Ok(Received::Malformed | Received::End) | Err(_) => return None,
        }
    }
}

/// Socket of the connection to the broker; connects if there is none.
fn reach() -> Option<RawFd> {
    let socket = SOCKET.load(Ordering::Relaxed);
    if socket >= 0 {
        return Some(socket);
    }
    let missed = Duration::from_nanos(MISSED.load(Ordering::Relaxed));
    if !missed.is_zero() && now() < missed + PATIENCE {
        return None;
    }
    let reached = dial();
    match reached {
        Some(socket) => SOCKET.store(socket, Ordering::Relaxed),
        None => miss(missed_since(now())),
    }
    reached
}

/// Stores the time of a failed connect.
fn miss(at: Duration) {
    let nanos = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
    MISSED.store(nanos.max(1), Ordering::Relaxed);
}

/// Time of the last failed connect, or the later one that a timeout has set.
fn missed_since(now: Duration) -> Duration {
    now.max(Duration::from_nanos(MISSED.load(Ordering::Relaxed)))
}

fn dial() -> Option<RawFd> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).ok()?;
    let socket = private_fds::hide(socket).ok()?;
    for time in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
        sockopt::set_socket_timeout(private_fds::borrow(socket), time, Some(SILENCE)).ok()?;
    }
    let greeted = path()
        .and_then(|path| rustix::net::connect(private_fds::borrow(socket), path).ok())
        .and_then(|()| greet(socket));
    if greeted.is_none() {
        private_fds::close(socket);
        return None;
    }
    Some(socket)
}

fn greet(socket: RawFd) -> Option<()> {
    let slab = match Slab::own() {
        Some(slab) => slab,
        None => Slab::create().ok()?,
    };
    let (reply, _) = exchange(socket, Message::Hello, Some(private_fds::borrow(slab.file)))?;
    let Message::Welcome { spin_us_max, .. } = reply else {
        return None;
    };
    spin::limit(spin_us_max);
    Some(())
}

/// Where the broker is. That is found once, when the library is loaded: workers of servers clear their environment,
/// and become other users.
pub(crate) fn path() -> Option<&'static SocketAddrUnix> {
    PATH.get_or_init(find_path).as_ref()
}

fn find_path() -> Option<SocketAddrUnix> {
    if let Some(path) = variable(c"MILLRACE_SOCKETS") {
        return SocketAddrUnix::new(path).ok();
    }
    let mut bytes = [0; 108];
    let folder = match variable(c"XDG_RUNTIME_DIR") {
        Some(folder) if !rustix::process::geteuid().is_root() => folder.to_bytes(),
        _ => b"/run",
    };
    let rest = b"/millrace/sockets";
    bytes.get_mut(..folder.len())?.copy_from_slice(folder);
    bytes
        .get_mut(folder.len()..folder.len() + rest.len())?
        .copy_from_slice(rest);
    SocketAddrUnix::new(&bytes[..folder.len() + rest.len()]).ok()
}

/// Value of an environment variable; `None` if it is unset or empty.
pub(crate) fn variable(name: &'static CStr) -> Option<&'static CStr> {
    // SAFETY: the name ends in a zero byte. The program must not change the environment at the same time, as for every
    // call of `getenv`.
    let value: *const c_char = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: what the C library found ends in a zero byte.
    Some(unsafe { CStr::from_ptr(value) }).filter(|value| !value.is_empty())
}

fn send(socket: RawFd, packet: Packet, fd: Option<BorrowedFd<'_>>) -> Outcome<()> {
    let bytes = packet.encode();
    let fds: &[BorrowedFd<'_>] = fd.as_slice();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno(libc::ENOMEM));
    }
    let pieces = [IoSlice::new(&bytes)];
    let socket = private_fds::borrow(socket);
    loop {
        match rustix::net::sendmsg(socket, &pieces, &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A packet with its descriptors and the credentials of its sender.
struct ControlPacket {
    packet: Packet,
    descriptors: Descriptors,
    sender: Option<Sender>,
}

/// The outcome of one receive.
enum Received {
    Packet(ControlPacket),
    /// Bytes that are no packet of this protocol.
    Malformed,
    /// End of the socket: the broker closed it.
    End,
}

fn receive(socket: RawFd, flags: c_int) -> Outcome<Received> {
    let mut bytes = [0; PACKET];
    let (count, descriptors, sender) = ancillary::receive(socket, &mut bytes, flags)?;
    // The kernel adds credentials to an empty packet, but not to the end of the socket.
    if count == 0 && sender.is_none() {
        return Ok(Received::End);
    }
    let packet = Packet::decode(bytes.get(..count).unwrap_or_default());
    Ok(packet.map_or(Received::Malformed, |packet| {
        Received::Packet(ControlPacket {
            packet,
            descriptors,
            sender,
        })
    }))
}
