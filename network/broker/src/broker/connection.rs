//! The descriptors that make up a connection.

use std::os::fd::OwnedFd;

use millrace_stream::Geometry;
use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Result;
use rustix::net::SocketFlags;

use super::channel::pair;

/// Two ends of a wake-up socket pair, and the memory that both sides map. The broker keeps none of them.
#[derive(Debug)]
pub(super) struct Connection {
    /// The connecting side's end of the wake-up socket pair.
    pub(super) connecting: OwnedFd,
    /// The accepting side's end of the wake-up socket pair.
    pub(super) accepting: OwnedFd,
    /// The memory that both sides map.
    pub(super) memory: OwnedFd,
}

impl Connection {
    /// A connection with sealed memory of fixed size and mode 0600.
    pub(super) fn new(geometry: Geometry) -> Result<Self> {
        let (connecting, accepting) = pair(SocketFlags::empty())?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = memfd_create(c"millrace-connection", flags)?;
        fchmod(&memory, Mode::RUSR | Mode::WUSR)?;
        ftruncate(&memory, geometry.size() as u64)?;
        fcntl_add_seals(
            &memory,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
        )?;
        Ok(Self {
            connecting,
            accepting,
            memory,
        })
    }
}
