//! A queue of a controller whose FUA bit is not relied on.

use millrace_memory::Buffer;

use crate::{Completion, Operation, Queue, Refused, Request};

/// Makes a write that goes through of a write and, once that is complete, a flush.
///
/// A request keeps its place in the queue below until both are done, so the flush finds room there.
#[derive(Debug)]
pub(super) struct FlushedQueue {
    inner: Box<dyn Queue>,
    /// What the requests below are; their tokens there are places here.
    taken: Vec<Option<Taken>>,
    /// Places of which nothing is below.
    free: Vec<usize>,
}

/// A request, with the token of whoever submitted it.
#[derive(Debug)]
enum Taken {
    /// It needs nothing more.
    Plain(u64),
    /// A write that a flush has to follow.
    Written(u64),
    /// The flush after a write that succeeded, and the write's buffer.
    Flushed(u64, Option<Buffer>),
}

impl FlushedQueue {
    /// Around a queue that takes so many requests at once.
    pub(super) fn new(inner: Box<dyn Queue>, depth: usize) -> Self {
        Self {
            inner,
            taken: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
        }
    }

    /// What the submitter is told after a completion below; none if a flush has to follow first.
    fn settle(&mut self, mut below: Completion) -> Option<Completion> {
        let place = usize::try_from(below.token).expect("tokens below are places");
        let taken = self.taken[place].take();
        match taken.expect("what is below has its place") {
            Taken::Plain(token) => below.token = token,
            Taken::Written(token) => {
                let token_below = below.token;
                below.token = token;
                if below.result.is_ok() {
                    match self.inner.submit(Request::flush(token_below)) {
                        Ok(()) => {
                            self.taken[place] = Some(Taken::Flushed(token, below.buffer));
                            return None;
                        }
                        Err(refused) => below.result = Err(refused.error),
                    }
                }
            }
            Taken::Flushed(token, buffer) => {
                below.token = token;
                below.buffer = buffer;
            }
        }
        self.free.push(place);
        Some(below)
    }
}

impl Queue for FlushedQueue {
    fn submit(&mut self, mut request: Request) -> Result<(), Refused> {
        let Some(place) = self.free.pop() else {
            return Err(Refused::full(request));
        };
        let (token, operation) = (request.token, request.operation);
        request.token = place as u64;
        let taken = match operation {
            Operation::WriteThrough => {
                request.operation = Operation::Write;
                Taken::Written(token)
            }
            _ => Taken::Plain(token),
        };
        if let Err(mut refused) = self.inner.submit(request) {
            self.free.push(place);
            refused.request.token = token;
            refused.request.operation = operation;
            return Err(refused);
        }
        self.taken[place] = Some(taken);
        Ok(())
    }

    fn poll(&mut self) -> Option<Completion> {
        loop {
            let below = self.inner.poll()?;
            if let Some(completion) = self.settle(below) {
                return Some(completion);
            }
        }
    }

    fn wait(&mut self) -> Option<Completion> {
        loop {
            let below = self.inner.wait()?;
            if let Some(completion) = self.settle(below) {
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
