//! Calls that make a process another program.
//!
//! `system`, `popen` and similar functions stay the C library's: their shells inherit wake-up fds without memory, and
//! do not use them.

use std::ffi::{c_char, c_int, c_void};

use libc::pid_t;

use crate::inherit::Handover;
use crate::real;

unsafe extern "C" {
    /// Environment of this process, as the C library keeps it.
    static environ: *const *const c_char;
}

fn own_environment() -> *const *const c_char {
    // SAFETY: the C library defines the variable. The program must not change it at the same time.
    unsafe { environ }
}

export! {
    fn execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int {
        let handover = Handover::begin(environment, false);
        real::execve(path, arguments, handover.environment())
    }

    fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int {
        execve(path, arguments, own_environment())
    }

    fn execvpe(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int {
        let handover = Handover::begin(environment, false);
        real::execvpe(file, arguments, handover.environment())
    }

    fn execvp(file: *const c_char, arguments: *const *const c_char) -> c_int {
        execvpe(file, arguments, own_environment())
    }

    fn fexecve(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int {
        let handover = Handover::begin(environment, false);
        real::fexecve(fd, arguments, handover.environment())
    }

    fn execveat(folder: c_int, path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char, flags: c_int) -> c_int {
        let handover = Handover::begin(environment, false);
        real::execveat(folder, path, arguments, handover.environment(), flags)
    }

    fn posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *const c_char, environment: *const *const c_char) -> c_int {
        let environment = if environment.is_null() { own_environment() } else { environment };
        let mut handover = Handover::begin(environment, true);
        let failed = real::posix_spawn(pid, path, actions, attributes, arguments, handover.environment());
        if failed == 0 {
            handover.is_done();
        }
        failed
    }

    fn posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *const c_char, environment: *const *const c_char) -> c_int {
        let environment = if environment.is_null() { own_environment() } else { environment };
        let mut handover = Handover::begin(environment, true);
        let failed = real::posix_spawnp(pid, file, actions, attributes, arguments, handover.environment());
        if failed == 0 {
            handover.is_done();
        }
        failed
    }
}

/// `execl` and related functions are variadic. By the conventions of x86-64 on Linux the first arguments are in
/// registers, and the others lie where a large structure passed by value would. On other machines these functions stay
/// the C library's, and hand no connections over.
#[cfg(target_arch = "x86_64")]
mod lists {
    use std::ffi::{c_char, c_int};
    use std::ptr;

    use super::{execve, execvpe, own_environment};
    use crate::errno::{Errno, to_c_result};

    /// Number of arguments on the stack that are searched for the null. Values behind it are not used.
    const REST: usize = 250;

    /// Arguments on the stack, behind those in registers.
    #[repr(C)]
    pub(crate) struct Rest([*const c_char; REST]);

    /// The arguments with the null that ends them, and the value behind it.
    fn collect(
        first: &[*const c_char],
        rest: &Rest,
    ) -> Option<(Vec<*const c_char>, *const c_char)> {
        let all = first.iter().chain(&rest.0).copied();
        let mut list: Vec<_> = all
            .clone()
            .take_while(|argument| !argument.is_null())
            .collect();
        let behind = all.clone().nth(list.len() + 1).unwrap_or(ptr::null());
        let is_ended = list.len() < first.len() + REST;
        list.push(ptr::null());
        is_ended.then_some((list, behind))
    }

    fn too_many() -> c_int {
        to_c_result(Err(Errno(libc::E2BIG)))
    }

    export! {
        fn execl(path: *const c_char, a: *const c_char, b: *const c_char, c: *const c_char, d: *const c_char, e: *const c_char, rest: Rest) -> c_int {
            match collect(&[a, b, c, d, e], &rest) {
                Some((list, _)) => execve(path, list.as_ptr(), own_environment()),
                None => too_many(),
            }
        }

        fn execlp(file: *const c_char, a: *const c_char, b: *const c_char, c: *const c_char, d: *const c_char, e: *const c_char, rest: Rest) -> c_int {
            match collect(&[a, b, c, d, e], &rest) {
                Some((list, _)) => execvpe(file, list.as_ptr(), own_environment()),
                None => too_many(),
            }
        }

        fn execle(path: *const c_char, a: *const c_char, b: *const c_char, c: *const c_char, d: *const c_char, e: *const c_char, rest: Rest) -> c_int {
            match collect(&[a, b, c, d, e], &rest) {
                Some((list, environment)) => execve(path, list.as_ptr(), environment.cast()),
                None => too_many(),
            }
        }
    }
}
