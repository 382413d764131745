//! Controllers that violate the specification.

use millrace_pci::Identity;

/// Deviations of a controller from the specification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Quirks {
    /// A write with the FUA bit completes before its blocks are on the medium (NVM Express Base Specification
    /// 1.4, section 6.15). Flushes are executed.
    pub(super) ignores_fua: bool,
}

/// PCI vendor, PCI device, and their deviations.
const KNOWN: [(u16, u16, Quirks); 2] = [
    // QEMU's emulated controller: every write goes to the disk's image without a flag, whatever the bit.
    (0x1b36, 0x0010, Quirks { ignores_fua: true }),
    // The same in QEMU before 5.2, and in later ones with use-intel-id=on.
    (0x8086, 0x5845, Quirks { ignores_fua: true }),
];

impl Quirks {
    /// Known deviations of this kind of controller.
    pub(super) fn of(identity: Identity) -> Self {
        let known = KNOWN
            .iter()
            .find(|(vendor, device, _)| (*vendor, *device) == (identity.vendor, identity.device));
        known.map_or_else(Self::default, |(_, _, quirks)| *quirks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_controllers_are_mistrusted() {
        let of = |vendor, device| {
            Quirks::of(Identity {
                vendor,
                device,
                class: 0x01_0802,
                revision: 2,
            })
        };
        assert!(of(0x1b36, 0x0010).ignores_fua);
        assert!(of(0x8086, 0x5845).ignores_fua);
        for (vendor, device) in [(0x1b36, 0x0011), (0x8086, 0x0010), (0x144d, 0xa808)] {
            assert_eq!(of(vendor, device), Quirks::default());
        }
    }
}
