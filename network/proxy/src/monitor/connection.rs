//! What a connection is made of.

use std::os::fd::OwnedFd;

use millrace_stream::Geometry;
use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Result;
use rustix::net::SocketFlags;

use super::channel::pair;

/// Two ends of a bell, and the memory that both sides map. The monitor keeps none of them.
#[derive(Debug)]
pub(super) struct Connection {
    /// The end of whoever connects.
    pub(super) connecting: OwnedFd,
    /// The end of whoever accepts.
    pub(super) accepting: OwnedFd,
    /// The memory of both.
    pub(super) memory: OwnedFd,
}

impl Connection {
    /// A connection whose memory can neither shrink nor grow, and which nobody else may open.
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
