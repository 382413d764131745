//! A pool of forwarders.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};

use millrace_stream::partition::ConnectionName;
use rustix::event::{EventfdFlags, eventfd};

use super::command::{Command, Event};
use super::forwarder::{Forwarder, ForwarderSettings};
use super::ipc;
use crate::{Error, ErrorKind, Result};

/// A handle that sends commands to one forwarder.
#[derive(Debug)]
pub struct ForwarderHandle {
    to: Target,
    /// The count of the forwarder's open connections.
    load: Arc<AtomicU64>,
}

/// The location of a forwarder.
#[derive(Debug)]
enum Target {
    /// On another thread of this process.
    Local {
        commands: Sender<Command>,
        /// The eventfd that wakes the forwarder.
        wake: Arc<OwnedFd>,
    },
    /// In another process, at the other end of the socket.
    Process {
        forwarder: u16,
        socket: Arc<OwnedFd>,
    },
}

/// The forwarders of a host. Forwarder `n` serves the partitions whose index is `n` modulo their count.
#[derive(Debug)]
pub struct ForwarderPool {
    forwarders: Vec<ForwarderHandle>,
    from: Source,
    /// The fd that is readable when events are pending.
    wakeup: Arc<OwnedFd>,
}

/// The source of events.
#[derive(Debug)]
enum Source {
    Local(Receiver<(u16, Event)>),
    Process,
}

/// A forwarder's sender of events.
#[derive(Clone, Debug)]
pub(super) struct EventSender {
    forwarder: u16,
    events: Sender<(u16, Event)>,
    wakeup: Arc<OwnedFd>,
}

impl EventSender {
    /// Sends an event. False if the receiver was dropped.
    pub(super) fn send(&self, event: Event) -> bool {
        let is_received = self.events.send((self.forwarder, event)).is_ok();
        // A failed write means that the counter is at its maximum, and readable.
        let _ = rustix::io::write(&*self.wakeup, &1_u64.to_ne_bytes());
        is_received
    }
}

impl ForwarderPool {
    /// A pool of `count` forwarders, each of which a thread must run.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if the kernel refuses their descriptors.
    pub fn new(count: u16, settings: ForwarderSettings) -> Result<(Self, Vec<Forwarder>)> {
        let (sender, events) = channel();
        let wakeup = Arc::new(eventfd_nonblocking()?);
        let (mut handles, mut forwarders) = (Vec::new(), Vec::new());
        for forwarder in 0..count {
            let events = EventSender {
                forwarder,
                events: sender.clone(),
                wakeup: Arc::clone(&wakeup),
            };
            let (handle, forwarder) = ForwarderHandle::new(settings, events)?;
            handles.push(handle);
            forwarders.push(forwarder);
        }
        let pool = Self {
            forwarders: handles,
            from: Source::Local(events),
            wakeup,
        };
        Ok((pool, forwarders))
    }

    /// The forwarder that serves a partition.
    ///
    /// # Panics
    /// If the pool has no forwarder.
    #[must_use]
    pub fn forwarder(&self, partition: u16) -> &ForwarderHandle {
        &self.forwarders[usize::from(partition) % self.forwarders.len()]
    }

    /// The handles of all forwarders, by their index.
    #[must_use]
    pub fn forwarders(&self) -> &[ForwarderHandle] {
        &self.forwarders
    }

    /// The partition for a new connection: of two candidates from its name, the one whose forwarder has fewer
    /// connections (the power of two choices: Mitzenmacher, 2001).
    ///
    /// # Panics
    /// If there are no partitions or forwarders.
    #[must_use]
    pub fn choose_partition(&self, name: &ConnectionName, partitions: u16) -> u16 {
        let first = name.partition(partitions);
        // The mirrored name hashes to another number.
        let mirrored = ConnectionName {
            connecting: name.accepting,
            accepting: name.connecting,
        };
        let second = mirrored.partition(partitions);
        if self.forwarder(second).load() < self.forwarder(first).load() {
            second
        } else {
            first
        }
    }

    /// A pool of `count` forwarders in the process at the other end of `socket`, which runs [`serve`](super::serve).
    #[must_use]
    pub fn ipc(socket: OwnedFd, count: u16) -> Self {
        let socket = Arc::new(socket);
        let handle = |forwarder| ForwarderHandle {
            to: Target::Process {
                forwarder,
                socket: Arc::clone(&socket),
            },
            load: Arc::default(),
        };
        Self {
            forwarders: (0..count).map(handle).collect(),
            from: Source::Process,
            wakeup: socket,
        }
    }

    /// The pending events of all forwarders, in order.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        let (events, _) = self.take_events();
        events.into_iter().map(|(_, event)| event)
    }

    /// The pending events with their forwarder's index. The flag is false if the forwarder process has exited.
    pub(crate) fn take_events(&self) -> (Vec<(u16, Event)>, bool) {
        match &self.from {
            Source::Local(events) => {
                // Drained first: a later event makes it readable again.
                let _ = rustix::io::read(&*self.wakeup, &mut [0; 8]);
                (events.try_iter().collect(), true)
            }
            Source::Process => {
                let (events, is_there) = ipc::receive_events(&*self.wakeup);
                for (forwarder, event) in &events {
                    let is_end = matches!(event, Event::Ended { .. } | Event::Refused { .. });
                    if let Some(forwarder) = self
                        .forwarders
                        .get(usize::from(*forwarder))
                        .filter(|_| is_end)
                    {
                        let less = |load: u64| Some(load.saturating_sub(1));
                        let _ = forwarder.load.fetch_update(Relaxed, Relaxed, less);
                    }
                }
                (events, is_there)
            }
        }
    }

    /// The fd that is readable when events are pending.
    #[must_use]
    pub fn wakeup_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }
}

impl ForwarderHandle {
    /// A forwarder and its handle.
    fn new(settings: ForwarderSettings, events: EventSender) -> Result<(Self, Forwarder)> {
        let wake = eventfd_nonblocking()?;
        let (wake, load) = (Arc::new(wake), Arc::new(AtomicU64::new(0)));
        let (commands, received) = channel();
        let forwarder = Forwarder::new(
            settings,
            received,
            events,
            Arc::clone(&wake),
            Arc::clone(&load),
        )?;
        let handle = Self {
            to: Target::Local { commands, wake },
            load,
        };
        Ok((handle, forwarder))
    }

    /// Sends a command. False if the forwarder has exited.
    pub fn send(&self, command: Command) -> bool {
        match &self.to {
            Target::Local { commands, wake } => {
                let is_there = commands.send(command).is_ok();
                // A failed write means that the counter is at its maximum, and readable.
                let _ = rustix::io::write(&**wake, &1_u64.to_ne_bytes());
                is_there
            }
            Target::Process { forwarder, socket } => {
                let is_one = matches!(command, Command::Open(_) | Command::Loop { .. });
                let is_sent = ipc::send_command(&**socket, *forwarder, &command);
                if is_sent && is_one {
                    self.load.fetch_add(1, Relaxed);
                }
                is_sent
            }
        }
    }

    /// The count of the forwarder's open connections.
    #[must_use]
    pub fn load(&self) -> u64 {
        // A statistic: it orders nothing.
        self.load.load(Relaxed)
    }
}

fn eventfd_nonblocking() -> Result<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    eventfd(0, flags).map_err(|errno| {
        Error::new(ErrorKind::System, "an eventfd for a forwarder").caused_by(errno)
    })
}
