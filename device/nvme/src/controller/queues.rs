//! A controller's I/O queues: giving them out, making them known to it, taking them away.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::TryLockError;

use super::Controller;
use crate::admin_commands::QueuePlace;
use crate::doorbell::{Doorbell, Shadow};
use crate::epoch::Epoch;
use crate::{Error, ErrorKind, Result};

impl Controller {
    /// Allocates an I/O queue, with the interrupt vector of the same number if it is to interrupt.
    pub(crate) fn take_queue(&self, interrupts: bool) -> Result<(u16, Option<u16>)> {
        let mut admin = self.lock();
        let mut ids = admin.queues_taken.iter();
        // The lowest numbers have vectors: polling queues leave them to interrupting queues.
        let free = if interrupts {
            ids.position(|taken| !taken)
        } else {
            ids.rposition(|taken| !taken)
        };
        let count = admin.queues_taken.len();
        let Some(index) = free else {
            let context = format!("the controller gives {count}, all are in use");
            return Err(Error::new(ErrorKind::NoQueue, context));
        };
        let id = u16::try_from(index + 1).expect("there are 4,096 at most");
        if interrupts && index + 1 >= self.vectors.len() {
            let context = format!(
                "there are {} interrupt vectors; a queue pair that polls can still be had",
                self.vectors.len()
            );
            return Err(Error::new(ErrorKind::NoQueue, context));
        }
        admin.queues_taken[index] = true;
        Ok((id, interrupts.then_some(id)))
    }

    pub(crate) fn give_queue(&self, id: u16) {
        self.lock().queues_taken[usize::from(id) - 1] = false;
    }

    /// Event file descriptor of an interrupt vector.
    pub(crate) fn vector(&self, vector: u16) -> BorrowedFd<'_> {
        self.vectors[usize::from(vector)].as_fd()
    }

    pub(crate) fn doorbells(&self, id: u16) -> Result<(Doorbell, Doorbell)> {
        self.control.doorbells(id)
    }

    /// Makes a queue known to the controller. Returns the epoch that it is of, and its shadow doorbells.
    pub(crate) fn create_queue(&self, place: &QueuePlace) -> Result<(Epoch, [Option<Shadow>; 2])> {
        self.with_lock(|admin, control| {
            let shadows = admin.create_queue(control, place)?;
            Ok((self.epoch.load(), shadows))
        })
    }

    /// Takes a queue of this epoch from the controller. One of an epoch that is over it has lost already.
    pub(crate) fn delete_queue(&self, id: u16, epoch: Epoch) -> Result<()> {
        self.with_lock(|admin, control| {
            if self.epoch.load() == epoch {
                admin.delete_queue(control, id)
            } else {
                Ok(())
            }
        })
    }

    /// Asks for a command to be aborted, if that can be done without waiting; whether it was.
    pub(crate) fn try_abort(&self, queue: u16, command: u16) -> bool {
        let mut admin = match self.admin.try_lock() {
            Ok(admin) => admin,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let posted = admin.try_abort(queue, command).unwrap_or(false);
        if posted {
            self.recovery.count_abort();
        }
        posted
    }
}
