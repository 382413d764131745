//! A monitor that runs on a thread, and what processes do with it.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread::JoinHandle;

use millrace_proxy::client::{Client, Connected, Ends};
use millrace_proxy::monitor::Monitor;
use millrace_proxy::registry::Settings;
use millrace_stream::Address;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// A monitor that runs until this is dropped.
pub(crate) struct Running {
    folder: tempfile::TempDir,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn new(settings: Settings) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sockets");
        let mut monitor = Monitor::bind(&path, settings).expect("nobody listens there");
        let stop = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
        let told = rustix::io::fcntl_dupfd_cloexec(&stop, 0).expect("a descriptor");
        let thread = std::thread::spawn(move || monitor.run(told).expect("the epoll waits"));
        let thread = Some(thread);
        Self {
            folder,
            stop,
            thread,
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("sockets")
    }

    /// A process that has said HELLO.
    pub(crate) fn process(&self) -> Client {
        let mut client = Client::connect(&self.path()).expect("it listens");
        client.hello(slab()).expect("it lets us in");
        client
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        rustix::io::write(&self.stop, &1_u64.to_ne_bytes()).expect("it has room");
        let ended = self.thread.take().map(JoinHandle::join);
        // Whatever has failed before is what is told.
        assert!(
            std::thread::panicking() || ended.is_some_and(|ended| ended.is_ok()),
            "the monitor does not panic"
        );
    }
}

/// A file that may pass for a slab.
pub(crate) fn slab() -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create(c"slab", flags).expect("memory");
    ftruncate(&file, 16 << 20).expect("it is sparse");
    fcntl_add_seals(&file, SealFlags::SHRINK).expect("it may be sealed");
    file
}

pub(crate) fn address(text: &str) -> Address {
    let parsed: SocketAddr = text.parse().expect("an address");
    parsed.into()
}

/// The name of a socket that has none yet.
pub(crate) fn any() -> Address {
    address("0.0.0.0:0")
}

pub(crate) fn local(listener: &TcpListener) -> Address {
    listener.local_addr().expect("it has a name").into()
}

pub(crate) fn listener(at: &str) -> TcpListener {
    TcpListener::bind(at).expect("a port of this host")
}

/// Has a process listen; the channel on which connections come.
pub(crate) fn listen(server: &mut Client, tcp: &TcpListener, backlog: u32) -> OwnedFd {
    let channel = server.listen(tcp, backlog).expect("served");
    channel.expect("at user level")
}

/// Asks for a connection, and waits for the answer.
pub(crate) fn connect(program: &mut Client, peer: Address) -> Connected {
    program.open(any(), peer, false).expect("an answer")
}

pub(crate) fn user(connected: Connected) -> Ends {
    match connected {
        Connected::User(ends) => ends,
        other => panic!("not a connection at user level: {other:?}"),
    }
}
