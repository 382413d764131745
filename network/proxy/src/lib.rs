//! The monitor of user-level sockets, and their data plane.
//!
//! # Purpose
//! Two processes that want to talk without the kernel must find each other, be allowed to, and get memory that both
//! have and nobody else. The [`monitor`] does that: a process that listens shows it the kernel's listening socket; one
//! that connects names an address; each gets one end of a *bell* and the same *memory*. From then on the monitor has no
//! part in it, and may even die.
//!
//! # Parts
//! | | |
//! |---|---|
//! | [`registry`] | who is there, who listens, who may talk to whom; no I/O |
//! | [`rules`] | what a file of rules says |
//! | [`monitor`] | sockets around the registry, on one thread |
//! | [`client`] | the other end of its socket |
//! | [`peer`] | what monitors of two hosts say to each other; no I/O |
//! | [`plane`] | moves the bytes of connections that do not share memory |
//!
//! # Threads, clock, memory
//! No thread is spawned, no clock is read. [`registry::Limits`] bounds what there may be of everything.
//!
//! # Limits
//! Linux. One network namespace. A window joins two hosts; what neither memory nor planes can serve is left to
//! the kernel's TCP.
//!
//! # Example
//! ```
//! use std::net::TcpListener;
//! use millrace_proxy::client::{Client, Connected, accept};
//! use millrace_proxy::monitor::Monitor;
//! use millrace_proxy::registry::Settings;
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
//! let mut monitor = Monitor::bind(&path, Settings::default())?;
//! let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
//! std::thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
//!     let serving = scope.spawn(|| monitor.run(&stop));
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
//!     let theirs = accept(&channel)?.ends;
//!     assert_eq!(ours.link.local, theirs.link.peer);
//!
//!     rustix::io::write(&stop, &1_u64.to_ne_bytes())?;
//!     serving.join().expect("it does not panic")?;
//!     Ok(())
//! })
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod client;
mod error;
pub mod monitor;
pub mod peer;
pub mod plane;
pub mod registry;
pub mod rules;

pub use error::{Error, ErrorKind, Result};
