//! A queue that shares a queue pair with others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use millrace_nvme::{Refusal, SharedHandle};

use super::{Pairs, convert};
use crate::{Completion, Queue, Refused, Request};

/// A queue beyond those that have a pair of their own.
#[derive(Debug)]
pub(super) struct SharedPairQueue {
    pairs: Arc<Pairs>,
    handle: SharedHandle,
    /// What has completed and was not taken.
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

    /// Takes one completion out of the pair's way.
    fn take_one(&mut self) {
        let taken = self.handle.poll();
        self.done.extend(taken.map(convert::completion));
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
                // Others have filled the pair: there is a place for this one when they go on.
                Err(refused) if refused.reason == Refusal::QueueFull => request = refused.request,
                Err(refused) => return Err(convert::refused(operation, refused)),
            }
            self.take_one();
            thread::yield_now();
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        if self.done.is_empty() {
            self.take_one();
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
        self.handle.under_way() + self.done.len()
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
