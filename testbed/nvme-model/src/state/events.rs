//! Asynchronous events (base specification 1.4, section 5.2).

use std::collections::VecDeque;

use crate::command::Command;
use crate::host::Table;
use crate::status::Status;
use crate::violation::Rule;

use super::State;
use super::completion_queue::Completion;
use super::failure::{Failure, Outcome};

/// What a controller tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A doorbell without a queue was written.
    InvalidDoorbellRegister,
    /// A doorbell was written with a value that it cannot have.
    InvalidDoorbellValue,
    /// An error that is not tied to a command.
    TransientError,
    /// Reliability is degraded.
    Reliability,
    /// The temperature is above its threshold.
    Temperature,
    /// Spare capacity fell below its threshold.
    Spare,
    /// The attributes of a namespace changed.
    NamespaceChanged(u32),
    /// New firmware is about to be activated.
    FirmwareActivation,
    /// Something of the vendor's, told by one of the log pages from C0h on.
    Vendor {
        /// The log page.
        page: u8,
    },
}

impl Event {
    /// Type, information and log page.
    const fn code(self) -> (u8, u8, u8) {
        match self {
            Self::InvalidDoorbellRegister => (0, 0, 0x01),
            Self::InvalidDoorbellValue => (0, 1, 0x01),
            Self::TransientError => (0, 4, 0x01),
            Self::Reliability => (1, 0, 0x02),
            Self::Temperature => (1, 1, 0x02),
            Self::Spare => (1, 2, 0x02),
            Self::NamespaceChanged(_) => (2, 0, 0x04),
            Self::FirmwareActivation => (2, 1, 0x03),
            Self::Vendor { page } => (7, 0, page),
        }
    }

    /// Bits of the event's critical warning, if it is one of these.
    const fn warning(self) -> u8 {
        match self {
            Self::Spare => 1 << 0,
            Self::Temperature => 1 << 1,
            Self::Reliability => 1 << 2,
            _ => 0,
        }
    }
}

/// Requests that wait, and events that wait for requests.
#[derive(Debug, Default)]
pub(super) struct Events {
    requests: VecDeque<u16>,
    raised: VecDeque<Event>,
    /// By type, the log page of an event that was reported and whose page was not read yet.
    masked: [Option<u8>; 8],
    /// Feature 0Bh.
    pub(super) configuration: u32,
}

/// A controller keeps that many at most; more tell nothing new.
const RAISED_MAX: usize = 16;

impl Events {
    pub(super) fn raise(&mut self, event: Event) {
        if self.raised.len() < RAISED_MAX && !self.raised.contains(&event) {
            self.raised.push_back(event);
        }
    }

    /// Takes a request back; false if there is none with this identifier.
    pub(super) fn retract(&mut self, id: u16) -> bool {
        let found = self.requests.iter().position(|request| *request == id);
        found.and_then(|at| self.requests.remove(at)).is_some()
    }

    /// The host read a log page and wants to hear of such events again.
    pub(super) fn unmask(&mut self, page: u8) {
        for masked in &mut self.masked {
            *masked = masked.filter(|told| *told != page);
        }
    }

    /// Whether the host wants to hear of it: feature 0Bh.
    const fn is_wanted(&self, event: Event) -> bool {
        match event {
            Event::NamespaceChanged(_) => self.configuration & 1 << 8 != 0,
            Event::FirmwareActivation => self.configuration & 1 << 9 != 0,
            Event::Reliability | Event::Temperature | Event::Spare => {
                self.configuration & event.warning() as u32 != 0
            }
            _ => true,
        }
    }

    /// The next event with the request it answers.
    fn next(&mut self) -> Option<(u16, Event)> {
        if self.requests.is_empty() || self.raised.is_empty() {
            return None;
        }
        self.raised = std::mem::take(&mut self.raised)
            .into_iter()
            .filter(|event| self.is_wanted(*event))
            .collect();
        let ready = self
            .raised
            .iter()
            .position(|event| self.masked[usize::from(event.code().0)].is_none())?;
        let event = self.raised.remove(ready)?;
        let request = self.requests.pop_front()?;
        let (kind, _, page) = event.code();
        self.masked[usize::from(kind)] = Some(page);
        Some((request, event))
    }
}

impl State {
    pub(super) fn request_event(&mut self, command: &Command) -> Outcome<()> {
        if self.events.requests.len() >= usize::from(self.options.events_max) {
            return Err(Failure::breach(
                Status::EVENT_LIMIT,
                Rule::Limit,
                format!("more than {} event requests", self.options.events_max),
            ));
        }
        self.events.requests.push_back(command.id());
        Ok(())
    }

    /// Answers requests with events.
    #[inline]
    pub(super) fn deliver_events(&mut self, host: &Table) {
        while let Some((id, event)) = self.events.next() {
            let (kind, information, page) = event.code();
            self.logs.warn(event.warning());
            let completion = Completion {
                queue: 0,
                id,
                status: Status::SUCCESS,
                result: u32::from(page) << 16 | u32::from(information) << 8 | u32::from(kind),
            };
            self.post(completion, host);
        }
    }
}
