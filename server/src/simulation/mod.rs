//! What tests run the server on in place of the machine.

mod clock;

pub(crate) use clock::SimulatedClock;
