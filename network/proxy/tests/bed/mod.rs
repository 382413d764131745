//! A monitor that runs on a thread, and what processes do with it.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::thread::JoinHandle;

use millrace_proxy::client::{Client, Connected, Ends};
use millrace_proxy::monitor::Monitor;
use millrace_proxy::registry::Settings;
use millrace_stream::{Address, Geometry, Lane, Side};
use millrace_window::Window;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// A monitor that runs until this is dropped.
pub(crate) struct Running {
    folder: tempfile::TempDir,
    stop: OwnedFd,
    thread: Option<JoinHandle<Monitor>>,
}

impl Running {
    pub(crate) fn new(settings: Settings) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sockets");
        let mut monitor = Monitor::bind(&path, settings).expect("nobody listens there");
        let stop = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
        let told = rustix::io::fcntl_dupfd_cloexec(&stop, 0).expect("a descriptor");
        let thread = std::thread::spawn(move || {
            monitor.run(told).expect("the epoll waits");
            monitor
        });
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

    /// The monitor after it has stopped.
    pub(crate) fn end(mut self) -> Monitor {
        self.halt().expect("it was running")
    }

    fn halt(&mut self) -> Option<Monitor> {
        let thread = self.thread.take()?;
        rustix::io::write(&self.stop, &1_u64.to_ne_bytes()).expect("it has room");
        Some(thread.join().expect("the monitor does not panic"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.halt());
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

pub(crate) fn user(connected: Connected) -> Ends {
    match connected {
        Connected::User(ends) => ends,
        other => panic!("not a connection at user level: {other:?}"),
    }
}

/// Waits until nobody has the other end.
pub(crate) fn wait_for_end(bell: impl AsFd) {
    let mut polled = [PollFd::new(&bell, PollFlags::empty())];
    poll(&mut polled, None).expect("a poll");
    assert!(polled[0].revents().contains(PollFlags::HUP));
}

pub(crate) fn lane(ends: &Ends, side: Side) -> Lane {
    let window = Window::attach(&ends.memory).expect("it is sealed");
    let geometry = Geometry {
        ring_lines: ends.link.ring_lines,
    };
    assert_eq!(window.size(), geometry.size());
    Lane::new(&window, geometry, side).expect("the window has its size")
}
