//! The partitions of a plane.

use std::os::fd::OwnedFd;

use millrace_stream::partition::{Partition, State};
use millrace_window::Window;

use super::command::{Event, Join};
use super::flows::Flows;
use crate::{Error, ErrorKind, Result};

/// A partition with its window and bell.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) number: u32,
    pub(super) partition: Partition,
    window: Window,
    pub(super) bell: Option<OwnedFd>,
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
            bell,
        } = join;
        let partition = Partition::new(&window, geometry, index, side, settings);
        let partition = partition.map_err(|error| {
            Error::new(ErrorKind::Refused, "a window that has no such partition").caused_by(error)
        })?;
        Ok(Self {
            number: link,
            partition,
            window,
            bell,
            is_joined: false,
            is_lost: false,
        })
    }

    /// Moves what there is. Whether there was anything, when it must be polled again, and what is new.
    pub(super) fn poll(&mut self, now_ns: u64, flows: &mut Flows) -> (bool, u64, Option<Event>) {
        let progress = self.partition.poll(now_ns, flows);
        if progress.ring && self.window.has_doorbell() {
            // A bell that cannot be rung is a peer that looks by itself, or is gone, which its heart tells.
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

    /// Whether whoever sleeps is woken for whatever comes.
    pub(super) fn can_sleep(&mut self) -> bool {
        self.bell.is_some() && self.partition.can_sleep()
    }

    pub(super) const fn is_lost(&self) -> bool {
        self.is_lost
    }
}
