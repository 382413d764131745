//! On which NUMA node memory lies.

use std::ffi::{c_int, c_ulong, c_void};
use std::io;
use std::ptr::NonNull;

use crate::{Error, ErrorKind, Result};

/// Nodes that can be named: the most that a Linux kernel can be built for.
const NODES_MAX: usize = 1024;
/// MPOL_MF_STRICT and MPOL_MF_MOVE (linux/mempolicy.h), which libc does not name.
const MOVE_STRICT: c_int = 1 << 0 | 1 << 1;
const WORD_BITS: usize = c_ulong::BITS as usize;

/// Has the pages of a mapping that are not there yet taken from `node` and from no other.
pub(crate) fn bind(address: NonNull<u8>, size: usize, node: u32) -> Result<()> {
    apply(address, size, node, 0)
}

/// Sees that the pages of a mapping, which are there, lie on `node`, and moves those that do not. Huge pages come
/// from anywhere at first: the kernel looks at the file's policy for them, not at the mapping's.
pub(crate) fn move_to(address: NonNull<u8>, size: usize, node: u32) -> Result<()> {
    apply(address, size, node, MOVE_STRICT)
}

fn apply(address: NonNull<u8>, size: usize, node: u32, flags: c_int) -> Result<()> {
    let index = node as usize;
    if index >= NODES_MAX {
        let context = format!("NUMA node {node}: nodes are numbered below {NODES_MAX}");
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    let mut nodes: [c_ulong; NODES_MAX / WORD_BITS] = [0; NODES_MAX / WORD_BITS];
    nodes[index / WORD_BITS] = 1 << (index % WORD_BITS);
    mbind(address.as_ptr().cast(), size, &nodes, flags).map_err(|source| {
        let (kind, why) = match source.raw_os_error() {
            Some(libc::ENOSYS) => (ErrorKind::Refused, "the kernel does not support NUMA nodes"),
            Some(libc::EINVAL) => (
                ErrorKind::Invalid,
                "the node does not exist or has no memory",
            ),
            Some(libc::EIO) => (ErrorKind::NoMemory, "not all pages can be had there"),
            _ => (ErrorKind::Refused, "the kernel does not bind memory to it"),
        };
        Error::new(kind, format!("NUMA node {node}: {why}")).caused_by(source)
    })
}

fn mbind(
    address: *mut c_void,
    size: usize,
    nodes: &[c_ulong],
    flags: c_int,
) -> std::result::Result<(), io::Error> {
    // The kernel reads one bit less than it is given (mbind(2), BUGS).
    let bits = nodes.len() * WORD_BITS + 1;
    // SAFETY: mbind reads `nodes`, which holds as many bits as are read, and changes from where pages
    // come, not what they hold; an address that is not mapped is an error.
    let status = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            address,
            size,
            libc::MPOL_BIND,
            nodes.as_ptr(),
            bits,
            flags,
        )
    };
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
