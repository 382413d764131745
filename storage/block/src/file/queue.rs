//! A queue of a file.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use millrace_memory::DomainId;

use super::backing::Backing;
use super::ring::Ring;
use crate::{Completion, Geometry, Queue, Refused, Request};

/// How requests that are submitted, not run, go to the kernel.
enum Way {
    /// By a ring, which is made with the first of them.
    Unopened,
    Ring(Box<Ring>),
    /// By plain calls, when they are asked for.
    Plain(VecDeque<Request>),
}

/// A queue of a [`FileDevice`](super::FileDevice).
pub(super) struct FileQueue {
    backing: Arc<Backing>,
    geometry: Geometry,
    domain: DomainId,
    way: Way,
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
            way: if io_uring {
                Way::Unopened
            } else {
                Way::Plain(VecDeque::new())
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
        let Way::Plain(waiting) = &mut self.way else {
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
        if let Way::Unopened = self.way {
            // Whoever forbids rings after the device was opened does not keep requests from being served.
            self.way = match Ring::new(Arc::clone(&self.backing), self.geometry.queue_depth) {
                Ok(ring) => Way::Ring(Box::new(ring)),
                Err(_) => Way::Plain(VecDeque::new()),
            };
        }
        match &mut self.way {
            Way::Ring(ring) => ring.submit(request),
            Way::Plain(waiting) => waiting.push_back(request),
            Way::Unopened => unreachable!("opened above"),
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<Completion> {
        match &mut self.way {
            Way::Ring(ring) => ring.poll(),
            _ => self.run_next(),
        }
    }

    fn wait(&mut self) -> Option<Completion> {
        match &mut self.way {
            Way::Ring(ring) => ring.wait(),
            _ => self.run_next(),
        }
    }

    fn in_flight(&self) -> usize {
        match &self.way {
            Way::Unopened => 0,
            Way::Ring(ring) => ring.in_flight(),
            Way::Plain(waiting) => waiting.len(),
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
        let way = match &self.way {
            Way::Unopened => "none yet",
            Way::Ring(_) => "io_uring",
            Way::Plain(_) => "plain calls",
        };
        f.debug_struct("FileQueue")
            .field("backing", &self.backing)
            .field("way", &way)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
