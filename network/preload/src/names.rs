//! Addresses as the C library has them.

use std::ffi::c_int;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ptr;

use libc::{sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

use crate::errno::{Errno, Outcome};
use crate::pieces::check;

/// The families, as an address has them.
const INET: sa_family_t = 2;
const _: () = assert!(INET as c_int == libc::AF_INET);
const INET6: sa_family_t = 10;
const _: () = assert!(INET6 as c_int == libc::AF_INET6);

/// Reads an IPv4 or IPv6 address; `None` for another family, or if `size` is too small.
///
/// # Safety
/// There are `size` bytes, or the pointer is null.
pub(crate) unsafe fn read(address: *const sockaddr, size: socklen_t) -> Option<SocketAddr> {
    let size = size as usize;
    if size < size_of::<sa_family_t>() || check(address, size).is_err() {
        return None;
    }
    // SAFETY: there are as many bytes; the place need not be aligned.
    let family = unsafe { address.cast::<sa_family_t>().read_unaligned() };
    match c_int::from(family) {
        libc::AF_INET if size >= size_of::<sockaddr_in>() => {
            // SAFETY: `size` covers a `sockaddr_in`; the place need not be aligned.
            let v4 = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some((ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 if size >= size_of::<sockaddr_in6>() => {
            // SAFETY: `size` covers a `sockaddr_in6`; the place need not be aligned.
            let v6 = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Writes as much of an address as `size` permits, and its full size to `size`.
///
/// # Errors
/// `EINVAL` if the size is negative, `EFAULT` if a pointer is null or not of a program.
///
/// # Safety
/// The pointers are null or valid, the first for as many bytes as the second says.
pub(crate) unsafe fn write(
    value: &SocketAddr,
    address: *mut sockaddr,
    size: *mut socklen_t,
) -> Outcome<()> {
    check(address, size_of::<sa_family_t>())?;
    check(size, size_of::<socklen_t>())?;
    // SAFETY: `size` is readable, as this function asks for; `check` excluded null.
    let room = unsafe { size.read() };
    if c_int::try_from(room).is_err() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: all bytes zero are an address.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let length = fill(value, &mut storage);
    let part = length.min(room as usize);
    // SAFETY: `part` is at most the room that the program states.
    unsafe {
        address
            .cast::<u8>()
            .copy_from_nonoverlapping(ptr::from_ref(&storage).cast(), part)
    };
    // SAFETY: the place of the size was read before, and is writable, as this function asks for.
    unsafe { size.write(socklen_t::try_from(length).unwrap_or(0)) };
    Ok(())
}

/// Writes the C structure of an address; its size in bytes.
fn fill(value: &SocketAddr, storage: &mut sockaddr_storage) -> usize {
    let place = ptr::from_mut(storage);
    match value {
        SocketAddr::V4(v4) => {
            let laid = sockaddr_in {
                sin_family: INET,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: a storage has room for every address and is aligned for it.
            unsafe { place.cast::<sockaddr_in>().write(laid) };
            size_of::<sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let laid = sockaddr_in6 {
                sin6_family: INET6,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: a storage has room for every address and is aligned for it.
            unsafe { place.cast::<sockaddr_in6>().write(laid) };
            size_of::<sockaddr_in6>()
        }
    }
}
