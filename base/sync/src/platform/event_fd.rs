//! Sleeping on an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::{Native, Parker, Platform, Site};

/// [`Native`], but for sleeping on an eventfd: for a thread that waits for other descriptors as well.
#[derive(Clone, Copy, Debug)]
pub struct NativeEventFd;

// SAFETY: it uses the words and fences of `Native`, which satisfy the contract of `Platform`.
unsafe impl Platform for NativeEventFd {
    type Word = AtomicU64;
    type Parker = EventFd;

    #[inline]
    fn fence(site: Site) {
        Native::fence(site);
    }

    #[inline]
    fn relax(round: u32) {
        Native::relax(round);
    }
}

/// Sleeps on an eventfd. One thread at a time may take tickets and sleep ([`Parker::SLEEPERS_MAX`]): taking a
/// ticket empties the eventfd, and with it would go another one's waking.
#[derive(Debug)]
pub struct EventFd {
    descriptor: OwnedFd,
}

impl AsFd for EventFd {
    /// The descriptor to poll: readable once there was a waking after the last ticket.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Parker for EventFd {
    const SLEEPERS_MAX: u64 = 1;

    /// # Errors
    /// `EMFILE` or `ENFILE` if the process or the machine has no descriptor left, `ENOMEM`.
    fn try_new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            descriptor: eventfd(0, flags)?,
        })
    }

    fn ticket(&self) -> u32 {
        let mut count = [0; 8];
        // It fails if there was no waking, which is as good.
        let _ = rustix::io::read(&self.descriptor, &mut count);
        0
    }

    fn sleep(&self, _: u32) {
        let mut watched = [PollFd::new(&self.descriptor, PollFlags::IN)];
        // Whatever the reason for its return, the caller looks again.
        let _ = poll(&mut watched, None);
    }

    fn wake(&self) {
        // The write fails if the counter would overflow, after 2^64 wake-ups: the eventfd is readable then.
        let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
    }
}
