//! PCI configuration space (PCI Local Bus 3.0, chapter 6; PCI Express Base 3.0, chapter 7).

use crate::bytes::Bytes;
use crate::options::Options;

/// Stands for no vendor in particular.
pub(crate) const VENDOR: u16 = 0x1b36;
const DEVICE: u16 = 0x4d4c;

/// Bytes of a PCI Express function's configuration space.
pub(crate) const SIZE: usize = 4096;

const COMMAND: usize = 0x04;
const BASE_ADDRESS: usize = 0x10;
const POWER: usize = 0x40;
const MSIX: usize = 0x50;
const EXPRESS: usize = 0x60;

const BUS_MASTER: u8 = 1 << 2;

/// The bytes, and which bits of them a host may change.
#[derive(Debug)]
pub(crate) struct ConfigSpace {
    initial: Bytes,
    bytes: Bytes,
    writable: Bytes,
}

impl ConfigSpace {
    pub(crate) fn new(options: &Options) -> Self {
        let mut bytes = Bytes::new(SIZE);
        bytes.put_u16(0x00, VENDOR);
        bytes.put_u16(0x02, DEVICE);
        // A list of capabilities.
        bytes.put_u16(0x06, 1 << 4);
        bytes.put_u8(0x08, 1);
        let [interface, subclass, class, _] = options.class.to_le_bytes();
        bytes.put(0x09, &[interface, subclass, class]);
        // Memory, 64 bits wide.
        bytes.put_u32(BASE_ADDRESS, 0b100);
        bytes.put_u16(0x2c, VENDOR);
        bytes.put_u16(0x2e, 1);
        bytes.put_u8(0x34, 0x40);

        bytes.put(POWER, &[0x01, 0x50]);
        bytes.put_u16(POWER + 2, 3);
        bytes.put(MSIX, &[0x11, 0x60]);
        bytes.put_u16(MSIX + 2, options.vectors - 1);
        // Both tables are in BAR 0; the low three bits name it.
        let offset = |at: u64| u32::try_from(at).expect("BAR 0 is small");
        bytes.put_u32(MSIX + 4, offset(options.vector_table()));
        bytes.put_u32(MSIX + 8, offset(options.pending_bits()));
        bytes.put(EXPRESS, &[0x10, 0x00]);
        // Version 2, an endpoint, which can be reset alone.
        bytes.put_u16(EXPRESS + 2, 2);
        bytes.put_u32(EXPRESS + 4, 1 << 28);

        let mut writable = Bytes::new(SIZE);
        writable.put_u16(COMMAND, 1 << 1 | 1 << 2 | 1 << 10);
        writable.put_u64(BASE_ADDRESS, !(options.bar_size() - 1));
        writable.put_u8(0x3c, 0xff);
        writable.put_u16(POWER + 4, 3);
        writable.put_u16(MSIX + 2, 3 << 14);
        writable.put_u16(EXPRESS + 8, u16::MAX >> 1);
        Self {
            initial: bytes.clone(),
            bytes,
            writable,
        }
    }

    /// Fills `bytes` from `offset` on; false if that lies outside.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> bool {
        let end = offset.saturating_add(bytes.len());
        let found = self.bytes.as_ref().get(offset..end);
        if let Some(found) = found {
            bytes.copy_from_slice(found);
        }
        found.is_some()
    }

    /// Changes what may be changed from `offset` on; false if that lies outside.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        let end = offset.saturating_add(bytes.len());
        if end > SIZE {
            return false;
        }
        let writable = &self.writable.as_ref()[offset..end];
        let present = &mut self.bytes.as_mut()[offset..end];
        for ((present, mask), byte) in present.iter_mut().zip(writable).zip(bytes) {
            *present = *present & !mask | byte & mask;
        }
        true
    }

    /// Whether the function may reach memory by itself.
    pub(crate) fn is_bus_master(&self) -> bool {
        self.bytes.as_ref()[COMMAND] & BUS_MASTER != 0
    }

    /// As after power-on.
    pub(crate) fn clear(&mut self) {
        self.bytes = self.initial.clone();
    }
}
