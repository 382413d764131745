//! `select` with user-level members, by way of [`super::poll`].

use std::os::fd::RawFd;
use std::time::Duration;

use libc::{c_short, pollfd};

use crate::errno::{Errno, Outcome};

use super::poll::poll;
use super::poll_target::PollTarget;
use super::wait::Deadline;

/// As the kernel's `fs/select.c` has them.
const READ: c_short = libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND;
const WRITE: c_short = libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND;
const EXCEPT: c_short = libc::POLLPRI;
const READ_ANSWER: c_short = READ | libc::POLLHUP | libc::POLLERR;
const WRITE_ANSWER: c_short = WRITE | libc::POLLERR;

const WORD: usize = usize::BITS as usize;
/// Number of members that are kept on the stack.
const FEW: usize = 64;

/// A program's set of descriptors, or null. The C library's type ends at 1024, the kernel's does not.
#[derive(Debug)]
pub(crate) struct Bits {
    first: *mut usize,
}

impl Bits {
    /// # Safety
    /// `first` is null, or an array of words with a bit for each number that is asked for as long as this lives.
    pub(crate) unsafe fn new(first: *mut libc::fd_set) -> Self {
        Self {
            first: first.cast(),
        }
    }

    fn has(&self, number: usize) -> bool {
        if self.first.is_null() {
            return false;
        }
        // SAFETY: the array has the number's word, as `new` was promised.
        let word = unsafe { self.first.wrapping_add(number / WORD).read_unaligned() };
        word >> (number % WORD) & 1 != 0
    }

    fn clear(&mut self, number: usize) {
        if self.first.is_null() {
            return;
        }
        let place = self.first.wrapping_add(number / WORD);
        // SAFETY: the array has the word of the number, as `Bits::new` asks for.
        let word = unsafe { place.read_unaligned() };
        // SAFETY: the array has the word of the number, as `Bits::new` asks for.
        unsafe { place.write_unaligned(word & !(1 << (number % WORD))) };
    }
}

/// The three sets of a call.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) count: usize,
    pub(crate) read: Bits,
    pub(crate) write: Bits,
    pub(crate) except: Bits,
}

impl Asked {
    /// The numbers that are in some set, with the events that are asked of them.
    fn members(&self) -> impl Iterator<Item = pollfd> {
        (0..self.count).filter_map(|number| {
            let mut events = 0;
            for (bits, bit) in [
                (&self.read, READ),
                (&self.write, WRITE),
                (&self.except, EXCEPT),
            ] {
                events |= if bits.has(number) { bit } else { 0 };
            }
            let fd = RawFd::try_from(number).ok()?;
            (events != 0).then_some(pollfd {
                fd,
                events,
                revents: 0,
            })
        })
    }

    /// Whether the condition holds for any number of the sets.
    pub(crate) fn any(&self, is_such: impl Fn(RawFd) -> bool) -> bool {
        self.members().any(|member| is_such(member.fd))
    }

    /// Clears the bits of members that are not ready; the number of bits that remain.
    fn answer(&mut self, members: &[pollfd]) -> usize {
        let mut found = 0;
        for member in members {
            let Ok(number) = usize::try_from(member.fd) else {
                continue;
            };
            for (bits, answer) in [
                (&mut self.read, READ_ANSWER),
                (&mut self.write, WRITE_ANSWER),
                (&mut self.except, EXCEPT),
            ] {
                if bits.has(number) {
                    if member.revents & answer != 0 {
                        found += 1;
                    } else {
                        bits.clear(number);
                    }
                }
            }
        }
        found
    }
}

/// `select`, `pselect`: how many bits are left. `None` waits for ever.
///
/// # Errors
/// `EBADF` for a number that is not open; `EINTR` by a signal, and then the sets are as they were.
///
/// # Safety
/// `mask` is null or a signal mask.
pub(crate) unsafe fn select<S: PollTarget>(
    asked: &mut Asked,
    timeout: Option<Duration>,
    mask: *const libc::sigset_t,
) -> Outcome<usize> {
    let mut few = [pollfd {
        fd: -1,
        events: 0,
        revents: 0,
    }; FEW];
    let mut many;
    let mut count = 0;
    for member in asked.members() {
        if count < FEW {
            few[count] = member;
        }
        count += 1;
    }
    let members = if count <= FEW {
        &mut few[..count]
    } else {
        many = asked.members().collect::<Vec<_>>();
        &mut many[..]
    };
    let deadline = Deadline::after(timeout);
    let mut left = timeout;
    loop {
        // SAFETY: `mask` is null or a signal mask, as this function asks for.
        unsafe { poll::<S>(members, left, mask) }?;
        if members
            .iter()
            .any(|member| member.revents & libc::POLLNVAL != 0)
        {
            return Err(Errno(libc::EBADF));
        }
        let is_answered = members
            .iter()
            .any(|member| member.revents & answers_to(member) != 0);
        if is_answered || deadline.is_over() {
            for member in members.iter_mut().filter(|member| member.fd < 0) {
                (member.fd, member.revents) = (!member.fd, 0);
            }
            return Ok(asked.answer(members));
        }
        // `poll` reports a hang-up that was not asked for; `select` does not, and waits on for the other members.
        for member in members.iter_mut().filter(|member| member.revents != 0) {
            member.fd = !member.fd;
        }
        left = deadline.left();
    }
}

/// Bits of the answer of `poll` that `select` reports.
fn answers_to(member: &pollfd) -> c_short {
    let mut answers = 0;
    for (asked, answer) in [(READ, READ_ANSWER), (WRITE, WRITE_ANSWER), (EXCEPT, EXCEPT)] {
        answers |= if member.events & asked != 0 {
            answer
        } else {
            0
        };
    }
    answers
}
