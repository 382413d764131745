//! Where connections come from. Kernel sockets are the first kind, not the only possible one.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::buffer::spare_capacity;
use rustix::net::SendFlags;

use super::Interest;
#[cfg(feature = "sockets")]
use super::windows::WindowTotals;

/// A stream of bytes to and from a client. No method blocks.
///
/// There are two kinds. A kernel socket's descriptor polls the way the transport is; such a transport implements
/// the first four methods. The descriptor of a transport with a *wake-up fd* reports only that its client has sent a
/// wake-up, or is gone; a client sends one wake-up after each [`Transport::arm_wakeup`] that returned false.
/// [`Transport::is_ready`] says whether such a transport is ready.
pub trait Transport: Send + Debug {
    /// Appends received bytes to `buffer` without growing it and returns how many: 0 if the client
    /// will send no more.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is nothing now; anything else ends the connection.
    fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize>;

    /// Sends a prefix of `bytes` and returns its length.
    ///
    /// # Errors
    /// As [`Transport::read`].
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// A descriptor that polls as readable, writable and hung up the way the transport is; or its wake-up fd, which
    /// is readable when the client has sent a wake-up and hung up when the client is gone.
    fn readiness(&self) -> BorrowedFd<'_>;

    /// The other end, in words.
    fn peer(&self) -> String;

    /// Whether the transport is ready for `interest`, without a system call. `None` if it has no wake-up fd: only
    /// the kernel knows then.
    fn is_ready(&self, interest: Interest) -> Option<bool> {
        let _ = interest;
        None
    }

    /// Asks the client for a wake-up once the transport is ready for `interest`. True if it is ready already: then
    /// no wake-up may come.
    fn arm_wakeup(&mut self, interest: Interest) -> bool {
        let _ = interest;
        false
    }

    /// Reads the wake-ups that have come from the wake-up fd. True if the client is gone; what it sent before can
    /// still be read.
    fn drain_wakeup(&mut self) -> bool {
        false
    }
}

/// A source of transports. No method blocks.
pub trait Listener: Send + Debug {
    /// The next client.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is none now.
    fn accept(&mut self) -> io::Result<Box<dyn Transport>>;

    /// A descriptor that polls as readable when there is a client.
    fn readiness(&self) -> BorrowedFd<'_>;

    /// Where it listens, in words.
    fn address(&self) -> String;
}

/// A listener for TCP through the kernel.
#[derive(Debug)]
pub struct TcpListener {
    socket: std::net::TcpListener,
    address: SocketAddr,
    #[cfg(feature = "sockets")]
    totals: Option<std::sync::Arc<WindowTotals>>,
}

impl TcpListener {
    /// Listens on `address`; port 0 takes any that is free.
    ///
    /// # Errors
    /// What the system says.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = std::net::TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(Self {
            socket,
            address,
            #[cfg(feature = "sockets")]
            totals: None,
        })
    }

    /// Another handle of the socket. From now on its clients are counted as those that a window could have served.
    ///
    /// # Errors
    /// What the system says.
    #[cfg(feature = "sockets")]
    pub(super) fn announced(
        &mut self,
        totals: &std::sync::Arc<WindowTotals>,
    ) -> io::Result<std::os::fd::OwnedFd> {
        self.totals = Some(std::sync::Arc::clone(totals));
        self.socket.as_fd().try_clone_to_owned()
    }

    /// The address it is bound to, with the port that the kernel chose for port 0.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.address
    }
}

impl Listener for TcpListener {
    fn accept(&mut self) -> io::Result<Box<dyn Transport>> {
        let (socket, peer) = self.socket.accept()?;
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        #[cfg(feature = "sockets")]
        if let Some(totals) = &self.totals {
            totals.count_kernel_accept();
        }
        Ok(Box::new(Socket {
            socket,
            peer: peer.to_string(),
        }))
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn address(&self) -> String {
        self.address.to_string()
    }
}

/// A local socket, for clients of the same user. Its file is removed on drop.
#[derive(Debug)]
pub struct UnixListener {
    socket: std::os::unix::net::UnixListener,
    path: PathBuf,
}

impl UnixListener {
    /// Listens on `path`, which only the owner may open. A file left there by a process that died is
    /// replaced.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::AddrInUse`] if a process accepts connections on `path`.
    pub fn bind(path: &Path) -> io::Result<Self> {
        match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)?;
            }
            Err(_) => {}
        }
        let socket = std::os::unix::net::UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            path: path.to_owned(),
        })
    }
}

impl Listener for UnixListener {
    fn accept(&mut self) -> io::Result<Box<dyn Transport>> {
        let (socket, _) = self.socket.accept()?;
        socket.set_nonblocking(true)?;
        Ok(Box::new(Socket {
            socket,
            peer: "anonymous unix socket".to_owned(),
        }))
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn address(&self) -> String {
        self.path.display().to_string()
    }
}

impl Drop for UnixListener {
    fn drop(&mut self) {
        // Another process may have replaced the file; then removing fails or removes a name that is
        // not in use, and a destructor cannot report it.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A connected kernel socket.
#[derive(Debug)]
struct Socket<T> {
    socket: T,
    peer: String,
}

impl<T: AsFd + Send + Debug> Transport for Socket<T> {
    fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        Ok(rustix::io::read(&self.socket, spare_capacity(buffer))?)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL)?)
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }
}
