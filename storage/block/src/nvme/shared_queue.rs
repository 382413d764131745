//! A queue that shares a queue pair with other queues.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use millrace_nvme::{Refusal, SharedHandle};

use super::{Pairs, convert};
use crate::{Completion, Queue, Refused, Request};

/// A queue on the shared pair.
#[derive(Debug)]
pub(super) struct SharedPairQueue {
    pairs: Arc<Pairs>,
    handle: SharedHandle,
    /// Completions that were not polled yet.
    done: VecDeque<Completion>,
}

impl SharedPairQueue {
    pub(super) const fn new(pairs: Arc<Pairs>, handle: SharedHandle) -> Self {
        Self {
            pairs,
            handle,
            done: VecDeque::new(),
        }
    }

    /// Takes one completion, to free a slot of the pair.
    fn complete_one(&mut self) {
        let completion = self.handle.poll();
        self.done.extend(completion.map(convert::completion));
    }
}

impl Queue for SharedPairQueue {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        if self.in_flight() >= self.pairs.geometry.queue_depth {
            return Err(Refused::full(request));
        }
        let pairs = &self.pairs;
        let request = pairs.geometry.check_request(pairs.domain(), request)?;
        let operation = request.operation;
        let mut request = convert::request(request);
        loop {
            match self.handle.submit(&self.pairs.namespace, request) {
                Ok(()) => return Ok(()),
                // Other queues have filled the pair: their completions free slots.
                Err(refused) if refused.reason == Refusal::QueueFull => request = refused.request,
                Err(refused) => return Err(convert::refused(operation, refused)),
            }
            self.complete_one();
            thread::yield_now();
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        if self.done.is_empty() {
            self.complete_one();
        }
        self.done.pop_front()
    }

    fn wait(&mut self) -> Option<Completion> {
        if let Some(completion) = self.done.pop_front() {
            return Some(completion);
        }
        self.handle.wait().map(convert::completion)
    }

    fn in_flight(&self) -> usize {
        self.handle.requests_in_flight() + self.done.len()
    }

    fn run(&mut self, request: Request) -> Result<Completion, Refused> {
        if self.in_flight() > 0 {
            return Err(Refused::busy(request));
        }
        self.submit(request)?;
        Ok(self.wait().expect("one request is in flight"))
    }
}

impl Drop for SharedPairQueue {
    fn drop(&mut self) {
        while self.wait().is_some() {}
    }
}
