//! Several planes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};

use millrace_stream::partition::ConnectionName;
use rustix::event::{EventfdFlags, eventfd};

use super::command::{Command, Event};
use super::distant;
use super::plane::{Plane, PlaneSettings};
use crate::{Error, ErrorKind, Result};

/// What a plane that another thread runs is told things by.
#[derive(Debug)]
pub struct PlaneHandle {
    to: To,
    /// How many connections it has.
    load: Arc<AtomicU64>,
}

/// Where a plane is.
#[derive(Debug)]
enum To {
    /// On another thread.
    Here {
        commands: Sender<Command>,
        /// Wakes the plane.
        wake: Arc<OwnedFd>,
    },
    /// In another process.
    There { plane: u16, socket: Arc<OwnedFd> },
}

/// The planes of a host. Plane `n` serves the partitions whose index is `n` modulo their number.
#[derive(Debug)]
pub struct DataPlane {
    planes: Vec<PlaneHandle>,
    from: From,
    /// Readable when there are events.
    bell: Arc<OwnedFd>,
}

/// Where events come from.
#[derive(Debug)]
enum From {
    Here(Receiver<(u16, Event)>),
    There,
}

/// Where planes say what they have to say.
#[derive(Clone, Debug)]
pub(super) struct Voice {
    plane: u16,
    events: Sender<(u16, Event)>,
    bell: Arc<OwnedFd>,
}

impl Voice {
    /// Whether anybody hears it.
    pub(super) fn send(&self, event: Event) -> bool {
        let is_heard = self.events.send((self.plane, event)).is_ok();
        // The count is at its largest: it is readable.
        let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
        is_heard
    }
}

impl DataPlane {
    /// So many planes, each to be run by a thread.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if the kernel refuses their descriptors.
    pub fn new(count: u16, settings: PlaneSettings) -> Result<(Self, Vec<Plane>)> {
        let (tell, events) = channel();
        let bell = Arc::new(bell()?);
        let (mut handles, mut planes) = (Vec::new(), Vec::new());
        for plane in 0..count {
            let voice = Voice {
                plane,
                events: tell.clone(),
                bell: Arc::clone(&bell),
            };
            let (handle, plane) = PlaneHandle::new(settings, voice)?;
            handles.push(handle);
            planes.push(plane);
        }
        let data_plane = Self {
            planes: handles,
            from: From::Here(events),
            bell,
        };
        Ok((data_plane, planes))
    }

    /// The plane that serves a partition.
    ///
    /// # Panics
    /// If there is no plane.
    #[must_use]
    pub fn plane(&self, partition: u16) -> &PlaneHandle {
        &self.planes[usize::from(partition) % self.planes.len()]
    }

    /// All of them.
    #[must_use]
    pub fn planes(&self) -> &[PlaneHandle] {
        &self.planes
    }

    /// The partition for a new connection: of the two that its name gives the one whose plane has fewer connections
    /// (the power of two choices: Mitzenmacher, 2001).
    ///
    /// # Panics
    /// If there are no partitions or planes.
    #[must_use]
    pub fn place(&self, name: &ConnectionName, partitions: u16) -> u16 {
        let first = name.partition(partitions);
        // The same name from the other side gives another number.
        let mirrored = ConnectionName {
            connecting: name.accepting,
            accepting: name.connecting,
        };
        let second = mirrored.partition(partitions);
        if self.plane(second).load() < self.plane(first).load() {
            second
        } else {
            first
        }
    }

    /// So many planes of the process at the other end of a socket, which runs [`serve`](super::serve).
    #[must_use]
    pub fn distant(socket: OwnedFd, count: u16) -> Self {
        let socket = Arc::new(socket);
        let handle = |plane| PlaneHandle {
            to: To::There {
                plane,
                socket: Arc::clone(&socket),
            },
            load: Arc::default(),
        };
        Self {
            planes: (0..count).map(handle).collect(),
            from: From::There,
            bell: socket,
        }
    }

    /// What the planes have to say, in order.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        let (events, _) = self.told();
        events.into_iter().map(|(_, event)| event)
    }

    /// The same, and which plane it is; whether there may be more some time.
    pub(crate) fn told(&self) -> (Vec<(u16, Event)>, bool) {
        match &self.from {
            From::Here(events) => {
                // Quiet first: what is said from now on rings again.
                let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
                (events.try_iter().collect(), true)
            }
            From::There => {
                let (events, is_there) = distant::hear(&*self.bell);
                for (plane, event) in &events {
                    let is_end = matches!(event, Event::Ended { .. } | Event::Refused { .. });
                    if let Some(plane) = self.planes.get(usize::from(*plane)).filter(|_| is_end) {
                        let less = |load: u64| Some(load.saturating_sub(1));
                        let _ = plane.load.fetch_update(Relaxed, Relaxed, less);
                    }
                }
                (events, is_there)
            }
        }
    }

    /// What is readable when there are events, for polls.
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl PlaneHandle {
    /// A plane, and what to tell it things by.
    fn new(settings: PlaneSettings, events: Voice) -> Result<(Self, Plane)> {
        let wake = bell()?;
        let (wake, load) = (Arc::new(wake), Arc::new(AtomicU64::new(0)));
        let (commands, received) = channel();
        let plane = Plane::new(
            settings,
            received,
            events,
            Arc::clone(&wake),
            Arc::clone(&load),
        )?;
        let handle = Self {
            to: To::Here { commands, wake },
            load,
        };
        Ok((handle, plane))
    }

    /// Tells it something. False if the plane is not there any more.
    pub fn tell(&self, command: Command) -> bool {
        match &self.to {
            To::Here { commands, wake } => {
                let is_there = commands.send(command).is_ok();
                // The count is at its largest: it is readable.
                let _ = rustix::io::write(&**wake, &1_u64.to_ne_bytes());
                is_there
            }
            To::There { plane, socket } => {
                let is_one = matches!(command, Command::Open(_) | Command::Loop { .. });
                let is_told = distant::order(&**socket, *plane, &command);
                if is_told && is_one {
                    self.load.fetch_add(1, Relaxed);
                }
                is_told
            }
        }
    }

    /// How many connections it has.
    #[must_use]
    pub fn load(&self) -> u64 {
        // A count alone: nothing is ordered by it.
        self.load.load(Relaxed)
    }
}

fn bell() -> Result<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    eventfd(0, flags)
        .map_err(|errno| Error::new(ErrorKind::System, "an eventfd for a plane").caused_by(errno))
}
