//! Which processes hold a record, and whether they live.
//!
//! A killed process does not release its records. So each process has a *token*, and locks the byte at that offset in
//! the slab's file: the kernel unlocks it when the process exits.
//!
//! # Protocol
//! 1. [`Record::holders`] counts the tokens of a record, and one more for a process without a token there: it has never
//!    shared the record, or all slots were taken ([`flag::MANY`]).
//! 2. Before a fork or a spawn, each record gets a token for the process that is *coming*. That process locks its byte
//!    and then *claims* the token. Only processes with a claimed token may read wake-ups; the claim wakes the parent.
//! 3. A process that clears a token decrements the count. The process that decrements it to zero frees the record.
//! 4. A claimed token whose byte is not locked belongs to an exited process. A token that has been coming for longer
//!    than [`PATIENCE_S`] belongs to a process that failed to start, or that does not use this library. Any process may
//!    remove both.
//! 5. No process closes a descriptor of a slab in which it has locked a byte: the kernel would unlock it.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::clock::now;
use crate::real;
use crate::slab::{Record, Slab, flag};

/// Flag of a token that its process has claimed.
const CLAIMED: u32 = 1 << 31;
/// Below the second of its making: a random number.
const SECOND_SHIFT: u32 = 20;
const SECOND_MASK: u32 = 0x7ff;
/// How long a token may be coming.
const PATIENCE_S: u32 = 10;

/// Token of this process, or 0.
static OWN: AtomicU32 = AtomicU32::new(0);

/// Token of this process; 0 without one.
pub(crate) fn own() -> u32 {
    OWN.load(Ordering::Relaxed)
}

/// Adopts the token that the parent has made for this process.
pub(crate) fn take(token: u32) {
    OWN.store(token, Ordering::Relaxed);
}

/// Makes a token for a process that is coming, and one for this process if it has none.
pub(crate) fn make() -> u32 {
    if own() == 0 {
        take(random());
    }
    random()
}

/// Locks the byte of a token.
pub(crate) fn lock(slab: Slab, token: u32) -> bool {
    fcntl(slab, libc::F_SETLK, token).is_some()
}

fn random() -> u32 {
    let mut word = 0u32;
    // Without randomness two processes may share a token: then an exited one counts as running.
    // SAFETY: `word` has four writable bytes.
    let _filled = unsafe { libc::getrandom((&raw mut word).cast(), 4, libc::GRND_NONBLOCK) };
    let low = word & ((1 << SECOND_SHIFT) - 1);
    low.max(1) | second() << SECOND_SHIFT
}

fn second() -> u32 {
    u32::try_from(now().as_secs() & u64::from(SECOND_MASK)).unwrap_or(0)
}

fn is_dead(slab: Slab, token: u32) -> bool {
    if token & CLAIMED == 0 {
        let age = second().wrapping_sub(token >> SECOND_SHIFT) & SECOND_MASK;
        return age > PATIENCE_S;
    }
    // A process counts as running if the kernel cannot tell.
    fcntl(slab, libc::F_GETLK, token & !CLAIMED) == Some(libc::F_UNLCK)
}

/// Locks the byte of a token for writing, or tests for another lock; the type of lock that the kernel returns.
fn fcntl(slab: Slab, command: libc::c_int, token: u32) -> Option<libc::c_int> {
    // SAFETY: all bytes zero are a lock.
    let mut place: libc::flock = unsafe { std::mem::zeroed() };
    place.l_type = libc::c_short::try_from(libc::F_WRLCK).ok()?;
    place.l_start = token.into();
    place.l_len = 1;
    let arguments = [slab.file, command].map(|number| usize::try_from(number).unwrap_or(0));
    let place_at = ptr::from_mut(&mut place).addr();
    // SAFETY: the kernel reads and writes the one structure, which outlives the call.
    let result = unsafe {
        real::syscall(
            libc::SYS_fcntl,
            arguments[0],
            arguments[1],
            place_at,
            0,
            0,
            0,
        )
    };
    (result == 0).then_some(place.l_type.into())
}

impl Record {
    /// Adds a reference for a process that is coming. This process holds the record, and has locked its own token.
    pub(crate) fn reserve_ref(&self, slab: Slab, token: u32) {
        let own = own() | CLAIMED;
        if !self.tokens.has(own) {
            self.put(slab, own);
        }
        self.holders.fetch_add(1, Ordering::Relaxed);
        self.put(slab, token);
    }

    fn put(&self, slab: Slab, token: u32) {
        if self.tokens.change(0, token) {
            return;
        }
        self.reap_dead_owners(slab);
        if !self.tokens.change(0, token) {
            self.set(flag::MANY);
        }
    }

    /// The process that was expected does not come.
    pub(crate) fn cancel_ref(&self, token: u32) {
        if self.tokens.change(token, 0) || self.has(flag::MANY) {
            self.holders.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Claims the reference for this process by its token. False if the token was removed, or never there.
    pub(crate) fn claim(&self, token: u32) -> bool {
        self.tokens.change(token, token | CLAIMED)
            || self.tokens.has(token | CLAIMED)
            || self.has(flag::MANY)
    }

    /// Releases the record for this process; true if that was the last reference.
    #[must_use]
    pub(crate) fn release_ref(&self, slab: Slab) -> bool {
        if self.holders.load(Ordering::Relaxed) > 1 {
            self.reap_dead_owners(slab);
        }
        self.take_own();
        self.holders.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Removes this process's token from the record, if there is one; the count stays.
    pub(crate) fn take_own(&self) {
        if own() != 0 {
            self.tokens.change(own() | CLAIMED, 0);
        }
    }

    /// Undoes [`Record::release_on_exit`] after a failed `exec`.
    pub(crate) fn reacquire(&self, slab: Slab) {
        self.holders.fetch_add(1, Ordering::Relaxed);
        if own() != 0 {
            self.put(slab, own() | CLAIMED);
        }
    }

    /// Releases the record for processes that exited, or never came; true if no reference remains.
    pub(crate) fn reap_dead_owners(&self, slab: Slab) -> bool {
        let own = own() | CLAIMED;
        let mut was_last = false;
        for place in &self.tokens.0 {
            let token = place.load(Ordering::Acquire);
            if token != 0
                && token != own
                && is_dead(slab, token)
                && place
                    .compare_exchange(token, 0, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                was_last |= self.holders.fetch_sub(1, Ordering::AcqRel) == 1;
            }
        }
        was_last
    }

    /// Whether other processes may read wake-ups that are meant for this one.
    pub(crate) fn is_shared(&self, slab: Slab) -> bool {
        self.holders.load(Ordering::Relaxed) > 1 && self.has_others() && {
            self.reap_dead_owners(slab);
            self.has_others()
        }
    }

    fn has_others(&self) -> bool {
        let own = own() | CLAIMED;
        let is_other = |place: &AtomicU32| {
            let token = place.load(Ordering::Relaxed);
            token & CLAIMED != 0 && token != own
        };
        self.has(flag::MANY) || self.tokens.0.iter().any(is_other)
    }

    /// Whether another process holds the record, or is about to.
    pub(crate) fn is_held_by_others(&self, slab: Slab) -> bool {
        self.holders.load(Ordering::Relaxed) > 1 && {
            self.reap_dead_owners(slab);
            self.holders.load(Ordering::Relaxed) > 1
        }
    }
}
