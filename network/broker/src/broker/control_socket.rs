//! The path at which a broker listens.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, chmod, fchmod, flock, fstat, mkdir, open, unlinkat,
};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use rustix::process::geteuid;

use crate::error::system;
use crate::{Error, ErrorKind, Result};

/// Connections that the kernel queues before the broker accepts them.
const BACKLOG: i32 = 1024;

/// The broker's listening socket and its lock file. Dropping it unlinks the socket.
#[derive(Debug)]
pub(super) struct ControlSocket {
    path: PathBuf,
    /// The lock that keeps a second broker from this path.
    _lock: OwnedFd,
    pub(super) socket: OwnedFd,
}

impl ControlSocket {
    /// Listens at a path in a trusted folder. With `open_to_all` every user that can reach the folder may connect.
    pub(super) fn take(path: &Path, open_to_all: bool) -> Result<Self> {
        let attempted = || format!("listening at {}", path.display());
        check_folder(path.parent().unwrap_or(Path::new("/")))?;
        let lock = lock(path)?;
        match unlinkat(CWD, path, AtFlags::empty()) {
            // A previous broker has exited: this process holds the lock.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(system(attempted())(errno)),
        }
        let name = SocketAddrUnix::new(path).map_err(system(attempted()))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(system(attempted()))?;
        bind(&socket, &name).map_err(system(attempted()))?;
        let mode = if open_to_all { 0o666 } else { 0o600 };
        // Accepted sockets inherit the option.
        set_socket_passcred(&socket, true).map_err(system(attempted()))?;
        // The socket does not listen yet: no process can connect before the mode is set.
        chmod(path, Mode::from_raw_mode(mode)).map_err(system(attempted()))?;
        listen(&socket, BACKLOG).map_err(system(attempted()))?;
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
            socket,
        })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // If the socket remains, `connect` fails with ECONNREFUSED.
        let _ = unlinkat(CWD, &self.path, AtFlags::empty());
    }
}

/// Takes the lock file beside the socket.
fn lock(path: &Path) -> Result<OwnedFd> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let attempted = || format!("locking {}", Path::new(&name).display());
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(&name, flags, Mode::RUSR | Mode::WUSR).map_err(system(attempted()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::AGAIN) => {
            let context = format!("a broker listens at {} already", path.display());
            Err(Error::new(ErrorKind::InUse, context))
        }
        Err(errno) => Err(system(attempted())(errno)),
    }
}

/// Refuses a folder to which users other than its owner, this user or root, can write.
fn check_folder(folder: &Path) -> Result<()> {
    let attempted = || format!("checking the folder {}", folder.display());
    let status = rustix::fs::stat(folder).map_err(system(attempted()))?;
    let owned = status.st_uid == 0 || status.st_uid == geteuid().as_raw();
    let open_to_others = Mode::from_raw_mode(status.st_mode).intersects(Mode::WGRP | Mode::WOTH);
    if owned && !open_to_others {
        return Ok(());
    }
    let context = format!(
        "the folder {} belongs to another user, or its group or others can write to it",
        folder.display()
    );
    Err(Error::new(ErrorKind::Unsafe, context))
}

/// Creates the folder of a broker's socket if it is missing, and restricts it: only its owner may create files in it.
/// With `open_to_all` every user may traverse it.
///
/// # Errors
/// [`ErrorKind::Unsafe`] if the folder is a link, belongs to another user, or is readable or writable by others.
pub fn prepare_folder(folder: &Path, open_to_all: bool) -> Result<()> {
    let attempted = || format!("preparing the folder {}", folder.display());
    let untrusted = |why: &str| {
        Error::new(
            ErrorKind::Unsafe,
            format!("the folder {} {why}", folder.display()),
        )
    };
    match mkdir(folder, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(system(attempted())(errno)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match open(folder, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(Errno::LOOP | Errno::NOTDIR) => {
            return Err(untrusted("is a symbolic link, or not a folder"));
        }
        Err(Errno::ACCESS) => return Err(untrusted("belongs to another user")),
        Err(errno) => return Err(system(attempted())(errno)),
    };
    let status = fstat(&opened).map_err(system(attempted()))?;
    if status.st_uid != geteuid().as_raw() {
        return Err(untrusted("belongs to another user"));
    }
    let others = Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
    if Mode::from_raw_mode(status.st_mode).intersects(others) {
        return Err(untrusted(
            "is readable or writable by its group or others: run `chmod 700` on it",
        ));
    }
    let mode = if open_to_all { 0o711 } else { 0o700 };
    fchmod(&opened, Mode::from_raw_mode(mode)).map_err(system(attempted()))
}
