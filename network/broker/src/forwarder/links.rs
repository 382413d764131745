//! The partitions of a forwarder.

use std::os::fd::OwnedFd;

use millrace_stream::partition::{Partition, State};
use millrace_window::Window;

use super::command::{Event, Join};
use super::flows::Flows;
use crate::{Error, ErrorKind, Result};

/// A partition with its window and wake-up fd.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) number: u32,
    pub(super) partition: Partition,
    window: Window,
    pub(super) wakeup: Option<OwnedFd>,
    is_joined: bool,
    is_lost: bool,
}

impl Link {
    pub(super) fn new(join: Join) -> Result<Self> {
        let Join {
            link,
            window,
            geometry,
            index,
            side,
            settings,
            wakeup,
        } = join;
        let partition = Partition::new(&window, geometry, index, side, settings);
        let partition = partition.map_err(|error| {
            Error::new(ErrorKind::Refused, "the window has no such partition").caused_by(error)
        })?;
        Ok(Self {
            number: link,
            partition,
            window,
            wakeup,
            is_joined: false,
            is_lost: false,
        })
    }

    /// Polls the partition. Returns whether anything was moved, the latest time of the next poll, and a new event.
    pub(super) fn poll(&mut self, now_ns: u64, flows: &mut Flows) -> (bool, u64, Option<Event>) {
        let progress = self.partition.poll(now_ns, flows);
        if progress.notify && self.window.has_doorbell() {
            // If the doorbell fails, the peer polls by itself or its heartbeat times out.
            let _ = self.window.ring();
        }
        let event = match progress.state {
            State::Ready if !self.is_joined => {
                self.is_joined = true;
                Some(Event::Joined { link: self.number })
            }
            State::Lost(loss) if !self.is_lost => {
                self.is_lost = true;
                Some(Event::Lost {
                    link: self.number,
                    loss,
                })
            }
            _ => None,
        };
        let is_busy = progress.has_more || progress.received > 0 || progress.sent > 0;
        (is_busy || event.is_some(), progress.due_ns, event)
    }

    /// Whether a notification reliably ends a sleep.
    pub(super) fn can_sleep(&mut self) -> bool {
        self.wakeup.is_some() && self.partition.can_sleep()
    }

    pub(super) const fn is_lost(&self) -> bool {
        self.is_lost
    }
}
