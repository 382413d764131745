//! `dprintf` and related functions: the C library would write past the names that this library defines. Here the text
//! is formatted in memory, and sent.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use super::bytes::{counted, sending};
use super::cancel;
use crate::connection::lookup;
use crate::real;

/// A `va_list`: by the conventions of x86-64, aarch64 and ppc64le one pointer.
type List = *mut c_void;

unsafe extern "C" {
    fn vasprintf(text: *mut *mut c_char, format: *const c_char, list: List) -> c_int;
    fn __vasprintf_chk(
        text: *mut *mut c_char,
        flag: c_int,
        format: *const c_char,
        list: List,
    ) -> c_int;
}

export! {
    fn vdprintf(fd: c_int, format: *const c_char, list: List) -> c_int {
        if lookup(fd).is_none() {
            return real::vdprintf(fd, format, list);
        }
        send_text(fd, |text| vasprintf(text, format, list))
    }

    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, list: List) -> c_int {
        if lookup(fd).is_none() {
            return real::__vdprintf_chk(fd, flag, format, list);
        }
        send_text(fd, |text| __vasprintf_chk(text, flag, format, list))
    }
}

/// Sends the text that `print` formats into memory; its size in bytes, or -1.
fn send_text(fd: c_int, print: impl FnOnce(*mut *mut c_char) -> c_int) -> c_int {
    let mut text: *mut c_char = ptr::null_mut();
    let printed = print(&raw mut text);
    let Ok(size) = usize::try_from(printed) else {
        return printed;
    };
    // SAFETY: the C library printed `size` bytes to `text`.
    let outcome = unsafe { write_all(fd, text, size) };
    // SAFETY: the C library allocated the text, and no other pointer to it is kept.
    unsafe { libc::free(text.cast()) };
    outcome.map_or(-1, |()| printed)
}

/// # Safety
/// `text` has `size` readable bytes.
unsafe fn write_all(fd: c_int, text: *const c_char, size: usize) -> Option<()> {
    let entry = lookup(fd)?;
    let mut done = 0;
    while done < size {
        // SAFETY: `done` is less than the size.
        let rest = unsafe { text.add(done) };
        // SAFETY: `size - done` bytes follow `rest`, as this function asks for.
        let written = counted(cancel::never(|| unsafe {
            sending(fd, entry, rest.cast(), size - done, 0)
        }));
        done += usize::try_from(written).ok()?;
    }
    Some(())
}

/// `dprintf` is variadic. By the conventions of x86-64 the first arguments are in registers for integers and in
/// registers for floats, and the others lie where a large structure passed by value would. On other machines these
/// functions stay the C library's, and abort the connection.
#[cfg(target_arch = "x86_64")]
mod lists {
    use std::ffi::{c_char, c_int};
    use std::ptr;

    use super::{__vdprintf_chk, vdprintf};

    /// Arguments on the stack. Bytes behind the last of them are not read.
    #[repr(C)]
    pub(crate) struct Rest([usize; 250]);

    /// Contents of registers, in the order of a `va_list`.
    #[repr(C, align(16))]
    struct Registers {
        numbers: [usize; 6],
        floats: [[f64; 2]; 8],
    }

    /// Layout of a `va_list` by the conventions of x86-64.
    #[repr(C)]
    struct Collected {
        /// Where the next number lies among the registers.
        numbers: u32,
        /// Offset of the next float in the registers, in bytes.
        floats: u32,
        rest: *const Rest,
        registers: *const Registers,
    }

    /// Calls `print` with a list of all arguments but the first `given` ones.
    fn collected(
        given: u32,
        numbers: [usize; 6],
        floats: [f64; 8],
        rest: *const Rest,
        print: impl FnOnce(super::List) -> c_int,
    ) -> c_int {
        let registers = Registers {
            numbers,
            floats: floats.map(|float| [float, 0.0]),
        };
        let mut list = Collected {
            numbers: given * 8,
            floats: 6 * 8,
            rest,
            registers: &raw const registers,
        };
        print(ptr::from_mut(&mut list).cast())
    }

    export! {
        fn dprintf(fd: c_int, format: *const c_char, a: usize, b: usize, c: usize, d: usize, e: f64, f: f64, g: f64, h: f64, i: f64, j: f64, k: f64, l: f64, rest: Rest) -> c_int {
            collected(2, [0, 0, a, b, c, d], [e, f, g, h, i, j, k, l], &raw const rest, |list| {
                vdprintf(fd, format, list)
            })
        }

        fn __dprintf_chk(fd: c_int, flag: c_int, format: *const c_char, a: usize, b: usize, c: usize, e: f64, f: f64, g: f64, h: f64, i: f64, j: f64, k: f64, l: f64, rest: Rest) -> c_int {
            collected(3, [0, 0, 0, a, b, c], [e, f, g, h, i, j, k, l], &raw const rest, |list| {
                __vdprintf_chk(fd, flag, format, list)
            })
        }
    }
}
