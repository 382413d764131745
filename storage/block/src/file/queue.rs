//! A queue of a file device.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use millrace_memory::DomainId;

use super::backing::Backing;
use super::ring::Ring;
use crate::{Completion, Geometry, Queue, Refused, Request};

/// SubmitPath in which submitted requests reach the kernel.
enum SubmitPath {
    /// A ring, opened by the first submission.
    Unopened,
    Ring(Box<Ring>),
    /// System calls, executed by polls.
    Plain(VecDeque<Request>),
}

/// A queue of a [`FileDevice`](super::FileDevice).
pub(super) struct FileQueue {
    backing: Arc<Backing>,
    geometry: Geometry,
    domain: DomainId,
    path: SubmitPath,
}

impl FileQueue {
    pub(super) const fn new(
        backing: Arc<Backing>,
        geometry: Geometry,
        domain: DomainId,
        io_uring: bool,
    ) -> Self {
        Self {
            backing,
            geometry,
            domain,
            path: if io_uring {
                SubmitPath::Unopened
            } else {
                SubmitPath::Plain(VecDeque::new())
            },
        }
    }

    fn execute(&self, mut request: Request) -> Completion {
        let result = self.backing.execute(&mut request);
        Completion {
            token: request.token,
            result,
            buffer: request.buffer,
        }
    }

    fn run_next(&mut self) -> Option<Completion> {
        let SubmitPath::Plain(waiting) = &mut self.path else {
            return None;
        };
        let request = waiting.pop_front()?;
        Some(self.execute(request))
    }
}

impl Queue for FileQueue {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        if self.in_flight() >= self.geometry.queue_depth {
            return Err(Refused::full(request));
        }
        let request = self.geometry.check_request(self.domain, request)?;
        if let SubmitPath::Unopened = self.path {
            // If io_uring was forbidden after the device was opened, requests are still served.
            self.path = match Ring::new(Arc::clone(&self.backing), self.geometry.queue_depth) {
                Ok(ring) => SubmitPath::Ring(Box::new(ring)),
                Err(_) => SubmitPath::Plain(VecDeque::new()),
            };
        }
        match &mut self.path {
            SubmitPath::Ring(ring) => ring.submit(request),
            SubmitPath::Plain(waiting) => waiting.push_back(request),
            SubmitPath::Unopened => unreachable!("opened above"),
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<Completion> {
        match &mut self.path {
            SubmitPath::Ring(ring) => ring.poll(),
            _ => self.run_next(),
        }
    }

    fn wait(&mut self) -> Option<Completion> {
        match &mut self.path {
            SubmitPath::Ring(ring) => ring.wait(),
            _ => self.run_next(),
        }
    }

    fn in_flight(&self) -> usize {
        match &self.path {
            SubmitPath::Unopened => 0,
            SubmitPath::Ring(ring) => ring.in_flight(),
            SubmitPath::Plain(waiting) => waiting.len(),
        }
    }

    fn run(&mut self, request: Request) -> Result<Completion, Refused> {
        if self.in_flight() > 0 {
            return Err(Refused::busy(request));
        }
        let request = self.geometry.check_request(self.domain, request)?;
        Ok(self.execute(request))
    }
}

impl Drop for FileQueue {
    fn drop(&mut self) {
        while self.wait().is_some() {}
    }
}

impl fmt::Debug for FileQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = match &self.path {
            SubmitPath::Unopened => "not opened",
            SubmitPath::Ring(_) => "io_uring",
            SubmitPath::Plain(_) => "plain calls",
        };
        f.debug_struct("FileQueue")
            .field("backing", &self.backing)
            .field("way", &path)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
