//! The device that loses power, through its public interface.

mod conformance;
mod device;
