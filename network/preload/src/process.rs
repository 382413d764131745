//! The beginning and the end of a process, and its forks.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::calls::cancel;
use crate::connection;
use crate::entry::{CONTROL, Entry, FDS, Kind};
use crate::multiplex::hooks;
use crate::slab::Slab;
use crate::{
    broker, fd_transition, holders, inherit, listeners, pristine_sockets, real, socket_cache,
    thread,
};

/// Runs when the library is loaded.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// Runs when the process ends by `exit`.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// The token of the child, during a fork.
static CHILD: AtomicU32 = AtomicU32::new(0);

/// Whether the connections of the process were released.
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

#[cfg_attr(
    test,
    expect(dead_code, reason = "tests do not stand before the C library")
)]
extern "C" fn begin() {
    real::find_all();
    broker::path();
    // SAFETY: the functions stay where they are as long as the process lives.
    unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
    inherit::take_over();
}

/// Releases all connections, as far as the kernel does not do so.
extern "C" fn end() {
    if HAS_ENDED.swap(true, Ordering::Relaxed) {
        return;
    }
    for entry in entries().filter(|entry| entry.kind() == Kind::Listener) {
        connection::reset_unaccepted(entry);
    }
    for entry in connections() {
        connection::on_last_close(entry);
        if let Some(record) = entry.record() {
            record.release_on_exit();
        }
    }
}

/// Exit of a process without exit handlers.
fn end_at_once(status: c_int) -> ! {
    end();
    loop {
        // SAFETY: takes a number, and does not return.
        unsafe {
            real::syscall(
                libc::SYS_exit_group,
                usize::try_from(status & 0xff).unwrap_or(1),
                0,
                0,
                0,
                0,
                0,
            )
        };
    }
}

export! {
    safe fn _exit(status: c_int) -> ! {
        end_at_once(status)
    }

    #[cfg_attr(test, expect(non_snake_case, reason = "the C library's name"))]
    safe fn _Exit(status: c_int) -> ! {
        end_at_once(status)
    }
}

/// All connections of this process, each once.
fn connections() -> impl Iterator<Item = &'static Entry> {
    entries().filter(|entry| entry.kind() == Kind::Connection)
}

/// All entries with a number, each once.
fn entries() -> impl Iterator<Item = &'static Entry> {
    FDS.numbers(0, usize::MAX)
        .filter(|(fd, entry)| entry.wakeup_fd() == *fd)
        .map(|(_, entry)| entry)
}

/// Before a fork: adds references for the child.
unsafe extern "C" fn prepare() {
    // Sets release entries under their locks, which takes this one.
    hooks::before_fork();
    socket_cache::drop_all();
    // Parent and child have them in common from now on.
    pristine_sockets::mark_all_modified();
    if let Ok(guard) = CONTROL.take() {
        std::mem::forget(guard);
    }
    let (mut token, mut locked) = (0, None);
    for entry in entries() {
        if let (Some(record), Some(slab)) = (entry.record(), entry.slab()) {
            if token == 0 {
                token = holders::make();
            }
            if locked != Some(slab) {
                holders::lock(slab, holders::own());
                locked = Some(slab);
            }
            record.reserve_ref(slab, token);
        }
        if entry.kind() == Kind::Listener {
            entry.listener.is_shared.store(true, Ordering::Relaxed);
        }
    }
    CHILD.store(token, Ordering::Relaxed);
}

unsafe extern "C" fn in_parent() {
    CONTROL.release();
    hooks::after_fork_in_parent();
}

unsafe extern "C" fn in_child() {
    thread::forget();
    fd_transition::forget();
    CONTROL.reset();
    listeners::after_fork();
    HAS_ENDED.store(false, Ordering::Relaxed);
    inherit::after_fork();
    broker::forget();
    let slab = Slab::disown();
    claim();
    if let Some(slab) = slab.filter(|slab| entries().all(|entry| entry.slab() != Some(*slab))) {
        // SAFETY: no entry has it, and there is no thread but this.
        unsafe { slab.discard() };
    }
    for entry in entries() {
        entry.forget_calls();
    }
    cancel::after_fork();
    connection::after_fork();
    hooks::after_fork_in_child();
}

/// Claims the records that the parent reserved for this child. A record that the parent did not reserve is not the
/// child's.
fn claim() {
    let token = CHILD.load(Ordering::Relaxed);
    holders::take(token);
    let mut locked = None;
    for entry in connections() {
        let (Some(record), Some(slab)) = (entry.record(), entry.slab()) else {
            continue;
        };
        if token != 0 && locked != Some(slab) {
            holders::lock(slab, token);
            locked = Some(slab);
        }
        if token == 0 || !record.claim(token) {
            let numbers = FDS.numbers(0, usize::MAX);
            for (fd, _) in numbers.filter(|(_, other)| ptr::eq(*other, entry)) {
                FDS.remove(fd);
            }
        }
    }
}

export! {
    fn vfork() -> libc::pid_t {
        // The child of a real `vfork` would change this process's table.
        libc::fork()
    }
}
