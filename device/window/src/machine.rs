//! The instructions of each machine. The crate's page has the table.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use x86_64 as instructions;

#[cfg(all(target_arch = "aarch64", not(miri)))]
use aarch64 as instructions;

#[cfg(all(target_arch = "powerpc64", not(miri)))]
use powerpc64 as instructions;

#[cfg(miri)]
use interpreted as instructions;

pub(crate) use instructions::{Lines, fence};

#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "powerpc64"
)))]
compile_error!("which fences a window needs is known for x86-64, Arm and POWER only");

#[cfg(not(target_endian = "little"))]
compile_error!("words of windows are little-endian and are not swapped");

/// Calls `each` with an address in every line of `size` bytes from `first` on, which lies at a multiple of
/// [`crate::WORD`]. No line is shorter than `step`, a power of two.
#[cfg(not(miri))]
#[inline]
fn each_line(
    first: std::ptr::NonNull<u8>,
    size: usize,
    step: usize,
    mut each: impl FnMut(*const u8),
) {
    let first = first.as_ptr().cast_const();
    let misaligned = first.addr() & (step - 1);
    let start = first.wrapping_sub(misaligned);
    for distance in (0..size + misaligned).step_by(step) {
        each(start.wrapping_add(distance));
    }
}

/// Total store order for cached memory: only the compiler needs a fence. `sfence` orders combined stores and
/// write-backs; `mfence` orders all (Intel SDM volume 3, sections 9.2 and 12.3; volume 2, CLWB
/// and CLFLUSHOPT).
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64 {
    use core::arch::asm;
    use std::ptr::NonNull;
    use std::sync::atomic::{self, AtomicU32, Ordering};

    use super::each_line;
    use crate::Fence;

    #[inline]
    pub(crate) fn fence(fence: Fence) {
        match fence {
            Fence::Release => atomic::fence(Ordering::Release),
            Fence::Acquire => atomic::fence(Ordering::Acquire),
            // SAFETY: a fence changes no register and no memory.
            Fence::Drain => unsafe { asm!("sfence", options(nostack, preserves_flags)) },
            // SAFETY: the instruction is a barrier: it accesses no memory, no stack and no flags.
            Fence::Full => unsafe { asm!("mfence", options(nostack, preserves_flags)) },
        }
    }

    /// How lines are written back and dropped.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Lines {
        has_clwb: bool,
        has_clflushopt: bool,
    }

    /// No line is shorter.
    const STEP: usize = 64;

    /// Bits of EBX of leaf 7.
    const CLFLUSHOPT: u32 = 1 << 23;
    const CLWB: u32 = 1 << 24;
    /// The processor was asked.
    const KNOWN: u32 = 1;
    /// Detected features; 0 before the detection.
    static FEATURES: AtomicU32 = AtomicU32::new(0);

    impl Lines {
        /// As this processor does. It is asked once: on a virtual machine the answer comes from its host.
        pub(crate) fn detect() -> Self {
            let known = FEATURES.load(Ordering::Relaxed);
            let features = if known & KNOWN != 0 {
                known
            } else {
                let features = if cpuid(0).0 >= 7 { cpuid(7).1 } else { 0 };
                let features = features & (CLWB | CLFLUSHOPT);
                FEATURES.store(features | KNOWN, Ordering::Relaxed);
                features
            };
            Self {
                has_clwb: features & CLWB != 0,
                has_clflushopt: features & CLFLUSHOPT != 0,
            }
        }

        /// The bytes that go to memory at once.
        pub(crate) const fn size(self) -> usize {
            STEP
        }

        /// Writes back. The bytes need not be mapped for it to be sound: a fault would be a signal.
        #[inline]
        pub(crate) fn write_back(self, first: NonNull<u8>, size: usize) {
            if self.has_clwb {
                // SAFETY: it changes no register, and no byte that can be loaded.
                each_line(first, size, STEP, |line| unsafe {
                    asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags));
                });
            } else {
                self.invalidate(first, size);
            }
        }

        /// Writes lines back and invalidates them.
        #[inline]
        pub(crate) fn invalidate(self, first: NonNull<u8>, size: usize) {
            if self.has_clflushopt {
                // SAFETY: `each_line` passes addresses within the mapped range; the instruction changes no contents.
                each_line(first, size, STEP, |line| unsafe {
                    asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                });
            } else {
                // SAFETY: `each_line` passes addresses within the mapped range; the instruction changes no contents.
                each_line(first, size, STEP, |line| unsafe {
                    asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags));
                });
            }
        }
    }

    #[cfg(test)]
    impl Lines {
        pub(crate) const fn oldest() -> Self {
            Self {
                has_clwb: false,
                has_clflushopt: false,
            }
        }
    }

    /// EAX and EBX of a leaf, subleaf 0.
    fn cpuid(leaf: u32) -> (u32, u32) {
        let (eax, ebx): (u32, u64);
        // SAFETY: the instruction is part of x86-64, and changes the four registers named or saved.
        unsafe {
            asm!(
                "mov {saved}, rbx",
                "cpuid",
                "xchg {saved}, rbx",
                saved = out(reg) ebx,
                inout("eax") leaf => eax,
                inout("ecx") 0 => _,
                out("edx") _,
                options(nostack, preserves_flags),
            );
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "CPUID clears the upper half of the register"
        )]
        (eax, ebx as u32)
    }
}

/// The peer may be outside of the inner shareable domain, which the language's fences cover: hence `osh`. Lines
/// are maintained to the point of coherency, which only `dsb` waits for (Arm ARM, B2.3, D7.5.9).
#[cfg(all(target_arch = "aarch64", not(miri)))]
mod aarch64 {
    use core::arch::asm;
    use std::ptr::NonNull;

    use super::each_line;
    use crate::Fence;

    #[inline]
    pub(crate) fn fence(fence: Fence) {
        match fence {
            // SAFETY: a barrier changes no register and no memory.
            Fence::Release => unsafe { asm!("dmb osh", options(nostack, preserves_flags)) },
            // SAFETY: the instruction is a barrier: it accesses no memory, no stack and no flags.
            Fence::Acquire => unsafe { asm!("dmb oshld", options(nostack, preserves_flags)) },
            // SAFETY: the instruction is a barrier: it accesses no memory, no stack and no flags.
            Fence::Drain | Fence::Full => unsafe {
                asm!("dsb osh", options(nostack, preserves_flags));
            },
        }
    }

    /// How lines are written back and dropped.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Lines {
        /// Bytes of the shortest cache line.
        step: usize,
        size: usize,
    }

    impl Lines {
        /// Line flusher for this processor.
        pub(crate) fn detect() -> Self {
            let register: u64;
            // SAFETY: Linux lets programs read it (or answers in its place); it changes nothing.
            unsafe {
                asm!("mrs {}, ctr_el0", out(reg) register, options(nomem, nostack, preserves_flags));
            }
            // DminLine and CWG: the shortest line and the largest write-back, as exponents of two of words of 4 bytes.
            // The latter is zero if it is not reported.
            let step = 4 << (register >> 16 & 0xf);
            let size = match register >> 24 & 0xf {
                0 => step,
                granule => 4 << granule,
            };
            Self { step, size }
        }

        /// The bytes that go to memory at once.
        pub(crate) const fn size(self) -> usize {
            self.size
        }

        /// Writes lines back to memory.
        #[inline]
        pub(crate) fn write_back(self, first: NonNull<u8>, size: usize) {
            // SAFETY: it changes no register, and no byte that can be loaded.
            each_line(first, size, self.step, |line| unsafe {
                asm!("dc cvac, {}", in(reg) line, options(nostack, preserves_flags));
            });
        }

        /// Writes back and drops: programs may not drop alone.
        #[inline]
        pub(crate) fn invalidate(self, first: NonNull<u8>, size: usize) {
            // SAFETY: `each_line` passes addresses within the mapped range; the instruction changes no contents.
            each_line(first, size, self.step, |line| unsafe {
                asm!("dc civac, {}", in(reg) line, options(nostack, preserves_flags));
            });
        }
    }
}

/// The functions of `machine.c`.
#[cfg(all(target_arch = "powerpc64", not(miri)))]
mod powerpc64 {
    use std::ptr::NonNull;

    use super::each_line;
    use crate::Fence;

    unsafe extern "C" {
        safe fn millrace_window_sync();
        safe fn millrace_window_lwsync();
        safe fn millrace_window_dcbst(line: *const u8);
        safe fn millrace_window_dcbf(line: *const u8);
    }

    #[inline]
    pub(crate) fn fence(fence: Fence) {
        match fence {
            Fence::Release | Fence::Acquire => millrace_window_lwsync(),
            Fence::Drain | Fence::Full => millrace_window_sync(),
        }
    }

    /// How lines are written back and dropped.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Lines;

    const SIZE: usize = 128;

    impl Lines {
        /// Line flusher for this processor.
        pub(crate) const fn detect() -> Self {
            Self
        }

        /// The bytes that go to memory at once.
        pub(crate) const fn size(self) -> usize {
            SIZE
        }

        /// Writes lines back to memory.
        #[inline]
        pub(crate) fn write_back(self, first: NonNull<u8>, size: usize) {
            each_line(first, size, SIZE, |line| millrace_window_dcbst(line));
        }

        /// Writes lines back and invalidates them.
        #[inline]
        pub(crate) fn invalidate(self, first: NonNull<u8>, size: usize) {
            each_line(first, size, SIZE, |line| millrace_window_dcbf(line));
        }
    }
}

/// Interpreter (miri): no lines and no instructions.
#[cfg(miri)]
mod interpreted {
    use std::ptr::NonNull;
    use std::sync::atomic::{self, Ordering};

    use crate::Fence;

    pub(crate) fn fence(fence: Fence) {
        atomic::fence(match fence {
            Fence::Release => Ordering::Release,
            Fence::Acquire => Ordering::Acquire,
            Fence::Drain | Fence::Full => Ordering::SeqCst,
        });
    }

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Lines;

    impl Lines {
        pub(crate) const fn detect() -> Self {
            Self
        }

        pub(crate) const fn size(self) -> usize {
            crate::LINE
        }

        pub(crate) fn write_back(self, _: NonNull<u8>, _: usize) {}

        pub(crate) fn invalidate(self, _: NonNull<u8>, _: usize) {}
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::ptr::NonNull;

    use super::*;

    #[test]
    fn every_line_is_met_once() {
        let buffer = [0_u64; 64];
        let first = NonNull::from(&buffer).cast::<u8>();
        let aligned = first.as_ptr().align_offset(64);
        let met = |offset: usize, size| {
            let mut lines = Vec::new();
            let from = NonNull::new(first.as_ptr().wrapping_add(aligned + offset));
            each_line(from.expect("within the buffer"), size, 64, |line| {
                lines.push(line.addr() - first.addr().get() - aligned);
            });
            lines
        };
        assert_eq!(met(0, 64), [0]);
        assert_eq!(met(8, 56), [0]);
        assert_eq!(met(8, 57), [0, 64]);
        assert_eq!(met(56, 8), [0]);
        assert_eq!(met(64, 129), [64, 128, 192]);
        assert_eq!(met(0, 0), [0_usize; 0]);
    }

    #[test]
    fn flushing_changes_no_byte() {
        let buffer: Vec<u64> = (0..1024).collect();
        let first = NonNull::from(buffer.as_slice()).cast::<u8>();
        let lines = Lines::detect();
        assert!(lines.size().is_power_of_two() && lines.size() >= 16);
        lines.write_back(first, 8192);
        fence(crate::Fence::Drain);
        lines.invalidate(first, 8192);
        fence(crate::Fence::Full);
        assert!(buffer.iter().copied().eq(0..1024));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn older_processors_flush_by_older_instructions() {
        let buffer: Vec<u64> = (0..64).collect();
        let first = NonNull::from(buffer.as_slice()).cast::<u8>();
        // Every x86-64 processor has the oldest.
        let lines = Lines::oldest();
        lines.write_back(first, 512);
        lines.invalidate(first, 512);
        assert!(buffer.iter().copied().eq(0..64));
    }
}
