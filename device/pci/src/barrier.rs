//! Order between this processor's memory and a device.
//!
//! A device reads and writes memory like one more processor, but its registers are another matter: a store
//! to one is ordered after stores to memory only as the architecture says.
//!
//! | | x86-64 | Arm | POWER |
//! |---|---|---|---|
//! | memory loads and stores before a register store | kept by the hardware | `dmb osh` | `sync` |
//! | a register load before memory loads | kept by the hardware | `dmb oshld` | `sync` |
//! | loads of memory that the device writes, one after the other | kept by the hardware | `dmb oshld` | `lwsync` |
//! | a store to shared memory before a load from it | `mfence` | `dmb osh` | `sync` |
//!
//! Loads are in the first row because a doorbell also hands memory back: a completion that was read, a buffer
//! whose content was taken. `dmb oshst` would order stores alone, and let the device overwrite what is still
//! to be read.
//!
//! Where the hardware keeps the order, the compiler still needs a fence. Elsewhere the fences of the language are not
//! enough: on Arm they cover the inner shareable domain, which need not include a device, and on
//! POWER a release is `lwsync`, which does not order accesses to uncached memory.
//!
//! On POWER each of these is a call of a function in C, since inline assembly for it became stable only
//! after the oldest Rust that builds this crate; the call costs a small part of what `sync` does. Other
//! architectures are refused when the crate is compiled: a fence that is not strong enough would be found
//! by lost data.
//!
//! Sources: AMD64 manual volume 2, section 7.4 (memory types); Arm ARM, B2.3 (barriers, outer shareable
//! domain); Power ISA 3.0 book II, section 1.7 and book III, appendix on caching-inhibited storage.

#[cfg(target_arch = "x86_64")]
use x86_64 as machine;

#[cfg(target_arch = "aarch64")]
use aarch64 as machine;

#[cfg(target_arch = "powerpc64")]
use powerpc64 as machine;

#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "powerpc64"
)))]
compile_error!(
    "which barriers order memory against a device is known for x86-64, Arm and POWER only"
);

#[cfg(not(target_endian = "little"))]
compile_error!("registers and rings are little-endian and are not swapped");

/// What was stored to memory before is visible to the device, and what was loaded before has been loaded,
/// before it sees a register store after this: a command before its doorbell, a buffer's content before the
/// command that fills it anew.
#[inline]
pub fn before_register_store() {
    machine::before_register_store();
}

/// A register load before this is done before memory is loaded after it: a status before what it announces.
#[inline]
pub fn after_register_load() {
    machine::after_register_load();
}

/// A load before this, of memory that the device writes, is done before the loads after it: the phase bit
/// of a completion before the rest of it.
#[inline]
pub fn before_next_load() {
    machine::before_next_load();
}

/// Orders earlier stores to memory before later loads, as the device sees them: a shadow doorbell before the event
/// index that the device may have written.
#[inline]
pub fn between_store_and_load() {
    machine::between_store_and_load();
}

/// Total store order; stores to registers stay behind stores to memory, loads behind loads.
#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::sync::atomic::{Ordering, compiler_fence, fence};

    #[inline]
    pub(super) fn before_register_store() {
        compiler_fence(Ordering::SeqCst);
    }

    #[inline]
    pub(super) fn after_register_load() {
        compiler_fence(Ordering::SeqCst);
    }

    #[inline]
    pub(super) fn before_next_load() {
        compiler_fence(Ordering::SeqCst);
    }

    #[inline]
    pub(super) fn between_store_and_load() {
        fence(Ordering::SeqCst);
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use core::arch::asm;

    #[inline]
    pub(super) fn before_register_store() {
        // SAFETY: a barrier changes no register and no memory.
        unsafe { asm!("dmb osh", options(nostack, preserves_flags)) };
    }

    #[inline]
    pub(super) fn after_register_load() {
        // SAFETY: the instruction is a barrier: it accesses no memory, no stack and no flags.
        unsafe { asm!("dmb oshld", options(nostack, preserves_flags)) };
    }

    #[inline]
    pub(super) fn before_next_load() {
        // SAFETY: the instruction is a barrier: it accesses no memory, no stack and no flags.
        unsafe { asm!("dmb oshld", options(nostack, preserves_flags)) };
    }

    #[inline]
    pub(super) fn between_store_and_load() {
        // SAFETY: the instruction is a barrier: it accesses no memory, no stack and no flags.
        unsafe { asm!("dmb osh", options(nostack, preserves_flags)) };
    }
}

/// The functions of `barrier.c`.
#[cfg(target_arch = "powerpc64")]
mod powerpc64 {
    unsafe extern "C" {
        safe fn millrace_pci_sync();
        safe fn millrace_pci_lwsync();
    }

    #[inline]
    pub(super) fn before_register_store() {
        millrace_pci_sync();
    }

    #[inline]
    pub(super) fn after_register_load() {
        millrace_pci_sync();
    }

    #[inline]
    pub(super) fn before_next_load() {
        millrace_pci_lwsync();
    }

    #[inline]
    pub(super) fn between_store_and_load() {
        millrace_pci_sync();
    }
}
