//! What the input's bytes mean. Behind their end all is zero.

use millrace_nvme::{Options, ScatterGather};
use millrace_nvme_model as model;
use model::{Fault, FaultRule, Faults, IdentifyLie, SglSupport, Target, When};

/// Bits of CAP that say how long enabling may take: the longest would only cost time.
const CAP_TIMEOUT: u64 = 0xff << 24;

/// Bytes that are read from the front.
pub(super) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) const fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.rest.split_first() else {
            return 0;
        };
        self.rest = rest;
        *byte
    }

    /// Below `bound`, from one byte.
    pub(super) fn below(&mut self, bound: u8) -> u8 {
        self.byte() % bound
    }

    pub(super) fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    pub(super) fn long(&mut self) -> u64 {
        u64::from(self.word()) | u64::from(self.word()) << 32
    }

    fn chance(&mut self, period: u8) -> bool {
        self.below(period) == 1
    }

    pub(super) fn driver_options(&mut self) -> Options {
        Options {
            retries: self.below(4),
            transfer_max: 1 << (self.below(12) + 10),
            scatter_gather: match self.below(3) {
                0 => ScatterGather::WhenNeeded,
                1 => ScatterGather::Always,
                _ => ScatterGather::Never,
            },
            shadow_doorbells: self.below(2) == 0,
            queue_pairs_max: u16::from(self.below(8)),
            interrupts: self.below(2) == 0,
            ..Options::default()
        }
    }

    pub(super) fn model_options(&mut self) -> model::Options {
        let atomic = 1 << self.below(6);
        model::Options {
            seed: u64::from(self.byte()),
            namespaces: vec![self.namespace(), self.namespace()],
            transfer_max: self.below(8),
            queue_entries_max: 2 + u32::from(self.byte()),
            queues: 1 + u16::from(self.below(4)),
            vectors: 1 + u16::from(self.below(4)),
            doorbell_stride: self.below(9),
            timeout: 1,
            page_min: self.below(3),
            page_max: 4,
            volatile_cache: self.below(2) == 0,
            cache_bytes: 64 << 10,
            atomic_write: atomic,
            atomic_write_power_fail: 1,
            commands: model::Commands {
                compare: self.below(4) > 0,
                write_zeroes: self.below(4) > 0,
                dataset_management: self.below(4) > 0,
                doorbell_buffer: self.below(2) > 0,
                ..model::Commands::default()
            },
            sgl: match self.below(3) {
                0 => SglSupport::None,
                1 => SglSupport::Any,
                _ => SglSupport::Dwords,
            },
            events_max: 1 + u16::from(self.below(8)),
            aborts_max: 1 + u16::from(self.below(4)),
            ready_steps: u64::from(self.below(8)),
            burst: 1 + usize::from(self.below(64)),
            no_data: self.below(2) == 0,
            faults: self.faults(),
            ..model::Options::default()
        }
    }

    fn namespace(&mut self) -> model::NamespaceOptions {
        model::NamespaceOptions {
            block_size: 512 << self.below(5),
            blocks: 64 + u64::from(self.byte()),
            optimal_boundary: u16::from(self.below(32)),
            ..model::NamespaceOptions::default()
        }
    }

    pub(super) fn faults(&mut self) -> Faults {
        let mut faults = Faults {
            // Rules that always strike leave little to look at: most controllers have none.
            rules: (0..self.below(8).saturating_sub(4))
                .map(|_| self.rule())
                .collect(),
            ..Faults::default()
        };
        if self.chance(4) {
            self.add_failures(&mut faults);
        }
        if self.chance(4) {
            self.add_lies(&mut faults);
        }
        faults
    }

    fn add_failures(&mut self, faults: &mut Faults) {
        faults.never_ready = self.chance(8);
        faults.never_disabled = self.chance(4);
        faults.never_shut_down = self.chance(4);
        faults.remove_at = self.moment();
        faults.fatal_at = self.moment();
        faults.reset_at = self.moment();
        faults.unasked = if self.chance(3) {
            self.byte().into()
        } else {
            0
        };
    }

    fn add_lies(&mut self, faults: &mut Faults) {
        faults.identify_random = self.chance(3).then(|| self.below(3));
        faults.logs_random = self.chance(3);
        faults.features_random = self.chance(3);
        if self.chance(3) {
            faults.capabilities_set = self.long() & self.long() & self.long() & !CAP_TIMEOUT;
            faults.capabilities_clear = self.long() & self.long() & self.long() & !CAP_TIMEOUT;
        }
        faults.identify = (0..self.below(4)).map(|_| self.lie()).collect();
    }

    fn moment(&mut self) -> Option<u64> {
        self.chance(4).then(|| u64::from(self.byte()) * 4)
    }

    fn lie(&mut self) -> IdentifyLie {
        // Where there is something that the driver looks at.
        const PLACES: [usize; 16] = [
            0, 8, 24, 25, 26, 46, 77, 111, 128, 130, 256, 258, 512, 516, 520, 536,
        ];
        let cns = self.below(3);
        let place = PLACES[usize::from(self.below(16))];
        let length = 1 + self.below(8);
        IdentifyLie {
            cns,
            offset: place,
            bytes: (0..length).map(|_| self.byte()).collect(),
        }
    }

    fn rule(&mut self) -> FaultRule {
        let target = match self.below(4) {
            0 | 1 => Target::Io,
            2 => Target::Admin,
            _ => Target::AdminOpcode(self.below(16)),
        };
        let when = match self.below(4) {
            0 => When::Always,
            1 => When::Nth(u64::from(self.below(32)) + 1),
            2 => When::From(u64::from(self.below(32)) + 1),
            _ => When::OneIn(u32::from(self.below(32)) + 1),
        };
        FaultRule {
            target,
            when,
            fault: self.fault(),
        }
    }

    fn fault(&mut self) -> Fault {
        match self.below(14) {
            0 => Fault::Fail(model::Status(
                u16::from(self.byte()) | u16::from(self.byte()) << 8 & 0x7f00,
            )),
            1 => Fault::Delay(u64::from(self.byte())),
            2 => Fault::Reorder(u64::from(self.byte())),
            3 => Fault::Lose,
            4 => Fault::Fatal,
            5 => Fault::Remove,
            6 => Fault::WrongId,
            7 => Fault::IdOutOfRange,
            8 => Fault::CompleteTwice,
            9 => Fault::HeadBeyond,
            10 => Fault::WrongQueue,
            11 => Fault::Garbage,
            12 => Fault::Overwrite,
            _ => Fault::Forget,
        }
    }
}
