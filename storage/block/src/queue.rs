//! The trait of a queue.

use std::fmt;

use crate::{Completion, Refused, Request};

/// Requests of one thread at a time, and what became of them. A queue can move to another thread between
/// calls.
///
/// Dropping a queue waits for what is in flight.
pub trait Queue: fmt::Debug + Send {
    /// Gives a request to the device. It may be held back until the next [`Queue::poll`] or [`Queue::wait`],
    /// so that several go together.
    ///
    /// # Errors
    /// The request comes back when it cannot be taken: [`ErrorKind::Full`](crate::ErrorKind::Full) (take a
    /// completion first), [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) (outside of the device, not whole
    /// blocks, too long, a buffer of another domain),
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
    fn submit(&mut self, request: Request) -> Result<(), Refused>;

    /// What the device has finished, if anything, in any order. Gives the device what was held back.
    fn poll(&mut self) -> Option<Completion>;

    /// As [`Queue::poll`], but waits while something is in flight; none if nothing is.
    fn wait(&mut self) -> Option<Completion>;

    /// Requests submitted whose completion was not taken.
    fn in_flight(&self) -> usize;

    /// Submits one request and waits for it, with nothing else in flight: the path for who has nothing better
    /// to do meanwhile, and for devices where asking and waiting in one step is cheaper.
    ///
    /// # Errors
    /// As [`Queue::submit`], and [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if something is in flight.
    fn run(&mut self, request: Request) -> Result<Completion, Refused>;
}
