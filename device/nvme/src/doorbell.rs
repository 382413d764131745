//! Doorbells: queue positions reported to the controller (Base 3.1.24, 3.1.25).
//!
//! A doorbell is a register; writing it leaves the processor and costs, under a hypervisor, an exit. With
//! *shadow doorbells* (Base 5.7, section 7.13) the value goes to memory, and the register is written only when the
//! controller asks for that by the event index beside it:
//!
//! ```text
//!   driver                              controller
//!   stores the shadow                   stores the event index
//!   barrier                             barrier
//!   loads the event index               looks at the shadow once more
//!   passed it? writes the register
//! ```

use std::sync::Arc;

use millrace_memory::{DeviceWord, DeviceWords};
use millrace_pci::{Register, barrier};

use crate::Result;

/// The two pages of shadow doorbells.
#[derive(Debug)]
pub(crate) struct Shadows {
    /// Shadow doorbells, written by the driver.
    pub(crate) values: Arc<DeviceWords>,
    /// Event indexes, written by the controller.
    pub(crate) events: Arc<DeviceWords>,
}

impl Shadows {
    /// Clears the shadow doorbell and event index at `offset`. Must precede the creation of the queue: afterwards the
    /// controller could take the position of a former queue for new commands.
    pub(crate) fn clear(&self, offset: usize) -> Shadow {
        self.values.store(offset, 0);
        self.events.store(offset, 0);
        Shadow {
            value: self.values.word(offset),
            event: self.events.word(offset),
        }
    }
}

/// Shadow doorbell and event index of one doorbell.
#[derive(Debug)]
pub(crate) struct Shadow {
    value: DeviceWord,
    event: DeviceWord,
}

/// Doorbell of one queue.
#[derive(Debug)]
pub(crate) struct Doorbell {
    register: Register,
    shadow: Option<Shadow>,
    /// Last value written.
    last_written: u16,
}

impl Doorbell {
    pub(crate) const fn new(register: Register) -> Self {
        Self {
            register,
            shadow: None,
            last_written: 0,
        }
    }

    /// Begins anew, as the controller does with a new queue; from now on with or without a shadow, which is
    /// zero.
    pub(crate) fn restart(&mut self, shadow: Option<Shadow>) {
        self.shadow = shadow;
        self.last_written = 0;
    }

    /// Last value written.
    pub(crate) const fn last_written(&self) -> u16 {
        self.last_written
    }

    /// Writes `value`, ordered after all earlier writes to memory.
    #[inline]
    pub(crate) fn write(&mut self, value: u16) -> Result<()> {
        let before = self.last_written;
        if let Some(shadow) = &self.shadow {
            barrier::before_register_store();
            shadow.value.store(u32::from(value));
            barrier::between_store_and_load();
            let event = shadow.event.load();
            if !passes(event, before, value) {
                self.last_written = value;
                return Ok(());
            }
        }
        self.register.store_released(u32::from(value))?;
        self.last_written = value;
        Ok(())
    }
}

/// Whether going from `before` to `value` passes the event index. Values wrap at the queue's size rather
/// than at 2^16; going back over the end is read as passing nearly all, which rings once too often at most.
fn passes(event: u32, before: u16, value: u16) -> bool {
    let [low, high, _, _] = event.to_le_bytes();
    let event = u16::from_le_bytes([low, high]);
    value.wrapping_sub(event).wrapping_sub(1) < value.wrapping_sub(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_index_is_passed_when_it_lies_between() {
        assert!(passes(5, 5, 6));
        assert!(passes(5, 3, 8));
        assert!(!passes(5, 6, 8));
        assert!(!passes(5, 3, 5));
        assert!(passes(0, 0, 1));
        assert!(passes(7, 7, 0), "over the end of the queue");
    }
}
