//! This process's connection to its monitor.
//!
//! It is made when it is first needed. Without a monitor all goes to the kernel; a monitor that died is looked for
//! again, once a second at most. Requests go one after another.

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use millrace_stream::Address;
use millrace_stream::control::{DESCRIPTORS_MAX, Link, Message, PACKET, Packet};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::errno::{Errno, Outcome};
use crate::hidden;
use crate::lock::Lock;
use crate::multiplex::spin;
use crate::slab::Slab;
use crate::wait::now;

/// Between two attempts to reach a monitor.
const PATIENCE: Duration = Duration::from_secs(1);

/// Who speaks to the monitor.
static TALK: Lock = Lock::new();
/// The hidden descriptor of the connection, or -1.
static SOCKET: AtomicI32 = AtomicI32::new(-1);
/// The last request's number.
static SERIAL: AtomicU32 = AtomicU32::new(0);
/// When the monitor was last looked for in vain, in nanoseconds and never 0.
static MISSED: AtomicU64 = AtomicU64::new(0);

/// What a connection comes with.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) link: Link,
    /// An open descriptor, of no hidden number.
    pub(crate) bell: RawFd,
    /// An open descriptor, of no hidden number.
    pub(crate) memory: RawFd,
}

/// What the monitor says to a request to connect.
#[derive(Debug)]
pub(crate) enum Answer {
    Connected(Ends),
    /// The kernel's TCP is to serve it.
    Kernel,
}

/// Asks for a connection.
///
/// # Errors
/// What a rule says.
pub(crate) fn connect(local: Address, peer: Address, no_wait: bool) -> Outcome<Answer> {
    let message = Message::Connect {
        no_wait,
        local,
        peer,
    };
    let Some((reply, fds)) = ask(message, None) else {
        return Ok(Answer::Kernel);
    };
    match (reply, fds.both()) {
        (Message::Connected(link), Some([bell, memory])) => {
            Ok(Answer::Connected(Ends { link, bell, memory }))
        }
        (Message::Refused { errno }, _) => {
            Err(Errno(c_int::try_from(errno).unwrap_or(libc::EACCES)))
        }
        _ => Ok(Answer::Kernel),
    }
}

/// Announces a listening socket. The channel, hidden, if the monitor listens to it.
pub(crate) fn listen(fd: c_int, backlog: u32) -> Option<RawFd> {
    let (reply, mut fds) = ask(Message::Listen { backlog }, Some(hidden::borrow(fd)))?;
    if reply != Message::Listening {
        return None;
    }
    let channel = fds.take()?;
    let hidden = hidden::hide_copy(hidden::borrow(channel)).ok();
    hidden::close_raw(channel);
    hidden
}

/// Takes a connection from a listener's channel. `None` if the channel is dead.
///
/// # Errors
/// `EAGAIN` if there is none.
pub(crate) fn incoming(channel: RawFd, is_closed_on_exec: bool) -> Outcome<Option<Ends>> {
    let flags = if is_closed_on_exec {
        RecvFlags::CMSG_CLOEXEC
    } else {
        RecvFlags::empty()
    };
    let Some((packet, fds)) = receive(channel, flags | RecvFlags::DONTWAIT)? else {
        return Ok(None);
    };
    match (packet.message, fds.both()) {
        (Message::Incoming { link, .. }, Some([bell, memory])) => {
            Ok(Some(Ends { link, bell, memory }))
        }
        _ => Err(Errno(libc::EAGAIN)),
    }
}

/// In the child of a fork, where the connection is the parent's: forgets it. True if there was one.
pub(crate) fn forget() -> bool {
    let socket = SOCKET.swap(-1, Ordering::Relaxed);
    if socket >= 0 {
        hidden::close(socket);
    }
    TALK.reset();
    MISSED.store(0, Ordering::Relaxed);
    socket >= 0
}

/// Says who this process is before it gives up the rights to do so, as workers of servers do. Without a monitor
/// nothing is lost but counters.
pub(crate) fn introduce() {
    if let Ok(_guard) = TALK.take() {
        let _reached = reach();
    }
}

/// Asks the monitor. `None` if there is none.
fn ask(message: Message, fd: Option<BorrowedFd<'_>>) -> Option<(Message, Descriptors)> {
    let _guard = TALK.take().ok()?;
    // A monitor that died since is looked for once more.
    for _ in 0..2 {
        let socket = reach()?;
        if let Some(answer) = exchange(socket, message, fd) {
            return Some(answer);
        }
        if SOCKET.swap(-1, Ordering::Relaxed) == socket {
            hidden::close(socket);
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
        match receive(socket, RecvFlags::CMSG_CLOEXEC) {
            Ok(Some((packet, fds))) if packet.serial == serial => {
                return Some((packet.message, fds));
            }
            // To a request that was given up.
            Ok(Some(_)) | Err(Errno(libc::EINTR)) => {}
            Ok(None) | Err(_) => return None,
        }
    }
}

/// The connection to the monitor, which is made if there is none.
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
        None => {
            let now = u64::try_from(now().as_nanos()).unwrap_or(u64::MAX);
            MISSED.store(now.max(1), Ordering::Relaxed);
        }
    }
    reached
}

fn dial() -> Option<RawFd> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).ok()?;
    let socket = hidden::hide(socket).ok()?;
    let greeted = path()
        .and_then(|path| rustix::net::connect(hidden::borrow(socket), &path).ok())
        .and_then(|()| greet(socket));
    if greeted.is_none() {
        hidden::close(socket);
        return None;
    }
    Some(socket)
}

fn greet(socket: RawFd) -> Option<()> {
    let slab = match Slab::own() {
        Some(slab) => slab,
        None => Slab::create().ok()?,
    };
    let (reply, _) = exchange(socket, Message::Hello, Some(hidden::borrow(slab.file)))?;
    let Message::Welcome { spin_us_max, .. } = reply else {
        return None;
    };
    spin::limit(spin_us_max);
    Some(())
}

/// Where the monitor is.
fn path() -> Option<SocketAddrUnix> {
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

/// A variable of the environment.
pub(crate) fn variable(name: &'static CStr) -> Option<&'static CStr> {
    // SAFETY: the name ends in a zero byte. That nobody changes the environment meanwhile is the program's affair,
    // as with every call of the C library that looks there.
    let value: *const c_char = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: what the C library found ends in a zero byte.
    Some(unsafe { CStr::from_ptr(value) }).filter(|value| !value.is_empty())
}

/// Descriptors that came with a packet; those that are not taken are closed.
#[derive(Debug, Default)]
pub(crate) struct Descriptors([Option<RawFd>; DESCRIPTORS_MAX]);

impl Descriptors {
    fn take(&mut self) -> Option<RawFd> {
        self.0[0].take()
    }

    fn both(mut self) -> Option<[RawFd; 2]> {
        let [Some(first), Some(second)] = self.0 else {
            return None;
        };
        self.0 = [None; DESCRIPTORS_MAX];
        Some([first, second])
    }

    fn push(&mut self, fd: OwnedFd) {
        let fd = hidden::into_raw(fd);
        match self.0.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(fd),
            None => hidden::close_raw(fd),
        }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        for fd in self.0.iter().flatten() {
            hidden::close_raw(*fd);
        }
    }
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
    let socket = hidden::borrow(socket);
    loop {
        match rustix::net::sendmsg(socket, &pieces, &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The next packet; `None` if the other side is gone or says what it must not.
fn receive(socket: RawFd, flags: RecvFlags) -> Outcome<Option<(Packet, Descriptors)>> {
    let mut bytes = [0; PACKET];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut pieces = [IoSliceMut::new(&mut bytes)];
    let received = rustix::net::recvmsg(hidden::borrow(socket), &mut pieces, &mut control, flags)?;
    let mut fds = Descriptors::default();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            for fd in rights {
                fds.push(fd);
            }
        }
    }
    let packet = Packet::decode(bytes.get(..received.bytes).unwrap_or_default());
    Ok(packet.ok().map(|packet| (packet, fds)))
}
