//! A broker of user-level sockets that does no more than join programs that listen and programs that connect.

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use millrace_stream::control::{Link, Message, Mode, PACKET, Packet};
use millrace_stream::slab::{HEADER_SIZE, Totals};
use millrace_stream::{Address, Geometry};
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, SealFlags, fchmod, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    listen, recvmsg, sendmsg, socket_with, socketpair,
};

/// The broker; it dies when this is dropped.
#[derive(Debug)]
pub(crate) struct Broker {
    /// Dropped: the thread ends.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    slabs: Arc<Mutex<Vec<OwnedFd>>>,
}

#[derive(Debug)]
struct Registry {
    processes: Vec<OwnedFd>,
    channels: HashMap<SocketAddr, OwnedFd>,
    slabs: Arc<Mutex<Vec<OwnedFd>>>,
    port: u16,
}

impl Broker {
    /// Listens at `path`, also if another broker did before.
    pub(crate) fn start(path: &Path) -> Self {
        // There is one only if another broker was here.
        let _ = std::fs::remove_file(path);
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
        bind(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("the folder is ours");
        listen(&socket, 100).expect("it is bound");
        let (stop, stopped) = UnixStream::pair().expect("a pair");
        let slabs = Arc::default();
        let mut registry = Registry {
            processes: Vec::new(),
            channels: HashMap::new(),
            slabs: Arc::clone(&slabs),
            port: 50_000,
        };
        Self {
            stop: Some(stop),
            thread: Some(std::thread::spawn(move || registry.run(&socket, &stopped))),
            slabs,
        }
    }

    /// What the process has counted that came first.
    pub(crate) fn totals(&self) -> Totals {
        let slabs = self.slabs.lock().expect("no panics");
        let mut header = vec![0; HEADER_SIZE];
        rustix::io::pread(&slabs[0], &mut header, 0).expect("a slab is a file");
        Totals::read(&header).expect("it is a slab")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of it has failed the test already, or is one beside the point.
            let _ = thread.join();
        }
    }
}

impl Registry {
    fn run(&mut self, socket: &OwnedFd, stopped: &UnixStream) {
        loop {
            let mut watched = vec![
                PollFd::new(stopped, PollFlags::IN),
                PollFd::new(socket, PollFlags::IN),
            ];
            watched.extend(self.processes.iter().map(|p| PollFd::new(p, PollFlags::IN)));
            poll(&mut watched, None).expect("the descriptors are ours");
            let ready: Vec<bool> = watched.iter().map(|w| !w.revents().is_empty()).collect();
            if ready[0] {
                return;
            }
            for index in (0..self.processes.len()).rev().filter(|i| ready[i + 2]) {
                self.serve(index);
            }
            if ready[1] {
                let process = accept_with(socket, SocketFlags::CLOEXEC).expect("one is there");
                self.processes.push(process);
            }
        }
    }

    fn serve(&mut self, index: usize) {
        let Some((packet, mut descriptors)) = receive(self.processes[index].as_fd()) else {
            self.processes.remove(index);
            return;
        };
        let (message, along) = match packet.message {
            Message::Hello => {
                let mut slabs = self.slabs.lock().expect("no panics");
                slabs.extend(descriptors.pop());
                let ring_lines = Geometry::DEFAULT.ring_lines;
                let welcome = Message::Welcome {
                    ring_lines,
                    spin_us_max: 50,
                };
                (welcome, Vec::new())
            }
            Message::Listen { .. } => {
                let socket = TcpListener::from(descriptors.pop().expect("it is along"));
                let (ours, theirs) = pair();
                let address = socket.local_addr().expect("it listens");
                self.channels.insert(address, ours);
                (Message::Listening, vec![theirs])
            }
            Message::Connect { peer, .. } => self.connect(peer),
            other => panic!("{other:?} is no request"),
        };
        let reply = Packet { message, ..packet };
        // The program that asked may have ended.
        let _ = send(self.processes[index].as_fd(), &reply, &along);
    }

    fn connect(&mut self, peer: Address) -> (Message, Vec<OwnedFd>) {
        let Some(channel) = self.channels.get(&SocketAddr::from(peer)) else {
            return (Message::Kernel, Vec::new());
        };
        self.port += 1;
        let (ours, theirs) = pair();
        let memory = memory();
        let link = Link {
            mode: Mode::Direct,
            ring_lines: Geometry::DEFAULT.ring_lines,
            local: Address::new(peer.ip(), self.port),
            peer,
        };
        let message = Message::Incoming {
            link: Link {
                local: peer,
                peer: link.local,
                ..link
            },
            user: 0,
            process: 0,
        };
        let copy = memory.try_clone().expect("a descriptor");
        let incoming = Packet { serial: 0, message };
        if send(channel.as_fd(), &incoming, &[theirs, copy]).is_err() {
            self.channels.remove(&SocketAddr::from(peer));
            return (Message::Kernel, Vec::new());
        }
        (Message::Connected(link), vec![ours, memory])
    }
}

fn pair() -> (OwnedFd, OwnedFd) {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    socketpair(family, kind, SocketFlags::CLOEXEC, None).expect("a pair")
}

fn memory() -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = memfd_create("connection", flags).expect("memory");
    fchmod(&memory, 0o600.into()).expect("it is ours");
    ftruncate(&memory, Geometry::DEFAULT.size() as u64).expect("it is ours");
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&memory, seals).expect("it may be sealed");
    memory
}

fn send(socket: BorrowedFd<'_>, packet: &Packet, along: &[OwnedFd]) -> rustix::io::Result<usize> {
    let descriptors: Vec<_> = along.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    }
    let bytes = packet.encode();
    let flags = SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, flags)
}

/// `None`: the process is gone.
fn receive(socket: BorrowedFd<'_>) -> Option<(Packet, Vec<OwnedFd>)> {
    let mut bytes = [0; PACKET];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut slices, &mut ancillary, flags).ok()?;
    if received.bytes == 0 {
        return None;
    }
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let packet = Packet::decode(&bytes).expect("processes of tests speak the protocol");
    Some((packet, descriptors))
}
