//! Where connections come from. Kernel sockets are the first kind, not the only possible one.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::net::SendFlags;

use super::Interest;
use super::windows::WindowTotals;

/// A stream of bytes to and from a client. No method blocks.
///
/// There are two kinds. A kernel socket's descriptor polls the way the transport is; such a transport implements
/// the first four methods. The descriptor of one with a *bell* says only that its client has rung, or is gone; and a
/// client rings once for each time that [`Transport::arm`] said so before. Whether it is ready is found by looking.
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

    /// A descriptor that polls as readable, writable and hung up the way the transport is; or its bell, which is
    /// readable when the client has rung and hung up when it is gone.
    fn readiness(&self) -> BorrowedFd<'_>;

    /// The other end, in words.
    fn peer(&self) -> String;

    /// Whether that is there which the interest is in, without asking the kernel. `None` if the kernel is to be
    /// asked, always: there is no bell.
    fn look(&self, interest: Interest) -> Option<bool> {
        let _ = interest;
        None
    }

    /// Has the client ring when that is there. True if it is there already: it may not ring then.
    fn arm(&mut self, interest: Interest) -> bool {
        let _ = interest;
        false
    }

    /// The bell has rung. True if the client is gone; what it sent before can still be read.
    fn answer(&mut self) -> bool {
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
    totals: Option<Arc<WindowTotals>>,
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
            totals: None,
        })
    }

    /// Another handle of the socket. From now on its clients are counted as those that a window could have served.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn announced(&mut self, totals: &Arc<WindowTotals>) -> io::Result<OwnedFd> {
        self.totals = Some(Arc::clone(totals));
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
