//! Queue for a controller whose FUA bit is not trusted.

use millrace_memory::Buffer;

use crate::{Completion, Operation, Queue, Refused, Request};

/// A queue that executes a write-through as a write and, after its completion, a flush.
///
/// A request keeps its slot in the inner queue until both are complete, so the flush finds space there.
#[derive(Debug)]
pub(super) struct FlushedQueue {
    inner: Box<dyn Queue>,
    /// Requests in the inner queue; their inner tokens are indices here.
    requests: Vec<Option<InnerRequest>>,
    /// Indices without a request.
    free: Vec<usize>,
}

/// A request in the inner queue, with the caller's token.
#[derive(Debug)]
enum InnerRequest {
    /// A request that completes as it is.
    Plain(u64),
    /// A write that a flush must follow.
    Written(u64),
    /// The flush after a write that succeeded, and the write's buffer.
    Flushed(u64, Option<Buffer>),
}

impl FlushedQueue {
    /// A queue around `inner`, which accepts `depth` requests.
    pub(super) fn new(inner: Box<dyn Queue>, depth: usize) -> Self {
        Self {
            inner,
            requests: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
        }
    }

    /// Caller's completion for an inner one; none if a flush must follow first.
    fn complete(&mut self, mut below: Completion) -> Option<Completion> {
        let index = usize::try_from(below.token).expect("inner tokens are indices");
        let request = self.requests[index].take();
        match request.expect("an inner request has a slot") {
            InnerRequest::Plain(token) => below.token = token,
            InnerRequest::Written(token) => {
                let token_below = below.token;
                below.token = token;
                if below.result.is_ok() {
                    match self.inner.submit(Request::flush(token_below)) {
                        Ok(()) => {
                            self.requests[index] = Some(InnerRequest::Flushed(token, below.buffer));
                            return None;
                        }
                        Err(refused) => below.result = Err(refused.error),
                    }
                }
            }
            InnerRequest::Flushed(token, buffer) => {
                below.token = token;
                below.buffer = buffer;
            }
        }
        self.free.push(index);
        Some(below)
    }
}

impl Queue for FlushedQueue {
    fn submit(&mut self, mut request: Request) -> Result<(), Refused> {
        let Some(index) = self.free.pop() else {
            return Err(Refused::full(request));
        };
        let (token, operation) = (request.token, request.operation);
        request.token = index as u64;
        let requests = match operation {
            Operation::WriteThrough => {
                request.operation = Operation::Write;
                InnerRequest::Written(token)
            }
            _ => InnerRequest::Plain(token),
        };
        if let Err(mut refused) = self.inner.submit(request) {
            self.free.push(index);
            refused.request.token = token;
            refused.request.operation = operation;
            return Err(refused);
        }
        self.requests[index] = Some(requests);
        Ok(())
    }

    fn poll(&mut self) -> Option<Completion> {
        loop {
            let below = self.inner.poll()?;
            if let Some(completion) = self.complete(below) {
                return Some(completion);
            }
        }
    }

    fn wait(&mut self) -> Option<Completion> {
        loop {
            let below = self.inner.wait()?;
            if let Some(completion) = self.complete(below) {
                return Some(completion);
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn run(&mut self, request: Request) -> Result<Completion, Refused> {
        if self.in_flight() > 0 {
            return Err(Refused::busy(request));
        }
        self.submit(request)?;
        Ok(self.wait().expect("one request is in flight"))
    }
}
