//! A queue with a queue pair of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use millrace_nvme::QueuePair;

use super::{Pairs, convert};
use crate::{Completion, Queue, Refused, Request};

/// Longest wait before the driver checks for lost commands.
const WAIT: Duration = Duration::from_secs(1);

/// A queue with a queue pair of its own.
#[derive(Debug)]
pub(super) struct PairQueue {
    pairs: Arc<Pairs>,
    /// Queue pair; none only during the drop.
    pair: Option<QueuePair>,
    /// Completions that were not polled yet.
    done: VecDeque<Completion>,
}

impl PairQueue {
    pub(super) fn new(pairs: Arc<Pairs>, pair: QueuePair) -> Self {
        Self {
            done: VecDeque::with_capacity(pair.depth()),
            pair: Some(pair),
            pairs,
        }
    }

    fn pair_and_done(&mut self) -> (&mut QueuePair, &mut VecDeque<Completion>) {
        let pair = self.pair.as_mut().expect("it is there until the drop");
        (pair, &mut self.done)
    }
}

impl Queue for PairQueue {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        if self.in_flight() >= self.pairs.geometry.queue_depth {
            return Err(Refused::full(request));
        }
        let Self { pairs, pair, .. } = self;
        let request = pairs.geometry.check_request(pairs.domain(), request)?;
        let operation = request.operation;
        let pair = pair.as_mut().expect("it is there until the drop");
        let submitted = pair.submit(&pairs.namespace, convert::request(request));
        submitted.map_err(|refused| convert::refused(operation, refused))
    }

    fn poll(&mut self) -> Option<Completion> {
        let (pair, done) = self.pair_and_done();
        if let Some(completion) = done.pop_front() {
            pair.ring();
            return Some(completion);
        }
        pair.poll(|completion| done.push_back(convert::completion(completion)));
        done.pop_front()
    }

    fn wait(&mut self) -> Option<Completion> {
        while self.in_flight() > 0 {
            let (pair, done) = self.pair_and_done();
            if let Some(completion) = done.pop_front() {
                pair.ring();
                return Some(completion);
            }
            pair.wait(WAIT, |completion| {
                done.push_back(convert::completion(completion));
            });
        }
        None
    }

    fn in_flight(&self) -> usize {
        let under_way = self.pair.as_ref().map_or(0, QueuePair::requests_in_flight);
        under_way + self.done.len()
    }

    fn run(&mut self, request: Request) -> Result<Completion, Refused> {
        if self.in_flight() > 0 {
            return Err(Refused::busy(request));
        }
        self.submit(request)?;
        Ok(self.wait().expect("one request is in flight"))
    }
}

impl Drop for PairQueue {
    fn drop(&mut self) {
        while self.wait().is_some() {}
        if let Some(pair) = self.pair.take() {
            self.pairs.give_back(pair);
        }
    }
}
