//! Readiness of descriptors (level-triggered epoll) and waking a thread that waits for it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

/// How many events one call returns at most.
const EVENTS_MAX: usize = 256;

/// What a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Nothing but errors.
    None,
    /// The client going away.
    HangUp,
    /// Bytes to read, or the client going away.
    Read,
    /// Room to write.
    Write,
}

impl Interest {
    fn flags(self) -> epoll::EventFlags {
        match self {
            Self::None => epoll::EventFlags::empty(),
            Self::HangUp => epoll::EventFlags::RDHUP,
            Self::Read => epoll::EventFlags::IN | epoll::EventFlags::RDHUP,
            Self::Write => epoll::EventFlags::OUT,
        }
    }
}

/// One descriptor is ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct Readiness {
    /// The number given at registration.
    pub(super) key: u64,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// The client closed its sending half, or everything.
    pub(super) hung_up: bool,
    /// The connection is broken in both directions.
    pub(super) broken: bool,
}

impl Readiness {
    /// What was waited for is there.
    pub(super) const fn of(key: u64, interest: Interest) -> Self {
        Self {
            key,
            readable: matches!(interest, Interest::Read),
            writable: matches!(interest, Interest::Write),
            hung_up: matches!(interest, Interest::HangUp),
            broken: false,
        }
    }

    /// The client is gone. What it sent before may still be there.
    pub(super) const fn end(key: u64) -> Self {
        Self {
            key,
            readable: true,
            writable: true,
            hung_up: true,
            broken: true,
        }
    }
}

/// A set of watched descriptors.
#[derive(Debug)]
pub(super) struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        })
    }

    pub(super) fn add(&self, fd: impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            fd,
            epoll::EventData::new_u64(key),
            interest.flags(),
        )?)
    }

    pub(super) fn modify(&self, fd: impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(
            &self.epoll,
            fd,
            epoll::EventData::new_u64(key),
            interest.flags(),
        )?)
    }

    pub(super) fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits for readiness, at most for `timeout`, and appends it to `ready`.
    pub(super) fn wait(
        &self,
        timeout: Option<Duration>,
        ready: &mut Vec<Readiness>,
    ) -> io::Result<()> {
        // Rounded up to milliseconds, so that a deadline has passed when its wait is over.
        let timeout = timeout.map(|timeout| {
            let nanos = timeout
                .as_nanos()
                .div_ceil(1_000_000)
                .saturating_mul(1_000_000);
            let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
            Timespec::try_from(Duration::from_nanos(nanos)).unwrap_or(Timespec {
                tv_sec: 3600,
                tv_nsec: 0,
            })
        });
        let mut events = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        let (events, _) = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok(events) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        ready.extend(events.iter().map(|event| {
            let flags = event.flags;
            let broken = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            Readiness {
                key: event.data.u64(),
                readable: flags.contains(epoll::EventFlags::IN),
                writable: flags.contains(epoll::EventFlags::OUT),
                hung_up: broken || flags.contains(epoll::EventFlags::RDHUP),
                broken,
            }
        }));
        Ok(())
    }
}

impl AsFd for Poller {
    /// Readable when a descriptor is ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Ends another thread's [`Poller::wait`].
#[derive(Debug)]
pub(super) struct Waker {
    eventfd: OwnedFd,
}

impl Waker {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            eventfd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    pub(super) fn wake(&self) {
        // The only possible failure is a full counter, and then the thread is woken already.
        let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
    }

    /// Forgets the wake-ups up to now.
    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&self.eventfd, &mut [0_u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}
