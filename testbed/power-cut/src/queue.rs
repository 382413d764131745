//! A queue of the device.

use std::sync::Arc;

use millrace_block::{Completion, Operation, Queue, Refused, Request};
use millrace_memory::DomainId;

use crate::PowerCut;

/// A queue of a [`PowerCut`].
#[derive(Debug)]
pub(crate) struct PowerCutQueue {
    device: Arc<PowerCut>,
    domain: DomainId,
    number: u64,
    in_flight: usize,
}

impl PowerCutQueue {
    pub(crate) fn new(device: Arc<PowerCut>, domain: DomainId) -> Self {
        let number = device.state().add_queue();
        Self {
            device,
            domain,
            number,
            in_flight: 0,
        }
    }

    fn ask(&mut self, must: bool) -> Option<Completion> {
        let completion = self.device.state().poll(self.number, must)?;
        self.in_flight -= 1;
        Some(completion)
    }
}

impl Queue for PowerCutQueue {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        let geometry = self.device.own_geometry();
        if self.in_flight >= geometry.queue_depth {
            return Err(Refused::full(request));
        }
        let request = geometry.check_request(self.domain, request)?;
        let data = match (request.operation, &request.buffer) {
            (Operation::Write | Operation::WriteThrough, Some(buffer)) => {
                Some(Arc::from(&**buffer))
            }
            _ => None,
        };
        self.device.state().submit(self.number, request, data);
        self.in_flight += 1;
        Ok(())
    }

    fn poll(&mut self) -> Option<Completion> {
        self.ask(false)
    }

    fn wait(&mut self) -> Option<Completion> {
        self.ask(true)
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn run(&mut self, request: Request) -> Result<Completion, Refused> {
        if self.in_flight > 0 {
            return Err(Refused::busy(request));
        }
        self.submit(request)?;
        Ok(self.wait().expect("one request is in flight"))
    }
}

impl Drop for PowerCutQueue {
    fn drop(&mut self) {
        self.device.state().remove_queue(self.number);
    }
}
