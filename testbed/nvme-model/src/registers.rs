//! Controller registers (base specification 1.4, section 3.1) as they lie between the host's threads and
//! the controller.
//!
//! # Ownership
//! | what | written by | read by |
//! |---|---|---|
//! | `stores` | host | the step, which takes them in order |
//! | `pending` | host sets it (release), the step clears it | the step (acquire) |
//! | `configuration`, `admin_*`, `mask` | host, for its own loads | host |
//! | `status` | the step (release) | host (acquire) |
//! | doorbells | host (release); the step takes values out | the step (acquire) |
//!
//! A store to a doorbell is one atomic store. A store to another register goes through a lock that the
//! step holds only while it takes the list.

use std::mem;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::host::Doorbells;
use crate::options::Options;

pub(crate) const CAPABILITIES: u64 = 0x00;
pub(crate) const VERSION: u64 = 0x08;
pub(crate) const INTERRUPT_MASK_SET: u64 = 0x0c;
pub(crate) const INTERRUPT_MASK_CLEAR: u64 = 0x10;
pub(crate) const CONFIGURATION: u64 = 0x14;
pub(crate) const STATUS: u64 = 0x1c;
pub(crate) const ADMIN_ATTRIBUTES: u64 = 0x24;
pub(crate) const ADMIN_SUBMISSION: u64 = 0x28;
pub(crate) const ADMIN_COMPLETION: u64 = 0x30;
pub(crate) const DOORBELLS: u64 = 0x1000;

/// CSTS: ready; fatal; shutdown occurring and complete.
pub(crate) const READY: u32 = 1 << 0;
pub(crate) const FATAL: u32 = 1 << 1;
pub(crate) const SHUTDOWN_OCCURRING: u32 = 1 << 2;
pub(crate) const SHUTDOWN_COMPLETE: u32 = 2 << 2;

/// A store to a register by the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store {
    pub(crate) offset: u64,
    pub(crate) value: u32,
}

/// The registers.
#[derive(Debug)]
pub(crate) struct Registers {
    capabilities: u64,
    version: u32,
    /// log2 of the bytes from one doorbell to the next.
    stride_shift: u32,
    pub(crate) doorbells: Doorbells,
    configuration: AtomicU32,
    status: AtomicU32,
    attributes: AtomicU32,
    submission: AtomicU64,
    completion: AtomicU64,
    mask: AtomicU32,
    removed: AtomicBool,
    stores: Mutex<Vec<Store>>,
    pending: AtomicBool,
}

impl Registers {
    pub(crate) fn new(options: &Options, doorbells: Doorbells) -> Self {
        Self {
            capabilities: options.capabilities(),
            version: options.version,
            stride_shift: 2 + u32::from(options.doorbell_stride),
            doorbells,
            configuration: AtomicU32::new(0),
            status: AtomicU32::new(0),
            attributes: AtomicU32::new(0),
            submission: AtomicU64::new(0),
            completion: AtomicU64::new(0),
            mask: AtomicU32::new(0),
            removed: AtomicBool::new(false),
            stores: Mutex::new(Vec::new()),
            pending: AtomicBool::new(false),
        }
    }

    pub(crate) fn load(&self, offset: u64) -> u32 {
        if self.is_removed() {
            return u32::MAX;
        }
        match offset {
            CAPABILITIES => low(self.capabilities),
            0x04 => high(self.capabilities),
            VERSION => self.version,
            INTERRUPT_MASK_SET | INTERRUPT_MASK_CLEAR => self.mask.load(Ordering::Relaxed),
            CONFIGURATION => self.configuration.load(Ordering::Relaxed),
            STATUS => self.status.load(Ordering::Acquire),
            ADMIN_ATTRIBUTES => self.attributes.load(Ordering::Relaxed),
            ADMIN_SUBMISSION => low(self.submission.load(Ordering::Relaxed)),
            0x2c => high(self.submission.load(Ordering::Relaxed)),
            ADMIN_COMPLETION => low(self.completion.load(Ordering::Relaxed)),
            0x34 => high(self.completion.load(Ordering::Relaxed)),
            _ => 0,
        }
    }

    /// Stores 4 bytes. A doorbell's store releases what the host wrote before.
    #[inline]
    pub(crate) fn store(&self, offset: u64, value: u32) {
        if offset >= DOORBELLS {
            let distance = offset - DOORBELLS;
            let index = distance >> self.stride_shift;
            if index << self.stride_shift == distance && self.doorbells.ring(index, value) {
                return;
            }
        }
        self.store_slowly(offset, value);
    }

    /// Stores what is not the doorbell of a queue.
    fn store_slowly(&self, offset: u64, value: u32) {
        if self.is_removed() {
            return;
        }
        match offset {
            CONFIGURATION => self.configuration.store(value, Ordering::Relaxed),
            ADMIN_ATTRIBUTES => self.attributes.store(value, Ordering::Relaxed),
            ADMIN_SUBMISSION => set_low(&self.submission, value & !0xfff),
            0x2c => set_high(&self.submission, value),
            ADMIN_COMPLETION => set_low(&self.completion, value & !0xfff),
            0x34 => set_high(&self.completion, value),
            INTERRUPT_MASK_SET => {
                self.mask.fetch_or(value, Ordering::Relaxed);
            }
            INTERRUPT_MASK_CLEAR => {
                self.mask.fetch_and(!value, Ordering::Relaxed);
            }
            _ => {}
        }
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        stores.push(Store { offset, value });
        // Pairs with the acquire in `take`.
        self.pending.store(true, Ordering::Release);
    }

    /// The stores since the last call, in their order.
    #[inline]
    pub(crate) fn take(&self) -> Vec<Store> {
        if !self.pending.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        self.pending.store(false, Ordering::Relaxed);
        mem::take(&mut *stores)
    }

    /// Whether CC.EN was set last. The step may not have seen it yet.
    pub(crate) fn is_enabled(&self) -> bool {
        self.configuration.load(Ordering::Relaxed) & 1 != 0
    }

    pub(crate) fn set_status(&self, status: u32) {
        self.status.store(status, Ordering::Release);
    }

    /// Everything as after power-on.
    pub(crate) fn clear(&self) {
        self.take();
        self.configuration.store(0, Ordering::Relaxed);
        self.attributes.store(0, Ordering::Relaxed);
        self.submission.store(0, Ordering::Relaxed);
        self.completion.store(0, Ordering::Relaxed);
        self.mask.store(0, Ordering::Relaxed);
        self.set_status(0);
        self.doorbells.clear();
    }

    pub(crate) fn set_removed(&self, removed: bool) {
        self.removed.store(removed, Ordering::Release);
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }
}

pub(crate) const fn low(value: u64) -> u32 {
    (value & 0xffff_ffff) as u32
}

pub(crate) const fn high(value: u64) -> u32 {
    (value >> 32) as u32
}

fn set_low(register: &AtomicU64, value: u32) {
    let rest = register.load(Ordering::Relaxed) & !0xffff_ffff;
    register.store(rest | u64::from(value), Ordering::Relaxed);
}

fn set_high(register: &AtomicU64, value: u32) {
    let rest = register.load(Ordering::Relaxed) & 0xffff_ffff;
    register.store(u64::from(value) << 32 | rest, Ordering::Relaxed);
}
