//! Several planes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use millrace_stream::partition::ConnectionName;
use rustix::event::{EventfdFlags, eventfd};

use super::command::{Command, Event};
use super::plane::{Plane, PlaneSettings};
use crate::{Error, ErrorKind, Result};

/// What a plane that another thread runs is told things by.
#[derive(Debug)]
pub struct PlaneHandle {
    commands: Sender<Command>,
    /// Wakes the plane.
    wake: Arc<OwnedFd>,
    /// How many connections it has.
    load: Arc<AtomicU64>,
}

/// The planes of a host. Plane `n` serves the partitions whose index is `n` modulo their number.
#[derive(Debug)]
pub struct DataPlane {
    planes: Vec<PlaneHandle>,
    events: Receiver<Event>,
    /// Readable when there are events.
    bell: Arc<OwnedFd>,
}

/// Where planes say what they have to say.
#[derive(Clone, Debug)]
pub(super) struct Voice {
    events: Sender<Event>,
    bell: Arc<OwnedFd>,
}

impl Voice {
    /// Whether anybody hears it.
    pub(super) fn send(&self, event: Event) -> bool {
        let is_heard = self.events.send(event).is_ok();
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
        let voice = Voice {
            events: tell,
            bell: Arc::clone(&bell),
        };
        let (mut handles, mut planes) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (handle, plane) = PlaneHandle::new(settings, voice.clone())?;
            handles.push(handle);
            planes.push(plane);
        }
        let data_plane = Self {
            planes: handles,
            events,
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

    /// What the planes have to say, in order.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        // Quiet first: what is said from now on rings again.
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        self.events.try_iter()
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
            commands,
            wake,
            load,
        };
        Ok((handle, plane))
    }

    /// Tells it something. False if the plane is not there any more.
    pub fn tell(&self, command: Command) -> bool {
        let is_there = self.commands.send(command).is_ok();
        // The count is at its largest: it is readable.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        is_there
    }

    /// How many connections it has.
    #[must_use]
    pub fn load(&self) -> u64 {
        // A count alone: nothing is ordered by it.
        self.load.load(Ordering::Relaxed)
    }
}

fn bell() -> Result<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    eventfd(0, flags)
        .map_err(|errno| Error::new(ErrorKind::System, "an eventfd for a plane").caused_by(errno))
}
