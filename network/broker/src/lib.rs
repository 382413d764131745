//! The broker of user-level sockets, and the forwarder of their bytes.
//!
//! # Purpose
//! Two processes that communicate without the kernel must find each other, be authorized, and get memory that they
//! alone share. The [`broker`] provides that: a listening process passes the kernel's listening socket; a connecting
//! process names an address; each gets one end of a *wake-up socket pair* and the same *memory file*. The connection
//! does not depend on the broker afterwards: the broker may exit.
//!
//! # Parts
//! | | |
//! |---|---|
//! | [`registry`] | processes, listeners, and the decision on each connection; no I/O |
//! | [`rules`] | the parser of a rules file |
//! | [`broker`] | sockets around the registry, on one thread |
//! | [`client`] | a client of the broker's control socket |
//! | [`peer`] | the protocol between the brokers of two hosts; no I/O |
//! | [`forwarder`] | moves the bytes of connections that do not share memory |
//!
//! # Threads, clock, memory
//! The crate spawns no thread and reads no clock. [`registry::Limits`] bounds all that a broker keeps.
//!
//! # Limits
//! Linux. One network namespace. A window joins two hosts. Connections that neither memory nor forwarders can serve are
//! left to the kernel's TCP.
//!
//! # Example
//! ```
//! use std::net::TcpListener;
//! use millrace_broker::client::{Client, Connected, accept};
//! use millrace_broker::broker::Broker;
//! use millrace_broker::registry::Settings;
//! use rustix::event::{EventfdFlags, eventfd};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let slab = || -> Result<std::os::fd::OwnedFd, rustix::io::Errno> {
//! #     let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
//! #     let file = rustix::fs::memfd_create(c"slab", flags)?;
//! #     rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::SHRINK)?;
//! #     Ok(file)
//! # };
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("sockets");
//! let mut broker = Broker::bind(&path, Settings::default())?;
//! let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
//! std::thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
//!     let serving = scope.spawn(|| broker.run(&stop));
//!
//!     let tcp = TcpListener::bind("127.0.0.1:0")?;
//!     let mut server = Client::connect(&path)?;
//!     server.hello(slab()?)?;
//!     let channel = server.listen(&tcp, 128)?.expect("no rule leaves it to the kernel");
//!
//!     let mut program = Client::connect(&path)?;
//!     program.hello(slab()?)?;
//!     let any = "0.0.0.0:0".parse::<std::net::SocketAddr>()?.into();
//!     let connected = program.open(any, tcp.local_addr()?.into(), false)?;
//!     let Connected::User(ours) = connected else { panic!("both are the same user") };
//!     let theirs = accept(&channel)?.fds;
//!     assert_eq!(ours.link.local, theirs.link.peer);
//!
//!     rustix::io::write(&stop, &1_u64.to_ne_bytes())?;
//!     serving.join().expect("the broker does not panic")?;
//!     Ok(())
//! })
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod broker;
pub mod client;
mod error;
pub mod forwarder;
pub mod peer;
pub mod registry;
pub mod rules;

pub use error::{Error, ErrorKind, Result};
