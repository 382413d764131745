//! What the controller is like.

use millrace_memory::base_page_size;

use crate::faults::Faults;
use crate::registers::DOORBELLS;
use crate::{Error, ErrorKind, Result};

/// The smallest memory page size that the specification knows, as a power of two.
pub(crate) const PAGE_SHIFT_MIN: u32 = 12;

/// More than a list of namespaces names at once, many times over.
const NAMESPACES_MAX: usize = 1 << 16;

/// Bytes of all namespaces together, at most: 8 PiB. What is never written costs a word each GiB.
const BYTES_MAX: u64 = 1 << 53;

/// Size, format and reported properties of one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceOptions {
    /// Bytes in a block: a power of two of at least 512.
    pub block_size: u32,
    /// Size in blocks (NSZE), at least 1; all namespaces together have at most 2^53 bytes.
    pub blocks: u64,
    /// NOIOB: transfers that cross a multiple of so many blocks are slower. Zero reports none.
    pub optimal_boundary: u16,
    /// NAWUN, in blocks: what concurrent commands see whole. Zero: as the controller says. The field cannot
    /// say one block if the controller says more.
    pub atomic_write: u32,
    /// NAWUPF, in blocks: what a power cut leaves whole. Zero: as the controller says; one as above.
    pub atomic_write_power_fail: u32,
    /// NSFEAT bit 1, which says that NAWUN and NAWUPF count, is set although both are zero.
    pub has_atomic_units: bool,
    /// Content of deallocated blocks, as DLFEAT bits 2:0 report it.
    pub deallocated: Deallocated,
}

/// What blocks read as that were deallocated, or never written: DLFEAT bits 2:0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deallocated {
    /// It is not said. Blocks stay as they were.
    Unreported,
    /// All bytes are zero. Write Zeroes may deallocate (DLFEAT bit 3).
    Zeros,
    /// All bytes are FFh.
    Ones,
}

impl NamespaceOptions {
    /// What a byte reads as that was never written.
    pub(crate) const fn blank(&self) -> u8 {
        match self.deallocated {
            Deallocated::Unreported | Deallocated::Zeros => 0,
            Deallocated::Ones => u8::MAX,
        }
    }
}

impl Default for NamespaceOptions {
    fn default() -> Self {
        Self {
            block_size: 4096,
            blocks: 16 << 10,
            optimal_boundary: 0,
            atomic_write: 0,
            atomic_write_power_fail: 0,
            has_atomic_units: false,
            deallocated: Deallocated::Zeros,
        }
    }
}

/// What the controller offers of scatter-gather lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SglSupport {
    /// Nothing.
    None,
    /// For I/O commands, data anywhere.
    Any,
    /// For I/O commands, data at multiples of 4 bytes only.
    Dwords,
}

/// Optional commands that the controller offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commands {
    /// Whether Compare is offered (ONCS bit 0).
    pub compare: bool,
    /// Whether Write Uncorrectable is offered (ONCS bit 1).
    pub write_uncorrectable: bool,
    /// Whether Dataset Management is offered (ONCS bit 2).
    pub dataset_management: bool,
    /// Whether Write Zeroes is offered (ONCS bit 3).
    pub write_zeroes: bool,
    /// Whether Format NVM is offered (OACS bit 1).
    pub format: bool,
    /// Whether Doorbell Buffer Config is offered (OACS bit 8).
    pub doorbell_buffer: bool,
}

impl Default for Commands {
    fn default() -> Self {
        Self {
            compare: true,
            write_uncorrectable: true,
            dataset_management: true,
            write_zeroes: true,
            format: true,
            doorbell_buffer: true,
        }
    }
}

/// What the controller is like. Every combination that the specification allows can be said;
/// [`Controller::new`](crate::Controller::new) refuses others. Lies are for [`Faults`].
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Everything that the controller is free to choose follows from this.
    pub seed: u64,
    /// Namespaces 1 and on, 65,536 at most.
    pub namespaces: Vec<NamespaceOptions>,
    /// MDTS: a transfer has at most 2 to this power pages of the smallest size; zero means no limit.
    pub transfer_max: u8,
    /// Entries of an I/O queue at most: 2 to 65536 (MQES and one).
    pub queue_entries_max: u32,
    /// I/O queue pairs that can be had.
    pub queues: u16,
    /// Number of MSI-X vectors, 1 to 2,048.
    pub vectors: u16,
    /// CAP.DSTRD: doorbells are 4 times 2 to this power bytes apart.
    pub doorbell_stride: u8,
    /// CAP.TO, in units of 500 ms.
    pub timeout: u8,
    /// CAP.MPSMIN: pages of 2 to the power 12 and this at least.
    pub page_min: u8,
    /// CAP.MPSMAX: pages of 2 to the power 12 and this bytes at most; not below `page_min`, at most 15.
    pub page_max: u8,
    /// Whether there is a write cache that a power cut empties.
    pub volatile_cache: bool,
    /// Bytes in the write cache; what is older goes to the medium by itself.
    pub cache_bytes: usize,
    /// AWUN, in blocks (1 to 65536).
    pub atomic_write: u32,
    /// AWUPF, in blocks, at most AWUN.
    pub atomic_write_power_fail: u32,
    /// Optional commands that the controller offers (ONCS, OACS).
    pub commands: Commands,
    /// Support of scatter-gather lists by I/O commands (SGLS).
    pub sgl: SglSupport,
    /// Asynchronous Event Requests that may be outstanding.
    pub events_max: u16,
    /// Abort commands that may be outstanding.
    pub aborts_max: u16,
    /// Entries of the error log: 1 to 256 (ELPE and one).
    pub error_entries: u16,
    /// VS: major in bits 31:16, minor in 15:8.
    pub version: u32,
    /// Model number, ASCII, at most 40 characters.
    pub model: String,
    /// Serial number, ASCII, at most 20 characters.
    pub serial: String,
    /// Firmware revision, ASCII, at most 8 characters.
    pub firmware: String,
    /// Steps from CC.EN to CSTS.RDY, either way.
    pub ready_steps: u64,
    /// Commands of a queue that a step takes at most.
    pub burst: usize,
    /// Data is neither stored nor copied: for measuring the rest. Reads leave buffers as they are.
    pub no_data: bool,
    /// The function in this process has its doorbells mapped, as hardware has: ringing one is a plain store.
    /// Doorbells without a queue are noticed late then. Needs pages of 4 KiB and has no effect elsewhere.
    pub mapped_doorbells: bool,
    /// What configuration space says that the function is: class, subclass and interface in the low 24 bits.
    pub class: u32,
    /// Faults of the controller; none by default.
    pub faults: Faults,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            namespaces: vec![NamespaceOptions::default()],
            transfer_max: 5,
            queue_entries_max: 1024,
            queues: 16,
            vectors: 17,
            doorbell_stride: 0,
            timeout: 30,
            page_min: 0,
            page_max: 4,
            volatile_cache: true,
            cache_bytes: 64 << 20,
            atomic_write: 16,
            atomic_write_power_fail: 1,
            commands: Commands::default(),
            sgl: SglSupport::None,
            events_max: 4,
            aborts_max: 4,
            error_entries: 64,
            version: 0x0001_0400,
            model: "Millrace model controller".to_owned(),
            serial: "MODEL0001".to_owned(),
            firmware: "1.0".to_owned(),
            ready_steps: 3,
            burst: 64,
            no_data: false,
            mapped_doorbells: false,
            class: 0x01_0802,
            faults: Faults::default(),
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::new(ErrorKind::Options, what));
        if self.namespaces.is_empty() || self.namespaces.len() > NAMESPACES_MAX {
            return refuse(format!("{} namespaces", self.namespaces.len()));
        }
        let mut bytes = 0_u64;
        for namespace in &self.namespaces {
            if !namespace.block_size.is_power_of_two()
                || !(512..=1 << 20).contains(&namespace.block_size)
                || namespace.blocks == 0
            {
                return refuse(format!("namespace {namespace:?}"));
            }
            bytes = namespace
                .blocks
                .checked_mul(u64::from(namespace.block_size))
                .and_then(|own| own.checked_add(bytes))
                .filter(|bytes| *bytes <= BYTES_MAX)
                .ok_or_else(|| {
                    let context = format!("more than {BYTES_MAX} bytes, with {namespace:?}");
                    Error::new(ErrorKind::Options, context)
                })?;
            let (whole, kept) = self.atomic_units(namespace);
            // Zero in the field means what the controller says, so that one block cannot be said.
            let is_said = |own: u32, common: u32| own != 1 || common == 1;
            if kept > whole
                || namespace.atomic_write > 1 << 16
                || !is_said(namespace.atomic_write, self.atomic_write)
                || !is_said(
                    namespace.atomic_write_power_fail,
                    self.atomic_write_power_fail,
                )
            {
                return refuse(format!("atomic units {whole} and {kept} in {namespace:?}"));
            }
        }
        if !(2..=1 << 16).contains(&self.queue_entries_max) || self.queues == 0 {
            return refuse(format!(
                "{} queues of {} entries",
                self.queues, self.queue_entries_max
            ));
        }
        if self.page_min > self.page_max || self.page_max > 15 || self.doorbell_stride > 8 {
            return refuse(format!(
                "pages {}..={}, doorbell stride {}",
                self.page_min, self.page_max, self.doorbell_stride
            ));
        }
        if !(1..=1 << 16).contains(&self.atomic_write)
            || !(1..=self.atomic_write).contains(&self.atomic_write_power_fail)
        {
            return refuse(format!(
                "atomic units {} and {}",
                self.atomic_write, self.atomic_write_power_fail
            ));
        }
        if self.transfer_max > 20 || self.burst == 0 || self.vectors == 0 || self.vectors > 2048 {
            return refuse(format!(
                "MDTS {}, burst {}, {} vectors",
                self.transfer_max, self.burst, self.vectors
            ));
        }
        let limits = [self.events_max, self.aborts_max, self.error_entries];
        if limits.iter().any(|limit| !(1..=256).contains(limit)) {
            return refuse(format!(
                "{} event requests, {} aborts, {} error log entries",
                self.events_max, self.aborts_max, self.error_entries
            ));
        }
        Ok(())
    }

    /// Blocks that a write leaves whole: for other commands, and for a power cut.
    pub(crate) fn atomic_units(&self, namespace: &NamespaceOptions) -> (u32, u32) {
        let or = |own: u32, common: u32| if own == 0 { common } else { own };
        (
            or(namespace.atomic_write, self.atomic_write),
            or(
                namespace.atomic_write_power_fail,
                self.atomic_write_power_fail,
            ),
        )
    }

    /// The CAP register (base specification 1.4, section 3.1.1), with the lies that the faults ask for.
    pub(crate) fn capabilities(&self) -> u64 {
        let honest = u64::from(self.queue_entries_max - 1)
            | 1 << 16
            | u64::from(self.timeout) << 24
            | u64::from(self.doorbell_stride) << 32
            | 1 << 37
            | u64::from(self.page_min) << 48
            | u64::from(self.page_max) << 52;
        honest & !self.faults.capabilities_clear | self.faults.capabilities_set
    }

    /// Bytes of a transfer at most, if there is a limit.
    pub(crate) fn transfer_bytes_max(&self) -> Option<u64> {
        let shift = u32::from(self.transfer_max) + PAGE_SHIFT_MIN + u32::from(self.page_min);
        (self.transfer_max != 0).then(|| 1 << shift)
    }

    /// How many doorbells there are.
    pub(crate) fn doorbells(&self) -> usize {
        (usize::from(self.queues) + 1) * 2
    }

    /// Whether the doorbells begin at a page of this system, so that they can be mapped alone.
    pub(crate) fn can_map_doorbells() -> bool {
        DOORBELLS % base_page_size() as u64 == 0
    }

    /// Where the MSI-X table begins in BAR 0: the first page after the doorbells.
    pub(crate) fn vector_table(&self) -> u64 {
        let bytes = (self.doorbells() as u64) * (4 << self.doorbell_stride);
        DOORBELLS + bytes.next_multiple_of(0x1000)
    }

    /// Where the pending bits of MSI-X begin.
    pub(crate) fn pending_bits(&self) -> u64 {
        let bytes = u64::from(self.vectors) * 16;
        self.vector_table() + bytes.next_multiple_of(0x1000)
    }

    /// Bytes of BAR 0: a power of two.
    pub(crate) fn bar_size(&self) -> u64 {
        (self.pending_bits() + 0x1000).next_power_of_two()
    }
}
