//! User-level sockets under the C library's names: a library that is loaded before it (`LD_PRELOAD`), so that programs
//! which know nothing of it talk through memory instead of the kernel's TCP.
//!
//! # What becomes of what
//! | the program's | is |
//! |---|---|
//! | connection | the number of a *wake-up fd*, one end of a pair of the kernel's, and memory that both programs have |
//! | listener | the kernel's, as before, and a channel on which the broker hands connections over |
//! | all else | the kernel's: the way there is a load and a branch |
//!
//! Without a broker, without a user-level listener at the other end, or where a rule says so, a connection is the
//! kernel's TCP. Each file documents its calls: [`settings`] the options, [`wait`] and [`multiplex`] how calls wait,
//! [`inherit`] what another program inherits, [`process`] a fork, [`in_place`] how programs that use
//! `millrace_sockets.h` send and receive without copies.
//!
//! # Answers that differ from TCP's
//! - `SCM_RIGHTS` with a user-level connection in it is refused: `EOPNOTSUPP`. `F_SETOWN`, `F_SETSIG` and `O_ASYNC` are
//!   `EINVAL`, `MSG_FASTOPEN` is `EOPNOTSUPP`.
//! - What passes by this library (io_uring, static programs) reads the end of a stream from a wake-up fd; what it writes
//!   breaks the connection off.
//! - A program that is killed with bytes unread ends its stream; TCP would reset it. One that exits resets it.
//! - `connect` to a full backlog is the kernel's TCP if it does not block; if it does, after a second or a signal.
//! - A bad address is `EFAULT` in the first page and where the kernel is. In between it is `SIGSEGV`, as bytes are
//!   copied by this library, under a lock of the connection.
//! - `sendfile` and `dprintf` on a connection are no points of cancellation, and `close` and `connect` are none;
//!   `syscall` is one where it waits for a connection.
//! - Connections that a listener has not accepted are reset when it closes, if it was never shared by `fork` or `exec`;
//!   else, or if its process is killed, they end without a reset.
//! - A kernel descriptor that another process makes ready, beside user-level ones that are always ready, is reported by
//!   `epoll_wait` up to sixteen calls, or 50 microseconds, later.
//! - `dprintf` on a connection breaks it off on other machines than x86-64.
//! - A signal that comes while a call still spins does not break it. Of calls that sleep, all are restarted if every
//!   handler asks for that, else none.
//! - `dup2` onto a private descriptor is `EBADF`: these sit at three quarters of the limit and above.
//! - `system` and `popen` hand nothing on. Children by a raw `clone` are not known to share anything.
//!
//! # Threads, signals, memory
//! Every call may be made by any thread, at any time. A signal handler that needs a lock of its own thread gets
//! `EAGAIN`. Nothing is allocated to send, receive or wait. Locks lie in memory that forked processes share; the lock
//! of an exited owner is taken over, and its connection reset.
//!
//! # Limits
//! Linux with glibc. Numbers below 2^20. 32,760 connections of a process at a time; more are the kernel's.
//!
//! # Cost
//! To send or receive 64 bytes: a lock, the lane's lines, one fence. No system call while the peer is awake.

#[macro_use]
mod macros;

mod ancillary;
mod broker;
mod broker_link;
mod calls;
mod channel_owner;
mod clock;
mod connection;
mod connection_fds;
mod entry;
mod errno;
mod fd_transition;
mod holders;
mod in_place;
mod inherit;
mod kernel_options;
mod leases;
mod limits;
mod listeners;
mod lock;
mod lost_channels;
mod multiplex;
mod names;
mod notify;
mod pacing_rate;
mod pieces;
mod pristine_sockets;
mod private_fds;
mod process;
mod readiness;
mod real;
mod receive;
mod reregister;
mod send;
mod service;
mod settings;
mod slab;
mod socket_cache;
mod socket_kind;
mod source;
mod stream_end;
mod table;
mod thread;
mod tokens;
mod wait;
