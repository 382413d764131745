//! User-level sockets under the C library's names: a library that is loaded ahead of it (`LD_PRELOAD`), so that
//! unchanged programs communicate through memory instead of the kernel's TCP.
//!
//! # What becomes of what
//! | the program's | is |
//! |---|---|
//! | connection | the number of a *wake-up fd*, one end of a kernel socket pair, and memory that both programs map |
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
//! - Calls that bypass this library (io_uring, static programs) read the end of a stream from a wake-up fd; their
//!   writes reset the connection.
//! - A program that is killed with unread bytes ends its stream; TCP would reset it. One that exits resets it.
//! - A non-blocking `connect` to a full backlog falls back to the kernel's TCP; a blocking one does so after a second
//!   or a signal.
//! - A bad address is `EFAULT` in the first page and in the kernel's addresses. In between it is `SIGSEGV`, as this
//!   library copies the bytes, under a lock of the connection.
//! - `sendfile` and `dprintf` on a connection are no cancellation points, nor are `close` and `connect`; `syscall` is
//!   one where it waits for a connection.
//! - Connections that a listener has not accepted are reset when it closes, if it was never shared by `fork` or `exec`;
//!   else, or if its process is killed, they end without a reset.
//! - A kernel descriptor that another process makes ready, beside user-level ones that are always ready, is reported by
//!   `epoll_wait` up to sixteen calls, or 50 microseconds, later.
//! - `dprintf` on a connection resets it on other machines than x86-64.
//! - A signal that arrives while a call still spins does not interrupt it. Sleeping calls are restarted if every
//!   handler has `SA_RESTART`, else none is.
//! - `dup2` onto a private descriptor is `EBADF`: these begin at three quarters of the limit.
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
mod listener;
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
