//! Calls by which a process drops privileges. The process is introduced to the broker first, as it may not be able to
//! connect to it afterwards.

use std::ffi::{c_char, c_int};

use libc::{gid_t, size_t, uid_t};

use crate::{broker, real};

/// Defines names that introduce the process, and then call the next definition.
macro_rules! after_introduction {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> c_int;)*) => {
        export! {
            $(
                fn $name($($arg: $type),*) -> c_int {
                    broker::introduce();
                    real::$name($($arg),*)
                }
            )*
        }
    };
}

after_introduction! {
    fn setuid(user: uid_t) -> c_int;
    fn seteuid(user: uid_t) -> c_int;
    fn setreuid(real: uid_t, effective: uid_t) -> c_int;
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int;
    fn setgid(group: gid_t) -> c_int;
    fn setegid(group: gid_t) -> c_int;
    fn setregid(real: gid_t, effective: gid_t) -> c_int;
    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int;
    fn setgroups(count: size_t, groups: *const gid_t) -> c_int;
    fn initgroups(user: *const c_char, group: gid_t) -> c_int;
    fn chroot(path: *const c_char) -> c_int;
}
