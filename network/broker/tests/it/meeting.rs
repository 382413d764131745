//! Brokers that connect over TCP and a window, and unauthenticated peers at their listener.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Instant;

use millrace_broker::broker::{Broker, PeerSettings};
use millrace_broker::client::Client;
use millrace_broker::forwarder::{ForwarderPool, ForwarderSettings};
use millrace_broker::peer::{Role, Secret, Session};
use millrace_broker::registry::Settings;
use millrace_memory::{Pages, RegionOptions};
use millrace_stream::control::Message;
use millrace_window::Window;
use rustix::event::{EventfdFlags, eventfd};
use serde_json::Value;

/// A broker with a forwarder, until this is dropped.
struct Host {
    folder: tempfile::TempDir,
    stop: OwnedFd,
    threads: Vec<JoinHandle<()>>,
}

impl Host {
    fn new(settings: PeerSettings) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sockets");
        let mut broker = Broker::bind(&path, Settings::default()).expect("nobody listens there");
        let (pool, forwarders) =
            ForwarderPool::new(1, ForwarderSettings::default()).expect("its descriptors");
        broker.attach_forwarders(pool).expect("it is watched");
        broker.enable_peers(settings).expect("the port is free");
        let stop = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
        let stop_fd = stop.try_clone().expect("a descriptor");
        let mut threads = vec![std::thread::spawn(move || {
            broker.run(stop_fd).expect("the epoll waits");
            broker.stop_forwarders();
        })];
        for mut forwarder in forwarders {
            threads.push(std::thread::spawn(move || {
                let start = Instant::now();
                let clock = || u64::try_from(start.elapsed().as_nanos()).expect("centuries");
                forwarder.run(clock).expect("the forwarder works");
            }));
        }
        Self {
            folder,
            stop,
            threads,
        }
    }

    /// Its report on peers.
    fn peers(&self) -> Vec<Value> {
        let path = self.folder.path().join("sockets");
        let mut client = Client::connect(&path).expect("it listens");
        let report = client.report(Message::Status).expect("an answer");
        let report: Value = serde_json::from_str(&report).expect("it is JSON");
        report["peers"].as_array().cloned().expect("a list")
    }

    fn is_connected(&self) -> bool {
        self.peers().iter().any(|peer| peer["alive"] == true)
    }

    /// Waits until its report on a peer satisfies the condition.
    fn until(&self, is_so: impl Fn(&Value) -> bool) {
        while !self.peers().iter().any(&is_so) {
            std::thread::yield_now();
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        rustix::io::write(&self.stop, &1_u64.to_ne_bytes()).expect("it has room");
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "it ends well");
        }
    }
}

/// A port that is not in use.
fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("it has a name")
}

/// Memory for both hosts, and a path to it.
fn window() -> (OwnedFd, PathBuf) {
    let options = RegionOptions {
        pages: Pages::Base,
        node: None,
        locked: false,
    };
    let (_, file) = Window::create(1 << 20, &options).expect("memory");
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    (file, path.into())
}

fn settings(name: &str, secret: u8, window: &Path) -> PeerSettings {
    PeerSettings {
        name: name.to_owned(),
        secret: Secret::new(&[secret; 32]).expect("it is long enough"),
        listen: None,
        peers: Vec::new(),
        windows: vec![(None, window.to_owned())],
        addresses: Vec::new(),
        partitions: 1,
        fill_random: |bytes| {
            let file = std::fs::File::open("/dev/urandom");
            let filled = file.and_then(|mut file| file.read_exact(bytes));
            filled.expect("the kernel draws");
        },
    }
}

fn listening(name: &str, secret: u8, window: &Path, at: SocketAddr) -> PeerSettings {
    PeerSettings {
        listen: Some(at),
        ..settings(name, secret, window)
    }
}

fn dialling(name: &str, secret: u8, window: &Path, at: SocketAddr) -> PeerSettings {
    PeerSettings {
        peers: vec![at],
        ..settings(name, secret, window)
    }
}

#[test]
fn hosts_connect_disconnect_and_reconnect() {
    let (_file, window) = window();
    let at = free();
    let right = Host::new(dialling("right", 7, &window, at));
    right.until(|peer| peer["why"] != "" && peer["alive"] == false);
    for _ in 0..2 {
        let left = Host::new(listening("left", 7, &window, at));
        right.until(|peer| peer["alive"] == true && peer["host"] == "left");
        left.until(|peer| peer["alive"] == true && peer["host"] == "right");
        // Both are this host: each announced address belongs to the other already.
        let has_none = |peer: &Value| peer["addresses"].as_array().is_some_and(Vec::is_empty);
        left.until(has_none);
        right.until(has_none);
        drop(left);
        right.until(|peer| peer["alive"] == false);
    }
}

#[test]
fn hosts_that_connect_to_each_other_keep_one_connection() {
    let (_file, window) = window();
    let (first, second) = (free(), free());
    let left = Host::new(PeerSettings {
        listen: Some(first),
        ..dialling("left", 7, &window, second)
    });
    let right = Host::new(PeerSettings {
        listen: Some(second),
        ..dialling("right", 7, &window, first)
    });
    left.until(|peer| peer["alive"] == true);
    right.until(|peer| peer["alive"] == true);
}

#[test]
fn another_secret_does_not_authenticate() {
    let (_file, window) = window();
    let at = free();
    let left = Host::new(listening("left", 7, &window, at));
    let right = Host::new(dialling("right", 8, &window, at));
    // The left one receives the MAC first and closes the connection.
    right.until(|peer| peer["why"] == "the peer closed the connection");
    assert!(!left.is_connected() && !right.is_connected());
}

#[test]
fn the_same_name_is_refused() {
    let (_file, window) = window();
    let at = free();
    let left = Host::new(listening("one", 7, &window, at));
    let right = Host::new(dialling("one", 7, &window, at));
    right.until(|peer| peer["alive"] == false && peer["why"] != "");
    assert!(!left.is_connected());
}

/// A peer without the secret, or with malformed messages, is disconnected; others are served meanwhile.
#[test]
fn unauthenticated_peers_are_disconnected() {
    let (_file, window) = window();
    let at = free();
    let left = Host::new(listening("left", 7, &window, at));
    // Some send nothing.
    let _silent: Vec<TcpStream> = (0..8)
        .map(|_| TcpStream::connect(at).expect("it listens"))
        .collect();
    for said in [&[0xff; 64][..], &[0; 64], b"GET / HTTP/1.1\r\n\r\n"] {
        let mut unauthenticated = TcpStream::connect(at).expect("it listens");
        unauthenticated.write_all(said).expect("there is room");
        // Its greeting, then the end; or a reset, as not all bytes were read.
        let _ = unauthenticated.read_to_end(&mut Vec::new());
    }
    let right = Host::new(dialling("right", 7, &window, at));
    right.until(|peer| peer["alive"] == true);
    left.until(|peer| peer["alive"] == true);
}

/// Silent unauthenticated peers that reconnect at once keep no peer out.
#[test]
fn silent_unauthenticated_peers_keep_no_peer_out() {
    let (_file, window) = window();
    let at = free();
    let left = Host::new(listening("left", 7, &window, at));
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    let be_silent = || {
        let dial = || TcpStream::connect(at);
        let mut silent: Vec<TcpStream> = (0..24).filter_map(|_| dial().ok()).collect();
        while !is_over.load(relaxed) {
            for stream in &mut silent {
                stream.set_nonblocking(true).expect("an option");
                let is_open = match stream.read(&mut [0; 64]) {
                    Ok(count) => count > 0,
                    Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
                };
                if let Some(again) = (!is_open).then(dial).and_then(Result::ok) {
                    *stream = again;
                }
            }
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(be_silent);
        }
        let right = Host::new(dialling("right", 7, &window, at));
        right.until(|peer| peer["alive"] == true);
        left.until(|peer| peer["alive"] == true);
        is_over.store(true, relaxed);
    });
}

/// An authenticated host that breaks the protocol is disconnected.
#[test]
fn a_peer_that_breaks_the_protocol_is_disconnected() {
    use millrace_broker::peer::PeerMessage;
    let (_file, window) = window();
    let at = free();
    let left = Host::new(listening("left", 7, &window, at));
    let mut stream = TcpStream::connect(at).expect("it listens");
    let secret = Secret::new(&[7; 32]).expect("it is long enough");
    let mut session = Session::new(Role::Initiator, "evil", secret, [9; 32]);
    let mut bytes = [0; 4096];
    stream.write_all(session.output()).expect("there is room");
    session.sent(usize::MAX);
    while session.peer().is_none() {
        let count = stream.read(&mut bytes).expect("it greets");
        let heard = session.receive(&bytes[..count], &mut Vec::new());
        heard.expect("it has the secret");
    }
    // Out of order: this host's NAMES are missing.
    let refuse = PeerMessage::Refuse { token: 1, errno: 5 };
    session.send(&refuse).expect("there is room");
    stream.write_all(session.output()).expect("there is room");
    let _ = stream.read_to_end(&mut Vec::new());
    assert!(!left.is_connected());
}
