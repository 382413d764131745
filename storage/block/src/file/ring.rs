//! Requests of one queue in an io_uring.
//!
//! # Ownership
//! | object | owner |
//! |---|---|
//! | a slot's buffer | the kernel, from the push of its entry until its completion is taken |
//! | everything else | the queue |
//!
//! # Invariants
//! 1. An incomplete entry names the file, which the ring keeps open through its reference, and the memory of its slot's
//!    buffer, which no thread accesses and which is not freed meanwhile: when the ring is dropped, it waits, or leaks
//!    the memory.
//! 2. No more entries are in flight than there are slots, and each ring has space for all of them.
//!
//! The ring may move between threads: it has none of the flags that bind it to one. When the thread that submitted a
//! request ends, the kernel cancels the request if it waits for a worker; such a request is submitted again.

use std::mem;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use rustix::io::Errno;

use super::backing::{AGAIN_MAX, Backing, PUNCH, ZERO};
use super::errno::failure;
use crate::{Completion, Error, ErrorKind, Operation, Request};

/// `RWF_DSYNC` of `linux/fs.h`.
const RWF_DSYNC: i32 = 2;

/// A request in flight.
#[derive(Debug)]
struct Slot {
    request: Request,
    /// Bytes transferred so far.
    done: usize,
    /// Number of resubmissions.
    again: u32,
}

/// An io_uring and its requests in flight.
pub(super) struct Ring {
    ring: IoUring,
    backing: Arc<Backing>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Entries not submitted to the kernel yet.
    unsubmitted: usize,
    /// Whether `io_uring_enter` failed for good; completions are not polled any more.
    broken: bool,
}

impl Ring {
    /// A ring for `depth` requests.
    ///
    /// # Errors
    /// The kernel's error: io_uring is missing, forbidden, or lacks an operation.
    pub(super) fn new(backing: Arc<Backing>, depth: usize) -> std::io::Result<Self> {
        let entries = u32::try_from(depth).unwrap_or(u32::MAX);
        let ring = IoUring::new(entries)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Fsync::CODE,
            opcode::Fallocate::CODE,
        ];
        if !needed.iter().all(|code| probe.is_supported(*code)) {
            return Err(Errno::OPNOTSUPP.into());
        }
        Ok(Self {
            ring,
            backing,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).collect(),
            unsubmitted: 0,
            broken: false,
        })
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds a validated request to the ring; the next poll submits it to the kernel.
    ///
    /// # Panics
    /// If there is no slot for it.
    pub(super) fn submit(&mut self, request: Request) {
        let slot = self.free.pop().expect("the queue counts what is in flight");
        self.slots[slot] = Some(Slot {
            request,
            done: 0,
            again: 0,
        });
        self.push(slot);
    }

    /// Submits new entries to the kernel, and takes a completion if there is one.
    pub(super) fn poll(&mut self) -> Option<Completion> {
        if self.unsubmitted > 0 || self.broken {
            if let Some(completion) = self.enter(0) {
                return Some(completion);
            }
        }
        self.take()
    }

    /// Waits for a completion; none if nothing is in flight.
    pub(super) fn wait(&mut self) -> Option<Completion> {
        while self.in_flight() > 0 {
            if let Some(completion) = self.take() {
                return Some(completion);
            }
            if let Some(completion) = self.enter(1) {
                return Some(completion);
            }
        }
        None
    }

    /// Submits new entries and waits for `wanted` completions. If the kernel fails for good, a request fails and its
    /// memory is leaked.
    fn enter(&mut self, wanted: usize) -> Option<Completion> {
        if self.broken {
            return self.give_up();
        }
        let entered = self.ring.submit_and_wait(wanted);
        self.unsubmitted = self.ring.submission().len();
        let error = entered.err()?;
        match Errno::from_io_error(&error) {
            // Retried: memory is short, or completions must be taken first.
            Some(Errno::INTR | Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => None,
            _ => {
                self.broken = true;
                self.give_up()
            }
        }
    }

    #[cold]
    fn give_up(&mut self) -> Option<Completion> {
        let slot = self.slots.iter().position(Option::is_some)?;
        let Slot { request, .. } = self.slots[slot].take().expect("found above");
        self.free.push(slot);
        // The kernel may keep the memory for good (invariant 1).
        mem::forget(request.buffer);
        let context = "the io_uring cannot be entered any more";
        Some(Completion {
            token: request.token,
            result: Err(Error::new(ErrorKind::Device, context)),
            buffer: None,
        })
    }

    /// Takes a completion from the ring.
    fn take(&mut self) -> Option<Completion> {
        while !self.broken {
            let entry = self.ring.completion().next()?;
            if let Some(completion) = self.completed(&entry) {
                return Some(completion);
            }
        }
        None
    }

    /// Completes the request of an entry; none if the request continues.
    fn completed(&mut self, entry: &cqueue::Entry) -> Option<Completion> {
        let index = usize::try_from(entry.user_data()).expect("it was an index");
        let slot = self.slots[index]
            .as_mut()
            .expect("a request completes once");
        let len = slot
            .request
            .buffer
            .as_ref()
            .map_or(0, |buffer| buffer.len());
        let result = match u32::try_from(entry.result()) {
            Ok(count) => {
                slot.done += count as usize;
                match (slot.done < len, count) {
                    (false, _) => Ok(()),
                    // The file was truncated.
                    (true, 0) => Err(Errno::NXIO),
                    (true, _) => {
                        self.push(index);
                        return None;
                    }
                }
            }
            Err(_) => Err(Errno::from_raw_os_error(-entry.result())),
        };
        let result = match result {
            Err(Errno::INTR | Errno::AGAIN | Errno::CANCELED) if slot.again < AGAIN_MAX => {
                slot.again += 1;
                self.push(index);
                return None;
            }
            // A system call instead, which has fallbacks.
            Err(Errno::OPNOTSUPP) => self.backing.execute(&mut slot.request),
            Err(errno) => Err(failure(errno, &slot.request.operation, slot.request.lba)),
            Ok(()) => Ok(()),
        };
        let Slot { request, .. } = self.slots[index].take().expect("it was there above");
        self.free.push(index);
        Some(Completion {
            token: request.token,
            result,
            buffer: request.buffer,
        })
    }

    /// Pushes an entry for the rest of a slot's request into the submission ring.
    fn push(&mut self, index: usize) {
        if self.broken {
            return;
        }
        let slot = self.slots[index].as_mut().expect("a slot in use");
        let entry = entry(&self.backing, slot).user_data(index as u64);
        // SAFETY: the file and the memory that the entry names stay until it has completed (invariant 1).
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // Invariant 2.
        pushed.expect("the submission ring has room for all slots");
        self.unsubmitted += 1;
    }
}

/// The entry for the rest of a slot's request.
fn entry(backing: &Backing, slot: &mut Slot) -> squeue::Entry {
    let file = types::Fd(backing.file().as_raw_fd());
    let (operation, done) = (slot.request.operation, slot.done);
    let offset = backing.bytes(slot.request.lba.0);
    let allocate = |blocks, mode: rustix::fs::FallocateFlags| {
        let mode = i32::try_from(mode.bits()).expect("the flags are small");
        let entry = opcode::Fallocate::new(file, backing.bytes(blocks));
        entry.offset(offset).mode(mode).build()
    };
    let rest = match &mut slot.request.buffer {
        Some(buffer) => &mut buffer[done..],
        None => &mut [],
    };
    let len = u32::try_from(rest.len()).expect("buffers have 2 GiB at most");
    let (address, offset) = (rest.as_mut_ptr(), offset + done as u64);
    match operation {
        Operation::Read => opcode::Read::new(file, address, len).offset(offset).build(),
        Operation::Write => opcode::Write::new(file, address, len)
            .offset(offset)
            .build(),
        Operation::WriteThrough => {
            let write = opcode::Write::new(file, address, len).offset(offset);
            write.rw_flags(RWF_DSYNC).build()
        }
        Operation::Flush => {
            let flush = opcode::Fsync::new(file);
            flush.flags(types::FsyncFlags::DATASYNC).build()
        }
        Operation::Deallocate(blocks) => allocate(blocks, PUNCH),
        Operation::WriteZeroes(blocks) => allocate(blocks, ZERO),
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.wait().is_some() {}
    }
}
