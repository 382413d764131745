//! The descriptors of a connection before it has an entry.

use std::os::fd::RawFd;

use millrace_stream::control::Link;

/// Descriptors and addresses of one connection, as the broker or a lease hands them over.
#[derive(Debug)]
pub(crate) struct ConnectionFds {
    pub(crate) link: Link,
    /// Open descriptor of the wake-up socket pair's own end; not a private one.
    pub(crate) wakeup_fd: RawFd,
    /// Open descriptor of the shared memory; not a private one.
    pub(crate) memory: RawFd,
}
