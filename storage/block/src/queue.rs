//! The queue trait: submission and completion of requests.

use std::fmt;

use crate::{Completion, Refused, Request};

/// Submission and completion of requests, by one thread at a time. A queue can move to another thread between calls.
///
/// Dropping a queue waits for its requests in flight.
pub trait Queue: fmt::Debug + Send {
    /// Submits a request. The queue may hold it back until the next [`Queue::poll`] or [`Queue::wait`], to batch
    /// several.
    ///
    /// # Errors
    /// The request is returned if it is rejected: [`ErrorKind::Full`](crate::ErrorKind::Full) (take a
    /// completion first), [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) (outside of the device, partial
    /// blocks, too long, a buffer of another domain),
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
    fn submit(&mut self, request: Request) -> Result<(), Refused>;

    /// A completion, if there is one, in any order. Submits requests held back to the device.
    fn poll(&mut self) -> Option<Completion>;

    /// A completion, waited for; none if nothing is in flight.
    fn wait(&mut self) -> Option<Completion>;

    /// Number of requests whose completion was not taken.
    fn in_flight(&self) -> usize;

    /// Submits one request and waits for it, with nothing else in flight: for callers without other work, and for
    /// devices where one step for both is cheaper.
    ///
    /// # Errors
    /// As [`Queue::submit`], and [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if something is in flight.
    fn run(&mut self, request: Request) -> Result<Completion, Refused>;
}
